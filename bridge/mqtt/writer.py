"""Encoding of MQTT packets: one writer for each packet type. All raise MalformedPacket for invalid values.

`encode_publish`, `encode_publish_5` and `encode_acknowledgement` encode publications and acknowledgements without creating
packet objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bridge.mqtt.packets import (
    BRIDGE_BIT,
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    MAX_REMAINING_LENGTH,
    SUBACK_FAILURE,
    Auth,
    ByteOrder,
    Connack,
    ConnackCode,
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
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
)
from bridge.mqtt.properties import encode_properties, encode_remaining_length
from bridge.mqtt.reader import auth_fault, authentication_fault, knows_protocol
from bridge.mqtt.reason_codes import MalformedPacket, ReasonCode, reason_code_fault
from bridge.mqtt.topics import SHARE, topic_name_fault

MAX_FIELD_LENGTH: Final = 65_535
"""The maximum length of a string or binary field in bytes (MQTT 3.1.1 section 1.5.3)."""


def length_field(length: int, packet: str) -> bytes:
    """Encode a Remaining Length. Raises MalformedPacket if it is too large."""
    if length > MAX_REMAINING_LENGTH:
        raise MalformedPacket(
            packet, 0, f"MQTT 3.1 section 2.1: Remaining Length is {length}, above {MAX_REMAINING_LENGTH}"
        )
    return encode_remaining_length(length)


def assemble(packet_type: PacketType, flags: int, *fields: bytes) -> bytes:
    """Return a packet with a fixed header and these fields."""
    length = sum(map(len, fields))
    return b"".join((bytes((packet_type << 4 | flags,)), length_field(length, packet_type.name), *fields))


def word_field(value: int, packet: str, field: str, byte_order: ByteOrder) -> bytes:
    """Encode a two-byte integer."""
    if not 0 <= value <= 0xFFFF:
        raise MalformedPacket(packet, 0, f"MQTT 3.1.1 section 1.5.2: {field} is {value}, 0 to 65535 allowed")
    return value.to_bytes(2, byte_order)


def packet_id_field(value: int, packet: str, byte_order: ByteOrder) -> bytes:
    """Encode a packet identifier, which must not be 0."""
    if value == 0:
        raise MalformedPacket(packet, 0, "MQTT-2.3.1-1: message id is 0")
    return word_field(value, packet, "message id", byte_order)


def binary_field(value: bytes, packet: str, field: str) -> bytes:
    """Encode bytes after their length."""
    if len(value) > MAX_FIELD_LENGTH:
        raise MalformedPacket(
            packet, 0, f"MQTT 3.1.1 section 1.5.3: {field} is {len(value)} bytes long, {MAX_FIELD_LENGTH} allowed"
        )
    # String lengths are big-endian even in the little-endian dialect.
    return len(value).to_bytes(2, "big") + value


def string_field(value: str, packet: str, field: str) -> bytes:
    """Encode a UTF-8 string after its length."""
    if "\0" in value:
        raise MalformedPacket(packet, 0, f"MQTT-1.5.3-2: {field} contains U+0000")
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise MalformedPacket(packet, 0, f"MQTT-1.5.3-1: {field} contains a surrogate") from None
    return binary_field(raw, packet, field)


def topic_filter_field(value: str, packet: str) -> bytes:
    """Encode a topic filter, which must not be empty."""
    if not value:
        raise MalformedPacket(packet, 0, "MQTT-4.7.3-1: topic filter is empty")
    return string_field(value, packet, "topic filter")


def reason_code_field(packet_type: PacketType, code: int) -> bytes:
    """Encode a reason code. Raises MalformedPacket if the packet must not contain it."""
    if fault := reason_code_fault(packet_type, code):
        raise MalformedPacket(packet_type.name, 0, fault, ReasonCode.PROTOCOL_ERROR)
    return bytes((code,))


_CONNACK_CODES: Final = frozenset(ConnackCode)
_NO_OPTIONS: Final = SubscriptionOptions()
_NO_PROPERTIES: Final = b"\0"


def write_connect(packet: Connect, byte_order: ByteOrder, level: int) -> bytes:
    """Encode CONNECT, by the rules of its own protocol level."""
    name = "CONNECT"
    if not 0 <= packet.protocol_level <= 0xFF:
        raise MalformedPacket(name, 0, f"MQTT 3.1.1 section 3.1.2.2: protocol level is {packet.protocol_level}")
    mqtt_5 = packet.protocol_level == LEVEL_MQTT_5 and knows_protocol(packet.protocol_name, packet.protocol_level)
    flags = 0x02 if packet.clean_session else 0
    fields: list[bytes] = []
    if mqtt_5:
        if packet.properties is not None and (fault := authentication_fault(packet.properties)):
            raise MalformedPacket(name, 0, f"MQTT 5 section 3.1.2.11.10: {fault}", ReasonCode.PROTOCOL_ERROR)
        fields.append(encode_properties(PacketType.CONNECT, packet.properties))
    fields.append(string_field(packet.client_id, name, "client identifier"))
    will = packet.will
    if will is not None:
        if not 0 <= will.qos <= 2:
            statement = "MQTT-3.1.2-12" if mqtt_5 else "MQTT-3.1.2-14"
            raise MalformedPacket(name, 0, f"{statement}: quality of service of the will is {will.qos}")
        if fault := topic_name_fault(will.topic):
            raise MalformedPacket(name, 0, fault)
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        if mqtt_5:
            fields.append(encode_properties("WILL", will.properties))
        fields += (string_field(will.topic, name, "will topic"), binary_field(will.payload, name, "will message"))
    if packet.user_name is not None:
        flags |= 0x80
        fields.append(string_field(packet.user_name, name, "user name"))
    if packet.password is not None:
        if packet.user_name is None and not mqtt_5:
            raise MalformedPacket(name, 0, "MQTT-3.1.2-22: password without user name")
        flags |= 0x40
        fields.append(binary_field(packet.password, name, "password"))
    return assemble(
        PacketType.CONNECT,
        0,
        string_field(packet.protocol_name, name, "protocol name"),
        bytes((packet.protocol_level | (BRIDGE_BIT if packet.bridge else 0), flags)),
        word_field(packet.keep_alive, name, "keep alive", byte_order),
        *fields,
    )


def write_connack(packet: Connack, byte_order: ByteOrder, level: int) -> bytes:
    mqtt_5 = level == LEVEL_MQTT_5
    if packet.session_present and packet.return_code:
        statement = "MQTT-3.2.2-6" if mqtt_5 else "MQTT-3.2.2-4"
        raise MalformedPacket("CONNACK", 0, f"{statement}: a refused connection has no session present")
    if mqtt_5:
        if packet.properties is not None and (fault := authentication_fault(packet.properties)):
            raise MalformedPacket("CONNACK", 0, f"MQTT 5 section 3.2.2.3.18: {fault}", ReasonCode.PROTOCOL_ERROR)
        return assemble(
            PacketType.CONNACK,
            0,
            bytes((packet.session_present,)),
            reason_code_field(PacketType.CONNACK, packet.return_code),
            encode_properties(PacketType.CONNACK, packet.properties),
        )
    if packet.return_code not in _CONNACK_CODES:
        raise MalformedPacket("CONNACK", 0, f"MQTT 3.1.1 table 3.1: return code {packet.return_code} is reserved")
    return bytes((0x20, 2, packet.session_present, packet.return_code))


def write_subscribe(packet: Subscribe, byte_order: ByteOrder, level: int) -> bytes:
    """Encode SUBSCRIBE. Filters without options have the default options."""
    mqtt_5 = level == LEVEL_MQTT_5
    if not packet.topics:
        raise MalformedPacket("SUBSCRIBE", 0, f"MQTT-3.8.3-{2 if mqtt_5 else 3}: no topic filter")
    fields = [packet_id_field(packet.packet_id, "SUBSCRIBE", byte_order)]
    options = packet.options or (_NO_OPTIONS,) * len(packet.topics)
    if mqtt_5:
        if len(options) != len(packet.topics):
            rule = f"MQTT 5 section 3.8.3.1: {len(options)} options for {len(packet.topics)} topic filters"
            raise MalformedPacket("SUBSCRIBE", 0, rule)
        fields.append(encode_properties(PacketType.SUBSCRIBE, packet.properties))
    for index, (topic_filter, qos) in enumerate(packet.topics):
        if not 0 <= qos <= 2:
            source = "MQTT 5 section 3.8.3.1" if mqtt_5 else "MQTT-3.8.3-4"
            raise MalformedPacket("SUBSCRIBE", 0, f"{source}: requested quality of service is {qos}")
        byte = qos | _options(options[index], topic_filter) if mqtt_5 else qos
        fields += (topic_filter_field(topic_filter, "SUBSCRIBE"), bytes((byte,)))
    return assemble(PacketType.SUBSCRIBE, 0b1010 if packet.dup else 0b0010, *fields)


def _options(options: SubscriptionOptions, topic_filter: str) -> int:
    if not 0 <= options.retain_handling <= 2:
        rule = f"MQTT 5 section 3.8.3.1: Retain Handling is {options.retain_handling}"
        raise MalformedPacket("SUBSCRIBE", 0, rule, ReasonCode.PROTOCOL_ERROR)
    if options.no_local and topic_filter.startswith(SHARE):
        rule = "MQTT-3.8.3-4: No Local with a shared subscription"
        raise MalformedPacket("SUBSCRIBE", 0, rule, ReasonCode.PROTOCOL_ERROR)
    return (4 if options.no_local else 0) | (8 if options.retain_as_published else 0) | options.retain_handling << 4


def write_suback(packet: Suback, byte_order: ByteOrder, level: int) -> bytes:
    mqtt_5 = level == LEVEL_MQTT_5
    if not packet.return_codes:
        raise MalformedPacket("SUBACK", 0, f"MQTT {'5' if mqtt_5 else '3.1.1'} section 3.9.3: no return code")
    packet_id = packet_id_field(packet.packet_id, "SUBACK", byte_order)
    if mqtt_5:
        properties = encode_properties(PacketType.SUBACK, packet.properties)
        codes = [reason_code_field(PacketType.SUBACK, code) for code in packet.return_codes]
        return assemble(PacketType.SUBACK, 0, packet_id, properties, *codes)
    for code in packet.return_codes:
        if code not in (0, 1, 2, SUBACK_FAILURE):
            raise MalformedPacket("SUBACK", 0, f"MQTT-3.9.3-2: return code is {code}")
    return assemble(PacketType.SUBACK, 0, packet_id, bytes(packet.return_codes))


def write_unsubscribe(packet: Unsubscribe, byte_order: ByteOrder, level: int) -> bytes:
    if not packet.topics:
        raise MalformedPacket("UNSUBSCRIBE", 0, "MQTT-3.10.3-2: no topic filter")
    fields = [packet_id_field(packet.packet_id, "UNSUBSCRIBE", byte_order)]
    if level == LEVEL_MQTT_5:
        fields.append(encode_properties(PacketType.UNSUBSCRIBE, packet.properties))
    fields += [topic_filter_field(topic_filter, "UNSUBSCRIBE") for topic_filter in packet.topics]
    return assemble(PacketType.UNSUBSCRIBE, 0b1010 if packet.dup else 0b0010, *fields)


def write_unsuback(packet: Unsuback, byte_order: ByteOrder, level: int) -> bytes:
    packet_id = packet_id_field(packet.packet_id, "UNSUBACK", byte_order)
    if level != LEVEL_MQTT_5:
        return assemble(PacketType.UNSUBACK, 0, packet_id)
    if not packet.reason_codes:
        raise MalformedPacket("UNSUBACK", 0, "MQTT 5 section 3.11.3: no reason code")
    properties = encode_properties(PacketType.UNSUBACK, packet.properties)
    codes = [reason_code_field(PacketType.UNSUBACK, code) for code in packet.reason_codes]
    return assemble(PacketType.UNSUBACK, 0, packet_id, properties, *codes)


def write_disconnect(packet: Disconnect, byte_order: ByteOrder, level: int) -> bytes:
    """Encode DISCONNECT, without trailing default fields (MQTT 5 section 3.14.2.1)."""
    if level != LEVEL_MQTT_5:
        return b"\xe0\x00"
    code = reason_code_field(PacketType.DISCONNECT, packet.reason_code)
    properties = encode_properties(PacketType.DISCONNECT, packet.properties)
    if properties != _NO_PROPERTIES:
        return assemble(PacketType.DISCONNECT, 0, code, properties)
    return assemble(PacketType.DISCONNECT, 0, code) if packet.reason_code else b"\xe0\x00"


def write_auth(packet: Auth, byte_order: ByteOrder, level: int) -> bytes:
    if level != LEVEL_MQTT_5:
        raise MalformedPacket("AUTH", 0, "MQTT 3.1 section 2.1: message type 15 is reserved")
    code = reason_code_field(PacketType.AUTH, packet.reason_code)
    if fault := auth_fault(packet):
        raise MalformedPacket("AUTH", 0, fault, ReasonCode.PROTOCOL_ERROR)
    if packet.properties is None:
        return b"\xf0\x00"
    return assemble(PacketType.AUTH, 0, code, encode_properties(PacketType.AUTH, packet.properties))


# Only PUBREL has QoS 1 in its header. The Remaining Length is the length of a packet identifier.
_ACKNOWLEDGEMENT_HEADER: Final[dict[PacketType, bytes]] = {
    PacketType.PUBACK: b"\x40\x02",
    PacketType.PUBREC: b"\x50\x02",
    PacketType.PUBREL: b"\x62\x02",
    PacketType.PUBCOMP: b"\x70\x02",
    PacketType.UNSUBACK: b"\xb0\x02",
}


def encode(packet: Packet, byte_order: ByteOrder = "big", protocol_level: int = LEVEL_MQTT_3_1_1) -> bytes:
    """Encode a packet.

    DUP of PUBREL, SUBSCRIBE and UNSUBSCRIBE exists in MQTT 3.1 only and must not be set for other versions. Reason codes,
    options and properties are written if the protocol level is 5. A CONNECT uses its own protocol level.

    Raises MalformedPacket if a field is out of range, or contradicts another.
    """
    return _WRITERS[type(packet)](packet, byte_order, protocol_level)


def encode_topic(topic: str) -> bytes:
    """Encode a topic name for PUBLISH, after its length, which is big-endian in both dialects. Raises MalformedPacket."""
    if fault := topic_name_fault(topic):
        raise MalformedPacket("PUBLISH", 0, fault)
    return string_field(topic, "PUBLISH", "topic name")


def encode_publish(
    topic_field: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    byte_order: ByteOrder = "big",
) -> bytes:
    """Encode PUBLISH with a topic from ``encode_topic``. The other arguments are the fields of Publish.

    Raises MalformedPacket if a field is out of range, or contradicts the QoS.
    """
    length = len(topic_field) + len(payload)
    if qos == 0:
        if dup:
            raise MalformedPacket("PUBLISH", 0, "MQTT-3.3.1-2: DUP is set with quality of service 0")
        if packet_id:
            raise MalformedPacket("PUBLISH", 0, "MQTT-2.3.1-5: message id with quality of service 0")
        first = 0x31 if retain else 0x30
        return _publish_header(first, length) + topic_field + payload
    if not 0 < qos < 3:
        raise MalformedPacket("PUBLISH", 0, f"MQTT-3.3.1-4: quality of service is {qos}")
    if not 0 < packet_id < 0x10000:
        raise MalformedPacket("PUBLISH", 0, f"MQTT-2.3.1-1: message id is {packet_id}")
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    return _publish_header(first, length + 2) + topic_field + packet_id.to_bytes(2, byte_order) + payload


def encode_publish_5(
    topic_field: bytes, properties: bytes, payload: bytes, qos: int, retain: bool, dup: bool, packet_id: int
) -> bytes:
    """Encode an MQTT 5 PUBLISH like ``encode_publish``, with properties from ``encode_properties``."""
    # The properties are between packet identifier and payload.
    return encode_publish(topic_field, properties + payload, qos, retain, dup, packet_id)


def encode_acknowledgement(
    packet_type: PacketType, packet_id: int, byte_order: ByteOrder = "big", reason_code: int = 0
) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL (without DUP), PUBCOMP or UNSUBACK with a packet identifier and an optional reason code.

    A reason code other than 0 is allowed for MQTT 5 peers only (section 3.4.2.1), and not in UNSUBACK.
    Raises MalformedPacket.
    """
    header = _ACKNOWLEDGEMENT_HEADER[packet_type]
    if not 0 < packet_id < 0x10000:
        raise MalformedPacket(PacketType(packet_type).name, 0, f"MQTT-2.3.1-1: message id is {packet_id}")
    if reason_code:
        code = reason_code_field(packet_type, reason_code)
        return header[:1] + b"\3" + packet_id.to_bytes(2, byte_order) + code
    return header + packet_id.to_bytes(2, byte_order)


