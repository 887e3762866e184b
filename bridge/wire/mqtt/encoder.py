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
from .fields import assemble, length_field, message_id_field, reason_code_field, string_field
from .packets import (
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    Auth,
    ByteOrder,
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
)
from .properties import encode_properties
from .topics import topic_name_fault
from .writers import (
    write_auth,
    write_connack,
    write_connect,
    write_disconnect,
    write_pingreq,
    write_pingresp,
    write_suback,
    write_subscribe,
    write_unsuback,
    write_unsubscribe,
)

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
    not be set. Reason codes, options and properties are written where the protocol level is 5; that of a CONNECT is its own.

    Raises:
        MalformedPacket: a field is out of its range, or contradicts another.
        KeyError: it is an OtherPacket.
    """
    return _WRITERS[type(packet)](packet, byte_order, protocol_level)


def encode_topic(topic: str) -> bytes:
    """Write a topic name as PUBLISH carries it: length in two bytes, big-endian in either dialect, then UTF-8.

    Raises:
        MalformedPacket: the name is empty, too long, contains a wildcard or what no MQTT string may contain.
    """
    if fault := topic_name_fault(topic):
        raise MalformedPacket("PUBLISH", 0, fault)
    return string_field(topic, "PUBLISH", "topic name")


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


def encode_acknowledgement(
    packet_type: PacketType, message_id: int, byte_order: ByteOrder = "big", reason_code: int = 0
) -> bytes:
    """Write PUBACK, PUBREC, PUBREL (without DUP), PUBCOMP or UNSUBACK as nothing but a message id and what is not 0.

    A reason code that is not 0 is for a peer of MQTT 5 (section 3.4.2.1), and not for UNSUBACK.

    Raises:
        MalformedPacket: the message id is out of range, or the packet has no such reason code.
        KeyError: the packet is of another type.
    """
    header = _ACKNOWLEDGEMENT_HEADER[packet_type]
    if not 0 < message_id < 0x10000:
        raise MalformedPacket(PacketType(packet_type).name, 0, f"MQTT-2.3.1-1: message id is {message_id}")
    if reason_code:
        code = reason_code_field(packet_type, reason_code)
        return header[:1] + b"\3" + message_id.to_bytes(2, byte_order) + code
    return header + message_id.to_bytes(2, byte_order)


def _publish_header(first: int, length: int) -> bytes:
    """Write a fixed header, the lengths most messages have without a loop."""
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
        # Between message id and payload.
        payload = (b"\0" if properties is None else encode_properties(PacketType.PUBLISH, properties)) + payload
    topic = b"\0\0" if aliased else encode_topic(packet.topic)
    return encode_publish(topic, payload, packet.qos, packet.retain, packet.dup, packet.message_id, byte_order)


def _write_puback(packet: Puback, byte_order: ByteOrder, level: int) -> bytes:
    return _acknowledgement(PacketType.PUBACK, packet, byte_order, level)


def _write_pubrec(packet: Pubrec, byte_order: ByteOrder, level: int) -> bytes:
    return _acknowledgement(PacketType.PUBREC, packet, byte_order, level)


def _write_pubrel(packet: Pubrel, byte_order: ByteOrder, level: int) -> bytes:
    if packet.dup:
        return assemble(PacketType.PUBREL, 0b1010, message_id_field(packet.message_id, "PUBREL", byte_order))
    return _acknowledgement(PacketType.PUBREL, packet, byte_order, level)


def _write_pubcomp(packet: Pubcomp, byte_order: ByteOrder, level: int) -> bytes:
    return _acknowledgement(PacketType.PUBCOMP, packet, byte_order, level)


def _acknowledgement(
    packet_type: PacketType, packet: Puback | Pubrec | Pubrel | Pubcomp, byte_order: ByteOrder, level: int
) -> bytes:
    """Write as little as there is to say (MQTT 5 section 3.4.2.1)."""
    if level != LEVEL_MQTT_5:
        return encode_acknowledgement(packet_type, packet.message_id, byte_order)
    if packet.properties is None:
        return encode_acknowledgement(packet_type, packet.message_id, byte_order, packet.reason_code)
    return assemble(
        packet_type,
        _ACKNOWLEDGEMENT_HEADER[packet_type][0] & 0x0F,
        message_id_field(packet.message_id, packet_type.name, byte_order),
        reason_code_field(packet_type, packet.reason_code),
        encode_properties(packet_type, packet.properties),
    )


# Each writer takes the packet of its own key, which a dictionary's type cannot say.
_WRITERS: Final[dict[type[Any], Callable[[Any, ByteOrder, int], bytes]]] = {
    Connect: write_connect,
    Connack: write_connack,
    Publish: _write_publish,
    Puback: _write_puback,
    Pubrec: _write_pubrec,
    Pubrel: _write_pubrel,
    Pubcomp: _write_pubcomp,
    Subscribe: write_subscribe,
    Suback: write_suback,
    Unsubscribe: write_unsubscribe,
    Unsuback: write_unsuback,
    Pingreq: write_pingreq,
    Pingresp: write_pingresp,
    Disconnect: write_disconnect,
    Auth: write_auth,
}
