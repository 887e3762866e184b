"""The backlogs of mappings that read topics, and their limits.

A mapping's subscription receives all publications to its topics, even if the mapping is too slow. A backlog exceeds the
limits if it is larger than `limits.waiting_bytes`. It also does if all backlogs together are larger than
`limits.waiting_total`, and this backlog is larger than an equal share of that total. Publishers with more than an equal share
of the recent publications are affected first, so a publisher that is too fast does not stop the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from bridge.config.models import LimitsConfig
from bridge.mq.memory import MESSAGE_OVERHEAD, in_bytes

#: The fraction of the limits above which publications are counted by publisher.
_COUNTED: Final = 0.5
#: The fraction of the limits above which publications of all publishers are affected.
_HARD: Final = 1.25


class MappingBacklogLimits:
    """The limits of the backlogs of all mappings, and their sum."""

    __slots__ = ("bytes", "number", "on_excess", "owner_bytes", "total_bytes")

    def __init__(self) -> None:
        #: `limits.waiting_bytes` and `limits.waiting_total`
        self.owner_bytes = sys.maxsize
        self.total_bytes = sys.maxsize
        #: bytes of all backlogs, and their number
        self.bytes = 0
        self.number = 0
        #: called with the name of a mapping for each publication beyond the limits
        self.on_excess: Callable[[str], None] = lambda _mapping: None

    def use(self, limits: LimitsConfig) -> None:
        """Apply limits to the publications that follow."""
        self.owner_bytes = limits.waiting_bytes
        self.total_bytes = in_bytes(limits.waiting_total)


class MappingBacklog:
    """The size of a mapping's backlog, and of the latest publications of each publisher while it is large."""

    __slots__ = ("_counted", "_limits", "_publishers", "bytes", "mapping")

    def __init__(self, mapping: str, limits: MappingBacklogLimits) -> None:
        self.mapping = mapping
        self._limits = limits
        #: bytes of the messages, including `MESSAGE_OVERHEAD`
        self.bytes = 0
        self._publishers: dict[str, int] = {}
        self._counted = 0
        limits.number += 1

    def add(self, size: int) -> None:
        """Count a message on the queue, with the size of its data."""
        self.bytes += size + MESSAGE_OVERHEAD
        self._limits.bytes += size + MESSAGE_OVERHEAD

    def remove(self, size: int) -> None:
        """Stop counting a message."""
        self.bytes -= size + MESSAGE_OVERHEAD
        self._limits.bytes -= size + MESSAGE_OVERHEAD

    def end(self) -> None:
        """Stop counting, because the queue is deleted."""
        self._limits.bytes -= self.bytes
        self._limits.number -= 1
        self.bytes = 0

    @property
    def is_large(self) -> bool:
        """Whether `accepts` must be called for each publication."""
        if not self._exceeds(0, _COUNTED):
            if self._publishers:
                self._publishers, self._counted = {}, 0
            return False
        return True

    def accepts(self, publisher: str, size: int) -> bool:
        """Count a publication while the backlog is large, and return whether it is within the limits."""
        size += MESSAGE_OVERHEAD
        publishers = self._publishers
        own = publishers.get(publisher, 0) + size
        publishers[publisher] = own
        self._counted += size
        if self._counted > self._limits.owner_bytes:
            # Old publications have left the queue. Publishers with few bytes are dropped, which bounds the number of entries.
            halves = ((name, counted // 2) for name, counted in publishers.items())
            self._publishers = publishers = {name: counted for name, counted in halves if counted >= MESSAGE_OVERHEAD}
            self._counted = sum(publishers.values())
            own //= 2
        if not self._exceeds(size):
            return True
        if own * len(publishers) < self._counted and not self._exceeds(size, _HARD):
            return True
        self._limits.on_excess(self.mapping)
        return False

    def _exceeds(self, size: int, part: float = 1.0) -> bool:
        """Return whether the backlog with `size` more bytes exceeds a fraction of the limits."""
        limits = self._limits
        own, total = self.bytes + size, limits.total_bytes * part
        return own > limits.owner_bytes * part or (limits.bytes + size > total and own * limits.number > total)
