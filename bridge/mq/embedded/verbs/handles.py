"""Object handles: what an application has open, and the unit of work it is in.

The verbs of `Application` stand in files of their own (`opening`, `putting`, `retrieval`, `subscribing`, `inquiry`); what
they share is here.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from bridge.mapping.topic import is_wildcard
from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.selector.selection import Selection
from bridge.mq.embedded.topics import Subscription, check_topic_string
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.logical_message import Place
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, MQSTS
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
    #: where a browse stands
    cursor: StoredMessage | None = None
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


class TopicHandle(msgspec.Struct, eq=False):
    """An open topic."""

    topic: str
    options: int


class SubscriptionHandle(msgspec.Struct, eq=False):
    """An open subscription."""

    subscription: Subscription


class DefinitionHandle(msgspec.Struct, eq=False):
    """An object that is open to inquire about it or to set it only: the queue manager, a namelist, a queue elsewhere."""

    kind: str
    name: str
    options: int
    attributes: dict[str, Value]


Handle: TypeAlias = QueueHandle | TopicHandle | SubscriptionHandle | DefinitionHandle


class Handles:
    """The handles of one connection to the embedded queue manager, and its unit of work."""

    def __init__(self, queue_manager: QueueManager, name: str, user: str = "", asked: str | None = None) -> None:
        """Do MQCONN. Raises MQError.

        `asked` is the user whose authorities the queue manager asks for, None the bridge itself.
        """
        self.queue_manager = queue_manager
        self.name = name
        self.user = user.encode()[:12]
        self.asked = asked
        if queue_manager.authorization is not None:
            queue_manager.authorization.connecting(asked)
        self._handles: dict[int, Handle] = {}
        self._next_handle = 1
        self._unit: Unit | None = None
        self._statistics = MQSTS()
        self.connection_id = queue_manager.connection_id()
        queue_manager.applications.add(self)

    @property
    def handles(self) -> dict[int, Handle]:
        """Return the open handles, by number."""
        return self._handles

    @property
    def in_unit_of_work(self) -> bool:
        """Return whether something is uncommitted."""
        return self._unit is not None and not self._unit.empty

    def _ask_queue(self, od: MQOD, options: int, name: str, destination: Destination | None = None, *more: str) -> str:
        """Ask whether a queue may be opened; the object that was asked about. Raises MQError.

        One at another queue manager is asked about by the transmission queue to it (IBM MQ, "MQOPEN").
        """
        queue_manager = self.queue_manager
        if destination is not None and destination.client_id and od.ObjectQMgrName not in ("", queue_manager.name):
            assert destination.queue is not None
            name = destination.queue.name
        if queue_manager.authorization is not None:
            queue = queue_manager.queues.get(name)
            if queue is None or queue.owner is None or queue.owner != self._acting(od, options):
                alternate = alternate_user(od, options)
                queue_manager.authorization.opening(self.asked, alternate, cmqc.MQOT_Q, name, options, *more)
        return name

    def _acting(self, od: MQOD, options: int) -> str | None:
        """Return the user that opens an object: the alternate user, or the connection's own."""
        alternate = alternate_user(od, options)
        return self.asked if alternate is None else alternate

    def _ask_topic(self, od: MQOD, options: int, topic: str) -> None:
        """Ask whether a topic may be opened. Raises MQError."""
        if self.queue_manager.authorization is not None:
            self.queue_manager.authorization.opening_topic(self.asked, alternate_user(od, options), topic, options)

    def _check_quiescing(self, options: int) -> None:
        """Raise MQError where the options of a verb have _FAIL_IF_QUIESCING, one number for all, and the end is near."""
        if self.queue_manager.quiescing and options & cmqc.MQOO_FAIL_IF_QUIESCING:
            raise MQError(cmqc.MQRC_Q_MGR_QUIESCING, f"queue manager {self.queue_manager.name} is about to end")

    def _check_room(self) -> None:
        if len(self._handles) >= int(self.queue_manager.attributes["MAXHANDS"]):
            raise MQError(cmqc.MQRC_HANDLE_NOT_AVAILABLE, "MAXHANDS handles are open")

    def _keep(self, handle: Handle) -> int:
        number = self._next_handle
        self._next_handle += 1
        self._handles[number] = handle
        return number

    def _find(self, number: int) -> Handle:
        handle = self._handles.get(number)
        if handle is None:
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {number}")
        return handle

    def _open_queue(self, destination: Destination, options: int) -> QueueHandle:
        """Make a handle for a queue, counted among those that have it open."""
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

    @staticmethod
    def _release_queue(handle: QueueHandle) -> None:
        """Undo what `_open_queue` counted."""
        queue = handle.queue
        if handle.options & INPUT:
            queue.inputs -= 1
            queue.exclusive = queue.exclusive and not handle.exclusive
        queue.browsers -= bool(handle.options & cmqc.MQOO_BROWSE)
        queue.outputs -= bool(handle.options & cmqc.MQOO_OUTPUT)
        if handle.locked is not None:
            queue.locks.pop(handle.locked.msg_number, None)

    def _unit_of_work(self) -> Unit:
        if self._unit is None:
            self._unit = Unit()
        return self._unit

    def _room_in(self, unit: Unit) -> None:
        unit.verbs += 1
        if unit.verbs > int(self.queue_manager.attributes["MAXUMSGS"]):
            unit.verbs -= 1
            raise MQError(cmqc.MQRC_SYNCPOINT_LIMIT_REACHED, "MAXUMSGS messages are uncommitted")

    def queue_of(self, number: int) -> Queue:
        """Return the queue of a handle, where a waiting get waits."""
        handle = self._find(number)
        if not isinstance(handle, QueueHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "messages are got from queues")
        return handle.queue


def alternate_user(od: MQOD, options: int) -> str | None:
    """Return AlternateUserId of an object that is opened with MQOO_ALTERNATE_USER_AUTHORITY, else None."""
    return od.AlternateUserId if options & cmqc.MQOO_ALTERNATE_USER_AUTHORITY else None


def check_publishable(topic: str) -> str:
    """Return a topic string that can be published to. Raises MQError."""
    check_topic_string(topic)
    if not topic or is_wildcard(topic):
        raise MQError(cmqc.MQRC_TOPIC_STRING_ERROR, f"cannot publish to topic string {topic[:60]!r}")
    return topic
