"""MQTT 5: subscriptions, on a raw socket. Each test names the statements that it checks."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from bridge.mqtt.packets import (
    ConnectProperties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeProperties,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
)
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_5_client import EVERYTHING, client_of, subscribe


# IBM MQ does not tell a subscriber whether a live publication was put as retained.
@pytest.mark.queue_managers("embedded")
def test_retain_as_published(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.1-12, -13."""
    with client_of(bridge, unique) as as_published, client_of(bridge, f"{unique}-2") as plain:
        subscribe(as_published, unique, 1, retain_as_published=True)
        subscribe(plain, unique, 1)
        for retain in (True, False):
            plain.publish(unique, b"x", 1, retain=retain)
            assert (as_published.take().retain, plain.take().retain) == (retain, False)


def test_retain_handling(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.1-9, -10, -11: 0 each time, 1 for a new subscription only, 2 never."""
    with client_of(bridge, unique) as client:
        client.publish(unique, b"kept", 1, retain=True)
        publications = []
        for number, handling in enumerate((2, 1, 0, 1)):
            subscribe(client, unique, 1, retain_handling=handling)
            client.publish(f"{unique}/end", b"")  # nothing is sent for it
            subscribe(client, f"{unique}/mark{number}", 0)
            client.publish(f"{unique}/mark{number}", b"mark")
            while (publish := client.take()).payload != b"mark":
                publications.append((handling, publish.payload, publish.retain))
        assert publications == [(0, b"kept", True)]
        client.send(Unsubscribe(900, (unique,)))
        assert client.wait_for(Unsuback).reason_codes == (0,)
        subscribe(client, unique, 1, retain_handling=1)
        assert client.take().payload == b"kept"
        client.publish(unique, b"", 1, retain=True)


# IBM MQ puts one message per matching filter.
@pytest.mark.queue_managers("embedded")
def test_one_message_for_several_filters(new_bridge: Callable[..., BridgeProcess]) -> None:
    """MQTT-3.3.4-2, -4: with `overlapping_subscriptions: once`, of the highest QoS, with all identifiers, except No Local."""
    bridge = new_bridge(config="queue_manager: {overlapping_subscriptions: once}\n").start()
    with client_of(bridge, "one") as client, client_of(bridge, "other") as other:
        subscribe(client, "t/#", 0, identifier=1)
        subscribe(client, "t/a", 1, identifier=2)
        subscribe(client, "+/a", 0)
        subscribe(client, "t/+", 2, identifier=3, no_local=True)
        subscribe(other, "t/a", 0)
        client.publish("t/a", b"own", 1)
        (own,) = [client.wait_for(Publish)]
        assert [own.qos, own.properties and sorted(own.properties.subscription_identifier)] == [1, [1, 2]]
        assert other.take().payload == b"own"
        client.acknowledge(own)
        client.ping()
        other.publish("t/a", b"other", 1)
        publications = [client.wait_for(Publish) for _ in range(2)]
        identifiers = sorted(
            sorted(publication.properties.subscription_identifier)
            for publication in publications
            if publication.properties
        )
        assert identifiers == [[1, 2], [3]]
        assert other.take().payload == b"other"
        client.ping()
        other.ping()


#: A filter, topics that it matches, and topics that it does not.
MATCHES = [
    ("a/+", ["a/b", "a/"], ["a", "a/b/c", "/a", "a/b/"]),
    ("+/+", ["a/b", "/b", "a/", "/"], ["a", "a/b/c", "$a/b"]),
    ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/b/c"]),
    ("a/#", ["a", "a/", "a/b", "a/b/c"], ["b", "/a", "ab", "ab/c"]),
    ("$a/#", ["$a", "$a/b/c"], ["a/b", "$ab"]),
]


@pytest.mark.parametrize(("topic_filter", "matched", "others"), MATCHES, ids=[case[0] for case in MATCHES])
def test_messages_that_a_filter_matches(
    bridge: BridgeProcess, unique: str, topic_filter: str, matched: list[str], others: list[str]
) -> None:
    """MQTT-3.3.2-3, MQTT-4.7.1-1, -2, MQTT-4.7.2-1. Levels a and b are replaced by words of the test."""

    def own(topic: str) -> str:
        return topic.replace("a", unique).replace("b", f"{unique}-b") if "a" in topic or "b" in topic else topic

    with client_of(bridge, unique) as client:
        subscribe(client, own(topic_filter), 0, retain_handling=2)
        subscribe(client, f"{unique}-end", 0)
        for topic in others + matched:
            client.publish(own(topic), topic.encode())
        client.publish(f"{unique}-end", b"end")
        publications = []
        while (publish := client.expect(Publish)).payload != b"end":
            # Filters without a word of the test also match late messages of other tests.
            if publish.payload.decode() in others + matched:
                publications.append((publish.topic, publish.payload.decode()))
        assert publications == [(own(topic), topic) for topic in matched]


def test_a_subscription_is_replaced_without_a_gap(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.8.4-4: publications during the change arrive once each, in a durable session."""
    subscribe_again(bridge, unique, ConnectProperties(session_expiry_interval=600))
    with client_of(bridge, unique):
        pass


# IBM MQ creates a non-durable subscription again: publications between MQCLOSE and MQSUB are lost.
@pytest.mark.queue_managers("embedded")
def test_a_subscription_of_a_clean_session_is_replaced_without_a_gap(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.8.4-4: and in a clean one."""
    subscribe_again(bridge, unique, ConnectProperties())


def subscribe_again(bridge: BridgeProcess, topic: str, session: ConnectProperties) -> None:
    count = 120
    with client_of(bridge, topic, properties=session) as client, client_of(bridge, f"{topic}-2") as other:
        subscribe(client, topic, 1)
        for number in range(count):
            other.send(Publish(topic, b"%d" % number, 1, False, False, number + 1))
            if number % 10 == 0:
                options = SubscriptionOptions(retain_as_published=number % 20 == 0, retain_handling=number % 3)
                identifier = SubscribeProperties(number + 1)
                client.send(
                    Subscribe(1_000 + number, ((topic, 1 + number % 2),), options=(options,), properties=identifier)
                )
        numbers = []
        for _ in range(count):
            publish = client.wait_for(Publish)
            numbers.append(int(publish.payload))
            client.send(Puback(publish.packet_id))
        assert numbers == list(range(count))
        client.ping()
        assert {type(packet) for packet in client.inbox} == {Suback}


def test_unsubscribing_while_messages_are_in_flight(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.10.4-2, -3: started exchanges are completed, and no new message arrives."""
    with client_of(bridge, unique) as client, client_of(bridge, f"{unique}-2") as other:
        subscribe(client, unique, 2)
        for number in range(4):
            other.publish(unique, b"%d" % number, 1 + number % 2)
        sent = [client.wait_for(Publish) for _ in range(4)]
        client.send(Pubrec(sent[1].packet_id), Unsubscribe(900, (unique,)))
        assert client.wait_for(Unsuback) == Unsuback(900, (0,))
        assert client.wait_for(Pubrel) == Pubrel(sent[1].packet_id)
        other.publish(unique, b"late", 2)
        client.send(Pubcomp(sent[1].packet_id))
        for publish in (sent[0], sent[2], sent[3]):
            client.acknowledge(publish)
        client.ping()
        assert not client.inbox


def test_a_retained_publication_keeps_all_properties(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.1-5, MQTT-3.3.2-4, -15 to -20, MQTT-3.3.4-3: its properties, and the identifier of the subscription."""
    with client_of(bridge, unique) as client:
        for payload in (b"before", b"last"):
            client.send(Publish(unique, payload, 1, True, False, 1, EVERYTHING))
            client.wait_for(Puback)
        client.send(Publish(unique, b"not retained", 1, False, False, 2))
        client.wait_for(Puback)
        for as_published in (False, True):
            subscribe(client, unique, 2, identifier=9, retain_as_published=as_published)
            publication = client.take()
            assert (publication.payload, publication.qos, publication.retain) == (b"last", 1, True)
            assert publication.properties == msgspec.structs.replace(EVERYTHING, subscription_identifier=(9,))
        client.publish(unique, b"", 1, retain=True)
        assert client.take().payload == b""
        subscribe(client, unique, 2)
        client.ping()
        assert not client.inbox, "MQTT-3.3.1-6, -7"


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_a_member_of_a_share_rejects(bridge: BridgeProcess, unique: str, qos: int) -> None:
    """MQTT-4.8.2-6: the message goes to no other member."""
    members = [client_of(bridge, f"{unique}-{number}") for number in range(2)]
    for member in members:
        assert subscribe(member, f"$share/g/{unique}", qos) == (1,)
    with client_of(bridge, f"{unique}-p") as publisher:
        publisher.publish(unique, b"no", qos)
        publisher.publish(unique, b"no", qos)
        for member in members:
            member.send(Puback(member.wait_for(Publish).packet_id, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR))
        for member in members:
            member.ping()
        members[0].vanish()
        publisher.publish(unique, b"yes", qos)
        assert members[1].take().payload == b"yes"
    members[1].vanish()
