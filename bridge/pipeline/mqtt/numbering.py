"""Publications of QoS 1 that a broker repeats, known by the numbers that it gives them.

A message id alone says nothing: once acknowledged it may be that of another publication, and that one comes with DUP too
where its first copy was lost on the way. A broker that numbers in sequence (mosquitto does) gives an id again 65,535
publications later only, so one of the last ids with DUP and the same content is the publication that has come already.
That it does so is seen, not believed: a broker that takes the lowest free id, or the one that was freed last, when it
sends, cannot have a run of successive ids that is longer than what it has unacknowledged at once. (One that takes the
lowest free id for what it queues can; it gives those below first, and they break the run.) Whatever does not fit the
sequence begins a new run, and all before it counts as unknown; a publication that is not known is a row, perhaps a
second one. No rule is that repetitions come before all else: MQTT orders them among themselves (MQTT-4.6.0-1) only.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from itertools import islice
from typing import Final

import msgspec

from bridge.mapping.publication import Publication

#: Message ids are 1 to this, and so many publications at most are unacknowledged (MQTT 3.1.1, section 2.3.1).
LAST_ID: Final = 65_535
#: The newest publications of a run that are remembered, far less than LAST_ID: no id among them is there twice.
REMEMBERED: Final = 20_000
#: However few may be unacknowledged at once: a shorter run could be chance.
LEAST_BOUND: Final = 20
_DIGEST_BYTES: Final = 16
#: Of a publication that is only counted, because its QoS is 2.
_COUNTED: Final = bytes(_DIGEST_BYTES)

_encode = msgspec.msgpack.Encoder().encode


def digest_of(publication: Publication, link: str) -> bytes:
    """What a broker sends alike when it repeats a publication: all but expiry, which runs down.

    `link` is the name of the connection, which is its publisher where it tells none.
    """
    client_id = publication.client_id
    content = (
        publication.topic, publication.payload, publication.retain, publication.properties,
        "" if client_id == link else client_id, publication.hops, publication.response_topic,
        publication.correlation_data, publication.content_type, publication.payload_format,
    )  # fmt: skip
    return blake2b(_encode(content), digest_size=_DIGEST_BYTES).digest()


class Run(msgspec.Struct, array_like=True, frozen=True):
    """What a frame of a spool has of the run of message ids that its rows end with."""

    #: most publications that could be unacknowledged at once while it lasted
    bound: int
    #: newest message id
    last: int
    #: publications, also those of frames before
    length: int
    #: of the newest of them: the frame's own or, in the first frame of a file, all that are remembered
    digests: bytes


class Numbering:
    """The message ids of a session, of publications with QoS 1 and 2 as they become rows. For one thread."""

    def __init__(self) -> None:
        self._bound = self._allowed = LAST_ID
        self._last = self._length = 0
        self._digests: deque[bytes] = deque(maxlen=REMEMBERED)
        #: how many have come since the last frame
        self._new = 0

    def allow(self, unacknowledged: int) -> None:
        """From now on the broker has at most so many unacknowledged at once; 65,535 where nothing limits it."""
        self._allowed = max(unacknowledged, LEAST_BOUND)
        # A run under way is as long as it is because of what was allowed before.
        self._bound = max(self._bound, self._allowed) if self._length else self._allowed

    def add(self, message_id: int, digest: bytes = _COUNTED) -> None:
        """A publication becomes a row; one with QoS 2 has no digest, and is never known."""
        if message_id != self._last % LAST_ID + 1 or not self._length:
            self.forget()
        self._last = message_id
        self._length += 1
        self._digests.append(digest)
        self._new += 1

    def knows(self, message_id: int, digest: bytes) -> bool:
        """Whether a publication with QoS 1 and DUP is a row already, for certain."""
        if self._length <= self._bound:
            return False
        back = (self._last - message_id) % LAST_ID
        # More than `bound` cannot be unacknowledged: what is older is not what is repeated.
        return back < min(len(self._digests), self._bound) and self._digests[-1 - back] == digest

    def forget(self) -> bool:
        """The next publication begins a new run; whether there was one."""
        known = self._length > 0
        self._bound, self._last, self._length, self._new = self._allowed, 0, 0, 0
        self._digests.clear()
        return known

    def kept(self, *, whole: bool) -> Run:
        """For a frame, with what has come since the one before; `whole`: it is the first of its file."""
        count = len(self._digests)
        wanted = min(count, self._bound if whole else self._new)
        self._new = 0
        return Run(self._bound, self._last, self._length, b"".join(islice(self._digests, count - wanted, None)))

    def recall(self, run: Run) -> None:
        """What a frame has, one after the other from the first of a file on."""
        data = run.digests
        digests = [data[at : at + _DIGEST_BYTES] for at in range(0, len(data), _DIGEST_BYTES)]
        if len(digests) >= run.length:
            self._digests.clear()  # it began in this frame
        self._digests += digests
        self._bound, self._last, self._length, self._new = run.bound, run.last, run.length, 0
