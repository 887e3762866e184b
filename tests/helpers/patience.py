"""Time-outs of tests: they limit hangs, and do not measure speed.

They are far longer than necessary on an idle machine, because CI runs five test processes on two slow cores.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

#: Seconds.
PATIENCE = float(os.environ.get("MQBRIDGE_TEST_PATIENCE") or 100)
_PAUSE = 0.005
#: Seconds between two checks of the progress of long operations.
_LOOK = 1.0


def until(
    condition: Callable[[], object],
    say: Callable[[], object] = lambda: "it did not come about",
    patience: float = PATIENCE,
) -> None:
    """Wait for a condition. After `patience` seconds, `say` describes the current state."""
    before = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < before, say()
        time.sleep(_PAUSE)


async def happens(condition: Callable[[], object]) -> None:
    """Wait for a condition, which is checked on another thread."""
    await asyncio.to_thread(until, condition)


def eventually(look: Callable[[], object], expected: object) -> None:
    """Wait until the observed value equals the expected one."""
    until(lambda: look() == expected, lambda: f"still {look()!r}, and not {expected!r}")


def until_at_last(condition: Callable[[], bool], progress: Callable[[], object]) -> None:
    """Wait for a condition as long as there is progress."""
    last_progress, since = progress(), time.monotonic()
    looked = since
    while not condition():
        now = time.monotonic()
        if now - looked > _LOOK:  # determining the progress may be expensive
            looked = now
            if (reached := progress()) != last_progress:
                last_progress, since = reached, now
            assert now - since < PATIENCE, f"nothing happens behind {last_progress}"
        time.sleep(_PAUSE)
