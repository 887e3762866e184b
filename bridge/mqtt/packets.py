"""MQTT packets and their properties as immutable values, and the numbers of the protocol.

A packet contains the meaning, not the encoding: lengths, flag bits and byte order belong to the reader and the writer.
Sources: MQTT 3.1 sections 2.1 and 3.10, MQTT 3.1.1 chapter 3, and MQTT 5 chapter 3 for reason codes and properties.

The garbage collector does not track these values (`gc=False`): they cannot refer to themselves, and a busy server
creates very many. Nothing is checked on construction; the writer checks what it writes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

UserProperty = tuple[tuple[str, str], ...]
"""Names with their values, in their order; a name may come more than once (MQTT 5 section 2.2.2.2, 0x26)."""


class ConnectProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of a CONNECT (MQTT 5 section 3.1.2.11)."""

    session_expiry_interval: int | None = None
    """Seconds; 0xFFFFFFFF: the session does not expire."""
    receive_maximum: int | None = None
    maximum_packet_size: int | None = None
    """Bytes of a whole packet, its fixed header included."""
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
    """1: the payload is UTF-8; 0: it may be anything."""
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
    """1: the payload is UTF-8; 0: it may be anything."""
    message_expiry_interval: int | None = None
    """Seconds."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifier: tuple[int, ...] = ()
    """One for each subscription that the publication matches; from the server only."""
    topic_alias: int | None = None
    user_property: UserProperty = ()


class AcknowledgementProperties(msgspec.Struct, frozen=True, gc=False):
    """Properties of PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK (MQTT 5 section 3.4.2.2)."""

    reason_string: str | None = None
    """For a person."""
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
"""Properties of any place."""


ByteOrder = Literal["big", "little"]
"""Order of the bytes in words (message ids, keep-alive) on a connection: big-endian (MQTT 3.1 section 2.1), little-endian in
the older dialect. The lengths before strings are big-endian in both."""

LEVEL_MQTT_3_1, LEVEL_MQTT_3_1_1, LEVEL_MQTT_5 = 3, 4, 5
"""Protocol levels, by which CONNECT tells the version (MQTT 3.1.1 section 3.1.2.2, MQTT 5 section 3.1.2.2)."""

MAX_REMAINING_LENGTH = 268_435_455
"""Largest value that four bytes can carry, in bytes (MQTT 3.1 section 2.1: 256 MB)."""

SUBACK_FAILURE = 0x80
"""Return code of a refused topic filter in a SUBACK (MQTT 3.1.1 section 3.9.3)."""


class PacketType(IntEnum):
    """Message Type, bits 7-4 of a packet's first byte (MQTT 3.1 section 2.1); 0 is reserved, 15 is before MQTT 5."""

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
    """The message a server publishes for a client which went without DISCONNECT (MQTT 3.1.1 section 3.1.2.5)."""

    topic: str
    """Topic name to publish to."""
    payload: bytes
    """Content, at most 65 535 bytes, possibly none."""
    qos: int = 0
    """Quality of service of the publication, 0 to 2."""
    retain: bool = False
    """Whether the publication is to be retained."""
    properties: WillProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Client asks for a connection (MQTT 3.1.1 section 3.1)."""

    client_id: str
    """Client identifier; may be empty, which it is for the server to accept or refuse."""
    protocol_name: str = "MQTT"
    """``"MQIsdp"`` in MQTT 3.1, ``"MQTT"`` in 3.1.1; any other is for the server to refuse."""
    protocol_level: int = 4
    """3 in MQTT 3.1, 4 in 3.1.1, 5 in MQTT 5; any other is for the server to refuse with CONNACK 1."""
    clean_session: bool = True
    """Whether session state from before is to be discarded and none kept afterwards; in MQTT 5 (Clean Start) the Session
    Expiry Interval says what is kept."""
    keep_alive: int = 0
    """Longest silence of the client in seconds, 0 to 65 535; 0 means no limit."""
    will: Will | None = None
    """The client's will, if it leaves one."""
    user_name: str | None = None
    """User name; None if absent, which differs from an empty one."""
    password: bytes | None = None
    """Password; None if absent. Needs a user name before MQTT 5."""
    properties: ConnectProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Connack(msgspec.Struct, frozen=True, gc=False):
    """Server answers CONNECT (MQTT 3.1.1 section 3.2)."""

    return_code: int = 0
    """A ConnackCode, in MQTT 5 a ReasonCode; a client treats a number unknown to it as a refusal."""
    session_present: bool = False
    """Whether the server kept a session for the client; always False in MQTT 3.1, which has no such bit."""
    properties: ConnackProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Publish(msgspec.Struct, frozen=True, gc=False):
    """A message to or from the server (MQTT 3.1.1 section 3.3)."""

    topic: str
    """Topic name: not empty, without wildcards."""
    payload: bytes
    """Content, possibly none."""
    qos: int = 0
    """Quality of service, 0 to 2 (MQTT 3.1 section 2.1)."""
    retain: bool = False
    """To the server: keep the message for later subscribers. From the server: this is such a kept message."""
    dup: bool = False
    """Whether it may repeat an earlier delivery; False when the quality of service is 0."""
    message_id: int = 0
    """1 to 65 535; 0 when the quality of service is 0, which has none."""
    properties: PublishProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Puback(msgspec.Struct, frozen=True, gc=False):
    """Receiver has the message of quality of service 1 (MQTT 3.1.1 section 3.4)."""

    message_id: int
    """That of the PUBLISH."""
    reason_code: int = 0
    """A ReasonCode; always 0 before MQTT 5."""
    properties: AcknowledgementProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Pubrec(msgspec.Struct, frozen=True, gc=False):
    """Receiver has the message of quality of service 2, assured delivery part 1 (MQTT 3.1.1 section 3.5)."""

    message_id: int
    """That of the PUBLISH."""
    reason_code: int = 0
    """A ReasonCode; always 0 before MQTT 5."""
    properties: AcknowledgementProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Pubrel(msgspec.Struct, frozen=True, gc=False):
    """Sender releases the message, assured delivery part 2 (MQTT 3.1.1 section 3.6)."""

    message_id: int
    """That of the PUBLISH."""
    dup: bool = False
    """Whether it may repeat an earlier one; MQTT 3.1 only, 3.1.1 reserves the bit."""
    reason_code: int = 0
    """A ReasonCode; always 0 before MQTT 5."""
    properties: AcknowledgementProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Pubcomp(msgspec.Struct, frozen=True, gc=False):
    """Receiver is done with the message, assured delivery part 3 (MQTT 3.1.1 section 3.7)."""

    message_id: int
    """That of the PUBLISH."""
    reason_code: int = 0
    """A ReasonCode; always 0 before MQTT 5."""
    properties: AcknowledgementProperties | None = None
    """None where there are none, as always before MQTT 5."""


