"""A local queue: its messages in priority and arrival order, its depth, and its waiting readers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mapping_backlog import MappingBacklog
from bridge.mq.mqi import MQError
from bridge.telemetry.message import Held
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc


class LogRow:
    """Counters of the log entries in a row of the log that are still needed."""

    __slots__ = ("id", "live", "logged", "removed_by", "size", "tombstones")

    def __init__(self, row_id: int, size: int) -> None:
        self.id = row_id
        self.size = size
        #: messages put by this row
        self.logged = 0
        #: messages put by this row that are still on a queue
        self.live = 0
        #: removals in this row of messages whose own rows still exist
        self.tombstones = 0
        #: number of messages of this row that other rows remove, by row
        self.removed_by: dict[LogRow, int] = {}


#: The MQOPEN options for input.
INPUT: Final = cmqc.MQOO_INPUT_AS_Q_DEF | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INPUT_EXCLUSIVE
#: The highest priority of the queue manager (MaxPriority).
MAX_PRIORITY = 9


class _Chain:
    """A doubly linked list of messages of one priority."""

    __slots__ = ("first", "inserted", "last")

    def __init__(self) -> None:
        self.first: StoredMessage | None = None
        self.last: StoredMessage | None = None
        #: the last message that was not linked at the end. The next message of its unit of work probably follows it
        self.inserted: StoredMessage | None = None

    def append(self, stored: StoredMessage) -> None:
        """Link a message in order of message number, nearly always at the end. Commits may be out of order."""
        last = self.last
        if last is not None and last.msg_number < stored.msg_number:
            stored.previous = last
            last.following = self.last = stored
            stored.linked = True
            return
        near = self.inserted
        if near is not None and near.linked and near.msg_number < stored.msg_number:
            last = near
            while last.following is not None and last.following.msg_number < stored.msg_number:
                last = last.following
        else:
            while last is not None and last.msg_number > stored.msg_number:
                last = last.previous
        self._link(last, stored, self.first if last is None else last.following)
        self.inserted = None if stored.following is None else stored

    def _link(self, before: StoredMessage | None, stored: StoredMessage, after: StoredMessage | None) -> None:
        stored.previous, stored.following = before, after
        if before is None:
            self.first = stored
        else:
            before.following = stored
        if after is None:
            self.last = stored
        else:
            after.previous = stored
        stored.linked = True

    def restore(self, stored: StoredMessage) -> None:
        """Link a message at its previous position after a backout, nearly always the first position."""
        after: StoredMessage | None = self.first
        while after is not None and after.msg_number < stored.msg_number:
            after = after.following
        self._link(self.last if after is None else after.previous, stored, after)

    def unlink(self, stored: StoredMessage) -> None:
        if stored is self.inserted:
            self.inserted = None
        before, after = stored.previous, stored.following
        if before is None:
            self.first = after
        else:
            before.following = after
        if after is None:
            self.last = before
        else:
            after.previous = before
        stored.previous = stored.following = None
        stored.linked = False


class Queue:
    """A QLOCAL and the messages on it. `depth` is CURDEPTH, which includes messages whose put or get is uncommitted."""

    def __init__(self, name: str, attributes: dict[str, Value]) -> None:
        self.name = name
        self.depth = 0
        self.chains: dict[int, _Chain] = {}
        #: receives all messages on arrival, instead of gets (the telemetry service, for its transmission queue)
        self.consumer: Callable[[Sequence[StoredMessage]], None] | None = None
        #: whether the queue may contain messages with an expiry
        self.expiring = False
        #: called once when messages arrive, and then removed
        self.waiters: list[Callable[[], None]] = []
        #: open handles for input, browse and output (IPPROCS and OPPROCS)
        self.inputs = 0
        self.exclusive = False
        self.browsers = 0
        self.outputs = 0
        #: whether it is a managed destination, which is removed with its subscription and never stored on disk
        self.temporary = False
        #: whether the queue was deleted. Handles for it allow only MQCLOSE
        self.deleted = False
        #: counts the messages, if a mapping reads them from topics
        self.backlog: MappingBacklog | None = None
        self.attributes = attributes
        self.refresh()
        self.reset_statistics()

    def count(self, backlog: MappingBacklog) -> None:
        """Limit the queue by the size of its messages, including those that are already on it."""
        self.backlog = backlog
        for stored in self.messages():
            backlog.add(stored.message.size)

    def reset_statistics(self) -> None:
        """Reset the counters of RESET QSTATS: messages put, messages got, and the maximum depth."""
        self.enqueued = self.dequeued = 0
        self.high_depth = self.depth
        self.reset_at = time.monotonic()

    def open(self, options: int) -> bool:
        """Count a handle with these MQOO_ options. Return whether it is open for exclusive input. Raises MQError."""
        exclusive = False
        if options & INPUT:
            exclusive = bool(options & cmqc.MQOO_INPUT_EXCLUSIVE) or self.attributes["SHARE"] == "NO"
            if options & cmqc.MQOO_INPUT_AS_Q_DEF and self.attributes["DEFSOPT"] == "EXCL":
                exclusive = True
            if self.exclusive or (exclusive and self.inputs):
                raise MQError(cmqc.MQRC_OBJECT_IN_USE, f"queue {self.name} is open for input elsewhere")
            self.inputs += 1
            self.exclusive = exclusive
        if options & cmqc.MQOO_BROWSE:
            self.browsers += 1
        if options & cmqc.MQOO_OUTPUT:
            self.outputs += 1
        return exclusive

    def close(self, options: int, *, exclusive: bool) -> None:
        """Undo `open`, which returned `exclusive`."""
        if options & INPUT:
            self.inputs -= 1
            self.exclusive = self.exclusive and not exclusive
        if options & cmqc.MQOO_BROWSE:
            self.browsers -= 1
        if options & cmqc.MQOO_OUTPUT:
            self.outputs -= 1

    def end(self) -> None:
        """Mark the queue as deleted and reject messages. A subscription may still refer to it."""
        self.deleted = True
        self.put_enabled = False

    def refresh(self) -> None:
        """Apply attributes after an ALTER."""
        attributes = self.attributes
        self.max_depth = int(attributes["MAXDEPTH"])
        self.max_length = int(attributes["MAXMSGL"])
        self.put_enabled = attributes["PUT"] == "ENABLED"
        self.fifo = attributes["MSGDLVSQ"] == "FIFO"
        self.is_transmission = attributes["USAGE"] == "XMITQ"

    def refusal(self, length: int) -> int:
        """Return the reason code why a message of `length` bytes cannot be put, or MQRC_NONE."""
        if self.deleted:
            return cmqc.MQRC_UNKNOWN_OBJECT_NAME
        if not self.put_enabled:
            return cmqc.MQRC_PUT_INHIBITED
        if self.depth >= self.max_depth:
            return cmqc.MQRC_Q_FULL
        if length > self.max_length:
            return cmqc.MQRC_MSG_TOO_BIG_FOR_Q
        return cmqc.MQRC_NONE

    def _chain(self, stored: StoredMessage) -> _Chain:
        priority = 0 if self.fifo else stored.priority
        return self.chains.get(priority) or self._begin_chain(priority)

    def _begin_chain(self, priority: int) -> _Chain:
        self.chains[priority] = chain = _Chain()
        self.chains = dict(sorted(self.chains.items(), reverse=True))
        return chain

    def expect(self) -> None:
        """Count a message that a unit of work puts."""
        self.depth += 1

    def forget(self) -> None:
        """Stop counting a message whose put was backed out."""
        self.depth -= 1

    @staticmethod
    def got(gets: Iterable[StoredMessage]) -> None:
        """Stop counting messages whose gets are committed, each on its queue."""
        for stored in gets:
            queue = stored.queue
            queue.depth -= 1
            queue.dequeued += 1

    def append(self, stored: StoredMessage) -> None:
        """Make a message available, after those of its priority that were put before it. Call `announce` afterwards."""
        # Not by `_chain`, which would be a call for each message.
        priority = 0 if self.fifo else stored.priority
        (self.chains.get(priority) or self._begin_chain(priority)).append(stored)
        self.enqueued += 1
        if self.depth > self.high_depth:
            self.high_depth = self.depth
        if stored.expires_at:
            self.expiring = True
        if self.backlog is not None:
            self.backlog.add(stored.message.size)

    def announce(self) -> None:
        """Wake waiting gets."""
        waiters = self.waiters[:]
        self.waiters.clear()  # in place, because a waiter that finds no message adds itself to the same list again
        for wake in waiters:
            wake()

    def take(self, stored: StoredMessage) -> None:
        """Unlink a message, so that it cannot be got again. The unit of work ends with `forget` or `restore`."""
        self.chains[0 if self.fifo else stored.priority].unlink(stored)
        if self.backlog is not None:
            self.backlog.remove(stored.message.size)

    def restore(self, stored: StoredMessage) -> None:
        """Restore a message to its position after a backout."""
        self._chain(stored).restore(stored)
        if self.backlog is not None:
            self.backlog.add(stored.message.size)

    def messages(self) -> Iterator[StoredMessage]:
        """Yield available messages in the order of gets. Messages may be taken during the iteration."""
        for chain in list(self.chains.values()):
            stored = chain.first
            while stored is not None:
                following = stored.following
                yield stored
                stored = following

    def numbered(self, number: int) -> Iterator[StoredMessage]:
        """Yield the available messages that may have the MsgId generated from a number, or a putter's MsgId."""
        for chain in list(self.chains.values()):
            stored = chain.first
            while stored is not None:
                following = stored.following
                if stored.msg_number == number or stored.msg_id is not None:
                    yield stored
                stored = following

    def after(self, cursor: StoredMessage | None, before: StoredMessage | None = None) -> Iterator[StoredMessage]:
        """Yield available messages after a browse cursor, or all messages if it is None.

        `before` is the message before the cursor. If the message under the cursor was taken, the search starts there.
        """
        if cursor is None:
            yield from self.messages()
            return
        if cursor.linked:
            yield from self._behind(cursor)
            return
        place = self._place(cursor)
        is_linked = before is not None and before.linked and self._place(before) < place
        for stored in self._behind(before) if before is not None and is_linked else self.messages():
            if self._place(stored) > place:
                yield stored

    def _behind(self, linked: StoredMessage) -> Iterator[StoredMessage]:
        priority = 0 if self.fifo else linked.priority
        lower = [chain.first for level, chain in self.chains.items() if level < priority]
        for stored in (linked.following, *lower):
            while stored is not None:
                following = stored.following  # `stored` may be taken before the iteration continues
                yield stored
                stored = following

    def _place(self, stored: StoredMessage) -> tuple[int, int]:
        """Return the sort key for the order of gets."""
        return 0 if self.fifo else -stored.priority, stored.msg_number


