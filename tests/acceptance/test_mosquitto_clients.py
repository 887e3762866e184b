"""mosquitto_pub and mosquitto_sub with MQTT 3.1, 3.1.1 and 5."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Subscriber, publish

# test_paho_clients.py runs the same sessions on IBM MQ.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")

VERSIONS = pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])


@VERSIONS
def test_every_qos_against_every_qos(bridge: BridgeProcess, unique: str, version: str) -> None:
    """A publication arrives with the lower of its own QoS and the subscription's."""
    subscribers = [Subscriber(bridge.port, f"{unique}/+", qos=qos, version=version) for qos in (0, 1, 2)]
    for qos in (0, 1, 2):
        publish(bridge.port, f"{unique}/q{qos}", f"sent with {qos}", qos=qos, version=version)
    for granted, subscriber in enumerate(subscribers):
        with subscriber:
            # They were published one after the other, but QoS 0 may be out of order.
            received = sorted((subscriber.message() for _ in range(3)), key=lambda message: message["topic"])
            assert received == [
                {"topic": f"{unique}/q{qos}", "payload": f"sent with {qos}", "qos": min(qos, granted), "retain": 0}
                for qos in (0, 1, 2)
            ]


def test_will_when_the_client_is_killed(bridge: BridgeProcess, unique: str) -> None:
    topic = f"{unique}/will"
    with Subscriber(bridge.port, topic, qos=2) as witness:
        will = ("--will-topic", topic, "--will-payload", "gone", "--will-qos", "2")
        with Subscriber(bridge.port, f"{unique}/other", options=will) as mortal:
            mortal.kill()
        assert witness.message() == {"topic": topic, "payload": "gone", "qos": 2, "retain": 0}


def test_wildcards(bridge: BridgeProcess, unique: str) -> None:
    """MQTT 3.1.1 section 4.7. All match the last publication, whose arrival shows that the others have arrived."""
    topics = [f"{unique}{rest}" for rest in ("", "/a", "/a/b", "/a/b/c", "/b/b", "//", "/end")]
    expected = {
        f"{unique}/#": topics,
        f"{unique}/+": [f"{unique}/a", f"{unique}/end"],
        f"{unique}/+/b": [f"{unique}/a/b", f"{unique}/b/b"],
        f"{unique}/a/#": [f"{unique}/a", f"{unique}/a/b", f"{unique}/a/b/c"],
        f"+/{'+/' * 2}c": [],
        f"{unique}/+/+": [f"{unique}/a/b", f"{unique}/b/b", f"{unique}//"],
    }
    subscribers = {
        topic_filter: Subscriber(bridge.port, topic_filter, f"{unique}/end", qos=1) for topic_filter in expected
    }
    for topic in topics:
        publish(bridge.port, topic, topic, qos=1)
    for topic_filter, subscriber in subscribers.items():
        with subscriber:
            received = list(itertools.takewhile(lambda topic: not topic.endswith("/end"), iter_topics(subscriber)))
            wanted = [topic for topic in expected[topic_filter] if not topic.endswith("/end")]
            if topic_filter.startswith("+"):
                received = [topic for topic in received if topic.startswith(unique)]
                wanted = [f"{unique}/a/b/c"]
            assert received == wanted, topic_filter


def iter_topics(subscriber: Subscriber) -> Iterator[Any]:
    while True:
        yield subscriber.message()["topic"]
