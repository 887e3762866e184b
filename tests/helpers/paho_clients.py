"""Clients of paho-mqtt: one of MQTT 5 that keeps what it gets, properties included, and one that publishes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.helpers.patience import PATIENCE


class PahoSubscriber:
    """Connected and subscribed to a filter, with Retain As Published."""

    def __init__(
        self,
        port: int,
        topic_filter: str,
        qos: int = 2,
        *,
        host: str = "127.0.0.1",
        settle: Callable[[paho.Client], None] = lambda client: None,
    ) -> None:
        """`settle` is given the client before it connects."""
        #: all that was taken so far
        self.seen: list[paho.MQTTMessage] = []
        self._messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._subscribed = threading.Event()
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
        options = SubscribeOptions(qos=qos, retainAsPublished=True)

        def connected(client: paho.Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Properties) -> None:
            client.subscribe(topic_filter, options=options)

        client.on_connect = connected  # type: ignore[assignment]
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.on_message = lambda client, userdata, message: self._messages.put(message)
        self._client = client
        settle(client)
        client.connect(host, port)
        client.loop_start()
        assert self._subscribed.wait(PATIENCE), f"no SUBACK for {topic_filter}"

    def message(self) -> paho.MQTTMessage:
        """The next message."""
        try:
            message = self._messages.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"nothing within {PATIENCE:g} s; before: {[one.topic for one in self.seen]}") from None
        self.seen.append(message)
        return message

    def publish(self, topic: str, payload: str, qos: int) -> None:
        """Returns when it is acknowledged as its QoS demands."""
        self._client.publish(topic, payload, qos).wait_for_publish(PATIENCE)

    def until(self, topic: str) -> list[str]:
        """Topics of the messages up to the first one of that topic."""
        found = []
        while topic not in found:
            found.append(self.message().topic)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def publish_all(
    port: int, publications: Iterable[tuple[str, bytes, int, bool, Properties]], *, version: str = "5"
) -> None:
    """Publish (topic, payload, QoS, RETAIN, properties) in this order; returns when all are acknowledged as QoS demands.

    The client identifier is `publisher`; MQTT 3.1.1 leaves the properties out.
    """
    protocol = paho.MQTTv5 if version == "5" else paho.MQTTv311
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="publisher", protocol=protocol)  # type: ignore[attr-defined]
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert connected.wait(PATIENCE), "no CONNACK"
    for topic, payload, qos, retain, properties in publications:
        given = {"properties": properties} if protocol == paho.MQTTv5 else {}
        client.publish(topic, payload, qos, retain, **given).wait_for_publish(PATIENCE)
    client.disconnect()
    client.loop_stop()


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
