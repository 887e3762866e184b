"""The messages that a get can have, and the first of them.

Source: IBM MQ documentation, "MQGMO - Get-message options"; "Message groups" and "Logical and physical ordering".
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.verbs.browse import unmarked
from bridge.mq.embedded.verbs.get_options import UNDER_CURSOR, matching
from bridge.mq.embedded.verbs.handle import QueueHandle
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.logical_message import Place, available
from bridge.mq.errors import MQError
from bridge.mq.mqi import GetOptions
from bridge.wire import cmqc

#: Options that pass over what is not there as a whole; a logical message is got whole or not at all.
_AVAILABLE = cmqc.MQGMO_ALL_MSGS_AVAILABLE | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE | cmqc.MQGMO_COMPLETE_MSG


def first_candidate(hconn: Hconn, handle: QueueHandle, options: GetOptions) -> StoredMessage:
    """Return the message to get. Raises MQError with MQRC_NO_MSG_AVAILABLE."""
    if options.Options & UNDER_CURSOR:
        if handle.cursor is None or not handle.cursor.linked:
            raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {handle.queue.name} first")
        return handle.cursor
    for stored in candidates(hconn, handle, options):
        return stored
    raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")


def candidates(hconn: Hconn, handle: QueueHandle, options: GetOptions) -> Iterator[StoredMessage]:
    """Yield the messages that a get with such options can have, in the order of gets."""
    queue_manager = hconn.queue_manager
    flags = options.Options
    queue = handle.queue
    wanted = [one for one in (matching(queue_manager.appearance, options), handle.selection) if one]
    if flags & cmqc.MQGMO_LOGICAL_ORDER:
        place = Place() if flags & cmqc.MQGMO_BROWSE_FIRST else handle.got_place
        wanted.append(lambda stored: place.is_next(stored.message.md))
    if flags & cmqc.MQGMO_UNMARKED_BROWSE_MSG:
        wanted.append(unmarked(handle))
    if queue.locks:
        wanted.append(lambda stored: queue.locks.get(stored.msg_number, handle) is handle)
    if flags & cmqc.MQGMO_COMPLETE_MSG:
        wanted.append(lambda stored: not stored.message.md.Offset)
    if flags & _AVAILABLE:
        wanted.append(available(queue, groups=bool(flags & cmqc.MQGMO_ALL_MSGS_AVAILABLE)))
    messages = queue.messages()
    if flags & cmqc.MQGMO_BROWSE_NEXT:
        messages = queue.after(handle.cursor, handle.before)
    elif options.MatchOptions & cmqc.MQMO_MATCH_MSG_ID and queue.is_transmission:
        # Removers look for one message among many that wait.
        number = queue_manager.appearance.number_of(options.MsgId)
        messages = queue.numbered(number) if number >= 0 else messages
    elif options.MatchOptions & cmqc.MQMO_MATCH_MSG_TOKEN:
        number = int.from_bytes(options.MsgToken, "big")
        messages = (stored for stored in messages if stored.msg_number == number)
    for stored in messages:
        if stored.expires_at and stored.expired:
            queue_manager.discard(stored)
            continue
        for one in wanted:
            if not one(stored):
                break
        else:
            yield stored
