"""Rates of queues, mappings and links over the last 24 hours, kept in memory.

A reading has two counters and a depth. Two rings keep samples at a fine and at a coarse interval, so the memory is bounded:
about 13 kB for each queue, mapping or link.
"""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Final, NamedTuple, get_args

from bridge.administration.health import RateKind, RatePage, RateSeries, mean
from bridge.mq.host import QueueManagerStatus
from bridge.service.mappings.registry import Mappings
from bridge.service.periodic import repeated
from bridge.service.queue_manager_watch import QueueManagerWatch

log = logging.getLogger(__name__)

#: Seconds between samples, and number of samples kept: of the last hour, and of the last 24 hours.
INTERVAL: Final = 15.0
FINE: Final = 241
COARSE_INTERVAL: Final = 300.0
COARSE: Final = 289
#: Maximum number of queues, mappings and links, of each kind.
MAX_OBJECTS: Final = 500
#: Values of a sample: two counters and a depth.
_VALUES: Final = 3

#: A queue, mapping or link.
Key = tuple[RateKind, str]


class Reading(NamedTuple):
    """Messages that went into an object and out of it since the start, and its depth. None if unknown."""

    incoming: float | None
    outgoing: float | None
    depth: float | None = None


class _Ring:
    """The last samples of all objects. A missing value is a NaN."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = -1
        self._times = array("d", [math.nan]) * size
        self._samples: dict[Key, array[float]] = {}

    @property
    def newest(self) -> float:
        """The time of the newest sample, or 0.0 without samples."""
        return self._times[self._position] if self._position >= 0 else 0.0

    def add(self, now: float, samples: dict[Key, Reading]) -> None:
        """Add the samples of one time, and forget objects without any sample."""
        self._position = position = (self._position + 1) % self._size
        self._times[position] = now
        start, end = position * _VALUES, (position + 1) * _VALUES
        for key in [*self._samples.keys(), *(samples.keys() - self._samples.keys())]:
            values_of_object = self._samples.get(key)
            if values_of_object is None:
                values_of_object = self._samples[key] = array("d", [math.nan]) * (self._size * _VALUES)
            sample = samples.get(key)
            values = (math.nan if value is None else value for value in sample or (None,) * _VALUES)
            values_of_object[start:end] = array("d", values)
            if sample is None and all(map(math.isnan, values_of_object)):
                del self._samples[key]

    def since(self, moment: float) -> tuple[list[int], list[float]]:
        """Return the positions and times of the samples after a moment, the oldest first."""
        order = [(self._position + 1 + step) % self._size for step in range(self._size)]
        chosen = [position for position in order if self._times[position] >= moment]  # false for NaN
        return chosen, [self._times[position] for position in chosen]

    def series(self, chosen: list[int], times: list[float]) -> Iterable[RateSeries]:
        """Yield the rates of each object at the chosen positions, without those that have no sample there."""
        for (kind, name), columns in self._samples.items():
            incoming, outgoing, depth = (
                [columns[position * _VALUES + column] for position in chosen] for column in range(_VALUES)
            )
            if any(not math.isnan(value) for value in (*incoming, *depth)):
                yield RateSeries(
                    kind=kind,
                    name=name,
                    incoming=_rates(times, incoming),
                    outgoing=_rates(times, outgoing),
                    depth=[None if math.isnan(value) else value for value in depth],
                )


def _rates(times: list[float], totals: list[float]) -> list[float | None]:
    """Return the increase per second before each sample, or None if it is unknown. Counters may have been reset."""
    rates: list[float | None] = [None] if times else []
    for (before, first), (after, second) in pairwise(zip(times, totals, strict=True)):
        growth = max(second - first, 0.0)
        rates.append(None if math.isnan(first) or math.isnan(second) or after <= before else growth / (after - before))
    return rates


class RateHistory:
    """Takes samples of queues, mappings and links on the event loop of the bridge."""

    def __init__(self, watch: QueueManagerWatch, mappings: Mappings) -> None:
        self._watch = watch
        self._mappings = mappings
        self._fine, self._coarse = _Ring(FINE), _Ring(COARSE)
        self._left_out = 0

    def recording(self) -> AbstractContextManager[None]:
        """Take samples until the context ends."""
        # At the start, the first scrape inspects the queue manager.
        return repeated(self._sample, INTERVAL, "taking samples of rates", delay=INTERVAL)

    async def _sample(self) -> None:
        self.add(time.time(), self._samples(await self._watch.status()))

    def add(self, now: float, samples: dict[Key, Reading]) -> None:
        """Keep samples, up to the maximum number of objects of each kind."""
        readings: dict[Key, Reading] = {}
        for kind in get_args(RateKind):
            readings.update([sample for sample in samples.items() if sample[0][0] == kind][:MAX_OBJECTS])
        self._left_out = len(samples) - len(readings)
        self._fine.add(now, readings)
        if now - self._coarse.newest >= COARSE_INTERVAL - INTERVAL / 2:
            self._coarse.add(now, readings)

    def _samples(self, status: QueueManagerStatus | None) -> dict[Key, Reading]:
        samples: dict[Key, Reading] = {}
        for queue in () if status is None else status.queues:
            samples["queue", queue.name] = Reading(queue.enqueued, queue.dequeued, queue.depth)
        for mapping in self._mappings.statuses():
            samples["mapping", mapping.name] = Reading(mapping.taken, mapping.moved)
        for _, link in self._mappings.links():
            before = samples.get(("link", link.name), Reading(0, 0))
            counters = link.counters
            samples["link", link.name] = Reading(
                (before.incoming or 0) + counters.received, (before.outgoing or 0) + counters.sent
            )
        return samples

    def rates(self, seconds: float, rows: int, now: float, matches: Callable[[str], bool]) -> RatePage:
        """Return the rates of objects whose names match, in the last `seconds`: the busiest `rows` of each kind."""
        ring = self._fine if seconds <= (FINE - 1) * INTERVAL else self._coarse
        chosen, times = ring.since(now - seconds)
        rates = RatePage(times=times, series=[], left_out=self._left_out)
        every = [series for series in ring.series(chosen, times) if matches(series.name)]
        for kind in get_args(RateKind):
            of_kind = sorted((series for series in every if series.kind == kind), key=_activity)
            rates.series += of_kind[:rows]
            rates.left_out += len(of_kind[rows:])
        return rates


def _activity(series: RateSeries) -> tuple[float, float, str]:
    """Return the sort key by which busy objects come first, then deep queues, then names."""
    rate = (mean(series.incoming) or 0.0) + (mean(series.outgoing) or 0.0)
    return -rate, -(mean(series.depth) or 0.0), series.name
