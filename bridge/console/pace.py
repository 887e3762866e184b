"""The pace of anonymous requests.

The admin port and the MQTT clients share one interpreter. So anonymous requests wait for each other: one after another
begins, and each leaves the interpreter to others for a multiple of the time that it has used. Requests on a connection that
has shown valid credentials do not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Share of a core that anonymous requests may use.
SHARE: Final = 0.05
#: Minimum seconds between the beginnings of two requests.
INTERVAL: Final = 0.01
#: Maximum CPU seconds that are charged for a request. Other requests may have used them meanwhile.
_MAX_CHARGE: Final = 0.05


class Pace:
    """The turns of anonymous requests at one admin port. Used on its event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: time of the next turn
        self._next = 0.0

    @property
    def late(self) -> bool:
        """Whether requests have to wait."""
        return self._next > self._clock() + INTERVAL

    def reserve(self) -> float:
        """Reserve the next turn. Return the seconds until then."""
        now = self._clock()
        turn = max(now, self._next)
        self._next = turn + INTERVAL
        return turn - now

    def charge(self, cpu: float) -> None:
        """Put off later turns after a request has used `cpu` seconds of CPU time."""
        self._next = max(self._clock(), self._next) + min(cpu, _MAX_CHARGE) / SHARE
