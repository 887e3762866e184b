"""Decoding of MQTT packets: an incremental decoder for a byte stream, and one reader for each packet type.

Publications and acknowledgements are nearly all of the traffic. `Decoder.feed` decodes well-formed ones in its own loop. The
readers decode all other packets. They return a packet or raise MalformedPacket with the rule that the packet violates.

The versions differ in the treatment of reserved bits. MQTT 3.1 ignores them. In MQTT 3.1.1, a wrong value closes the
connection (MQTT-2.2.2-2). MQTT 5 adds reason codes and properties, and distinguishes Protocol Errors from
Malformed Packets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from bridge.mqtt.packets import (
    BRIDGE_BIT,
    LEVEL_MQTT_3_1,
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    MAX_PACKET_SIZE,
    SUBACK_FAILURE,
    AcknowledgementProperties,
    Auth,
    ByteOrder,
    Connack,
    ConnackProperties,
    Connect,
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
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
    SubscribeProperties,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    UnsubscribeProperties,
    Will,
    WillProperties,
)
from bridge.mqtt.properties import decode_properties, decode_remaining_length
from bridge.mqtt.property_table import Place
from bridge.mqtt.reason_codes import FROM_CLIENT, FROM_SERVER, MalformedPacket, ReasonCode, reason_code_fault
from bridge.mqtt.topics import SHARE, TOPIC_CACHE, shared_subscription_fault, topic_filter_fault, topic_name_fault

_MALFORMED: Final = ReasonCode.MALFORMED_PACKET
_PROTOCOL_ERROR: Final = ReasonCode.PROTOCOL_ERROR


class Body:
    """A cursor over the fields of one packet.

    Each reading method advances the cursor past the field that it returns. It raises MalformedPacket if the field is
    incomplete or invalid.
    """

    __slots__ = ("_begin", "_buffer", "_packet", "_position", "_stop", "_word_order", "from_client")

    def __init__(
        self, buffer: bytes, begin: int, start: int, stop: int, packet: str, little: bool, from_client: bool
    ) -> None:
        """Start at the first field, at offset `start`, of a packet at the offsets `begin` to `stop` of a buffer.

        `packet` is its name for errors. `little` means little-endian two-byte integers.
        """
        self._buffer = buffer
        self._begin = begin
        self._position = start
        self._stop = stop
        self._packet = packet
        self.from_client = from_client
        self._word_order = -1 if little else 1

    @property
    def remaining(self) -> int:
        """The number of unread bytes."""
        return self._stop - self._position

    def fail(self, rule: str, back: int = 0, reason_code: ReasonCode = _MALFORMED) -> NoReturn:
        """Raise MalformedPacket for a field that begins ``back`` bytes before the cursor."""
        raise MalformedPacket(self._packet, self._position - back - self._begin, rule, reason_code)

    def fail_protocol(self, rule: str, back: int = 0) -> NoReturn:
        """Raise MalformedPacket with the reason code for a Protocol Error of MQTT 5."""
        self.fail(rule, back, _PROTOCOL_ERROR)

    def fail_header(self, rule: str) -> NoReturn:
        """Raise MalformedPacket for the first byte of the packet."""
        raise MalformedPacket(self._packet, 0, rule)

    def require_no_flags(self, flags: int, level: int) -> None:
        """Raise MalformedPacket if flags are set in the first byte. MQTT 3.1 ignores them."""
        if level > LEVEL_MQTT_3_1 and flags:
            statement = "MQTT-2.1.3-1" if level == LEVEL_MQTT_5 else "MQTT-2.2.2-2"
            self.fail_header(f"{statement}: flags are reserved and 0, not {flags:#06b}")

    def _take(self, size: int, field: str) -> bytes:
        if size > self._stop - self._position:
            self.fail(f"MQTT 3.1.1 section 2.2.3: packet ends within {field}")
        chunk = self._buffer[self._position : self._position + size]
        self._position += size
        return chunk

    def byte(self, field: str) -> int:
        """Read a one-byte integer."""
        return self._take(1, field)[0]

    def word(self, field: str) -> int:
        """Read a two-byte integer in the connection's byte order."""
        return int.from_bytes(self._take(2, field)[:: self._word_order], "big")

    def packet_id(self) -> int:
        """Read a packet identifier, which must not be 0 (MQTT 3.1 section 3.10)."""
        packet_id = self.word("message id")
        if packet_id == 0:
            self.fail_protocol("MQTT-2.3.1-1: message id is 0", back=2)
        return packet_id

    def binary(self, field: str) -> bytes:
        """Read bytes that follow a two-byte length, which is big-endian in both dialects."""
        if self.remaining < 2:
            self.fail(f"MQTT 3.1.1 section 2.2.3: packet ends within the length of {field}")
        size = int.from_bytes(self._buffer[self._position : self._position + 2], "big")
        if size > self.remaining - 2:
            self.fail(f"MQTT 3.1.1 section 1.5.3: length of {field} is {size}, beyond the packet's end")
        self._position += 2
        return self._take(size, field)

    def string(self, field: str) -> str:
        """Read a UTF-8 string."""
        raw = self.binary(field)
        # MQTT forbids U+0000. Python's decoder rejects surrogates.
        if 0 in raw:
            self.fail(f"MQTT-1.5.3-2: {field} contains U+0000", back=len(raw) + 2)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = None
        if text is None:
            self.fail(f"MQTT-1.5.3-1: {field} is not UTF-8", back=len(raw) + 2)
        return text

    def properties(self, place: Place) -> Any:
        """Read the properties of an MQTT 5 packet or will. Return None if they are empty."""
        properties, self._position = decode_properties(
            place, self._buffer, self._position, self._stop, self._begin, self.from_client
        )
        return properties

    def rest(self) -> bytes:
        """Read all remaining bytes."""
        return self._take(self.remaining, "payload")

    def packet(self) -> bytes:
        """Return the complete packet, including the fixed header."""
        return self._buffer[self._begin : self._stop]

    def finish(self) -> None:
        """Raise MalformedPacket if there are unread bytes."""
        if self.remaining:
            self.fail(f"MQTT 3.1.1 section 2.2.3: {self.remaining} bytes behind the last field")


