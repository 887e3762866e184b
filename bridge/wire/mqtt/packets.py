"""The MQTT packets as immutable values, with the numbers the protocol gives them.

A packet holds what its sender means, not how it is written: lengths, flag bits and the byte order belong to the
decoder and the encoder. Sources: MQTT 3.1 sections 2.1 (message types, flags, levels of service), 3.10 (UNSUBSCRIBE),
MQTT 3.1.1 chapter 3, and for reason codes and properties MQTT 5 chapter 3.

The values are not tracked by the garbage collector (``gc=False``): they can hold no reference to themselves, and a
busy server makes very many of them. Nothing is checked on construction; the encoder checks what it writes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

from .packet_properties import (
    AcknowledgementProperties,
    AuthProperties,
    ConnackProperties,
    ConnectProperties,
    DisconnectProperties,
    PublishProperties,
    SubscribeProperties,
    UnsubscribeProperties,
    WillProperties,
)

ByteOrder = Literal["big", "little"]
"""Order of the bytes in words (message ids, keep-alive) on a connection: big-endian (MQTT 3.1 section 2.1), little-endian in
the older dialect. The lengths before strings are big-endian in both."""

LEVEL_MQTT_3_1, LEVEL_MQTT_3_1_1, LEVEL_MQTT_5 = 3, 4, 5
"""Protocol levels, by which CONNECT tells the version (MQTT 3.1.1 section 3.1.2.2, MQTT 5 section 3.1.2.2)."""

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
