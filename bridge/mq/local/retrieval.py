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
from bridge.mq.local.logical_message import Place, available, behind, joined, segments
from bridge.mq.local.rendering import manner, render
from bridge.mq.local.report import report
from bridge.mq.local.stored import StoredMessage
from bridge.mq.local.unit import Unit
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Options that pass over what is not there as a whole; a logical message is got whole or not at all.
_AVAILABLE = cmqc.MQGMO_ALL_MSGS_AVAILABLE | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE | cmqc.MQGMO_COMPLETE_MSG
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
        parts = segments(queue, stored) if flags & cmqc.MQGMO_COMPLETE_MSG else [stored]
        got = self._got(handle, parts, options, how)
        if flags & cmqc.MQGMO_LOGICAL_ORDER:
            handle.got_place = behind(stored, whole=bool(flags & cmqc.MQGMO_COMPLETE_MSG))
        if browse:
            self._browsed(handle, stored, flags)
            return got, None
        _release(handle)
        if handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
            handle.context = got.md
        for part in parts:
            queue.take(part)
            unit.gets.append(part)
        if stored.message.md.Report:
            report(self.queue_manager, unit, stored, cmqc.MQFB_COD)
        return got, None if syncpoint else unit

    def _got(self, handle: QueueHandle, parts: list[StoredMessage], options: GetOptions, how: str) -> Got:
        """A message, or the segments of one, as the application sees it. Raises TruncatedMessage."""
        flags = options.Options
        stored, *rest = parts
        appearance = self.queue_manager.appearance
        md, data, properties = render(appearance, stored, how)
        if rest:
            md, data = joined(md, data, (appearance.seen(one)[1] for one in rest))
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
            place = Place() if flags & cmqc.MQGMO_BROWSE_FIRST else handle.got_place
            wanted.append(lambda stored: place.is_next(stored.message.md))
        if flags & cmqc.MQGMO_UNMARKED_BROWSE_MSG:
            wanted.append(_unmarked(handle, flags))
        if queue.locks:
            wanted.append(lambda stored: queue.locks.get(stored.msg_number, handle) is handle)
        if flags & cmqc.MQGMO_COMPLETE_MSG:
            wanted.append(lambda stored: not stored.message.md.Offset)
        if flags & _AVAILABLE:
            wanted.append(available(queue, groups=bool(flags & cmqc.MQGMO_ALL_MSGS_AVAILABLE)))
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


def _group_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP:
        return cmqc.MQGS_LAST_MSG_IN_GROUP
    return cmqc.MQGS_MSG_IN_GROUP if md.MsgFlags & cmqc.MQMF_MSG_IN_GROUP else cmqc.MQGS_NOT_IN_GROUP


def _segment_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_SEGMENT:
        return cmqc.MQSS_LAST_SEGMENT
    return cmqc.MQSS_SEGMENT if md.MsgFlags & cmqc.MQMF_SEGMENT else cmqc.MQSS_NOT_A_SEGMENT
