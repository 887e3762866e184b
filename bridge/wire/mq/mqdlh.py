"""MQDLH, the dead-letter header: why a message is on the dead-letter queue, and where it was to go.

Source: IBM MQ, "MQDLH - Dead-letter header".
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq.errors import MalformedHeader
from bridge.wire.mq.structure import LONG, Buffer, ByteOrder, Layout, char, detect_byte_order

MQDLH_LAYOUT: Final = Layout(
    "MQDLH",
    cmqc.MQDLH_STRUC_ID,
    ("Version", LONG),
    ("Reason", LONG),
    ("DestQName", char(48)),
    ("DestQMgrName", char(48)),
    ("Encoding", LONG),
    ("CodedCharSetId", LONG),
    ("Format", char(8)),
    ("PutApplType", LONG),
    ("PutApplName", char(28)),
    ("PutDate", char(8)),
    ("PutTime", char(8)),
)
_ROW: Final = attrgetter(*MQDLH_LAYOUT.fields[1:])


class MQDLH(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A dead-letter header; Encoding, CodedCharSetId and Format describe the original data, which follows it.

    Reason is an MQRC or MQFB number; PutDate is ``YYYYMMDD`` and PutTime ``HHMMSSTH`` in GMT. The defaults are those of
    IBM's MQDLH_DEFAULT: Encoding and CodedCharSetId are undefined there and are to be set.
    """

    Reason: int = cmqc.MQRC_NONE
    DestQName: bytes = b""
    DestQMgrName: bytes = b""
    Encoding: int = 0
    CodedCharSetId: int = cmqc.MQCCSI_UNDEFINED
    Format: bytes = cmqc.MQFMT_NONE
    PutApplType: int = 0
    PutApplName: bytes = b""
    PutDate: bytes = b""
    PutTime: bytes = b""


def encode_mqdlh(header: MQDLH, *, byte_order: ByteOrder = "little") -> bytes:
    """Encode the header's 172 bytes.

    :raises MalformedHeader: a value does not fit its field.
    """
    return MQDLH_LAYOUT.pack((cmqc.MQDLH_VERSION_1, *_ROW(header)), byte_order)


def decode_mqdlh(buffer: Buffer, offset: int = 0, *, byte_order: ByteOrder | None = None) -> MQDLH:
    """Decode the header at ``offset``.

    :param byte_order: None: the one in which Version is 1.
    :raises MalformedHeader: no MQDLH of version 1 stands there.
    """
    order = byte_order or detect_byte_order("MQDLH", buffer, offset, (cmqc.MQDLH_VERSION_1,))
    fields = MQDLH_LAYOUT.unpack(buffer, offset, order)
    version = fields.pop("Version")
    if version != cmqc.MQDLH_VERSION_1:
        raise MalformedHeader("MQDLH", offset + 4, f"Version is {version}, not 1")
    return MQDLH(**fields)
