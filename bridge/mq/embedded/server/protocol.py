"""The wire protocol to an embedded queue manager in another process: MessagePack frames over a stream socket.

A frame is a length (four bytes, big-endian) and one value: a request, tagged with its MQI call, or a reply. A socket is one
MQ connection, with one request in flight. Closing it backs out the unit of work.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

import msgspec

from bridge.mq.batch import Named
from bridge.mq.mqi import MQOD, MQPMO, MQSD, GetOptions, Property
from bridge.telemetry.message import Message
from bridge.wire.mq import MQLONG

LENGTH = struct.Struct(">I")
#: The socket of a queue manager, in its data directory.
SOCKET_NAME = "mqbridge.sock"
PROTOCOL_VERSION = 5

#: TCP keep-alive: seconds of silence before the first probe, seconds between probes, and unanswered probes at most.
_IDLE: Final = 30
_INTERVAL: Final = 10
_PROBES: Final = 3

#: Socket options and their values; some systems lack some of them.
_OPTIONS: Final = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _PROBES,
    # TCP sends no probes while data is unacknowledged.
    "TCP_USER_TIMEOUT": (_IDLE + _INTERVAL * _PROBES) * 1000,
}


def keep_alive(connection: socket.socket) -> None:
    """Configure TCP keep-alive, so that the connection breaks a minute after the peer has disappeared."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Connect(msgspec.Struct, tag="MQCONN", array_like=True):
    version: int
    application: str
    #: blank for any queue manager
    queue_manager: str = ""
    user: str = ""
    password: bytes = b""


class Open(msgspec.Struct, tag="MQOPEN", array_like=True):
    od: MQOD
    options: MQLONG


class Close(msgspec.Struct, tag="MQCLOSE", array_like=True):
    handle: MQLONG
    options: MQLONG


class Put(msgspec.Struct, tag="MQPUT", array_like=True):
    handle: MQLONG
    message: Message
    options: MQPMO
    properties: list[Property]


class Put1(msgspec.Struct, tag="MQPUT1", array_like=True):
    od: MQOD
    message: Message
    options: MQPMO
    properties: list[Property]


class Get(msgspec.Struct, tag="MQGET", array_like=True):
    handle: MQLONG
    options: GetOptions


class GetMany(msgspec.Struct, tag="MQGET many", array_like=True):
    """`bridge.mq.batch.get_many`."""

    handle: MQLONG
    options: GetOptions
    messages: MQLONG
    size: MQLONG


class GetEach(msgspec.Struct, tag="MQGET each", array_like=True):
    """`bridge.mq.batch.get_each`."""

    handle: MQLONG
    options: GetOptions
    msg_ids: list[bytes]
    size: MQLONG


class LookMany(msgspec.Struct, tag="MQGET look", array_like=True):
    """`bridge.mq.batch.look_many`."""

    handle: MQLONG
    options: GetOptions
    messages: MQLONG


class TakeEach(msgspec.Struct, tag="MQGET take", array_like=True):
    """`bridge.mq.batch.take_each`."""

    handle: MQLONG
    options: GetOptions
    wanted: list[Named]


class PutMany(msgspec.Struct, tag="MQPUT many", array_like=True):
    """`bridge.mq.batch.put_many`: handle, message, MQPMO_ options of each."""

    puts: list[tuple[MQLONG, Message, MQLONG]]


class Subscribe(msgspec.Struct, tag="MQSUB", array_like=True):
    sd: MQSD
    handle: MQLONG | None


class SubscriptionRequest(msgspec.Struct, tag="MQSUBRQ", array_like=True):
    handle: MQLONG
    action: MQLONG
    options: MQLONG


class Inquire(msgspec.Struct, tag="MQINQ", array_like=True):
    handle: MQLONG
    selectors: list[MQLONG]


class Set(msgspec.Struct, tag="MQSET", array_like=True):
    handle: MQLONG
    selectors: list[MQLONG]
    ints: list[MQLONG]
    chars: list[str]


class Statistics(msgspec.Struct, tag="MQSTAT", array_like=True):
    kind: MQLONG


class Commit(msgspec.Struct, tag="MQCMIT", array_like=True):
    pass


class Backout(msgspec.Struct, tag="MQBACK", array_like=True):
    pass


class Disconnect(msgspec.Struct, tag="MQDISC", array_like=True):
    pass


class Command(msgspec.Struct, tag="MQSC", array_like=True):
    text: str


Request = (
    Connect
    | Open
    | Close
    | Put
    | Put1
    | Get
    | GetMany
    | GetEach
    | LookMany
    | TakeEach
    | PutMany
    | Subscribe
    | SubscriptionRequest
    | Inquire
    | Set
    | Statistics
    | Commit
    | Backout
    | Disconnect
    | Command
)


class Reply(msgspec.Struct, array_like=True):
    """Completion code, reason code, a description, and the result, including descriptors and options that were updated."""

    comp_code: int
    reason: int
    detail: str = ""
    result: msgspec.Raw = msgspec.Raw(b"\xc0")


class Connected(msgspec.Struct, array_like=True):
    """The result of MQCONN: the queue manager's name, process and version."""

    queue_manager: str
    process: int
    version: str


def frame(value: object) -> bytearray:
    """Encode a value as a frame."""
    written = bytearray()
    _ENCODER.encode_into(value, written, LENGTH.size)
    LENGTH.pack_into(written, 0, len(written) - LENGTH.size)
    return written


def reply(comp_code: int, reason: int, detail: str, result: object = None) -> bytearray:
    """Encode a `Reply` as a frame, without copying its result, which may be long."""
    return frame((comp_code, reason, detail, result))


_ENCODER = msgspec.msgpack.Encoder()
