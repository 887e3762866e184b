"""The queue manager and its queues, looked at in a thread of its own, and only when somebody asks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Final

from bridge.config import Configuration
from bridge.config.mapping import ToMqttMapping
from bridge.config.queues import MAPPING_STATE_QUEUE, STATE_QUEUE
from bridge.mq.errors import MQError
from bridge.mq.host import Host
from bridge.mq.queue_manager_status import QueueManagerStatus
from bridge.service.metrics.samples import Samples

log = logging.getLogger(__name__)

#: Seconds that a scrape waits for a look, and for which what was found is shown where the next look does not end.
_WAIT: Final = 2.0
_STALE: Final = 60.0
#: MQQMSTA_RUNNING, and what stands for a queue manager that does not answer.
_RUNNING: Final = 2
_AWAY: Final = 0
#: As mq-metric-samples has it of a queue manager on Linux.
_PLATFORM: Final = "UNIX"


class QueueManagerWatch:
    """What is known of the queue manager of a host. Called on the event loop; the looks are a thread's."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._inquiry = host.inquiry()
        self._loop = asyncio.get_running_loop()
        #: queues to look at; None ends the thread
        self._asked: SimpleQueue[Sequence[str] | None] = SimpleQueue()
        # A daemon: what a queue manager does not answer does not keep the bridge from ending.
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._looked = asyncio.Event()
        self._looked.set()
        self._looked_at = -_STALE
        self._found: QueueManagerStatus | None = None
        self._found_at = -_STALE
        self._thread.start()

    async def gather(self, samples: Samples, configuration: Configuration) -> None:
        """Add what the last look has found, after another one where it is time for that."""
        if self._looked.is_set() and time.monotonic() - self._looked_at >= self._inquiry.interval:
            self._looked.clear()
            self._asked.put(queues_of(configuration, self._host.dead_letter_queue))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT):
                await self._looked.wait()
        found = self._found
        if found is not None and not self._looked.is_set() and time.monotonic() - self._found_at > _STALE:
            found = None
        manager = self._host.name, _PLATFORM
        samples.add("ibmmq_qmgr_status", _AWAY if found is None else _RUNNING, *manager)
        if found is not None:
            _add(samples, found, manager, configuration.transmission_queue)

    def _run(self) -> None:
        away = False
        while (names := self._asked.get()) is not None:
            found = None
            try:
                found = self._inquiry.look(names)
                away = False
            except MQError as error:
                if not away:
                    log.warning("MQB9101W metrics of queues are left out until the queue manager answers: %s", error)
                away = True
            except Exception:
                log.exception("MQB9102E metrics of queues are left out: they cannot be had")
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._set, found)
        self._inquiry.close()

    def _set(self, found: QueueManagerStatus | None) -> None:
        self._found, self._found_at = found, time.monotonic()
        self._looked_at = self._found_at
        self._looked.set()

    def stop(self) -> None:
        """End the thread, once the look under way has ended."""
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


def _add(samples: Samples, found: QueueManagerStatus, manager: tuple[str, str], transmission_queue: str) -> None:
    for queue in found.queues:
        labels = (*manager, queue.name, "XMITQ" if queue.transmission else "NORMAL")
        age = queue.oldest_message_age if queue.depth else 0.0
        samples.add("ibmmq_queue_depth", queue.depth, *labels)
        samples.add("ibmmq_queue_attribute_max_depth", queue.max_depth, *labels)
        samples.add("ibmmq_queue_input_handles", queue.input_handles, *labels)
        samples.add("ibmmq_queue_output_handles", queue.output_handles, *labels)
        if age is not None:
            samples.add("ibmmq_queue_oldest_message_age", age, *labels)
        if queue.name != transmission_queue:
            continue
        samples.add("mqbridge_transmission_queue_depth", queue.depth)
        samples.add("mqbridge_transmission_queue_max_depth", queue.max_depth)
        if age is not None:
            samples.add("mqbridge_transmission_queue_oldest_message_age_seconds", age)
    samples.add("mqbridge_queues_left_out", found.left_out)
    if found.retained is not None:
        samples.add("mqbridge_retained_publications", found.retained)
    if found.disk_full is not None:
        samples.add("mqbridge_disk_full", found.disk_full)
    for what, size in found.file_sizes.items():
        samples.add("mqbridge_recovery_log_file_bytes", size, what)
