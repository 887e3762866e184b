"""Threads that end while they have nothing to do. One thread for the whole process starts them again."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

#: Seconds before the next attempt to start a thread, if the process has reached a limit of threads.
RETRY: Final = 1.0


class Pause(NamedTuple):
    """What ends the pause of a thread, apart from `wake`."""

    #: a file descriptor that becomes readable, or -1
    fd: int = -1
    #: seconds
    seconds: float = math.inf


class ParkingThread:
    """Runs a generator. Its thread ends when it pauses (`yield`).

    The generator should only pause if it has had nothing to do for a while, because starting a thread takes about 0.1 ms.
    """

    def __init__(self, name: str, steps: Callable[[], Iterator[Pause]]) -> None:
        self.name = name
        self._steps = steps()
        self._lock = threading.Lock()
        self._parked = False
        #: the next pause ends at once
        self._woken = False
        #: number of the current or last pause
        self._pauses = 0
        self._started = False
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the first thread."""
        self._started = True
        self.start_thread()

    def start_thread(self) -> None:
        """Start a thread that continues the generator. Raises RuntimeError if there are too many threads."""
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def wake(self) -> None:
        """End the current pause or the next one. Callable on any thread. It does not block."""
        with self._lock:
            if not self._parked:
                self._woken = True
                return
            self._parked = False
        _lot().leave(self)

    @property
    def parked(self) -> bool:
        """Whether the generator pauses."""
        return self._parked

    def in_pause(self, number: int) -> bool:
        """Return whether a pause has not ended."""
        return self._parked and self._pauses == number

    def join(self, timeout: float | None = None) -> None:
        """Wait until the generator has ended."""
        if self._started:
            self._ended.wait(timeout)

    def is_alive(self) -> bool:
        """Return whether the generator was started and has not ended."""
        return self._started and not self._ended.is_set()

    def _run(self) -> None:
        number = 0
        try:
            while not number and (pause := next(self._steps, None)) is not None:
                number = self._park()
        finally:
            if not number:
                self._ended.set()
        if pause is not None and pause != Pause():
            _lot().enter(self, number, pause)

    def _park(self) -> int:
        """Begin a pause and return its number, or 0 if it has ended already.

        From now on, another thread may continue the generator.
        """
        with self._lock:
            if self._woken:
                self._woken = False
                return 0
            self._pauses += 1
            self._parked = True
            return self._pauses


class _Lot:
    """The event loop that waits for the ends of all pauses, on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop()
        #: what cancels the waiting for the end of a pause
        self._parked: dict[ParkingThread, list[Callable[[], object]]] = {}
        threading.Thread(target=self._loop.run_forever, name="parked threads", daemon=True).start()

    def enter(self, thread: ParkingThread, number: int, pause: Pause) -> None:
        """Wait for the end of a pause."""
        self._loop.call_soon_threadsafe(self._enter, thread, number, pause)

    def leave(self, thread: ParkingThread) -> None:
        """Start a thread again, because its pause has ended."""
        self._loop.call_soon_threadsafe(self._leave, thread)

    def _enter(self, thread: ParkingThread, number: int, pause: Pause) -> None:
        if not thread.in_pause(number):
            return
        cancels = self._parked[thread] = []
        if pause.fd >= 0:
            self._loop.add_reader(pause.fd, self._end, thread)
            cancels.append(lambda: self._loop.remove_reader(pause.fd))
        if pause.seconds != math.inf:
            cancels.append(self._loop.call_later(max(0.0, pause.seconds), self._end, thread).cancel)

    def _end(self, thread: ParkingThread) -> None:
        # The file descriptor stays readable until the thread has read it.
        self._cancel(thread)
        thread.wake()

    def _cancel(self, thread: ParkingThread) -> None:
        for cancel in self._parked.pop(thread, ()):
            cancel()

    def _leave(self, thread: ParkingThread) -> None:
        self._cancel(thread)
        try:
            thread.start_thread()
        except RuntimeError as error:
            log.error("MQB0019E starting thread %s failed, trying again in %g s: %s", thread.name, RETRY, error)
            self._loop.call_later(RETRY, self._leave, thread)


_making = threading.Lock()
_made: list[_Lot] = []


def _lot() -> _Lot:
    with _making:
        if not _made:
            _made.append(_Lot())
        return _made[0]
