"""MQGET.

Source: IBM MQ documentation, "MQGET - Get message", "MQGMO - Get-message options"; "Message groups" and "Logical and
physical ordering"; "Cooperative browsing". A verb does not wait: whoever calls it does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bridge.mq.errors import MQError
from bridge.mq.interface import GetOptions, Got, TruncatedMessage
from bridge.mq.local.conversion import convert
from bridge.mq.local.get_options import BROWSES, UNDER_CURSOR, UNMARKS, check_get, matching, token_of
from bridge.mq.local.handles import Handles, QueueHandle, Selection
from bridge.mq.local.queue import Queue
from bridge.mq.local.rendering import manner, render
from bridge.mq.local.report import report
from bridge.mq.local.stored import StoredMessage
from bridge.mq.local.unit import Unit
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_GROUPED = cmqc.MQMF_MSG_IN_GROUP | cmqc.MQMF_LAST_MSG_IN_GROUP
#: Marks of cooperating browsers that a handle keeps; the oldest are forgotten, and their messages seen once more.
_MARK_LIMIT = 100_000


class Retrieval(Handles):
    """The verb that gets messages."""

    def get(self, number: int, options: GetOptions) -> tuple[Got, Unit | None]:
        """MQGET, without waiting: MQRC_NO_MSG_AVAILABLE says that there is none now."""
        handle = self._find(number)
        if not isinstance(handle, QueueHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "messages are got from queues")
        check_get(handle, options)
        flags = options.Options
        queue = handle.queue
        if queue.deleted:
            raise MQError(cmqc.MQRC_Q_DELETED, f"queue {queue.name}")
        if queue.attributes["GET"] != "ENABLED" or not handle.destination.get_enabled:
            raise MQError(cmqc.MQRC_GET_INHIBITED, f"queue {queue.name} has GET(DISABLED)")
        if flags & cmqc.MQGMO_UNLOCK:
            return self._unlock(handle), None
        control = str((handle.attributes if handle.kind == "QALIAS" else queue.attributes)["PROPCTL"])
        how = manner(flags, control, bool(options.MsgHandle))
        if flags & UNMARKS and not flags & BROWSES:
            return self._unmark(handle, options), None
        stored = self._next(handle, options)
        browse = bool(flags & BROWSES)
        syncpoint = bool(flags & cmqc.MQGMO_SYNCPOINT) or (
            stored.persistent and bool(flags & cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT)
        )
        unit = self._unit_of_work() if syncpoint else Unit()
        if syncpoint:
            self._room_in(unit)
        got = self._got(handle, stored, options, how)
        if flags & cmqc.MQGMO_LOGICAL_ORDER:
            _advance_group(handle, stored)
        if browse:
            self._browsed(handle, stored, flags)
            return got, None
        _release(handle)
        if handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
            handle.context = got.md
        queue.take(stored)
        unit.gets.append(stored)
        if stored.message.md.Report:
            report(self.queue_manager, unit, stored, cmqc.MQFB_COD)
        return got, None if syncpoint else unit

    def _got(self, handle: QueueHandle, stored: StoredMessage, options: GetOptions, how: str) -> Got:
        """The message as the application sees it. Raises TruncatedMessage."""
        flags = options.Options
        md, data, properties = render(self.queue_manager.appearance, stored, how)
        reason = cmqc.MQRC_NONE
        if flags & cmqc.MQGMO_CONVERT:
            wanted = options.CodedCharSetId
            own = int(self.queue_manager.attributes["CCSID"])
            md, data, reason = convert(md, data, wanted if wanted > 0 else own, options.Encoding)
        length = len(data)
        got = Got(
            md=md,
            data=data,
            ResolvedQName=handle.queue.name,
            DataLength=length,
            Reason=reason,
            MsgToken=token_of(stored),
            ReturnedLength=length,
            GroupStatus=_group_status(md),
            SegmentStatus=_segment_status(md),
            Segmentation=b"A" if md.MsgFlags & cmqc.MQMF_SEGMENTATION_ALLOWED else b" ",
            properties=properties,
        )
        room = options.MaxLength
        if room is None or length <= room:
            return got
        got.data = data[:room]
        got.ReturnedLength = room
        got.Reason = cmqc.MQRC_TRUNCATED_MSG_ACCEPTED
        if not flags & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
            if flags & cmqc.MQGMO_BROWSE_FIRST:
                handle.cursor = None  # "positioned logically before the highest-priority message" (MQRC 2080)
            got.Reason = cmqc.MQRC_TRUNCATED_MSG_FAILED
            raise TruncatedMessage(got, f"{length} bytes, the buffer has {room}")
        return got

    def _next(self, handle: QueueHandle, options: GetOptions) -> StoredMessage:
        """The message to get. Raises MQError with MQRC_NO_MSG_AVAILABLE."""
        queue = handle.queue
        flags = options.Options
        if flags & UNDER_CURSOR:
            if handle.cursor is None or not handle.cursor.linked:
                raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {queue.name} first")
            return handle.cursor
        wanted = [one for one in (matching(self.queue_manager.appearance, options), handle.selection) if one]
        if flags & cmqc.MQGMO_LOGICAL_ORDER:
            wanted.append(_in_order(handle, flags))
        if flags & cmqc.MQGMO_UNMARKED_BROWSE_MSG:
            wanted.append(_unmarked(handle, flags))
        if queue.locks:
            wanted.append(lambda stored: queue.locks.get(stored.msg_number, handle) is handle)
        if flags & cmqc.MQGMO_ALL_MSGS_AVAILABLE:
            wanted.append(_complete(queue))
        for stored in self._available(handle, flags):
            if all(one(stored) for one in wanted):
                return stored
        raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {queue.name}")

    def _available(self, handle: QueueHandle, flags: int) -> Iterator[StoredMessage]:
        queue = handle.queue
        for stored in queue.after(handle.cursor) if flags & cmqc.MQGMO_BROWSE_NEXT else queue.messages():
            if stored.expired:
                self.queue_manager.discard(stored)
            else:
                yield stored

    # Browsing --------------------------------------------------------------------------------------------------------

    def _browsed(self, handle: QueueHandle, stored: StoredMessage, flags: int) -> None:
        queue = handle.queue
        handle.cursor = stored
        _release(handle)
        if flags & cmqc.MQGMO_LOCK:
            queue.locks[stored.msg_number] = handle
            handle.locked = stored
        if flags & cmqc.MQGMO_MARK_BROWSE_HANDLE:
            if len(handle.marked) >= _MARK_LIMIT:
                handle.marked.clear()
            handle.marked.add(stored.msg_number)
        if flags & cmqc.MQGMO_MARK_BROWSE_CO_OP:
            interval = self.queue_manager.attributes.get("MARKINT", 5_000)
            until = time.monotonic() + interval / 1000 if isinstance(interval, int) else float("inf")
            if len(queue.marks) >= _MARK_LIMIT:
                queue.marks.clear()
            queue.marks[stored.msg_number] = until

    def _unlock(self, handle: QueueHandle) -> Got:
        if handle.locked is None:
            raise MQError(cmqc.MQRC_NO_MSG_LOCKED, f"queue {handle.queue.name}")
        _release(handle)
        return Got(md=MQMD(), data=b"", ResolvedQName=handle.queue.name)

    def _unmark(self, handle: QueueHandle, options: GetOptions) -> Got:
        """MQGMO_UNMARK_BROWSE_…: the message of a token, or what the cursor is on, can be browsed as unmarked again."""
        queue = handle.queue
        if options.MatchOptions & cmqc.MQMO_MATCH_MSG_TOKEN:
            number = int.from_bytes(options.MsgToken, "big")
        elif handle.cursor is not None:
            number = handle.cursor.msg_number
        else:
            raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {queue.name} first")
        handle.marked.discard(number)
        if options.Options & cmqc.MQGMO_UNMARK_BROWSE_CO_OP:
            queue.marks.pop(number, None)
        return Got(md=MQMD(), data=b"", ResolvedQName=queue.name)


def _release(handle: QueueHandle) -> None:
    """Any further get ends the lock of the one before."""
    if handle.locked is not None:
        handle.queue.locks.pop(handle.locked.msg_number, None)
        handle.locked = None


def _unmarked(handle: QueueHandle, flags: int) -> Selection:
    """Messages that neither this handle nor, among cooperating browsers, another has marked."""
    marks = handle.queue.marks
    now = time.monotonic()
    co_operative = bool(handle.options & cmqc.MQOO_CO_OP)

    def is_unmarked(stored: StoredMessage) -> bool:
        if stored.msg_number in handle.marked:
            return False
        return not co_operative or marks.get(stored.msg_number, 0.0) <= now

    return is_unmarked


def _in_order(handle: QueueHandle, flags: int) -> Selection:
    """MQGMO_LOGICAL_ORDER: the next message of the group that was begun, else one that begins a group or has none."""
    begun = handle.got_sequence if not flags & cmqc.MQGMO_BROWSE_FIRST else 0

    def is_next(stored: StoredMessage) -> bool:
        md = stored.message.md
        if not begun:
            return md.MsgSeqNumber == 1 and md.Offset == 0
        return md.GroupId == handle.got_group_id and md.MsgSeqNumber == begun + 1

    return is_next


def _advance_group(handle: QueueHandle, stored: StoredMessage) -> None:
    md = stored.message.md
    last = not md.MsgFlags & _GROUPED or md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP
    handle.got_group_id, handle.got_sequence = (cmqc.MQGI_NONE, 0) if last else (md.GroupId, md.MsgSeqNumber)


def _complete(queue: Queue) -> Selection:
    """MQGMO_ALL_MSGS_AVAILABLE: messages of groups count only when all of the group is there."""
    groups: dict[bytes, tuple[set[int], int]] = {}
    for stored in queue.messages():
        md = stored.message.md
        if md.MsgFlags & _GROUPED:
            numbers, last = groups.get(md.GroupId, (set(), 0))
            numbers.add(md.MsgSeqNumber)
            groups[md.GroupId] = numbers, md.MsgSeqNumber if md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP else last

    def is_complete(stored: StoredMessage) -> bool:
        md = stored.message.md
        if not md.MsgFlags & _GROUPED or md.MsgSeqNumber > 1:
            return True  # the beginning of a group was got already: the rest of it was there then
        numbers, last = groups[md.GroupId]
        return bool(last) and len(numbers) >= last

    return is_complete


def _group_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP:
        return cmqc.MQGS_LAST_MSG_IN_GROUP
    return cmqc.MQGS_MSG_IN_GROUP if md.MsgFlags & cmqc.MQMF_MSG_IN_GROUP else cmqc.MQGS_NOT_IN_GROUP


def _segment_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_SEGMENT:
        return cmqc.MQSS_LAST_SEGMENT
    return cmqc.MQSS_SEGMENT if md.MsgFlags & cmqc.MQMF_SEGMENT else cmqc.MQSS_NOT_A_SEGMENT
