"""The data of cases: valid conversations of each protocol, changed at random."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from bridge.mq import remote as protocol
from bridge.mq.mqi import MQOD, MQSD, GetOptions, Property
from bridge.mq.remote import CallPipeline, GetCall, PutCall
from bridge.mqtt.packets import (
    Auth,
    AuthProperties,
    Connect,
    ConnectProperties,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Will,
)
from bridge.mqtt.writer import encode
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

Structure = TypeVar("Structure", bound=msgspec.Struct)

#: One conversation: the data written one after the other.
Parts = list[bytes]

#: Boundary values of numbers.
_EDGES: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_LONGEST: Final = 100_000

#: Destinations of MQ applications: a queue, a topic, and clients, some of them connected.
_DESTINATIONS: Final = (
    MQOD(ObjectName="FUZZ"),
    MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="fuzz/1"),
    *(MQOD(ObjectName="fuzz/1", ObjectQMgrName=f"fuzz{index}") for index in range(4)),
)
_FILTERS: Final = ("fuzz/#", "+/+", "fuzz/$share", "$share/g/fuzz/#", "#")
_COMMANDS: Final = ("DISPLAY QMGR", "DISPLAY QLOCAL(*)", "DEFINE QLOCAL(", "'" * 50, "(" * 9999)
_CONTROL: Final = (
    b'{"command": "mappings"}\n',
    b'{"command": ["mappings"]}\n',
    b'"mappings"\n',
    b"mappings\n",
    b"[" * 5000,
)
_PROXY: Final = (
    b"PROXY TCP4 192.0.2.7 192.0.2.1 50000 1883\r\n",
    b"PROXY TCP6 2001:db8::1 ::1 5 6\r\n",
    b"PROXY UNKNOWN\r\n",
)


def mqtt(number: random.Random, level: int | None = None) -> Parts:
    """Return packets of an MQTT client, mostly in a sensible order."""
    level = level or number.choice((3, 4, 5))
    name = "MQIsdp" if level == 3 else "MQTT"
    will = Will("fuzz/will", b"gone", number.randrange(3), number.random() < 0.5) if number.random() < 0.2 else None
    user, password = ("dev", b"wrong") if number.random() < 0.3 else (None, None)
    properties = None
    if level == 5:
        expiry, most = number.choice((0, 0, 5)), number.choice((1, 100))
        properties = ConnectProperties(session_expiry_interval=expiry, receive_maximum=most)
    keep_alive = number.choice((0, 1, 60))
    packets: list[Packet] = [
        Connect(f"fuzz{number.randrange(50)}", name, level, True, keep_alive, will, user, password, properties)
    ]
    choices: Sequence[Callable[[int], Packet]] = (
        lambda i: Subscribe(i, ((number.choice(_FILTERS), number.randrange(3)),)),
        lambda i: Publish(f"fuzz/{number.randrange(9)}", number.randbytes(number.randrange(300)), 0, False, False, 0),
        lambda i: Publish("fuzz/x", b"x", number.choice((1, 2)), number.random() < 0.2, number.random() < 0.2, i),
        lambda i: Publish(
            "fuzz/p", b"p", 1, False, False, i, PublishProperties(message_expiry_interval=1, topic_alias=1)
        ),
        lambda i: Pubrel(i),
        lambda i: Puback(i),
        lambda i: Pubrec(i),
        lambda i: Pubcomp(i),
        lambda i: Unsubscribe(i, ("fuzz/#",)),
        lambda i: Pingreq(),
        lambda i: Auth(
            0x18, AuthProperties(authentication_method="SCRAM-SHA-256", authentication_data=b"n,,n=dev,r=x")
        ),
        lambda i: Disconnect(),
    )
    packets += [number.choice(choices)(number.randrange(1, 9)) for _ in range(number.randrange(8))]
    parts = []
    for packet in packets:
        if level < 5 and isinstance(packet, Auth):
            continue
        if level < 5 and isinstance(packet, Publish):
            packet = Publish(packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id)
        parts.append(encode(packet, "big", level))
    return parts


def applications(number: random.Random) -> Parts:
    """Return requests of an MQ application with this package."""
    requests: list[protocol.Request] = [protocol.ConnectCall(protocol.PROTOCOL_VERSION, "fuzz", "", "", b"")]
    md = MQMD(Format=cmqc.MQFMT_STRING)
    managed = cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED
    contexts = managed | cmqc.MQSO_SET_CORREL_ID | cmqc.MQSO_SET_IDENTITY_CONTEXT
    all_context = cmqc.MQPMO_SET_ALL_CONTEXT
    choices: Sequence[Callable[[], protocol.Request]] = (
        lambda: protocol.OpenCall(
            MQOD(ObjectName="FUZZ"), number.choice((cmqc.MQOO_OUTPUT, cmqc.MQOO_INPUT_SHARED, 0x7FFFFFFF))
        ),
        lambda: PutCall(number.randrange(4), Message(md, number.randbytes(100)), cmqc.MQPMO_NONE, []),
        lambda: protocol.Put1Call(MQOD(ObjectName="FUZZ"), Message(md, b"x"), cmqc.MQPMO_SYNCPOINT, []),
        lambda: protocol.Put1Call(
            number.choice(_DESTINATIONS), Message(_changed(number, MQMD()), b"x"), all_context, []
        ),
        lambda: protocol.Put1Call(
            _changed(number, number.choice(_DESTINATIONS)), Message(md, b"x"), cmqc.MQPMO_NONE, []
        ),
        lambda: protocol.Put1Call(number.choice(_DESTINATIONS), Message(md, b"x"), number.getrandbits(32), []),
        lambda: protocol.Put1Call(
            number.choice(_DESTINATIONS),
            Message(md, b"x"),
            cmqc.MQPMO_NONE,
            [_changed(number, Property(name="colour"))],
        ),
        lambda: protocol.SubscribeCall(_changed(number, MQSD(ObjectString="fuzz/#", Options=contexts))),
        lambda: GetCall(number.randrange(4), _changed(number, GetOptions())),
        lambda: GetCall(number.randrange(4), GetOptions(WaitInterval=1)),
        lambda: CallPipeline([GetCall(number.randrange(4), GetOptions())], number.choice((0, 1, 10)), 1000),
        lambda: CallPipeline([GetCall(number.randrange(4), GetOptions())] * number.randrange(3), 1),
        lambda: protocol.SubscribeCall(MQSD(ObjectString="fuzz/#", Options=managed)),
        lambda: protocol.InquireCall(number.randrange(4), [number.choice((cmqc.MQIA_CURRENT_Q_DEPTH, -1, 2**31))]),
        lambda: protocol.CommandCall(number.choice(_COMMANDS)),
        lambda: protocol.CommitCall(),
        lambda: protocol.BackoutCall(),
        lambda: protocol.CloseCall(number.randrange(4), 0),
        lambda: protocol.DisconnectCall(),
    )
    requests += [number.choice(choices)() for _ in range(number.randrange(10))]
    return [bytes(protocol.frame(request)) for request in requests]


def _changed(number: random.Random, structure: Structure) -> Structure:
    """Return a structure of the MQI with another value in one field, mostly too long or out of range."""
    field = number.choice(structure.__struct_fields__)
    value: object = getattr(structure, field)
    if isinstance(value, bytes):
        value = number.choice((b"x", b"\xff", b"\0")) * number.choice((0, 1, 8, 9, 12, 13, 24, 25, 48, 49, 5000))
    elif isinstance(value, str):
        value = number.choice(("x", "é", "/", "#")) * number.choice((0, 1, 12, 13, 48, 49, 5000, 10_241))
    elif isinstance(value, int):
        value = number.choice((*_EDGES, -1, -(1 << 31), -(1 << 31) - 1, 1 << 40))
    if number.random() < 0.1:
        value = number.choice((None, 1, "text", b"bytes", [], 1.5))
    return msgspec.structs.replace(structure, **{field: value})


def control(number: random.Random) -> Parts:
    """Return the request of `mqbridge mapping list` to a bridge, which changes nothing."""
    return [number.choice(_CONTROL)]


def web_socket(number: random.Random) -> Parts:
    """Return the opening handshake and frames of a WebSocket with MQTT."""
    request = (
        b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    parts = [request]
    for part in mutated(number, mqtt(number)) if number.random() < 0.5 else mqtt(number):
        opcode = number.choice((2, 2, 2, 2, 2, 2, 0, 1, 8, 9, 10, 3))
        parts.append(_frame(number, opcode, part))
    return parts


def proxied(number: random.Random) -> Parts:
    """Return a header of the PROXY protocol, followed by MQTT."""
    if number.random() < 0.5:
        header = number.choice(_PROXY)
    else:
        values = struct.pack("!BH", 0x20, 5 + 3 + 3) + struct.pack("!BI", 7, 0) + struct.pack("!BH", 0x22, 3) + b"dev"
        body = bytes((192, 0, 2, 7, 192, 0, 2, 1)) + struct.pack("!HH", 50000, 1883) + values
        kind = struct.pack("!BBH", number.choice((0x20, 0x21)), number.choice((0x11, 0x00, 0x21)), len(body))
        header = b"\r\n\r\n\0\r\nQUIT\n" + kind + body
    return [header, *mqtt(number)]


def mutated(number: random.Random, parts: Parts) -> Parts:
    """Return a conversation with some random changes."""
    parts = list(parts)
    for _ in range(number.choice((0, 1, 1, 1, 2, 5))):
        if not parts:
            break
        index = number.randrange(len(parts))
        parts[index : index + 1] = number.choice(_CHANGES)(number, parts[index])
    if number.random() < 0.3:  # other TCP packets than those that were written
        whole = b"".join(parts)
        cuts = sorted(number.randrange(len(whole) + 1) for _ in range(number.randrange(6)))
        parts = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    return parts


def _flip(number: random.Random, data: bytes) -> Parts:
    changed = bytearray(data)
    for _ in range(number.choice((1, 1, 2, 10))):
        if changed:
            changed[number.randrange(len(changed))] ^= 1 << number.randrange(8)
    return [bytes(changed)]


def _edge(number: random.Random, data: bytes) -> Parts:
    size = number.choice((1, 2, 4))
    at = number.randrange(len(data) + 1)
    edge = (number.choice(_EDGES) & ((1 << (8 * size)) - 1)).to_bytes(size, number.choice(("big", "little")))
    return [data[:at] + edge + data[at + size :]]


def _cut(number: random.Random, data: bytes) -> Parts:
    return [data[: number.randrange(len(data) + 1)]]


def _insert(number: random.Random, data: bytes) -> Parts:
    at = number.randrange(len(data) + 1)
    return [data[:at] + number.randbytes(number.choice((1, 2, 20))) + data[at:]]


def _repeat(number: random.Random, data: bytes) -> Parts:
    return [data] * number.choice((2, 3, 50))


def _long(number: random.Random, data: bytes) -> Parts:
    at = number.randrange(len(data) + 1)
    filler = number.choice((b"\0", b"/", b"+/", b"\xff", b"\x80", b"A"))
    return [data[:at] + (filler * _LONGEST)[: number.choice((200, 70_000, _LONGEST))] + data[at:]]


def _garbage(number: random.Random, data: bytes) -> Parts:
    return [number.randbytes(number.choice((1, 10, 1000)))]


def _nothing(number: random.Random, data: bytes) -> Parts:
    return []


_CHANGES: Final = (_flip, _flip, _edge, _edge, _cut, _insert, _repeat, _long, _garbage, _nothing)


def _frame(number: random.Random, opcode: int, data: bytes) -> bytes:
    """Return a masked frame of a client (RFC 6455 section 5.2)."""
    first = number.choice((0x80, 0x80, 0x80, 0x00)) | opcode
    mask = number.randbytes(4)
    size = len(data)
    if size < 126:
        header = bytes((first, 0x80 | size))
    elif size < 65536:
        header = bytes((first, 0x80 | 126)) + struct.pack("!H", size)
    else:
        header = bytes((first, 0x80 | 127)) + struct.pack("!Q", size)
    return header + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
