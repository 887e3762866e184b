"""A queue manager that neither answers nor breaks the connection is told, and no longer taken for one that is well."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from bridge.mq.ibm.answer_watch import ANSWER_TIMEOUT, AnswerWatch


class Waiting:
    """A worker that waits for the queue manager, or does not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy_since = 0.0


async def test_a_worker_that_waits_in_vain(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, and once that it is over; others are not meant."""
    first, second = Waiting("first"), Waiting("second")
    watch = AnswerWatch(cast(Any, [first, second]), asyncio.get_running_loop())

    def look() -> set[str]:
        watch.stop()
        watch.start()
        return watch.silent

    assert look() == set()
    first.busy_since = second.busy_since = time.monotonic()
    assert look() == set()
    first.busy_since -= ANSWER_TIMEOUT + 1
    assert look() == look() == {"first"}
    assert caplog.text.count("MQB4006E first: the queue manager has not answered for 31 s") == 1
    first.busy_since = 0.0
    assert look() == look() == set()
    assert caplog.text.count("MQB4007W first: the queue manager answers again") == 1
    watch.stop()
