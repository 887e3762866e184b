"""mosquitto as an edge bridge with its defaults: MQTT 3.1.1 with bit 7 of the protocol level, and MQTT 5."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Mosquitto, Subscriber, publish

pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")


def at(port: int, topic: str) -> Subscriber:
    return Subscriber(port, topic, qos=1, version="mqttv5")


@pytest.fixture(params=["mqttv31", "mqttv311", "mqttv50"])
def edge(bridge: BridgeProcess, unique: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Mosquitto]:
    """A mosquitto connected to the bridge: topics `out` to it, `in` from it, and `both`."""
    settings = (
        "allow_anonymous true",
        f"connection {unique}"[:23],
        f"address 127.0.0.1:{bridge.port}",
        f"bridge_protocol_version {request.param}",
        f"remote_clientid {unique}"[:39],
        "cleansession false",
        "notifications false",
        "restart_timeout 1",
        *(f"topic {unique}/{name}/# {direction} 1" for name, direction in (("o", "out"), ("i", "in"), ("b", "both"))),
    )
    mosquitto = Mosquitto(tmp_path, *settings)
    try:
        publish(bridge.port, f"{unique}/b/ready", "ready", "-r", qos=1)
        mosquitto.start()
        with at(mosquitto.port, f"{unique}/b/ready") as side:
            side.message()
        yield mosquitto
    finally:
        mosquitto.stop()
        publish(bridge.port, f"{unique}/b/ready", "", "-r", qos=1)


def test_publications_are_forwarded_in_both_directions_and_do_not_return(
    bridge: BridgeProcess, edge: Mosquitto, unique: str
) -> None:
    with at(bridge.port, f"{unique}/+/t/#") as center, at(edge.port, f"{unique}/+/t/#") as side:
        publish(edge.port, f"{unique}/o/t/1", "up", qos=1)
        publish(bridge.port, f"{unique}/i/t/1", "down", qos=1)
        publish(edge.port, f"{unique}/b/t/1", "from the edge", qos=1)
        publish(bridge.port, f"{unique}/b/t/2", "from the center", qos=1)
        expected = {"up", "down", "from the edge", "from the center"}
        assert {center.message()["payload"] for _ in expected} == expected
        assert {side.message()["payload"] for _ in expected} == expected
        # An echo would have arrived before these.
        publish(edge.port, f"{unique}/b/t/3", "end", qos=1)
        assert (center.message()["payload"], side.message()["payload"]) == ("end", "end")
        publish(bridge.port, f"{unique}/b/t/4", "last", qos=1)
        assert (center.message()["payload"], side.message()["payload"]) == ("last", "last")


# IBM MQ does not tell a subscriber whether a live publication was retained.
@pytest.mark.queue_managers("embedded")
@pytest.mark.parametrize("name", ["i", "b"])
def test_retained_publications_of_the_center_are_retained_at_the_edge(
    bridge: BridgeProcess, edge: Mosquitto, unique: str, name: str
) -> None:
    topic = f"{unique}/{name}/retained"
    with at(edge.port, topic) as side:
        publish(bridge.port, topic, "kept", "-r", qos=1)
        assert side.message()["payload"] == "kept"
    with at(edge.port, topic) as late:
        assert late.message() == {"topic": topic, "payload": "kept", "qos": 1, "retain": 1}
    publish(bridge.port, topic, "", "-r", qos=1)


@pytest.mark.parametrize("name", ["o", "b"])
def test_retained_publications_of_the_edge_are_retained_at_the_center(
    bridge: BridgeProcess, edge: Mosquitto, unique: str, name: str
) -> None:
    topic = f"{unique}/{name}/retained"
    with at(bridge.port, topic) as center:
        publish(edge.port, topic, "kept", "-r", qos=1)
        assert center.message()["payload"] == "kept"
    with at(bridge.port, topic) as late:
        assert late.message() == {"topic": topic, "payload": "kept", "qos": 1, "retain": 1}
    publish(bridge.port, topic, "", "-r", qos=1)
