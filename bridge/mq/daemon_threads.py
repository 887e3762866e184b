"""Threads for calls to a queue manager, which may never return."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """An executor whose threads do not keep the process alive, and end after the last call.

    The process waits for the threads of a ThreadPoolExecutor, even if the queue manager does not answer them.
    """

    def __init__(self, threads: int, name: str) -> None:
        """Run at most `threads` calls at a time."""
        self._free = threads
        self._name = name
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_shut_down = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call as soon as a thread is free. Raises RuntimeError after `shutdown`, or if there are too many threads."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError(f"executor {self._name} was shut down")
            if self._free:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._free -= 1
            self._calls.append((future, partial(function, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Reject further calls. Those in progress continue."""
        self._is_shut_down = True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._free += 1
                    return
                future, call = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
