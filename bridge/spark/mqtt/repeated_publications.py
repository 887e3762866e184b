"""Publications of QoS 1 that a broker repeats, known by the numbers that it gives them.

A message id alone says nothing: once acknowledged it may be that of another publication, and that one comes with DUP too
where its first copy was lost on the way. A broker that numbers in sequence (mosquitto does) gives an id again 65,535
publications later only, so one of the last ids with DUP and the same content is the publication that has come already.
That it does so is seen, not believed: a broker that takes the lowest free id, or the one that was freed last, when it
sends, cannot have a run of successive ids that is longer than what it has unacknowledged at once. (One that takes the
lowest free id for what it queues can; it gives those below first, and they break the run.) Whatever does not fit the
sequence begins a new run, and all before it counts as unknown; a publication that is not known is a row, perhaps a
second one. No rule is that repetitions come before all else: MQTT orders them among themselves (MQTT-4.6.0-1) only.

Contents are compared by digests of the rows themselves, which are made when something comes with DUP, and when a file of
the spool gives way to the next.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec
import pyarrow.compute as pc

#: Message ids are 1 to this, and so many publications at most are unacknowledged (MQTT 3.1.1, section 2.3.1).
LAST_ID: Final = 65_535
#: The newest publications of a run that are looked at, far less than LAST_ID: no id among them is there twice.
REMEMBERED: Final = 20_000
#: However few may be unacknowledged at once: a shorter run could be chance.
LEAST_BOUND: Final = 20
_DIGEST_BYTES: Final = 16
#: Of a publication that is only counted, because its QoS is 2.
COUNTED: Final = bytes(_DIGEST_BYTES)
#: What a broker sends alike when it repeats a publication: expiry runs down.
_CONTENT: Final = (
    "topic", "payload", "retain", "properties", "response_topic", "correlation_data", "content_type", "payload_format",
)  # fmt: skip

_encode = msgspec.msgpack.Encoder().encode


def digests_of(batch: Any) -> list[bytes]:
    """Return digests of the content of each row of envelopes that has QoS 1 or 2 and so a message id."""
    batch = batch.filter(pc.greater(batch.column("qos"), 0))
    contents = zip(*(batch.column(name).to_pylist() for name in _CONTENT), strict=True)
    rows = zip(batch.column("qos").to_pylist(), contents, strict=True)
    return [
        COUNTED if qos == 2 else blake2b(_encode(content), digest_size=_DIGEST_BYTES).digest()
        for qos, content in rows
    ]


class Run(msgspec.Struct, array_like=True, frozen=True):
    """What a frame of a spool has of the run of message ids that its rows end with."""

    #: most publications that could be unacknowledged at once while it lasted
    bound: int
    #: newest message id
    last: int
    #: publications, also those of frames before
    length: int
    #: in the first frame of a file: of the newest rows before it with QoS 1 and 2
    digests: list[bytes]


class RepeatedPublications:
    """Finds out which publications repeat a row, by the message ids of a session, QoS 1 and 2. For one thread."""

    def __init__(self) -> None:
        self._bound = self._allowed = LAST_ID
        self._last = self._length = 0
        #: how many have come since the last frame
        self._new = 0

    def allow(self, unacknowledged: int) -> None:
        """Note that the broker has at most so many unacknowledged at once from now on; 65,535 where nothing limits it."""
        self._allowed = max(unacknowledged, LEAST_BOUND)
        # A run under way is as long as it is because of what was allowed before.
        self._bound = max(self._bound, self._allowed) if self._length else self._allowed

    @property
    def reach(self) -> int:
        """Return how many of the newest of the run a repetition can be of: more cannot be unacknowledged."""
        return min(self._bound, REMEMBERED, self._length)

    def add(self, message_id: int) -> None:
        """Add a publication that becomes a row."""
        if message_id != self._last % LAST_ID + 1 or not self._length:
            self.forget()
        self._last = message_id
        self._length += 1
        self._new += 1

    def find(self, message_id: int) -> int | None:
        """Return the only row that a publication with DUP can repeat: how many with QoS 1 and 2 are written behind it.

        None: the broker is not seen to number in sequence, or there is no such row.
        """
        if self._length <= self._bound:
            return None
        back = (self._last - message_id) % LAST_ID
        return back - self._new if self._new <= back < self.reach else None

    def forget(self) -> bool:
        """Let the next publication begin a new run; return whether there was one."""
        known = self._length > 0
        self._bound, self._last, self._length, self._new = self._allowed, 0, 0, 0
        return known

    def written(self, digests: list[bytes]) -> Run:
        """Return the run for the frame that has all that was added; with the digests for the first of a file, else none."""
        self._new = 0
        return Run(self._bound, self._last, self._length, digests)

    def recall(self, run: Run) -> None:
        """Take up the run that the last frame has."""
        self._bound, self._last, self._length, self._new = run.bound, run.last, run.length, 0
