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
from bridge.mq.embedded.handles import QueueHandle, TopicHandle, check_publishable
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.property import leading, merge
from bridge.mq.embedded.queuemanager import report
from bridge.mq.embedded.topics import Route
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import (
    BYTE_FIELDS,
    IDENTITY,
    ORIGIN,
    CompletedDescriptor,
    Hconn,
    blank,
    check_descriptor,
    group_fields,
    is_grouped,
)
from bridge.mq.mqi import MQOD, MQError, Property, check_od
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

MAX_PRIORITY: Final = 9


def completed(hconn: Hconn, md: MQMD, options: int) -> tuple[MQMD, str | None]:
    """Complete the MQMD of a message. Raises MQError.

    Also return the name of the application if the message has the application's own context, otherwise None. The result is
    cached, because applications use the same MQMD object for many messages.
    """
    ccsid = hconn.queue_manager.objects.attributes["CCSID"]
    last = hconn.completed
    if last is not None and last.source is md and last.options == options and last.ccsid == ccsid:
        return last.md, last.application
    complete, application = completed_except_group(hconn, md, options)
    group = group_fields(complete)
    grouped = is_grouped(complete)
    if grouped and complete.GroupId == cmqc.MQGI_NONE:
        group["GroupId"] = hconn.generated()
    complete = msgspec.structs.replace(complete, **group)
    if not grouped:
        hconn.completed = CompletedDescriptor(md, options, ccsid, complete, application)
    return complete, application


def completed_except_group(hconn: Hconn, md: MQMD, options: int) -> tuple[MQMD, str | None]:
    """Check and complete an MQMD, except its group fields. Return the same as `completed`."""
    check_descriptor(md)
    changes: dict[str, Any] = {"BackoutCount": 0}
    for name, length in BYTE_FIELDS:
        if len(value := getattr(md, name)) < length:
            changes[name] = value.ljust(length, b"\0")
    if options & cmqc.MQPMO_NEW_MSG_ID:
        changes["MsgId"] = cmqc.MQMI_NONE
    if md.ReplyToQ and not md.ReplyToQMgr:
        changes |= _reply_to(hconn, md.ReplyToQ)
    if md.CodedCharSetId == cmqc.MQCCSI_Q_MGR:
        changes["CodedCharSetId"] = int(hconn.queue_manager.objects.attributes["CCSID"])
    application = None
    if not options & cmqc.MQPMO_SET_ALL_CONTEXT:
        application = hconn.name
        changes |= blank(ORIGIN)
        if not options & cmqc.MQPMO_SET_IDENTITY_CONTEXT:
            changes |= blank(IDENTITY)
            changes["UserIdentifier"] = hconn.user
    return msgspec.structs.replace(md, **changes), application


def _reply_to(hconn: Hconn, queue: bytes) -> dict[str, bytes]:
    """Return ReplyToQ and ReplyToQMgr for a message with a blank ReplyToQMgr.

    They are from the remote queue definition with this name, or of the local queue (IBM MQ, "Reply-to queue alias").
    """
    remote = hconn.queue_manager.objects.remotes.get(queue.decode("ascii", "replace"))
    if remote is not None and remote["RNAME"]:
        return {"ReplyToQ": str(remote["RNAME"]).encode(), "ReplyToQMgr": str(remote["RQMNAME"]).encode()}
    return {"ReplyToQMgr": hconn.queue_manager.name.encode()}


#: Mutually exclusive options.
_EXCLUSIVE: Final = (
    cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NO_SYNCPOINT,
    cmqc.MQPMO_SET_IDENTITY_CONTEXT | cmqc.MQPMO_SET_ALL_CONTEXT,
)
_KNOWN: Final = (
    sum(_EXCLUSIVE)
    | cmqc.MQPMO_NEW_MSG_ID
    | cmqc.MQPMO_ALTERNATE_USER_AUTHORITY
    | cmqc.MQPMO_FAIL_IF_QUIESCING
    | cmqc.MQPMO_RETAIN
)
#: Context option -> open options, one of which is required, and the reason code if it is missing
ALLOWED: Final = {
    cmqc.MQPMO_SET_ALL_CONTEXT: (cmqc.MQOO_SET_ALL_CONTEXT, cmqc.MQRC_NOT_OPEN_FOR_SET_ALL),
    cmqc.MQPMO_SET_IDENTITY_CONTEXT: (
        cmqc.MQOO_SET_ALL_CONTEXT | cmqc.MQOO_SET_IDENTITY_CONTEXT,
        cmqc.MQRC_NOT_OPEN_FOR_SET_IDENT,
    ),
}

Result: TypeAlias = tuple[MQMD, Unit | None]
Target: TypeAlias = str | ResolvedDestination


@lru_cache(maxsize=256)
def _check_options(options: int) -> None:
    """Raise MQError with MQRC_OPTIONS_ERROR for unknown or mutually exclusive MQPMO options."""
    if options & ~_KNOWN or any((options & mask).bit_count() > 1 for mask in _EXCLUSIVE):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQPMO options 0x{options:x}")


def opened_target(hconn: Hconn, hobj: int) -> tuple[QueueHandle | TopicHandle, Target]:
    """Return the handle of an open queue or topic, and its target: a topic string, or a destination. Raises MQError."""
    handle = hconn.find(hobj)
    if not isinstance(handle, (QueueHandle, TopicHandle)):
        raise MQError(cmqc.MQRC_HOBJ_ERROR, "the handle is not for a queue or topic")
    if not handle.options & cmqc.MQOO_OUTPUT:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_OUTPUT, "open it with MQOO_OUTPUT")
    if isinstance(handle, TopicHandle):
        return handle, handle.topic
    if handle.queue.deleted:
        raise MQError(cmqc.MQRC_Q_DELETED, f"queue {handle.queue.name}")
    return handle, handle.destination


