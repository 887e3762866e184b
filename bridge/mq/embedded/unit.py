"""A unit of work of the embedded queue manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from bridge.mq.embedded.queue import StoredMessage


class Changes:
    """Changes of a unit of work other than messages: objects, and the latest message of a key."""

    __slots__ = ("applied", "definitions", "displaced", "effects", "latest", "undone")

    def __init__(self) -> None:
        #: (kind, name, JSON or None) rows of the object table
        self.definitions: list[tuple[str, str, str | None]] = []
        #: (map, key, message): the message replaces the previous message of that key. None removes the previous message
        self.latest: list[tuple[dict[str, StoredMessage], str, StoredMessage | None]] = []
        #: the applied entries of `latest`
        self.applied: list[tuple[dict[str, StoredMessage], str, StoredMessage | None]] = []
        #: (map, key, message): the previous message of a key in `latest`, to be restored by a backout
        self.displaced: list[tuple[dict[str, StoredMessage], str, StoredMessage]] = []
        #: called when the unit takes effect, before messages become available
        self.effects: list[Callable[[], None]] = []
        #: called instead of `effects` if the unit cannot be committed
        self.undone: list[Callable[[], None]] = []

    def add(self, changes: Changes) -> None:
        """Append other changes."""
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
    """A unit of work of the embedded queue manager, which is atomic."""

    __slots__ = ("barrier", "changed", "done", "gets", "puts", "verbs")

    def __init__(self) -> None:
        #: number of messages put and got, as counted for MAXUMSGS. A publication counts once
        self.verbs = 0
        self.puts: list[StoredMessage] = []
        #: messages got, which are unlinked from their queues
        self.gets: list[StoredMessage] = []
        #: changes other than messages. None for nearly all units
        self.changed: Changes | None = None
        #: whether messages of earlier units must reach their consumer before this unit is done
        self.barrier = False
        #: called with MQRC_NONE, or with the reason code if the unit was backed out
        self.done: Callable[[int], None] | None = None

    @property
    def changes(self) -> Changes:
        """Changes other than messages, created if necessary."""
        if self.changed is None:
            self.changed = Changes()
        return self.changed

    def add(self, unit: Unit) -> None:
        """Append the content of another unit of work."""
        self.puts += unit.puts
        self.gets += unit.gets
        if unit.changed is not None:
            self.changes.add(unit.changed)

    def withdraw(self, first: int) -> None:
        """Remove the puts from this position on, because one of them was rejected."""
        for stored in self.puts[first:]:
            stored.queue.forget()
        del self.puts[first:]

    def define(self, kind: str, name: str, attributes: object, effect: Callable[[], None] | None = None) -> Unit:
        """Store an object, or delete it if `attributes` is None. `effect` is called with the commit. Return the unit."""
        row = None if attributes is None else msgspec.json.encode(attributes).decode()
        self.changes.definitions.append((kind, name, row))
        if effect is not None:
            self.changes.effects.append(effect)
        return self

    @property
    def is_written(self) -> bool:
        """Whether the unit of work writes to disk, or depends on such a write."""
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
    """Back out a unit of work: discard its puts, and restore the messages that it got with BackoutCount incremented."""
    for stored in unit.puts:
        stored.queue.forget()
    if unit.changed is not None:
        for restore in reversed(unit.changed.undone):
            restore()
    for stored in unit.gets:
        stored.backout_count += 1
        stored.queue.restore(stored)
    for queue_ in {id(stored.queue): stored.queue for stored in unit.gets}.values():
        queue_.announce()


def take_back(units: list[Unit]) -> None:
    """Restore the latest messages of keys from before these units."""
    changes = [unit.changed for unit in units if unit.changed is not None]
    for change in changes:
        for table, key, replacement in change.applied:
            if replacement is not None and table.get(key) is replacement:
                del table[key]
    for change in changes:
        for table, key, before in change.displaced:
            table[key] = before


@contextmanager
def whole(unit: Unit) -> Iterator[None]:
    """Savepoint: roll back the changes made in the block if it raises."""
    changes = unit.changes
    lists = (unit.puts, unit.gets, changes.definitions, changes.latest, changes.effects, changes.undone)
    before = [len(items) for items in lists]
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
            stored.backout_count -= 1  # the get failed, so the application never received the message
        for entries, length in zip(lists, before, strict=True):
            del entries[length:]  # type: ignore[attr-defined]
        raise
