"""One reader for each packet: from a body and the flags of the fixed header to a packet, or MalformedPacket.

The versions of the protocol differ in what they do with bits they do not use: MQTT 3.1 (protocol level 3) leaves
them to the sender and ignores them ("not used", MQTT 3.1), MQTT 3.1.1 (4) prescribes their value and has the
connection closed over a wrong one (MQTT-2.2.2-2). MQTT 5 (5) adds reason codes and properties, and tells Protocol Errors from
Malformed Packets. Packets that open and end a connection have their readers in ``connection_readers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .body import Body
from .connection_readers import (
    read_client_auth,
    read_client_disconnect,
    read_connack,
    read_connect,
    read_server_auth,
    read_server_disconnect,
)
from .packet_properties import AcknowledgementProperties, SubscribeProperties, UnsubscribeProperties
from .packets import (
    LEVEL_MQTT_3_1,
    LEVEL_MQTT_5,
    SUBACK_FAILURE,
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
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
)
from .reason_codes import ReasonCode, reason_code_fault
from .topics import SHARE, TOPIC_CACHE, shared_subscription_fault, topic_filter_fault, topic_name_fault

Reader = Callable[[Body, int, int], Packet]
"""Reads a body, given bits 3-0 of the packet's first byte, and the protocol level whose rules hold."""

_DUP = 0b1000
_RETAIN = 0b0001

MAX_FILTERS: Final = 65_535
"""Most topic filters that a server takes in one packet, be they refused: a packet of 4 MiB holds a million of them."""

_PINGREQ = Pingreq()
_PINGRESP = Pingresp()
_NO_OPTIONS = SubscriptionOptions()


def _read_dup(body: Body, flags: int, level: int, statement: str) -> bool:
    """Read the flags of a packet that is itself sent with quality of service 1."""
    if level > LEVEL_MQTT_3_1:
        if flags != 0b0010:
            body.fail_header(f"{statement}: flags are reserved and 0b0010, not {flags:#06b}")
        return False
    if flags >> 1 & 3 != 1:
        body.fail_header(f"MQTT 3.1 section 3.10: header is of quality of service 1, not {flags >> 1 & 3}")
    return flags & _DUP != 0


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
        body.fail_protocol("MQTT 5 section 3.3.2.1: topic name is empty, and there is no Topic Alias")
    return Publish(topic, body.rest(), qos, flags & _RETAIN != 0, dup, message_id, properties)


def read_puback(body: Body, flags: int, level: int) -> Puback:
    """Read PUBACK."""
    body.require_no_flags(flags, level)
    return Puback(body.message_id(), *_read_reason(body, PacketType.PUBACK, level))


def read_pubrec(body: Body, flags: int, level: int) -> Pubrec:
    """Read PUBREC."""
    body.require_no_flags(flags, level)
    return Pubrec(body.message_id(), *_read_reason(body, PacketType.PUBREC, level))


def read_pubrel(body: Body, flags: int, level: int) -> Pubrel:
    """Read PUBREL."""
    dup = _read_dup(body, flags, level, "MQTT-3.6.1-1")
    return Pubrel(body.message_id(), dup, *_read_reason(body, PacketType.PUBREL, level))


def read_pubcomp(body: Body, flags: int, level: int) -> Pubcomp:
    """Read PUBCOMP."""
    body.require_no_flags(flags, level)
    return Pubcomp(body.message_id(), *_read_reason(body, PacketType.PUBCOMP, level))


def _read_reason(
    body: Body, packet_type: PacketType, level: int
) -> tuple[int, AcknowledgementProperties | None]:
    """Read the reason code and properties of an acknowledgement.

    MQTT 5 lets the sender omit both, and older versions have neither. A client must use a reason code that MQTT 5 defines for
    the packet (MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1). A link accepts any code from a broker: closing the
    connection would only repeat the message.
    """
    reason_code, properties = 0, None
    if level == LEVEL_MQTT_5 and body.remaining:
        reason_code = body.byte("reason code")
        if body.from_client and (fault := reason_code_fault(packet_type, reason_code)):
            body.fail_protocol(fault, back=1)
        if body.remaining:
            properties = body.properties(packet_type)
    body.finish()
    return reason_code, properties


def read_subscribe(body: Body, flags: int, level: int) -> Subscribe:
    """Read SUBSCRIBE."""
    dup = _read_dup(body, flags, level, "MQTT-3.8.1-1")
    message_id = body.message_id()
    mqtt_5 = level == LEVEL_MQTT_5
    properties: SubscribeProperties | None = body.properties(PacketType.SUBSCRIBE) if mqtt_5 else None
    if not body.remaining:
        body.fail_protocol(f"MQTT-3.8.3-{2 if mqtt_5 else 3}: no topic filter")
    topics: list[tuple[str, int]] = []
    options: list[SubscriptionOptions] = []
    while body.remaining:
        topic_filter = _read_topic_filter(body, len(topics), level)
        if mqtt_5:
            qos, option = _read_options(body, topic_filter)
            options.append(option)
        else:
            qos = body.byte("requested quality of service")
            # MQTT 3.1 does not use the upper six bits.
            if level == LEVEL_MQTT_3_1:
                qos &= 3
            if qos > 2:
                body.fail(f"MQTT-3.8.3-4: requested quality of service is {qos:#04x}", back=1)
        topics.append((topic_filter, qos))
    return Subscribe(message_id, tuple(topics), dup, tuple(options), properties)