class StoredMessage(Held):
    """One message on one queue. Copies of a publication for several subscriptions share `message`.

    On the transmission queue, it is also a Transmission of the backend.
    """

    queue: Queue
    #: unique on this queue manager. The last eight bytes of a generated MsgId
    msg_number: int
    message: AnyMessage
    persistent: bool
    priority: int
    #: seconds since the epoch
    put_time: float
    #: RemoteQMgrName and RemoteQName on a transmission queue
    client_id: str = ""
    remote_queue: str = ""
    topic: str | None = None
    user_data: str | None = None
    retained: bool = False
    #: MQMD.CorrelId set by the subscription, or None for the message's own
    correl_id: bytes | None = None
    #: the putter's MsgId, or None for a generated MsgId
    msg_id: bytes | None = None
    #: seconds since the epoch, or 0 if the message does not expire
    expires_at: float = 0.0
    #: must be on disk before its unit of work is committed
    durable: bool = False
    #: the row of the log that contains the message, or None if it is not on disk
    row: LogRow | None = None
    backout_count: int = 0
    #: name of the application that put it, or None if its MQMD contains the origin context
    put_application: str | None = ""
    #: whether a later message replaced it before it was committed, so that it never becomes available
    superseded: bool = False
    #: position in the queue's list. A message is linked while it is available
    linked: bool = False
    previous: StoredMessage | None = None
    following: StoredMessage | None = None

    @property
    def key(self) -> int:
        """The number, which is unique across restarts."""
        return self.msg_number

    @property
    def put_at(self) -> bytes:
        """Empty, because message numbers are in the order of puts."""
        return b""

    @property
    def raw(self) -> None:
        """None, because the message is stored in parts."""

    @property
    def expired(self) -> bool:
        """Whether the message has expired (MQMD.Expiry)."""
        return bool(self.expires_at) and time.time() >= self.expires_at

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the message expires (MQMD.Expiry), or None if it does not expire."""
        return self.expires_at - time.time() if self.expires_at else None
