"""Times and time spans as people read them."""

from __future__ import annotations

import time

#: Seconds of each unit in which an age is told, the longest first.
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def moment(seconds: float) -> str:
    """Return a time of seconds since the epoch, in the time zone of this machine; blank for 0.0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


def age(seconds: float) -> str:
    """Return a time span in its two largest units, such as `3 d 4 h`."""
    left = int(seconds)
    words: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not words):
            words.append(f"{count} {unit}")
        if len(words) == 2:
            break
    return " ".join(words)
