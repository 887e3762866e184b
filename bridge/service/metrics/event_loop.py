"""The lag of the event loop: by how much a timer is late, for whatever keeps the loop busy keeps messages waiting."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from bridge.administration.histogram import Histogram
from bridge.service.metrics.samples import Samples

#: Seconds between measurements, and how many the maximum is of: those of a minute.
_INTERVAL: Final = 0.5
_REMEMBERED: Final = 120


class EventLoopLag:
    """Measures the event loop that it is begun on."""

    def __init__(self, tick: Callable[[], None]) -> None:
        """Begin; `tick` is called at each measurement."""
        self._tick = tick
        self._lag = Histogram()
        self._last: deque[float] = deque(maxlen=_REMEMBERED)
        self._task = asyncio.get_running_loop().create_task(self._measure())

    async def _measure(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_INTERVAL)
            late = max(time.perf_counter() - began - _INTERVAL, 0.0)
            self._lag.observe(late)
            self._last.append(late)
            self._tick()

    def gather(self, samples: Samples) -> None:
        """Add what was measured."""
        samples.add("mqbridge_event_loop_lag_seconds", self._lag)
        samples.add("mqbridge_event_loop_lag_max_seconds", max(self._last, default=0.0))

    def stop(self) -> None:
        """End."""
        self._task.cancel()
