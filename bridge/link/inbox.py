"""Publications that a link has received and its worker has not taken or acknowledged."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from bridge.mqtt.packets import PacketType
from bridge.mqtt.writer import encode_acknowledgement
from bridge.telemetry.message import Received

# Enum member access is slow, so bind once.
_PUBACK, _PUBREC, _PUBCOMP = PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP

QUEUED_BYTES = 16 << 20
"""Payload bytes in the queue at which the link stops reading."""


class Inbox:
    """Queues publications for the worker, and tracks the packet identifiers to acknowledge.

    Flow control: the link stops reading if `room` returns 0.
    """

    def __init__(self, limit: int, on_arrival: Callable[[], None] = lambda: None) -> None:
        self._limit = limit
        self._on_arrival = on_arrival
        self._changed = threading.Condition()
        self._queue: deque[Received] = deque()
        self._bytes = 0
        #: number of QoS 0 publications in the queue. Publications with QoS 1 and 2 are in `_owed`
        self._unconfirmed = 0
        #: packet identifiers of this connection that require PUBACK or PUBREC
        self._owed: set[int] = set()
        self._released: list[int] = []
        #: packet identifiers of this connection that require PUBCOMP
        self._completing: set[int] = set()
        self._interrupted = False
        self._ended = False
        self.generation = 0
        self.session_present: bool | None = None

    # On the network thread -------------------------------------------------------------------------------------------

    def begin(self, generation: int, session_present: bool, *, dropping: bool) -> None:
        """Start a new accepted connection. Acknowledgements for the previous connection are dropped.

        `dropping` means that the broker sends unacknowledged publications again. Otherwise it does not, so they are kept in
        the queue and need no acknowledgement.
        """
        with self._changed:
            if dropping:
                messages = [received for received in self._queue if not received.qos]
            else:
                messages = [
                    Received(received.publication, 0, 0, received.dup, received.generation)
                    if received.qos
                    else received
                    for received in self._queue
                ]
            self._queue = deque(messages)
            self._bytes = sum(len(received.publication.payload) for received in messages)
            self._unconfirmed = len(messages)
            self._owed.clear()
            self._released.clear()
            self._completing.clear()
            self.generation = generation
            self.session_present = session_present
            # Report the session to a waiting worker.
            self._interrupted = True
            self._changed.notify_all()
        self._on_arrival()

    def put(self, received: list[Received]) -> None:
        """Queue received publications."""
        with self._changed:
            self._queue.extend(received)
            for message in received:
                self._bytes += len(message.publication.payload)
                if message.qos:
                    self._owed.add(message.packet_id)
                else:
                    self._unconfirmed += 1
            self._changed.notify()
        self._on_arrival()

    def put_released(self, packet_ids: list[int]) -> None:
        """Queue the packet identifiers of received PUBRELs."""
        with self._changed:
            self._released += packet_ids
            self._completing.update(packet_ids)
            self._changed.notify()
        self._on_arrival()

    def room(self) -> int:
        """Return how many more publications may be read."""
        with self._changed:
            if self._bytes >= QUEUED_BYTES:
                return 0
            return max(self._limit - self._unconfirmed - len(self._owed), 0)

    def end(self) -> None:
        """Stop. Nothing can be taken afterwards."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._on_arrival()

    # On the worker's thread ------------------------------------------------------------------------------------------

    def take(self, messages: int, size: int, wait: float) -> list[Received]:
        """Implement LinkConnection.take."""
        with self._changed:
            if not self._ready():
                self._changed.wait_for(self._ready, wait)
            self._interrupted = False
            batch: list[Received] = []
            if self._ended:
                return batch
            queue = self._queue
            room = size
            while queue and len(batch) < messages:
                length = len(queue[0].publication.payload)
                if length > room and batch:
                    break
                room -= length
                received = queue.popleft()
                self._bytes -= length
                if not received.qos:
                    self._unconfirmed -= 1
                batch.append(received)
            return batch

    def _ready(self) -> bool:
        return bool(self._queue or self._released or self._interrupted or self._ended)

    def interrupt(self) -> None:
        """Make the current or next take() return."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()
        self._on_arrival()

    def released(self) -> list[int]:
        """Implement LinkConnection.released."""
        with self._changed:
            released, self._released = self._released, []
            return released

    def acknowledge(self, received: Sequence[Received]) -> tuple[int, list[bytes]]:
        """Return the connection's generation and the acknowledgements of its publications."""
        packets = []
        with self._changed:
            for message in received:
                if message.qos and message.generation == self.generation and message.packet_id in self._owed:
                    self._owed.discard(message.packet_id)
                    packets.append(encode_acknowledgement(_PUBACK if message.qos == 1 else _PUBREC, message.packet_id))
            return self.generation, packets

    def complete(self, packet_ids: Sequence[int]) -> tuple[int, list[bytes]]:
        """Return the connection's generation and the PUBCOMP packets for its PUBRELs."""
        with self._changed:
            known_ids = [packet_id for packet_id in packet_ids if packet_id in self._completing]
            self._completing.difference_update(known_ids)
            return self.generation, [encode_acknowledgement(_PUBCOMP, packet_id) for packet_id in known_ids]
