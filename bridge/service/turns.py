"""Jobs on the event loop that together may take long: they run in order, for a bounded time in each turn of the loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from bridge.mq.backend import resolve

log = logging.getLogger(__name__)

#: Seconds that the jobs of one `Turns` take in one turn of the event loop. The job that exceeds them is the last one.
SECONDS_PER_TURN = 0.01


class Turns:
    """Runs jobs at once while this turn of the event loop has time left for them, and the others in later turns, in order."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        #: seconds spent in this turn of the loop
        self._spent = 0.0
        self._running = False
        self._scheduled = False
        #: jobs wait, or one is running
        self.waiting = False

    def run(self, job: Callable[[], None]) -> None:
        """Run a job after the jobs that wait, at once if there is time. A job that raises is logged, and the others go on."""
        self._jobs.append(job)
        self.waiting = True
        if not self._running:
            self._work()

    def turn(self) -> asyncio.Future[None]:
        """Wait until the jobs that wait now have run."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.run(partial(resolve, turn, None))
        return turn

    async def finish(self) -> None:
        """Return when no job waits."""
        while self._jobs:
            await self.turn()

    def _work(self) -> None:
        self._running = True
        try:
            while self._jobs and self._spent < SECONDS_PER_TURN:
                job = self._jobs.popleft()
                began = time.perf_counter()
                try:
                    job()
                except Exception:
                    log.exception("MQB0010E a job of the event loop failed; others go on")
                self._spent += time.perf_counter() - began
        finally:
            self._running = False
            self.waiting = bool(self._jobs)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        self._spent = 0.0
        if self._jobs:
            self._work()
