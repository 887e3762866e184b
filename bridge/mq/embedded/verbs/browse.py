"""Browsing: the cursor of a handle, the message that it has locked, and the messages that browsers have marked.

Source: IBM MQ documentation, "MQGMO - Get-message options", "Cooperative browsing".
"""

from __future__ import annotations

import time

from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.selector.selection import Selection
from bridge.mq.embedded.verbs.handle import QueueHandle
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.errors import MQError
from bridge.mq.mqi import GetOptions, Got
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Marks of cooperating browsers that a handle keeps; the oldest are forgotten, and their messages seen once more.
_MARK_LIMIT = 100_000


def browsed(hconn: Hconn, handle: QueueHandle, stored: StoredMessage, flags: int) -> None:
    """Leave what the browse of a message leaves: the cursor, a lock, marks."""
    queue = handle.queue
    handle.cursor = stored
    release_lock(handle)
    if flags & cmqc.MQGMO_LOCK:
        queue.locks[stored.msg_number] = handle
        handle.locked = stored
    if flags & cmqc.MQGMO_MARK_BROWSE_HANDLE:
        if len(handle.marked) >= _MARK_LIMIT:
            handle.marked.clear()
        handle.marked.add(stored.msg_number)
    if flags & cmqc.MQGMO_MARK_BROWSE_CO_OP:
        interval = hconn.queue_manager.attributes.get("MARKINT", 5_000)
        until = time.monotonic() + interval / 1000 if isinstance(interval, int) else float("inf")
        if len(queue.marks) >= _MARK_LIMIT:
            queue.marks.clear()
        queue.marks[stored.msg_number] = until


def release_lock(handle: QueueHandle) -> None:
    """End the lock of the get before, as any further get does."""
    if handle.locked is not None:
        handle.queue.locks.pop(handle.locked.msg_number, None)
        handle.locked = None


def unlock(handle: QueueHandle) -> Got:
    """Let others see the message that is locked (MQGMO_UNLOCK). Raises MQError."""
    if handle.locked is None:
        raise MQError(cmqc.MQRC_NO_MSG_LOCKED, f"queue {handle.queue.name}")
    release_lock(handle)
    return Got(md=MQMD(), data=b"", ResolvedQName=handle.queue.name)


def unmark(handle: QueueHandle, options: GetOptions) -> Got:
    """Let the message of a token, or under the cursor, be browsed as unmarked again (MQGMO_UNMARK_BROWSE_…).

    Raises MQError.
    """
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


def unmarked(handle: QueueHandle) -> Selection:
    """Return a predicate for messages that neither this handle nor, among cooperating browsers, another has marked."""
    marks = handle.queue.marks
    now = time.monotonic()
    co_operative = bool(handle.options & cmqc.MQOO_CO_OP)

    def is_unmarked(stored: StoredMessage) -> bool:
        if stored.msg_number in handle.marked:
            return False
        return not co_operative or marks.get(stored.msg_number, 0.0) <= now

    return is_unmarked
