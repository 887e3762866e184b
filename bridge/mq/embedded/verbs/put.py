"""MQPUT and MQPUT1.

Source: IBM MQ documentation, "MQPUT - Put message", "MQPUT1 - Put one message", "MQPMO - Put-message options".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from bridge.mq.embedded.authority import open_options
from bridge.mq.embedded.handles import SEGMENT, GroupPosition, QueueHandle, TopicHandle, check_publishable, segmented
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.property import leading, merge
from bridge.mq.embedded.queuemanager import report
from bridge.mq.embedded.topics import Route
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import (
    BYTE_FIELDS,
    IDENTITY,
    ORIGIN,
    Completed,
    Hconn,
    blank,
    check_descriptor,
    copied,
    group_fields,
    is_grouped,
)
from bridge.mq.embedded.verbs.open import TEMPORARY
from bridge.mq.mqi import MQOD, MQPMO, MQError, Property, check_od
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

MAX_PRIORITY: Final = 9
#: The options for message context.
CONTEXTS: Final = (
    cmqc.MQPMO_PASS_IDENTITY_CONTEXT
    | cmqc.MQPMO_PASS_ALL_CONTEXT
    | cmqc.MQPMO_SET_IDENTITY_CONTEXT
    | cmqc.MQPMO_SET_ALL_CONTEXT
    | cmqc.MQPMO_NO_CONTEXT
    | cmqc.MQPMO_DEFAULT_CONTEXT
)
_PASSES: Final = cmqc.MQPMO_PASS_ALL_CONTEXT | cmqc.MQPMO_PASS_IDENTITY_CONTEXT
#: Options with which the completed MQMD cannot be reused.
_ANOTHER_EACH_TIME: Final = cmqc.MQPMO_NEW_CORREL_ID | _PASSES


def completed(hconn: Hconn, md: MQMD, pmo: MQPMO) -> tuple[MQMD, str | None]:
    """Complete the MQMD of a message outside logical order, including its group fields. Raises MQError.

    Also return the name of the application if the context is its own, otherwise None. The result is cached, because
    applications use the same MQMD object for many messages.
    """
    ccsid = hconn.queue_manager.objects.attributes["CCSID"]
    last = hconn.completed
    if last is not None and last.given is md and last.options == pmo.Options and last.ccsid == ccsid:
        pmo.Reason = last.reason
        return last.md, last.application
    made, application = _complete(hconn, md, pmo)
    group = group_fields(made)
    grouped = is_grouped(made)
    if grouped and made.GroupId == cmqc.MQGI_NONE:
        group["GroupId"] = hconn.generated()
    made = msgspec.structs.replace(made, **group)
    if not pmo.Options & _ANOTHER_EACH_TIME and not grouped:
        hconn.completed = Completed(md, pmo.Options, ccsid, made, application, pmo.Reason)
    return made, application


def completed_at(
    hconn: Hconn, md: MQMD, pmo: MQPMO, place: GroupPosition, length: int
) -> tuple[MQMD, str | None, GroupPosition]:
    """Complete the MQMD of a message of `length` bytes at a position in logical order. Raises MQError.

    The queue manager sets the group fields. Also return the position after the message.
    """
    made, application = _complete(hconn, md, pmo)
    group = group_fields(made)
    own, following = place.put(group["MsgFlags"], made.GroupId, length, hconn.generated)
    return msgspec.structs.replace(made, **group | own), application, following


def _complete(hconn: Hconn, md: MQMD, pmo: MQPMO) -> tuple[MQMD, str | None]:
    """Check and complete an MQMD, except its group fields."""
    check_descriptor(md)
    flags = pmo.Options
    pmo.Reason = cmqc.MQRC_PRIORITY_EXCEEDS_MAXIMUM if md.Priority > MAX_PRIORITY else cmqc.MQRC_NONE
    changes: dict[str, Any] = {"BackoutCount": 0}
    for name, length in BYTE_FIELDS:
        if len(value := getattr(md, name)) < length:
            changes[name] = value.ljust(length, b"\0")
    if flags & cmqc.MQPMO_NEW_MSG_ID:
        changes["MsgId"] = cmqc.MQMI_NONE
    if flags & cmqc.MQPMO_NEW_CORREL_ID:
        changes["CorrelId"] = hconn.generated()
    if flags & cmqc.MQPMO_SUPPRESS_REPLYTO:
        changes |= {"ReplyToQ": b"", "ReplyToQMgr": b""}
    elif md.ReplyToQ and not md.ReplyToQMgr:
        changes |= _reply_to(hconn, md.ReplyToQ)
    if md.CodedCharSetId == cmqc.MQCCSI_Q_MGR:
        changes["CodedCharSetId"] = int(hconn.queue_manager.objects.attributes["CCSID"])
    application = _add_context(hconn, changes, pmo)
    return msgspec.structs.replace(md, **changes), application


def _reply_to(hconn: Hconn, queue: bytes) -> dict[str, bytes]:
    """Return ReplyToQ and ReplyToQMgr for a message with a blank ReplyToQMgr.

    They are from the remote queue definition with this name, or the queue is local (IBM MQ, "Reply-to queue alias").
    """
    remote = hconn.queue_manager.objects.remotes.get(queue.decode("ascii", "replace"))
    if remote is not None and remote["RNAME"]:
        return {"ReplyToQ": str(remote["RNAME"]).encode(), "ReplyToQMgr": str(remote["RQMNAME"]).encode()}
    return {"ReplyToQMgr": hconn.queue_manager.name.encode()}


def _add_context(hconn: Hconn, changes: dict[str, Any], pmo: MQPMO) -> str | None:
    """Add identity and origin context. Return the application's name, or None if the MQMD already has the origin."""
    choice = pmo.Options & CONTEXTS
    if choice == cmqc.MQPMO_SET_ALL_CONTEXT:
        return None
    if choice == cmqc.MQPMO_NO_CONTEXT:
        changes |= blank(IDENTITY) | blank(ORIGIN)
        return None
    if choice & _PASSES:
        source = _saved_context(hconn, pmo.Context)
        changes |= copied(IDENTITY, source)
        if choice == cmqc.MQPMO_PASS_ALL_CONTEXT:
            changes |= copied(ORIGIN, source)
            return None
    elif choice != cmqc.MQPMO_SET_IDENTITY_CONTEXT:
        changes |= blank(IDENTITY)
        changes["UserIdentifier"] = hconn.user
    changes |= blank(ORIGIN)
    return hconn.name


