"""What has come from the broker and is not taken or not answered yet: between the network thread and a worker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from bridge.mqtt.packets import PacketType
from bridge.mqtt.writer import encode_acknowledgement
from bridge.telemetry.message import Received

# Members of an enumeration take long to get.
_PUBACK, _PUBREC, _PUBCOMP = PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP

QUEUED_BYTES = 16 << 20
"""Payload bytes that may wait to be taken before reading stops."""


class Inbox:
    """Publications wait here for the worker, and message ids for their answers. Bounded by not reading on."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._queue: deque[Received] = deque()
        self._bytes = 0
        #: how many of the queue have QoS 0; those of QoS 1 and 2 are in `_owed`
        self._unconfirmed = 0
        #: message ids of this connection that are to be answered with PUBACK or PUBREC
        self._owed: set[int] = set()
        self._released: list[int] = []
        #: message ids of this connection that are to be answered with PUBCOMP
        self._completing: set[int] = set()
        self._interrupted = False
        self._ended = False
        self.generation = 0
        self.session_present: bool | None = None

    # On the network thread -------------------------------------------------------------------------------------------

    def begin(self, generation: int, session_present: bool) -> None:
        """Begin with a connection that is accepted: answers to the one before are no longer asked for.

        With the session still there, what is not taken comes again. Without it, it never does: it stays, and nothing is
        owed for it.
        """
        with self._changed:
            if session_present:
                kept = [received for received in self._queue if not received.qos]
            else:
                kept = [
                    Received(received.publication, 0, 0, received.dup, received.generation)
                    if received.qos
                    else received
                    for received in self._queue
                ]
            self._queue = deque(kept)
            self._bytes = sum(len(received.publication.payload) for received in kept)
            self._unconfirmed = len(kept)
            self._owed.clear()
            self._released.clear()
            self._completing.clear()
            self.generation = generation
            self.session_present = session_present
            # A worker that waits learns of the session.
            self._interrupted = True
            self._changed.notify_all()

    def put(self, received: list[Received]) -> None:
        """Queue publications that have come."""
        with self._changed:
            self._queue.extend(received)
            for one in received:
                self._bytes += len(one.publication.payload)
                if one.qos:
                    self._owed.add(one.mid)
                else:
                    self._unconfirmed += 1
            self._changed.notify()

    def put_released(self, mids: list[int]) -> None:
        """Queue the message ids of PUBRELs that have come."""
        with self._changed:
            self._released += mids
            self._completing.update(mids)
            self._changed.notify()

    def room(self) -> int:
        """Return how many more publications may be read."""
        with self._changed:
            if self._bytes >= QUEUED_BYTES:
                return 0
            return max(self._limit - self._unconfirmed - len(self._owed), 0)

    def end(self) -> None:
        """End: nothing is taken any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # On the worker's thread ------------------------------------------------------------------------------------------

    def take(self, messages: int, size: int, wait: float) -> list[Received]:
        """Take publications as LinkConnection.take does."""
        with self._changed:
            if not self._ready():
                self._changed.wait_for(self._ready, wait)
            self._interrupted = False
            taken: list[Received] = []
            if self._ended:
                return taken
            queue = self._queue
            left = size
            while queue and len(taken) < messages:
                length = len(queue[0].publication.payload)
                if length > left and taken:
                    break
                left -= length
                received = queue.popleft()
                self._bytes -= length
                if not received.qos:
                    self._unconfirmed -= 1
                taken.append(received)
            return taken

    def _ready(self) -> bool:
        return bool(self._queue or self._released or self._interrupted or self._ended)

    def interrupt(self) -> None:
        """Make the take() under way, or the next one, return."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def released(self) -> list[int]:
        """Return the message ids of PUBRELs as LinkConnection.released does."""
        with self._changed:
            released, self._released = self._released, []
            return released

    def acknowledge(self, received: Sequence[Received]) -> tuple[int, list[bytes]]:
        """Return the generation of this connection, and the packets that answer its publications."""
        packets = []
        with self._changed:
            for one in received:
                if one.qos and one.generation == self.generation and one.mid in self._owed:
                    self._owed.discard(one.mid)
                    packets.append(encode_acknowledgement(_PUBACK if one.qos == 1 else _PUBREC, one.mid))
            return self.generation, packets

    def complete(self, mids: Sequence[int]) -> tuple[int, list[bytes]]:
        """Return the generation of this connection, and the PUBCOMP packets for those PUBRELs that came on it."""
        with self._changed:
            known = [mid for mid in mids if mid in self._completing]
            self._completing.difference_update(known)
            return self.generation, [encode_acknowledgement(_PUBCOMP, mid) for mid in known]
