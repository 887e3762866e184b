"""MQTT packets and their properties as immutable values, the events of a connection, and the numbers of the protocol.

A packet contains the meaning, not the encoding: lengths, flag bits and byte order belong to the reader and the writer.
Sources: MQTT 3.1 sections 2.1 and 3.10, MQTT 3.1.1 chapter 3, and MQTT 5 chapter 3 for reason codes and properties.

Fields with the same name have the same meaning in all packets. `packet_id` is a number from 1 to 65,535. A response has the
number of the request. `reason_code` is a ReasonCode, always 0 before MQTT 5. `properties` is None if they are empty, and
always before MQTT 5. `dup` of PUBREL, SUBSCRIBE and UNSUBSCRIBE marks a possible duplicate in MQTT 3.1. The bit is reserved
in later versions.

The garbage collector does not track these values (`gc=False`), because they cannot refer to themselves, and a busy server
creates very many. Construction checks nothing. The writer checks each packet that it encodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Literal

import msgspec

UserProperty = tuple[tuple[str, str], ...]
"""Names and values in order. A name may be repeated (MQTT 5 section 2.2.2.2, 0x26)."""


class ConnectProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of a CONNECT (MQTT 5 section 3.1.2.11)."""

    session_expiry_interval: int | None = None
    """Seconds. With 0xFFFFFFFF, the session does not expire."""
    receive_maximum: int | None = None
    maximum_packet_size: int | None = None
    """Bytes, including the fixed header."""
    topic_alias_maximum: int | None = None
    request_response_information: int | None = None
    request_problem_information: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    user_property: UserProperty = ()


class WillProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of a will (MQTT 5 section 3.1.3.2)."""

    will_delay_interval: int | None = None
    """Seconds."""
    payload_format_indicator: int | None = None
    """1: the payload is UTF-8. 0: it is unspecified."""
    message_expiry_interval: int | None = None
    """Seconds."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_property: UserProperty = ()


class ConnackProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of a CONNACK (MQTT 5 section 3.2.2.3)."""

    session_expiry_interval: int | None = None
    receive_maximum: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    maximum_packet_size: int | None = None
    assigned_client_identifier: str | None = None
    topic_alias_maximum: int | None = None
    reason_string: str | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None
    server_keep_alive: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    user_property: UserProperty = ()


class PublishProperties(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Properties of a PUBLISH (MQTT 5 section 3.3.2.3)."""

    payload_format_indicator: int | None = None
    """1: the payload is UTF-8. 0: it is unspecified."""
    message_expiry_interval: int | None = None
    """Seconds."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifier: tuple[int, ...] = ()
    """One for each matching subscription that has one. Sent by the server only."""
    topic_alias: int | None = None
    user_property: UserProperty = ()


class AcknowledgementProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK (MQTT 5 section 3.4.2.2)."""

    reason_string: str | None = None
    """For people."""
    user_property: UserProperty = ()


class SubscribeProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of a SUBSCRIBE (MQTT 5 section 3.8.2.1)."""

    subscription_identifier: int | None = None
    user_property: UserProperty = ()


class UnsubscribeProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of an UNSUBSCRIBE (MQTT 5 section 3.10.2.1)."""

    user_property: UserProperty = ()


class DisconnectProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of a DISCONNECT (MQTT 5 section 3.14.2.2)."""

    session_expiry_interval: int | None = None
    reason_string: str | None = None
    server_reference: str | None = None
    user_property: UserProperty = ()


class AuthProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of an AUTH (MQTT 5 section 3.15.2.2)."""

    authentication_method: str | None = None
    authentication_data: bytes | None = None
    reason_string: str | None = None
    user_property: UserProperty = ()


Properties = (
    ConnectProperties
    | WillProperties
    | ConnackProperties
    | PublishProperties
    | AcknowledgementProperties
    | SubscribeProperties
    | UnsubscribeProperties
    | DisconnectProperties
    | AuthProperties
)


ByteOrder = Literal["big", "little"]
"""Byte order of two-byte integers (packet identifiers, keep-alive): big-endian (MQTT 3.1 section 2.1), or little-endian in
the older dialect. String lengths are big-endian in both."""

LEVEL_MQTT_3_1, LEVEL_MQTT_3_1_1, LEVEL_MQTT_5 = 3, 4, 5
"""Protocol levels in CONNECT (MQTT 3.1.1 section 3.1.2.2, MQTT 5 section 3.1.2.2)."""

