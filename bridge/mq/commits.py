"""Commits of a queue manager as they are counted for metrics: by the thread that makes them, each thread its own."""

from __future__ import annotations

from bridge.administration.histogram import Histogram


class Commits:
    """Groups of units of work that were committed together, and how long each commit took."""

    __slots__ = ("failures", "groups", "seconds", "size", "units")

    def __init__(self) -> None:
        self.groups = 0
        self.units = 0
        #: bytes written
        self.size = 0
        #: groups that could not be committed
        self.failures = 0
        self.seconds = Histogram()

    def count(self, units: int, size: int, seconds: float) -> None:
        """Count a group that is committed."""
        self.groups += 1
        self.units += units
        self.size += size
        self.seconds.observe(seconds)

    def fail(self) -> None:
        """Count a group that could not be committed."""
        self.failures += 1

    def add(self, other: Commits) -> None:
        """Add what another thread has counted."""
        self.groups += other.groups
        self.units += other.units
        self.size += other.size
        self.failures += other.failures
        self.seconds.add(other.seconds)
