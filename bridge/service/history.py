"""Rates and gauges of the last 24 hours, kept in memory for the console."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from bridge.administration.answers import History
from bridge.config import Configuration
from bridge.mq.host import Host
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.service.telemetry import TelemetryService

#: Seconds between samples, and number of samples kept: of the last 10 minutes, and of the last 24 hours.
INTERVAL: Final = 1.0
FINE: Final = 600
COARSE_INTERVAL: Final = 60.0
COARSE: Final = 1_440
#: Maximum number of points in an answer. Neighbouring samples are combined into one point.
MOST_POINTS: Final = 240


class Sample(msgspec.Struct, frozen=True):
    """The state of the bridge at one time. Message counts are totals since the start."""

    #: seconds since the epoch
    time: float
    published: int
    delivered: int
    clients: int
    sessions: int
    #: messages on the transmission queue and the dead-letter queue, or None if the queue manager does not answer
    backlog: int | None
    dead_letters: int | None


class HistoryRecorder:
    """Takes samples on the event loop of the bridge. `totals` returns the messages published by and delivered to clients."""

    def __init__(
        self,
        service: TelemetryService,
        totals: Callable[[], tuple[int, int]],
        watch: QueueManagerWatch,
        host: Host,
        configuration: Callable[[], Configuration],
    ) -> None:
        self._service = service
        self._totals = totals
        self._watch = watch
        self._host = host
        self._configuration = configuration
        self._fine: deque[Sample] = deque(maxlen=FINE + 1)
        self._coarse: deque[Sample] = deque(maxlen=COARSE + 1)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Take samples until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop taking samples."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            self.add(self._sample())
            await asyncio.sleep(INTERVAL)

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self._fine.append(sample)
        if not self._coarse or sample.time - self._coarse[-1].time >= COARSE_INTERVAL:
            self._coarse.append(sample)

    def _sample(self) -> Sample:
        status, (published, delivered) = self._watch.latest, self._totals()
        depths: dict[str, int] = {} if status is None else {one.name: one.depth for one in status.queues}
        dead_letter_queue = self._host.dead_letter_queue or ("" if status is None else status.dead_letter_queue)
        return Sample(
            time=time.time(),
            published=published,
            delivered=delivered,
            clients=len(self._service.clients),
            sessions=len(self._service.sessions),
            backlog=depths.get(self._configuration().transmission_queue),
            dead_letters=depths.get(dead_letter_queue),
        )

    def history(self, seconds: float, now: float) -> History:
        """Return the samples of the last seconds."""
        kept = self._fine if seconds <= FINE * INTERVAL else self._coarse
        samples = [one for one in kept if one.time >= now - seconds]
        if kept is self._coarse and self._fine:
            samples += [one for one in (self._fine[-1],) if not samples or one.time > samples[-1].time]
        step = max(-(-len(samples) // MOST_POINTS), 1)
        # Groups end at the newest sample.
        chosen = samples[::-1][::step][::-1]
        return History(
            times=[one.time for one in chosen],
            published=_rates(chosen, [one.published for one in chosen]),
            delivered=_rates(chosen, [one.delivered for one in chosen]),
            clients=[one.clients for one in chosen],
            sessions=[one.sessions for one in chosen],
            backlog=[one.backlog for one in chosen],
            dead_letters=[one.dead_letters for one in chosen],
        )


def _rates(samples: Sequence[Sample], totals: Sequence[int]) -> list[float | None]:
    """Return the increase per second before each sample, or None for the first one."""
    rates: list[float | None] = [None] if samples else []
    for (before, first), (after, second) in pairwise(zip(samples, totals, strict=True)):
        seconds = after.time - before.time
        rates.append(max(second - first, 0) / seconds if seconds > 0 else 0.0)
    return rates