_DISCONNECT: Final = Disconnect()
#: Protocol name and level in a CONNECT of MQTT 5.
_MQTT_5: Final = b"\0\4MQTT\5"


def knows_protocol(name: str, level: int) -> bool:
    """Return whether protocol name and level are supported. Those of MQTT 3.1 and 3.1.1 may be combined."""
    if level == LEVEL_MQTT_5:
        return name == "MQTT"
    return name in ("MQIsdp", "MQTT") and level in (LEVEL_MQTT_3_1, LEVEL_MQTT_3_1_1)


#: Protocol levels of bridges (`Connect.bridge`).
_BRIDGE_LEVELS: Final = {BRIDGE_BIT | level: level for level in (LEVEL_MQTT_3_1, LEVEL_MQTT_3_1_1)}


def read_protocol_level(body: Body) -> int | None:
    """Read the protocol level of a CONNECT. Return None for an unsupported protocol."""
    name = body.string("protocol name")
    byte = body.byte("protocol level")
    level = _BRIDGE_LEVELS.get(byte, byte)
    return level if knows_protocol(name, level) else None


def read_connect(body: Body, flags: int, level: int) -> Connect:
    """Read CONNECT according to the rules of its own protocol level.

    An unsupported protocol may have a different layout. Its fields are read as in MQTT 3.1.1. If that fails, the packet has
    only name and level, which the server needs for its response.
    """
    name = body.string("protocol name")
    byte = body.byte("protocol level")
    level = _BRIDGE_LEVELS.get(byte, byte)
    connect = Connect("", name, level, bridge=byte in _BRIDGE_LEVELS)
    if knows_protocol(name, level):
        return _read_connect_fields(body, flags, level, connect)
    try:
        return _read_connect_fields(body, flags, LEVEL_MQTT_3_1_1, connect)
    except MalformedPacket:
        return connect


