"""Periodic work of the bridge: it continues after failures, which are logged once, and ends with its context."""

from __future__ import annotations

import asyncio

import pytest

from bridge.service.periodic import repeated


class Steps:
    """Count calls. The calls with these numbers fail."""

    def __init__(self, *failures: int) -> None:
        self.failures = failures
        self.calls = 0
        self._called = asyncio.Condition()

    async def __call__(self) -> None:
        async with self._called:
            self.calls += 1
            self._called.notify_all()
        if self.calls in self.failures:
            raise ValueError(f"call {self.calls}")

    async def until(self, calls: int) -> None:
        async with self._called:
            await self._called.wait_for(lambda: self.calls >= calls)


async def test_a_failed_step_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(1, 2, 4)
    with repeated(steps, 0.001, "counting"):
        await steps.until(5)
    assert [record.getMessage() for record in caplog.records] == 2 * ["MQB0304E counting failed and is repeated"]
    assert ["call 1" in caplog.text, "call 2" in caplog.text, "call 4" in caplog.text] == [True, False, True]


async def test_the_steps_end_with_the_context() -> None:
    steps = Steps()
    with repeated(steps, 0.001, "counting"):
        await steps.until(2)
    calls = steps.calls
    await asyncio.sleep(0.02)
    assert steps.calls == calls
