"""Sessions by channel: counted in slices, for there may be as many as there are devices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from bridge.service.metrics.samples import Samples
from bridge.telemetry.session import Session

#: Sessions that are looked at in one turn of the event loop.
_AT_A_TURN: Final = 500
#: Seconds that a count is good for.
_INTERVAL: Final = 10.0


class SessionCount:
    """Sessions, and what they hold, at a moment not long ago. Called on the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counted_at: float | None = None
        self._counting = asyncio.Lock()
        #: by channel, and whether it is durable and connected
        self._sessions: Counter[tuple[str, bool, bool]] = Counter()
        #: by metric and channel
        self._held: dict[str, Counter[str]] = {}

    async def gather(self, samples: Samples, sessions: Mapping[str, Session]) -> None:
        """Add the numbers, which are counted anew where they are too old."""
        async with self._counting:
            if self._counted_at is None or self._clock() - self._counted_at >= _INTERVAL:
                await self._count(list(sessions.values()))
                self._counted_at = self._clock()
        for (channel, durable, connected), count in self._sessions.items():
            samples.add("mqbridge_sessions", count, channel, _truth(durable), _truth(connected))
        for name, counts in self._held.items():
            for channel, count in counts.items():
                samples.add(name, count, channel)

    async def _count(self, sessions: list[Session]) -> None:
        found: Counter[tuple[str, bool, bool]] = Counter()
        subscriptions: Counter[str] = Counter()
        in_flight: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        unreleased: Counter[str] = Counter()
        for number, session in enumerate(sessions, 1):
            channel, outbox = session.channel, session.outbox
            found[channel, session.durable, session.connected] += 1
            subscriptions[channel] += len(session.filters) + len(session.shares)
            in_flight[channel] += outbox.in_flight.unfinished
            waiting[channel] += len(outbox.backlog)
            unreleased[channel] += len(session.receiver.identifiers)
            if not number % _AT_A_TURN:
                await asyncio.sleep(0)
        self._sessions = found
        self._held = {
            "mqbridge_subscriptions": subscriptions,
            "mqbridge_in_flight_messages": in_flight,
            "mqbridge_waiting_messages": waiting,
            "mqbridge_unreleased_publications": unreleased,
        }


def _truth(value: bool) -> str:
    return "true" if value else "false"
