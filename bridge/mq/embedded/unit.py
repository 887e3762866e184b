"""A unit of work of the embedded queue manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bridge.mq.embedded.queue import StoredMessage


class Changes:
    """What a unit of work changes beside messages: objects, and which message is the latest of a key."""

    __slots__ = ("applied", "definitions", "displaced", "effects", "latest", "undone")

    def __init__(self) -> None:
        #: (kind, name, JSON or None) rows of the object table
        self.definitions: list[tuple[str, str, str | None]] = []
        #: (map, key, message): the message becomes the one of that key, the one before it is removed; None only removes
        self.latest: list[tuple[dict[str, StoredMessage], str, StoredMessage | None]] = []
        #: what `latest` was, once it is in force
        self.applied: list[tuple[dict[str, StoredMessage], str, StoredMessage | None]] = []
        #: (map, key, message): the one of that key that a `latest` has taken, to be put back in a backout
        self.displaced: list[tuple[dict[str, StoredMessage], str, StoredMessage]] = []
        #: run when the unit takes effect, before messages become available
        self.effects: list[Callable[[], None]] = []
        #: run instead when it cannot be committed
        self.undone: list[Callable[[], None]] = []

    def add(self, changes: Changes) -> None:
        """Change what others change, behind these."""
        self.definitions += changes.definitions
        self.latest += changes.latest
        self.displaced += changes.displaced
        self.effects += changes.effects
        self.undone += changes.undone

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to commit."""
        return not (self.definitions or self.latest or self.effects)


class Unit:
    """A unit of work of the embedded queue manager: what takes effect, all of it or nothing, when it ends."""

    __slots__ = ("barrier", "changed", "done", "gets", "puts", "verbs")

    def __init__(self) -> None:
        #: messages that its application has put and got, as MAXUMSGS counts them: a publication is one, however many get it
        self.verbs = 0
        self.puts: list[StoredMessage] = []
        #: messages taken, unlinked from their queues until the unit ends
        self.gets: list[StoredMessage] = []
        #: None: it has changed nothing but messages, as nearly all units
        self.changed: Changes | None = None
        #: messages of units before this one reach their consumer before this one is done
        self.barrier = False
        #: called with MQRC_NONE, or the reason for which nothing took effect
        self.done: Callable[[int], None] | None = None

    @property
    def changes(self) -> Changes:
        """Return what it changes beside messages, to be added to."""
        if self.changed is None:
            self.changed = Changes()
        return self.changed

    def add(self, unit: Unit) -> None:
        """Do what another unit of work does, behind what this one does."""
        self.puts += unit.puts
        self.gets += unit.gets
        if unit.changed is not None:
            self.changes.add(unit.changed)

    @property
    def is_written(self) -> bool:
        """Return whether something of the unit of work goes to disk, or depends on what does."""
        return (
            (self.changed is not None and not self.changed.empty)
            or any(stored.durable for stored in self.puts)
            or any(stored.row is not None for stored in self.gets)
        )

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to commit."""
        return not (self.puts or self.gets or (self.changed is not None and not self.changed.empty))


def undo(unit: Unit) -> None:
    """Back a unit of work out: what it put never was, what it got is there again with one backout more."""
    for stored in unit.puts:
        stored.queue.depth -= 1
    if unit.changed is not None:
        for restore in reversed(unit.changed.undone):
            restore()
    for stored in unit.gets:
        stored.backout_count += 1
        stored.queue.restore(stored)
    for queue_ in {id(stored.queue): stored.queue for stored in unit.gets}.values():
        queue_.announce()


def take_back(units: list[Unit]) -> None:
    """Make the messages that were in force before these units the latest of their keys again."""
    changes = [unit.changed for unit in units if unit.changed is not None]
    for one in changes:
        for kept, key, replacement in one.applied:
            if replacement is not None and kept.get(key) is replacement:
                del kept[key]
    for one in changes:
        for kept, key, before in one.displaced:
            kept[key] = before


@contextmanager
def whole(unit: Unit) -> Iterator[None]:
    """Have what is done within happen as a whole: whatever is raised there, nothing of it stays in the unit of work."""
    changes = unit.changes
    lists = (unit.puts, unit.gets, changes.definitions, changes.latest, changes.effects, changes.undone)
    before = [len(one) for one in lists]
    try:
        yield
    except BaseException:
        part = Unit()
        part.puts, part.gets, part.changes.undone = (
            unit.puts[before[0] :],
            unit.gets[before[1] :],
            changes.undone[before[5] :],
        )
        undo(part)
        for stored in part.gets:
            stored.backout_count -= 1  # the get failed: the application never had the message
        for one, length in zip(lists, before, strict=True):
            del one[length:]  # type: ignore[attr-defined]
        raise
