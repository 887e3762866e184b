"""MQGET with all functions of IBM MQ: locks, co-operative marks, logical messages, data conversion and PROPCTL.

Source: IBM MQ documentation, "MQGET - Get message", "MQGMO - Get-message options".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache

from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.handles import QueueHandle
from bridge.mq.embedded.property import leading, split
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.selector import Selection
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.get import (
    check_opened,
    first_candidate,
    mark,
    number_of,
    ready_handle,
    take,
    token_of,
    truncated,
    under_cursor,
)
from bridge.mq.mqi import GetOptions, MQError, Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.ibm_standin.mqi.conversion import convert
from tests.ibm_standin.mqi.hconn import MqiHconn, MqiQueueHandle, record_of
from tests.ibm_standin.mqi.logical_messages import GroupPosition, available, behind, joined, segments
from tests.ibm_standin.mqi.structures import MqiGetOptions, MqiGot

#: With PROPCTL(COMPAT), a property in one of these folders causes all properties to be returned.
_COMPATIBLE_FOLDERS = frozenset(("jms", "mcd", "mqext", "usr"))
#: Return properties in an RFH2.
ALL = "ALL"
#: Return properties in an RFH2 if one of them is in a folder used by JMS, otherwise omit them.
COMPATIBLE = "COMPAT"
NONE = "NONE"
HANDLE = "HANDLE"

#: The MQGMO_PROPERTIES_ options except AS_Q_DEF.
OPTIONS = {
    cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2: ALL,
    cmqc.MQGMO_NO_PROPERTIES: NONE,
    cmqc.MQGMO_PROPERTIES_IN_HANDLE: HANDLE,
    cmqc.MQGMO_PROPERTIES_COMPATIBILITY: COMPATIBLE,
}
_MASK = sum(OPTIONS)
#: PROPCTL -> (manner without a message handle, manner with one)
_CONTROL = {
    "ALL": (ALL, HANDLE),
    "COMPAT": (COMPATIBLE, HANDLE),
    "FORCE": (ALL, ALL),
    "NONE": (NONE, NONE),
    "V6COMPAT": (ALL, ALL),
}


def manner(options: int, control: str, handle: bool) -> str:
    """Return the manner in which to return properties.

    It depends on the MQGMO options, the queue's PROPCTL, and whether the application passes a message handle. Raises MQError
    if the options are contradictory.
    """
    chosen = options & _MASK
    if not chosen:
        return _CONTROL[control][handle]
    if chosen not in OPTIONS:
        raise MQError(
            cmqc.MQRC_OPTIONS_ERROR, f"MQGMO_PROPERTIES_ options 0x{chosen & 0xFFFFFFFF:x} are mutually exclusive"
        )
    return OPTIONS[chosen]


def render(appearance: Appearance, stored: StoredMessage, how: str) -> tuple[MQMD, bytes, list[Property]]:
    """Return MQMD, data and properties in a manner returned by `manner`."""
    if how == COMPATIBLE:
        how = _compatible(stored)
        if how == COMPATIBLE:
            return *appearance.seen(stored), []
    md, data = appearance.seen(stored, properties=True)
    if how == ALL:
        return md, data, []
    md, data, properties = split(md, data)
    return md, data, properties if how == HANDLE else []


def _compatible(stored: StoredMessage) -> str:
    """Return the manner for a message with PROPCTL(COMPAT). An RFH2 written by the putter is data and stays unchanged."""
    message = stored.message
    if not isinstance(message, Message) or not message.made_rfh2 or stored.queue.is_transmission:
        return COMPATIBLE
    own = leading(message.md, message.data)
    names = {folder.name for folder in own[0].folders} if own is not None else set()
    return ALL if names & _COMPATIBLE_FOLDERS else NONE


#: The maximum number of marks of a queue. If it is reached, all are dropped, so messages are browsed again.
_MARK_LIMIT = 100_000


def browsed(hconn: MqiHconn, handle: MqiQueueHandle, stored: StoredMessage, flags: int) -> None:
    """Update the cursor, lock and marks after browsing a message."""
    record = record_of(hconn.queue_manager, handle.queue)
    handle.cursor = stored
    handle.release_lock(hconn.queue_manager)
    if flags & cmqc.MQGMO_LOCK:
        record.locks[stored.msg_number] = handle
        handle.locked = stored
    if flags & cmqc.MQGMO_MARK_BROWSE_HANDLE:
        mark(handle, stored)
    if flags & cmqc.MQGMO_MARK_BROWSE_CO_OP:
        interval = hconn.queue_manager.objects.attributes.get("MARKINT", 5_000)
        until = time.monotonic() + interval / 1000 if isinstance(interval, int) else float("inf")
        if len(record.marks) >= _MARK_LIMIT:
            record.marks.clear()
        record.marks[stored.msg_number] = until


def unlock(hconn: MqiHconn, handle: MqiQueueHandle) -> MqiGot:
    """Unlock the locked message (MQGMO_UNLOCK). Raises MQError."""
    if handle.locked is None:
        raise MQError(cmqc.MQRC_NO_MSG_LOCKED, f"queue {handle.queue.name}")
    handle.release_lock(hconn.queue_manager)
    return MqiGot(md=MQMD(), data=b"", ResolvedQName=handle.queue.name)


def unmark(hconn: MqiHconn, handle: MqiQueueHandle, options: MqiGetOptions) -> MqiGot:
    """Unmark the message with a token, or under the cursor (MQGMO_UNMARK_BROWSE_…). Raises MQError."""
    queue = handle.queue
    if options.MatchOptions & cmqc.MQMO_MATCH_MSG_TOKEN:
        number = number_of(options.MsgToken)
    elif handle.cursor is not None:
        number = handle.cursor.msg_number
    else:
        raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {queue.name} first")
    handle.marked.discard(number)
    if options.Options & cmqc.MQGMO_UNMARK_BROWSE_CO_OP:
        record_of(hconn.queue_manager, queue).marks.pop(number, None)
    return MqiGot(md=MQMD(), data=b"", ResolvedQName=queue.name)


#: Browse options.
BROWSES = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
#: Options for the message under the browse cursor.
UNDER_CURSOR = cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
MARKS = cmqc.MQGMO_MARK_BROWSE_HANDLE | cmqc.MQGMO_MARK_BROWSE_CO_OP
UNMARKS = cmqc.MQGMO_UNMARK_BROWSE_HANDLE | cmqc.MQGMO_UNMARK_BROWSE_CO_OP
_SYNCPOINTS = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT
#: Mutually exclusive options.
_EXCLUSIVE = (
    BROWSES | cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_UNLOCK,
    _SYNCPOINTS | cmqc.MQGMO_NO_SYNCPOINT,
    sum(OPTIONS),
    UNMARKS,
    cmqc.MQGMO_LOCK | cmqc.MQGMO_UNLOCK,
)
_KNOWN = (
    BROWSES
    | UNDER_CURSOR
    | MARKS
    | UNMARKS
    | _SYNCPOINTS
    | sum(OPTIONS)
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_WAIT
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_LOCK
    | cmqc.MQGMO_UNLOCK
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | cmqc.MQGMO_CONVERT
    | cmqc.MQGMO_LOGICAL_ORDER
    | cmqc.MQGMO_COMPLETE_MSG
    | cmqc.MQGMO_ALL_MSGS_AVAILABLE
    | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE
    | cmqc.MQGMO_UNMARKED_BROWSE_MSG
)
_MATCHES = (
    cmqc.MQMO_MATCH_MSG_ID
    | cmqc.MQMO_MATCH_CORREL_ID
    | cmqc.MQMO_MATCH_GROUP_ID
    | cmqc.MQMO_MATCH_MSG_SEQ_NUMBER
    | cmqc.MQMO_MATCH_OFFSET
    | cmqc.MQMO_MATCH_MSG_TOKEN
)


def check_get(handle: QueueHandle, options: GetOptions) -> None:
    """Check that these options are valid for a handle. Raises MQError."""
    flags, match = options.Options, options.MatchOptions
    _check_together(flags, handle.options)
    if flags & cmqc.MQGMO_WAIT and options.WaitInterval < cmqc.MQWI_UNLIMITED:
        raise MQError(cmqc.MQRC_WAIT_INTERVAL_ERROR, f"WaitInterval {options.WaitInterval}")
    if options.MaxLength is not None and options.MaxLength < 0:
        raise MQError(cmqc.MQRC_BUFFER_LENGTH_ERROR, f"buffer length {options.MaxLength}")
    if match & ~_MATCHES:
        raise MQError(cmqc.MQRC_MATCH_OPTIONS_ERROR, f"MatchOptions 0x{match & 0xFFFFFFFF:x}")
    if match & cmqc.MQMO_MATCH_MSG_TOKEN and (flags & cmqc.MQGMO_WAIT or not any(options.MsgToken)):
        raise MQError(cmqc.MQRC_MSG_TOKEN_ERROR, "MQMO_MATCH_MSG_TOKEN requires a MsgToken and excludes MQGMO_WAIT")
    _check_opened(flags, match, handle.options)


@lru_cache(maxsize=256)
def _check_together(flags: int, opened: int) -> None:
    """Check that options are compatible. Raises MQError."""
    browse = flags & BROWSES
    unlock = flags & cmqc.MQGMO_UNLOCK
    if (
        flags & ~_KNOWN
        or any((flags & mask).bit_count() > 1 for mask in _EXCLUSIVE)
        or (flags & _SYNCPOINTS and (browse or flags & (cmqc.MQGMO_LOCK | cmqc.MQGMO_UNLOCK)))
        or (flags & (cmqc.MQGMO_LOCK | MARKS | cmqc.MQGMO_UNMARKED_BROWSE_MSG) and not browse)
        or (unlock and flags & ~(cmqc.MQGMO_UNLOCK | cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING))
        or (flags & (MARKS | UNMARKS) & _CO_OPS and not opened & cmqc.MQOO_CO_OP)
    ):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQGMO options 0x{flags & 0xFFFFFFFF:x} are incompatible")


@lru_cache(maxsize=256)
def _check_opened(flags: int, match: int, opened: int) -> None:
    """Check that the open options allow a get. Raises MQError."""
    browse = flags & BROWSES
    unlock = flags & cmqc.MQGMO_UNLOCK
    if flags & cmqc.MQGMO_COMPLETE_MSG and flags & cmqc.MQGMO_LOGICAL_ORDER == 0 and match & _OFFSET:
        raise MQError(cmqc.MQRC_MATCH_OPTIONS_ERROR, "a complete message begins at offset 0")
    browses = browse | unlock | flags & (cmqc.MQGMO_MSG_UNDER_CURSOR | UNMARKS)
    check_opened(flags, opened, browses=browses, gets=not (browse or unlock or flags & UNMARKS))


_CO_OPS = cmqc.MQGMO_MARK_BROWSE_CO_OP | cmqc.MQGMO_UNMARK_BROWSE_CO_OP
_OFFSET = cmqc.MQMO_MATCH_OFFSET


#: Options that skip incomplete groups or logical messages.
_AVAILABLE = cmqc.MQGMO_ALL_MSGS_AVAILABLE | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE | cmqc.MQGMO_COMPLETE_MSG


def conditions(hconn: MqiHconn, handle: MqiQueueHandle, options: MqiGetOptions) -> list[Selection]:
    """Return the predicates of the options that the bridge does not use."""
    flags, match, queue = options.Options, options.MatchOptions, handle.queue
    wanted: list[Selection] = []
    if match & cmqc.MQMO_MATCH_GROUP_ID and options.GroupId != cmqc.MQGI_NONE:
        wanted.append(lambda stored: stored.message.md.GroupId == options.GroupId)
    if match & cmqc.MQMO_MATCH_MSG_SEQ_NUMBER:
        wanted.append(lambda stored: stored.message.md.MsgSeqNumber == options.MsgSeqNumber)
    if match & cmqc.MQMO_MATCH_OFFSET:
        wanted.append(lambda stored: stored.message.md.Offset == options.Offset)
    if flags & cmqc.MQGMO_LOGICAL_ORDER:
        place = GroupPosition() if flags & cmqc.MQGMO_BROWSE_FIRST else handle.got_place
        wanted.append(lambda stored: place.is_next(stored.message.md))
    record = record_of(hconn.queue_manager, queue)
    if flags & cmqc.MQGMO_UNMARKED_BROWSE_MSG and handle.options & cmqc.MQOO_CO_OP:
        now = time.monotonic()
        wanted.append(lambda stored: record.marks.get(stored.msg_number, 0.0) <= now)
    if record.locks:
        wanted.append(lambda stored: record.locks.get(stored.msg_number, handle) is handle)
    if flags & cmqc.MQGMO_COMPLETE_MSG:
        wanted.append(lambda stored: not stored.message.md.Offset)
    if flags & _AVAILABLE:
        wanted.append(available(queue, groups=bool(flags & cmqc.MQGMO_ALL_MSGS_AVAILABLE)))
    return wanted


def find_message(hconn: MqiHconn, handle: MqiQueueHandle, options: MqiGetOptions) -> StoredMessage:
    """Return the message to get. Raises MQError with MQRC_NO_MSG_AVAILABLE."""
    if options.Options & cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR:
        return under_cursor(handle)
    return first_candidate(hconn, handle, options, conditions(hconn, handle, options))


def manner_of(handle: QueueHandle, options: MqiGetOptions) -> str:
    """Return the manner in which a get returns properties. Raises MQError."""
    attributes = handle.attributes if handle.kind == "QALIAS" else handle.queue.attributes
    return manner(options.Options, str(attributes["PROPCTL"]), bool(options.MsgHandle))


def get_result(
    hconn: MqiHconn, handle: MqiQueueHandle, parts: Sequence[StoredMessage], options: MqiGetOptions, how: str
) -> MqiGot:
    """Return the result for a message or its segments. Raises TruncatedMessage."""
    flags = options.Options
    stored, *rest = parts
    queue_manager = hconn.queue_manager
    appearance = queue_manager.appearance
    md, data, properties = render(appearance, stored, how)
    if rest:
        md, data = joined(md, data, (appearance.seen(segment)[1] for segment in rest))
    reason = cmqc.MQRC_NONE
    room = options.MaxLength
    if flags & cmqc.MQGMO_CONVERT and (room is None or len(data) <= room):
        wanted = options.CodedCharSetId
        own = int(queue_manager.objects.attributes["CCSID"])
        converted = convert(md, data, wanted if wanted > 0 else own, options.Encoding)
        if room is not None and len(converted[1]) > room and not flags & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
            reason = cmqc.MQRC_CONVERTED_MSG_TOO_BIG  # return it unconverted, because that fits
        else:
            md, data, reason = converted
    length = len(data)
    message = MqiGot(
        md=md,
        data=data,
        ResolvedQName=handle.queue.name,
        DataLength=length,
        Reason=reason,
        MsgToken=token_of(stored),
        ReturnedLength=length if room is None else min(length, room),
        GroupStatus=_group_status(md),
        SegmentStatus=_segment_status(md),
        Segmentation=b"A" if md.MsgFlags & cmqc.MQMF_SEGMENTATION_ALLOWED else b" ",
        properties=properties,
    )
    truncated(handle, message, options)
    return message


def _group_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP:
        return cmqc.MQGS_LAST_MSG_IN_GROUP
    return cmqc.MQGS_MSG_IN_GROUP if md.MsgFlags & cmqc.MQMF_MSG_IN_GROUP else cmqc.MQGS_NOT_IN_GROUP


def _segment_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_SEGMENT:
        return cmqc.MQSS_LAST_SEGMENT
    return cmqc.MQSS_SEGMENT if md.MsgFlags & cmqc.MQMF_SEGMENT else cmqc.MQSS_NOT_A_SEGMENT


def mqget(hconn: MqiHconn, hobj: int, options: MqiGetOptions) -> tuple[MqiGot, Unit | None]:
    """Get a message, without waiting. Return it, and the unit of work to submit.

    Raises MQError, with MQRC_NO_MSG_AVAILABLE if there is no message.
    """
    handle = ready_handle(hconn, hobj, options, check_get)
    assert isinstance(handle, MqiQueueHandle)
    flags = options.Options
    if flags & cmqc.MQGMO_UNLOCK:
        return unlock(hconn, handle), None
    how = manner_of(handle, options)
    if flags & UNMARKS and not flags & BROWSES:
        return unmark(hconn, handle, options), None
    stored = find_message(hconn, handle, options)
    browse = bool(flags & BROWSES)
    syncpoint = bool(flags & cmqc.MQGMO_SYNCPOINT) or (
        stored.persistent and bool(flags & cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT)
    )
    place, in_order = handle.got_place, bool(flags & cmqc.MQGMO_LOGICAL_ORDER)
    if in_order and not browse:
        place.check(syncpoint)
    unit = hconn.unit_of_work() if syncpoint else Unit()
    parts = segments(handle.queue, stored) if flags & cmqc.MQGMO_COMPLETE_MSG else [stored]
    message = get_result(hconn, handle, parts, options, how)
    if in_order:
        handle.got_place = behind(stored, whole=bool(flags & cmqc.MQGMO_COMPLETE_MSG))
        handle.got_place.syncpoint = None if browse else syncpoint
    elif place.unfinished:
        handle.got_place = GroupPosition()
        message.Reason = message.Reason or place.unfinished
    if browse:
        browsed(hconn, handle, stored, flags)
        return message, None
    if handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
        handle.context = message.md
    handle.release_lock(hconn.queue_manager)
    for part in parts:
        take(hconn, handle, part, unit)
    return message, None if syncpoint else unit
