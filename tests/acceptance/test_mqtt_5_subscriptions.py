"""MQTT 5, subscriptions, on a raw socket; each test names the statements that it holds the bridge to."""

from __future__ import annotations

from bridge.wire.mqtt import (
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tests.acceptance.mqtt_5_client import NewBridge, client_of, subscribe
from tests.support.bridge_process import BridgeProcess


def test_no_local(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.8.3-3."""
    with client_of(bridge, unique) as client, client_of(bridge, f"{unique}-2") as other:
        subscribe(client, unique, 1, no_local=True)
        client.publish(unique, b"own", 1)
        other.publish(unique, b"other's", 1)
        assert client.take().payload == b"other's"


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
        got = []
        for number, handling in enumerate((2, 1, 0, 1)):
            subscribe(client, unique, 1, retain_handling=handling)
            client.publish(f"{unique}/end", b"")  # nothing to be sent for it
            subscribe(client, f"{unique}/mark{number}", 0)
            client.publish(f"{unique}/mark{number}", b"mark")
            while (publish := client.take()).payload != b"mark":
                got.append((handling, publish.payload, publish.retain))
        assert got == [(0, b"kept", True)]
        client.send(Unsubscribe(900, (unique,)))
        assert client.wait_for(Unsuback).reason_codes == (0,)
        subscribe(client, unique, 1, retain_handling=1)
        assert client.take().payload == b"kept"
        client.publish(unique, b"", 1, retain=True)


def test_subscription_identifiers(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.4-3, -4, -5: one message for each subscription that matches, with its identifier; altered by the next."""
    with client_of(bridge, unique) as client:
        subscribe(client, f"{unique}/a", 0, identifier=1)
        subscribe(client, f"{unique}/#", 0, identifier=268_435_455)
        subscribe(client, f"{unique}/+", 0)
        client.publish(f"{unique}/a", b"")
        got = [client.expect(Publish).properties for _ in range(3)]
        identifiers = sorted(one.subscription_identifier if one is not None else () for one in got)
        assert identifiers == [(), (1,), (268_435_455,)]
        subscribe(client, f"{unique}/a", 0, identifier=7)
        client.publish(f"{unique}/a", b"")
        got = [client.expect(Publish).properties for _ in range(3)]
        assert (7,) in [one.subscription_identifier for one in got if one is not None]


def test_reason_codes_of_suback_and_unsuback(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.9.3-1, -2; MQTT-3.11.3-1, -2."""
    with client_of(bridge, unique) as client:
        filters = ((f"{unique}/a", 2), (f"{unique}/b#", 1), ("", 0), (f"{unique}/c", 0))
        client.send(Subscribe(1, tuple(one for one in filters if one[0])))
        assert client.wait_for(Suback).return_codes == (2, ReasonCode.TOPIC_FILTER_INVALID, 0)
        client.send(Unsubscribe(2, (f"{unique}/a", f"{unique}/never")))
        assert client.wait_for(Unsuback).reason_codes == (0, ReasonCode.NO_SUBSCRIPTION_EXISTED)


def test_one_message_for_several_filters(new_bridge: NewBridge) -> None:
    """MQTT-3.3.4-2, -4: with `overlapping_subscriptions: once`, of the highest QoS, with all identifiers; No Local apart."""
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
        got = [client.wait_for(Publish) for _ in range(2)]
        identifiers = sorted(sorted(one.properties.subscription_identifier) for one in got if one.properties)
        assert identifiers == [[1, 2], [3]]
        assert other.take().payload == b"other"
        client.ping()
        other.ping()