BRIDGE_BIT = 0x80
"""Bit 7 of the protocol level of another broker's bridge (`Connect.bridge`)."""

MAX_REMAINING_LENGTH = 268_435_455
"""The maximum Remaining Length, which has four bytes (MQTT 3.1 section 2.1: 256 MB)."""

MAX_PACKET_SIZE = MAX_REMAINING_LENGTH + 5
"""The maximum size of a packet with its fixed header of at most five bytes (MQTT 5 section 2.1.4)."""

SUBACK_FAILURE = 0x80
"""Return code of a rejected topic filter in a SUBACK (MQTT 3.1.1 section 3.9.3)."""


class PacketType(IntEnum):
    """Message Type, bits 7-4 of a packet's first byte (MQTT 3.1 section 2.1). 0 is reserved, 15 too before MQTT 5."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class ConnackCode(IntEnum):
    """Return codes of CONNACK (MQTT 3.1.1 table 3.1)."""

    ACCEPTED = 0
    UNACCEPTABLE_PROTOCOL_VERSION = 1
    IDENTIFIER_REJECTED = 2
    SERVER_UNAVAILABLE = 3
    BAD_USER_NAME_OR_PASSWORD = 4
    NOT_AUTHORIZED = 5


class Will(msgspec.Struct, frozen=True, gc=False):
    """The message that the server publishes when a client is lost without DISCONNECT (MQTT 3.1.1 section 3.1.2.5)."""

    topic: str
    """Topic name to publish to."""
    payload: bytes
    """At most 65,535 bytes. May be empty."""
    qos: int = 0
    retain: bool = False
    properties: WillProperties | None = None


class Connect(msgspec.Struct, frozen=True, gc=False):
    """A connection request from a client (MQTT 3.1.1 section 3.1)."""

    client_id: str
    """May be empty. The server decides whether to accept that."""
    protocol_name: str = "MQTT"
    """``"MQIsdp"`` in MQTT 3.1, ``"MQTT"`` in 3.1.1 and 5. The server must reject any other."""
    protocol_level: int = 4
    """3 in MQTT 3.1, 4 in 3.1.1, 5 in MQTT 5. The server must reject any other with CONNACK 1."""
    clean_session: bool = True
    """Discard the previous session, and do not keep this one after the connection ends. In MQTT 5 (Clean Start), the Session
    Expiry Interval determines how long to keep it."""
    keep_alive: int = 0
    """The maximum interval between packets from the client in seconds, 0 to 65,535. 0 means no limit."""
    will: Will | None = None
    user_name: str | None = None
    """None if absent, which differs from empty."""
    password: bytes | None = None
    """None if absent. Requires a user name before MQTT 5."""
    properties: ConnectProperties | None = None
    bridge: bool = False
    """The client is another broker's bridge: bit 7 of the protocol level is set. Brokers such as mosquitto do so for 3.1 and
    3.1.1, although the specifications do not mention the bit."""


class Connack(msgspec.Struct, frozen=True, gc=False):
    """The server's response to CONNECT (MQTT 3.1.1 section 3.2)."""

    return_code: int = 0
    """A ConnackCode, or a ReasonCode in MQTT 5. A client treats an unknown number as a rejection."""
    session_present: bool = False
    """Whether the server has resumed a session. Always False in MQTT 3.1, which does not have this bit."""
    properties: ConnackProperties | None = None


class Publish(msgspec.Struct, frozen=True, gc=False):
    """A publication to or from the server (MQTT 3.1.1 section 3.3)."""

    topic: str
    """Topic name, without wildcards."""
    payload: bytes
    """May be empty."""
    qos: int = 0
    """0 to 2 (MQTT 3.1 section 2.1)."""
    retain: bool = False
    """To the server: retain the message for later subscribers. From the server: this is a retained message."""
    dup: bool = False
    """Whether it may be a redelivery. Always False for QoS 0."""
    packet_id: int = 0
    """1 to 65,535, or 0 for QoS 0."""
    properties: PublishProperties | None = None


class _Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason_code: int = 0
    properties: AcknowledgementProperties | None = None


class Puback(_Acknowledgement, frozen=True, gc=False):
    """Acknowledgement of a QoS 1 message (MQTT 3.1.1 section 3.4)."""


