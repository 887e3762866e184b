"""A local queue: its messages in priority and arrival order, its depth, and its waiting readers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from bridge.mq.embedded.attributes import Value
from bridge.telemetry.message import Held
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc


class Row:
    """What is still wanted of a row of the log."""

    __slots__ = ("id", "live", "logged", "removed_by", "size", "tombstones")

    def __init__(self, row_id: int, size: int) -> None:
        self.id = row_id
        self.size = size
        #: messages put by this row
        self.logged = 0
        #: those of them that are still on a queue
        self.live = 0
        #: removals in this row of messages whose own rows still exist
        self.tombstones = 0
        #: rows that remove messages of this one, and how many each
        self.removed_by: dict[Row, int] = {}


#: The highest priority of the queue manager (MaxPriority).
MAX_PRIORITY = 9


class _Chain:
    """A doubly linked list of messages of one priority; linking and unlinking cost the same however long it is."""

    __slots__ = ("first", "inserted", "last")

    def __init__(self) -> None:
        self.first: StoredMessage | None = None
        self.last: StoredMessage | None = None
        #: the message that was linked before others last: the next of its unit of work comes close behind it
        self.inserted: StoredMessage | None = None

    def append(self, stored: StoredMessage) -> None:
        """Link a message at its place, which is nearly always the last: one put earlier may be committed later."""
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
        """Link a message that was taken, at its old place, which is nearly always the first."""
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
    """A QLOCAL and the messages on it.

    `depth` counts as CURDEPTH does: every message put, committed or not, until the get of it is committed.
    """

    __slots__ = (
        "attributes",
        "browsers",
        "chains",
        "consumer",
        "deleted",
        "depth",
        "dequeued",
        "enqueued",
        "exclusive",
        "expiring",
        "fifo",
        "high_depth",
        "inputs",
        "is_transmission",
        "locks",
        "marks",
        "max_depth",
        "max_length",
        "name",
        "outputs",
        "owner",
        "put_enabled",
        "reset_at",
        "temporary",
        "waiters",
    )

    def __init__(self, name: str, attributes: dict[str, Value]) -> None:
        self.name = name
        self.depth = 0
        self.chains: dict[int, _Chain] = {}
        #: takes every message as it arrives, instead of gets (the telemetry service at its transmission queue)
        self.consumer: Callable[[Sequence[StoredMessage]], None] | None = None
        #: a message with an expiry may lie on it
        self.expiring = False
        #: called, once each, when messages arrive
        self.waiters: list[Callable[[], None]] = []
        #: open handles for input, browse and output, as IPPROCS and OPPROCS count them
        self.inputs = 0
        self.exclusive = False
        self.browsers = 0
        self.outputs = 0
        #: a managed destination: goes with its subscription, never to disk
        self.temporary = False
        #: a dynamic queue that is gone; handles for it are good for MQCLOSE only
        self.deleted = False
        #: who made a dynamic queue, and may do everything with it; None for the bridge, and for any other queue
        self.owner: str | None = None
        #: number of a message -> the handle that has locked it (MQGMO_LOCK)
        self.locks: dict[int, object] = {}
        #: number of a message -> time.monotonic() until which cooperating browsers see it as marked
        self.marks: dict[int, float] = {}
        self.attributes = attributes
        self.refresh()
        self.reset_statistics()

    def reset_statistics(self) -> None:
        """Count anew what RESET QSTATS tells: messages that arrived, messages taken, and the greatest depth."""
        self.enqueued = self.dequeued = 0
        self.high_depth = self.depth
        self.reset_at = time.monotonic()

    def end(self) -> None:
        """Take no message from now on: the queue is deleted, though a subscription may still name it."""
        self.deleted = True
        self.put_enabled = False

    def refresh(self) -> None:
        """Take over attributes after an ALTER."""
        attributes = self.attributes
        self.max_depth = int(attributes["MAXDEPTH"])
        self.max_length = int(attributes["MAXMSGL"])
        self.put_enabled = attributes["PUT"] == "ENABLED"
        self.fifo = attributes["MSGDLVSQ"] == "FIFO"
        self.is_transmission = attributes["USAGE"] == "XMITQ"

    def refusal(self, length: int) -> int:
        """Return the reason code for which a message of `length` bytes cannot be put, or MQRC_NONE."""
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
        chain = self.chains.get(priority)
        if chain is None:
            self.chains[priority] = chain = _Chain()
            self.chains = dict(sorted(self.chains.items(), reverse=True))
        return chain

    def append(self, stored: StoredMessage) -> None:
        """Make a message available, behind those of its priority that were put before it. `announce` tells who waits."""
        self._chain(stored).append(stored)
        self.enqueued += 1
        if self.depth > self.high_depth:
            self.high_depth = self.depth
        if stored.expires_at:
            self.expiring = True

    def announce(self) -> None:
        """Wake those who wait for a message."""
        waiters = self.waiters[:]
        self.waiters.clear()  # in place: who comes too late puts itself back on the list that it knows
        for wake in waiters:
            wake()

    def take(self, stored: StoredMessage) -> None:
        """Unlink a message: nobody else can get it. The unit of work ends with `forget` or `restore`."""
        self._chain(stored).unlink(stored)

    def restore(self, stored: StoredMessage) -> None:
        """Put a message back at its place after a backout."""
        self._chain(stored).restore(stored)

    def messages(self) -> Iterator[StoredMessage]:
        """Yield available messages in the order that gets take them. Messages may be taken while iterating."""
        for chain in list(self.chains.values()):
            stored = chain.first
            while stored is not None:
                following = stored.following
                yield stored
                stored = following

    def numbered(self, number: int) -> Iterator[StoredMessage]:
        """Yield the available messages that can have the MsgId of a number: that one, and those with a given MsgId."""
        for chain in list(self.chains.values()):
            stored = chain.first
            while stored is not None:
                following = stored.following
                if stored.msg_number == number or stored.msg_id is not None:
                    yield stored
                stored = following

    def after(self, cursor: StoredMessage | None, before: StoredMessage | None = None) -> Iterator[StoredMessage]:
        """Yield available messages behind a browse cursor (None: from the first).

        `before` is a message that stood before the cursor: where that one was taken, the search begins there.
        """
        if cursor is None:
            yield from self.messages()
            return
        if cursor.linked:
            yield from self._behind(cursor)
            return
        place = self._place(cursor)
        known = before is not None and before.linked and self._place(before) < place
        for stored in self._behind(before) if before is not None and known else self.messages():
            if self._place(stored) > place:
                yield stored

    def _behind(self, linked: StoredMessage) -> Iterator[StoredMessage]:
        priority = 0 if self.fifo else linked.priority
        lower = [chain.first for level, chain in self.chains.items() if level < priority]
        for stored in (linked.following, *lower):
            while stored is not None:
                following = stored.following  # it may be taken before we go on
                yield stored
                stored = following

    def _place(self, stored: StoredMessage) -> tuple[int, int]:
        """Return what orders messages as gets take them."""
        return 0 if self.fifo else -stored.priority, stored.msg_number


class StoredMessage(Held):
    """One message on one queue. Publications to many subscriptions share `message`; all else is each delivery's own.

    It serves as the backend's Transmission when it lies on the transmission queue.
    """

    queue: Queue
    #: unique in this queue manager for all time; the last eight bytes of the MsgId it generates
    msg_number: int
    message: AnyMessage
    persistent: bool
    priority: int
    #: seconds since the epoch
    put_time: float
    #: RemoteQMgrName and RemoteQName when it lies on a transmission queue
    client_id: str = ""
    remote_queue: str = ""
    topic: str | None = None
    user_data: str | None = None
    retained: bool = False
    #: MQMD.CorrelId that the subscription prescribes; None leaves the message's own
    correl_id: bytes | None = None
    #: the MsgId that the putter gave; None for one that the queue manager generates
    msg_id: bytes | None = None
    #: seconds since the epoch; 0 for a message that does not expire
    expires_at: float = 0.0
    #: must be on disk before its unit of work is committed
    durable: bool = False
    #: the row of the store that holds it, once it is on disk
    row: Row | None = None
    backout_count: int = 0
    #: name of the application that put it; None when its MQMD says its context by itself
    put_application: str | None = ""
    #: replaced by a later one before it was ever committed: it never becomes available
    superseded: bool = False
    #: place in the queue's list; a message is linked while it can be got
    linked: bool = False
    previous: StoredMessage | None = None
    following: StoredMessage | None = None

    @property
    def raw(self) -> None:
        """Return None: the message is held in its parts."""

    @property
    def expired(self) -> bool:
        """Return whether the MQMD.Expiry of the message has run down."""
        return bool(self.expires_at) and time.time() >= self.expires_at

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until the MQMD.Expiry of the message runs down; None: it has none."""
        return self.expires_at - time.time() if self.expires_at else None
