"""The queue manager and its queues, inspected in a thread of its own at intervals, for problems and for metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from bridge.config import Configuration
from bridge.config.mapping import ToMqttMapping
from bridge.config.queue_manager import MAPPING_STATE_QUEUE, STATE_QUEUE
from bridge.mq.host import Host, QueueManagerStatus
from bridge.mq.mqi import MQError
from bridge.service.diverted_messages import DivertedMessages

log = logging.getLogger(__name__)

#: Seconds between inspections.
INTERVAL: Final = 15.0
#: Seconds that a scrape waits for an inspection, and for which older findings are shown if it does not end.
_WAIT: Final = 2.0
_STALE: Final = 60.0


class QueueManagerWatch:
    """What is known of the queue manager of a host. Called on the event loop; a thread inspects the queues."""

    def __init__(self, host: Host, configuration: Callable[[], Configuration]) -> None:
        #: the ages of messages are wanted, too
        self.ages = False
        self._host = host
        self._configuration = configuration
        self._inquiry = host.inquiry()
        self._loop = asyncio.get_running_loop()
        #: queues to inspect; None ends the thread
        self._asked: SimpleQueue[Sequence[str] | None] = SimpleQueue()
        # A daemon: a queue manager that does not answer must not keep the bridge from ending.
        self._thread = threading.Thread(target=self._run, name="queue manager watch", daemon=True)
        self._looked = asyncio.Event()
        self._looked.set()
        #: when `status` has asked for an inspection
        self._asked_at = -_STALE
        self._found: QueueManagerStatus | None = None
        self._found_at = -_STALE
        self._timer: asyncio.TimerHandle | None = None
        self._diverted: DivertedMessages | None = None
        self._thread.start()

    def begin(self) -> None:
        """Report problems from now on: the transmission queue is this bridge's."""
        self._diverted = DivertedMessages()
        self._inspect_regularly()

    @property
    def problems(self) -> list[str]:
        """What makes messages for clients go to the dead-letter queue, in words."""
        return [] if self._diverted is None else self._diverted.problems

    async def status(self) -> QueueManagerStatus | None:
        """Return the latest findings, after another inspection if it is time for one; None if they are too old."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT):
                # One that is under way may have begun before what the caller wants to see.
                await self._looked.wait()
                if time.monotonic() - self._asked_at >= self._inquiry.interval:
                    self._asked_at = time.monotonic()
                    self._inspect()
                    await self._looked.wait()
        if not self._looked.is_set() and time.monotonic() - self._found_at > _STALE:
            return None
        return self._found

    def _inspect_regularly(self) -> None:
        self._timer = self._loop.call_later(INTERVAL, self._inspect_regularly)
        self._inspect()

    def _inspect(self) -> None:
        if self._looked.is_set():
            self._looked.clear()
            self._asked.put(queues_of(self._configuration(), self._host.dead_letter_queue))

    def _run(self) -> None:
        away = False
        while (names := self._asked.get()) is not None:
            found = None
            try:
                found = self._inquiry.look(names, ages=self.ages)
                away = False
            except MQError as error:
                if not away:
                    log.warning("MQB9101W queues are not inspected until the queue manager answers: %s", error)
                away = True
            except Exception:
                log.exception("MQB9102E inspecting the queues failed")
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._set, found)
        self._inquiry.close()

    def _set(self, found: QueueManagerStatus | None) -> None:
        self._found, self._found_at = found, time.monotonic()
        self._looked.set()
        if found is not None and self._diverted is not None:
            self._diverted.review(found, self._configuration().transmission_queue, self._found_at)

    def stop(self) -> None:
        """End the thread after the inspection that is under way."""
        if self._timer is not None:
            self._timer.cancel()
        self._asked.put(None)


def queues_of(configuration: Configuration, dead_letter_queue: str) -> list[str]:
    """Return the queues that matter to a bridge: its own, and those that its mappings name as a whole."""
    found = [configuration.transmission_queue, STATE_QUEUE, dead_letter_queue]
    if configuration.mappings or configuration.pipelines:
        found.append(MAPPING_STATE_QUEUE)
    for mapping in configuration.mappings.values():
        side = mapping.source if isinstance(mapping, ToMqttMapping) else mapping.destination
        if side.queue is not None and "{" not in side.queue:
            found.append(side.queue)
        if side.requests_queue is not None:
            found.append(side.requests_queue)
    return list(dict.fromkeys(filter(None, found)))
