"""MQTT 5: publications, on a raw socket. Each test names the statements that it checks."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import ConnectProperties, Puback, Pubcomp, Publish, PublishProperties, Pubrec, Pubrel
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_5_client import EVERYTHING, client_of, ended, subscribe
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "properties",
    [None, EVERYTHING, PublishProperties(payload_format_indicator=0), PublishProperties(correlation_data=b"\0" * 24),
     PublishProperties(user_property=(("b", "1"), ("a", "2")))],
    ids=["none", "everything", "unspecified bytes", "NULs", "order"],
)  # fmt: skip
def test_properties_arrive_as_published(
    bridge: BridgeProcess, unique: str, qos: int, properties: PublishProperties | None
) -> None:
    """MQTT-3.3.2-4, -15, -16, -17, -18, -20. A client of 3.1.1 gets only the payload."""
    with client_of(bridge, unique) as client, RawClient.connected(bridge.port, f"{unique}-4") as old:
        subscribe(client, unique)
        old.subscribe((unique, 2))
        packet_id = client.next_packet_id() if qos else 0
        client.send(Publish(unique, b"21.5", qos, False, False, packet_id, properties))
        publication = client.wait_for(Publish)
        assert (publication.topic, publication.payload, publication.qos, publication.properties) == (
            unique,
            b"21.5",
            qos,
            properties,
        )
        assert old.take().payload == b"21.5"


def test_messages_contain_the_remaining_expiry(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-5, -6."""
    with client_of(bridge, unique) as client:
        subscribe(client, unique)
        client.send(Publish(unique, b"", 1, False, False, 1, PublishProperties(message_expiry_interval=600)))
        publication = client.wait_for(Publish)
        assert publication.properties is not None and publication.properties.message_expiry_interval is not None
        assert 500 < publication.properties.message_expiry_interval <= 600


