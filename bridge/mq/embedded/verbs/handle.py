"""Object handles: what MQOPEN and MQSUB leave open.

A handle counts among those that have its queue open (IPPROCS and OPPROCS of the queue), from `open_queue` to `release_queue`.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.open_handles import Resolve
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.selector.selection import Selection
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import check_topic_string
from bridge.mq.embedded.verbs.logical_message import Place
from bridge.mq.errors import MQError
from bridge.mqtt.topics import is_wildcard
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: The options of MQOPEN that let a handle get.
INPUT = cmqc.MQOO_INPUT_AS_Q_DEF | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INPUT_EXCLUSIVE


class QueueHandle(msgspec.Struct, eq=False):
    """An open queue."""

    destination: Destination
    options: int
    #: the object that was named, and its attributes: QLOCAL, QALIAS or QREMOTE
    kind: str = "QLOCAL"
    attributes: dict[str, Value] = {}
    #: the object whose authorities let it be opened
    profile: str = ""
    #: ObjectName and ObjectQMgrName, as given to MQOPEN
    opened: tuple[str, ...] = ()
    #: a definition has changed: it is good for MQCLOSE only
    changed: bool = False
    #: where a browse stands
    cursor: StoredMessage | None = None
    #: the message before the cursor, when the handle took the one under it: browsing goes on from there
    before: StoredMessage | None = None
    exclusive: bool = False
    #: its open made the temporary dynamic queue, which ends with it
    creator: bool = False
    selection: Selection | None = None
    #: MsgIds of the queue manager's numbers that this handle has marked (MQGMO_MARK_BROWSE_HANDLE)
    marked: set[int] = msgspec.field(default_factory=set)
    #: MQGMO_LOCK: the message that nobody else sees
    locked: StoredMessage | None = None
    #: MQOO_SAVE_ALL_CONTEXT: the MQMD of the message got last
    context: MQMD | None = None
    #: MQPMO_LOGICAL_ORDER: behind the message that was put last
    put_place: Place = msgspec.field(default_factory=Place)
    #: MQGMO_LOGICAL_ORDER: behind the message that was got or browsed last
    got_place: Place = msgspec.field(default_factory=Place)

    @property
    def queue(self) -> Queue:
        queue = self.destination.queue
        assert queue is not None
        return queue

    @property
    def gets(self) -> bool:
        return bool(self.options & INPUT)

    def is_for(self, kind: str, name: str, queue: Queue | None) -> bool:
        return self.queue is queue if kind == "QLOCAL" else name in self.opened

    def inquires(self, kind: str, name: str) -> bool:
        return False

    def leads_elsewhere(self, resolve: Resolve) -> bool:
        own, found = self.destination, _resolved(resolve, self.opened)
        if found is None:
            return bool(self.opened)
        return (found.queue, found.remote_queue, found.client_id) != (own.queue, own.remote_queue, own.client_id)

    def invalidate(self) -> None:
        self.changed = True
        self.queue.announce()


class TopicHandle(msgspec.Struct, eq=False):
    """An open topic."""

    topic: str
    options: int
    #: ObjectName and ObjectQMgrName of a queue whose alias leads to the topic
    opened: tuple[str, ...] = ()
    changed: bool = False
    gets: ClassVar = False

    def is_for(self, kind: str, name: str, queue: Queue | None) -> bool:
        return kind != "QLOCAL" and name in self.opened

    def inquires(self, kind: str, name: str) -> bool:
        return False

    def leads_elsewhere(self, resolve: Resolve) -> bool:
        found = _resolved(resolve, self.opened)
        return bool(self.opened) if found is None else found.topic != self.topic

    def invalidate(self) -> None:
        self.changed = True


class SubscriptionHandle(msgspec.Struct, eq=False):
    """An open subscription."""

    subscription: Subscription
    gets: ClassVar = False

    def is_for(self, kind: str, name: str, queue: Queue | None) -> bool:
        return False

    def inquires(self, kind: str, name: str) -> bool:
        return False

    def leads_elsewhere(self, resolve: Resolve) -> bool:
        return False

    def invalidate(self) -> None:
        """Do nothing: a subscription is no object whose definition changes."""


class DefinitionHandle(msgspec.Struct, eq=False):
    """An object that is open to inquire about it or to set it only: the queue manager, a namelist, a queue elsewhere."""

    kind: str
    name: str
    options: int
    attributes: dict[str, Value]
    changed: bool = False
    gets: ClassVar = False

    def is_for(self, kind: str, name: str, queue: Queue | None) -> bool:
        return self.inquires(kind, name)

    def inquires(self, kind: str, name: str) -> bool:
        return (self.kind, self.name) == (kind, name)

    def leads_elsewhere(self, resolve: Resolve) -> bool:
        return False

    def invalidate(self) -> None:
        self.changed = True


Handle: TypeAlias = QueueHandle | TopicHandle | SubscriptionHandle | DefinitionHandle


def _resolved(resolve: Resolve, opened: tuple[str, ...]) -> Destination | None:
    """Return where the names given to MQOPEN lead, None if they lead nowhere."""
    if not opened:
        return None
    try:
        return resolve(opened[0], opened[1])
    except MQError:
        return None


def open_queue(destination: Destination, options: int) -> QueueHandle:
    """Make a handle for a queue, counted among those that have it open. Raises MQError."""
    handle = QueueHandle(destination, options)
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
    """Undo what `open_queue` counted."""
    queue = handle.queue
    if handle.options & INPUT:
        queue.inputs -= 1
        queue.exclusive = queue.exclusive and not handle.exclusive
    queue.browsers -= bool(handle.options & cmqc.MQOO_BROWSE)
    queue.outputs -= bool(handle.options & cmqc.MQOO_OUTPUT)
    if handle.locked is not None:
        queue.locks.pop(handle.locked.msg_number, None)


def reads_ahead(handle: Handle) -> bool:
    """Return whether a client may read ahead from a queue (IBM MQ, "Enabling and disabling read ahead")."""
    if not isinstance(handle, QueueHandle) or not handle.options & (INPUT | cmqc.MQOO_BROWSE):
        return False
    default = handle.attributes.get("DEFREADA", "NO")
    if default == "DISABLED" or handle.options & cmqc.MQOO_NO_READ_AHEAD:
        return False
    return default == "YES" or bool(handle.options & cmqc.MQOO_READ_AHEAD)


def check_publishable(topic: str) -> str:
    """Return a topic string that can be published to. Raises MQError."""
    check_topic_string(topic)
    if not topic or is_wildcard(topic):
        raise MQError(cmqc.MQRC_TOPIC_STRING_ERROR, f"cannot publish to topic string {topic[:60]!r}")
    return topic