def _read_connect_fields(body: Body, flags: int, level: int, connect: Connect) -> Connect:
    """Read the fields after protocol name and level with the rules of `level`, which may differ from the packet's."""
    strict = level > LEVEL_MQTT_3_1
    mqtt_5 = level == LEVEL_MQTT_5
    body.require_no_flags(flags, level)
    connect_flags = body.byte("connect flags")
    has_user_name = connect_flags & 0x80 != 0
    has_password = connect_flags & 0x40 != 0
    has_will = connect_flags & 0x04 != 0
    will_qos = connect_flags >> 3 & 3
    if strict and connect_flags & 0x01:
        body.fail("MQTT-3.1.2-3: reserved connect flag is set", back=1)
    if has_will and will_qos == 3:
        body.fail(f"MQTT-3.1.2-{12 if mqtt_5 else 14}: quality of service of the will is 3", back=1)
    if strict and not has_will and connect_flags & 0x38:
        body.fail("MQTT-3.1.2-11: flags of a will are set, the will flag is not", back=1)
    # This is invalid in MQTT 3.1 too (section 3.1, user name and password flags), but not in MQTT 5.
    if has_password and not has_user_name and not mqtt_5:
        body.fail("MQTT-3.1.2-22: password flag is set, user name flag is not", back=1)
    keep_alive = body.word("keep alive")
    properties: ConnectProperties | None = None
    if mqtt_5:
        properties = body.properties(PacketType.CONNECT)
        if properties is not None and authentication_fault(properties):
            body.fail_protocol(f"MQTT 5 section 3.1.2.11.10: {authentication_fault(properties)}")
    client_id = body.string("client identifier")
    will = None
    if has_will:
        will_properties: WillProperties | None = body.properties("WILL") if mqtt_5 else None
        will_topic = body.string("will topic")
        if fault := topic_name_fault(will_topic):
            body.fail(fault, back=len(will_topic.encode()) + 2)
        message = body.binary("will message")
        will = Will(will_topic, message, will_qos, connect_flags & 0x20 != 0, will_properties)
    # MQTT 3.1 section 3.1: the Remaining Length takes precedence over the flags of user name and password, because
    # clients that predate these fields set the bits at random.
    user_name = body.string("user name") if has_user_name and (strict or body.remaining) else None
    password = body.binary("password") if has_password and (strict or body.remaining) else None
    body.finish()
    clean_session = connect_flags & 0x02 != 0
    return Connect(
        client_id,
        connect.protocol_name,
        connect.protocol_level,
        clean_session,
        keep_alive,
        will,
        user_name,
        password,
        properties,
        connect.bridge,
    )


def authentication_fault(properties: ConnectProperties | ConnackProperties) -> str | None:
    """Return the problem with the properties of enhanced authentication, or None."""
    if properties.authentication_data is not None and properties.authentication_method is None:
        return "Authentication Data without Authentication Method"
    return None


def read_connack(body: Body, flags: int, level: int) -> Connack:
    """Read CONNACK. The connect acknowledge flags are reserved in MQTT 3.1."""
    strict = level > LEVEL_MQTT_3_1
    mqtt_5 = level == LEVEL_MQTT_5
    body.require_no_flags(flags, level)
    acknowledge_flags = body.byte("connect acknowledge flags")
    if strict and acknowledge_flags & 0xFE:
        body.fail(
            f"{'MQTT-3.2.2-1' if mqtt_5 else 'MQTT 3.1.1 section 3.2.2.1'}: bits 7-1 of the connect acknowledge flags are 0",
            back=1,
        )
    return_code = body.byte("return code")
    if mqtt_5 and (fault := reason_code_fault(PacketType.CONNACK, return_code)):
        body.fail_protocol(fault, back=1)
    if strict and acknowledge_flags and return_code:
        body.fail_protocol(f"MQTT-3.2.2-{6 if mqtt_5 else 4}: a refused connection has no session present", back=2)
    properties: ConnackProperties | None = None
    if mqtt_5:
        properties = body.properties(PacketType.CONNACK)
        if properties is not None and authentication_fault(properties):
            body.fail_protocol(f"MQTT 5 section 3.2.2.3.18: {authentication_fault(properties)}")
    body.finish()
    return Connack(return_code, strict and acknowledge_flags != 0, properties)


