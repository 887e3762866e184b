"""The limits that were reached: for the list of problems, and for metrics."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Final

import msgspec

#: Seconds without a rejection after which the problem of a limit ends.
QUIET_PERIOD: Final = 60.0
#: The limits that are counted, so that their counters exist from the start: options of `limits` and of channels, and the
#: following ones. MAXDEPTH is that of the transmission queue. `mapping_backlog` is `waiting_bytes` and `waiting_total` for a
#: mapping that reads a topic. `max_keys` belongs to `limit` and `changes` of a mapping. `shard` counts clients of other
#: shards. `application_requests` and `application_rate` are `requests` and `publish_rate` of an application. `open_files` is
#: the limit of the operating system.
LIMITS: Final = (
    "waiting_bytes",
    "waiting_total",
    "MAXDEPTH",
    "mapping_backlog",
    "dead_letter_bytes",
    "dead_letter_total",
    "max_keys",
    "retained_bytes",
    "retained_total",
    "pending_bytes",
    "request_bytes",
    "unreleased",
    "sessions",
    "sessions_per_user",
    "sessions_per_network",
    "subscribe_filters",
    "subscriptions",
    "subscriptions_per_user",
    "subscriptions_total",
    "max_clients",
    "max_clients_per_address",
    "connect_rate",
    "max_connect_size",
    "max_packet_size",
    "proxies",
    "shard",
    "application_requests",
    "application_rate",
    "open_files",
)
#: The maximum number of names kept for a limit.
_NAMES: Final = 100


class Hit(msgspec.Struct):
    """A limit that is being reached."""

    #: the first time, in seconds since the epoch
    since: float
    #: the last time, by time.monotonic()
    last: float
    #: number of messages or requests that were affected
    number: int = 0
    #: the affected clients, users or other subjects, the latest one last
    subjects: dict[str, None] = {}
    #: the channel of the latest subject, if the limit is an option of channels
    channel: str = ""


class LimitHits:
    """Counts the messages, requests and connections that limits have rejected. Methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hits: dict[str, Hit] = {}
        self._totals = Counter(dict.fromkeys(LIMITS, 0))

    def note(self, limit: str, subject: str, number: int = 1, channel: str = "") -> None:
        """Count messages, requests or connections that a limit rejected.

        `limit` is one of LIMITS, and `subject` a client, share, user, network, channel or mapping.
        """
        now = time.monotonic()
        with self._lock:
            hit = self._hits.get(limit)
            if hit is None or now - hit.last > QUIET_PERIOD:
                hit = self._hits[limit] = Hit(time.time(), now)
            hit.last = now
            hit.number += number
            hit.channel = channel
            hit.subjects.pop(subject, None)
            hit.subjects[subject] = None
            if len(hit.subjects) > _NAMES:
                del hit.subjects[next(iter(hit.subjects))]
            self._totals[limit] += number

    def current(self) -> dict[str, Hit]:
        """Return the limits that were reached in the last minute."""
        now = time.monotonic()
        with self._lock:
            self._hits = {limit: hit for limit, hit in self._hits.items() if now - hit.last <= QUIET_PERIOD}
            return {
                limit: msgspec.structs.replace(hit, subjects=dict(hit.subjects)) for limit, hit in self._hits.items()
            }

    def totals(self) -> dict[str, int]:
        """Return how many messages, requests or connections each limit has rejected since the start."""
        with self._lock:
            return dict(self._totals)
