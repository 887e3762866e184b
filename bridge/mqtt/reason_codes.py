"""Reason codes of MQTT 5 (section 2.4), and the error for malformed packets."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bridge.mqtt.packets import PacketType

_MESSAGE = "PUBACK PUBREC"
_RELEASE = "PUBREL PUBCOMP"


class ReasonCode(IntEnum):
    """The reason codes of MQTT 5 (table 2-6). 0 is also Normal disconnection and Granted QoS 0."""

    #: the name in the table, and the names of the packets that may contain it
    words: str
    packets: str

    def __new__(cls, code: int, words: str, packets: str) -> ReasonCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.words = words
        member.packets = packets
        return member

    SUCCESS = 0x00, "Success", f"CONNACK {_MESSAGE} {_RELEASE} SUBACK UNSUBACK DISCONNECT AUTH"
    GRANTED_QOS_1 = 0x01, "Granted QoS 1", "SUBACK"
    GRANTED_QOS_2 = 0x02, "Granted QoS 2", "SUBACK"
    DISCONNECT_WITH_WILL_MESSAGE = 0x04, "Disconnect with Will Message", "DISCONNECT"
    NO_MATCHING_SUBSCRIBERS = 0x10, "No matching subscribers", _MESSAGE
    NO_SUBSCRIPTION_EXISTED = 0x11, "No subscription existed", "UNSUBACK"
    CONTINUE_AUTHENTICATION = 0x18, "Continue authentication", "AUTH"
    RE_AUTHENTICATE = 0x19, "Re-authenticate", "AUTH"
    UNSPECIFIED_ERROR = 0x80, "Unspecified error", f"CONNACK {_MESSAGE} SUBACK UNSUBACK DISCONNECT"
    MALFORMED_PACKET = 0x81, "Malformed Packet", "CONNACK DISCONNECT"
    PROTOCOL_ERROR = 0x82, "Protocol Error", "CONNACK DISCONNECT"
    IMPLEMENTATION_SPECIFIC_ERROR = (
        0x83,
        "Implementation specific error",
        f"CONNACK {_MESSAGE} SUBACK UNSUBACK DISCONNECT",
    )
    UNSUPPORTED_PROTOCOL_VERSION = 0x84, "Unsupported Protocol Version", "CONNACK"
    CLIENT_IDENTIFIER_NOT_VALID = 0x85, "Client Identifier not valid", "CONNACK"
    BAD_USER_NAME_OR_PASSWORD = 0x86, "Bad User Name or Password", "CONNACK"
    NOT_AUTHORIZED = 0x87, "Not authorized", f"CONNACK {_MESSAGE} SUBACK UNSUBACK DISCONNECT"
    SERVER_UNAVAILABLE = 0x88, "Server unavailable", "CONNACK"
    SERVER_BUSY = 0x89, "Server busy", "CONNACK DISCONNECT"
    BANNED = 0x8A, "Banned", "CONNACK"
    SERVER_SHUTTING_DOWN = 0x8B, "Server shutting down", "DISCONNECT"
    BAD_AUTHENTICATION_METHOD = 0x8C, "Bad authentication method", "CONNACK DISCONNECT"
    KEEP_ALIVE_TIMEOUT = 0x8D, "Keep Alive timeout", "DISCONNECT"
    SESSION_TAKEN_OVER = 0x8E, "Session taken over", "DISCONNECT"
    TOPIC_FILTER_INVALID = 0x8F, "Topic Filter invalid", "SUBACK UNSUBACK DISCONNECT"
    TOPIC_NAME_INVALID = 0x90, "Topic Name invalid", f"CONNACK {_MESSAGE} DISCONNECT"
    PACKET_IDENTIFIER_IN_USE = 0x91, "Packet Identifier in use", f"{_MESSAGE} SUBACK UNSUBACK"
    PACKET_IDENTIFIER_NOT_FOUND = 0x92, "Packet Identifier not found", _RELEASE
    RECEIVE_MAXIMUM_EXCEEDED = 0x93, "Receive Maximum exceeded", "DISCONNECT"
    TOPIC_ALIAS_INVALID = 0x94, "Topic Alias invalid", "DISCONNECT"
    PACKET_TOO_LARGE = 0x95, "Packet too large", "CONNACK DISCONNECT"
    MESSAGE_RATE_TOO_HIGH = 0x96, "Message rate too high", "DISCONNECT"
    QUOTA_EXCEEDED = 0x97, "Quota exceeded", f"CONNACK {_MESSAGE} SUBACK DISCONNECT"
    ADMINISTRATIVE_ACTION = 0x98, "Administrative action", "DISCONNECT"
    PAYLOAD_FORMAT_INVALID = 0x99, "Payload format invalid", f"CONNACK {_MESSAGE} DISCONNECT"
    RETAIN_NOT_SUPPORTED = 0x9A, "Retain not supported", "CONNACK DISCONNECT"
    QOS_NOT_SUPPORTED = 0x9B, "QoS not supported", "CONNACK DISCONNECT"
    USE_ANOTHER_SERVER = 0x9C, "Use another server", "CONNACK DISCONNECT"
    SERVER_MOVED = 0x9D, "Server moved", "CONNACK DISCONNECT"
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E, "Shared Subscriptions not supported", "SUBACK DISCONNECT"
    CONNECTION_RATE_EXCEEDED = 0x9F, "Connection rate exceeded", "CONNACK DISCONNECT"
    MAXIMUM_CONNECT_TIME = 0xA0, "Maximum connect time", "DISCONNECT"
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = (0xA1, "Subscription Identifiers not supported", "SUBACK DISCONNECT")
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2, "Wildcard Subscriptions not supported", "SUBACK DISCONNECT"


FAILURE = ReasonCode.UNSPECIFIED_ERROR
"""The lowest reason code of a failure."""


_WORDS = {code.value: code.words for code in ReasonCode}

# The conformance statement about each packet's reason codes.
_STATEMENTS = {
    PacketType.CONNACK: "MQTT-3.2.2-8",
    PacketType.PUBACK: "MQTT-3.4.2-1",
    PacketType.PUBREC: "MQTT-3.5.2-1",
    PacketType.PUBREL: "MQTT-3.6.2-1",
    PacketType.PUBCOMP: "MQTT-3.7.2-1",
    PacketType.SUBACK: "MQTT-3.9.3-2",
    PacketType.UNSUBACK: "MQTT-3.11.3-2",
    PacketType.DISCONNECT: "MQTT-3.14.2-1",
    PacketType.AUTH: "MQTT-3.15.2-1",
}

OF_PACKET = {
    packet_type: frozenset(code for code in ReasonCode if packet_type.name in code.packets.split())
    for packet_type in _STATEMENTS
}
"""The reason codes that each packet may contain, from client or server."""

_DISCONNECT_FROM_CLIENT = """
    SUCCESS DISCONNECT_WITH_WILL_MESSAGE UNSPECIFIED_ERROR MALFORMED_PACKET PROTOCOL_ERROR IMPLEMENTATION_SPECIFIC_ERROR
    TOPIC_NAME_INVALID RECEIVE_MAXIMUM_EXCEEDED TOPIC_ALIAS_INVALID PACKET_TOO_LARGE MESSAGE_RATE_TOO_HIGH QUOTA_EXCEEDED
    ADMINISTRATIVE_ACTION PAYLOAD_FORMAT_INVALID
