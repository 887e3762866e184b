"""Subscriptions, retained publications and wills, packet by packet, on a raw socket."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import SUBACK_FAILURE, Puback, Publish, Suback, Subscribe, Will
from bridge.mqtt.topics import TOPIC_LEVELS
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import LEVELS, RawClient

# Subscriptions --------------------------------------------------------------------------------------------------------


def test_subscribe_to_several_topics_with_one_refused(bridge: BridgeProcess, unique: str) -> None:
    """SUBACK answers each filter in order, 0x80 for one that cannot be (MQTT-3.9.3-1)."""
    with RawClient.connected(bridge.port, unique) as client:
        codes = client.subscribe((f"{unique}/a", 0), ("/" * TOPIC_LEVELS, 1), (f"{unique}/+/c", 2), ("$queue/a", 1))
        assert codes == (0, SUBACK_FAILURE, 2, SUBACK_FAILURE)
        client.publish(f"{unique}/x/c", b"two", 2)
        assert client.take().qos == 2
        client.unsubscribe(f"{unique}/a", f"{unique}/+/c", "never subscribed to")
        client.publish(f"{unique}/x/c", b"nobody", 1)
        client.subscribe((f"{unique}/end", 1))
        client.publish(f"{unique}/end", b"end", 1)
        assert client.take().payload == b"end"


def test_subscribe_takes_effect_before_a_following_publish(bridge: BridgeProcess, unique: str) -> None:
    """A client's packets take effect in the order sent, also when it does not wait for SUBACK."""
    with RawClient.connected(bridge.port, unique) as client:
        client.send(Subscribe(1, ((unique, 1),)), Publish(unique, b"at once", 1, False, False, 2))
        client.wait_for(Suback)
        client.wait_for(Puback)
        client.publish(unique, b"later", 1)
        assert [client.take().payload for _ in range(2)] == [b"at once", b"later"]


def test_subscribing_again_alters_the_qos_and_repeats_the_retained(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.8.4-3: a new subscription replaces the old one with the same filter."""
    with RawClient.connected(bridge.port, unique) as client:
        client.publish(unique, b"kept", 2, retain=True)
        for qos in (0, 2, 1):
            assert client.subscribe((unique, qos)) == (qos,)
            publish = client.wait_for(Publish)
            client.acknowledge(publish)
            assert (publish.qos, publish.retain, publish.payload) == (qos, True, b"kept")
        client.publish(unique, b"live", 2)
        publish = client.take()
        assert (publish.qos, publish.retain, publish.payload) == (1, False, b"live")
        client.publish(unique, b"", 1, retain=True)
        assert client.take().payload == b""


def test_wildcards_do_not_name_dollar_topics(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-4.7.2-1."""
    with RawClient.connected(bridge.port, unique) as client:
        client.subscribe((f"+/{unique}", 1), ("#", 0), (f"$x/{unique}", 1), (f"end/{unique}", 1))
        client.publish(f"$x/{unique}", b"1", 1)
        client.publish(f"end/{unique}", b"2", 1)
        topics: list[str] = []
        while not topics or topics[-1] != f"end/{unique}":
            publish = client.wait_for(Publish)
            client.acknowledge(publish)
            if publish.topic.endswith(unique):
                topics.append(publish.topic)
        assert topics == [f"$x/{unique}", f"end/{unique}"]


# Retained publications ------------------------------------------------------------------------------------------------


@LEVELS
def test_retained_live_late_and_cleared(bridge: BridgeProcess, unique: str, level: int) -> None:
    """MQTT-3.3.1-5 to -11: RETAIN is 0 for existing subscribers and 1 for later ones. An empty publication clears it."""
    with RawClient.connected(bridge.port, f"{unique}-p", level=level) as sender, \
         RawClient.connected(bridge.port, f"{unique}-l", level=level) as live:  # fmt: skip
        live.subscribe((f"{unique}/+", 2))
        for qos in (0, 1, 2):
            sender.publish(f"{unique}/{qos}", b"kept", qos, retain=True)
            publish = live.take()
            assert (publish.qos, publish.retain) == (qos, False)
        with RawClient.connected(bridge.port, f"{unique}-t", level=level) as late:
            late.subscribe((f"{unique}/+", 2))
            received = [late.wait_for(Publish) for _ in range(3)]
            for publish in received:
                late.acknowledge(publish)
            assert sorted((one.topic, one.qos, one.retain, one.payload) for one in received) == [
                (f"{unique}/{qos}", qos, True, b"kept") for qos in (0, 1, 2)
            ]
        for qos in (0, 1, 2):
            sender.publish(f"{unique}/{qos}", b"", 1, retain=True)
            assert live.take().payload == b"", "a live subscriber gets the empty one as an ordinary publication"
        with RawClient.connected(bridge.port, f"{unique}-n", level=level) as later:
            later.subscribe((f"{unique}/+", 2))
            sender.publish(f"{unique}/end", b"end", 2)
            assert later.take().payload == b"end"


# Wills ----------------------------------------------------------------------------------------------------------------


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True], ids=["live", "retained"])
def test_will_of_every_qos(bridge: BridgeProcess, unique: str, qos: int, retain: bool) -> None:
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.subscribe((unique, 2))
        RawClient.connected(bridge.port, f"{unique}-m", will=Will(unique, b"gone", qos, retain)).vanish()
        publish = witness.take()
        assert (publish.payload, publish.qos, publish.retain) == (b"gone", qos, False)
        witness.unsubscribe(unique)
        witness.subscribe((unique, 2))
        if not retain:
            witness.publish(unique, b"end", 1)
        publish = witness.take()
        assert (publish.payload, publish.retain) == ((b"gone", True) if retain else (b"end", False))


def test_will_without_payload_clears_a_retained_publication(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.publish(unique, b"alive", 1, retain=True)
        witness.subscribe((unique, 1))
        assert witness.take().payload == b"alive"
        RawClient.connected(bridge.port, f"{unique}-m", will=Will(unique, b"", 1, True)).vanish()
        assert witness.take().payload == b""
        witness.unsubscribe(unique)
        witness.subscribe((unique, 1))
        witness.publish(unique, b"end", 1)
        assert witness.take().payload == b"end"


def test_no_will_after_disconnect_but_after_a_malformed_packet(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-8, MQTT-3.1.2-10: DISCONNECT drops the will; any other end publishes it."""
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.subscribe((unique, 1))
        RawClient.connected(bridge.port, f"{unique}-p", will=Will(unique, b"polite", 1)).disconnect()
        rude = RawClient.connected(bridge.port, f"{unique}-r", will=Will(unique, b"rude", 1))
        rude.send_bytes(b"\xff\xff")
        rude.expect_closed()
        assert witness.take().payload == b"rude"
        rude.vanish()