def _saved_context(hconn: Hconn, hobj: int) -> MQMD:
    handle = hconn.handles.get(hobj)
    if not isinstance(handle, QueueHandle) or not handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
        raise MQError(cmqc.MQRC_CONTEXT_HANDLE_ERROR, f"handle {hobj} saves no context: open it to")
    if handle.context is None:
        raise MQError(cmqc.MQRC_CONTEXT_NOT_AVAILABLE, "no message was got with the handle")
    return handle.context


#: Mutually exclusive options.
_EXCLUSIVE = (
    cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NO_SYNCPOINT,
    CONTEXTS,
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
#: MQPMO_ option -> open options, one of which is required, and the reason code if it is missing
_ALLOWED = {
    cmqc.MQPMO_SET_ALL_CONTEXT: (cmqc.MQOO_SET_ALL_CONTEXT, cmqc.MQRC_NOT_OPEN_FOR_SET_ALL),
    cmqc.MQPMO_SET_IDENTITY_CONTEXT: (
        cmqc.MQOO_SET_ALL_CONTEXT | cmqc.MQOO_SET_IDENTITY_CONTEXT,
        cmqc.MQRC_NOT_OPEN_FOR_SET_IDENT,
    ),
    cmqc.MQPMO_PASS_ALL_CONTEXT: (
        cmqc.MQOO_SET_ALL_CONTEXT | cmqc.MQOO_PASS_ALL_CONTEXT,
        cmqc.MQRC_NOT_OPEN_FOR_PASS_ALL,
    ),
    cmqc.MQPMO_PASS_IDENTITY_CONTEXT: (
        cmqc.MQOO_SET_ALL_CONTEXT
        | cmqc.MQOO_SET_IDENTITY_CONTEXT
        | cmqc.MQOO_PASS_ALL_CONTEXT
        | cmqc.MQOO_PASS_IDENTITY_CONTEXT,
        cmqc.MQRC_NOT_OPEN_FOR_PASS_IDENT,
    ),
}
_MAX_PUB_LEVEL = 9

Result: TypeAlias = tuple[MQMD, Unit | None]


@lru_cache(maxsize=256)
def _check_options(options: int) -> None:
    """Raise MQError with MQRC_OPTIONS_ERROR for unknown or mutually exclusive MQPMO options."""
    if options & ~_KNOWN or any((options & mask).bit_count() > 1 for mask in _EXCLUSIVE):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQPMO options 0x{options:x}")


def mqput(hconn: Hconn, hobj: int, message: Message, options: int | MQPMO, properties: Sequence[Property]) -> Result:
    """Put a message to an open object. Updates the results in an MQPMO. Raises MQError."""
    handle = hconn.find(hobj)
    if not isinstance(handle, (QueueHandle, TopicHandle)):
        raise MQError(cmqc.MQRC_HOBJ_ERROR, "messages are put to queues and topics")
    pmo = options if isinstance(options, MQPMO) else MQPMO(Options=options)
    _check_options(pmo.Options)
    if not handle.options & cmqc.MQOO_OUTPUT:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_OUTPUT, "open it with MQOO_OUTPUT")
    needed, reason = _ALLOWED.get(pmo.Options & CONTEXTS, (-1, 0))
    if not handle.options & needed:
        raise MQError(reason, "open it with the matching MQOO_ context option")
    if isinstance(handle, TopicHandle):
        return _put(hconn, handle.topic, message, pmo, properties)
    if handle.queue.deleted:
        raise MQError(cmqc.MQRC_Q_DELETED, f"queue {handle.queue.name}")
    return _put(hconn, handle.destination, message, pmo, properties, handle)


