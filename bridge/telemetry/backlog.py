"""The backlogs of sessions and shared subscriptions, and the treatment of arriving messages that exceed their limits.

An owner is a session or a shared subscription. A message exceeds the limits if the backlog of its owner becomes larger than
`limits.waiting_bytes`. It also does if all backlogs together exceed `limits.waiting_total`, or the transmission queue exceeds
80 % of its MAXDEPTH, and this backlog is larger than an equal share. The limits apply to arriving messages only. Waiting
messages are neither moved nor removed, except with `drop-oldest`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final

from bridge.telemetry.transmission import Transmission

#: Overhead of a waiting message in bytes, in addition to payload, topic and properties: 570 on the embedded queue manager,
#: in pure Python, measured with 200,000 messages of 100 bytes.
MESSAGE_OVERHEAD: Final = 600
#: The fraction of the transmission queue's MAXDEPTH above which its messages exceed the limits.
DEPTH_SHARE: Final = 0.8
#: A backlog that rejects publications accepts them again below this fraction of its limit.
_RECOVERED: Final = 0.9


class Treatment(IntEnum):
    """The treatment of an arriving message."""

    KEEP = 0
    #: remove it from the transmission queue
    DISCARD = 1
    #: move it to the dead-letter queue
    DEAD_LETTER = 2
    #: keep it, and end the subscriptions of its owner
    END = 3
    #: keep it, and remove the oldest messages of the backlog
    DROP_OLDEST = 4


#: `limits.waiting_full` -> treatment of messages beyond the limits: of non-persistent messages, of persistent messages, and
#: of persistent messages beyond the limits of dead letters (`limits.dead_letter_bytes`, `limits.dead_letter_total`).
BEYOND: Final[dict[str, tuple[Treatment, Treatment, Treatment]]] = {
    "dead-letter": (Treatment.DISCARD, Treatment.DEAD_LETTER, Treatment.END),
    "end-session": (Treatment.DISCARD, Treatment.END, Treatment.END),
    "drop-oldest": (Treatment.DROP_OLDEST, Treatment.DROP_OLDEST, Treatment.DROP_OLDEST),
    # The publications that follow are rejected.
    "refuse": (Treatment.KEEP, Treatment.KEEP, Treatment.KEEP),
}
#: Enum member access is slow, so bind once.
_KEEP: Final = Treatment.KEEP
_DISCARD: Final = Treatment.DISCARD
_DEAD_LETTER: Final = Treatment.DEAD_LETTER
_END: Final = Treatment.END


#: The names of the limits.
WAITING_BYTES: Final = "waiting_bytes"
WAITING_TOTAL: Final = "waiting_total"
MAXDEPTH: Final = "MAXDEPTH"


def above_share(own: float, total: float, limit: float, owners: int) -> bool:
    """Return whether a total exceeds its limit and one of its owners has more than an equal share of the limit."""
    return total > limit and own * owners > limit


class BacklogLimits:
    """The limits of all backlogs of a bridge, and their sums. A change applies to messages that arrive later."""

    __slots__ = (
        "backlogs",
        "bytes",
        "depth",
        "max_depth",
        "owner_bytes",
        "reserve_dead_letter",
        "total_bytes",
        "when_full",
    )

    def __init__(
        self, owner_bytes: int = sys.maxsize, when_full: str = "dead-letter", total_bytes: int = sys.maxsize
    ) -> None:
        #: `limits.waiting_bytes`
        self.owner_bytes = owner_bytes
        #: `limits.waiting_total`
        self.total_bytes = total_bytes
        #: `limits.waiting_full`
        self.when_full = when_full
        #: bytes of all backlogs, and number of backlogs that are not empty
        self.bytes = 0
        self.backlogs = 0
        #: the depth of the transmission queue, and its MAXDEPTH, or 0 if unknown
        self.depth = 0
        self.max_depth = 0
        #: returns whether to dead-letter a message of this owner and size in bytes. If so, counts it
        self.reserve_dead_letter: Callable[[str, int], bool] = lambda _owner, _size: True

    def exceeded(self, backlog: Backlog, size: int, messages: int, part: float = 1.0) -> str:
        """Return the limit that a backlog with `size` more bytes of messages exceeds, or "".

        The limits are reduced to `part` of their values.
        """
        own = backlog.bytes + size
        if own > self.owner_bytes * part:
            return WAITING_BYTES
        owners = self.backlogs + (not backlog.bytes)
        if above_share(own, self.bytes + size, self.total_bytes * part, owners):
            return WAITING_TOTAL
        most = DEPTH_SHARE * self.max_depth * part
        return MAXDEPTH if most and above_share(len(backlog.messages) + messages, self.depth, most, owners) else ""


#: The shared, immutable content of empty backlogs. A separate deque would take 760 bytes.
_NO_MESSAGES: Final[deque[Transmission]] = deque(maxlen=0)


class NotAdmitted:
    """The messages of a batch that a backlog did not admit."""

    __slots__ = ("beyond", "dead_letters", "discarded", "dropped", "ends", "limit")

    def __init__(self) -> None:
        #: number of messages beyond the limits, and the limit that the last of them exceeded, or ""
        self.beyond = 0
        self.limit = ""
        #: new messages to discard
        self.discarded: list[Transmission] = []
        #: new messages for the dead-letter queue
        self.dead_letters: list[Transmission] = []
        #: the oldest messages of the backlog, which were dropped
        self.dropped: list[Transmission] = []
        #: whether the subscriptions of the owner must end
        self.ends = False


class Backlog:
    """Waiting messages in order.

    `owner` is the remote queue manager of the messages: a client identifier, or the name of a share.
    """

    __slots__ = ("bytes", "limits", "messages", "owner", "refuses")

    def __init__(self, owner: str, limits: BacklogLimits | None = None) -> None:
        self.owner = owner
        self.limits = limits if limits is not None else BacklogLimits()
        self.messages = _NO_MESSAGES
        #: bytes of the messages, including `MESSAGE_OVERHEAD`
        self.bytes = 0
        #: whether publications that would be added are rejected
        self.refuses = False

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Transmission]:
        return iter(self.messages)

    @property
    def must_refuse(self) -> bool:
        """Whether publications that would be added must be rejected (`waiting_full: refuse`)."""
        limits = self.limits
        part = _RECOVERED if self.refuses else 1.0
        return limits.when_full == "refuse" and bool(limits.exceeded(self, 0, 0, part))

    def admit(self, arriving: Sequence[Transmission], exempt: Container[int]) -> NotAdmitted:
        """Add arriving messages in order, except those beyond the limits.

        `drop-oldest` does not drop messages with numbers in `exempt`. Their client may already have them, and they have
        packet identifiers. Messages of another owner, from a shared subscription, are always added.
        """
        admission = NotAdmitted()
        limits = self.limits
        for transmission in arriving:
            size = transmission.message.size + MESSAGE_OVERHEAD
            verdict = _KEEP
            if transmission.client_id == self.owner and (limit := limits.exceeded(self, size, 1)):
                admission.limit = limit
                admission.beyond += 1
                verdict = self._verdict(transmission)
            if verdict == _DISCARD:
                admission.discarded.append(transmission)
            elif verdict == _DEAD_LETTER:
                admission.dead_letters.append(transmission)
            else:
                before = self.bytes
                self.append(transmission)
                if verdict == _END:
                    admission.ends = True
                elif verdict != _KEEP:
                    self._drop_oldest(before, exempt, admission.dropped)
        return admission

    def _verdict(self, transmission: Transmission) -> Treatment:
        """Return the treatment of a message beyond the limits."""
        limits = self.limits
        non_persistent, persistent, otherwise = BEYOND[limits.when_full]
        if not transmission.persistent:
            return non_persistent
        if persistent == _DEAD_LETTER and not limits.reserve_dead_letter(self.owner, transmission.message.size):
            return otherwise
        return persistent

    def _drop_oldest(self, before: int, exempt: Container[int], dropped: list[Transmission]) -> None:
        """Drop messages until the backlog is within the limits, or not larger than `before`. Keep the last message."""
        stay: list[Transmission] = []
        while len(self.messages) > 1 and self.bytes > before and self.limits.exceeded(self, 0, 0):
            transmission = self.popleft()
            (stay if transmission.msg_number in exempt else dropped).append(transmission)
        self.extendleft(reversed(stay))

    def append(self, transmission: Transmission) -> None:
        self._own().append(transmission)
        self._add(transmission.message.size + MESSAGE_OVERHEAD)

    def extend(self, transmissions: list[Transmission], size: int) -> None:
        """Append messages. `size` is the result of `size_of`."""
        self._own().extend(transmissions)
        self._add(size)

    def extendleft(self, transmissions: Iterable[Transmission]) -> None:
        messages = self._own()
        for transmission in transmissions:
            messages.appendleft(transmission)
            self._add(transmission.message.size + MESSAGE_OVERHEAD)

    def insert(self, transmission: Transmission) -> None:
        """Insert a message that arrived before the last messages, in the order of message numbers."""
        later: list[Transmission] = []
        while self.messages and self.messages[-1].msg_number > transmission.msg_number:
            later.append(self.pop())
        for requeued in (transmission, *reversed(later)):
            self.append(requeued)

    def popleft(self) -> Transmission:
        transmission = self.messages.popleft()
        self._add(-transmission.message.size - MESSAGE_OVERHEAD)
        return transmission

    def pop(self) -> Transmission:
        transmission = self.messages.pop()
        self._add(-transmission.message.size - MESSAGE_OVERHEAD)
        return transmission

    def clear(self) -> None:
        """Forget all messages."""
        self.messages = _NO_MESSAGES
        self._add(-self.bytes)

    def withdraw(self, is_wanted: Callable[[Transmission], bool]) -> list[Transmission]:
        """Remove the wanted messages, and return them."""
        transmissions: list[Transmission] = []
        remaining: list[Transmission] = []
        for transmission in self.messages:
            (transmissions if is_wanted(transmission) else remaining).append(transmission)
        if transmissions:
            self.clear()
            for kept_back in remaining:
                self.append(kept_back)
        return transmissions

    def _own(self) -> deque[Transmission]:
        """Return the deque to which messages are added."""
        if self.messages is _NO_MESSAGES:
            self.messages = deque()
        return self.messages

    def count(self, size: int, messages: int) -> None:
        """Count messages with a total size in bytes that were added to `messages`, or removed if negative."""
        self._add(size + MESSAGE_OVERHEAD * messages)

    def _add(self, size: int) -> None:
        limits = self.limits
        before = self.bytes
        self.bytes = before + size
        limits.bytes += size
        limits.backlogs += bool(self.bytes) - bool(before)


def size_of(transmissions: Iterable[Transmission]) -> int:
    """Return the bytes of messages that count in a backlog."""
    size = 0
    for transmission in transmissions:
        size += transmission.message.size + MESSAGE_OVERHEAD
    return size
