"""A histogram with fixed buckets, written by one thread and readable by any thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

#: Upper bounds of buckets in seconds, for operations that normally take a millisecond and are a fault at ten seconds.
SECONDS: Final[Sequence[float]] = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts of values by bucket, whose bounds are SECONDS, and the sum of the values."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        #: the last bucket counts values above all bounds
        self._counts = [0] * (len(SECONDS) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value `times` times. Negative values (the clock was set back) count as 0."""
        if value < 0.0:
            value = 0.0
        self._counts[bisect_left(SECONDS, value)] += times
        self._sum += value * times

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self._counts)

    @property
    def sum(self) -> float:
        """The sum of all values."""
        return self._sum

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulative count for each upper bound, as in OpenMetrics. The last bound is `+Inf`."""
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip([*map(str, SECONDS), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets

    def add(self, other: Histogram) -> None:
        """Add the values of another histogram."""
        self._counts = [own + others for own, others in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum
