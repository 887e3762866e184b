"""Problems of the process and its machine: file descriptors, and jumps of the system clock."""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from bridge.administration.answers import Problem, ProblemKind, counted
from bridge.service.limit_hits import Hit

#: Fraction of the limit of open files that is reported, and the fraction below which it no longer is.
MANY_FILES: Final = 0.9
NORMAL_FILES: Final = 0.8
#: Seconds by which the system clock has to jump, and seconds for which a jump is reported.
JUMP: Final = 2.0
JUMP_REPORTED: Final = 3600.0


def open_files() -> tuple[int, int]:
    """Return the number of open files of this process, and their limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        return len(os.listdir("/proc/self/fd")), limit
    except OSError:  # the list needs a file descriptor
        return limit, limit


class Descriptors:
    """Detects a shortage of file descriptors."""

    def __init__(self) -> None:
        self._many = False

    def problems(self, refused: Hit | None) -> Iterator[Problem]:
        """Yield a problem if most descriptors are in use, or none was left for connections. Reads a directory."""
        used, limit = open_files()
        self._many = limit != resource.RLIM_INFINITY and used > limit * (NORMAL_FILES if self._many else MANY_FILES)
        if not self._many and refused is None:
            return
        text = f"{used:,} of {limit:,} file descriptors are in use"
        if refused is None:
            yield Problem("warning", ProblemKind.DESCRIPTORS, "", text, "mqbridge channel list")
        else:
            text += f": {counted(refused.number, 'connection')} refused, the last one by channel {refused.channel}"
            yield Problem("error", ProblemKind.DESCRIPTORS, "", text, "mqbridge channel list", refused.since)


class _Jump(NamedTuple):
    """A jump of the system clock."""

    #: by the monotonic clock
    moment: float
    #: by the system clock
    at: float
    #: positive if the clock was set forward
    seconds: float


class Clock:
    """Finds jumps of the system clock by comparing it with the monotonic clock."""

    def __init__(
        self, system: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._system = system
        self._monotonic = monotonic
        self._offset = system() - monotonic()
        self._last: deque[_Jump] = deque(maxlen=100)
        #: number of jumps since the start
        self.jumps = 0

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if the clock has jumped recently. Called at regular intervals."""
        moment, now = self._monotonic(), self._system()
        offset = now - moment
        if abs(offset - self._offset) >= JUMP:
            self.jumps += 1
            self._last.append(_Jump(moment, now, offset - self._offset))
        self._offset = offset
        while self._last and moment - self._last[0].moment >= JUMP_REPORTED:
            self._last.popleft()
        if self._last:
            jump = self._last[-1]
            number = f", the last of {len(self._last)} jumps within an hour" if len(self._last) > 1 else ""
            way = "forward" if jump.seconds > 0 else "back"
            text = f"the system clock was set {way} by {abs(jump.seconds):,.0f} s{number}"
            yield Problem("warning", ProblemKind.CLOCK, "", text, "timedatectl timesync-status", self._last[0].at)