def _publish_header(first: int, length: int) -> bytes:
    """Encode a fixed header. The common lengths need no loop."""
    if length < 0x80:
        return (first << 8 | length).to_bytes(2, "big")
    if length < 0x4000:
        return (first << 16 | (length & 0x7F | 0x80) << 8 | length >> 7).to_bytes(3, "big")
    return bytes((first,)) + length_field(length, "PUBLISH")


def _write_publish(packet: Publish, byte_order: ByteOrder, level: int) -> bytes:
    payload = packet.payload
    aliased = False
    if level == LEVEL_MQTT_5:
        properties = packet.properties
        aliased = not packet.topic and properties is not None and properties.topic_alias is not None
        # The properties are between packet identifier and payload.
        payload = (b"\0" if properties is None else encode_properties(PacketType.PUBLISH, properties)) + payload
    topic = b"\0\0" if aliased else encode_topic(packet.topic)
    return encode_publish(topic, payload, packet.qos, packet.retain, packet.dup, packet.packet_id, byte_order)


#: Packet types of the acknowledgements of publications.
_ACKNOWLEDGEMENTS: Final[dict[type[Any], PacketType]] = {
    Puback: PacketType.PUBACK,
    Pubrec: PacketType.PUBREC,
    Pubrel: PacketType.PUBREL,
    Pubcomp: PacketType.PUBCOMP,
}


