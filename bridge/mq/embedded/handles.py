"""Object handles, which MQOPEN and MQSUB return.

IPPROCS and OPPROCS of a queue count a handle from `open_queue` to `release`. A changed definition may invalidate
handles: calls other than MQCLOSE then return MQRC_OBJECT_CHANGED. Source: IBM MQ documentation, "MQOPEN - Open object" (the
attributes that affect handles), "Some cases where the put calls fail", "ALTER queues" and "ALTER QMGR" (FORCE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.queue import INPUT, Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.selector import Selection
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import check_topic_string
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.mqtt.topics import is_wildcard
from bridge.wire import cmqc

#: Resolves ObjectName and ObjectQMgrName. Raises MQError.
Resolve = Callable[[str, str], ResolvedDestination]


class Handle(msgspec.Struct, eq=False, kw_only=True):
    """An object that MQOPEN or MQSUB has opened."""

    #: ObjectName and ObjectQMgrName of MQOPEN, if the name of the object was resolved
    opened: tuple[str, ...] = ()
    #: MQOO_ options, or 0 for a subscription
    options: int = 0
    #: whether a definition has changed, so that only MQCLOSE is allowed
    changed: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """OBJTYPE and OBJNAME of DISPLAY CONN."""
        raise NotImplementedError

    @property
    def definition(self) -> tuple[str, str]:
        """Kind and name of the object whose attributes are inquired. Raises MQError."""
        raise MQError(cmqc.MQRC_HOBJ_ERROR, "topics and subscriptions have no attributes to inquire")

    @property
    def target(self) -> ResolvedDestination | None:
        """The destination to which `opened` was resolved, or None if it is not a queue or topic."""
        return None

    @property
    def gets(self) -> bool:
        """Whether the handle is open for input."""
        return False

    def release(self, queue_manager: QueueManager) -> Unit | None:
        """Stop counting the handle. Return a unit of work to submit, or None."""
        return None

    def is_for(self, kind: str, name: str, queue: Queue | None) -> bool:
        """Return whether the handle is for an object, or was resolved via it. `queue` is the queue of a QLOCAL."""
        return self.target is not None and (self.target.queue is queue if kind == "QLOCAL" else name in self.opened)

    def leads_elsewhere(self, resolve: Resolve) -> bool:
        """Return whether the name of the handle now resolves to a different destination."""
        own = self.target
        if own is None or not self.opened:
            return False
        try:
            target = resolve(*self.opened)
        except MQError:
            return True
        return _ends(target) != _ends(own)

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
    #: the message before the cursor, if the handle has got the message under it. Browsing continues there
    before: StoredMessage | None = None
    exclusive: bool = False
    selection: Selection | None = None
    #: message numbers that this handle has marked (MQGMO_MARK_BROWSE_HANDLE)
    marked: set[int] = msgspec.field(default_factory=set)

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

    def release(self, queue_manager: QueueManager) -> Unit | None:
        self.queue.close(self.options, exclusive=self.exclusive)
        return None

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
    """An object that is open only for inquire or set: the queue manager, a namelist, or a queue definition."""

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


H = TypeVar("H", bound=QueueHandle)


def open_queue(kind: type[H], destination: ResolvedDestination, options: int) -> H:
    """Create a handle for a queue, and count it. Raises MQError."""
    handle = kind(destination, options=options)
    queue = handle.queue
    handle.attributes = queue.attributes
    handle.exclusive = queue.open(options)
    return handle


def check_publishable(topic: str) -> str:
    """Return a topic string after checking that publications to it are possible. Raises MQError."""
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


def rerouted(queue_manager: QueueManager, attributes: dict[str, Any], key: str, value: object) -> list[Handle]:
    """Return the handles whose names resolve to a different destination if `held[key]` is `value`."""
    before = attributes[key]
    attributes[key] = value
    try:
        return [
            handle for handle in open_handles(queue_manager) if handle.leads_elsewhere(queue_manager.objects.resolve)
        ]
    finally:
        attributes[key] = before
