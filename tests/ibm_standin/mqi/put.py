"""MQPUT and MQPUT1 with all functions of IBM MQ: groups, segments, passed context and asynchronous responses.

Source: IBM MQ documentation, "MQPUT - Put message", "MQPUT1 - Put one message", "MQPMO - Put-message options".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.topics import Route
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import IDENTITY, ORIGIN, blank, copied, group_fields
from bridge.mq.embedded.verbs.put import (
    ALLOWED,
    MAX_PRIORITY,
    check_context,
    check_length,
    completed,
    completed_except_group,
    opened_target,
    publish,
    put_to_queue,
    resolved_target,
    with_properties,
)
from bridge.mq.mqi import MQOD, MQError, Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.ibm_standin.mqi.hconn import MqiHconn, MqiQueueHandle
from tests.ibm_standin.mqi.logical_messages import SEGMENT, GroupPosition, segmented
from tests.ibm_standin.mqi.open import TEMPORARY
from tests.ibm_standin.mqi.structures import MQPMO

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
_ALLOWED = ALLOWED | {
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
Target: TypeAlias = str | ResolvedDestination


@lru_cache(maxsize=256)
def _check_options(options: int) -> None:
    """Raise MQError with MQRC_OPTIONS_ERROR for unknown or mutually exclusive MQPMO options."""
    if options & ~_KNOWN or any((options & mask).bit_count() > 1 for mask in _EXCLUSIVE):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQPMO options 0x{options:x}")


def _adapted(hconn: MqiHconn, md: MQMD, application: str | None, pmo: MQPMO) -> tuple[MQMD, str | None]:
    """Return a completed MQMD and the application, with the effects of options that the bridge does not use."""
    pmo.Reason = cmqc.MQRC_PRIORITY_EXCEEDS_MAXIMUM if md.Priority > MAX_PRIORITY else cmqc.MQRC_NONE
    changes: dict[str, Any] = {}
    if pmo.Options & cmqc.MQPMO_NEW_CORREL_ID:
        changes["CorrelId"] = hconn.generated()
    if pmo.Options & cmqc.MQPMO_SUPPRESS_REPLYTO:
        changes |= {"ReplyToQ": b"", "ReplyToQMgr": b""}
    choice = pmo.Options & CONTEXTS
    if choice == cmqc.MQPMO_NO_CONTEXT:
        changes |= blank(IDENTITY) | blank(ORIGIN)
        application = None
    elif choice & _PASSES:
        source = _saved_context(hconn, pmo.Context)
        changes |= copied(IDENTITY, source)
        if choice == cmqc.MQPMO_PASS_ALL_CONTEXT:
            changes |= copied(ORIGIN, source)
            application = None
    return msgspec.structs.replace(md, **changes) if changes else md, application


def _saved_context(hconn: MqiHconn, hobj: int) -> MQMD:
    handle = hconn.handles.get(hobj)
    if not isinstance(handle, MqiQueueHandle) or not handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
        raise MQError(cmqc.MQRC_CONTEXT_HANDLE_ERROR, f"handle {hobj} saves no context: open it to")
    if handle.context is None:
        raise MQError(cmqc.MQRC_CONTEXT_NOT_AVAILABLE, "no message was got with the handle")
    return handle.context


def mqput(hconn: MqiHconn, hobj: int, message: Message, options: int | MQPMO, properties: Sequence[Property]) -> Result:
    """Put a message to an open object. Updates the results in an MQPMO. Raises MQError."""
    pmo = options if isinstance(options, MQPMO) else MQPMO(Options=options)
    handle, target = opened_target(hconn, hobj)
    _check_options(pmo.Options)
    check_context(_ALLOWED, handle.options, pmo.Options)
    return _put(hconn, target, message, pmo, properties, handle if isinstance(handle, MqiQueueHandle) else None)


def mqput1(hconn: MqiHconn, od: MQOD, message: Message, options: int | MQPMO, properties: Sequence[Property]) -> Result:
    """Put a message to an object that is not open. Updates the results in `od` and an MQPMO. Raises MQError."""
    queue_manager = hconn.queue_manager
    pmo = options if isinstance(options, MQPMO) else MQPMO(Options=options)
    _check_options(pmo.Options)
    if pmo.Options & cmqc.MQPMO_LOGICAL_ORDER:
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, "MQPMO_LOGICAL_ORDER is for MQPUT")
    own = od.ObjectType == cmqc.MQOT_Q and od.ObjectQMgrName in ("", queue_manager.name)
    if own and od.ObjectName in queue_manager.objects.models:
        raise MQError(cmqc.MQRC_Q_TYPE_ERROR, f"{od.ObjectName} is a model queue: open it")
    return _put(hconn, resolved_target(hconn, od, pmo.Options), message, pmo, properties)


def _put(
    hconn: MqiHconn,
    target: Target,
    message: Message,
    pmo: MQPMO,
    properties: Sequence[Property],
    handle: MqiQueueHandle | None = None,
) -> Result:
    options = pmo.Options
    hconn.check_quiescing(options)
    syncpoint = bool(options & cmqc.MQPMO_SYNCPOINT)
    place = following = handle.put_place if handle is not None else GroupPosition()
    if options & cmqc.MQPMO_LOGICAL_ORDER and isinstance(target, ResolvedDestination):
        md, application = completed_except_group(hconn, message.md, options)
        md, application = _adapted(hconn, md, application, pmo)
        group = group_fields(md)
        own, following = place.put(group["MsgFlags"], md.GroupId, len(message.data), hconn.generated)
        md = msgspec.structs.replace(md, **group | own)
        following.syncpoint, following.persistent = syncpoint, _is_persistent(md, target)
        place.check(syncpoint, following.persistent)
    else:
        md, application = _adapted(hconn, *completed(hconn, message.md, options), pmo)
        if place.unfinished:
            following, pmo.Reason = GroupPosition(), pmo.Reason or place.unfinished
    limit = _segment_limit(hconn, target, md)
    if not limit:
        check_length(hconn, message.data)
    message = with_properties(md, message.data, properties)
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


def _segment_limit(hconn: MqiHconn, target: Target, md: MQMD) -> int:
    """Return the maximum length of segments of a message, or 0 if the queue manager must not split it."""
    queue = None if isinstance(target, str) else target.queue
    if queue is None or queue.is_transmission or not md.MsgFlags & cmqc.MQMF_SEGMENTATION_ALLOWED:
        return 0
    return 0 if md.MsgFlags & SEGMENT else min(queue.max_length, int(hconn.queue_manager.objects.attributes["MAXMSGL"]))


def _put_segments(
    hconn: MqiHconn,
    unit: Unit,
    destination: ResolvedDestination,
    parts: list[Message],
    pmo: MQPMO,
    application: str | None,
) -> MQMD:
    """Put all segments of a message, or none."""
    first = len(unit.puts)
    try:
        md, *_ = [_put_to_queue(hconn, unit, destination, part, pmo, application) for part in parts]
    except MQError:
        unit.withdraw(first)
        raise
    return md


def _put_to_queue(
    hconn: MqiHconn, unit: Unit, destination: ResolvedDestination, message: Message, pmo: MQPMO, application: str | None
) -> MQMD:
    queue = destination.queue
    assert queue is not None
    if _is_persistent(message.md, destination) and queue.attributes.get("DEFTYPE") == TEMPORARY:
        raise MQError(cmqc.MQRC_PERSISTENT_NOT_ALLOWED, f"queue {queue.name} is a temporary dynamic queue")
    md = put_to_queue(hconn, unit, destination, message, application)
    pmo.ResolvedQName = destination.remote_queue or queue.name
    pmo.ResolvedQMgrName = destination.client_id or hconn.queue_manager.name
    pmo.KnownDestCount, pmo.UnknownDestCount = (0, 1) if destination.client_id else (1, 0)
    return md


def _publish(hconn: MqiHconn, unit: Unit, topic: str, message: Message, pmo: MQPMO, application: str | None) -> MQMD:
    topics = hconn.queue_manager.objects.topics
    if not 0 <= pmo.PubLevel <= _MAX_PUB_LEVEL:
        raise MQError(cmqc.MQRC_PMO_ERROR, f"PubLevel {pmo.PubLevel}")
    route = topics.route(topic) if pmo.PubLevel == _MAX_PUB_LEVEL else topics.new_route(topic, pmo.PubLevel)
    if pmo.Options & cmqc.MQPMO_NOT_OWN_SUBS:
        subscribers = [
            subscription for subscription in (*route.subscriptions, *route.selective) if subscription.owner is not hconn
        ]
        route = Route(topic, tuple(subscribers), topics.attributes(topic))
        route.review(topics.full, topics.full_version)
    md = publish(hconn, unit, route, message, application, retain=bool(pmo.Options & cmqc.MQPMO_RETAIN))
    if pmo.Options & cmqc.MQPMO_WARN_IF_NO_SUBS_MATCHED and not route.subscriptions and not route.selective:
        pmo.Reason = pmo.Reason or cmqc.MQRC_NO_SUBS_MATCHED
    return md


def _is_persistent(md: MQMD, destination: ResolvedDestination) -> bool:
    if md.Persistence == cmqc.MQPER_PERSISTENCE_AS_Q_DEF:
        return destination.persistent
    return md.Persistence == cmqc.MQPER_PERSISTENT
