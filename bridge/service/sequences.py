"""Work on the event loop: long jobs in turns of 10 ms, and coroutines that answer CONNECT, AUTH and SUBSCRIBE."""

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
                began = time.perf_counter()
                try:
                    job()
                except Exception:
                    log.exception("MQB0010E a job of the event loop failed; other jobs continue")
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


Sequence = Coroutine[Any, Any, None]


class Sequences:
    """Runs sequences and keeps references to their tasks."""

    def __init__(self) -> None:
        #: the event loop keeps no strong reference to tasks
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, client: Client, sequence: Sequence) -> asyncio.Task[None] | None:
        """Run a sequence immediately up to its first blocking await, and the rest as a task. Return the task, or None.

        This preserves the order of a client's packets towards the queue manager, and immediate answers are sent immediately.
        Python 3.12 provides this as `eager_start`.
        """
        guarded = _guarded(client, sequence)
        try:
            awaited = guarded.send(None)
        except StopIteration:
            return None
        task = asyncio.get_running_loop().create_task(_rest(guarded, awaited))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _guarded(client: Client, sequence: Sequence) -> None:
    """Run a sequence. If it raises, disconnect only its client."""
    try:
        await sequence
    except Exception:
        log.exception("MQB2105E client %s: answering a packet failed; disconnecting the client", client.peer)
        client.close("", ReasonCode.UNSPECIFIED_ERROR)


async def _rest(coroutine: Sequence, awaited: object) -> None:
    await _Started(coroutine, awaited)


class _Started:
    """A coroutine that has run up to an await, as an awaitable."""

    def __init__(self, coroutine: Sequence, awaited: object) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        coroutine, awaited = self._coroutine, self._awaited
        while True:
            try:
                try:
                    result = yield awaited
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    awaited = coroutine.throw(error)
                else:
                    awaited = coroutine.send(result)
            except StopIteration:
                return
