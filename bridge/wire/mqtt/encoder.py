"""MQTT packets into bytes (MQTT 3.1; MQTT 3.1.1 and MQTT 5 chapters 2 and 3).

``encode`` writes any packet. ``encode_publish`` and ``encode_acknowledgement`` are the ways for heavy traffic: they
take bare fields, and the former a topic already encoded, so that one message to many subscribers is not encoded for
each of them anew.

Every function raises MalformedPacket, with offset 0, for what the protocol does not allow to be sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .errors import MalformedPacket
from .packets import (
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    SUBACK_FAILURE,
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
    Unsuback,
    Unsubscribe,
)
from .properties import encode_properties
from .reason_codes import OF_ACKNOWLEDGEMENT
from .remaining_length import MAX_REMAINING_LENGTH, encode_remaining_length
from .topics import topic_name_fault

MAX_FIELD_LENGTH: Final = 65_535
"""Longest string or binary field in bytes: its length is a word (MQTT 3.1.1 section 1.5.3)."""

_CONNACK_CODES: Final = frozenset(ConnackCode)

# PUBREL alone has quality of service 1 in its own header. The Remaining Length is that of a message id alone.
_ACKNOWLEDGEMENT_HEADER: Final[dict[PacketType, bytes]] = {
    PacketType.PUBACK: b"\x40\x02",
    PacketType.PUBREC: b"\x50\x02",
    PacketType.PUBREL: b"\x62\x02",
    PacketType.PUBCOMP: b"\x70\x02",
    PacketType.UNSUBACK: b"\xb0\x02",
}


def encode(packet: Packet, byte_order: ByteOrder = "big", protocol_level: int = LEVEL_MQTT_3_1_1) -> bytes:
    """Write a packet.

    DUP of PUBREL, SUBSCRIBE and UNSUBSCRIBE is written as MQTT 3.1 knows it; towards a peer of MQTT 3.1.1 it must
    not be set. Reason codes and properties are written where the protocol level is 5.

    Raises:
        MalformedPacket: a field is out of its range, or contradicts another.
        KeyError: there is no writer of MQTT 5 for the packet yet.
    """
    writers = _WRITERS_5 if protocol_level == LEVEL_MQTT_5 else _WRITERS
    return writers[type(packet)](packet, byte_order)


def encode_topic(topic: str) -> bytes:
    """Write a topic name as PUBLISH carries it: length in two bytes, big-endian in either dialect, then UTF-8.

    Raises:
        MalformedPacket: the name is empty, too long, contains a wildcard or what no MQTT string may contain.
    """
    if fault := topic_name_fault(topic):
        raise MalformedPacket("PUBLISH", 0, fault)
    return _string(topic, "PUBLISH", "topic name")


def encode_publish(
    topic_field: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    message_id: int,
    byte_order: ByteOrder = "big",
) -> bytes:
    """Write PUBLISH with a topic from ``encode_topic``; the other arguments are the fields of Publish.

    Raises:
        MalformedPacket: a field is out of its range, or contradicts the quality of service.
    """
    length = len(topic_field) + len(payload)
    if qos == 0:
        if dup:
            raise MalformedPacket("PUBLISH", 0, "MQTT-3.3.1-2: DUP is set with quality of service 0")
        if message_id:
            raise MalformedPacket("PUBLISH", 0, "MQTT-2.3.1-5: message id with quality of service 0")
        first = 0x31 if retain else 0x30
        return _publish_header(first, length) + topic_field + payload
    if not 0 < qos < 3:
        raise MalformedPacket("PUBLISH", 0, f"MQTT-3.3.1-4: quality of service is {qos}")
    if not 0 < message_id < 0x10000:
        raise MalformedPacket("PUBLISH", 0, f"MQTT-2.3.1-1: message id is {message_id}")
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    return _publish_header(first, length + 2) + topic_field + message_id.to_bytes(2, byte_order) + payload


def encode_publish_5(
    topic_field: bytes, properties: bytes, payload: bytes, qos: int, retain: bool, dup: bool, message_id: int
) -> bytes:
    """Write PUBLISH of MQTT 5, with properties from ``encode_properties``, as ``encode_publish`` does."""
    # Properties stand between message id and payload; all else is as it was.
    return encode_publish(topic_field, properties + payload, qos, retain, dup, message_id)


def encode_acknowledgement(packet_type: PacketType, message_id: int, byte_order: ByteOrder = "big") -> bytes:
    """Write PUBACK, PUBREC, PUBREL (without DUP), PUBCOMP or UNSUBACK: the packets of nothing but a message id.

    Raises:
        MalformedPacket: the message id is out of range.
        KeyError: the packet is of another type.
    """
    header = _ACKNOWLEDGEMENT_HEADER[packet_type]
    if not 0 < message_id < 0x10000:
        raise MalformedPacket(PacketType(packet_type).name, 0, f"MQTT-2.3.1-1: message id is {message_id}")
    return header + message_id.to_bytes(2, byte_order)


def _publish_header(first: int, length: int) -> bytes:
    """Write a fixed header, the lengths most messages have without a loop."""
    if length < 0x80:
        return (first << 8 | length).to_bytes(2, "big")
    if length < 0x4000:
        return (first << 16 | (length & 0x7F | 0x80) << 8 | length >> 7).to_bytes(3, "big")
    return bytes((first,)) + _length(length, "PUBLISH")


def _length(length: int, packet: str) -> bytes:
    if length > MAX_REMAINING_LENGTH:
        raise MalformedPacket(packet, 0, f"MQTT 3.1 section 2.1: Remaining Length is {length}, above {MAX_REMAINING_LENGTH}")
    return encode_remaining_length(length)


def _assemble(packet_type: PacketType, flags: int, *fields: bytes) -> bytes:
    length = sum(map(len, fields))
    return b"".join((bytes((packet_type << 4 | flags,)), _length(length, packet_type.name), *fields))


def _word(value: int, packet: str, field: str, byte_order: ByteOrder) -> bytes:
    if not 0 <= value <= 0xFFFF:
        raise MalformedPacket(packet, 0, f"MQTT 3.1.1 section 1.5.2: {field} is {value}, 0 to 65535 allowed")
    return value.to_bytes(2, byte_order)


def _message_id(value: int, packet: str, byte_order: ByteOrder) -> bytes:
    if value == 0:
        raise MalformedPacket(packet, 0, "MQTT-2.3.1-1: message id is 0")
    return _word(value, packet, "message id", byte_order)


def _binary(value: bytes, packet: str, field: str) -> bytes:
    if len(value) > MAX_FIELD_LENGTH:
        raise MalformedPacket(
            packet, 0, f"MQTT 3.1.1 section 1.5.3: {field} is {len(value)} bytes long, {MAX_FIELD_LENGTH} allowed"
        )
    # Big-endian in the little-endian dialect as well, which excepts the lengths of strings.
    return len(value).to_bytes(2, "big") + value


def _string(value: str, packet: str, field: str) -> bytes:
    if "\0" in value:
        raise MalformedPacket(packet, 0, f"MQTT-1.5.3-2: {field} contains U+0000")
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise MalformedPacket(packet, 0, f"MQTT-1.5.3-1: {field} contains a surrogate") from None
    return _binary(raw, packet, field)


def _topic_filter(value: str, packet: str) -> bytes:
    if not value:
        raise MalformedPacket(packet, 0, "MQTT-4.7.3-1: topic filter is empty")
    return _string(value, packet, "topic filter")


def _write_connect(packet: Connect, byte_order: ByteOrder) -> bytes:
    name = "CONNECT"
    if not 0 <= packet.protocol_level <= 0xFF:
        raise MalformedPacket(name, 0, f"MQTT 3.1.1 section 3.1.2.2: protocol level is {packet.protocol_level}")
    flags = 0x02 if packet.clean_session else 0
    fields = [_string(packet.client_id, name, "client identifier")]
    will = packet.will
    if will is not None:
        if not 0 <= will.qos <= 2:
            raise MalformedPacket(name, 0, f"MQTT-3.1.2-14: quality of service of the will is {will.qos}")
        if fault := topic_name_fault(will.topic):
            raise MalformedPacket(name, 0, fault)
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        fields += (_string(will.topic, name, "will topic"), _binary(will.payload, name, "will message"))
    if packet.user_name is not None:
        flags |= 0x80
        fields.append(_string(packet.user_name, name, "user name"))
    if packet.password is not None:
        if packet.user_name is None:
            raise MalformedPacket(name, 0, "MQTT-3.1.2-22: password without user name")
        flags |= 0x40
        fields.append(_binary(packet.password, name, "password"))
    return _assemble(
        PacketType.CONNECT,
        0,
        _string(packet.protocol_name, name, "protocol name"),
        bytes((packet.protocol_level, flags)),
        _word(packet.keep_alive, name, "keep alive", byte_order),
        *fields,
    )


def _write_connack(packet: Connack, byte_order: ByteOrder) -> bytes:
    if packet.return_code not in _CONNACK_CODES:
        raise MalformedPacket("CONNACK", 0, f"MQTT 3.1.1 table 3.1: return code {packet.return_code} is reserved")
    if packet.session_present and packet.return_code:
        raise MalformedPacket("CONNACK", 0, "MQTT-3.2.2-4: a refused connection has no session present")
    return bytes((0x20, 2, packet.session_present, packet.return_code))


def _write_publish(packet: Publish, byte_order: ByteOrder) -> bytes:
    return encode_publish(
        encode_topic(packet.topic),
        packet.payload,
        packet.qos,
        packet.retain,
        packet.dup,
        packet.message_id,
        byte_order,
    )


def _write_puback(packet: Puback, byte_order: ByteOrder) -> bytes:
    return encode_acknowledgement(PacketType.PUBACK, packet.message_id, byte_order)


def _write_pubrec(packet: Pubrec, byte_order: ByteOrder) -> bytes:
    return encode_acknowledgement(PacketType.PUBREC, packet.message_id, byte_order)


def _write_pubrel(packet: Pubrel, byte_order: ByteOrder) -> bytes:
    if packet.dup:
        return _assemble(PacketType.PUBREL, 0b1010, _message_id(packet.message_id, "PUBREL", byte_order))
    return encode_acknowledgement(PacketType.PUBREL, packet.message_id, byte_order)


def _write_pubcomp(packet: Pubcomp, byte_order: ByteOrder) -> bytes:
    return encode_acknowledgement(PacketType.PUBCOMP, packet.message_id, byte_order)


def _write_subscribe(packet: Subscribe, byte_order: ByteOrder) -> bytes:
    if not packet.topics:
        raise MalformedPacket("SUBSCRIBE", 0, "MQTT-3.8.3-3: no topic filter")
    fields = [_message_id(packet.message_id, "SUBSCRIBE", byte_order)]
    for topic_filter, qos in packet.topics:
        if not 0 <= qos <= 2:
            raise MalformedPacket("SUBSCRIBE", 0, f"MQTT-3.8.3-4: requested quality of service is {qos}")
        fields += (_topic_filter(topic_filter, "SUBSCRIBE"), bytes((qos,)))
    return _assemble(PacketType.SUBSCRIBE, 0b1010 if packet.dup else 0b0010, *fields)


def _write_suback(packet: Suback, byte_order: ByteOrder) -> bytes:
    if not packet.return_codes:
        raise MalformedPacket("SUBACK", 0, "MQTT 3.1.1 section 3.9.3: no return code")
    for code in packet.return_codes:
        if code not in (0, 1, 2, SUBACK_FAILURE):
            raise MalformedPacket("SUBACK", 0, f"MQTT-3.9.3-2: return code is {code}")
    message_id = _message_id(packet.message_id, "SUBACK", byte_order)
    return _assemble(PacketType.SUBACK, 0, message_id, bytes(packet.return_codes))


def _write_unsubscribe(packet: Unsubscribe, byte_order: ByteOrder) -> bytes:
    if not packet.topics:
        raise MalformedPacket("UNSUBSCRIBE", 0, "MQTT-3.10.3-2: no topic filter")
    fields = [_message_id(packet.message_id, "UNSUBSCRIBE", byte_order)]
    fields += [_topic_filter(topic_filter, "UNSUBSCRIBE") for topic_filter in packet.topics]
    return _assemble(PacketType.UNSUBSCRIBE, 0b1010 if packet.dup else 0b0010, *fields)


def _write_unsuback(packet: Unsuback, byte_order: ByteOrder) -> bytes:
    return encode_acknowledgement(PacketType.UNSUBACK, packet.message_id, byte_order)


def _write_pingreq(packet: Pingreq, byte_order: ByteOrder) -> bytes:
    return b"\xc0\x00"


def _write_pingresp(packet: Pingresp, byte_order: ByteOrder) -> bytes:
    return b"\xd0\x00"


def _write_disconnect(packet: Disconnect, byte_order: ByteOrder) -> bytes:
    return b"\xe0\x00"


# Each writer takes the packet of its own key, which a dictionary's type cannot say.
_WRITERS: Final[dict[type[Any], Callable[[Any, ByteOrder], bytes]]] = {
    Connect: _write_connect,
    Connack: _write_connack,
    Publish: _write_publish,
    Puback: _write_puback,
    Pubrec: _write_pubrec,
    Pubrel: _write_pubrel,
    Pubcomp: _write_pubcomp,
    Subscribe: _write_subscribe,
    Suback: _write_suback,
    Unsubscribe: _write_unsubscribe,
    Unsuback: _write_unsuback,
    Pingreq: _write_pingreq,
    Pingresp: _write_pingresp,
    Disconnect: _write_disconnect,
}


def _write_publish_5(packet: Publish, byte_order: ByteOrder) -> bytes:
    properties = packet.properties
    aliased = not packet.topic and properties is not None and properties.topic_alias is not None
    return encode_publish_5(
        b"\0\0" if aliased else encode_topic(packet.topic),
        encode_properties(PacketType.PUBLISH, properties),
        packet.payload,
        packet.qos,
        packet.retain,
        packet.dup,
        packet.message_id,
    )


def _write_acknowledgement_5(packet: Puback | Pubrec | Pubrel | Pubcomp, byte_order: ByteOrder) -> bytes:
    """Write as little as there is to say (MQTT 5 section 3.4.2.1)."""
    if not packet.reason_code and packet.properties is None:
        return _WRITERS[type(packet)](packet, byte_order)
    packet_type = PacketType[type(packet).__name__.upper()]
    if packet.reason_code not in OF_ACKNOWLEDGEMENT[packet_type]:
        # The statements have the numbers of the packets, as the sections have.
        raise MalformedPacket(packet_type.name, 0, f"MQTT-3.{packet_type:d}.2-1: reason code is {packet.reason_code:#04x}")
    fields = [_message_id(packet.message_id, packet_type.name, byte_order), bytes((packet.reason_code,))]
    if packet.properties is not None:
        fields.append(encode_properties(packet_type, packet.properties))
    return _assemble(packet_type, _ACKNOWLEDGEMENT_HEADER[packet_type][0] & 0x0F, *fields)


_WRITERS_5: Final[dict[type[Any], Callable[[Any, ByteOrder], bytes]]] = {
    Publish: _write_publish_5,
    Puback: _write_acknowledgement_5,
    Pubrec: _write_acknowledgement_5,
    Pubrel: _write_acknowledgement_5,
    Pubcomp: _write_acknowledgement_5,
    Pingreq: _write_pingreq,
    Pingresp: _write_pingresp,
}
