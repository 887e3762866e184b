"""Clients of paho-mqtt in MQTT 3.1, 3.1.1 and 5."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.helpers.patience import PATIENCE


class PahoClient:
    """A paho client with its network loop in a thread. `message` and `take` return received messages."""

    def __init__(
        self,
        port: int,
        client_id: str = "",
        protocol: int = paho.MQTTv5,
        *,
        host: str = "127.0.0.1",
        clean: bool = True,
        will: Any = None,
        reconnects: bool = True,
        settle: Callable[[paho.Client], None] = lambda client: None,
    ) -> None:
        """`settle` is called with the client before it connects."""
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,  # type: ignore[attr-defined]
            client_id=client_id,
            clean_session=None if protocol == paho.MQTTv5 else clean,
            protocol=protocol,
            reconnect_on_failure=reconnects,
        )
        #: all received messages
        self.seen: list[paho.MQTTMessage] = []
        self._connected: queue.Queue[Any] = queue.Queue()
        self._subscribed: queue.Queue[Any] = queue.Queue()
        self._messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.client.on_connect = lambda _c, _u, flags, reason, _p: self._connected.put((flags, reason))
        self.client.on_subscribe = lambda _c, _u, _m, reasons, _p: self._subscribed.put(reasons)
        self.client.on_message = lambda _c, _u, message: self._messages.put(message)
        self.client.reconnect_delay_set(1, 1)
        settle(self.client)
        if will is not None:
            self.client.will_set(*will)
        if protocol == paho.MQTTv5:
            lasting = Properties(PacketTypes.CONNECT)
            lasting.SessionExpiryInterval = 0 if clean else 0xFFFFFFFF
            self.client.connect(host, port, clean_start=clean, properties=lasting)
        else:
            self.client.connect(host, port)
        self.client.loop_start()
        self.session_present = self.wait_connected()

    def wait_connected(self) -> bool:
        """Wait for a CONNACK. Return whether there was a session."""
        flags, reason = self._connected.get(timeout=PATIENCE)
        assert not reason.is_failure, reason
        return bool(flags.session_present)

    def reconnect(self) -> None:
        """Reconnect once, with the unacknowledged messages of the lost connection."""
        self.client.loop_stop()
        self.client.reconnect()
        self.client.loop_start()
        self.wait_connected()

    def subscribe(self, *filters: tuple[str, Any]) -> list[int]:
        """Subscribe to filters with QoS or options. Return the reason codes."""
        self.client.subscribe(list(filters))
        return [reason.value for reason in self._subscribed.get(timeout=PATIENCE)]

    def publish(self, topic: str, payload: bytes | str, qos: int, retain: bool = False, **properties: Any) -> None:
        """Publish, and wait for the acknowledgement."""
        info = self.client.publish(topic, payload, qos, retain, **properties)
        info.wait_for_publish(PATIENCE)
        assert info.is_published()

    def message(self) -> paho.MQTTMessage:
        """Return the next message."""
        try:
            message = self._messages.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(
                f"nothing within {PATIENCE:g} s; before: {[message.topic for message in self.seen]}"
            ) from None
        self.seen.append(message)
        return message

    def take(self) -> tuple[str, bytes, int, bool]:
        """Return the next message: topic, payload, QoS, RETAIN."""
        message = self.message()
        return message.topic, bytes(message.payload), message.qos, bool(message.retain)

    def until(self, topic: str) -> list[str]:
        """Return the topics of the messages up to the first one of that topic."""
        topics = []
        while topic not in topics:
            topics.append(self.message().topic)
        return topics

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


class PahoSubscriber(PahoClient):
    """A client of MQTT 5 that has subscribed to a filter, with Retain As Published."""

    def __init__(self, port: int, topic_filter: str, qos: int = 2, **options: Any) -> None:
        super().__init__(port, **options)
        self.subscribe((topic_filter, SubscribeOptions(qos=qos, retainAsPublished=True)))


def publish_all(
    port: int, publications: Iterable[tuple[str, bytes, int, bool, Properties]], *, version: str = "5"
) -> None:
    """Publish (topic, payload, QoS, RETAIN, properties) in order. Return when all are acknowledged as their QoS requires.

    The client identifier is `publisher`. With MQTT 3.1.1, properties are omitted.
    """
    with PahoClient(port, "publisher", paho.MQTTv5 if version == "5" else paho.MQTTv311) as client:
        for topic, payload, qos, retain, properties in publications:
            client.publish(topic, payload, qos, retain, **({"properties": properties} if version == "5" else {}))
