"""MQXQH, the transmission-queue header: where a message on a transmission queue is to go, and its own MQMD.

The queue manager puts it in front of every message that it places on a transmission queue, and gives the message a new
MQMD with Format MQXMIT; the descriptor that the application wrote is embedded here. On SYSTEM.MQTT.TRANSMIT.QUEUE the
remote queue manager is the client identifier. Source: IBM MQ, "MQXQH - Transmission-queue header"; facts of 004.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq.errors import MalformedHeader
from bridge.wire.mq.mqmd import MQMD, decode_mqmd, encode_mqmd
from bridge.wire.mq.structure import LONG, Buffer, ByteOrder, Layout, char, detect_byte_order

MQXQH_LAYOUT: Final = Layout(
    "MQXQH",
    cmqc.MQXQH_STRUC_ID,
    ("Version", LONG),
    ("RemoteQName", char(48)),
    ("RemoteQMgrName", char(48)),
)
"""The part before the embedded descriptor, which begins at ``MQXQH_LAYOUT.length`` (104)."""


class MQXQH(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A transmission-queue header; Format, Encoding and CodedCharSetId of ``MsgDesc`` describe what follows it.

    ``MsgDesc`` has version 1, always: what version 2 adds travels in an MQMDE behind this header.
    """

    RemoteQName: bytes = b""
    RemoteQMgrName: bytes = b""
    MsgDesc: MQMD = MQMD()


def encode_mqxqh(header: MQXQH, *, byte_order: ByteOrder = "little") -> bytes:
    """Encode the header's 428 bytes; ``byte_order`` holds for the embedded descriptor too.

    :raises MalformedHeader: a name is too long, or MsgDesc is not a valid MQMD of version 1.
    """
    start = MQXQH_LAYOUT.pack((cmqc.MQXQH_VERSION_1, header.RemoteQName, header.RemoteQMgrName), byte_order)
    _check_version_1(header.MsgDesc, 0)
    try:
        return start + encode_mqmd(header.MsgDesc, byte_order=byte_order)
    except MalformedHeader as error:
        raise MalformedHeader(error.structure, MQXQH_LAYOUT.length + error.offset, error.rule) from None


def decode_mqxqh(buffer: Buffer, offset: int = 0, *, byte_order: ByteOrder | None = None) -> MQXQH:
    """Decode the header at ``offset``.

    :param byte_order: None: the one in which Version is 1.
    :raises MalformedHeader: no MQXQH of version 1 with an MQMD of version 1 in it stands there.
    """
    order = byte_order or detect_byte_order("MQXQH", buffer, offset, (cmqc.MQXQH_VERSION_1,))
    fields = MQXQH_LAYOUT.unpack(buffer, offset, order)
    version = fields.pop("Version")
    if version != cmqc.MQXQH_VERSION_1:
        raise MalformedHeader("MQXQH", offset + 4, f"Version is {version}, not 1")
    descriptor = decode_mqmd(buffer, offset + MQXQH_LAYOUT.length, byte_order=order)
    _check_version_1(descriptor, offset)
    return MQXQH(MsgDesc=descriptor, **fields)


def _check_version_1(descriptor: MQMD, offset: int) -> None:
    if descriptor.Version != cmqc.MQMD_VERSION_1:
        rule = f"the embedded MQMD has version {descriptor.Version}; only version 1 fits"
        raise MalformedHeader("MQXQH", offset + MQXQH_LAYOUT.length + 4, rule)
