"""Threads for calls to a queue manager: their number, results and end.

A test of the console of a bridge on IBM MQ checks that they do not keep the process alive.
"""

from __future__ import annotations

import threading
from concurrent.futures import wait

import pytest

from bridge.mq.daemon_threads import DaemonThreads
from tests.helpers.patience import PATIENCE, until


def test_calls_wait_for_a_free_thread() -> None:
    threads = DaemonThreads(2, "calls")
    running, go_on = threading.Semaphore(0), threading.Event()

    def call(number: int) -> int:
        running.release()
        assert go_on.wait(PATIENCE)
        return number

    futures = [threads.submit(call, number) for number in range(4)]
    for _ in range(2):
        assert running.acquire(timeout=PATIENCE)
    assert [future.running() for future in futures] == [True, True, False, False]
    assert futures[3].cancel()
    go_on.set()
    wait(futures, PATIENCE)
    assert [future.result() for future in futures[:3]] == [0, 1, 2]
    until(lambda: all(thread.name != "calls" for thread in threading.enumerate()))
    assert threads.submit(call, 5).result(PATIENCE) == 5


def test_exceptions_and_shutdown() -> None:
    threads = DaemonThreads(1, "calls")
    with pytest.raises(ValueError, match="invalid literal"):
        threads.submit(int, "x").result(PATIENCE)
    threads.shutdown()
    with pytest.raises(RuntimeError, match="calls was shut down"):
        threads.submit(int, "1")
