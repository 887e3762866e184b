"""Limits for properties and filters of a packet: the size of a packet does not show the cost of reading it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.packets import (
    AcknowledgementProperties,
    Auth,
    AuthProperties,
    Connack,
    ConnackProperties,
    Connect,
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeProperties,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    UnsubscribeProperties,
    Will,
    WillProperties,
)
from bridge.mqtt.properties import MAX_USER_PROPERTIES
from bridge.mqtt.reader import MAX_FILTERS, Decoder
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode

UserProperties = tuple[tuple[str, str], ...]


def many(properties: Any, count: int, **others: Any) -> Any:
    return properties(user_property=(("", ""),) * count, **others)


TO_SERVER: dict[str, Any] = {
    "CONNECT": lambda count: Connect("c", "MQTT", 5, properties=many(ConnectProperties, count)),
    "will": lambda count: Connect("c", "MQTT", 5, will=Will("t", b"", properties=many(WillProperties, count))),
    "PUBLISH": lambda count: Publish("t", b"", properties=many(PublishProperties, count)),
    "PUBACK": lambda count: Puback(1, properties=many(AcknowledgementProperties, count)),
    "PUBREC": lambda count: Pubrec(1, properties=many(AcknowledgementProperties, count)),
    "PUBREL": lambda count: Pubrel(1, properties=many(AcknowledgementProperties, count)),
    "PUBCOMP": lambda count: Pubcomp(1, properties=many(AcknowledgementProperties, count)),
    "SUBSCRIBE": lambda count: Subscribe(
        1, (("f", 0),), options=(SubscriptionOptions(),), properties=many(SubscribeProperties, count)
    ),
    "UNSUBSCRIBE": lambda count: Unsubscribe(1, ("f",), properties=many(UnsubscribeProperties, count)),
    "DISCONNECT": lambda count: Disconnect(properties=many(DisconnectProperties, count)),
    "AUTH": lambda count: Auth(0x18, many(AuthProperties, count, authentication_method="m")),
}
TO_CLIENT: dict[str, Any] = {
    "CONNACK": lambda count: Connack(properties=many(ConnackProperties, count)),
    "SUBACK": lambda count: Suback(1, (0,), properties=many(AcknowledgementProperties, count)),
    "UNSUBACK": lambda count: Unsuback(1, (0,), properties=many(AcknowledgementProperties, count)),
} | {name: TO_SERVER[name] for name in ("PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "DISCONNECT", "AUTH")}


def fed(packet: Packet, *, server: bool, level: int = 5) -> Decoder:
    """Return the decoder after it was given a packet twice: the second time, its topic is known."""
    decoder = Decoder(server=server, protocol_level=level)
    data = encode(packet, protocol_level=level)
    assert decoder.feed(data) == ([] if decoder.error else [packet])
    assert decoder.feed(data) == ([] if decoder.error else [packet])
    return decoder


def test_user_properties_of_a_client_are_limited(subtests: pytest.Subtests) -> None:
    for packet_name in TO_SERVER:
        with subtests.test(packet_name=packet_name):
            assert fed(TO_SERVER[packet_name](MAX_USER_PROPERTIES), server=True).error is None
            error = fed(TO_SERVER[packet_name](MAX_USER_PROPERTIES + 1), server=True).error
            assert error is not None
            assert error.reason_code == ReasonCode.QUOTA_EXCEEDED
            assert str(error).endswith("more than 1000 User Properties in a packet")


def test_user_properties_of_a_known_topic() -> None:
    decoder = fed(Publish("t", b""), server=True)
    assert not decoder.feed(encode(TO_SERVER["PUBLISH"](MAX_USER_PROPERTIES + 1), protocol_level=5))
    assert decoder.error is not None
    assert decoder.error.reason_code == ReasonCode.QUOTA_EXCEEDED


def test_user_properties_of_a_server(subtests: pytest.Subtests) -> None:
    """A link does not end because of a message that its broker has."""
    for packet_name in TO_CLIENT:
        with subtests.test(packet_name=packet_name):
            assert fed(TO_CLIENT[packet_name](50 * MAX_USER_PROPERTIES), server=False).error is None


@given(st.integers(1, 50_000))
def test_subscription_identifiers_of_a_server(count: int) -> None:
    packet = Publish("t", b"", properties=PublishProperties(subscription_identifier=tuple(range(1, count + 1))))
    assert fed(packet, server=False).error is None


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize(
    "packet",
    [
        lambda count, level: Subscribe(
            1, (("f", 0),) * count, options=(SubscriptionOptions(),) * count if level == 5 else ()
        ),
        lambda count, level: Unsubscribe(1, ("f",) * count),
    ],
    ids=["SUBSCRIBE", "UNSUBSCRIBE"],
)
def test_topic_filters_of_a_client_are_limited(packet: Any, level: int) -> None:
    assert fed(packet(MAX_FILTERS, level), server=True, level=level).error is None
    error = fed(packet(MAX_FILTERS + 1, level), server=True, level=level).error
    assert error is not None
    assert error.reason_code == ReasonCode.QUOTA_EXCEEDED
