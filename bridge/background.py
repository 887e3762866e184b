"""Functions on daemon threads, which do not keep a process from ending if they hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(function: Callable[[], T], name: str) -> Future[T]:
    """Run a function on a daemon thread of this name, and return its future."""
    future: Future[T] = Future()

    def run() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