def read_disconnect(body: Body, flags: int, level: int) -> Disconnect:
    """Read DISCONNECT. A server sends it in MQTT 5 only."""
    body.require_no_flags(flags, level)
    if level != LEVEL_MQTT_5 or not body.remaining:
        body.finish()
        return _DISCONNECT
    reason_code = body.byte("reason code")
    if fault := reason_code_fault(PacketType.DISCONNECT, reason_code, FROM_CLIENT if body.from_client else FROM_SERVER):
        body.fail_protocol(fault, back=1)
    properties: DisconnectProperties | None = body.properties(PacketType.DISCONNECT) if body.remaining else None
    body.finish()
    if not body.from_client and properties is not None and properties.session_expiry_interval is not None:
        body.fail_protocol("MQTT-3.14.2-2: Session Expiry Interval in DISCONNECT from the server")
    return Disconnect(reason_code, properties)


def read_auth(body: Body, flags: int, level: int) -> Auth:
    if flags:
        body.fail_header(f"MQTT-3.15.1-1: flags are reserved and 0, not {flags:#06b}")
    # SUCCESS may be omitted (section 3.15.2.1), and then the method is omitted too.
    length = body.remaining
    reason_code = body.byte("reason code") if length else 0
    if fault := reason_code_fault(PacketType.AUTH, reason_code, FROM_CLIENT if body.from_client else FROM_SERVER):
        body.fail_protocol(fault, back=1 if length else 0)
    packet = Auth(reason_code, body.properties(PacketType.AUTH) if length else None)
    body.finish()
    if fault := auth_fault(packet):
        body.fail_protocol(fault)
    return packet


def auth_fault(packet: Auth) -> str | None:
    """Return the problem if an AUTH packet has no authentication method, otherwise None."""
    if packet.properties is None:
        lacks = packet.reason_code != ReasonCode.SUCCESS
    else:
        lacks = packet.properties.authentication_method is None
    return "MQTT 5 section 3.15.2.2.2: no Authentication Method" if lacks else None


Reader = Callable[[Body, int, int], Packet]
"""(body, bits 3-0 of the packet's first byte, protocol level whose rules apply) -> packet."""

_DUP = 0b1000
_RETAIN = 0b0001

MAX_FILTERS: Final = 65_535
"""The maximum number of topic filters in a packet. Without it, a packet of 4 MiB could contain a million."""

_PINGREQ = Pingreq()
_PINGRESP = Pingresp()
_NO_OPTIONS = SubscriptionOptions()


def _read_dup(body: Body, flags: int, level: int, statement: str) -> bool:
    """Read the flags of PUBREL, SUBSCRIBE or UNSUBSCRIBE, which have QoS 1. Return DUP, which only MQTT 3.1 uses."""
    if level > LEVEL_MQTT_3_1:
        if flags != 0b0010:
            body.fail_header(f"{statement}: flags are reserved and 0b0010, not {flags:#06b}")
        return False
    if flags >> 1 & 3 != 1:
        body.fail_header(f"MQTT 3.1 section 3.10: header is of quality of service 1, not {flags >> 1 & 3}")
    return flags & _DUP != 0


def read_publish(body: Body, flags: int, level: int) -> Publish:
    """Read PUBLISH, and add its topic to the cache."""
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
    packet_id = body.packet_id() if qos else 0
    properties = body.properties(PacketType.PUBLISH) if level == LEVEL_MQTT_5 else None
    if topic:
        TOPIC_CACHE.remember(raw, topic)
    elif properties is None or properties.topic_alias is None:
        body.fail_protocol("MQTT 5 section 3.3.2.1: topic name is empty, and there is no Topic Alias")
    return Publish(topic, body.rest(), qos, flags & _RETAIN != 0, dup, packet_id, properties)


def read_puback(body: Body, flags: int, level: int) -> Puback:
    body.require_no_flags(flags, level)
    return Puback(body.packet_id(), *_read_reason(body, PacketType.PUBACK, level))


def read_pubrec(body: Body, flags: int, level: int) -> Pubrec:
    body.require_no_flags(flags, level)
    return Pubrec(body.packet_id(), *_read_reason(body, PacketType.PUBREC, level))


def read_pubrel(body: Body, flags: int, level: int) -> Pubrel:
    dup = _read_dup(body, flags, level, "MQTT-3.6.1-1")
    return Pubrel(body.packet_id(), dup, *_read_reason(body, PacketType.PUBREL, level))


