"""Work that the bridge repeats on its event loop, such as taking samples."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def repeated(
    step: Callable[[], Awaitable[None]], interval: float, description: str, *, delay: float = 0.0
) -> Iterator[None]:
    """Repeat a step until the context ends.

    A step that fails is repeated like one that succeeds. The traceback of the first failure is logged, not those of the
    failures that follow it without a success.

    Args:
        step: runs on the event loop
        interval: seconds between the end of a step and the next one
        description: names the step in the log, such as `taking a sample`
        delay: seconds until the first step
    """
    task = asyncio.get_running_loop().create_task(_repeat(step, interval, description, delay))
    try:
        yield
    finally:
        task.cancel()


async def _repeat(step: Callable[[], Awaitable[None]], interval: float, description: str, delay: float) -> None:
    has_failed = False
    await asyncio.sleep(delay)
    while True:
        try:
            await step()
            has_failed = False
        except Exception:
            if not has_failed:
                log.exception("MQB0304E %s failed and is repeated", description)
            has_failed = True
        await asyncio.sleep(interval)
