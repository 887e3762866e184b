"""The properties of MQTT 5 packets (table 2-4 of the specification), with the limits of their values."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

from bridge.mqtt.packets import MAX_REMAINING_LENGTH, PacketType

Place = PacketType | Literal["WILL"]
"""The place of properties: a packet's variable header, or the will in the payload of CONNECT."""


class PropertyKind(Enum):
    """The encoding of a property's value (MQTT 5 section 1.5)."""

    BYTE = "Byte"
    TWO_BYTE_INTEGER = "Two Byte Integer"
    FOUR_BYTE_INTEGER = "Four Byte Integer"
    VARIABLE_BYTE_INTEGER = "Variable Byte Integer"
    STRING = "UTF-8 Encoded String"
    BINARY = "Binary Data"
    STRING_PAIR = "UTF-8 String Pair"


class PropertyRow(msgspec.Struct, frozen=True):
    """One row of the table."""

    identifier: int
    name: str
    """The name in the specification."""
    kind: PropertyKind
    places: frozenset[Place]
    """The places in which it is allowed."""
    repeated: frozenset[Place] = frozenset()
    """The places in which it may be repeated."""
    least: int = 0
    """The minimum value of a number."""
    most: int = 0xFFFFFFFF
    """The maximum value of a number, in addition to the limit of its encoding."""

    @property
    def field(self) -> str:
        """The name of its field in the property structs."""
        return self.name.lower().replace(" ", "_")


ANYWHERE: frozenset[Place] = frozenset(set(PacketType) - {PacketType.PINGREQ, PacketType.PINGRESP} | {"WILL"})


def _in(*names: str) -> frozenset[Place]:
    return frozenset("WILL" if name == "WILL" else PacketType[name] for name in names)


_MESSAGE = _in("PUBLISH", "WILL")
_OPENING = _in("CONNECT", "CONNACK")
_AUTHENTICATION = _in("CONNECT", "CONNACK", "AUTH")
_CONNACK = _in("CONNACK")
_ANSWERS = _in("CONNACK", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBACK", "UNSUBACK", "DISCONNECT", "AUTH")

PROPERTIES = (
    PropertyRow(0x01, "Payload Format Indicator", PropertyKind.BYTE, _MESSAGE, most=1),
    PropertyRow(0x02, "Message Expiry Interval", PropertyKind.FOUR_BYTE_INTEGER, _MESSAGE),
    PropertyRow(0x03, "Content Type", PropertyKind.STRING, _MESSAGE),
    PropertyRow(0x08, "Response Topic", PropertyKind.STRING, _MESSAGE),
    PropertyRow(0x09, "Correlation Data", PropertyKind.BINARY, _MESSAGE),
    PropertyRow(
        0x0B, "Subscription Identifier", PropertyKind.VARIABLE_BYTE_INTEGER, _in("PUBLISH", "SUBSCRIBE"), _in("PUBLISH"),
        least=1, most=MAX_REMAINING_LENGTH,
    ),
    PropertyRow(0x11, "Session Expiry Interval", PropertyKind.FOUR_BYTE_INTEGER, _in("CONNECT", "CONNACK", "DISCONNECT")),
    PropertyRow(0x12, "Assigned Client Identifier", PropertyKind.STRING, _CONNACK),
    PropertyRow(0x13, "Server Keep Alive", PropertyKind.TWO_BYTE_INTEGER, _CONNACK),
    PropertyRow(0x15, "Authentication Method", PropertyKind.STRING, _AUTHENTICATION),
    PropertyRow(0x16, "Authentication Data", PropertyKind.BINARY, _AUTHENTICATION),
    PropertyRow(0x17, "Request Problem Information", PropertyKind.BYTE, _in("CONNECT"), most=1),
    PropertyRow(0x18, "Will Delay Interval", PropertyKind.FOUR_BYTE_INTEGER, _in("WILL")),
    PropertyRow(0x19, "Request Response Information", PropertyKind.BYTE, _in("CONNECT"), most=1),
    PropertyRow(0x1A, "Response Information", PropertyKind.STRING, _CONNACK),
    PropertyRow(0x1C, "Server Reference", PropertyKind.STRING, _in("CONNACK", "DISCONNECT")),
    PropertyRow(0x1F, "Reason String", PropertyKind.STRING, _ANSWERS),
    PropertyRow(0x21, "Receive Maximum", PropertyKind.TWO_BYTE_INTEGER, _OPENING, least=1),
    PropertyRow(0x22, "Topic Alias Maximum", PropertyKind.TWO_BYTE_INTEGER, _OPENING),
    PropertyRow(0x23, "Topic Alias", PropertyKind.TWO_BYTE_INTEGER, _in("PUBLISH"), least=1),
    PropertyRow(0x24, "Maximum QoS", PropertyKind.BYTE, _CONNACK, most=1),
    PropertyRow(0x25, "Retain Available", PropertyKind.BYTE, _CONNACK, most=1),
    PropertyRow(0x26, "User Property", PropertyKind.STRING_PAIR, ANYWHERE, ANYWHERE),
    PropertyRow(0x27, "Maximum Packet Size", PropertyKind.FOUR_BYTE_INTEGER, _OPENING, least=1),
    PropertyRow(0x28, "Wildcard Subscription Available", PropertyKind.BYTE, _CONNACK, most=1),
    PropertyRow(0x29, "Subscription Identifier Available", PropertyKind.BYTE, _CONNACK, most=1),
    PropertyRow(0x2A, "Shared Subscription Available", PropertyKind.BYTE, _CONNACK, most=1),
)  # fmt: skip
"""All properties (MQTT 5 table 2-4). The limits of values are from chapter 3."""
