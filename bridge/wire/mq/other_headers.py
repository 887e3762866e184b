"""Headers of which the bridge needs the length only: it discards them in messages for MQTT clients.

All begin with StrucId, Version, StrucLength, Encoding, CodedCharSetId, Format and Flags. Source: IBM MQ documentation, the
topics of MQCIH, MQDH, MQEPH, MQIIH, MQRFH, MQRMH and MQWIH.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.wire import cmqc
from bridge.wire.mq.errors import MalformedHeader
from bridge.wire.mq.structure import LONG, Buffer, ByteOrder, Layout, char


class OtherKind(NamedTuple):
    """A kind of header."""

    #: its fields up to Format
    start: Layout
    #: bytes of its shortest version
    min_length: int
    #: Encoding and CodedCharSetId are reserved: what follows has those of the header itself
    inherits: bool = False


class OtherHeader(NamedTuple):
    """What a header says of its length and of what follows it."""

    StrucLength: int
    Format: bytes
    Encoding: int
    CodedCharSetId: int


def _start(name: str, struc_id: bytes) -> Layout:
    fields = ("Version", LONG), ("StrucLength", LONG), ("Encoding", LONG), ("CodedCharSetId", LONG), ("Format", char(8))
    return Layout(name, struc_id, *fields)


OTHER_KINDS: Final = {
    cmqc.MQFMT_CICS: OtherKind(_start("MQCIH", b"CIH "), 164, inherits=True),
    cmqc.MQFMT_DIST_HEADER: OtherKind(_start("MQDH", b"DH  "), 48),
    cmqc.MQFMT_EMBEDDED_PCF: OtherKind(_start("MQEPH", b"EPH "), 68),
    cmqc.MQFMT_IMS: OtherKind(_start("MQIIH", b"IIH "), 84, inherits=True),
    cmqc.MQFMT_RF_HEADER_1: OtherKind(_start("MQRFH", b"RFH "), 32),
    cmqc.MQFMT_REF_MSG_HEADER: OtherKind(_start("MQRMH", b"RMH "), 108),
    cmqc.MQFMT_WORK_INFO_HEADER: OtherKind(_start("MQWIH", b"WIH "), 120),
}
"""Format -> the kind of header that it names."""


def decode_other_header(
    kind: OtherKind, buffer: Buffer, offset: int, *, byte_order: ByteOrder, encoding: int
) -> OtherHeader:
    """Decode the header at ``offset``, which is in the Encoding given.

    :raises MalformedHeader: there is no such header, or its StrucLength is too short or leads beyond the buffer.
    """
    fields = kind.start.unpack(buffer, offset, byte_order)
    length = fields["StrucLength"]
    if not kind.min_length <= length <= len(buffer) - offset:
        rule = f"StrucLength is {length}; the header has {kind.min_length} bytes at least, {len(buffer) - offset} are left"
        raise MalformedHeader(kind.start.name, offset + kind.start.offsets["StrucLength"], rule)
    if kind.inherits:
        return OtherHeader(length, fields["Format"], encoding, cmqc.MQCCSI_INHERIT)
    return OtherHeader(length, fields["Format"], fields["Encoding"], fields["CodedCharSetId"])