def test_a_topic_alias_replaces_its_topic(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-7 to -12. An alias can be assigned to another topic."""
    with client_of(bridge, unique) as client:
        subscribe(client, f"{unique}/#")
        alias = PublishProperties(topic_alias=1)
        for topic, full in (("a", f"{unique}/a"), ("a", ""), ("b", f"{unique}/b"), ("b", "")):
            client.send(Publish(full, topic.encode(), properties=alias))
            publication = client.expect(Publish)
            assert (publication.topic, publication.payload, publication.properties) == (
                f"{unique}/{topic}",
                topic.encode(),
                None,
            )


@pytest.mark.parametrize(
    ("alias", "code"),
    [(2, ReasonCode.PROTOCOL_ERROR), (65_535, ReasonCode.TOPIC_ALIAS_INVALID)],
    ids=["unknown", "too large"],
)
def test_an_invalid_topic_alias(bridge: BridgeProcess, unique: str, alias: int, code: ReasonCode) -> None:
    with client_of(bridge, unique) as client:
        client.send(Publish("", b"", properties=PublishProperties(topic_alias=alias)))
        assert ended(client).reason_code == code


def test_the_server_uses_topic_aliases_if_the_client_accepts_them(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-9, -10: never more than the client accepts, for the most recent topics."""
    with client_of(bridge, unique, properties=ConnectProperties(topic_alias_maximum=2)) as client:
        subscribe(client, f"{unique}/#")
        topics_and_aliases = []
        for name in "aabbaca":
            client.publish(f"{unique}/{name}", b"x")
            publication = client.expect(Publish)
            assert publication.properties is not None
            topics_and_aliases.append((publication.topic, publication.properties.topic_alias))
        a, b, c = (f"{unique}/{name}" for name in "abc")
        assert topics_and_aliases == [(a, 1), ("", 1), (b, 2), ("", 2), ("", 1), (c, 2), ("", 1)]


def retained(client: RawClient, topic: str) -> list[Publish]:
    """Return the messages that a subscription gets at once: those before a marker published after its SUBACK."""
    subscribe(client, f"{topic}/mark", 0)
    subscribe(client, topic, 0)
    client.publish(f"{topic}/mark", b"")
    publications: list[Publish] = []
    while (publish := client.expect(Publish)).topic == topic:
        publications.append(publish)
    return publications


def test_a_retained_publication_expires(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-5, -6: its interval decreases, and then it is deleted."""
    with client_of(bridge, unique) as client:
        for topic, interval in (("long", 600), ("short", 1)):
            properties = PublishProperties(message_expiry_interval=interval)
            client.send(Publish(f"{unique}/{topic}", b"x", 1, True, False, interval, properties))
            client.wait_for(Puback)
        eventually(lambda: retained(client, f"{unique}/short"), [])
        (publication,) = retained(client, f"{unique}/long")
        assert publication.properties is not None and 0 < (publication.properties.message_expiry_interval or 0) < 600
        client.publish(f"{unique}/long", b"", 1, retain=True)
        client.wait_for(Publish)


def test_a_waiting_message_expires(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-5, -6, MQTT-4.3.3-7: for a disconnected client, but not if it was sent before: it is repeated with DUP."""
    session = ConnectProperties(session_expiry_interval=600)
    short, long = (PublishProperties(message_expiry_interval=interval) for interval in (1, 600))
    with client_of(bridge, f"{unique}-2") as other:
        with client_of(bridge, unique, properties=session) as away:
            subscribe(away, f"{unique}/m", 2)
            other.send(Publish(f"{unique}/m", b"sent", 2, False, False, 1, short))
            other.wait_for(Pubrec)
            first = away.wait_for(Publish)
        for packet_id, (payload, properties) in enumerate(((b"short", short), (b"long", long)), 2):
            other.send(Publish(f"{unique}/m", payload, 1, False, False, packet_id, properties))
        other.send(Publish(f"{unique}/r", b"clock", 1, True, False, 9, short))
        while other.wait_for(Puback).packet_id != 9:
            pass
        eventually(lambda: retained(other, f"{unique}/r"), [])
        with RawClient(bridge.port, unique, level=5, clean=False, properties=ConnectProperties()) as client:
            assert client.connect().session_present
            again, late = client.take(), client.take()
            assert (again.payload, again.dup, again.packet_id) == (b"sent", True, first.packet_id)
            assert late.payload == b"long" and late.properties is not None
            assert 0 < (late.properties.message_expiry_interval or 0) < 600
            client.ping()
            assert not client.inbox


def test_an_expired_publication_is_acknowledged_to_the_end(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-4.3.3-13."""
    with client_of(bridge, unique) as client:
        properties = PublishProperties(message_expiry_interval=0)
        client.send(Publish(unique, b"", 2, False, False, 7, properties))
        assert client.wait_for(Pubrec).packet_id == 7
        client.send(Pubrel(7))
        assert client.wait_for(Pubcomp) == Pubcomp(7)


@pytest.mark.xfail(
    strict=True,
    reason="MQMD.Expiry ends at 999,999,999 tenths of a second. docs/reference/mqtt-5.md documents this limit.",
)
def test_the_longest_expiry(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-6."""
    with client_of(bridge, unique) as client:
        subscribe(client, unique, 0)
        client.send(Publish(unique, b"", 0, properties=PublishProperties(message_expiry_interval=0xFFFFFFFF)))
        publication = client.expect(Publish)
        assert (
            publication.properties is not None
            and (publication.properties.message_expiry_interval or 0) > 0xFFFFFFFF - 600
        )


def test_aliases_end_with_their_connection(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-7, in both directions. The client's maximum may differ on the next connection (MQTT-3.1.2-26, -27)."""
    alias = PublishProperties(topic_alias=5)
    for maximum in (1, None, 0):
        properties = ConnectProperties(session_expiry_interval=600, topic_alias_maximum=maximum)
        with client_of(bridge, unique, clean=maximum == 1, properties=properties) as client:
            subscribe(client, f"{unique}/#", 0)
            for topic in (f"{unique}/t", ""):
                client.send(Publish(topic, b"x", properties=alias))
            publications = [client.expect(Publish) for _ in range(2)]
            assert [publication.topic for publication in publications] == [
                f"{unique}/t",
                "" if maximum else f"{unique}/t",
            ]
            assert {publication.properties and publication.properties.topic_alias for publication in publications} == {
                maximum or None
            }
    with client_of(bridge, unique) as client:
        client.send(Publish("", b"x", properties=alias))
        assert ended(client).reason_code == ReasonCode.PROTOCOL_ERROR