def mqput1(hconn: Hconn, od: MQOD, message: Message, options: int | MQPMO, properties: Sequence[Property]) -> Result:
    """Put a message to an object that is not open. Updates the results in `od` and an MQPMO. Raises MQError."""
    queue_manager = hconn.queue_manager
    pmo = options if isinstance(options, MQPMO) else MQPMO(Options=options)
    _check_options(pmo.Options)
    if pmo.Options & cmqc.MQPMO_LOGICAL_ORDER:
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, "MQPMO_LOGICAL_ORDER is for MQPUT")
    check_od(od)
    if od.ObjectType == cmqc.MQOT_TOPIC:
        topic = check_publishable(queue_manager.objects.topic_string(od.ObjectName, od.ObjectString))
        hconn.ask_topic(od, open_options(pmo.Options), topic)
        od.ResObjectString = topic
        return _put(hconn, topic, message, pmo, properties)
    if od.ObjectType != cmqc.MQOT_Q:
        raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"object type {od.ObjectType}")
    if od.ObjectQMgrName in ("", queue_manager.name) and od.ObjectName in queue_manager.objects.models:
        raise MQError(cmqc.MQRC_Q_TYPE_ERROR, f"{od.ObjectName} is a model queue: open it")
    destination = queue_manager.objects.resolve(od.ObjectName, od.ObjectQMgrName)
    hconn.ask_queue(od, open_options(pmo.Options), od.ObjectName, destination)
    if destination.topic is not None:
        topic = check_publishable(destination.topic)
        hconn.ask_topic(od, open_options(pmo.Options), topic)
        return _put(hconn, topic, message, pmo, properties)
    return _put(hconn, destination, message, pmo, properties)


def _put(
    hconn: Hconn,
    target: str | ResolvedDestination,
    message: Message,
    pmo: MQPMO,
    properties: Sequence[Property],
    handle: QueueHandle | None = None,
) -> Result:
    options = pmo.Options
    hconn.check_quiescing(options)
    syncpoint = bool(options & cmqc.MQPMO_SYNCPOINT)
    place = following = handle.put_place if handle is not None else GroupPosition()
    if options & cmqc.MQPMO_LOGICAL_ORDER and isinstance(target, ResolvedDestination):
        md, application, following = completed_at(hconn, message.md, pmo, place, len(message.data))
        following.syncpoint, following.persistent = syncpoint, _is_persistent(md, target)
        place.check(syncpoint, following.persistent)
    else:
        md, application = completed(hconn, message.md, pmo)
        if place.unfinished:
            following, pmo.Reason = GroupPosition(), pmo.Reason or place.unfinished
    limit = _segment_limit(hconn, target, md)
    if len(message.data) > int(hconn.queue_manager.objects.attributes["MAXMSGL"]) and not limit:
        raise MQError(cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR, f"{len(message.data)} bytes")
    message = _with_properties(md, message.data, properties)
    unit = hconn.unit_of_work() if syncpoint else Unit()
    # The application gets the outcomes of asynchronous puts with MQSTAT.
    asynchronous = options & cmqc.MQPMO_ASYNC_RESPONSE
    try:
        if isinstance(target, str):
            md = _publish(hconn, unit, target, message, pmo, application)
        elif limit and message.length > limit and not properties:
            md = _put_segments(hconn, unit, target, segmented(message, limit, hconn.generated), pmo, application)
        else:
            md = _put_to_queue(hconn, unit, target, message, pmo, application)
    except MQError as error:
        if not asynchronous:
            raise
        hconn.outcomes.failed(error.reason, target)
    else:
        if asynchronous:
            hconn.outcomes.put(target, pmo.Reason)
    if following is not place and handle is not None:
        handle.put_place = following
    return md, None if syncpoint else unit


