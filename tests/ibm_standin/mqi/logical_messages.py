"""Groups and segments: logical order, gets of complete logical messages, and segments that the queue manager creates.

Source: IBM MQ documentation, "Message groups", "Message segmentation", "MQMD - MsgFlags", "Physical and logical order".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from bridge.mq.embedded.property import leading
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.mqi import MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

GROUPED = cmqc.MQMF_MSG_IN_GROUP | cmqc.MQMF_LAST_MSG_IN_GROUP
SEGMENT = cmqc.MQMF_SEGMENT | cmqc.MQMF_LAST_SEGMENT
#: The length of segments created by the queue manager is a multiple of this, so that two-byte characters are not split.
_BOUNDARY = 16


class GroupPosition(msgspec.Struct):
    """The position of a handle in a group or logical message that it puts or gets in logical order."""

    group_id: bytes = cmqc.MQGI_NONE
    #: MsgSeqNumber of the last message, or 0 before the first
    sequence: int = 0
    #: the group has more messages
    in_group: bool = False
    #: Offset of the next segment, or 0 at the end of the logical message
    offset: int = 0
    #: persistence of all messages and segments, or None before the first, and for gets
    persistent: bool | None = None
    #: whether all are put or got under syncpoint, or None before the first, and for browses
    syncpoint: bool | None = None

    @property
    def unfinished(self) -> int:
        """MQRC_INCOMPLETE_MSG, MQRC_INCOMPLETE_GROUP, or MQRC_NONE if nothing is incomplete."""
        if self.offset:
            return cmqc.MQRC_INCOMPLETE_MSG
        return cmqc.MQRC_INCOMPLETE_GROUP if self.in_group else cmqc.MQRC_NONE

    def check(self, syncpoint: bool, persistent: bool | None = None) -> None:
        """Check that syncpoint and persistence match the previous messages (IBM MQ, 2185 and 2245). Raises MQError."""
        if not self.unfinished:
            return
        if self.syncpoint not in (None, syncpoint):
            raise MQError(cmqc.MQRC_INCONSISTENT_UOW, "messages of one group are all in a unit of work, or none is")
        if persistent is not None and self.persistent not in (None, persistent):
            raise MQError(cmqc.MQRC_INCONSISTENT_PERSISTENCE, "messages of one group are all persistent, or none is")

    def put(
        self, flags: int, group_id: bytes, length: int, generated: Callable[[], bytes]
    ) -> tuple[dict[str, Any], GroupPosition]:
        """Return GroupId, MsgSeqNumber and Offset of the next message, of `length` bytes, and the position after it.

        Raises MQError if the current group or logical message is incomplete.
        """
        grouped, segment = bool(flags & GROUPED), bool(flags & SEGMENT)
        if self.in_group and not grouped:
            raise MQError(cmqc.MQRC_INCOMPLETE_GROUP, "the group that was begun has no last message yet")
        if self.offset and not segment:
            raise MQError(cmqc.MQRC_INCOMPLETE_MSG, "the logical message that was begun has no last segment yet")
        if not grouped and not segment:
            return {}, GroupPosition()
        if not self.in_group and not self.offset:
            own, sequence = group_id if group_id != cmqc.MQGI_NONE else generated(), 1
        else:
            own, sequence = self.group_id, self.sequence if self.offset else self.sequence + 1
        changes = {"GroupId": own, "MsgSeqNumber": sequence, "Offset": self.offset}
        return changes, _behind(flags, own, sequence, self.offset + length)

    def is_next(self, md: MQMD) -> bool:
        """Return whether a message is next in logical order.

        At the start, that is any first message of a group, or a message without a group.
        """
        if not self.in_group and not self.offset:
            return md.MsgSeqNumber == 1 and md.Offset == 0
        sequence = self.sequence if self.offset else self.sequence + 1
        return (md.GroupId, md.MsgSeqNumber, md.Offset) == (self.group_id, sequence, self.offset)


def behind(stored: StoredMessage, *, whole: bool) -> GroupPosition:
    """Return the position after a message, or after the complete logical message that begins with it."""
    md = stored.message.md
    flags = md.MsgFlags | cmqc.MQMF_LAST_SEGMENT if whole else md.MsgFlags
    return _behind(flags, md.GroupId, md.MsgSeqNumber, md.Offset + _length(stored))


def _behind(flags: int, group_id: bytes, sequence: int, offset: int) -> GroupPosition:
    unfinished = bool(flags & SEGMENT) and not flags & cmqc.MQMF_LAST_SEGMENT
    in_group = bool(flags & GROUPED) and (unfinished or not flags & cmqc.MQMF_LAST_MSG_IN_GROUP)
    return (
        GroupPosition(group_id, sequence, in_group, offset if unfinished else 0)
        if unfinished or in_group
        else GroupPosition()
    )


def _length(stored: StoredMessage) -> int:
    """Return the length of the application data in bytes, without the properties before the first segment."""
    message = stored.message
    own = leading(message.md, message.data) if isinstance(message, Message) and message.made_rfh2 else None
    return message.length if own is None else len(own[1])


def segments(queue: Queue, first: StoredMessage) -> list[StoredMessage]:
    """Return the available segments of a logical message, from Offset 0 to the first gap."""
    md = first.message.md
    if not md.MsgFlags & SEGMENT:
        return [first]
    parts = [
        stored for stored in queue.messages() if _key(stored) == _key(first) and stored.message.md.MsgFlags & SEGMENT
    ]
    return _joining(parts)


def _key(stored: StoredMessage) -> tuple[bytes, int]:
    return stored.message.md.GroupId, stored.message.md.MsgSeqNumber


def _joining(parts: Iterable[StoredMessage]) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    offset = 0
    for stored in sorted(parts, key=lambda part: part.message.md.Offset):
        if stored.message.md.Offset == offset:
            messages.append(stored)
            offset += _length(stored)
    return messages


def is_whole(parts: list[StoredMessage]) -> bool:
    """Return whether consecutive segments form a complete logical message."""
    flags = parts[-1].message.md.MsgFlags if parts else cmqc.MQMF_SEGMENT
    return not flags & SEGMENT or bool(flags & cmqc.MQMF_LAST_SEGMENT)


def available(queue: Queue, *, groups: bool) -> Callable[[StoredMessage], bool]:
    """Return the predicate of MQGMO_ALL_SEGMENTS_AVAILABLE, and with `groups` of MQGMO_ALL_MSGS_AVAILABLE.

    A logical message or group whose beginning is on the queue must be complete. If the beginning is missing, an earlier get
    removed it, and the group was complete at that time.
    """
    logical: dict[tuple[bytes, int], list[StoredMessage]] = {}
    for stored in queue.messages():
        if stored.message.md.MsgFlags & (GROUPED | SEGMENT):
            logical.setdefault(_key(stored), []).append(stored)
    whole = {key for key, parts in logical.items() if is_whole(_joining(parts))}
    lasts = {
        key[0]: key[1]
        for key, parts in logical.items()
        if any(part.message.md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP for part in parts)
    }

    begins = {key for key, parts in logical.items() if any(not part.message.md.Offset for part in parts)}

    def is_available(stored: StoredMessage) -> bool:
        md = stored.message.md
        if groups and md.MsgFlags & GROUPED and (md.GroupId, 1) in begins:
            last = lasts.get(md.GroupId, 0)
            return bool(last) and all((md.GroupId, number) in whole for number in range(1, last + 1))
        return not md.MsgFlags & SEGMENT or _key(stored) not in begins or _key(stored) in whole

    return is_available


def joined(md: MQMD, data: bytes, rest: Iterable[bytes]) -> tuple[MQMD, bytes]:
    """Return MQMD and data of a logical message, from its first segment and the data of the others (MQGMO_COMPLETE_MSG)."""
    grouped = md.MsgFlags & GROUPED
    return (
        msgspec.structs.replace(
            md, MsgFlags=md.MsgFlags & ~SEGMENT, GroupId=md.GroupId if grouped else cmqc.MQGI_NONE, Offset=0
        ),
        b"".join((data, *rest)),
    )


def segmented(message: Message, limit: int, generated: Callable[[], bytes]) -> list[Message]:
    """Split a message into segments of at most `limit` bytes (MQMF_SEGMENTATION_ALLOWED)."""
    md, data = message.md, message.data
    size = limit - limit % _BOUNDARY or limit
    group_id = md.GroupId if md.GroupId != cmqc.MQGI_NONE else generated()
    parts = []
    for offset in range(0, len(data), size):
        last = cmqc.MQMF_LAST_SEGMENT if offset + size >= len(data) else 0
        flags = md.MsgFlags | cmqc.MQMF_SEGMENT | last
        own = msgspec.structs.replace(md, GroupId=group_id, Offset=offset, MsgFlags=flags, OriginalLength=len(data))
        parts.append(Message(own, data[offset : offset + size]))
    return parts
