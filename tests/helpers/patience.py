"""How long a test waits for what has to come: a bound on a hang, and no measure of speed.

Far more than anything takes on a quiet machine, for CI runs five processes of tests beside each other on two slow cores.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

#: Seconds.
PATIENCE = float(os.environ.get("MQBRIDGE_TEST_PATIENCE") or 100)
_PAUSE = 0.005
#: Seconds between two looks at the progress of what takes long.
_LOOK = 1.0


def until(
    condition: Callable[[], object],
    say: Callable[[], object] = lambda: "it did not come about",
    patience: float = PATIENCE,
) -> None:
    """Return when a condition holds; `say` says what there is instead, after `patience` seconds."""
    before = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < before, say()
        time.sleep(_PAUSE)


async def happens(condition: Callable[[], object]) -> None:
    """Return when a condition holds, which is looked at on another thread."""
    await asyncio.to_thread(until, condition)


def eventually(look: Callable[[], object], expected: object) -> None:
    """Return when what is seen is what is expected."""
    until(lambda: look() == expected, lambda: f"still {look()!r}, and not {expected!r}")


def until_at_last(condition: Callable[[], bool], progress: Callable[[], object]) -> None:
    """Return when a condition holds, however long that takes, as long as there is progress."""
    seen, since = progress(), time.monotonic()
    looked = since
    while not condition():
        now = time.monotonic()
        if now - looked > _LOOK:  # what counts as progress may be expensive to find out
            looked = now
            if (reached := progress()) != seen:
                seen, since = reached, now
            assert now - since < PATIENCE, f"nothing happens behind {seen}"
        time.sleep(_PAUSE)
