"""The destination queues of a mapping that accept no messages, and which messages wait for each."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator

import msgspec

from bridge.mq.message_producer import name_of
from bridge.service.mappings.status import LOOK_AHEAD, BlockedQueue
from bridge.telemetry.message import Destination
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class _Blocked(msgspec.Struct):
    """A blocked queue."""

    destination: Destination
    reason: int
    #: seconds since the epoch
    since: float
    #: MsgTokens of the messages that wait for it, in order
    tokens: deque[bytes]
    #: how often it has rejected the first of them
    refusals: int = 0
    #: time.monotonic() of the next attempt
    retry_at: float = 0.0


class BlockedQueues:
    """The blocked queues of one mapping. Its messages stay on their source: only their MsgTokens are kept here."""

    def __init__(self, mapping: str, first_retry: float, longest_retry: float) -> None:
        """`first_retry` and `longest_retry` are the seconds between attempts: first, and at most."""
        self._mapping = mapping
        self._first_retry, self._longest_retry = first_retry, longest_retry
        self._queues: dict[Destination, _Blocked] = {}
        self._waiting = 0
        self._full_logged = False

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def waiting(self) -> int:
        """The number of messages that wait."""
        return self._waiting

    @property
    def full(self) -> bool:
        """Whether no further message may be looked at: LOOK_AHEAD messages wait. Logged once."""
        if self._waiting < LOOK_AHEAD:
            return False
        if not self._full_logged:
            self._full_logged = True
            log.warning(
                "MQB5009W mapping %s: %d messages wait for blocked queues, the maximum; all later messages wait, too",
                self._mapping,
                self._waiting,
            )
        return True

    def block(self, destination: Destination, reason: int) -> None:
        """Note that a queue rejected a message. Its next attempt is later than the one before."""
        queue = self._queues.get(destination)
        if queue is None:
            queue = self._queues[destination] = _Blocked(destination, reason, time.time(), deque())
            log.warning(
                "MQB5007W mapping %s: %s accepts no messages: %s; messages for other destinations go on",
                self._mapping, name_of(destination), _in_words(reason),
            )  # fmt: skip
        queue.reason = reason
        pause = min(self._first_retry * 4 ** min(queue.refusals, 10), self._longest_retry)
        queue.refusals += 1
        queue.retry_at = time.monotonic() + pause

    def wait_for(self, destination: Destination, token: bytes) -> bool:
        """Let a message wait if its queue is blocked; return whether it is."""
        queue = self._queues.get(destination)
        if queue is None:
            return False
        queue.tokens.append(token)
        self._waiting += 1
        return True

    def due(self) -> Iterator[Destination]:
        """Yield the queues to try again now."""
        now = time.monotonic()
        for queue in [queue for queue in self._queues.values() if queue.retry_at <= now]:
            yield queue.destination

    @property
    def next_retry(self) -> float:
        """Seconds until the next attempt."""
        return max(0.0, min(queue.retry_at for queue in self._queues.values()) - time.monotonic())

    def first(self, destination: Destination) -> tuple[bytes, int] | None:
        """Return the MsgToken of the first message that waits for a queue, and how often the queue has rejected it."""
        queue = self._queues[destination]
        return (queue.tokens[0], queue.refusals) if queue.tokens else None

    def moved(self, destination: Destination) -> None:
        """Note that the first message waits no longer."""
        queue = self._queues[destination]
        queue.tokens.popleft()
        queue.refusals = 0
        self._waiting -= 1

    def unblock(self, destination: Destination) -> None:
        """Note that nothing waits for a queue any longer."""
        del self._queues[destination]
        self._full_logged = self._full_logged and bool(self._queues)
        log.info("MQB5008I mapping %s: %s accepts messages again", self._mapping, name_of(destination))

    def forget_messages(self) -> None:
        """Forget which messages wait: the source is browsed again from the front."""
        for queue in self._queues.values():
            queue.tokens.clear()
        self._waiting = 0

    def listed(self) -> list[BlockedQueue]:
        """Return the queues for people."""
        return [
            BlockedQueue(
                queue=queue.destination.name,
                queue_manager=queue.destination.queue_manager,
                reason=_in_words(queue.reason),
                waiting=len(queue.tokens),
                since=queue.since,
            )
            for queue in self._queues.values()
        ]


def _in_words(reason: int) -> str:
    return f"{cmqc.reason_name(reason)} ({reason})"
