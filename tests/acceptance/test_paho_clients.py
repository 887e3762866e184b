"""paho-mqtt with MQTT 3.1, 3.1.1 and 5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.paho_clients import PahoClient


@pytest.fixture(params=[paho.MQTTv31, paho.MQTTv311, paho.MQTTv5], ids=["mqtt31", "mqtt311", "mqtt5"])
def protocol(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


def test_every_qos_against_every_qos(bridge: BridgeProcess, unique: str, protocol: int) -> None:
    with PahoClient(bridge.port, f"{unique}-p", protocol) as sender:
        for granted in (0, 1, 2):
            with PahoClient(bridge.port, f"{unique}-{granted}", protocol) as receiver:
                assert receiver.subscribe((f"{unique}/+/{granted}", granted)) == [granted]
                for sent in (0, 1, 2):
                    topic = f"{unique}/{sent}/{granted}"
                    sender.publish(topic, b"\x00payload\xff", sent)
                    assert receiver.take() == (topic, b"\x00payload\xff", min(sent, granted), False)


def test_retained(bridge: BridgeProcess, unique: str, protocol: int) -> None:
    with PahoClient(bridge.port, f"{unique}-p", protocol) as sender:
        for qos in (0, 1, 2):
            sender.publish(f"{unique}/{qos}", b"state", qos, retain=True)
        with PahoClient(bridge.port, f"{unique}-l", protocol) as late:
            late.subscribe((f"{unique}/+", 2))
            assert sorted(late.take() for _ in range(3)) == [(f"{unique}/{q}", b"state", q, True) for q in (0, 1, 2)]
            sender.publish(f"{unique}/1", b"live", 1, retain=True)
            assert late.take() == (f"{unique}/1", b"live", 1, False)
            for qos in (0, 1, 2):
                sender.publish(f"{unique}/{qos}", b"", qos, retain=True)
                assert late.take() == (f"{unique}/{qos}", b"", qos, False)
        with PahoClient(bridge.port, f"{unique}-n", protocol) as later:
            later.subscribe((f"{unique}/+", 2))
            sender.publish(f"{unique}/end", b"", 1)
            assert later.take() == (f"{unique}/end", b"", 1, False)


def test_will(bridge: BridgeProcess, unique: str, protocol: int) -> None:
    qos = 2
    will = (f"{unique}/will", b"gone", qos, True)
    with PahoClient(bridge.port, f"{unique}-w", protocol) as witness:
        witness.subscribe((f"{unique}/+", 2))
        PahoClient(bridge.port, f"{unique}-p", protocol, will=will).close()
        witness.publish(f"{unique}/marker", b"no will yet", 1)
        assert witness.take() == (f"{unique}/marker", b"no will yet", 1, False)
        PahoClient(bridge.port, f"{unique}-m", protocol, will=will).vanish()
        assert witness.take() == (f"{unique}/will", b"gone", qos, False)
        witness.subscribe((f"{unique}/will", 2))
        assert witness.take() == (f"{unique}/will", b"gone", qos, True)
        witness.publish(f"{unique}/will", b"", 1, retain=True)


def test_wildcards_and_rejected_filters(bridge: BridgeProcess, unique: str, protocol: int) -> None:
    with PahoClient(bridge.port, unique, protocol) as client:
        assert client.subscribe((f"{unique}/+/c", 1), (f"{unique}/x/#", 2)) == [1, 2]
        for topic in ("a/b/c", "b/c", "x", "x/y/z", "c"):
            client.publish(f"{unique}/{topic}", topic.encode(), 2)
        client.publish(f"{unique}/x/end", b"end", 2)
        received: list[Any] = []
        while not received or received[-1][1] != b"end":
            received.append(client.take())
        assert [(payload, qos) for _, payload, qos, _ in received] == [
            (b"b/c", 1),
            (b"x", 2),
            (b"x/y/z", 2),
            (b"end", 2),
        ]


def test_clients_of_both_protocols_together(bridge: BridgeProcess, unique: str) -> None:
    make: list[Callable[[], PahoClient]] = [
        lambda: PahoClient(bridge.port, f"{unique}-3", paho.MQTTv31),
        lambda: PahoClient(bridge.port, f"{unique}-4", paho.MQTTv311),
    ]
    with make[0]() as old, make[1]() as new:
        old.subscribe((unique, 2))
        new.subscribe((unique, 1))
        for sender in (old, new):
            sender.publish(unique, b"hello", 2)
            assert old.take() == (unique, b"hello", 2, False)
            assert new.take() == (unique, b"hello", 1, False)
