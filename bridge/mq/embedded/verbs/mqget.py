"""MQGET.

Source: IBM MQ documentation, "MQGET - Get message". The verb does not wait: whoever calls it does.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.report import report
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.browse import browsed, release_lock, unlock, unmark
from bridge.mq.embedded.verbs.candidates import first_candidate
from bridge.mq.embedded.verbs.get_options import BROWSES, UNMARKS, check_get
from bridge.mq.embedded.verbs.get_result import get_result, manner_of
from bridge.mq.embedded.verbs.handle import QueueHandle
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.logical_message import Place, behind, segments
from bridge.mq.errors import MQError
from bridge.mq.mqi import GetOptions, Got
from bridge.wire import cmqc


def mqget(hconn: Hconn, hobj: int, options: GetOptions) -> tuple[Got, Unit | None]:
    """Get a message, without waiting: MQError with MQRC_NO_MSG_AVAILABLE says that there is none now."""
    handle = ready_handle(hconn, hobj, options)
    flags = options.Options
    if flags & cmqc.MQGMO_UNLOCK:
        return unlock(handle), None
    how = manner_of(handle, options)
    if flags & UNMARKS and not flags & BROWSES:
        return unmark(handle, options), None
    stored = first_candidate(hconn, handle, options)
    browse = bool(flags & BROWSES)
    syncpoint = bool(flags & cmqc.MQGMO_SYNCPOINT) or (
        stored.persistent and bool(flags & cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT)
    )
    place, in_order = handle.got_place, bool(flags & cmqc.MQGMO_LOGICAL_ORDER)
    if in_order and not browse:
        place.check(syncpoint)
    unit = hconn.unit_of_work() if syncpoint else Unit()
    parts = segments(handle.queue, stored) if flags & cmqc.MQGMO_COMPLETE_MSG else [stored]
    got = get_result(hconn, handle, parts, options, how)
    if in_order:
        handle.got_place = behind(stored, whole=bool(flags & cmqc.MQGMO_COMPLETE_MSG))
        handle.got_place.syncpoint = None if browse else syncpoint
    elif place.unfinished:
        handle.got_place, got.Reason = Place(), got.Reason or place.unfinished
    if browse:
        browsed(hconn, handle, stored, flags)
        return got, None
    if handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
        handle.context = got.md
    take(hconn, handle, parts, unit)
    return got, None if syncpoint else unit


def ready_handle(hconn: Hconn, hobj: int, options: GetOptions) -> QueueHandle:
    """Return the handle, if it and its queue take a get with these options. Raises MQError."""
    handle = hconn.find_queue(hobj)
    check_get(handle, options)
    hconn.check_quiescing(options.Options)
    queue = handle.queue
    if queue.deleted:
        raise MQError(cmqc.MQRC_Q_DELETED, f"queue {queue.name}")
    if queue.attributes["GET"] != "ENABLED" or not handle.destination.get_enabled:
        raise MQError(cmqc.MQRC_GET_INHIBITED, f"queue {queue.name} has GET(DISABLED)")
    return handle


def take(hconn: Hconn, handle: QueueHandle, parts: Sequence[StoredMessage], unit: Unit) -> None:
    """Take a message, or the segments of one, off its queue."""
    release_lock(handle)
    for part in parts:
        if part is handle.cursor:
            handle.before = part.previous
        handle.queue.take(part)
        handle.marked.discard(part.msg_number)
        unit.gets.append(part)
    # "This prevents a COA or COD report message being generated when a message is placed on or removed from a transmission
    # queue" (IBM MQ documentation, "Overview for MQXQH").
    if parts[0].message.md.Report and not parts[0].client_id:
        report(hconn.queue_manager, unit, parts[0], cmqc.MQFB_COD)
