"""An application at the embedded queue manager: its handles, its unit of work, and the verbs, none of which waits.

A verb that must not answer before its work is on disk returns a unit along with its result; whoever called submits the
unit to the journal and answers when it has ended. `connection` does so for threads, `server` for other processes.
"""

from __future__ import annotations

import time

import msgspec

from bridge.mapping.message import Message
from bridge.mapping.topic import MQ_TOPIC_STR_LENGTH, is_wildcard
from bridge.mq.errors import MQError
from bridge.mq.interface import MQOD, MQSD, GetOptions, Got
from bridge.mq.local.journal import Unit
from bridge.mq.local.objects import Destination
from bridge.mq.local.queue import Queue
from bridge.mq.local.queuemanager import QueueManager
from bridge.mq.local.stored import StoredMessage
from bridge.mq.local.topics import Subscription
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_INPUT = cmqc.MQOO_INPUT_AS_Q_DEF | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INPUT_EXCLUSIVE
_BROWSES = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
_SYNCPOINTS = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT
_PASSED_CONTEXT = cmqc.MQPMO_SET_ALL_CONTEXT | cmqc.MQPMO_SET_IDENTITY_CONTEXT


class QueueHandle(msgspec.Struct, eq=False):
    """An open queue."""

    destination: Destination
    options: int
    #: where a browse stands
    cursor: StoredMessage | None = None
    #: BOQNAME and such come from the queue itself
    exclusive: bool = False

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


Handle = QueueHandle | TopicHandle | SubscriptionHandle


