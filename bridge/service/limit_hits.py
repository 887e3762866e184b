"""The limits that were reached: for the list of problems, and for metrics."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Final

import msgspec

#: Seconds after the last rejection by a limit at which its problem ends.
CALM: Final = 60.0
#: The limits that are counted, so that their counters exist from the start. MAXDEPTH is that of the transmission queue.
LIMITS: Final = (
    "waiting_bytes",
    "waiting_total",
    "MAXDEPTH",
    "dead_letter_bytes",
    "dead_letter_total",
    "retained_bytes",
    "retained_total",
)
#: The maximum number of names kept for a limit.
_NAMES: Final = 100


class Hit(msgspec.Struct):
    """A limit that is being reached."""

    #: the first and the last time, in seconds since the epoch
    since: float
    last: float
    #: number of messages or requests that were affected
    number: int = 0
    #: who was affected, the latest one at the end
    subjects: dict[str, None] = {}


class LimitHits:
    """Counts what the limits of the configuration have rejected. Methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: by limit, which is an option of `limits`, or MAXDEPTH
        self._hits: dict[str, Hit] = {}
        self._totals = Counter(dict.fromkeys(LIMITS, 0))

    def note(self, limit: str, subject: str, number: int = 1) -> None:
        """Count a number of messages or requests of a client, share, user or mapping that a limit affected."""
        now = time.time()
        with self._lock:
            hit = self._hits.get(limit)
            if hit is None or now - hit.last > CALM:
                hit = self._hits[limit] = Hit(now, now)
            hit.last = now
            hit.number += number
            hit.subjects.pop(subject, None)
            hit.subjects[subject] = None
            if len(hit.subjects) > _NAMES:
                del hit.subjects[next(iter(hit.subjects))]
            self._totals[limit] += number

    def current(self) -> dict[str, Hit]:
        """Return the limits that were reached in the last minute."""
        now = time.time()
        with self._lock:
            self._hits = {limit: hit for limit, hit in self._hits.items() if now - hit.last <= CALM}
            return {
                limit: msgspec.structs.replace(hit, subjects=dict(hit.subjects)) for limit, hit in self._hits.items()
            }

    def totals(self) -> dict[str, int]:
        """Return how many messages or requests each limit has affected since the start."""
        with self._lock:
            return dict(self._totals)
