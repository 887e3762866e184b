"""The fields of packets as bytes, each checked: what ``Body`` reads. All raise MalformedPacket, with offset 0."""

from __future__ import annotations

from typing import Final

from .errors import MalformedPacket
from .packets import ByteOrder, PacketType
from .reason_codes import ReasonCode, reason_code_fault
from .remaining_length import MAX_REMAINING_LENGTH, encode_remaining_length

MAX_FIELD_LENGTH: Final = 65_535
"""Longest string or binary field in bytes: its length is a word (MQTT 3.1.1 section 1.5.3)."""


def length_field(length: int, packet: str) -> bytes:
    """Write a Remaining Length."""
    if length > MAX_REMAINING_LENGTH:
        raise MalformedPacket(packet, 0, f"MQTT 3.1 section 2.1: Remaining Length is {length}, above {MAX_REMAINING_LENGTH}")
    return encode_remaining_length(length)


def assemble(packet_type: PacketType, flags: int, *fields: bytes) -> bytes:
    """Put a fixed header before the fields of a packet."""
    length = sum(map(len, fields))
    return b"".join((bytes((packet_type << 4 | flags,)), length_field(length, packet_type.name), *fields))


def word_field(value: int, packet: str, field: str, byte_order: ByteOrder) -> bytes:
    """Write a number of two bytes."""
    if not 0 <= value <= 0xFFFF:
        raise MalformedPacket(packet, 0, f"MQTT 3.1.1 section 1.5.2: {field} is {value}, 0 to 65535 allowed")
    return value.to_bytes(2, byte_order)


def message_id_field(value: int, packet: str, byte_order: ByteOrder) -> bytes:
    """Write a message identifier, which is not 0."""
    if value == 0:
        raise MalformedPacket(packet, 0, "MQTT-2.3.1-1: message id is 0")
    return word_field(value, packet, "message id", byte_order)


def binary_field(value: bytes, packet: str, field: str) -> bytes:
    """Write bytes behind their length."""
    if len(value) > MAX_FIELD_LENGTH:
        raise MalformedPacket(
            packet, 0, f"MQTT 3.1.1 section 1.5.3: {field} is {len(value)} bytes long, {MAX_FIELD_LENGTH} allowed"
        )
    # Big-endian in the little-endian dialect as well, which excepts the lengths of strings.
    return len(value).to_bytes(2, "big") + value


def string_field(value: str, packet: str, field: str) -> bytes:
    """Write a UTF-8 string."""
    if "\0" in value:
        raise MalformedPacket(packet, 0, f"MQTT-1.5.3-2: {field} contains U+0000")
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise MalformedPacket(packet, 0, f"MQTT-1.5.3-1: {field} contains a surrogate") from None
    return binary_field(raw, packet, field)


def topic_filter_field(value: str, packet: str) -> bytes:
    """Write a topic filter."""
    if not value:
        raise MalformedPacket(packet, 0, "MQTT-4.7.3-1: topic filter is empty")
    return string_field(value, packet, "topic filter")


def reason_code_field(packet_type: PacketType, code: int) -> bytes:
    """Write a reason code that the packet may have."""
    if fault := reason_code_fault(packet_type, code):
        raise MalformedPacket(packet_type.name, 0, fault, ReasonCode.PROTOCOL_ERROR)
    return bytes((code,))