def _write_acknowledgement(packet: Puback | Pubrec | Pubrel | Pubcomp, byte_order: ByteOrder, level: int) -> bytes:
    """Encode an acknowledgement without trailing default fields (MQTT 5 section 3.4.2.1)."""
    packet_type = _ACKNOWLEDGEMENTS[type(packet)]
    if isinstance(packet, Pubrel) and packet.dup:
        return assemble(PacketType.PUBREL, 0b1010, packet_id_field(packet.packet_id, "PUBREL", byte_order))
    if level != LEVEL_MQTT_5:
        return encode_acknowledgement(packet_type, packet.packet_id, byte_order)
    if packet.properties is None:
        return encode_acknowledgement(packet_type, packet.packet_id, byte_order, packet.reason_code)
    return assemble(
        packet_type,
        _ACKNOWLEDGEMENT_HEADER[packet_type][0] & 0x0F,
        packet_id_field(packet.packet_id, packet_type.name, byte_order),
        reason_code_field(packet_type, packet.reason_code),
        encode_properties(packet_type, packet.properties),
    )


# Each writer takes a packet of its key's type, which a dictionary's type cannot express.
_WRITERS: Final[dict[type[Any], Callable[[Any, ByteOrder, int], bytes]]] = {
    Connect: write_connect,
    Connack: write_connack,
    Publish: _write_publish,
    Puback: _write_acknowledgement,
    Pubrec: _write_acknowledgement,
    Pubrel: _write_acknowledgement,
    Pubcomp: _write_acknowledgement,
    Subscribe: write_subscribe,
    Suback: write_suback,
    Unsubscribe: write_unsubscribe,
    Unsuback: write_unsuback,
    Pingreq: lambda packet, byte_order, level: b"\xc0\x00",
    Pingresp: lambda packet, byte_order, level: b"\xd0\x00",
    Disconnect: write_disconnect,
    Auth: write_auth,
}


#: The maximum number of cached topic fields, after which the cache is cleared, and the maximum length of a cached topic.
TOPIC_FIELDS: Final = 8_192
TOPIC_FIELD_LENGTH: Final = 256
_topic_fields: Final[dict[str, bytes]] = {}


def topic_field(topic: str) -> bytes:
    """Return the cached result of `encode_topic`. Raises MalformedPacket."""
    field = _topic_fields.get(topic)
    if field is None:
        field = encode_topic(topic)
        if len(topic) <= TOPIC_FIELD_LENGTH:
            if len(_topic_fields) >= TOPIC_FIELDS:
                _topic_fields.clear()
            _topic_fields[topic] = field
    return field
