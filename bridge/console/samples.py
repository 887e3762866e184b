"""What the bridge did, second by second, of the last ten minutes: what the charts of the overview are drawn from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from bridge.console.bridge_access import BridgeAccess

log = logging.getLogger(__name__)

#: Seconds between samples, and samples kept.
INTERVAL: Final = 1.0
KEPT: Final = 600


class Sample(msgspec.Struct, frozen=True):
    """The bridge at one moment; numbers of messages are since it began."""

    #: seconds since the epoch
    time: float
    published: int
    delivered: int
    clients: int
    sessions: int
    units_of_work: int


class Sampler:
    """Takes a sample each second, while the admin port is there."""

    def __init__(self, bridge: BridgeAccess) -> None:
        self._bridge = bridge
        self._samples: deque[Sample] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Take samples until this is cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                # An event loop that hangs has no sample: the chart has a gap there.
                async with asyncio.timeout(5 * INTERVAL):
                    sample = await self._bridge.run(self._take)
                if sample is not None:
                    self._samples.append(sample)
            await asyncio.sleep(INTERVAL)

    async def _take(self) -> Sample | None:
        bridge = self._bridge.bridge
        if bridge.administration is None or bridge.metrics is None:
            return None
        service = bridge.administration.parts.service
        traffic = bridge.metrics.traffic.clients.values()
        return Sample(
            time.time(),
            sum(messages for one in traffic for messages, _ in one.counts.received()),
            sum(messages for one in traffic for messages, _ in one.counts.sent()),
            len(service.clients),
            len(service.sessions),
            service.units.under_way,
        )

    def samples(self) -> list[Sample]:
        """Return the samples, the oldest first."""
        return list(self._samples)


def rates(times: Sequence[float], totals: Sequence[int]) -> list[float]:
    """Return by how much a total rose in a second, between each sample and the next."""
    found = []
    for place in range(1, len(times)):
        seconds = times[place] - times[place - 1]
        found.append(max(totals[place] - totals[place - 1], 0) / seconds if seconds > 0 else 0.0)
    return found