def read_pubcomp(body: Body, flags: int, level: int) -> Pubcomp:
    body.require_no_flags(flags, level)
    return Pubcomp(body.packet_id(), *_read_reason(body, PacketType.PUBCOMP, level))


def _read_reason(body: Body, packet_type: PacketType, level: int) -> tuple[int, AcknowledgementProperties | None]:
    """Read the reason code and properties of an acknowledgement.

    In MQTT 5, the sender may omit both. Older versions have neither. A client must use a reason code that MQTT 5 defines for
    the packet (MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1). A link accepts any code from a broker, because
    closing the connection would only repeat the message.
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
    dup = _read_dup(body, flags, level, "MQTT-3.8.1-1")
    packet_id = body.packet_id()
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
    return Subscribe(packet_id, tuple(topics), dup, tuple(options), properties)


def _read_options(body: Body, topic_filter: str) -> tuple[int, SubscriptionOptions]:
    """Read the QoS and the options of a filter in MQTT 5."""
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
    body.require_no_flags(flags, level)
    packet_id = body.packet_id()
    if level == LEVEL_MQTT_5:
        properties: AcknowledgementProperties | None = body.properties(PacketType.SUBACK)
        return Suback(packet_id, _read_reason_codes(body, PacketType.SUBACK), properties)
    if not body.remaining:
        body.fail("MQTT 3.1.1 section 3.9.3: no return code")
    codes = body.rest()
    for back, code in zip(range(len(codes), 0, -1), codes, strict=True):
        if code > 2 and code != SUBACK_FAILURE:
            body.fail(f"MQTT-3.9.3-2: return code is {code:#04x}", back=back)
    return Suback(packet_id, tuple(codes))


def read_unsubscribe(body: Body, flags: int, level: int) -> Unsubscribe:
    dup = _read_dup(body, flags, level, "MQTT-3.10.1-1")
    packet_id = body.packet_id()
    properties: UnsubscribeProperties | None = None
    if level == LEVEL_MQTT_5:
        properties = body.properties(PacketType.UNSUBSCRIBE)
    if not body.remaining:
        body.fail_protocol("MQTT-3.10.3-2: no topic filter")
    topics: list[str] = []
    while body.remaining:
        topics.append(_read_topic_filter(body, len(topics), level))
    return Unsubscribe(packet_id, tuple(topics), dup, properties)


def read_unsuback(body: Body, flags: int, level: int) -> Unsuback:
    body.require_no_flags(flags, level)
    packet_id = body.packet_id()
    if level == LEVEL_MQTT_5:
        properties: AcknowledgementProperties | None = body.properties(PacketType.UNSUBACK)
        return Unsuback(packet_id, _read_reason_codes(body, PacketType.UNSUBACK), properties)
    body.finish()
    return Unsuback(packet_id)


def _read_reason_codes(body: Body, packet_type: PacketType) -> tuple[int, ...]:
    """Read the reason codes of SUBACK or UNSUBACK, one for each filter and at least one."""
    codes = body.rest()
    if not codes:
        body.fail_protocol(f"MQTT 5 section 3.{packet_type:d}.3: no reason code")
    for back, code in zip(range(len(codes), 0, -1), codes, strict=True):
        if fault := reason_code_fault(packet_type, code):
            body.fail_protocol(fault, back)
    return tuple(codes)


def _read_topic_filter(body: Body, count: int, level: int) -> str:
    """Read a topic filter.

    In MQTT 3.1, a misplaced wildcard does not close the connection. Only MQTT 5 has shared subscriptions.
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
    body.require_no_flags(flags, level)
    body.finish()
    return _PINGREQ


def read_pingresp(body: Body, flags: int, level: int) -> Pingresp:
    body.require_no_flags(flags, level)
    body.finish()
    return _PINGRESP


def read_other(body: Body, flags: int, level: int) -> OtherPacket:
    """Return a packet undecoded."""
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
"""Readers of the packets that a client may send (MQTT 3.1.1 table 2.1)."""

