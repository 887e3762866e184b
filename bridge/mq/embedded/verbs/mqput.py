"""MQPUT and MQPUT1.

Source: IBM MQ documentation, "MQPUT - Put message", "MQPUT1 - Put one message", "MQPMO - Put-message options".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from bridge.mapping.message import Message
from bridge.mq.embedded.authority.authorization import open_options
from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.property import leading, merge
from bridge.mq.embedded.report import report
from bridge.mq.embedded.topics import Route
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.descriptor import (
    IDENTITY,
    ORIGIN,
    blank,
    check_descriptor,
    copied,
    group_fields,
    is_grouped,
)
from bridge.mq.embedded.verbs.dynamic_queue import TEMPORARY
from bridge.mq.embedded.verbs.handles import QueueHandle, TopicHandle, check_publishable
from bridge.mq.embedded.verbs.logical_message import SEGMENT, Place, segmented
from bridge.mq.embedded.verbs.mqstat import Outcomes
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, MQPMO, Property
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_PASS_IDENTITY = cmqc.MQPMO_PASS_IDENTITY_CONTEXT
_PASS_ALL = cmqc.MQPMO_PASS_ALL_CONTEXT
_SET_IDENTITY = cmqc.MQPMO_SET_IDENTITY_CONTEXT
_SET_ALL = cmqc.MQPMO_SET_ALL_CONTEXT
_CONTEXTS = _PASS_IDENTITY | _PASS_ALL | _SET_IDENTITY | _SET_ALL | cmqc.MQPMO_NO_CONTEXT | cmqc.MQPMO_DEFAULT_CONTEXT
#: Options that cannot be said together.
_EXCLUSIVE = (
    cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NO_SYNCPOINT,
    _CONTEXTS,
    cmqc.MQPMO_ASYNC_RESPONSE | cmqc.MQPMO_SYNC_RESPONSE,
)
_KNOWN = (
    sum(_EXCLUSIVE)
    | cmqc.MQPMO_NEW_MSG_ID
    | cmqc.MQPMO_NEW_CORREL_ID
    | cmqc.MQPMO_ALTERNATE_USER_AUTHORITY
    | cmqc.MQPMO_FAIL_IF_QUIESCING
    | cmqc.MQPMO_LOGICAL_ORDER
    | cmqc.MQPMO_RESOLVE_LOCAL_Q
    | cmqc.MQPMO_WARN_IF_NO_SUBS_MATCHED
    | cmqc.MQPMO_RETAIN
    | cmqc.MQPMO_MD_FOR_OUTPUT_ONLY
    | cmqc.MQPMO_SCOPE_QMGR
    | cmqc.MQPMO_SUPPRESS_REPLYTO
    | cmqc.MQPMO_NOT_OWN_SUBS
)
#: MQPMO_ option -> open options of which one allows it, and the reason without
_ALLOWED = {
    _SET_ALL: (cmqc.MQOO_SET_ALL_CONTEXT, cmqc.MQRC_NOT_OPEN_FOR_SET_ALL),
    _SET_IDENTITY: (cmqc.MQOO_SET_ALL_CONTEXT | cmqc.MQOO_SET_IDENTITY_CONTEXT, cmqc.MQRC_NOT_OPEN_FOR_SET_IDENT),
    _PASS_ALL: (cmqc.MQOO_SET_ALL_CONTEXT | cmqc.MQOO_PASS_ALL_CONTEXT, cmqc.MQRC_NOT_OPEN_FOR_PASS_ALL),
    _PASS_IDENTITY: (
        cmqc.MQOO_SET_ALL_CONTEXT
        | cmqc.MQOO_SET_IDENTITY_CONTEXT
        | cmqc.MQOO_PASS_ALL_CONTEXT
        | cmqc.MQOO_PASS_IDENTITY_CONTEXT,
        cmqc.MQRC_NOT_OPEN_FOR_PASS_IDENT,
    ),
}
#: Options with which two messages of one MQMD are not completed alike.
_ANOTHER_EACH_TIME = cmqc.MQPMO_NEW_CORREL_ID | _PASS_ALL | _PASS_IDENTITY
_MAX_PRIORITY = 9
_MAX_PUB_LEVEL = 9

Result: TypeAlias = tuple[MQMD, Unit | None]


def check_put_options(options: int) -> None:
    """Raise MQError with MQRC_OPTIONS_ERROR for MQPMO options that are unknown or exclude each other."""
    if options & ~_KNOWN or any((options & mask).bit_count() > 1 for mask in _EXCLUSIVE):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQPMO options 0x{options:x}")


class _Completed(NamedTuple):
    """An MQMD as an application gave it with which options, and as the queue manager completed it."""

    given: MQMD
    options: int
    ccsid: str | int
    md: MQMD
    application: str | None
    #: MQRC_NONE, or that of a warning
    reason: int


class Putting(Outcomes):
    """The verbs that put messages."""

    _last_completed: _Completed | None = None

    def put(self, number: int, message: Message, options: int | MQPMO, properties: Sequence[Property] = ()) -> Result:
        """Do MQPUT; the results are filled in to an MQPMO."""
        handle = self._find(number)
        if not isinstance(handle, (QueueHandle, TopicHandle)):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "messages are put to queues and topics")
        pmo = options if isinstance(options, MQPMO) else MQPMO(Options=options)
        check_put_options(pmo.Options)
        if not handle.options & cmqc.MQOO_OUTPUT:
            raise MQError(cmqc.MQRC_NOT_OPEN_FOR_OUTPUT, "open it with MQOO_OUTPUT")
        needed, reason = _ALLOWED.get(pmo.Options & _CONTEXTS, (-1, 0))
        if not handle.options & needed:
            raise MQError(reason, "open it with the matching MQOO_ context option")
        if isinstance(handle, TopicHandle):
            return self._put(handle.topic, message, pmo, properties)
        if handle.queue.deleted:
            raise MQError(cmqc.MQRC_Q_DELETED, f"queue {handle.queue.name}")
        return self._put(handle.destination, message, pmo, properties, handle)

    def put1(self, od: MQOD, message: Message, options: int | MQPMO, properties: Sequence[Property] = ()) -> Result:
        """Do MQPUT1."""
        pmo = options if isinstance(options, MQPMO) else MQPMO(Options=options)
        check_put_options(pmo.Options)
        if pmo.Options & cmqc.MQPMO_LOGICAL_ORDER:
            raise MQError(cmqc.MQRC_OPTIONS_ERROR, "MQPMO_LOGICAL_ORDER is for MQPUT")
        if od.ObjectType == cmqc.MQOT_TOPIC:
            topic = check_publishable(self.queue_manager.topic_string(od.ObjectName, od.ObjectString))
            self._ask_topic(od, open_options(pmo.Options), topic)
            od.ResObjectString = topic
            return self._put(topic, message, pmo, properties)
        if od.ObjectType != cmqc.MQOT_Q:
            raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"object type {od.ObjectType}")
        if od.ObjectQMgrName in ("", self.queue_manager.name) and od.ObjectName in self.queue_manager.models:
            raise MQError(cmqc.MQRC_Q_TYPE_ERROR, f"{od.ObjectName} is a model queue: open it")
        destination = self.queue_manager.resolve(od.ObjectName, od.ObjectQMgrName)
        self._ask_queue(od, open_options(pmo.Options), od.ObjectName, destination)
        if destination.topic is not None:
            topic = check_publishable(destination.topic)
            self._ask_topic(od, open_options(pmo.Options), topic)
            return self._put(topic, message, pmo, properties)
        return self._put(destination, message, pmo, properties)

    def _put(
        self,
        target: str | Destination,
        message: Message,
        pmo: MQPMO,
        properties: Sequence[Property],
        handle: QueueHandle | None = None,
    ) -> Result:
        queue_manager = self.queue_manager
        self._check_quiescing(pmo.Options)
        syncpoint = bool(pmo.Options & cmqc.MQPMO_SYNCPOINT)
        place = following = handle.put_place if handle is not None else Place()
        if pmo.Options & cmqc.MQPMO_LOGICAL_ORDER and isinstance(target, Destination):
            md, application = self._complete(message.md, pmo)
            group, following = self._group(md, place, len(message.data))
            following.syncpoint, following.persistent = syncpoint, _is_persistent(md, target)
            place.check(syncpoint, following.persistent)
            md = msgspec.structs.replace(md, **group)
        else:
            md, application = self._completed(message.md, pmo)
            if place.unfinished:
                following, pmo.Reason = Place(), pmo.Reason or place.unfinished
        limit = self._segment_limit(target, md)
        if len(message.data) > int(queue_manager.attributes["MAXMSGL"]) and not limit:
            raise MQError(cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR, f"{len(message.data)} bytes")
        message = _with_properties(md, message.data, properties)
        unit = self._unit_of_work() if syncpoint else Unit()
        if syncpoint:
            self._room_in(unit)

        def put() -> MQMD:
            if isinstance(target, str):
                return self._publish(unit, target, message, pmo, application)
            if limit and message.length > limit and not properties:
                return self._put_segments(unit, target, segmented(message, limit, self._generated), pmo, application)
            return self._put_to_queue(unit, target, message, pmo, application)

        md = self._unanswered(put, md, target, pmo) if pmo.Options & cmqc.MQPMO_ASYNC_RESPONSE else put()
        if following is not place and handle is not None:
            handle.put_place = following
        return md, None if syncpoint else unit

    def _segment_limit(self, target: str | Destination, md: MQMD) -> int:
        """Return the length from which the queue manager makes segments of a message; 0 where it does not."""
        queue = None if isinstance(target, str) else target.queue
        if queue is None or queue.is_transmission or not md.MsgFlags & cmqc.MQMF_SEGMENTATION_ALLOWED:
            return 0
        return 0 if md.MsgFlags & SEGMENT else min(queue.max_length, int(self.queue_manager.attributes["MAXMSGL"]))

    def _put_segments(
        self, unit: Unit, destination: Destination, parts: list[Message], pmo: MQPMO, application: str | None
    ) -> MQMD:
        """Put all the segments of a message, or none."""
        before = len(unit.puts)
        try:
            first, *_ = [self._put_to_queue(unit, destination, one, pmo, application) for one in parts]
        except MQError:
            for stored in unit.puts[before:]:
                stored.queue.depth -= 1
            del unit.puts[before:]
            raise
        return first

    def _put_to_queue(
        self, unit: Unit, destination: Destination, message: Message, pmo: MQPMO, application: str | None
    ) -> MQMD:
        queue_manager = self.queue_manager
        queue = destination.queue
        assert queue is not None
        if _is_persistent(message.md, destination) and queue.attributes.get("DEFTYPE") == TEMPORARY:
            raise MQError(cmqc.MQRC_PERSISTENT_NOT_ALLOWED, f"queue {queue.name} is a temporary dynamic queue")
        stored = queue_manager.put(unit, destination, message, application=application)
        pmo.ResolvedQName = destination.remote_queue or queue.name
        pmo.ResolvedQMgrName = destination.client_id or queue_manager.name
        pmo.KnownDestCount, pmo.UnknownDestCount = (0, 1) if destination.client_id else (1, 0)
        if message.md.Report and not queue.is_transmission:
            report(queue_manager, unit, stored, cmqc.MQFB_COA)
        return queue_manager.appearance.descriptor(stored)

    def _publish(self, unit: Unit, topic: str, message: Message, pmo: MQPMO, application: str | None) -> MQMD:
        queue_manager = self.queue_manager
        if not 0 <= pmo.PubLevel <= _MAX_PUB_LEVEL:
            raise MQError(cmqc.MQRC_PMO_ERROR, f"PubLevel {pmo.PubLevel}")
        route = queue_manager.topics.route_below(topic, pmo.PubLevel)
        if pmo.Options & cmqc.MQPMO_NOT_OWN_SUBS:
            route = route.without(lambda subscription: subscription.owner is self)
        md = message.md
        if md.Priority > _MAX_PRIORITY:
            md = msgspec.structs.replace(md, Priority=_MAX_PRIORITY)
        if md.MsgId == cmqc.MQMI_NONE:
            message_id = queue_manager.appearance.generated(queue_manager.next_number())
        else:
            message_id = md.MsgId
        message = msgspec.structs.replace(message, md=md)
        now = time.time()
        reason = queue_manager.publish(
            unit, route, message, now, retain=bool(pmo.Options & cmqc.MQPMO_RETAIN), application=application
        )
        if reason:
            raise MQError(reason, f"publication to topic {topic!r}")
        if pmo.Options & cmqc.MQPMO_WARN_IF_NO_SUBS_MATCHED and _is_unmatched(route):
            pmo.Reason = pmo.Reason or cmqc.MQRC_NO_SUBS_MATCHED
        return queue_manager.appearance.published(md, message_id, now, application)

    def _completed(self, md: MQMD, pmo: MQPMO) -> tuple[MQMD, str | None]:
        """Complete the MQMD, its group as well, of a message in no logical order.

        An application that puts many messages of a kind does it with one and the same MQMD: it is completed once.
        """
        ccsid = self.queue_manager.attributes["CCSID"]
        last = self._last_completed
        if last is not None and last.given is md and last.options == pmo.Options and last.ccsid == ccsid:
            pmo.Reason = last.reason
            return last.md, last.application
        completed, application = self._complete(md, pmo)
        group, _ = self._group(completed, None, 0)
        completed = msgspec.structs.replace(completed, **group)
        if not pmo.Options & _ANOTHER_EACH_TIME and not is_grouped(md):
            self._last_completed = _Completed(md, pmo.Options, ccsid, completed, application, pmo.Reason)
        return completed, application

    def _complete(self, md: MQMD, pmo: MQPMO) -> tuple[MQMD, str | None]:
        """Check the fields of an MQMD and fill it in; with the name of the application where the context is its own."""
        check_descriptor(md)
        flags = pmo.Options
        pmo.Reason = cmqc.MQRC_PRIORITY_EXCEEDS_MAXIMUM if md.Priority > _MAX_PRIORITY else cmqc.MQRC_NONE
        changes: dict[str, Any] = {"BackoutCount": 0}
        for name in ("MsgId", "CorrelId"):
            if len(value := getattr(md, name)) < cmqc.MQ_MSG_ID_LENGTH:
                changes[name] = value.ljust(cmqc.MQ_MSG_ID_LENGTH, b"\0")
        if flags & cmqc.MQPMO_NEW_MSG_ID:
            changes["MsgId"] = cmqc.MQMI_NONE
        if flags & cmqc.MQPMO_NEW_CORREL_ID:
            changes["CorrelId"] = self._generated()
        if flags & cmqc.MQPMO_SUPPRESS_REPLYTO:
            changes |= {"ReplyToQ": b"", "ReplyToQMgr": b""}
        elif md.ReplyToQ and not md.ReplyToQMgr:
            changes |= self._reply_to(md.ReplyToQ)
        if md.CodedCharSetId == cmqc.MQCCSI_Q_MGR:
            changes["CodedCharSetId"] = int(self.queue_manager.attributes["CCSID"])
        application = self._add_context(changes, pmo)
        return msgspec.structs.replace(md, **changes), application

    def _reply_to(self, queue: bytes) -> dict[str, bytes]:
        """Return ReplyToQ and ReplyToQMgr where the application gave no ReplyToQMgr.

        Those of a remote queue's definition of that name, or the queue at this queue manager (IBM MQ, "Reply-to queue
        alias").
        """
        remote = self.queue_manager.remotes.get(queue.decode("ascii", "replace"))
        if remote is not None and remote["RNAME"]:
            return {"ReplyToQ": str(remote["RNAME"]).encode(), "ReplyToQMgr": str(remote["RQMNAME"]).encode()}
        return {"ReplyToQMgr": self.queue_manager.name.encode()}

    def _generated(self) -> bytes:
        return self.queue_manager.appearance.generated(self.queue_manager.next_number())

    def _group(self, md: MQMD, place: Place | None, length: int) -> tuple[dict[str, Any], Place]:
        """Return GroupId, MsgSeqNumber and Offset, and the place behind the message.

        They are the application's own, or in logical order, at a place of it, the queue manager's.
        """
        changes = group_fields(md)
        if place is not None:
            own, following = place.put(changes["MsgFlags"], md.GroupId, length, self._generated)
            return changes | own, following
        if is_grouped(md) and md.GroupId == cmqc.MQGI_NONE:
            changes["GroupId"] = self._generated()
        return changes, Place()

    def _add_context(self, changes: dict[str, Any], pmo: MQPMO) -> str | None:
        """Add identity and origin of the message; the result is None where the MQMD says all of them itself."""
        choice = pmo.Options & _CONTEXTS
        if choice == _SET_ALL:
            return None
        if choice == cmqc.MQPMO_NO_CONTEXT:
            changes |= blank(IDENTITY) | blank(ORIGIN)
            return None
        if choice in (_PASS_ALL, _PASS_IDENTITY):
            source = self._saved_context(pmo.Context)
            changes |= copied(IDENTITY, source)
            if choice == _PASS_ALL:
                changes |= copied(ORIGIN, source)
                return None
        elif choice != _SET_IDENTITY:
            changes |= blank(IDENTITY)
            changes["UserIdentifier"] = self.user
        changes |= blank(ORIGIN)
        return self.name

    def _saved_context(self, number: int) -> MQMD:
        handle = self._handles.get(number)
        if not isinstance(handle, QueueHandle) or not handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
            raise MQError(cmqc.MQRC_CONTEXT_HANDLE_ERROR, f"handle {number} saves no context: open it to")
        if handle.context is None:
            raise MQError(cmqc.MQRC_CONTEXT_NOT_AVAILABLE, "no message was got with the handle")
        return handle.context


def _is_unmatched(route: Route) -> bool:
    return not route.subscriptions and not route.selective


def _is_persistent(md: MQMD, destination: Destination) -> bool:
    if md.Persistence == cmqc.MQPER_PERSISTENCE_AS_Q_DEF:
        return destination.persistent
    return md.Persistence == cmqc.MQPER_PERSISTENT


def _with_properties(md: MQMD, data: bytes, properties: Sequence[Property]) -> Message:
    if not properties:
        return Message(md, data)
    made = leading(md, data) is None
    return Message(*merge(md, data, properties), made)
