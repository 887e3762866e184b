"""MQI calls of the console: in one thread, over one connection, so that a slow queue manager holds up nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from bridge.console.bridge_access import BridgeAccess
from bridge.console.problem import Problem
from bridge.mq.mqi import Connection, MQError
from bridge.mq.worker import LOST

T = TypeVar("T")

#: Calls that wait at a time, and seconds that one waits at most.
_MOST_WAITING: Final = 16
_PATIENCE: Final = 30.0
#: Seconds that the end waits for a call under way.
_STOP: Final = 5.0


class QueueManagerConnection:
    """The connection of the console, which is made when it is needed first, and anew when it is lost."""

    def __init__(self, bridge: BridgeAccess) -> None:
        self._bridge = bridge
        self._thread = ThreadPoolExecutor(1, "console")
        self._connection: Connection | None = None
        self._waiting = 0

    async def run(self, work: Callable[[Connection], T], *, repeatable: bool = True) -> T:
        """Run MQI calls, and return what they return; what they leave in syncpoint is backed out.

        Calls that are `repeatable` are made once more where the connection turns out to be lost. Raises MQError, NotRunning,
        and Problem where the queue manager does not answer in time.
        """
        if self._waiting >= _MOST_WAITING:
            raise Problem(503, "Too many requests wait for the queue manager", ["Try again in a moment."])
        self._waiting += 1
        try:
            done = asyncio.get_running_loop().run_in_executor(self._thread, self._run, work, repeatable)
        except BaseException:
            self._waiting -= 1
            raise
        done.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(_PATIENCE):
                return await asyncio.shield(done)
        except TimeoutError as error:
            lines = [f"It was waited for {_PATIENCE:g} s; what was asked for may still be done."]
            raise Problem(504, "The queue manager does not answer", lines) from error

    def _ended(self, done: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not done.cancelled():
            done.exception()  # who waited no more does not ask for it

    def _run(self, work: Callable[[Connection], T], repeatable: bool) -> T:
        is_new = self._connection is None
        if self._connection is None:
            self._connection = self._bridge.connect()
        try:
            return self._done(self._connection, work)
        except MQError as error:
            if error.reason not in LOST:
                raise
            self._let_go()
            if is_new or not repeatable:
                raise
        return self._run(work, False)

    @staticmethod
    def _done(connection: Connection, work: Callable[[Connection], T]) -> T:
        try:
            return work(connection)
        finally:
            with contextlib.suppress(MQError):  # the connection is lost, then: so is its unit of work
                connection.backout()

    def _let_go(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(MQError):
                self._connection.disconnect()
            self._connection = None

    async def stop(self) -> None:
        """Disconnect, behind the calls under way. No other call is made."""
        closing = self._thread.submit(self._let_go)
        self._thread.shutdown(wait=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP):
                await asyncio.wrap_future(closing)
