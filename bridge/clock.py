"""The time as messages and records have it."""

from __future__ import annotations

import time


def now_us() -> int:
    """Return the current time in microseconds since the epoch."""
    return time.time_ns() // 1000
