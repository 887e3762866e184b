"""MQGET.

Source: IBM MQ documentation, "MQGET - Get message", "MQGMO - Get-message options"; "Message groups" and "Logical and
physical ordering"; "Cooperative browsing". A verb does not wait: whoever calls it does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from bridge.mapping.message import Message
from bridge.mq.batch import GLANCE, Seen, following
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.report import report
from bridge.mq.embedded.selector.selection import Selection
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.conversion import convert
from bridge.mq.embedded.verbs.get_options import BROWSES, UNDER_CURSOR, UNMARKS, check_get, matching, token_of
from bridge.mq.embedded.verbs.handles import Handles, QueueHandle
from bridge.mq.embedded.verbs.logical_message import Place, available, behind, joined, segments
from bridge.mq.embedded.verbs.rendering import OPTIONS as PROPERTIES
from bridge.mq.embedded.verbs.rendering import manner, render
from bridge.mq.errors import MQError
from bridge.mq.mqi import GetOptions, Got, TruncatedMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Options that pass over what is not there as a whole; a logical message is got whole or not at all.
_AVAILABLE = cmqc.MQGMO_ALL_MSGS_AVAILABLE | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE | cmqc.MQGMO_COMPLETE_MSG
#: Options with which a browse leaves nothing behind but its cursor: browses in a row are one walk along the queue.
_WALK = (
    cmqc.MQGMO_BROWSE_FIRST
    | cmqc.MQGMO_BROWSE_NEXT
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_WAIT
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | sum(PROPERTIES)
)
#: Options with which a get does nothing but take the message.
_TAKE = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | GLANCE
#: Marks of cooperating browsers that a handle keeps; the oldest are forgotten, and their messages seen once more.
_MARK_LIMIT = 100_000


class Retrieval(Handles):
    """The verb that gets messages."""

    def get(self, number: int, options: GetOptions) -> tuple[Got, Unit | None]:
        """Do MQGET, without waiting: MQRC_NO_MSG_AVAILABLE says that there is no message now."""
        handle = self._ready(number, options)
        flags = options.Options
        queue = handle.queue
        if flags & cmqc.MQGMO_UNLOCK:
            return self._unlock(handle), None
        how = _manner(handle, options)
        if flags & UNMARKS and not flags & BROWSES:
            return self._unmark(handle, options), None
        stored = self._next(handle, options)
        browse = bool(flags & BROWSES)
        syncpoint = bool(flags & cmqc.MQGMO_SYNCPOINT) or (
            stored.persistent and bool(flags & cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT)
        )
        place, in_order = handle.got_place, bool(flags & cmqc.MQGMO_LOGICAL_ORDER)
        if in_order and not browse:
            place.check(syncpoint)
        unit = self._unit_of_work() if syncpoint else Unit()
        if syncpoint:
            self._room_in(unit)
        parts = segments(queue, stored) if flags & cmqc.MQGMO_COMPLETE_MSG else [stored]
        got = self._got(handle, parts, options, how)
        if in_order:
            handle.got_place = behind(stored, whole=bool(flags & cmqc.MQGMO_COMPLETE_MSG))
            handle.got_place.syncpoint = None if browse else syncpoint
        elif place.unfinished:
            handle.got_place, got.Reason = Place(), got.Reason or place.unfinished
        if browse:
            self._browsed(handle, stored, flags)
            return got, None
        if handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
            handle.context = got.md
        self._take(handle, parts, unit)
        return got, None if syncpoint else unit

    def _ready(self, number: int, options: GetOptions) -> QueueHandle:
        """Return the handle, if it and its queue take a get with these options. Raises MQError."""
        handle = self._find(number)
        if not isinstance(handle, QueueHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "messages are got from queues")
        check_get(handle, options)
        self._check_quiescing(options.Options)
        queue = handle.queue
        if queue.deleted:
            raise MQError(cmqc.MQRC_Q_DELETED, f"queue {queue.name}")
        if queue.attributes["GET"] != "ENABLED" or not handle.destination.get_enabled:
            raise MQError(cmqc.MQRC_GET_INHIBITED, f"queue {queue.name} has GET(DISABLED)")
        return handle

    def _take(self, handle: QueueHandle, parts: Sequence[StoredMessage], unit: Unit) -> None:
        _release(handle)
        for part in parts:
            handle.queue.take(part)
            unit.gets.append(part)
        if parts[0].message.md.Report:
            report(self.queue_manager, unit, parts[0], cmqc.MQFB_COD)

    # Verbs in a row (`bridge.mq.batch`), the options of which are looked at once -----------------------------------------

    def browse_many(self, number: int, options: GetOptions, messages: int, size: int, until: float) -> list[Got] | None:
        """Browse up to so many messages or bytes, or to time.monotonic() `until`.

        Returns None where options ask for more. Raises MQError as the first browse does.
        """
        if options.Options & ~_WALK or not options.Options & BROWSES:
            return None
        handle = self._ready(number, options)
        how = _manner(handle, options)
        found: list[Got] = []
        for stored in self._selected(handle, options):
            try:
                got = self._got(handle, [stored], options, how)
            except MQError:
                if not found:
                    raise
                break
            if not found:
                _release(handle)
                options = following(options)
            handle.cursor = stored
            found.append(got)
            size -= len(got.data)
            if len(found) >= messages or size <= 0 or time.monotonic() > until:
                break
        if not found:
            raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")
        return found

    def look_many(self, number: int, options: GetOptions, messages: int, until: float) -> list[Seen] | None:
        """Browse as `browse_many` does, for those who want no data; `options` are a glance's."""
        if options.Options & ~_WALK or not options.Options & BROWSES:
            return None
        handle = self._ready(number, options)
        how = _manner(handle, options)
        appearance = self.queue_manager.appearance
        transmission = handle.queue.is_transmission
        found: list[Seen] = []
        stored = None
        for stored in self._selected(handle, options):
            message = stored.message
            if transmission or not isinstance(message, Message) or message.md.Format == cmqc.MQFMT_RF_HEADER_2:
                got = self._got(handle, [stored], options, how)
                msg_id, length = got.md.MsgId, got.DataLength
            else:  # properties that are not wanted would be all that stands in front of the data
                msg_id, length = appearance.msg_id(stored), len(message.data)
            found.append(Seen(msg_id, stored.expires_at > 0, length))
            if len(found) >= messages or time.monotonic() > until:
                break
        if stored is None:
            raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")
        _release(handle)
        handle.cursor = stored
        return found

    def take_each(
        self, number: int, options: GetOptions, msg_ids: Sequence[bytes], until: float, unit: Unit
    ) -> list[bool] | None:
        """Get messages by MsgId for those who want no data; return whether each was there.

        Returns None where options ask for more. `options` are a glance's. What is got outside syncpoint is left to `unit`.
        Raises MQError as the first get does.
        """
        if options.Options & ~_TAKE or options.MatchOptions != cmqc.MQMO_MATCH_MSG_ID:
            return None
        handle = self._ready(number, options)
        if handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
            return None
        _manner(handle, options)
        syncpoint = bool(options.Options & cmqc.MQGMO_SYNCPOINT)
        wanted = msgspec.structs.replace(options)
        anything = msgspec.structs.replace(options, MatchOptions=cmqc.MQMO_NONE)
        found: list[bool] = []
        # Mostly the messages come in the order of the queue: then the first of it is the one.
        first = next(rest := self._selected(handle, anything), None)
        for msg_id in msg_ids:
            if found and time.monotonic() > until:
                break
            wanted.MsgId = msg_id
            has_it = matching(self.queue_manager.appearance, wanted)
            is_first = first is not None and (has_it is None or has_it(first))
            stored = first if is_first else next(self._selected(handle, wanted), None)
            if stored is not None:
                if syncpoint:
                    unit = self._unit_of_work()
                    try:
                        self._room_in(unit)
                    except MQError:
                        if not found:
                            raise
                        break
                self._take(handle, (stored,), unit)
                if not is_first:
                    rest = self._selected(handle, anything)
                first = next(rest, None)
            found.append(stored is not None)
        return found

    def _got(self, handle: QueueHandle, parts: list[StoredMessage], options: GetOptions, how: str) -> Got:
        """Return a message, or the segments of one, as the application sees it. Raises TruncatedMessage."""
        flags = options.Options
        stored, *rest = parts
        appearance = self.queue_manager.appearance
        md, data, properties = render(appearance, stored, how)
        if rest:
            md, data = joined(md, data, (appearance.seen(one)[1] for one in rest))
        reason = cmqc.MQRC_NONE
        room = options.MaxLength
        if flags & cmqc.MQGMO_CONVERT and (room is None or len(data) <= room):
            wanted = options.CodedCharSetId
            own = int(self.queue_manager.attributes["CCSID"])
            converted = convert(md, data, wanted if wanted > 0 else own, options.Encoding)
            if room is not None and len(converted[1]) > room and not flags & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
                reason = cmqc.MQRC_CONVERTED_MSG_TOO_BIG  # it fits as it is, and so it comes
            else:
                md, data, reason = converted
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
        """Return the message to get. Raises MQError with MQRC_NO_MSG_AVAILABLE."""
        queue = handle.queue
        flags = options.Options
        if flags & UNDER_CURSOR:
            if handle.cursor is None or not handle.cursor.linked:
                raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {queue.name} first")
            return handle.cursor
        for stored in self._selected(handle, options):
            return stored
        raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {queue.name}")

    def _selected(self, handle: QueueHandle, options: GetOptions) -> Iterator[StoredMessage]:
        """Yield the messages that a get with such options can have, in the order of gets."""
        flags = options.Options
        queue = handle.queue
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
        for stored in queue.after(handle.cursor) if flags & cmqc.MQGMO_BROWSE_NEXT else queue.messages():
            if stored.expires_at and stored.expired:
                self.queue_manager.discard(stored)
                continue
            for one in wanted:
                if not one(stored):
                    break
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
        """Let the message of a token, or under the cursor, be browsed as unmarked again (MQGMO_UNMARK_BROWSE_…)."""
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


def _manner(handle: QueueHandle, options: GetOptions) -> str:
    """Return the manner in which properties come. Raises MQError."""
    attributes = handle.attributes if handle.kind == "QALIAS" else handle.queue.attributes
    return manner(options.Options, str(attributes["PROPCTL"]), bool(options.MsgHandle))


def _release(handle: QueueHandle) -> None:
    """End the lock of the get before, as any further get does."""
    if handle.locked is not None:
        handle.queue.locks.pop(handle.locked.msg_number, None)
        handle.locked = None


def _unmarked(handle: QueueHandle, flags: int) -> Selection:
    """Return a predicate for messages that neither this handle nor, among cooperating browsers, another has marked."""
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