def _segment_limit(hconn: Hconn, target: str | ResolvedDestination, md: MQMD) -> int:
    """Return the maximum length of segments of a message, 0 if the queue manager must not split it."""
    queue = None if isinstance(target, str) else target.queue
    if queue is None or queue.is_transmission or not md.MsgFlags & cmqc.MQMF_SEGMENTATION_ALLOWED:
        return 0
    return 0 if md.MsgFlags & SEGMENT else min(queue.max_length, int(hconn.queue_manager.objects.attributes["MAXMSGL"]))


def _put_segments(
    hconn: Hconn,
    unit: Unit,
    destination: ResolvedDestination,
    parts: list[Message],
    pmo: MQPMO,
    application: str | None,
) -> MQMD:
    """Put all segments of a message, or none."""
    before = len(unit.puts)
    try:
        first, *_ = [_put_to_queue(hconn, unit, destination, part, pmo, application) for part in parts]
    except MQError:
        for stored in unit.puts[before:]:
            stored.queue.depth -= 1
        del unit.puts[before:]
        raise
    return first


def _put_to_queue(
    hconn: Hconn, unit: Unit, destination: ResolvedDestination, message: Message, pmo: MQPMO, application: str | None
) -> MQMD:
    queue_manager = hconn.queue_manager
    queue = destination.queue
    assert queue is not None
    if _is_persistent(message.md, destination) and queue.attributes.get("DEFTYPE") == TEMPORARY:
        raise MQError(cmqc.MQRC_PERSISTENT_NOT_ALLOWED, f"queue {queue.name} is a temporary dynamic queue")
    if queue.is_transmission and message.md.MsgType == cmqc.MQMT_REQUEST and message.md.MsgId == cmqc.MQMI_NONE:
        # The client's reply contains it.
        message = msgspec.structs.replace(message, md=msgspec.structs.replace(message.md, MsgId=hconn.generated()))
    stored = queue_manager.put(unit, destination, message, application=application)
    pmo.ResolvedQName = destination.remote_queue or queue.name
    pmo.ResolvedQMgrName = destination.client_id or queue_manager.name
    pmo.KnownDestCount, pmo.UnknownDestCount = (0, 1) if destination.client_id else (1, 0)
    if message.md.Report and not queue.is_transmission:
        report(queue_manager, unit, stored, cmqc.MQFB_COA)
    return queue_manager.appearance.descriptor(stored)


def _publish(hconn: Hconn, unit: Unit, topic: str, message: Message, pmo: MQPMO, application: str | None) -> MQMD:
    queue_manager = hconn.queue_manager
    if not 0 <= pmo.PubLevel <= _MAX_PUB_LEVEL:
        raise MQError(cmqc.MQRC_PMO_ERROR, f"PubLevel {pmo.PubLevel}")
    route = queue_manager.objects.topics.route_below(topic, pmo.PubLevel)
    if pmo.Options & cmqc.MQPMO_NOT_OWN_SUBS:
        route = route.without(lambda subscription: subscription.owner is hconn)
    md = message.md
    if md.Priority > MAX_PRIORITY:
        md = msgspec.structs.replace(md, Priority=MAX_PRIORITY)
    message_id = hconn.generated() if md.MsgId == cmqc.MQMI_NONE else md.MsgId
    if md.MsgType == cmqc.MQMT_REQUEST:
        md = msgspec.structs.replace(md, MsgId=message_id)  # the publisher correlates the reply with it
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


def _is_unmatched(route: Route) -> bool:
    return not route.subscriptions and not route.selective


def _is_persistent(md: MQMD, destination: ResolvedDestination) -> bool:
    if md.Persistence == cmqc.MQPER_PERSISTENCE_AS_Q_DEF:
        return destination.persistent
    return md.Persistence == cmqc.MQPER_PERSISTENT


def _with_properties(md: MQMD, data: bytes, properties: Sequence[Property]) -> Message:
    if not properties:
        return Message(md, data)
    made = leading(md, data) is None
    return Message(*merge(md, data, properties), made)
