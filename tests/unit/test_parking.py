"""Threads that end during pauses, and start again when they are woken."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from bridge import parking
from bridge.parking import ParkingThread, Pause
from tests.helpers.patience import PATIENCE, until


class Steps:
    """Makes these pauses in turn, and records the threads on which it ran."""

    def __init__(self, *pauses: Pause) -> None:
        self._pauses = pauses
        self.threads: list[threading.Thread] = []
        self.error: Exception | None = None
        self.thread = ParkingThread("steps", self._run)

    def _run(self) -> Iterator[Pause]:
        for pause in self._pauses:
            self.threads.append(threading.current_thread())
            yield pause
        self.threads.append(threading.current_thread())
        if self.error is not None:
            raise self.error

    def start(self) -> None:
        self.thread.start()
        until(lambda: self.thread.parked)
        until(lambda: not self.threads[-1].is_alive())

    def ended(self) -> bool:
        self.thread.join(PATIENCE)
        return not self.thread.is_alive()


def test_a_paused_thread_ends_until_it_is_woken() -> None:
    steps = Steps(Pause(), Pause())
    steps.start()
    assert steps.thread.is_alive()
    steps.thread.wake()
    until(lambda: len(steps.threads) == 2 and steps.thread.parked)
    steps.thread.wake()
    assert steps.ended()
    assert len(set(steps.threads)) == 3


def test_a_wake_before_the_pause_keeps_the_same_thread() -> None:
    steps = Steps(Pause(), Pause())
    steps.thread.wake()
    steps.start()
    assert len(steps.threads) == 2
    assert steps.threads[0] is steps.threads[1]
    steps.thread.wake()
    assert steps.ended()


def test_a_pause_ends_when_a_descriptor_is_readable_or_its_time_is_over() -> None:
    ear, mouth = os.pipe()
    try:
        steps = Steps(Pause(ear, 3_600.0), Pause(seconds=0.001))
        steps.start()
        os.write(mouth, b"x")
        assert steps.ended()
        assert len(steps.threads) == 3
    finally:
        os.close(ear)
        os.close(mouth)


def test_a_pause_ended_by_a_wake_no_longer_reads_its_descriptor() -> None:
    ear, mouth = os.pipe()
    try:
        steps = Steps(Pause(ear), Pause())
        steps.start()
        steps.thread.wake()
        until(lambda: len(steps.threads) == 2 and steps.thread.parked)
        os.write(mouth, b"x")
        other = Steps(Pause(ear))
        other.thread.start()
        assert other.ended()
        assert steps.thread.parked
        steps.thread.wake()
        assert steps.ended()
    finally:
        os.close(ear)
        os.close(mouth)


def test_an_error_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    steps = Steps(Pause())
    steps.error = RuntimeError("steps")
    steps.start()
    steps.thread.wake()
    assert steps.ended()
    until(lambda: raised)


def test_joining_a_thread_that_was_never_started_returns_at_once() -> None:
    steps = Steps()
    steps.thread.join()
    assert not steps.thread.is_alive()


def test_a_failed_start_of_a_thread_is_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parking, "RETRY", 0.001)
    steps = Steps(Pause())
    steps.start()
    start, failures = steps.thread.start_thread, iter([RuntimeError("can't start new thread")] * 2)

    def start_thread() -> None:
        if (error := next(failures, None)) is not None:
            raise error
        start()

    monkeypatch.setattr(steps.thread, "start_thread", start_thread)
    steps.thread.wake()
    assert steps.ended()
    assert caplog.text.count("MQB0019E starting thread steps failed, trying again in 0.001 s: can't start") == 2
