"""One reader for each packet: from a body and the flags of the fixed header to a packet, or MalformedPacket.

The two versions of the protocol differ in what they do with bits they do not use: MQTT 3.1 (protocol level 3) leaves
them to the sender and ignores them ("not used", MQTT 3.1), MQTT 3.1.1 prescribes their value and has the
connection closed over a wrong one (MQTT-2.2.2-2). ``strict`` says that the latter holds.
"""

from __future__ import annotations

from collections.abc import Callable

from .body import Body
from .errors import MalformedPacket
from .packets import (
    SUBACK_FAILURE,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from .topics import TOPIC_CACHE, topic_name_fault

LEVEL_MQTT_3_1 = 3
LEVEL_MQTT_3_1_1 = 4

Reader = Callable[[Body, int, bool], Packet]
"""Reads a body, given bits 3-0 of the packet's first byte, and whether the rules are those of MQTT 3.1.1."""

_DUP = 0b1000
_RETAIN = 0b0001

_PINGREQ = Pingreq()
_PINGRESP = Pingresp()
_DISCONNECT = Disconnect()


def knows_protocol(packet: Connect) -> bool:
    """Tell whether name and level of a CONNECT each exist in MQTT 3.1 or 3.1.1, in whatever combination."""
    return packet.protocol_name in ("MQIsdp", "MQTT") and packet.protocol_level in (LEVEL_MQTT_3_1, LEVEL_MQTT_3_1_1)


def _require_no_flags(body: Body, flags: int, strict: bool) -> None:
    if strict and flags:
        body.fail_header(f"MQTT-2.2.2-2: flags are reserved and 0, not {flags:#06b}")


def _read_dup(body: Body, flags: int, strict: bool, statement: str) -> bool:
    """Read the flags of a packet that is itself sent with quality of service 1."""
    if strict:
        if flags != 0b0010:
            body.fail_header(f"{statement}: flags are reserved and 0b0010, not {flags:#06b}")
        return False
    if flags >> 1 & 3 != 1:
        body.fail_header(f"MQTT 3.1 section 3.10: header is of quality of service 1, not {flags >> 1 & 3}")
    return flags & _DUP != 0


def read_connect(body: Body, flags: int, strict: bool) -> Connect:
    """Read CONNECT, whose own protocol level decides about the rules.

    A protocol unknown here may have another layout: then the other fields are read as those of MQTT 3.1.1, and if
    that fails, only name and level are kept, all the server needs for its answer.
    """
    name = body.string("protocol name")
    level = body.byte("protocol level")
    known = Connect("", name, level)
    if knows_protocol(known):
        return _read_connect_fields(body, flags, level == LEVEL_MQTT_3_1_1, name, level)
    try:
        return _read_connect_fields(body, flags, True, name, level)
    except MalformedPacket:
        return known


def _read_connect_fields(body: Body, flags: int, strict: bool, name: str, level: int) -> Connect:
    _require_no_flags(body, flags, strict)
    connect_flags = body.byte("connect flags")
    has_user_name = connect_flags & 0x80 != 0
    has_password = connect_flags & 0x40 != 0
    has_will = connect_flags & 0x04 != 0
    will_qos = connect_flags >> 3 & 3
    if strict and connect_flags & 0x01:
        body.fail("MQTT-3.1.2-3: reserved connect flag is set", back=1)
    if has_will and will_qos == 3:
        body.fail("MQTT-3.1.2-14: quality of service of the will is 3", back=1)
    if strict and not has_will and connect_flags & 0x38:
        body.fail("MQTT-3.1.2-11: flags of a will are set, the will flag is not", back=1)
    # MQTT 3.1 declares this invalid as well (its section 3.1, user name and password flags).
    if has_password and not has_user_name:
        body.fail("MQTT-3.1.2-22: password flag is set, user name flag is not", back=1)
    keep_alive = body.word("keep alive")
    client_id = body.string("client identifier")
    will = None
    if has_will:
        will_topic = body.string("will topic")
        if fault := topic_name_fault(will_topic):
            body.fail(fault, back=len(will_topic.encode()) + 2)
        will = Will(will_topic, body.binary("will message"), will_qos, connect_flags & 0x20 != 0)
    # MQTT 3.1 section 3.1: the Remaining Length takes precedence over the flags of user name and password, since
    # clients older than those fields set the bits at random.
    user_name = body.string("user name") if has_user_name and (strict or body.remaining) else None
    password = body.binary("password") if has_password and (strict or body.remaining) else None
    body.finish()
    return Connect(client_id, name, level, connect_flags & 0x02 != 0, keep_alive, will, user_name, password)


def read_connack(body: Body, flags: int, strict: bool) -> Connack:
    """Read CONNACK; its first byte means something since MQTT 3.1.1 only."""
    _require_no_flags(body, flags, strict)
    acknowledge_flags = body.byte("connect acknowledge flags")
    if strict and acknowledge_flags & 0xFE:
        body.fail("MQTT 3.1.1 section 3.2.2.1: bits 7-1 of the connect acknowledge flags are 0", back=1)
    return_code = body.byte("return code")
    if strict and acknowledge_flags and return_code:
        body.fail("MQTT-3.2.2-4: a refused connection has no session present", back=2)
    body.finish()
    return Connack(return_code, strict and acknowledge_flags != 0)


def read_publish(body: Body, flags: int, strict: bool) -> Publish:
    """Read PUBLISH, and remember its topic for the next one."""
    qos = flags >> 1 & 3
    dup = flags & _DUP != 0
    if qos == 3:
        body.fail_header("MQTT-3.3.1-4: quality of service is 3")
    if dup and qos == 0:
        if strict:
            body.fail_header("MQTT-3.3.1-2: DUP is set with quality of service 0")
        dup = False
    topic = body.string("topic name")
    raw = topic.encode()
    if fault := topic_name_fault(topic):
        body.fail(fault, back=len(raw) + 2)
    TOPIC_CACHE.remember(raw, topic)
    message_id = body.message_id() if qos else 0
    return Publish(topic, body.rest(), qos, flags & _RETAIN != 0, dup, message_id)


def read_puback(body: Body, flags: int, strict: bool) -> Puback:
    """Read PUBACK."""
    return Puback(_read_sole_message_id(body, flags, strict))


def read_pubrec(body: Body, flags: int, strict: bool) -> Pubrec:
    """Read PUBREC."""
    return Pubrec(_read_sole_message_id(body, flags, strict))


def read_pubrel(body: Body, flags: int, strict: bool) -> Pubrel:
    """Read PUBREL."""
    dup = _read_dup(body, flags, strict, "MQTT-3.6.1-1")
    message_id = body.message_id()
    body.finish()
    return Pubrel(message_id, dup)


def read_pubcomp(body: Body, flags: int, strict: bool) -> Pubcomp:
    """Read PUBCOMP."""
    return Pubcomp(_read_sole_message_id(body, flags, strict))


def read_unsuback(body: Body, flags: int, strict: bool) -> Unsuback:
    """Read UNSUBACK."""
    return Unsuback(_read_sole_message_id(body, flags, strict))


def _read_sole_message_id(body: Body, flags: int, strict: bool) -> int:
    _require_no_flags(body, flags, strict)
    message_id = body.message_id()
    body.finish()
    return message_id


def read_subscribe(body: Body, flags: int, strict: bool) -> Subscribe:
    """Read SUBSCRIBE; of its filters only emptiness and encoding are looked at."""
    dup = _read_dup(body, flags, strict, "MQTT-3.8.1-1")
    message_id = body.message_id()
    if not body.remaining:
        body.fail("MQTT-3.8.3-3: no topic filter")
    topics: list[tuple[str, int]] = []
    while body.remaining:
        topic_filter = _read_topic_filter(body)
        qos = body.byte("requested quality of service")
        # MQTT 3.1 does not use the upper six bits.
        if not strict:
            qos &= 3
        if qos > 2:
            body.fail(f"MQTT-3.8.3-4: requested quality of service is {qos:#04x}", back=1)
        topics.append((topic_filter, qos))
    return Subscribe(message_id, tuple(topics), dup)


def read_suback(body: Body, flags: int, strict: bool) -> Suback:
    """Read SUBACK."""
    _require_no_flags(body, flags, strict)
    message_id = body.message_id()
    if not body.remaining:
        body.fail("MQTT 3.1.1 section 3.9.3: no return code")
    codes = body.rest()
    for back, code in zip(range(len(codes), 0, -1), codes, strict=True):
        if code > 2 and code != SUBACK_FAILURE:
            body.fail(f"MQTT-3.9.3-2: return code is {code:#04x}", back=back)
    return Suback(message_id, tuple(codes))


def read_unsubscribe(body: Body, flags: int, strict: bool) -> Unsubscribe:
    """Read UNSUBSCRIBE (MQTT 3.1 section 3.10); of its filters only emptiness and encoding are looked at."""
    dup = _read_dup(body, flags, strict, "MQTT-3.10.1-1")
    message_id = body.message_id()
    if not body.remaining:
        body.fail("MQTT-3.10.3-2: no topic filter")
    topics: list[str] = []
    while body.remaining:
        topics.append(_read_topic_filter(body))
    return Unsubscribe(message_id, tuple(topics), dup)


def _read_topic_filter(body: Body) -> str:
    topic_filter = body.string("topic filter")
    if not topic_filter:
        body.fail("MQTT-4.7.3-1: topic filter is empty", back=2)
    return topic_filter


def read_pingreq(body: Body, flags: int, strict: bool) -> Pingreq:
    """Read PINGREQ."""
    _require_no_flags(body, flags, strict)
    body.finish()
    return _PINGREQ


def read_pingresp(body: Body, flags: int, strict: bool) -> Pingresp:
    """Read PINGRESP."""
    _require_no_flags(body, flags, strict)
    body.finish()
    return _PINGRESP


def read_disconnect(body: Body, flags: int, strict: bool) -> Disconnect:
    """Read DISCONNECT."""
    _require_no_flags(body, flags, strict)
    body.finish()
    return _DISCONNECT


_EITHER_WAY: dict[PacketType, Reader] = {
    PacketType.PUBLISH: read_publish,
    PacketType.PUBACK: read_puback,
    PacketType.PUBREC: read_pubrec,
    PacketType.PUBREL: read_pubrel,
    PacketType.PUBCOMP: read_pubcomp,
}

TO_SERVER: dict[PacketType, Reader] = _EITHER_WAY | {
    PacketType.CONNECT: read_connect,
    PacketType.SUBSCRIBE: read_subscribe,
    PacketType.UNSUBSCRIBE: read_unsubscribe,
    PacketType.PINGREQ: read_pingreq,
    PacketType.DISCONNECT: read_disconnect,
}
"""Readers of the packets a client may send (MQTT 3.1.1 table 2.1)."""

TO_CLIENT: dict[PacketType, Reader] = _EITHER_WAY | {
    PacketType.CONNACK: read_connack,
    PacketType.SUBACK: read_suback,
    PacketType.UNSUBACK: read_unsuback,
    PacketType.PINGRESP: read_pingresp,
}
"""Readers of the packets a server may send (MQTT 3.1.1 table 2.1)."""
