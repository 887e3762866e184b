"""Reason codes of MQTT 5 (section 2.4)."""

from __future__ import annotations

from enum import IntEnum

from .packets import PacketType


class ReasonCode(IntEnum):
    """Why, or how, something was done (MQTT 5 table 2-6).

    0 is also Normal disconnection and Granted QoS 0.

    Attributes:
        words: the name in the table.
    """

    words: str

    def __new__(cls, code: int, words: str) -> ReasonCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.words = words
        return member

    SUCCESS = 0x00, "Success"
    GRANTED_QOS_1 = 0x01, "Granted QoS 1"
    GRANTED_QOS_2 = 0x02, "Granted QoS 2"
    DISCONNECT_WITH_WILL_MESSAGE = 0x04, "Disconnect with Will Message"
    NO_MATCHING_SUBSCRIBERS = 0x10, "No matching subscribers"
    NO_SUBSCRIPTION_EXISTED = 0x11, "No subscription existed"
    CONTINUE_AUTHENTICATION = 0x18, "Continue authentication"
    RE_AUTHENTICATE = 0x19, "Re-authenticate"
    UNSPECIFIED_ERROR = 0x80, "Unspecified error"
    MALFORMED_PACKET = 0x81, "Malformed Packet"
    PROTOCOL_ERROR = 0x82, "Protocol Error"
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83, "Implementation specific error"
    UNSUPPORTED_PROTOCOL_VERSION = 0x84, "Unsupported Protocol Version"
    CLIENT_IDENTIFIER_NOT_VALID = 0x85, "Client Identifier not valid"
    BAD_USER_NAME_OR_PASSWORD = 0x86, "Bad User Name or Password"
    NOT_AUTHORIZED = 0x87, "Not authorized"
    SERVER_UNAVAILABLE = 0x88, "Server unavailable"
    SERVER_BUSY = 0x89, "Server busy"
    BANNED = 0x8A, "Banned"
    SERVER_SHUTTING_DOWN = 0x8B, "Server shutting down"
    BAD_AUTHENTICATION_METHOD = 0x8C, "Bad authentication method"
    KEEP_ALIVE_TIMEOUT = 0x8D, "Keep Alive timeout"
    SESSION_TAKEN_OVER = 0x8E, "Session taken over"
    TOPIC_FILTER_INVALID = 0x8F, "Topic Filter invalid"
    TOPIC_NAME_INVALID = 0x90, "Topic Name invalid"
    PACKET_IDENTIFIER_IN_USE = 0x91, "Packet Identifier in use"
    PACKET_IDENTIFIER_NOT_FOUND = 0x92, "Packet Identifier not found"
    RECEIVE_MAXIMUM_EXCEEDED = 0x93, "Receive Maximum exceeded"
    TOPIC_ALIAS_INVALID = 0x94, "Topic Alias invalid"
    PACKET_TOO_LARGE = 0x95, "Packet too large"
    MESSAGE_RATE_TOO_HIGH = 0x96, "Message rate too high"
    QUOTA_EXCEEDED = 0x97, "Quota exceeded"
    ADMINISTRATIVE_ACTION = 0x98, "Administrative action"
    PAYLOAD_FORMAT_INVALID = 0x99, "Payload format invalid"
    RETAIN_NOT_SUPPORTED = 0x9A, "Retain not supported"
    QOS_NOT_SUPPORTED = 0x9B, "QoS not supported"
    USE_ANOTHER_SERVER = 0x9C, "Use another server"
    SERVER_MOVED = 0x9D, "Server moved"
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E, "Shared Subscriptions not supported"
    CONNECTION_RATE_EXCEEDED = 0x9F, "Connection rate exceeded"
    MAXIMUM_CONNECT_TIME = 0xA0, "Maximum connect time"
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1, "Subscription Identifiers not supported"
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2, "Wildcard Subscriptions not supported"


FAILURE = ReasonCode.UNSPECIFIED_ERROR
"""The least reason code of a failure."""


_WORDS = {code.value: code.words for code in ReasonCode}

_OF_PUBLISH = frozenset(
    (
        ReasonCode.SUCCESS,
        ReasonCode.NO_MATCHING_SUBSCRIBERS,
        ReasonCode.UNSPECIFIED_ERROR,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_IDENTIFIER_IN_USE,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
    )
)
_OF_RELEASE = frozenset((ReasonCode.SUCCESS, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))

OF_ACKNOWLEDGEMENT = {
    PacketType.PUBACK: _OF_PUBLISH,
    PacketType.PUBREC: _OF_PUBLISH,
    PacketType.PUBREL: _OF_RELEASE,
    PacketType.PUBCOMP: _OF_RELEASE,
}
"""The reason codes that each acknowledgement may be sent with (MQTT 5 sections 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1)."""


def reason_name(code: int) -> str:
    """Return the name of a reason code, for a person; that of an unknown one is its number.

    >>> reason_name(0x9B)
    'QoS not supported'
    >>> reason_name(0xFF)
    'reason code 0xff'
    """
    return _WORDS.get(code) or f"reason code 0x{code:02x}"
