"""A publisher and a subscriber that complete MQTT's exchanges over lost connections, like a device.

Their session state survives the connections (MQTT 3.1.1 section 4.1): message ids in flight, and those of QoS 2 received and
not released by the subscriber (section 4.3.3, method A). Numbered messages show losses, repetitions and wrong order.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict, deque

from bridge.mqtt.packets import Connack, Disconnect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.helpers.patience import PATIENCE
from tests.helpers.raw_client import ConnectionClosed, RawClient

#: Message ids are used in turn from this number, so that each is reused often.
MESSAGE_IDS = 1_000


class NotAccepted(ConnectionError):
    """The bridge has rejected the CONNECT."""


def _accepted(client: RawClient, timeout: float) -> bool:
    """Send CONNECT. Return whether there was a session. Raises NotAccepted, or TimeoutError."""
    client.send(client.packet)
    try:
        connack = client.expect(Connack, timeout)
    except TimeoutError:
        client.vanish()
        raise
    if connack.return_code:
        raise NotAccepted(f"CONNACK with return code {connack.return_code}")
    return connack.session_present


class Publisher:
    """Publish messages number 0 to `count` - 1, in turn to `topics`. The payload is `number.attempt`.

    A repeated message counts its attempts, so that a receiver can distinguish repetitions by the publisher from those by the
    bridge.
    """

    def __init__(self, client_id: str, topics: list[str], count: int, qos: int, window: int = 100) -> None:
        self.client_id = client_id
        self.topics = topics
        self.count = count
        self.qos = qos
        self.window = window
        #: numbers that the bridge has acknowledged: PUBACK, or PUBREC with QoS 2
        self.acknowledged: set[int] = set()
        self.resent = 0
        self.connections = 0
        #: protocol level
        self.level = 4
        #: seconds to wait for CONNACK
        self.timeout = PATIENCE
        #: message id -> number, in the order sent: PUBLISH to repeat
        self._unacknowledged: dict[int, int] = {}
        #: message ids with PUBREC: PUBREL to repeat
        self._released: dict[int, None] = {}
        self._next = 0
        self._last_id = 0
        self._client: RawClient | None = None

    @property
    def finished(self) -> bool:
        return self._next == self.count and not self._unacknowledged and not self._released

    def connect(self, port: int) -> None:
        """Connect, and repeat unacknowledged packets, in the old order (MQTT-4.4.0-1)."""
        self._client = client = RawClient(port, self.client_id, clean=False, level=self.level)
        session_present = _accepted(client, self.timeout)
        assert session_present or not self.connections, "the session must have survived"
        self.connections += 1
        again: list[Packet] = [
            self._packet(packet_id, number, self.connections - 1) for packet_id, number in self._unacknowledged.items()
        ]
        self.resent += len(again)
        again += [Pubrel(packet_id) for packet_id in self._released]
        if again:
            client.send(*again)

    def _packet(self, packet_id: int, number: int, attempt: int) -> Publish:
        topic = self.topics[number % len(self.topics)]
        return Publish(topic, b"%d.%d" % (number, attempt), self.qos, False, attempt > 0, packet_id)

    @property
    def full(self) -> bool:
        """Return whether the maximum number of messages is in flight."""
        return len(self._unacknowledged) + len(self._released) >= self.window

    def step(self, timeout: float = PATIENCE) -> None:
        """Fill the window, then process received packets. Raises ConnectionClosed, or TimeoutError if nothing arrived."""
        client = self._client
        assert client is not None
        new = []
        while self._next < self.count and not self.full:
            packet_id = self._free_message_id()
            self._unacknowledged[packet_id] = self._next
            new.append(self._packet(packet_id, self._next, 0))
            self._next += 1
        if new:
            client.send(*new)
        if not client.inbox:
            client.fill(timeout)
        answers: list[Packet] = []
        while client.inbox:
            packet = client.inbox.popleft()
            if type(packet) is Puback:
                self.acknowledged.add(self._unacknowledged.pop(packet.packet_id))
            elif type(packet) is Pubrec:
                number = self._unacknowledged.pop(packet.packet_id, None)
                if number is not None:
                    self.acknowledged.add(number)
                    self._released[packet.packet_id] = None
                assert packet.packet_id in self._released, f"{packet} for a message that is over"
                answers.append(Pubrel(packet.packet_id))
            elif type(packet) is Pubcomp:
                self._released.pop(packet.packet_id, None)
            elif type(packet) is Disconnect:  # the server shuts down, MQTT 5
                raise ConnectionClosed
            else:
                raise AssertionError(f"unexpected {packet}")
        if answers:
            client.send(*answers)

    def _free_message_id(self) -> int:
        while True:
            self._last_id = self._last_id % MESSAGE_IDS + 1
            if self._last_id not in self._unacknowledged and self._last_id not in self._released:
                return self._last_id

    def close(self) -> None:
        if self._client is not None:
            self._client.vanish()

    def disconnect(self) -> None:
        if self._client is not None:
            with contextlib.suppress(ConnectionClosed):
                self._client.disconnect()


class DurableSubscriber:
    """Receive numbered messages in a durable session, and record those that its application would get."""

    def __init__(self, client_id: str, topic_filter: str, qos: int, *, of_mosquitto: bool = False) -> None:
        """`of_mosquitto`: messages that the broker repeats after PUBREL, with DUP, do not count again."""
        self.client_id = client_id
        self.topic_filter = topic_filter
        #: the granted QoS
        self.qos = qos
        self.requested_qos = qos
        self._of_mosquitto = of_mosquitto
        #: (topic, number) in the order in which the application received them. QoS 1 may repeat
        self.received: list[tuple[str, int]] = []
        #: the numbers among them
        self.numbers: set[int] = set()
        #: numbers of messages that the bridge repeated without DUP
        self.undeclared: list[int] = []
        self.connections = 0
        #: protocol level
        self.level = 4
        #: seconds to wait for CONNACK
        self.timeout = PATIENCE
        #: method A: message ids received and not released
        self._not_released: set[int] = set()
        #: message id -> its last payload
        self._payloads: dict[int, bytes] = {}
        #: numbers of messages that the broker repeated after PUBREL, with DUP and the same message id
        self.repeated: list[int] = []
        #: numbers in the order of PUBREL
        self.released: list[int] = []
        #: by number, the packets of QoS 2 that arrived, in order
        self.history: defaultdict[int, list[str]] = defaultdict(list)
        self._seen: set[bytes] = set()
        self._client: RawClient | None = None

    def connect(self, port: int) -> None:
        self._client = client = RawClient(port, self.client_id, clean=False, level=self.level)
        session_present = _accepted(client, self.timeout)
        assert session_present or not self.connections, "the session must have survived"
        self.connections += 1
        if self.connections == 1:
            assert client.subscribe((self.topic_filter, self.requested_qos)) == (self.qos,)

    def step(self, timeout: float = PATIENCE) -> None:
        """Process received packets. Raises ConnectionClosed, or TimeoutError if nothing arrived."""
        client = self._client
        assert client is not None
        if not client.inbox:
            client.fill(timeout)
        answers: list[Packet] = []
        while client.inbox:
            packet = client.inbox.popleft()
            if type(packet) is Publish:
                assert packet.qos == self.qos, packet
                if packet.payload in self._seen and not packet.dup:
                    self.undeclared.append(number_of(packet.payload))
                self._seen.add(packet.payload)
                if packet.qos == 1:
                    self._deliver(packet)
                    answers.append(Puback(packet.packet_id))
                else:
                    self._note(packet.payload, f"PUBLISH {packet.packet_id}{' with DUP' if packet.dup else ''}")
                    if packet.packet_id not in self._not_released:
                        self._not_released.add(packet.packet_id)
                        repeated = packet.dup and self._payloads.get(packet.packet_id) == packet.payload
                        if repeated:
                            self.repeated.append(number_of(packet.payload))
                        if not (repeated and self._of_mosquitto):
                            self._deliver(packet)
                        self._payloads[packet.packet_id] = packet.payload
                    answers.append(Pubrec(packet.packet_id))
            elif type(packet) is Pubrel:
                if packet.packet_id in self._payloads:
                    self._note(self._payloads[packet.packet_id], f"PUBREL {packet.packet_id}")
                if packet.packet_id in self._not_released:
                    self._not_released.discard(packet.packet_id)
                    self.released.append(number_of(self._payloads[packet.packet_id]))
                answers.append(Pubcomp(packet.packet_id))
            elif type(packet) is Disconnect:  # the server shuts down, MQTT 5
                raise ConnectionClosed
            else:
                raise AssertionError(f"unexpected {packet}")
        if answers:
            client.send(*answers)

    def _note(self, payload: bytes, packet: str) -> None:
        self.history[number_of(payload)].append(f"{packet} on connection {self.connections}")

    def _deliver(self, packet: Publish) -> None:
        number = number_of(packet.payload)
        self.received.append((packet.topic, number))
        self.numbers.add(number)

    @property
    def published_twice(self) -> list[int]:
        """Return numbers of messages of which the bridge accepted more than one copy of the publisher."""
        copies = Counter(number_of(payload) for payload in self._seen)
        return [number for number, count in copies.items() if count > 1]

    def close(self) -> None:
        if self._client is not None:
            self._client.vanish()


def number_of(payload: bytes | str) -> int:
    """Return the number of a message, from its payload."""
    return int(float(payload))


def first_deliveries(received: list[tuple[str, int]]) -> dict[str, list[int]]:
    """Return, by topic, the numbers in the order of their first arrival."""
    by_topic: dict[str, dict[int, None]] = {}
    for topic, number in received:
        by_topic.setdefault(topic, {})[number] = None
    return {topic: list(numbers) for topic, numbers in by_topic.items()}


def repeated(received: list[tuple[str, int]]) -> list[int]:
    """Return numbers that arrived more than once."""
    numbers_before: set[int] = set()
    again: deque[int] = deque()
    for _, number in received:
        if number in numbers_before:
            again.append(number)
        numbers_before.add(number)
    return list(again)
