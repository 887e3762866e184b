"""Properties of the packets of MQTT 5 as immutable values, one struct for each place, its fields named as the properties are.

What is absent is None or (). ``user_property`` is the last field of each. Source: MQTT 5 chapter 3.
"""

from __future__ import annotations

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