TO_SERVER_5: dict[PacketType, Reader] = TO_SERVER | {PacketType.AUTH: read_auth}
"""Readers of the packets that a client may send in MQTT 5 (table 2-1)."""

TO_CLIENT: dict[PacketType, Reader] = _EITHER_WAY | {
    PacketType.CONNACK: read_connack,
    PacketType.SUBACK: read_suback,
    PacketType.UNSUBACK: read_unsuback,
    PacketType.PINGRESP: read_pingresp,
}
"""Readers of the packets that a server may send (MQTT 3.1.1 table 2.1)."""

TO_CLIENT_5: dict[PacketType, Reader] = TO_CLIENT | {
    PacketType.DISCONNECT: read_disconnect,
    PacketType.AUTH: read_auth,
}
"""Readers of the packets that a server may send in MQTT 5 (table 2-1)."""

MESSAGES_ONLY: dict[PacketType, Reader] = dict.fromkeys(PacketType, read_other) | _EITHER_WAY
"""Readers that decode only publications and their acknowledgements."""


# By first byte, with the flags of MQTT 3.1.1. Other flags, allowed in MQTT 3.1, use the slow path.
_ACKNOWLEDGEMENTS: Final[dict[int, type[Puback] | type[Pubrec] | type[Pubrel] | type[Pubcomp]]] = {
    0x40: Puback,
    0x50: Pubrec,
    0x62: Pubrel,
    0x70: Pubcomp,
}

# Enum member access is slow, so bind once.
_PUBLISH: Final = PacketType.PUBLISH
_CONNECT: Final = PacketType.CONNECT


