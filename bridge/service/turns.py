"""Work that takes several turns of the event loop.

Timers, long jobs in turns of 10 ms, and the coroutines that answer CONNECT, AUTH and SUBSCRIBE.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

from bridge.mq.backend import resolve
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.client import Client

log = logging.getLogger(__name__)


class Timers:
    """Timers identified by name."""

    def __init__(self) -> None:
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def set(self, name: str, delay: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay` seconds. A previous timer with this name is cancelled."""
        self.cancel(name)
        self._handles[name] = asyncio.get_running_loop().call_later(max(delay, 0.0), self._call, name, action)

    def cancel(self, name: str) -> None:
        """Cancel a timer."""
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def _call(self, name: str, action: Callable[[], None]) -> None:
        self._handles.pop(name, None)
        action()


#: Seconds that the jobs of one `Turns` may take per turn of the event loop. The job that exceeds the limit is the last one.
SECONDS_PER_TURN = 0.01


class Turns:
    """Runs jobs immediately while there is time in the current turn of the event loop, and the rest in later turns."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        #: seconds spent in this turn of the loop
        self._spent = 0.0
        self._running = False
        self._scheduled = False
        #: jobs are queued, or one is running
        self.waiting = False

    def run(self, job: Callable[[], None]) -> None:
        """Run a job after the queued ones, immediately if there is time.

        Exceptions are logged and do not affect other jobs.
        """
        self._jobs.append(job)
        self.waiting = True
        if not self._running:
            self._work()

    def turn(self) -> asyncio.Future[None]:
        """Return a future that is done when the currently queued jobs have run."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.run(partial(resolve, turn, None))
        return turn

    async def finish(self) -> None:
        """Wait until no job is queued."""
        while self._jobs:
            await self.turn()

    def _work(self) -> None:
        self._running = True
        try:
            while self._jobs and self._spent < SECONDS_PER_TURN:
                job = self._jobs.popleft()
                start = time.perf_counter()
                try:
                    job()
                except Exception:
                    log.exception("MQB0010E a job of the event loop failed; other jobs continue")
                self._spent += time.perf_counter() - start
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


class Sequences:
    """Runs sequences and keeps references to their tasks."""

    def __init__(self) -> None:
        #: the event loop keeps no strong reference to tasks
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, client: Client, sequence: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run a sequence immediately up to its first blocking await, and the rest as a task. Return the task, or None.

        This preserves the order of a client's packets towards the queue manager, and immediate answers are sent immediately.
        Python 3.12 provides this as `eager_start`.
        """
        guarded = _guarded(client, sequence)
        try:
            awaitable = guarded.send(None)
        except StopIteration:
            return None
        task = asyncio.get_running_loop().create_task(_Started(guarded, awaitable))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _guarded(client: Client, sequence: Coroutine[Any, Any, None]) -> None:
    """Run a sequence. If it raises, disconnect only its client."""
    try:
        await sequence
    except Exception:
        log.exception("MQB2105E client %s: answering a packet failed; disconnecting the client", client.peer)
        client.close("", ReasonCode.UNSPECIFIED_ERROR)


class _Started(Coroutine[Any, Any, None]):
    """A coroutine that has run up to its first await, for a task.

    A task that is cancelled before its first step throws CancelledError into its coroutine. An `async def` around the started
    coroutine would end without passing it on.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaitable: object) -> None:
        self._coroutine = coroutine
        #: the current awaitable of the coroutine, which the first step of the task returns
        self._awaitable = awaitable
        self._is_first = True

    def send(self, value: Any) -> Any:
        """Return the current awaitable at first, and then resume the coroutine."""
        if self._is_first:
            self._is_first = False
            return self._awaitable
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception in the coroutine."""
        self._is_first = False
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError("only a task runs it")