class SubscriptionOptions(msgspec.Struct, frozen=True, gc=False):
    """What a client asks for with one topic filter beside its quality of service (MQTT 5 section 3.8.3.1)."""

    no_local: bool = False
    """Whether publications of the client itself are not to come back to it."""
    retain_as_published: bool = False
    """Whether RETAIN is to be as it was published."""
    retain_handling: int = 0
    """Retained messages are sent 0: at each SUBSCRIBE, 1: for a subscription that did not exist, 2: not at all."""


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    """Client asks for messages (MQTT 3.1.1 section 3.8)."""

    message_id: int
    """1 to 65 535."""
    topics: tuple[tuple[str, int], ...]
    """Topic filters, each with the quality of service asked for (0 to 2); at least one."""
    dup: bool = False
    """Whether it may repeat an earlier one; MQTT 3.1 only, 3.1.1 reserves the bit."""
    options: tuple[SubscriptionOptions, ...] = ()
    """For each filter, in order; none before MQTT 5."""
    properties: SubscribeProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Suback(msgspec.Struct, frozen=True, gc=False):
    """Server answers SUBSCRIBE (MQTT 3.1.1 section 3.9)."""

    message_id: int
    """That of the SUBSCRIBE."""
    return_codes: tuple[int, ...]
    """For each filter, in order: the quality of service granted, or SUBACK_FAILURE; in MQTT 5 a ReasonCode."""
    properties: AcknowledgementProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    """Client ends subscriptions (MQTT 3.1 section 3.10)."""

    message_id: int
    """1 to 65 535."""
    topics: tuple[str, ...]
    """Topic filters, at least one."""
    dup: bool = False
    """Whether it may repeat an earlier one; MQTT 3.1 only, 3.1.1 reserves the bit."""
    properties: UnsubscribeProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Unsuback(msgspec.Struct, frozen=True, gc=False):
    """Server answers UNSUBSCRIBE (MQTT 3.1 section 3.11)."""

    message_id: int
    """That of the UNSUBSCRIBE."""
    reason_codes: tuple[int, ...] = ()
    """For each filter, in order, a ReasonCode; none before MQTT 5."""
    properties: AcknowledgementProperties | None = None
    """None where there are none, as always before MQTT 5."""


class OtherPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet that is left to somebody else, as it came; see ``Decoder``."""

    data: bytes
    """The whole packet, fixed header included."""


class Pingreq(msgspec.Struct, frozen=True, gc=False):
    """Client shows that it is alive (MQTT 3.1.1 section 3.12)."""


class Pingresp(msgspec.Struct, frozen=True, gc=False):
    """Server answers PINGREQ (MQTT 3.1.1 section 3.13)."""


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    """Client ends the connection in good order (MQTT 3.1.1 section 3.14); in MQTT 5 the server may, and says why."""

    reason_code: int = 0
    """A ReasonCode; always 0 before MQTT 5."""
    properties: DisconnectProperties | None = None
    """None where there are none, as always before MQTT 5."""


class Auth(msgspec.Struct, frozen=True, gc=False):
    """A step of enhanced authentication, from either side (MQTT 5 section 3.15); MQTT 5 only."""

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
"""Any MQTT packet."""
