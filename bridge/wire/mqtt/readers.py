"""One reader for each packet: from a body and the flags of the fixed header to a packet, or MalformedPacket.

The versions of the protocol differ in what they do with bits they do not use: MQTT 3.1 (protocol level 3) leaves
them to the sender and ignores them ("not used", MQTT 3.1), MQTT 3.1.1 (4) prescribes their value and has the
connection closed over a wrong one (MQTT-2.2.2-2). MQTT 5 adds reason codes and properties; publications and their
acknowledgements are read with them, the other packets of MQTT 5 are not read yet.
"""

from __future__ import annotations

from collections.abc import Callable

from .body import Body
from .errors import MalformedPacket
from .packet_properties import AcknowledgementProperties
from .packets import (
    LEVEL_MQTT_3_1,
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    SUBACK_FAILURE,
    Connack,
    Connect,
    Disconnect,
    OtherPacket,
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

Reader = Callable[[Body, int, int], Packet]
"""Reads a body, given bits 3-0 of the packet's first byte, and the protocol level whose rules hold."""

_DUP = 0b1000
_RETAIN = 0b0001

_PINGREQ = Pingreq()
_PINGRESP = Pingresp()
_DISCONNECT = Disconnect()


def knows_protocol(packet: Connect) -> bool:
    """Tell whether name and level of a CONNECT each exist in MQTT 3.1 or 3.1.1, in whatever combination."""
    return packet.protocol_name in ("MQIsdp", "MQTT") and packet.protocol_level in (LEVEL_MQTT_3_1, LEVEL_MQTT_3_1_1)


def _require_no_flags(body: Body, flags: int, level: int) -> None:
    if level > LEVEL_MQTT_3_1 and flags:
        body.fail_header(f"MQTT-2.2.2-2: flags are reserved and 0, not {flags:#06b}")


def _read_dup(body: Body, flags: int, level: int, statement: str) -> bool:
    """Read the flags of a packet that is itself sent with quality of service 1."""
    if level > LEVEL_MQTT_3_1:
        if flags != 0b0010:
            body.fail_header(f"{statement}: flags are reserved and 0b0010, not {flags:#06b}")
        return False
    if flags >> 1 & 3 != 1:
        body.fail_header(f"MQTT 3.1 section 3.10: header is of quality of service 1, not {flags >> 1 & 3}")
    return flags & _DUP != 0


def read_connect(body: Body, flags: int, level: int) -> Connect:
    """Read CONNECT, whose own protocol level decides about the rules.

    A protocol unknown here may have another layout: then the other fields are read as those of MQTT 3.1.1, and if
    that fails, only name and level are kept, all the server needs for its answer.
    """
    name = body.string("protocol name")
    level = body.byte("protocol level")
    known = Connect("", name, level)
    if knows_protocol(known):
        return _read_connect_fields(body, flags, level, known)
    try:
        return _read_connect_fields(body, flags, LEVEL_MQTT_3_1_1, known)
    except MalformedPacket:
        return known


def _read_connect_fields(body: Body, flags: int, level: int, known: Connect) -> Connect:
    """Read what follows the name and the level that are known, by the rules of a level that may be another one."""
    strict = level > LEVEL_MQTT_3_1
    _require_no_flags(body, flags, level)
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
    clean_session = connect_flags & 0x02 != 0
    return Connect(
        client_id, known.protocol_name, known.protocol_level, clean_session, keep_alive, will, user_name, password
    )


def read_connack(body: Body, flags: int, level: int) -> Connack:
    """Read CONNACK; its first byte means something since MQTT 3.1.1 only."""
    strict = level > LEVEL_MQTT_3_1
    _require_no_flags(body, flags, level)
    acknowledge_flags = body.byte("connect acknowledge flags")
    if strict and acknowledge_flags & 0xFE:
        body.fail("MQTT 3.1.1 section 3.2.2.1: bits 7-1 of the connect acknowledge flags are 0", back=1)
    return_code = body.byte("return code")
    if strict and acknowledge_flags and return_code:
        body.fail("MQTT-3.2.2-4: a refused connection has no session present", back=2)
    body.finish()
    return Connack(return_code, strict and acknowledge_flags != 0)


def read_publish(body: Body, flags: int, level: int) -> Publish:
    """Read PUBLISH, and remember its topic for the next one."""
    qos = flags >> 1 & 3
    dup = flags & _DUP != 0
    if qos == 3:
        body.fail_header("MQTT-3.3.1-4: quality of service is 3")
    if dup and qos == 0:
        if level > LEVEL_MQTT_3_1:
            body.fail_header("MQTT-3.3.1-2: DUP is set with quality of service 0")
        dup = False
    topic = body.string("topic name")
    raw = topic.encode()
    fault = topic_name_fault(topic)
    if fault and (topic or level != LEVEL_MQTT_5):
        body.fail(fault, back=len(raw) + 2)
    message_id = body.message_id() if qos else 0
    properties = body.properties(PacketType.PUBLISH) if level == LEVEL_MQTT_5 else None
    if topic:
        TOPIC_CACHE.remember(raw, topic)
    elif properties is None or properties.topic_alias is None:
        body.fail("MQTT 5 section 3.3.2.1: topic name is empty, and there is no Topic Alias")
    return Publish(topic, body.rest(), qos, flags & _RETAIN != 0, dup, message_id, properties)


def read_puback(body: Body, flags: int, level: int) -> Puback:
    """Read PUBACK."""
    _require_no_flags(body, flags, level)
    return Puback(body.message_id(), *_read_reason(body, PacketType.PUBACK, level))


def read_pubrec(body: Body, flags: int, level: int) -> Pubrec:
    """Read PUBREC."""
    _require_no_flags(body, flags, level)
    return Pubrec(body.message_id(), *_read_reason(body, PacketType.PUBREC, level))


def read_pubrel(body: Body, flags: int, level: int) -> Pubrel:
    """Read PUBREL."""
    dup = _read_dup(body, flags, level, "MQTT-3.6.1-1")
    return Pubrel(body.message_id(), dup, *_read_reason(body, PacketType.PUBREL, level))


def read_pubcomp(body: Body, flags: int, level: int) -> Pubcomp:
    """Read PUBCOMP."""
    _require_no_flags(body, flags, level)
    return Pubcomp(body.message_id(), *_read_reason(body, PacketType.PUBCOMP, level))


def _read_reason(
    body: Body, packet_type: PacketType, level: int
) -> tuple[int, AcknowledgementProperties | None]:
    """Read what follows the message id of an acknowledgement: nothing before MQTT 5, and as little as wanted there.

    A reason code that MQTT 5 has for other packets only, or for none, is the receiver's to understand.
    """
    reason_code, properties = 0, None
    if level == LEVEL_MQTT_5 and body.remaining:
        reason_code = body.byte("reason code")
        if body.remaining:
            properties = body.properties(packet_type)
    body.finish()
    return reason_code, properties


def read_unsuback(body: Body, flags: int, level: int) -> Unsuback:
    """Read UNSUBACK."""
    _require_no_flags(body, flags, level)
    message_id = body.message_id()
    body.finish()
    return Unsuback(message_id)


def read_subscribe(body: Body, flags: int, level: int) -> Subscribe:
    """Read SUBSCRIBE; of its filters only emptiness and encoding are looked at."""
    dup = _read_dup(body, flags, level, "MQTT-3.8.1-1")
    message_id = body.message_id()
    if not body.remaining:
        body.fail("MQTT-3.8.3-3: no topic filter")
    topics: list[tuple[str, int]] = []
    while body.remaining:
        topic_filter = _read_topic_filter(body)
        qos = body.byte("requested quality of service")
        # MQTT 3.1 does not use the upper six bits.
        if level == LEVEL_MQTT_3_1:
            qos &= 3
        if qos > 2:
            body.fail(f"MQTT-3.8.3-4: requested quality of service is {qos:#04x}", back=1)
        topics.append((topic_filter, qos))
    return Subscribe(message_id, tuple(topics), dup)


def read_suback(body: Body, flags: int, level: int) -> Suback:
    """Read SUBACK."""
    _require_no_flags(body, flags, level)
    message_id = body.message_id()
    if not body.remaining:
        body.fail("MQTT 3.1.1 section 3.9.3: no return code")
    codes = body.rest()
    for back, code in zip(range(len(codes), 0, -1), codes, strict=True):
        if code > 2 and code != SUBACK_FAILURE:
            body.fail(f"MQTT-3.9.3-2: return code is {code:#04x}", back=back)
    return Suback(message_id, tuple(codes))


def read_unsubscribe(body: Body, flags: int, level: int) -> Unsubscribe:
    """Read UNSUBSCRIBE (MQTT 3.1 section 3.10); of its filters only emptiness and encoding are looked at."""
    dup = _read_dup(body, flags, level, "MQTT-3.10.1-1")
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


def read_pingreq(body: Body, flags: int, level: int) -> Pingreq:
    """Read PINGREQ."""
    _require_no_flags(body, flags, level)
    body.finish()
    return _PINGREQ


def read_pingresp(body: Body, flags: int, level: int) -> Pingresp:
    """Read PINGRESP."""
    _require_no_flags(body, flags, level)
    body.finish()
    return _PINGRESP


def read_disconnect(body: Body, flags: int, level: int) -> Disconnect:
    """Read DISCONNECT."""
    _require_no_flags(body, flags, level)
    body.finish()
    return _DISCONNECT


def read_other(body: Body, flags: int, level: int) -> OtherPacket:
    """Leave a packet as it is."""
    return OtherPacket(body.packet())


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

MESSAGES_ONLY: dict[PacketType, Reader] = dict.fromkeys(PacketType, read_other) | _EITHER_WAY
"""Readers for who leaves all packets but publications and their acknowledgements to somebody else."""