class Decoder:
    """Decodes the packets of one connection's byte stream. Only an incomplete packet is buffered between calls.

    Attributes:
        error: the error in the stream, or None. After an error, the decoder does not return further packets, because
        nothing after a malformed packet can be trusted. Close the connection.
        protocol_level: the level whose rules apply, 3 (MQTT 3.1), 4 (MQTT 3.1.1) or 5 (MQTT 5). None on a server before
        the CONNECT. Then the rules of level 4 apply.
        rest: bytes that the last ``feed`` did not process because of ``control_packets``. Feed them again.
    """

    __slots__ = (
        "_control_packets",
        "_little",
        "_max_first_size",
        "_max_packet_size",
        "_messages_only",
        "_needed",
        "_no_properties",
        "_pending",
        "_readers",
        "_server",
        "error",
        "protocol_level",
        "rest",
    )

    def __init__(
        self,
        *,
        server: bool = True,
        protocol_level: int | None = None,
        max_packet_size: int = MAX_PACKET_SIZE,
        max_first_size: int = MAX_PACKET_SIZE,
        byte_order: ByteOrder = "big",
        messages_only: bool = False,
        control_packets: int | None = None,
    ) -> None:
        """Initialize for a new connection, of a server or a client. A client specifies the protocol level.

        `max_packet_size` is the maximum Remaining Length in bytes, `max_first_size` that of the first packet on a server,
        from a client that is not yet authenticated. A larger packet is an error as soon as its length is read, so its content
        is never buffered. `messages_only` returns all packets other than publications and acknowledgements as OtherPacket,
        even those that this end must not receive. `control_packets` is the maximum number of such packets per ``feed``,
        because they are expensive compared to their size.
        """
        self._server = server
        self._messages_only = messages_only
        self._max_packet_size = max_packet_size
        self._max_first_size = min(max_first_size, max_packet_size) if server else max_packet_size
        self._little = byte_order == "little"
        self._pending = bytearray()
        self._needed = 0
        self._control_packets = control_packets if control_packets is not None else -1
        self.error: MalformedPacket | None = None
        self.rest = b""
        self._set_level(protocol_level)

    def _set_level(self, protocol_level: int | None) -> None:
        self.protocol_level = protocol_level
        self._readers: dict[PacketType, Reader] = MESSAGES_ONLY
        if not self._messages_only:
            if protocol_level == LEVEL_MQTT_5:
                self._readers = TO_SERVER_5 if self._server else TO_CLIENT_5
            else:
                self._readers = TO_SERVER if self._server else TO_CLIENT
        # Size of the empty properties of a PUBLISH: in MQTT 5, one byte for the length of 0.
        self._no_properties = 1 if protocol_level == LEVEL_MQTT_5 else 0

    @property
    def missing(self) -> int:
        """The number of missing bytes of the incomplete packet, or 0 if unknown."""
        return max(self._needed - len(self._pending), 0) if self._pending else 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[Packet]:  # noqa: C901
        """Process bytes from the connection. Return the completed packets, in order.

        Invalid bytes do not raise an exception but set ``error``.
        """
        if self.error is not None:
            return []
        pending = self._pending
        if pending:
            # Parse a large packet that arrives in small pieces only when it is complete.
            pending += data
            if len(pending) < self._needed:
                return []
            buffer = bytes(pending)
            pending.clear()
        else:
            buffer = data if type(data) is bytes else bytes(data)

        packets: list[Packet] = []
        append = packets.append
        known_topic = TOPIC_CACHE.get
        acknowledgement_of = _ACKNOWLEDGEMENTS.get
        no_properties = self._no_properties
        little = self._little
        limit = self._max_first_size if self.protocol_level is None else self._max_packet_size
        control_packets = self._control_packets
        needed = 0
        offset = 0
        end = len(buffer)
        try:
            while offset < end:
                first = buffer[offset]
                start = offset + 2
                if start > end:
                    self._require_type(first)
                    break
                length = buffer[offset + 1]
                if length > 0x7F:
                    if start < end and buffer[start] < 0x80:
                        length += (buffer[start] << 7) - 0x80
                        start += 1
                    else:
                        decoded = decode_remaining_length(buffer, offset + 1, self._require_type(first).name)
                        if decoded is None:
                            break
                        length, start = decoded
                    if no_properties and not buffer[start - 1]:
                        raise MalformedPacket(
                            self._require_type(first).name,
                            1,
                            "MQTT-1.5.5-1: Remaining Length takes more bytes than it needs",
                        )
                stop = start + length
                if stop - offset > limit:
                    raise self._too_large(buffer, offset, start, stop, limit)
                if stop > end:
                    self._require_type(first)
                    needed = stop - offset
                    break

                if first & 0xF0 == 0x30:
                    if length > 2:
                        field = start + 2
                        behind = field + (buffer[start] << 8 | buffer[start + 1])
                        payload = behind + no_properties + (2 if first & 6 else 0)
                        if payload > stop or (no_properties and buffer[payload - 1]):
                            pass  # Use the slow path.
                        elif first & 6 == 0:
                            if first < 0x38:
                                topic = known_topic(buffer[field:behind])
                                if topic is not None:
                                    append(Publish(topic, buffer[payload:stop], 0, first == 0x31))
                                    offset = stop
                                    continue
                        elif first & 6 != 6:
                            topic = known_topic(buffer[field:behind])
                            if little:
                                packet_id = buffer[behind + 1] << 8 | buffer[behind]
                            else:
                                packet_id = buffer[behind] << 8 | buffer[behind + 1]
                            if topic is not None and packet_id:
                                append(
                                    Publish(
                                        topic,
                                        buffer[payload:stop],
                                        first >> 1 & 3,
                                        first & 1 == 1,
                                        first & 8 == 8,
                                        packet_id,
                                    )
                                )
                                offset = stop
                                continue
                elif length == 2:
                    acknowledgement = acknowledgement_of(first)
                    if acknowledgement is not None:
                        if little:
                            packet_id = buffer[start + 1] << 8 | buffer[start]
                        else:
                            packet_id = buffer[start] << 8 | buffer[start + 1]
                        if packet_id:
                            append(acknowledgement(packet_id))
                            offset = stop
                            continue

                append(self._read(buffer, offset, start, stop))
                offset = stop
                if not 0x30 <= first < 0x80:
                    # The packet may have been a CONNECT.
                    no_properties = self._no_properties
                    if self.protocol_level is not None:
                        limit = self._max_packet_size
                    control_packets -= 1
                    if not control_packets:
                        self.rest = buffer[offset:]
                        return packets
        except MalformedPacket as error:
            # The traceback would keep the buffer and this decoder alive as long as the error.
            self.error = error.with_traceback(None)
            return packets
        if offset < end:
            pending += buffer[offset:] if offset else buffer
            self._needed = needed
        return packets

    def _too_large(self, buffer: bytes, offset: int, start: int, stop: int, limit: int) -> MalformedPacket:
        """Return the error for a packet that exceeds the limit. Set the level if the packet is a CONNECT of MQTT 5."""
        packet_type = self._require_type(buffer[offset])
        if self.protocol_level is None and packet_type is _CONNECT and buffer.startswith(_MQTT_5, start):
            self._set_level(LEVEL_MQTT_5)
        option = "max_packet_size" if limit == self._max_packet_size else "max_connect_size"
        rule = f"{option}: {stop - offset} bytes, {limit} allowed"
        return MalformedPacket(packet_type.name, 1, rule, ReasonCode.PACKET_TOO_LARGE)

    def _require_type(self, first: int) -> PacketType:
        """Return the packet type in a first byte. Raises MalformedPacket if this end must not receive that type."""
        number = first >> 4
        if number == 0 or (number == PacketType.AUTH and self.protocol_level != LEVEL_MQTT_5):
            raise MalformedPacket("fixed header", 0, f"MQTT 3.1 section 2.1: message type {number} is reserved")
        packet_type = PacketType(number)
        if packet_type not in self._readers:
            receiver = "server" if self._server else "client"
            raise MalformedPacket(
                packet_type.name,
                0,
                f"MQTT 3.1.1 table 2.1: not a packet a {receiver} receives",
                ReasonCode.PROTOCOL_ERROR,
            )
        return packet_type

    def _read(self, buffer: bytes, begin: int, start: int, stop: int) -> Packet:
        """Read one complete packet that ``feed`` does not decode itself. Raises MalformedPacket. Arguments: see Body."""
        if self.protocol_level != LEVEL_MQTT_5:
            return self._read_carefully(buffer, begin, start, stop)
        packet = None if self._little else _read_quickly(buffer, begin, start, stop, self._server)
        return self._read_carefully(buffer, begin, start, stop) if packet is None else packet

    def _read_carefully(self, buffer: bytes, begin: int, start: int, stop: int) -> Packet:
        first = buffer[begin]
        packet_type = self._require_type(first)
        name = packet_type.name
        if packet_type is _CONNECT and not self._messages_only:
            # Set the level first, so that its rules apply to a CONNECT that is malformed after the level.
            level = read_protocol_level(Body(buffer, begin, start, stop, name, self._little, self._server))
            if level is not None:
                self._set_level(level)
        body = Body(buffer, begin, start, stop, name, self._little, self._server)
        return self._readers[packet_type](body, first & 0x0F, self.protocol_level or LEVEL_MQTT_3_1_1)


