"""What is to be done at a time to come, on the event loop; at most one thing under a name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """Timers by name."""

    def __init__(self) -> None:
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def set(self, name: str, delay: float, action: Callable[[], None]) -> None:
        """Have `action` called in `delay` seconds, in place of what was to be done under the name."""
        self.cancel(name)
        self._handles[name] = asyncio.get_running_loop().call_later(max(delay, 0.0), self._call, name, action)

    def cancel(self, name: str) -> None:
        """Have nothing done under a name."""
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def _call(self, name: str, action: Callable[[], None]) -> None:
        self._handles.pop(name, None)
        action()
