"""MQTT 5, publications, on a raw socket; each test names the statements that it holds the bridge to."""

from __future__ import annotations

import pytest

from bridge.wire.mqtt import (
    ConnectProperties,
    Publish,
    PublishProperties,
    ReasonCode,
)
from tests.acceptance.mqtt_5_client import EVERYTHING, client_of, ended, subscribe
from tests.support.bridge_process import BridgeProcess
from tests.support.raw_client import RawClient


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "properties",
    [None, EVERYTHING, PublishProperties(payload_format_indicator=0), PublishProperties(correlation_data=b"\0" * 24),
     PublishProperties(user_property=(("b", "1"), ("a", "2")))],
    ids=["none", "everything", "unspecified bytes", "NULs", "order"],
)  # fmt: skip
def test_properties_come_as_they_were_published(
    bridge: BridgeProcess, unique: str, qos: int, properties: PublishProperties | None
) -> None:
    """MQTT-3.3.2-4, -15, -16, -17, -18, -20; a client of 3.1.1 gets the payload alone."""
    with client_of(bridge, unique) as client, RawClient.connected(bridge.port, f"{unique}-4") as old:
        subscribe(client, unique)
        old.subscribe((unique, 2))
        message_id = client.next_message_id() if qos else 0
        client.send(Publish(unique, b"21.5", qos, False, False, message_id, properties))
        got = client.wait_for(Publish)
        assert (got.topic, got.payload, got.qos, got.properties) == (unique, b"21.5", qos, properties)
        assert old.take().payload == b"21.5"


def test_what_is_left_of_the_expiry_goes_with_the_message(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-5, -6."""
    with client_of(bridge, unique) as client:
        subscribe(client, unique)
        client.send(Publish(unique, b"", 1, False, False, 1, PublishProperties(message_expiry_interval=600)))
        got = client.wait_for(Publish)
        assert got.properties is not None and got.properties.message_expiry_interval is not None
        assert 500 < got.properties.message_expiry_interval <= 600


def test_a_topic_alias_stands_for_its_topic(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-7 to -12; an alias can be given to another topic."""
    with client_of(bridge, unique) as client:
        subscribe(client, f"{unique}/#")
        alias = PublishProperties(topic_alias=1)
        for topic, full in (("a", f"{unique}/a"), ("a", ""), ("b", f"{unique}/b"), ("b", "")):
            client.send(Publish(full, topic.encode(), properties=alias))
            got = client.expect(Publish)
            assert (got.topic, got.payload, got.properties) == (f"{unique}/{topic}", topic.encode(), None)


@pytest.mark.parametrize(
    ("alias", "code"),
    [(2, ReasonCode.PROTOCOL_ERROR), (65_535, ReasonCode.TOPIC_ALIAS_INVALID)],
    ids=["unknown", "too large"],
)
def test_a_topic_alias_that_is_wrong(bridge: BridgeProcess, unique: str, alias: int, code: ReasonCode) -> None:
    with client_of(bridge, unique) as client:
        client.send(Publish("", b"", properties=PublishProperties(topic_alias=alias)))
        assert ended(client).reason_code == code


def test_the_server_uses_topic_aliases_where_the_client_takes_them(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-9, -10: never more than the client takes; the topics sent last have them."""
    with client_of(bridge, unique, properties=ConnectProperties(topic_alias_maximum=2)) as client:
        subscribe(client, f"{unique}/#")
        seen = []
        for name in "aabbaca":
            client.publish(f"{unique}/{name}", b"x")
            got = client.expect(Publish)
            assert got.properties is not None
            seen.append((got.topic, got.properties.topic_alias))
        a, b, c = (f"{unique}/{name}" for name in "abc")
        assert seen == [(a, 1), ("", 1), (b, 2), ("", 2), ("", 1), (c, 2), ("", 1)]