def _read_options(body: Body, topic_filter: str) -> tuple[int, SubscriptionOptions]:
    """Read the quality of service and the options of a filter in MQTT 5."""
    byte = body.byte("subscription options")
    if byte & 0xC0:
        body.fail(f"MQTT-3.8.3-5: reserved bits of the subscription options {byte:#04x} are set", back=1)
    qos, retain_handling = byte & 3, byte >> 4
    if qos == 3:
        body.fail_protocol("MQTT 5 section 3.8.3.1: requested quality of service is 3", back=1)
    if retain_handling == 3:
        body.fail_protocol("MQTT 5 section 3.8.3.1: Retain Handling is 3", back=1)
    if byte & 4 and topic_filter.startswith(SHARE):
        body.fail_protocol("MQTT-3.8.3-4: No Local with a shared subscription", back=1)
    if byte < 3:
        return qos, _NO_OPTIONS
    return qos, SubscriptionOptions(byte & 4 != 0, byte & 8 != 0, retain_handling)


def read_suback(body: Body, flags: int, level: int) -> Suback:
    """Read SUBACK."""
    body.require_no_flags(flags, level)
    message_id = body.message_id()
    if level == LEVEL_MQTT_5:
        properties: AcknowledgementProperties | None = body.properties(PacketType.SUBACK)
        return Suback(message_id, _read_reason_codes(body, PacketType.SUBACK), properties)
    if not body.remaining:
        body.fail("MQTT 3.1.1 section 3.9.3: no return code")
    codes = body.rest()
    for back, code in zip(range(len(codes), 0, -1), codes, strict=True):
        if code > 2 and code != SUBACK_FAILURE:
            body.fail(f"MQTT-3.9.3-2: return code is {code:#04x}", back=back)
    return Suback(message_id, tuple(codes))


def read_unsubscribe(body: Body, flags: int, level: int) -> Unsubscribe:
    """Read UNSUBSCRIBE (MQTT 3.1 section 3.10)."""
    dup = _read_dup(body, flags, level, "MQTT-3.10.1-1")
    message_id = body.message_id()
    properties: UnsubscribeProperties | None = None
    if level == LEVEL_MQTT_5:
        properties = body.properties(PacketType.UNSUBSCRIBE)
    if not body.remaining:
        body.fail_protocol("MQTT-3.10.3-2: no topic filter")
    topics: list[str] = []
    while body.remaining:
        topics.append(_read_topic_filter(body, len(topics), level))
    return Unsubscribe(message_id, tuple(topics), dup, properties)


def read_unsuback(body: Body, flags: int, level: int) -> Unsuback:
    """Read UNSUBACK."""
    body.require_no_flags(flags, level)
    message_id = body.message_id()
    if level == LEVEL_MQTT_5:
        properties: AcknowledgementProperties | None = body.properties(PacketType.UNSUBACK)
        return Unsuback(message_id, _read_reason_codes(body, PacketType.UNSUBACK), properties)
    body.finish()
    return Unsuback(message_id)


def _read_reason_codes(body: Body, packet_type: PacketType) -> tuple[int, ...]:
    """Read the reason codes of SUBACK or UNSUBACK, one for each filter, of which there is one at least."""
    codes = body.rest()
    if not codes:
        body.fail_protocol(f"MQTT 5 section 3.{packet_type:d}.3: no reason code")
    for back, code in zip(range(len(codes), 0, -1), codes, strict=True):
        if fault := reason_code_fault(packet_type, code):
            body.fail_protocol(fault, back)
    return tuple(codes)


def _read_topic_filter(body: Body, count: int, level: int) -> str:
    """Read a topic filter.

    MQTT 3.1 has no rule that closes the connection over a misplaced wildcard, and only MQTT 5 knows shared subscriptions.
    """
    if count == MAX_FILTERS:
        body.fail(f"more than {MAX_FILTERS} topic filters in a packet", reason_code=ReasonCode.QUOTA_EXCEEDED)
    topic_filter = body.string("topic filter")
    if level == LEVEL_MQTT_5 and topic_filter.startswith(SHARE):
        fault = shared_subscription_fault(topic_filter)
    elif level > LEVEL_MQTT_3_1 or not topic_filter:
        fault = topic_filter_fault(topic_filter)
    else:
        fault = None
    if fault is not None:
        body.fail(fault, back=len(topic_filter.encode()) + 2)
    return topic_filter


def read_pingreq(body: Body, flags: int, level: int) -> Pingreq:
    """Read PINGREQ."""
    body.require_no_flags(flags, level)
    body.finish()
    return _PINGREQ


def read_pingresp(body: Body, flags: int, level: int) -> Pingresp:
    """Read PINGRESP."""
    body.require_no_flags(flags, level)
    body.finish()
    return _PINGRESP


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
    PacketType.DISCONNECT: read_client_disconnect,
}
"""Readers of the packets a client may send (MQTT 3.1.1 table 2.1)."""

TO_SERVER_5: dict[PacketType, Reader] = TO_SERVER | {PacketType.AUTH: read_client_auth}
"""Readers of those it may send in MQTT 5 (table 2-1)."""

TO_CLIENT: dict[PacketType, Reader] = _EITHER_WAY | {
    PacketType.CONNACK: read_connack,
    PacketType.SUBACK: read_suback,
    PacketType.UNSUBACK: read_unsuback,
    PacketType.PINGRESP: read_pingresp,
}
"""Readers of the packets a server may send (MQTT 3.1.1 table 2.1)."""

TO_CLIENT_5: dict[PacketType, Reader] = TO_CLIENT | {
    PacketType.DISCONNECT: read_server_disconnect,
    PacketType.AUTH: read_server_auth,
}
"""Readers of those it may send in MQTT 5 (table 2-1)."""

MESSAGES_ONLY: dict[PacketType, Reader] = dict.fromkeys(PacketType, read_other) | _EITHER_WAY
"""Readers for who leaves all packets but publications and their acknowledgements to somebody else."""
