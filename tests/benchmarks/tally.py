"""Counts, losses, duplicates and disorder of the subscriber's messages."""

from __future__ import annotations

from collections.abc import Iterable


class Tally:
    """The sequence numbers received from each publisher.

    The common case (the next number) costs one comparison. Only gaps are stored.
    """

    def __init__(self, publishers: int) -> None:
        self.received = 0
        self.duplicates = 0
        self.disordered = 0
        self._next = [0] * publishers
        self._gaps: list[set[int]] = [set() for _ in range(publishers)]

    def add(self, stamps: Iterable[tuple[int, ...]]) -> None:
        """Count messages, each a tuple (publisher, sequence)."""
        following = self._next
        count = 0
        for publisher, sequence in stamps:
            count += 1
            if following[publisher] == sequence:
                following[publisher] = sequence + 1
            else:
                self._odd(publisher, sequence)
        self.received += count

    def _odd(self, publisher: int, sequence: int) -> None:
        """Count a message that is not the next one of its publisher."""
        expected, gaps = self._next[publisher], self._gaps[publisher]
        if sequence > expected:
            gaps.update(range(expected, sequence))
            self._next[publisher] = sequence + 1
        elif sequence in gaps:
            gaps.remove(sequence)
            self.disordered += 1
        else:
            self.duplicates += 1

    @property
    def distinct(self) -> int:
        """The number of messages received at least once."""
        return self.received - self.duplicates

    def lost(self, sent: int) -> int:
        """The number of messages sent and never received."""
        return sent - self.distinct
