"""Acceptance 1 with paho-mqtt, in MQTT 3.1, 3.1.1 and 5."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any, Self

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import PATIENCE
from tests.helpers.raw_client import RawClient


class PahoClient:
    """A paho client with its network loop in a thread. `take` returns received messages."""

    def __init__(
        self,
        port: int,
        client_id: str,
        protocol: int,
        *,
        clean: bool = True,
        will: Any = None,
        reconnects: bool = True,
    ) -> None:
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,  # type: ignore[attr-defined]
            client_id=client_id,
            clean_session=None if protocol == paho.MQTTv5 else clean,
            protocol=protocol,
            reconnect_on_failure=reconnects,
        )
        self._connected: queue.Queue[Any] = queue.Queue()
        self._subscribed: queue.Queue[Any] = queue.Queue()
        self._messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.client.on_connect = lambda _c, _u, flags, reason, _p: self._connected.put((flags, reason))
        self.client.on_subscribe = lambda _c, _u, _m, reasons, _p: self._subscribed.put(reasons)
        self.client.on_message = lambda _c, _u, message: self._messages.put(message)
        self.client.reconnect_delay_set(1, 1)
        if will is not None:
            self.client.will_set(*will)
        if protocol == paho.MQTTv5:
            lasting = Properties(PacketTypes.CONNECT)
            lasting.SessionExpiryInterval = 0 if clean else 0xFFFFFFFF
            self.client.connect("127.0.0.1", port, clean_start=clean, properties=lasting)
        else:
            self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.session_present = self.wait_connected()

    def wait_connected(self) -> bool:
        """Wait for a CONNACK, and tell whether there was a session."""
        flags, reason = self._connected.get(timeout=PATIENCE)
        assert not reason.is_failure, reason
        return bool(flags.session_present)

    def reconnect(self) -> None:
        """Reconnect once, with the unacknowledged messages of the lost connection."""
        self.client.loop_stop()
        self.client.reconnect()
        self.client.loop_start()
        self.wait_connected()

    def subscribe(self, *filters: tuple[str, int]) -> list[int]:
        self.client.subscribe(list(filters))
        return [reason.value for reason in self._subscribed.get(timeout=PATIENCE)]

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        """Publish, and wait until it is acknowledged."""
        info = self.client.publish(topic, payload, qos, retain)
        info.wait_for_publish(PATIENCE)
        assert info.is_published()

    def take(self) -> tuple[str, bytes, int, bool]:
        """The next message: topic, payload, QoS, RETAIN."""
        message = self._messages.get(timeout=PATIENCE)
        return message.topic, bytes(message.payload), message.qos, bool(message.retain)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def vanish(self) -> None:
        """Lose the connection without DISCONNECT."""
        self.client.loop_stop()
        self.client.socket().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def test_wildcards_and_refused_filters(bridge: BridgeProcess, unique: str, protocol: int) -> None:
    with PahoClient(bridge.port, unique, protocol) as client:
        assert client.subscribe((f"{unique}/+/c", 1), (f"{unique}/x/#", 2)) == [1, 2]
        for topic in ("a/b/c", "b/c", "x", "x/y/z", "c"):
            client.publish(f"{unique}/{topic}", topic.encode(), 2)
        client.publish(f"{unique}/x/end", b"end", 2)
        received: list[Any] = []
        while not received or received[-1][1] != b"end":
            received.append(client.take())
        assert [(payload, qos) for _, payload, qos, _ in received] == [(b"b/c", 1), (b"x", 2), (b"x/y/z", 2), (b"end", 2)]


@pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")
def test_durable_session_over_a_restart(own_bridge: BridgeProcess) -> None:
    """The client reconnects by itself, and finds its subscriptions and all that was published meanwhile."""
    bridge = own_bridge
    with PahoClient(bridge.port, "old", paho.MQTTv31, clean=False) as old, \
         PahoClient(bridge.port, "new", paho.MQTTv311, clean=False) as new:  # fmt: skip
        keepers = (old, new)
        for keeper in keepers:
            assert not keeper.session_present
            keeper.subscribe(("news/#", 2))
        for round_, stop in enumerate((bridge.stop, bridge.kill)):
            for sender in keepers:
                sender.publish(f"news/{round_}", b"before", 2)
                assert [keeper.take() for keeper in keepers] == [(f"news/{round_}", b"before", 2, False)] * 2
            stop()
            bridge.start()
            with RawClient.connected(bridge.port, "sender") as raw:
                for qos in (1, 2):
                    raw.publish(f"news/{round_}", b"%d" % qos, qos)
            # MQTT 3.1 has no session present flag.
            assert [keeper.wait_connected() for keeper in keepers] == [False, True]
            for keeper in keepers:
                came = [keeper.take() for _ in range(2)]
                assert came == [(f"news/{round_}", b"%d" % qos, qos, False) for qos in (1, 2)]


# test_crash.py kills a bridge on IBM MQ.
@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_publisher_outlives_a_kill(own_bridge: BridgeProcess, protocol: int) -> None:
    """paho sends unacknowledged messages again after the kill. All arrive in order, with QoS 2 once."""
    bridge = own_bridge
    count = 500
    with PahoClient(bridge.port, "keeper", protocol, clean=False) as keeper:
        keeper.subscribe(("n", 2))
    # paho forgets a PUBREL at the second attempt to connect that fails (`_messages_reconnect_reset_out`), and publishes
    # anew what was released: here it has one attempt, which succeeds.
    with PahoClient(bridge.port, "sender", protocol, clean=False, reconnects=False) as sender:
        infos = [sender.client.publish("n", b"%d" % number, 2) for number in range(count // 2)]
        bridge.kill()
        bridge.start()
        sender.reconnect()
        infos += [sender.client.publish("n", b"%d" % number, 2) for number in range(count // 2, count)]
        for info in infos:
            info.wait_for_publish(PATIENCE)
            assert info.is_published()
    with PahoClient(bridge.port, "keeper", protocol, clean=False) as keeper:
        assert [int(keeper.take()[1]) for _ in range(count)] == list(range(count))


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
