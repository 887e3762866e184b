"""Object handles, which MQOPEN and MQSUB return, and logical messages of groups and segments.

IPPROCS and OPPROCS of a queue count a handle from `open_queue` to `release_queue`. A changed definition may invalidate
handles: calls other than MQCLOSE then return MQRC_OBJECT_CHANGED. Source: IBM MQ documentation, "MQOPEN - Open object" (the
attributes that affect handles), "Some cases where the put calls fail", "ALTER queues" and "ALTER QMGR" (FORCE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.property import leading
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.selector import Selection
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import check_topic_string
from bridge.mq.mqi import MQError
from bridge.mqtt.topics import is_wildcard
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

GROUPED = cmqc.MQMF_MSG_IN_GROUP | cmqc.MQMF_LAST_MSG_IN_GROUP
SEGMENT = cmqc.MQMF_SEGMENT | cmqc.MQMF_LAST_SEGMENT
#: The length of segments created by the queue manager is a multiple of this, so that two-byte characters are not split.
_BOUNDARY = 16


#: Resolves ObjectName and ObjectQMgrName. Raises MQError.
Resolve = Callable[[str, str], ResolvedDestination]


class GroupPosition(msgspec.Struct):
    """The position of a handle in a group or logical message that it puts or gets in logical order."""

    group_id: bytes = cmqc.MQGI_NONE
    #: MsgSeqNumber of the last message; 0 before the first
    sequence: int = 0
    #: the group has more messages
    in_group: bool = False
    #: Offset of the next segment; 0 at the end of the logical message
    offset: int = 0
    #: persistence of all messages and segments; None before the first, and for gets
    persistent: bool | None = None
    #: whether all are put or got under syncpoint; None before the first, and for browses
    syncpoint: bool | None = None

    @property
    def unfinished(self) -> int:
        """MQRC_INCOMPLETE_MSG, MQRC_INCOMPLETE_GROUP, or MQRC_NONE if nothing is incomplete."""
        if self.offset:
            return cmqc.MQRC_INCOMPLETE_MSG
        return cmqc.MQRC_INCOMPLETE_GROUP if self.in_group else cmqc.MQRC_NONE

    def check(self, syncpoint: bool, persistent: bool | None = None) -> None:
        """Check that syncpoint and persistence match the previous messages (IBM MQ, 2185 and 2245). Raises MQError."""
        if not self.unfinished:
            return
        if self.syncpoint not in (None, syncpoint):
            raise MQError(cmqc.MQRC_INCONSISTENT_UOW, "messages of one group are all in a unit of work, or none is")
        if persistent is not None and self.persistent not in (None, persistent):
            raise MQError(cmqc.MQRC_INCONSISTENT_PERSISTENCE, "messages of one group are all persistent, or none is")

    def put(
        self, flags: int, group_id: bytes, length: int, generated: Callable[[], bytes]
    ) -> tuple[dict[str, Any], GroupPosition]:
        """Return GroupId, MsgSeqNumber and Offset of the next message, of `length` bytes, and the position after it.

        Raises MQError if the current group or logical message is incomplete.
        """
        grouped, segment = bool(flags & GROUPED), bool(flags & SEGMENT)
        if self.in_group and not grouped:
            raise MQError(cmqc.MQRC_INCOMPLETE_GROUP, "the group that was begun has no last message yet")
        if self.offset and not segment:
            raise MQError(cmqc.MQRC_INCOMPLETE_MSG, "the logical message that was begun has no last segment yet")
        if not grouped and not segment:
            return {}, GroupPosition()
        if not self.in_group and not self.offset:
            own, sequence = group_id if group_id != cmqc.MQGI_NONE else generated(), 1
        else:
            own, sequence = self.group_id, self.sequence if self.offset else self.sequence + 1
        changes = {"GroupId": own, "MsgSeqNumber": sequence, "Offset": self.offset}
        return changes, _behind(flags, own, sequence, self.offset + length)

    def is_next(self, md: MQMD) -> bool:
        """Return whether a message is next in logical order.

        At the start, that is any first message of a group, or a message without a group.
        """
        if not self.in_group and not self.offset:
            return md.MsgSeqNumber == 1 and md.Offset == 0
        sequence = self.sequence if self.offset else self.sequence + 1
        return (md.GroupId, md.MsgSeqNumber, md.Offset) == (self.group_id, sequence, self.offset)


def behind(stored: StoredMessage, *, whole: bool) -> GroupPosition:
    """Return the position after a message, or after the complete logical message that begins with it."""
    md = stored.message.md
    flags = md.MsgFlags | cmqc.MQMF_LAST_SEGMENT if whole else md.MsgFlags
    return _behind(flags, md.GroupId, md.MsgSeqNumber, md.Offset + _length(stored))


def _behind(flags: int, group_id: bytes, sequence: int, offset: int) -> GroupPosition:
    unfinished = bool(flags & SEGMENT) and not flags & cmqc.MQMF_LAST_SEGMENT
    in_group = bool(flags & GROUPED) and (unfinished or not flags & cmqc.MQMF_LAST_MSG_IN_GROUP)
    return (
        GroupPosition(group_id, sequence, in_group, offset if unfinished else 0)
        if unfinished or in_group
        else GroupPosition()
    )


def _length(stored: StoredMessage) -> int:
    """Return the length of the application data in bytes, without the properties before the first segment."""
    message = stored.message
    own = leading(message.md, message.data) if isinstance(message, Message) and message.made_rfh2 else None
    return message.length if own is None else len(own[1])


def segments(queue: Queue, first: StoredMessage) -> list[StoredMessage]:
    """Return the available segments of a logical message, from Offset 0 to the first gap."""
    md = first.message.md
    if not md.MsgFlags & SEGMENT:
        return [first]
    parts = [
        stored for stored in queue.messages() if _key(stored) == _key(first) and stored.message.md.MsgFlags & SEGMENT
    ]
    return _joining(parts)


def _key(stored: StoredMessage) -> tuple[bytes, int]:
    return stored.message.md.GroupId, stored.message.md.MsgSeqNumber


def _joining(parts: Iterable[StoredMessage]) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    offset = 0
    for one in sorted(parts, key=lambda part: part.message.md.Offset):
        if one.message.md.Offset == offset:
            found.append(one)
            offset += _length(one)
    return found


def is_whole(parts: list[StoredMessage]) -> bool:
    """Return whether consecutive segments form a complete logical message."""
    flags = parts[-1].message.md.MsgFlags if parts else cmqc.MQMF_SEGMENT
    return not flags & SEGMENT or bool(flags & cmqc.MQMF_LAST_SEGMENT)


def available(queue: Queue, *, groups: bool) -> Callable[[StoredMessage], bool]:
    """Return the predicate of MQGMO_ALL_SEGMENTS_AVAILABLE, and with `groups` of MQGMO_ALL_MSGS_AVAILABLE.

    A logical message or group whose beginning is on the queue must be complete. If the beginning is missing, an earlier get
    got it, and the group was complete then.
    """
    logical: dict[tuple[bytes, int], list[StoredMessage]] = {}
    for stored in queue.messages():
        if stored.message.md.MsgFlags & (GROUPED | SEGMENT):
            logical.setdefault(_key(stored), []).append(stored)
    whole = {key for key, parts in logical.items() if is_whole(_joining(parts))}
    lasts = {
        key[0]: key[1]
        for key, parts in logical.items()
        if any(part.message.md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP for part in parts)
    }

    begins = {key for key, parts in logical.items() if any(not part.message.md.Offset for part in parts)}

    def is_available(stored: StoredMessage) -> bool:
        md = stored.message.md
        if groups and md.MsgFlags & GROUPED and (md.GroupId, 1) in begins:
            last = lasts.get(md.GroupId, 0)
            return bool(last) and all((md.GroupId, number) in whole for number in range(1, last + 1))
        return not md.MsgFlags & SEGMENT or _key(stored) not in begins or _key(stored) in whole

    return is_available


def joined(md: MQMD, data: bytes, rest: Iterable[bytes]) -> tuple[MQMD, bytes]:
    """Return MQMD and data of a logical message, from its first segment and the data of the others (MQGMO_COMPLETE_MSG)."""
    grouped = md.MsgFlags & GROUPED
    return (
        msgspec.structs.replace(
            md, MsgFlags=md.MsgFlags & ~SEGMENT, GroupId=md.GroupId if grouped else cmqc.MQGI_NONE, Offset=0
        ),
        b"".join((data, *rest)),
    )


def segmented(message: Message, limit: int, generated: Callable[[], bytes]) -> list[Message]:
    """Split a message into segments of at most `limit` bytes (MQMF_SEGMENTATION_ALLOWED)."""
    md, data = message.md, message.data
    size = limit - limit % _BOUNDARY or limit
    group_id = md.GroupId if md.GroupId != cmqc.MQGI_NONE else generated()
    made = []
    for offset in range(0, len(data), size):
        last = cmqc.MQMF_LAST_SEGMENT if offset + size >= len(data) else 0
        flags = md.MsgFlags | cmqc.MQMF_SEGMENT | last
        own = msgspec.structs.replace(md, GroupId=group_id, Offset=offset, MsgFlags=flags, OriginalLength=len(data))
        made.append(Message(own, data[offset : offset + size]))
    return made


#: The MQOPEN options for input.
INPUT = cmqc.MQOO_INPUT_AS_Q_DEF | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INPUT_EXCLUSIVE


class Handle(msgspec.Struct, eq=False, kw_only=True):
    """What MQOPEN or MQSUB has opened."""

    #: ObjectName and ObjectQMgrName of MQOPEN, if the name of the object was resolved
    opened: tuple[str, ...] = ()
    #: MQOO_ options; 0 for a subscription
    options: int = 0
    #: a definition has changed: only MQCLOSE is allowed
    changed: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """OBJTYPE and OBJNAME of DISPLAY CONN."""
        raise NotImplementedError

    @property
    def definition(self) -> tuple[str, str]:
        """Kind and name of the object whose attributes are inquired. Raises MQError."""
        raise MQError(cmqc.MQRC_HOBJ_ERROR, "the attributes of topics and subscriptions are not inquired")

    @property
    def target(self) -> ResolvedDestination | None:
        """The destination to which `opened` was resolved; None if it is not a queue or topic."""
        return None

    @property
    def gets(self) -> bool:
        """Whether it is open for input."""
        return False

    def is_for(self, kind: str, name: str, queue: Queue | None) -> bool:
        """Return whether it is open for an object, or its name resolves via it. `queue` is the queue of a QLOCAL."""
        return self.target is not None and (self.target.queue is queue if kind == "QLOCAL" else name in self.opened)

    def leads_elsewhere(self, resolve: Resolve) -> bool:
        """Return whether its name now resolves to a different destination."""
        own = self.target
        if own is None or not self.opened:
            return False
        try:
            found = resolve(*self.opened)
        except MQError:
            return True
        return _ends(found) != _ends(own)

    def invalidate(self) -> None:
        """Allow only MQCLOSE from now on. A waiting get ends."""
        self.changed = True


def _ends(destination: ResolvedDestination) -> tuple[object, ...]:
    return destination.queue, destination.remote_queue, destination.client_id, destination.topic


class QueueHandle(Handle, eq=False):
    """An open queue."""

    destination: ResolvedDestination
    #: kind and attributes of the opened object: QLOCAL, QALIAS or QREMOTE
    kind: str = "QLOCAL"
    attributes: dict[str, Value] = {}
    #: the object whose authorities were checked
    profile: str = ""
    #: the browse cursor
    cursor: StoredMessage | None = None
    #: the message before the cursor, if the handle has got the one under it: browsing continues there
    before: StoredMessage | None = None
    exclusive: bool = False
    #: MQOPEN created the temporary dynamic queue, which is deleted with the handle
    creator: bool = False
    selection: Selection | None = None
    #: message numbers that this handle has marked (MQGMO_MARK_BROWSE_HANDLE)
    marked: set[int] = msgspec.field(default_factory=set)
    #: MQGMO_LOCK: the locked message
    locked: StoredMessage | None = None
    #: MQOO_SAVE_ALL_CONTEXT: the MQMD of the last message got
    context: MQMD | None = None
    #: MQPMO_LOGICAL_ORDER: the position after the last message put
    put_place: GroupPosition = msgspec.field(default_factory=GroupPosition)
    #: MQGMO_LOGICAL_ORDER: the position after the last message got or browsed
    got_place: GroupPosition = msgspec.field(default_factory=GroupPosition)

    @property
    def names(self) -> tuple[str, str]:
        return "QUEUE", self.opened[0] if self.opened and self.opened[0] else self.queue.name

    @property
    def definition(self) -> tuple[str, str]:
        return self.kind, self.destination.name if self.kind != "QLOCAL" else self.queue.name

    @property
    def target(self) -> ResolvedDestination:
        return self.destination

    @property
    def queue(self) -> Queue:
        queue = self.destination.queue
        assert queue is not None
        return queue

    @property
    def gets(self) -> bool:
        return bool(self.options & INPUT)

    def invalidate(self) -> None:
        super().invalidate()
        self.queue.announce()


class TopicHandle(Handle, eq=False):
    """An open topic."""

    topic: str

    @property
    def names(self) -> tuple[str, str]:
        return "TOPIC", self.topic

    @property
    def target(self) -> ResolvedDestination:
        return ResolvedDestination(None, topic=self.topic)


class SubscriptionHandle(Handle, eq=False):
    """An open subscription."""

    subscription: Subscription

    @property
    def names(self) -> tuple[str, str]:
        return "SUB", self.subscription.name


class DefinitionHandle(Handle, eq=False):
    """An object open only for inquire or set: the queue manager, a namelist, or a queue definition."""

    kind: str
    name: str

    @property
    def names(self) -> tuple[str, str]:
        return "QUEUE" if self.kind.startswith("Q") and self.kind != "QMGR" else self.kind, self.name

    @property
    def definition(self) -> tuple[str, str]:
        return self.kind, self.name

    def is_for(self, kind: str, name: str, queue: Queue | None) -> bool:
        return self.definition == (kind, name)


def open_queue(destination: ResolvedDestination, options: int) -> QueueHandle:
    """Create a handle for a queue, and count it. Raises MQError."""
    handle = QueueHandle(destination, options=options)
    queue = handle.queue
    handle.attributes = queue.attributes
    if options & INPUT:
        exclusive = bool(options & cmqc.MQOO_INPUT_EXCLUSIVE) or queue.attributes["SHARE"] == "NO"
        if options & cmqc.MQOO_INPUT_AS_Q_DEF and queue.attributes["DEFSOPT"] == "EXCL":
            exclusive = True
        if queue.exclusive or (exclusive and queue.inputs):
            raise MQError(cmqc.MQRC_OBJECT_IN_USE, f"queue {queue.name} is open for input elsewhere")
        queue.inputs += 1
        queue.exclusive = handle.exclusive = exclusive
    if options & cmqc.MQOO_BROWSE:
        queue.browsers += 1
    if options & cmqc.MQOO_OUTPUT:
        queue.outputs += 1
    return handle


def release_queue(handle: QueueHandle) -> None:
    """Undo the counting of `open_queue`."""
    queue = handle.queue
    if handle.options & INPUT:
        queue.inputs -= 1
        queue.exclusive = queue.exclusive and not handle.exclusive
    queue.browsers -= bool(handle.options & cmqc.MQOO_BROWSE)
    queue.outputs -= bool(handle.options & cmqc.MQOO_OUTPUT)
    if handle.locked is not None:
        queue.locks.pop(handle.locked.msg_number, None)


def check_publishable(topic: str) -> str:
    """Return a topic string after checking that it can be published to. Raises MQError."""
    check_topic_string(topic)
    if not topic or is_wildcard(topic):
        raise MQError(cmqc.MQRC_TOPIC_STRING_ERROR, f"cannot publish to topic string {topic[:60]!r}")
    return topic


def open_handles(queue_manager: QueueManager) -> Iterator[Handle]:
    """Yield the handles of all applications."""
    for hconn in list(queue_manager.applications):
        yield from hconn.handles.values()


def invalidate(handles: Iterable[Handle]) -> None:
    for handle in handles:
        handle.invalidate()


def open_for(queue_manager: QueueManager, kind: str, name: str) -> list[Handle]:
    """Return the handles that are open for a queue, or whose names resolve via its definition."""
    queue = queue_manager.objects.queues.get(name) if kind == "QLOCAL" else None
    return [handle for handle in open_handles(queue_manager) if handle.is_for(kind, name, queue)]


def affected(
    queue_manager: QueueManager, kind: str, name: str, old: dict[str, Value], new: dict[str, Value]
) -> list[Handle]:
    """Return the handles that new attributes of a queue invalidate. If there are any, the command requires FORCE."""
    if kind == "QLOCAL":
        handles = open_for(queue_manager, kind, name)
        unshared = (old["SHARE"], new["SHARE"]) == ("YES", "NO") and sum(handle.gets for handle in handles) > 1
        return handles if unshared or old["USAGE"] != new["USAGE"] else []
    if kind not in ("QALIAS", "QREMOTE"):
        return []
    resolving = ("TARGET", "TARGTYPE") if kind == "QALIAS" else ("RNAME", "RQMNAME", "XMITQ")
    if all(old[keyword] == new[keyword] for keyword in resolving):
        return []
    inquiring = [
        handle
        for handle in open_handles(queue_manager)
        if isinstance(handle, DefinitionHandle) and handle.definition == (kind, name)
    ]
    return inquiring + rerouted(queue_manager, queue_manager.objects.of_kind(kind), name, new)


def rerouted(queue_manager: QueueManager, held: dict[str, Any], key: str, value: object) -> list[Handle]:
    """Return the handles whose names resolve to a different destination if `held[key]` is `value`."""
    before = held[key]
    held[key] = value
    try:
        return [
            handle for handle in open_handles(queue_manager) if handle.leads_elsewhere(queue_manager.objects.resolve)
        ]
    finally:
        held[key] = before