def check_context(allowed: dict[int, tuple[int, int]], flags: int, options: int) -> None:
    """Check that the open options allow the context option of a put. Raises MQError."""
    needed, reason = allowed.get(options & sum(allowed), (-1, 0))
    if not flags & needed:
        raise MQError(reason, "open it with the matching MQOO_ context option")


def mqput(hconn: Hconn, hobj: int, message: Message, options: int, properties: Sequence[Property]) -> Result:
    """Put a message to an open object. Raises MQError."""
    _check_options(options)
    handle, target = opened_target(hconn, hobj)
    check_context(ALLOWED, handle.options, options)
    return _put(hconn, target, message, options, properties)


def resolved_target(hconn: Hconn, od: MQOD, options: int) -> Target:
    """Resolve and authorize the object of MQPUT1. Updates the results in `od`. Raises MQError."""
    queue_manager = hconn.queue_manager
    check_od(od)
    if od.ObjectType == cmqc.MQOT_TOPIC:
        topic = check_publishable(queue_manager.objects.topic_string(od.ObjectName, od.ObjectString))
        hconn.ask_topic(od, open_options(options), topic)
        od.ResObjectString = topic
        return topic
    if od.ObjectType != cmqc.MQOT_Q:
        raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"object type {od.ObjectType}")
    destination = queue_manager.objects.resolve(od.ObjectName, od.ObjectQMgrName)
    hconn.ask_queue(od, open_options(options), od.ObjectName, destination)
    if destination.topic is not None:
        topic = check_publishable(destination.topic)
        hconn.ask_topic(od, open_options(options), topic)
        return topic
    return destination


def mqput1(hconn: Hconn, od: MQOD, message: Message, options: int, properties: Sequence[Property]) -> Result:
    """Put a message to an object that is not open. Updates the results in `od`. Raises MQError."""
    _check_options(options)
    return _put(hconn, resolved_target(hconn, od, options), message, options, properties)


def _put(hconn: Hconn, target: Target, message: Message, options: int, properties: Sequence[Property]) -> Result:
    hconn.check_quiescing(options)
    md, application = completed(hconn, message.md, options)
    check_length(hconn, message.data)
    message = with_properties(md, message.data, properties)
    syncpoint = options & cmqc.MQPMO_SYNCPOINT
    unit = hconn.unit_of_work() if syncpoint else Unit()
    if isinstance(target, str):
        route = hconn.queue_manager.objects.topics.route(target)
        md = publish(hconn, unit, route, message, application, retain=bool(options & cmqc.MQPMO_RETAIN))
    else:
        md = put_to_queue(hconn, unit, target, message, application)
    return md, None if syncpoint else unit


def check_length(hconn: Hconn, data: bytes) -> None:
    """Raise MQError if message data is longer than MAXMSGL of the queue manager."""
    if len(data) > int(hconn.queue_manager.objects.attributes["MAXMSGL"]):
        raise MQError(cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR, f"{len(data)} bytes")


def put_to_queue(
    hconn: Hconn, unit: Unit, destination: ResolvedDestination, message: Message, application: str | None
) -> MQMD:
    """Put a message with a complete MQMD to a queue. Return the MQMD for the application. Raises MQError."""
    queue_manager = hconn.queue_manager
    queue = destination.queue
    assert queue is not None
    if queue.is_transmission and message.md.MsgType == cmqc.MQMT_REQUEST and message.md.MsgId == cmqc.MQMI_NONE:
        # The client's reply contains this MsgId.
        message = msgspec.structs.replace(message, md=msgspec.structs.replace(message.md, MsgId=hconn.generated()))
    stored = queue_manager.put(unit, destination, message, application=application)
    if message.md.Report and not queue.is_transmission:
        report(queue_manager, unit, stored, cmqc.MQFB_COA)
    return queue_manager.appearance.descriptor(stored)


def publish(hconn: Hconn, unit: Unit, route: Route, message: Message, application: str | None, *, retain: bool) -> MQMD:
    """Publish a message with a complete MQMD. Return the MQMD for the application. Raises MQError."""
    queue_manager = hconn.queue_manager
    md = message.md
    if md.Priority > MAX_PRIORITY:
        md = msgspec.structs.replace(md, Priority=MAX_PRIORITY)
    message_id = hconn.generated() if md.MsgId == cmqc.MQMI_NONE else md.MsgId
    if md.MsgType == cmqc.MQMT_REQUEST:
        md = msgspec.structs.replace(md, MsgId=message_id)  # the publisher correlates the reply with it
    message = msgspec.structs.replace(message, md=md)
    now = time.time()
    reason = queue_manager.publish(unit, route, message, now, retain=retain, application=application)
    if reason:
        raise MQError(reason, f"publication to topic {route.topic!r}")
    return queue_manager.appearance.published(md, message_id, now, application)


def with_properties(md: MQMD, data: bytes, properties: Sequence[Property]) -> Message:
    """Return a message with properties in an RFH2."""
    if not properties:
        return Message(md, data)
    is_rfh2_new = leading(md, data) is None
    return Message(*merge(md, data, properties), is_rfh2_new)
