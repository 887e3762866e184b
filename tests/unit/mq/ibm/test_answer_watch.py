"""A queue manager that neither answers nor breaks the connection is reported, and counts as unreachable."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, cast

import pytest

from bridge.mq.ibm.coordination import ANSWER_TIMEOUT, AnswerWatch, BackendEvents


class Waiting:
    """A worker that waits for the queue manager, or does not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy_since = 0.0
        self.lost_since = 0.0
        self.probes = 0

    @property
    def unanswered_since(self) -> float:
        return self.lost_since or self.busy_since

    def request_probe(self) -> None:
        self.probes += 1


async def test_a_worker_that_waits_without_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The list of problems reports it, once for all workers. The watch logs nothing."""
    caplog.set_level(logging.INFO)
    first, second = Waiting("first"), Waiting("second")
    watch = AnswerWatch(cast(Any, [first, second]), asyncio.get_running_loop())

    def look() -> set[str]:
        watch.stop()
        watch.start()
        return set(watch.silent)

    assert look() == set()
    first.busy_since = second.busy_since = time.monotonic()
    assert look() == set()
    first.busy_since -= ANSWER_TIMEOUT + 1
    assert look() == {"first"}
    since = watch.silent["first"]
    assert time.time() - since >= ANSWER_TIMEOUT
    assert look() == {"first"} and watch.silent["first"] == since
    first.busy_since = 0.0
    assert look() == look() == set()
    assert caplog.text == ""
    watch.stop()


async def test_the_queue_manager_is_unreachable_if_no_essential_worker_has_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    browser, remover = Waiting("browser"), Waiting("remover")
    workers = cast(Any, [browser, remover])
    outages: list[bool] = []

    class Events(BackendEvents):
        def unreachable(self) -> None:
            outages.append(watch.outage)

    watch = AnswerWatch(workers, asyncio.get_running_loop(), events=Events(), vital=workers, outage_timeout=10.0)

    def look() -> bool:
        watch.stop()
        watch.start()
        return watch.outage

    now = time.monotonic()
    browser.busy_since = now - 60  # one worker with a long message
    assert not look() and remover.probes == 1
    remover.busy_since = now - 3  # it has received an answer meanwhile
    assert not look()
    remover.busy_since = now - 6
    assert look() and outages == [True]
    browser.lost_since, browser.busy_since = now - 60, 0.0
    assert look() and outages == [True]
    browser.lost_since = 0.0
    assert look() and outages == [True]
    remover.busy_since = 0.0
    assert not look()
    assert caplog.text.count("MQB4012E") == 1
    watch.stop()
