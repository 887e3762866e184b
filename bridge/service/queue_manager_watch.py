"""Periodic inspections of the queue manager and its queues, for problem reports and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from bridge.config.mapping import ToMqttMapping
from bridge.config.models import Configuration
from bridge.config.queue_manager import MAPPING_STATE_QUEUE, SET_ASIDE_QUEUE, SHARE_MEMBERS_QUEUE
from bridge.mq.dead_letter import dead_letters_made
from bridge.mq.host import Host, QueueManagerStatus
from bridge.mq.mqi import MQError

#: Seconds without growth after which the dead-letter queue is no longer reported.
QUIET_PERIOD: Final = 60.0


class DivertedMessages:
    """Counts messages on the dead-letter queue that this bridge did not put, by comparing inspections of the queue.

    IBM MQ moves messages for clients there if a subscription's destination accepts none (USEDLQ(YES)), without notifying the
    publisher. Source: IBM MQ documentation, "USEDLQ" of DEFINE TOPIC, "Dead-letter queues".
    """

    def __init__(self) -> None:
        #: messages put by others, or 0 again after a minute without growth
        self.number = 0
        self._grown_at = 0.0
        self._depth: int | None = None
        self._made = dead_letters_made()
        #: this process's dead-lettered messages that may be committed after the last inspection
        self._own = 0

    def review(self, status: QueueManagerStatus, now: float) -> None:
        """Compare an inspection with the previous one. `now` is monotonic time in seconds."""
        if not status.diverts_silently:
            return
        queue = next(
            (queue_status for queue_status in status.queues if queue_status.name == status.dead_letter_queue), None
        )
        before, self._depth = self._depth, None if queue is None else queue.depth
        made_before, self._made = self._made, dead_letters_made()
        if queue is None or before is None:
            return
        own_dead_letters, growth = self._made - made_before, queue.depth - before
        own = self._own + own_dead_letters
        # The unit of work of a dead-lettered message may end after this inspection.
        self._own = min(own_dead_letters, max(own - max(growth, 0), 0))
        by_others = growth - own
        if by_others > 0:
            self.number += by_others
            self._grown_at = now
        elif self.number and now - self._grown_at >= QUIET_PERIOD:
            self.number = 0


log = logging.getLogger(__name__)

#: Seconds between inspections.
INTERVAL: Final = 15.0
#: Maximum time that a scrape waits for an inspection, and for which older results may be used instead, in seconds.
_WAIT: Final = 2.0
_STALE: Final = 60.0


class QueueManagerWatch:
    """The status of the queue manager. Methods are called on the event loop. A thread inspects the queues."""

    def __init__(self, host: Host, configuration: Callable[[], Configuration]) -> None:
        #: whether message ages are required, too
        self.ages = False
        self._host = host
        self._configuration = configuration
        self._inquiry = host.inquiry()
        self._loop = asyncio.get_running_loop()
        #: the queues to inspect; None stops the thread
        self._requests: SimpleQueue[Sequence[str] | None] = SimpleQueue()
        # A daemon thread, so that a queue manager that does not answer cannot keep the bridge from ending.
        self._thread = threading.Thread(target=self._run, name="queue manager watch", daemon=True)
        self._inspected = asyncio.Event()
        self._inspected.set()
        #: time of the last inspection requested by `status`
        self._requested_at = -_STALE
        self._found: QueueManagerStatus | None = None
        self._found_at = -_STALE
        self._timer: asyncio.TimerHandle | None = None
        self._diverted: DivertedMessages | None = None
        #: called on the event loop with each result
        self.on_status: Callable[[QueueManagerStatus], None] = lambda _status: None
        #: the depth of the dead-letter queue at the last inspection, or None before the first one
        self._dead_letters: int | None = None
        self._thread.start()

    def begin(self) -> None:
        """Start counting diverted messages: the transmission queue now belongs to this bridge."""
        self._diverted = DivertedMessages()
        self._inspect_regularly()

    @property
    def diverted(self) -> int:
        """The number of messages that the queue manager or applications have dead-lettered recently."""
        return 0 if self._diverted is None else self._diverted.number

    @property
    def latest(self) -> QueueManagerStatus | None:
        """The result of the last inspection, or None if it failed or is too old."""
        return self._found if time.monotonic() - self._found_at <= _STALE else None

    async def status(self) -> QueueManagerStatus | None:
        """Return the latest result, after a new inspection if the interval has passed, or None if the result is too old."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT):
                # A running inspection may have begun before the change that the caller wants to see.
                await self._inspected.wait()
                if time.monotonic() - self._requested_at >= self._inquiry.interval:
                    self._requested_at = time.monotonic()
                    self._inspect()
                    await self._inspected.wait()
        return self._found if self._inspected.is_set() else self.latest

    def _inspect_regularly(self) -> None:
        self._timer = self._loop.call_later(INTERVAL, self._inspect_regularly)
        self._inspect()

    def _inspect(self) -> None:
        if self._inspected.is_set():
            self._inspected.clear()
            self._requests.put(queues_of(self._configuration(), self._host.dead_letter_queue))

    def _run(self) -> None:
        away = False
        while (names := self._requests.get()) is not None:
            status = None
            try:
                status = self._inquiry.status(names, ages=self.ages)
                away = False
                if self._diverted is not None:
                    self._count_dead_letters(status)
            except MQError as error:
                if not away:
                    log.warning("MQB9101W queues are not inspected until the queue manager answers: %s", error)
                away = True
            except Exception:
                log.exception("MQB9102E inspecting the queues failed")
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._set, status)
        self._inquiry.close()

    def _count_dead_letters(self, status: QueueManagerStatus) -> None:
        """Count the bytes on the dead-letter queue again if an administrator may have removed messages.

        Raises MQError if the connection is lost.
        """
        name, room = self._host.dead_letter_queue or status.dead_letter_queue, self._host.dead_letter_room
        depth = next((queue.depth for queue in status.queues if queue.name == name), None)
        before, self._dead_letters = self._dead_letters, depth
        if depth is not None and (room.stale or before is None or depth < before):
            mappings = self._configuration().mappings.keys()
            if not room.try_scan(lambda: self._inquiry.count_dead_letters(room, mappings)):
                self._dead_letters = None

    def _set(self, status: QueueManagerStatus | None) -> None:
        self._found, self._found_at = status, time.monotonic()
        self._inspected.set()
        if status is not None:
            self.on_status(status)
        if status is not None and self._diverted is not None:
            self._diverted.review(status, self._found_at)

    def stop(self) -> None:
        """Stop the thread after the current inspection."""
        if self._timer is not None:
            self._timer.cancel()
        self._requests.put(None)


def queues_of(configuration: Configuration, dead_letter_queue: str) -> list[str]:
    """Return the queues that a bridge uses: its own, and the literal queue names of its mappings."""
    queues = [configuration.transmission_queue, configuration.queues.state, dead_letter_queue]
    if configuration.shard is not None:
        queues.append(SHARE_MEMBERS_QUEUE)
        if configuration.shard.number == 0:
            queues.append(configuration.queues.common_transmission)
    if configuration.mappings or configuration.pipelines:
        queues += [MAPPING_STATE_QUEUE, SET_ASIDE_QUEUE]
    for mapping in configuration.mappings.values():
        side = mapping.source if isinstance(mapping, ToMqttMapping) else mapping.destination
        if side.queue is not None and "{" not in side.queue:
            queues.append(side.queue)
        if side.requests_queue is not None:
            queues.append(side.requests_queue)
    return list(dict.fromkeys(filter(None, queues)))