"""

FROM_CLIENT = OF_PACKET | {
    PacketType.DISCONNECT: frozenset(ReasonCode[name] for name in _DISCONNECT_FROM_CLIENT.split()),
    PacketType.AUTH: OF_PACKET[PacketType.AUTH] - {ReasonCode.SUCCESS},
}
"""The reason codes that a client may send (MQTT 5 tables 3-10 and 3-11)."""

FROM_SERVER = OF_PACKET | {
    PacketType.DISCONNECT: OF_PACKET[PacketType.DISCONNECT] - {ReasonCode.DISCONNECT_WITH_WILL_MESSAGE},
    PacketType.AUTH: OF_PACKET[PacketType.AUTH] - {ReasonCode.RE_AUTHENTICATE},
}
"""The reason codes that a server may send (MQTT 5 tables 3-10 and 3-11)."""


def reason_code_fault(
    packet_type: PacketType, code: int, allowed: dict[PacketType, frozenset[ReasonCode]] = OF_PACKET
) -> str | None:
    """Return the conformance statement that a packet with this reason code violates, or None."""
    if code in allowed[packet_type]:
        return None
    return f"{_STATEMENTS[packet_type]}: reason code is 0x{code:02x}"


def reason_name(code: int) -> str:
    """Return the name of a reason code, or its number if it is unknown, for display."""
    return _WORDS.get(code) or f"reason code 0x{code:02x}"


class MalformedPacket(ValueError):
    """A decoded packet, or a packet to encode, violates the protocol.

    Before MQTT 5, the receiver closes the connection without a response (MQTT 3.1.1 section 4.8), so the error is for the
    log. MQTT 5 has a reason code for DISCONNECT or CONNACK (section 4.13).

    Attributes:
        packet: name of the packet as in the tables of MQTT 3.1 section 2.1, for example ``"PUBLISH"``, or
            ``"fixed header"`` if the type is unknown.
        offset: offset of the invalid field in bytes from the start of the fixed header, or 0 when encoding.
        rule: the violated rule, after its source: a conformance statement of MQTT 3.1.1 or 5 (``"MQTT-3.3.1-4: ..."``), or
            a section (``"MQTT 3.1.1 section 2.2.3: ..."``).
        reason_code: the reason code for an MQTT 5 peer: MALFORMED_PACKET if the packet cannot be parsed, PROTOCOL_ERROR if
            it is not allowed (MQTT 5 section 1.2), or a more specific code.
    """

    def __init__(
        self, packet: str, offset: int, rule: str, reason_code: ReasonCode = ReasonCode.MALFORMED_PACKET
    ) -> None:
        super().__init__(packet, offset, rule)
        self.packet = packet
        self.offset = offset
        self.rule = rule
        self.reason_code = reason_code

    def __str__(self) -> str:
        return f"{self.packet} at byte {self.offset}: {self.rule}"


#: Sources in the rules of MalformedPacket and of protocol errors, and the same rules in MQTT 5.
_IN_MQTT_5: Final = {
    "MQTT 3.1.1 section 2.2.1, table 2.1": "MQTT 5 section 2.1.2, table 2-1",
    "MQTT 3.1.1 table 2.1": "MQTT 5 table 2-1",
    "MQTT 3.1 section 2.1: message type": "MQTT 5 section 2.1.2: packet type",
    "MQTT 3.1 section 2.1": "MQTT 5 section 2.1.4",
    "MQTT 3.1.1 section 2.2.3": "MQTT 5 section 2.1.4",
    "MQTT 3.1.1 section 1.5.3": "MQTT 5 section 1.5.4",
    "MQTT-1.5.3-": "MQTT-1.5.4-",
    "MQTT-2.3.1-1: message id": "MQTT-2.2.1-3: packet identifier",
    "MQTT 3.1.1 section 4.3": "MQTT 5 section 4.3",
}


def cite_mqtt_5(rule: str) -> str:
    """Return a violated rule with its source in MQTT 5."""
    for source, in_mqtt_5 in _IN_MQTT_5.items():
        rule = rule.replace(source, in_mqtt_5)
    return rule
