"""Messages that wait for one client or share, and a limit on the bytes that they take: each backlog's own, and a total."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

from bridge.mapping.telemetry.transmission import Transmission

#: Bytes, about, that a waiting message takes in addition to its data.
MESSAGE_OVERHEAD: Final = 512
#: A backlog that rejects publications accepts them again when it is this part of its limit.
_RECOVERED: Final = 0.9


class BacklogTotal:
    """The bytes of all backlogs of a bridge, and how many backlogs are not empty."""

    __slots__ = ("backlogs", "bytes", "limit")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.limit = limit
        self.bytes = 0
        self.backlogs = 0

    @property
    def share(self) -> float:
        """The bytes that each backlog may have while the total is exceeded."""
        return self.limit / max(1, self.backlogs)


class Backlog:
    """Waiting messages in order.

    `owner` is the remote queue manager that they are addressed to: a client identifier, or the name of a share. `limit` is in
    bytes. `when_full` is `refuse`, `drop-oldest` or `dead-letter`, as in `limits.waiting_full`.
    """

    __slots__ = ("bytes", "limit", "messages", "owner", "refuses", "total", "when_full")

    def __init__(
        self,
        owner: str,
        limit: int = sys.maxsize,
        when_full: str = "dead-letter",
        total: BacklogTotal | None = None,
    ) -> None:
        self.owner = owner
        self.limit = limit
        self.when_full = when_full
        self.total = total if total is not None else BacklogTotal()
        self.messages: deque[Transmission] = deque()
        #: bytes of the messages, `MESSAGE_OVERHEAD` included
        self.bytes = 0
        #: publications that would be added are rejected
        self.refuses = False

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Transmission]:
        return iter(self.messages)

    @property
    def full(self) -> bool:
        """Whether the messages exceed the limit."""
        return self.bytes > self.limit

    @property
    def must_refuse(self) -> bool:
        """Whether publications that would be added have to be rejected.

        While the total is exceeded, backlogs with more than their share reject publications: clients that keep up are not
        affected.
        """
        part = _RECOVERED if self.refuses else 1.0
        if self.when_full == "refuse" and self.bytes > self.limit * part:
            return True
        return self.total.bytes > self.total.limit * part and self.bytes > self.total.share * part

    def make_room(self, kept: Container[int]) -> tuple[list[Transmission], list[Transmission]]:
        """Remove messages until the backlog is within its limit; return those to drop, and those for the dead-letter queue.

        Messages with these numbers stay: their client may already have them, and they hold a packet identifier.
        """
        dropped: list[Transmission] = []
        dead: list[Transmission] = []
        if self.when_full == "drop-oldest":
            stay: list[Transmission] = []
            while self.full and len(self.messages) > 1:
                transmission = self.popleft()
                (stay if transmission.msg_number in kept else dropped).append(transmission)
            self.extendleft(reversed(stay))
        elif self.when_full == "dead-letter":
            while self.full and self.messages[-1].msg_number not in kept:
                dead.append(self.pop())
            dead.reverse()
        return dropped, dead

    def append(self, transmission: Transmission) -> None:
        self.messages.append(transmission)
        self._add(transmission.message.length + MESSAGE_OVERHEAD)

    def extend(self, transmissions: list[Transmission]) -> None:
        self.messages.extend(transmissions)
        size = MESSAGE_OVERHEAD * len(transmissions)
        for transmission in transmissions:
            size += transmission.message.length
        self._add(size)

    def extendleft(self, transmissions: Iterable[Transmission]) -> None:
        for transmission in transmissions:
            self.messages.appendleft(transmission)
            self._add(transmission.message.length + MESSAGE_OVERHEAD)

    def popleft(self) -> Transmission:
        transmission = self.messages.popleft()
        self._add(-transmission.message.length - MESSAGE_OVERHEAD)
        return transmission

    def pop(self) -> Transmission:
        transmission = self.messages.pop()
        self._add(-transmission.message.length - MESSAGE_OVERHEAD)
        return transmission

    def clear(self) -> None:
        """Forget all messages."""
        self.messages.clear()
        self._add(-self.bytes)

    def withdraw(self, wanted: Callable[[Transmission], bool]) -> list[Transmission]:
        """Remove the wanted messages, and return them."""
        taken: list[Transmission] = []
        left: list[Transmission] = []
        for transmission in self.messages:
            (taken if wanted(transmission) else left).append(transmission)
        if taken:
            self.clear()
            for one in left:
                self.append(one)
        return taken

    def count(self, size: int, messages: int) -> None:
        """Count messages, with their data in bytes, that were added to `messages`, or removed if negative."""
        self._add(size + MESSAGE_OVERHEAD * messages)

    def _add(self, size: int) -> None:
        total = self.total
        before = self.bytes
        self.bytes = before + size
        total.bytes += size
        total.backlogs += bool(self.bytes) - bool(before)