class Application:
    """One connection to the embedded queue manager. Call its verbs with the queue manager's lock held."""

    def __init__(self, queue_manager: QueueManager, name: str, user: str = "") -> None:
        self.queue_manager = queue_manager
        self.name = name
        self.user = user.encode()[:12]
        self._handles: dict[int, Handle] = {}
        self._next_handle = 1
        self._unit: Unit | None = None

    # Objects ---------------------------------------------------------------------------------------------------------

    def open(self, od: MQOD, options: int) -> int:
        """MQOPEN."""
        if len(self._handles) >= int(self.queue_manager.attributes["MAXHANDS"]):
            raise MQError(cmqc.MQRC_HANDLE_NOT_AVAILABLE, "MAXHANDS handles are open")
        wanted = options & (_INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_INQUIRE | cmqc.MQOO_SET)
        if not wanted or bin(options & _INPUT).count("1") > 1:
            raise MQError(cmqc.MQRC_OPTIONS_ERROR, "open for one kind of input, browse, output, inquire or set")
        if od.ObjectType == cmqc.MQOT_TOPIC:
            topic = self._publishable(self.queue_manager.topic_string(od.ObjectName, od.ObjectString))
            if options & (_INPUT | cmqc.MQOO_BROWSE):
                raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a topic is opened for output")
            return self._keep(TopicHandle(topic, options))
        if od.ObjectType != cmqc.MQOT_Q:
            raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"object type {od.ObjectType}")
        destination = self.queue_manager.resolve(od.ObjectName, od.ObjectQMgrName)
        if destination.topic is not None:
            return self._keep(TopicHandle(destination.topic, options))
        if options & (_INPUT | cmqc.MQOO_BROWSE) and destination.client_id:
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{od.ObjectName} is a remote queue: open it for output")
        return self._keep(self._open_queue(destination, options))

    def _open_queue(self, destination: Destination, options: int) -> QueueHandle:
        handle = QueueHandle(destination, options)
        queue = handle.queue
        if options & _INPUT:
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

    def close(self, number: int, options: int = cmqc.MQCO_NONE) -> Unit | None:
        """MQCLOSE; a unit when a subscription ends with it."""
        handle = self._find(number)
        del self._handles[number]
        if isinstance(handle, QueueHandle):
            queue = handle.queue
            if handle.options & _INPUT:
                queue.inputs -= 1
                queue.exclusive = queue.exclusive and not handle.exclusive
            queue.browsers -= bool(handle.options & cmqc.MQOO_BROWSE)
            queue.outputs -= bool(handle.options & cmqc.MQOO_OUTPUT)
            return None
        if isinstance(handle, SubscriptionHandle):
            subscription = handle.subscription
            if not subscription.durable or options & cmqc.MQCO_REMOVE_SUB:
                unit = Unit()
                self.queue_manager.remove_subscription(unit, subscription.name)
                return unit
        return None

    # Messages --------------------------------------------------------------------------------------------------------

    def put(self, number: int, message: Message, options: int) -> tuple[MQMD, Unit | None]:
        """MQPUT."""
        handle = self._find(number)
        if isinstance(handle, SubscriptionHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "the handle of a subscription takes no messages")
        if not handle.options & cmqc.MQOO_OUTPUT:
            raise MQError(cmqc.MQRC_NOT_OPEN_FOR_OUTPUT, "open it with MQOO_OUTPUT")
        return self._put(handle.topic if isinstance(handle, TopicHandle) else handle.destination, message, options)

    def put1(self, od: MQOD, message: Message, options: int) -> tuple[MQMD, Unit | None]:
        """MQPUT1."""
        if od.ObjectType == cmqc.MQOT_TOPIC:
            topic = self.queue_manager.topic_string(od.ObjectName, od.ObjectString)
            return self._put(self._publishable(topic), message, options)
        destination = self.queue_manager.resolve(od.ObjectName, od.ObjectQMgrName)
        return self._put(destination.topic if destination.topic is not None else destination, message, options)

    def _put(self, target: str | Destination, message: Message, options: int) -> tuple[MQMD, Unit | None]:
        if options & cmqc.MQPMO_SYNCPOINT and options & cmqc.MQPMO_NO_SYNCPOINT:
            raise MQError(cmqc.MQRC_OPTIONS_ERROR, "MQPMO_SYNCPOINT with MQPMO_NO_SYNCPOINT")
        queue_manager = self.queue_manager
        message = Message(self._complete(message.md, options), message.data)
        if message.length > int(queue_manager.attributes["MAXMSGL"]):
            raise MQError(cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR, f"{message.length} bytes")
        syncpoint = bool(options & cmqc.MQPMO_SYNCPOINT)
        unit = self._unit_of_work() if syncpoint else Unit()
        if syncpoint:
            self._check_room(unit)
        if isinstance(target, str):
            md = self._publish(unit, target, message, options)
        else:
            stored = queue_manager.put(unit, target, message, application=self.name)
            md = queue_manager.appearance.descriptor(stored)
        return md, None if syncpoint else unit

    def _publish(self, unit: Unit, topic: str, message: Message, options: int) -> MQMD:
        queue_manager = self.queue_manager
        if not cmqc.MQPRI_PRIORITY_AS_Q_DEF <= message.md.Priority <= 9:
            raise MQError(cmqc.MQRC_PRIORITY_ERROR, f"priority {message.md.Priority}")
        route = queue_manager.topics.route(topic)
        now = time.time()
        reason = queue_manager.publish(
            unit, route, message, now, retain=bool(options & cmqc.MQPMO_RETAIN), application=self.name
        )
        if reason:
            raise MQError(reason, f"publication to topic {topic!r}")
        if message.md.MsgId != cmqc.MQMI_NONE:
            return message.md
        number = queue_manager.next_number()
        return msgspec.structs.replace(
            message.md, MsgId=queue_manager.appearance.generated(number), Persistence=message.md.Persistence
        )

    def _complete(self, md: MQMD, options: int) -> MQMD:
        """Check the fields of an MQMD and give it the context of this application."""
        if md.Persistence not in (0, 1, 2):
            raise MQError(cmqc.MQRC_PERSISTENCE_ERROR, f"Persistence {md.Persistence}")
        if md.Expiry == 0 or md.Expiry < cmqc.MQEI_UNLIMITED:
            raise MQError(cmqc.MQRC_EXPIRY_ERROR, f"Expiry {md.Expiry}")
        changes: dict[str, object] = {"BackoutCount": 0}
        if not options & _PASSED_CONTEXT:
            changes["UserIdentifier"] = self.user
        if options & cmqc.MQPMO_NEW_MSG_ID:
            changes["MsgId"] = cmqc.MQMI_NONE
        if options & cmqc.MQPMO_NEW_CORREL_ID:
            changes["CorrelId"] = self.queue_manager.appearance.generated(self.queue_manager.next_number())
        if md.ReplyToQ and not md.ReplyToQMgr:
            changes["ReplyToQMgr"] = self.queue_manager.name.encode()
        if md.CodedCharSetId == cmqc.MQCCSI_Q_MGR:
            changes["CodedCharSetId"] = int(self.queue_manager.attributes["CCSID"])
        return msgspec.structs.replace(md, **changes)

    def get(self, number: int, options: GetOptions) -> tuple[Got, Unit | None]:
        """MQGET, without waiting: MQRC_NO_MSG_AVAILABLE says that there is none now."""
        handle = self._find(number)
        if not isinstance(handle, QueueHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "messages are got from queues")
        flags = options.Options
        browse = bool(flags & _BROWSES)
        if (
            bin(flags & (_BROWSES | cmqc.MQGMO_MSG_UNDER_CURSOR)).count("1") > 1
            or bin(flags & _SYNCPOINTS).count("1") > 1
            or (browse and flags & (cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT))
        ):
            raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQGMO options 0x{flags:x} do not go together")
        if (browse or flags & cmqc.MQGMO_MSG_UNDER_CURSOR) and not handle.options & cmqc.MQOO_BROWSE:
            raise MQError(cmqc.MQRC_NOT_OPEN_FOR_BROWSE, "open it with MQOO_BROWSE")
        if not browse and not handle.options & _INPUT:
            raise MQError(cmqc.MQRC_NOT_OPEN_FOR_INPUT, "open it with MQOO_INPUT_SHARED")
        queue = handle.queue
        if queue.attributes["GET"] != "ENABLED" or not handle.destination.get_enabled:
            raise MQError(cmqc.MQRC_GET_INHIBITED, f"queue {queue.name} has GET(DISABLED)")
        stored = self._next(handle, options)
        md, data = self.queue_manager.appearance.seen(
            stored, properties=bool(flags & cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
        )
        got = Got(md=md, data=data, ResolvedQName=queue.name, DataLength=len(data))
        if options.MaxLength is not None and len(data) > options.MaxLength:
            if not flags & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
                if flags & cmqc.MQGMO_BROWSE_FIRST:
                    handle.cursor = None  # "positioned logically before the highest-priority message" (MQRC 2080)
                raise MQError(cmqc.MQRC_TRUNCATED_MSG_FAILED, f"{len(data)} bytes, the buffer has {options.MaxLength}")
            got.data = data[: options.MaxLength]
            got.Reason = cmqc.MQRC_TRUNCATED_MSG_ACCEPTED
        if browse:
            handle.cursor = stored
            return got, None
        syncpoint = bool(flags & cmqc.MQGMO_SYNCPOINT) or (
            stored.persistent and bool(flags & cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT)
        )
        unit = self._unit_of_work() if syncpoint else Unit()
        if syncpoint:
            self._check_room(unit)
        queue.take(stored)
        unit.gets.append(stored)
        return got, None if syncpoint else unit

    def _next(self, handle: QueueHandle, options: GetOptions) -> StoredMessage:
        queue = handle.queue
        flags = options.Options
        under = cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
        if flags & under:
            if handle.cursor is None or not handle.cursor.linked:
                raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {queue.name} first")
            return handle.cursor
        appearance = self.queue_manager.appearance
        any_message = options.MsgId == cmqc.MQMI_NONE and options.CorrelId == cmqc.MQCI_NONE
        candidates = queue.after(handle.cursor) if flags & cmqc.MQGMO_BROWSE_NEXT else queue.messages()
        for stored in candidates:
            if stored.expired:
                self.queue_manager.discard(stored)
                continue
            if any_message or appearance.is_matched(stored, options.MsgId, options.CorrelId):
                return stored
        raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {queue.name}")

    def queue_of(self, number: int) -> Queue:
        """The queue of a handle: where a waiting get waits."""
        handle = self._find(number)
        if not isinstance(handle, QueueHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "messages are got from queues")
        return handle.queue

    # Units of work ---------------------------------------------------------------------------------------------------

    def _unit_of_work(self) -> Unit:
        if self._unit is None:
            self._unit = Unit()
        return self._unit

    def _check_room(self, unit: Unit) -> None:
        if len(unit.puts) + len(unit.gets) >= int(self.queue_manager.attributes["MAXUMSGS"]):
            raise MQError(cmqc.MQRC_SYNCPOINT_LIMIT_REACHED, "MAXUMSGS messages are uncommitted")

    def commit(self) -> Unit | None:
        """MQCMIT: the unit to submit, None when nothing was done."""
        unit, self._unit = self._unit, None
        return unit

    def backout(self) -> None:
        """MQBACK."""
        unit, self._unit = self._unit, None
        if unit is not None:
            self.queue_manager.back_out(unit)

    def disconnect(self, *, commit: bool) -> list[Unit]:
        """MQDISC, or the end of a process (commit False: its unit of work is backed out). Units to submit."""
        units = []
        if commit:
            if (unit := self.commit()) is not None:
                units.append(unit)
        else:
            self.backout()
        for number in list(self._handles):
            unit = self.close(number)
            if unit is not None:
                units.append(unit)
        return units

    # Publish/subscribe -----------------------------------------------------------------------------------------------

    def _publishable(self, topic: str) -> str:
        if not topic or len(topic) > MQ_TOPIC_STR_LENGTH or is_wildcard(topic):
            raise MQError(cmqc.MQRC_TOPIC_STRING_ERROR, f"cannot publish to topic string {topic[:60]!r}")
        return topic

    def subscribe(self, sd: MQSD, number: int | None) -> tuple[tuple[int, int], Unit | None]:
        """MQSUB: create, alter or resume a subscription."""
        queue_manager = self.queue_manager
        options = sd.Options
        durable = bool(options & cmqc.MQSO_DURABLE)
        if options & cmqc.MQSO_WILDCARD_CHAR:
            raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, "the character-based wildcard scheme")
        if durable and not sd.SubName:
            raise MQError(cmqc.MQRC_SUB_NAME_ERROR, "a durable subscription has a name")
        _check_subscribe(options)
        existing = queue_manager.topics.subscriptions.get(sd.SubName) if sd.SubName else None
        if existing is not None:
            return self._again(existing, sd, number)
        if not options & cmqc.MQSO_CREATE:
            raise MQError(cmqc.MQRC_NO_SUBSCRIPTION, f"no subscription {sd.SubName!r}")
        topic_filter = queue_manager.topic_string(sd.ObjectName, sd.ObjectString)
        if not topic_filter or len(topic_filter) > MQ_TOPIC_STR_LENGTH:
            raise MQError(cmqc.MQRC_TOPIC_STRING_ERROR, f"topic string of {len(topic_filter)} characters")
        attributes = queue_manager.topics.attributes(topic_filter)
        if attributes["SUB"] != "ENABLED":
            raise MQError(cmqc.MQRC_SUB_INHIBITED, f"topic {topic_filter!r} has SUB(DISABLED)")
        if durable and attributes["DURSUB"] != "YES":
            raise MQError(cmqc.MQRC_DURABILITY_NOT_ALLOWED, f"topic {topic_filter!r} has DURSUB(NO)")
        unit = Unit()
        managed = bool(options & cmqc.MQSO_MANAGED)
        if managed:
            queue = queue_manager.managed_queue(unit, durable=durable)
            destination = Destination(queue, name=queue.name)
            number = self._keep(self._open_queue(destination, cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE))
        else:
            destination = self._destination(number)
        assert number is not None and destination.queue is not None
        subscription = Subscription(
            name=sd.SubName or f"{queue_manager.name}.{queue_manager.next_number():016X}",
            topic_filter=topic_filter,
            queue=destination.queue,
            destination=destination.remote_queue or destination.queue.name,
            destination_manager=destination.client_id,
            remote_queue=destination.remote_queue,
            client_id=destination.client_id,
            user_data=sd.SubUserData or None,
            # MQCI_NONE leaves the CorrelId that the publisher gave (IBM MQ, "SubCorrelId").
            correl_id=(sd.SubCorrelId.strip(b"\0") and sd.SubCorrelId) or None
            if options & cmqc.MQSO_SET_CORREL_ID
            else None,
            durable=durable,
            ephemeral=destination.queue.temporary,
            level=sd.SubLevel,
            user=self.user.decode(errors="replace"),
            managed=managed,
            expires_at=time.time() + sd.SubExpiry / 10 if sd.SubExpiry > 0 else 0.0,
        )
        queue_manager.add_subscription(unit, subscription)
        if not options & (cmqc.MQSO_NEW_PUBLICATIONS_ONLY | cmqc.MQSO_PUBLICATIONS_ON_REQUEST):
            queue_manager.put_retained(unit, subscription)
        return (self._keep(SubscriptionHandle(subscription)), number), unit

    def _destination(self, number: int | None) -> Destination:
        handle = self._find(number) if number is not None else None
        if not isinstance(handle, QueueHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "without MQSO_MANAGED, MQSUB takes the handle of an open queue")
        return handle.destination

    def _again(self, existing: Subscription, sd: MQSD, number: int | None) -> tuple[tuple[int, int], Unit | None]:
        """Resume or alter a subscription that exists."""
        options = sd.Options
        if not options & (cmqc.MQSO_RESUME | cmqc.MQSO_ALTER):
            raise MQError(cmqc.MQRC_SUB_ALREADY_EXISTS, f"subscription {sd.SubName!r}")
        topic_filter = self.queue_manager.topic_string(sd.ObjectName, sd.ObjectString)
        if topic_filter and topic_filter != existing.topic_filter:
            raise MQError(
                cmqc.MQRC_TOPIC_NOT_ALTERABLE, f"subscription {sd.SubName!r} is for {existing.topic_filter!r}"
            )
        unit: Unit | None = None
        if number is None:
            destination = Destination(
                existing.queue, existing.remote_queue, existing.client_id, name=existing.queue.name
            )
            number = self._keep(self._open_queue(destination, cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE))
        if options & cmqc.MQSO_ALTER:
            altered = msgspec.structs.replace(existing, user_data=sd.SubUserData or None)
            if not existing.managed:
                destination = self._destination(number)
                assert destination.queue is not None
                altered.queue = destination.queue
                altered.remote_queue, altered.client_id = destination.remote_queue, destination.client_id
                altered.destination = destination.remote_queue or destination.queue.name
                altered.destination_manager = destination.client_id
                altered.ephemeral = destination.queue.temporary
            unit = Unit()
            self.queue_manager.add_subscription(unit, altered)
            existing = altered
        return (self._keep(SubscriptionHandle(existing)), number), unit


def _check_subscribe(options: int) -> None:
    """IBM MQ documentation, "Rules for validating MQI options", MQSUB."""
    resume, alter = options & cmqc.MQSO_RESUME, options & cmqc.MQSO_ALTER
    if not (options & cmqc.MQSO_CREATE or resume or alter) or (resume and alter):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, "create, resume or alter a subscription")
    on_request = options & cmqc.MQSO_PUBLICATIONS_ON_REQUEST
    if options & cmqc.MQSO_NEW_PUBLICATIONS_ONLY and (on_request or not options & cmqc.MQSO_CREATE):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, "MQSO_NEW_PUBLICATIONS_ONLY goes with MQSO_CREATE")