class Pubrec(_Acknowledgement, frozen=True, gc=False):
    """Receipt of a QoS 2 message, assured delivery part 1 (MQTT 3.1.1 section 3.5)."""


class Pubrel(msgspec.Struct, frozen=True, gc=False):
    """Release of a QoS 2 message, assured delivery part 2 (MQTT 3.1.1 section 3.6)."""

    packet_id: int
    dup: bool = False
    reason_code: int = 0
    properties: AcknowledgementProperties | None = None


class Pubcomp(_Acknowledgement, frozen=True, gc=False):
    """Completion of a QoS 2 message, assured delivery part 3 (MQTT 3.1.1 section 3.7)."""


class SubscriptionOptions(msgspec.Struct, frozen=True, gc=False):
    """The options of one topic filter, except QoS (MQTT 5 section 3.8.3.1)."""

    no_local: bool = False
    """Do not deliver the client's own publications to it."""
    retain_as_published: bool = False
    """Keep the RETAIN flag as published."""
    retain_handling: int = 0
    """Send retained messages 0: for each SUBSCRIBE, 1: for new subscriptions only, 2: never."""


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    """A request for subscriptions (MQTT 3.1.1 section 3.8)."""

    packet_id: int
    """1 to 65,535."""
    topics: tuple[tuple[str, int], ...]
    """Topic filters with the requested QoS (0 to 2), at least one."""
    dup: bool = False
    options: tuple[SubscriptionOptions, ...] = ()
    """For each filter, in order. Empty before MQTT 5."""
    properties: SubscribeProperties | None = None


class Suback(msgspec.Struct, frozen=True, gc=False):
    """The server's response to SUBSCRIBE (MQTT 3.1.1 section 3.9)."""

    packet_id: int
    return_codes: tuple[int, ...]
    """For each filter, in order: the granted QoS, or SUBACK_FAILURE. In MQTT 5, a ReasonCode."""
    properties: AcknowledgementProperties | None = None


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    """A request to remove subscriptions (MQTT 3.1 section 3.10)."""

    packet_id: int
    """1 to 65,535."""
    topics: tuple[str, ...]
    """Topic filters, at least one."""
    dup: bool = False
    properties: UnsubscribeProperties | None = None


class Unsuback(msgspec.Struct, frozen=True, gc=False):
    """The server's response to UNSUBSCRIBE (MQTT 3.1 section 3.11)."""

    packet_id: int
    reason_codes: tuple[int, ...] = ()
    """A ReasonCode for each filter, in order. Empty before MQTT 5."""
    properties: AcknowledgementProperties | None = None


class OtherPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet that was not decoded. See ``Decoder``."""

    data: bytes
    """The complete packet, including the fixed header."""


class Pingreq(msgspec.Struct, frozen=True, gc=False):
    """A keep-alive request from a client (MQTT 3.1.1 section 3.12)."""


class Pingresp(msgspec.Struct, frozen=True, gc=False):
    """The server's response to PINGREQ (MQTT 3.1.1 section 3.13)."""


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    """An orderly end of the connection by the client (MQTT 3.1.1 section 3.14) or, in MQTT 5, by the server."""

    reason_code: int = 0
    properties: DisconnectProperties | None = None


class Auth(msgspec.Struct, frozen=True, gc=False):
    """A step of enhanced authentication, from either side (MQTT 5 section 3.15)."""

    reason_code: int = 0
    """SUCCESS, CONTINUE_AUTHENTICATION or RE_AUTHENTICATE."""
    properties: AuthProperties | None = None


Packet = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
    | OtherPacket
)


MessagePacket = Publish | Puback | Pubrec | Pubrel | Pubcomp | Pingreq


class Messages(msgspec.Struct, frozen=True, gc=False):
    """PUBLISH, acknowledgement and PINGREQ packets, in the order received."""

    packets: Sequence[MessagePacket]


class Disconnected(msgspec.Struct, frozen=True, gc=False):
    """The client sent DISCONNECT or violated the protocol. This is the last event. The owner calls `disconnect`."""

    #: the violated rule, or "" after DISCONNECT
    why: str
    #: reason code for the DISCONNECT to an MQTT 5 client
    reason_code: int = 0
    #: the client's DISCONNECT, if it sent one
    packet: Disconnect | None = None


Event = Messages | Connect | Auth | Subscribe | Unsubscribe | Disconnected