def _read_quickly(buffer: bytes, begin: int, start: int, stop: int, from_client: bool) -> Packet | None:
    """Read a well-formed MQTT 5 PUBLISH to a cached topic, or an acknowledgement without properties.

    Return None for any other packet. Raises MalformedPacket for invalid properties.
    """
    first = buffer[begin]
    length = stop - start
    if first & 0xF0 == 0x30 and length > 2:
        field = start + 2
        behind = field + (buffer[start] << 8 | buffer[start + 1])
        topic = TOPIC_CACHE.get(buffer[field:behind])
        qos = first >> 1 & 3
        packet_id = 0
        if qos:
            behind += 2
            if behind <= stop:
                packet_id = buffer[behind - 2] << 8 | buffer[behind - 1]
        if topic is None or behind > stop or qos == 3 or (not packet_id if qos else first & 8):
            return None
        properties, behind = decode_properties(_PUBLISH, buffer, behind, stop, begin, from_client)
        return Publish(topic, buffer[behind:stop], qos, first & 1 == 1, first & 8 == 8, packet_id, properties)
    # Some servers write the length of empty properties. Only the readers check which reason codes a client may send.
    code_only = length == 3 or (length == 4 and not buffer[stop - 1])
    if first in _ACKNOWLEDGEMENTS and code_only and not (from_client and buffer[start + 2]):
        packet_id = buffer[start] << 8 | buffer[start + 1]
        if packet_id:
            return _ACKNOWLEDGEMENTS[first](packet_id, reason_code=buffer[start + 2])
    return None
