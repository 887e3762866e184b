"""MQGET: options, browsing, matching, properties and the result.

Source: IBM MQ documentation, "MQGET - Get message". `mqget` does not wait. Its callers implement waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Generic, TypeVar

from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.handles import QueueHandle
from bridge.mq.embedded.property import split
from bridge.mq.embedded.queue import INPUT, StoredMessage
from bridge.mq.embedded.queuemanager import report
from bridge.mq.embedded.selector import Selection
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import GetOptions, Got, MQError, TruncatedMessage
from bridge.wire import cmqc

#: Browse options.
BROWSES: Final = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
#: Options for the format of properties. Without these options, an RFH2 is returned if the putter wrote one.
PROPERTIES: Final = cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_NO_PROPERTIES
_SYNCPOINTS: Final = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_NO_SYNCPOINT
#: Mutually exclusive options.
_EXCLUSIVE: Final = (BROWSES | cmqc.MQGMO_MSG_UNDER_CURSOR, _SYNCPOINTS, PROPERTIES)
_ONLY_BROWSES: Final = cmqc.MQGMO_MARK_BROWSE_HANDLE | cmqc.MQGMO_UNMARKED_BROWSE_MSG
_KNOWN: Final = (
    sum(_EXCLUSIVE) | _ONLY_BROWSES | cmqc.MQGMO_WAIT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_FAIL_IF_QUIESCING
)
_MATCHES: Final = cmqc.MQMO_MATCH_MSG_ID | cmqc.MQMO_MATCH_CORREL_ID | cmqc.MQMO_MATCH_MSG_TOKEN
#: The maximum number of marks of a handle. At the limit, all marks are dropped, so messages are browsed again.
_MARK_LIMIT: Final = 100_000


def _check(handle: QueueHandle, options: GetOptions) -> None:
    """Check that these options are valid for a handle. Raises MQError."""
    _check_options(options.Options, handle.options)
    if options.MaxLength is not None and options.MaxLength < 0:
        raise MQError(cmqc.MQRC_BUFFER_LENGTH_ERROR, f"buffer length {options.MaxLength}")
    if options.MatchOptions & ~_MATCHES:
        raise MQError(cmqc.MQRC_MATCH_OPTIONS_ERROR, f"MatchOptions 0x{options.MatchOptions & 0xFFFFFFFF:x}")


@lru_cache(maxsize=256)
def _check_options(flags: int, open_options: int) -> None:
    """Check that options are known and compatible with each other and the open options. Raises MQError."""
    browse = flags & BROWSES
    if (
        flags & ~_KNOWN
        or any((flags & mask).bit_count() > 1 for mask in _EXCLUSIVE)
        or (flags & cmqc.MQGMO_SYNCPOINT and browse)
        or (flags & _ONLY_BROWSES and not browse)
    ):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQGMO options 0x{flags & 0xFFFFFFFF:x}")
    check_opened(flags, open_options, browses=browse | flags & cmqc.MQGMO_MSG_UNDER_CURSOR, gets=not browse)


def check_opened(flags: int, open_options: int, *, browses: int, gets: bool) -> None:
    """Check that the open options allow to browse or get. Raises MQError."""
    if browses and not open_options & cmqc.MQOO_BROWSE:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_BROWSE, "open it with MQOO_BROWSE")
    if gets and not open_options & INPUT:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_INPUT, "open it with MQOO_INPUT_SHARED")


def ready_handle(
    hconn: Hconn,
    hobj: int,
    options: GetOptions,
    check: Callable[[QueueHandle, GetOptions], None] = _check,
) -> QueueHandle:
    """Return the handle, after checking that it and its queue allow a get with these options. Raises MQError."""
    handle = hconn.find_queue(hobj)
    check(handle, options)
    hconn.check_quiescing(options.Options)
    queue = handle.queue
    if queue.deleted:
        raise MQError(cmqc.MQRC_Q_DELETED, f"queue {queue.name}")
    if queue.attributes["GET"] != "ENABLED" or not handle.destination.get_enabled:
        raise MQError(cmqc.MQRC_GET_INHIBITED, f"queue {queue.name} has GET(DISABLED)")
    return handle


# The message ------------------------------------------------------------------------------------------------------------


def matching(appearance: Appearance, options: GetOptions) -> Selection | None:
    """Return a predicate for MatchOptions, or None if any message matches."""
    match = options.MatchOptions
    msg_id = options.MsgId if match & cmqc.MQMO_MATCH_MSG_ID else cmqc.MQMI_NONE
    correl_id = options.CorrelId if match & cmqc.MQMO_MATCH_CORREL_ID else cmqc.MQCI_NONE
    by_token = match & cmqc.MQMO_MATCH_MSG_TOKEN
    if msg_id == cmqc.MQMI_NONE and correl_id == cmqc.MQCI_NONE and not by_token:
        return None
    if correl_id == cmqc.MQCI_NONE and msg_id != cmqc.MQMI_NONE and not by_token:
        return appearance.has_msg_id(msg_id)
    number = number_of(options.MsgToken)

    def is_matched(stored: StoredMessage) -> bool:
        return (not by_token or stored.msg_number == number) and appearance.is_matched(stored, msg_id, correl_id)

    return is_matched


def token_of(stored: StoredMessage) -> bytes:
    """Return the MsgToken of a message, which is unique for this queue manager."""
    return stored.msg_number.to_bytes(16, "big")


def number_of(token: bytes) -> int:
    """Return the message number in a MsgToken."""
    return int.from_bytes(token, "big")


def first_candidate(
    hconn: Hconn, handle: QueueHandle, options: GetOptions, more: Sequence[Selection] = ()
) -> StoredMessage:
    """Return the message to get. Raises MQError with MQRC_NO_MSG_AVAILABLE."""
    if options.Options & cmqc.MQGMO_MSG_UNDER_CURSOR:
        return under_cursor(handle)
    for stored in candidates(hconn, handle, options, more):
        return stored
    raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")


def under_cursor(handle: QueueHandle) -> StoredMessage:
    """Return the message under the browse cursor. Raises MQError."""
    if handle.cursor is None or not handle.cursor.linked:
        raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {handle.queue.name} first")
    return handle.cursor


def candidates(
    hconn: Hconn, handle: QueueHandle, options: GetOptions, more: Sequence[Selection] = ()
) -> Iterator[StoredMessage]:
    """Yield the available messages that match the options of a get and the predicates `more`, in the order of gets."""
    queue_manager = hconn.queue_manager
    flags = options.Options
    queue = handle.queue
    predicates = [
        predicate for predicate in (matching(queue_manager.appearance, options), handle.selection) if predicate
    ]
    if flags & cmqc.MQGMO_UNMARKED_BROWSE_MSG:
        predicates.append(lambda stored: stored.msg_number not in handle.marked)
    predicates += more
    messages = queue.messages()
    if flags & cmqc.MQGMO_BROWSE_NEXT:
        messages = queue.after(handle.cursor, handle.before)
    elif options.MatchOptions & cmqc.MQMO_MATCH_MSG_ID and queue.is_transmission:
        # Optimize the search for one message in a long queue.
        number = queue_manager.appearance.number_of(options.MsgId)
        messages = queue.numbered(number) if number >= 0 else messages
    for stored in messages:
        if stored.expires_at and stored.expired:
            queue_manager.discard(stored)
            continue
        for predicate in predicates:
            if not predicate(stored):
                break
        else:
            yield stored


# The result -------------------------------------------------------------------------------------------------------------


def get_result(hconn: Hconn, handle: QueueHandle, stored: StoredMessage, options: GetOptions) -> Got:
    """Return the result for a message. Raises TruncatedMessage."""
    flags = options.Options
    md, data = hconn.queue_manager.appearance.seen(stored, properties=bool(flags & PROPERTIES))
    if flags & cmqc.MQGMO_NO_PROPERTIES:
        md, data, _ = split(md, data)
    return truncated(handle, Got(md=md, data=data, DataLength=len(data), MsgToken=token_of(stored)), options)


def truncated(handle: QueueHandle, message: Got, options: GetOptions) -> Got:
    """Truncate a result to the caller's buffer. Raises TruncatedMessage unless the caller accepts truncation."""
    room = options.MaxLength
    if room is None or message.DataLength <= room:
        return message
    message.data = message.data[:room]
    message.Reason = cmqc.MQRC_TRUNCATED_MSG_ACCEPTED
    if not options.Options & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
        if options.Options & cmqc.MQGMO_BROWSE_FIRST:
            handle.cursor = None  # "positioned logically before the highest-priority message" (MQRC 2080)
        message.Reason = cmqc.MQRC_TRUNCATED_MSG_FAILED
        raise TruncatedMessage(message, f"{message.DataLength} bytes, the buffer has {room}")
    return message


def mark(handle: QueueHandle, stored: StoredMessage) -> None:
    """Mark a message for this handle (MQGMO_MARK_BROWSE_HANDLE)."""
    if len(handle.marked) >= _MARK_LIMIT:
        handle.marked.clear()
    handle.marked.add(stored.msg_number)


def take(hconn: Hconn, handle: QueueHandle, stored: StoredMessage, unit: Unit) -> None:
    """Remove a message from the queue in a unit of work."""
    if stored is handle.cursor:
        handle.before = stored.previous
    handle.queue.take(stored)
    handle.marked.discard(stored.msg_number)
    unit.gets.append(stored)
    # "This prevents a COA or COD report message being generated when a message is placed on or removed from a transmission
    # queue" (IBM MQ documentation, "Overview for MQXQH").
    if stored.message.md.Report and not stored.client_id:
        report(hconn.queue_manager, unit, stored, cmqc.MQFB_COD)


def mqget(hconn: Hconn, hobj: int, options: GetOptions) -> tuple[Got, Unit | None]:
    """Get a message, without waiting. Return it, and the unit of work to submit.

    Raises MQError, with MQRC_NO_MSG_AVAILABLE if there is no message.
    """
    handle = ready_handle(hconn, hobj, options)
    flags = options.Options
    stored = first_candidate(hconn, handle, options)
    if flags & BROWSES:
        message = get_result(hconn, handle, stored, options)
        handle.cursor = stored
        if flags & cmqc.MQGMO_MARK_BROWSE_HANDLE:
            mark(handle, stored)
        return message, None
    unit = hconn.unit_of_work() if flags & cmqc.MQGMO_SYNCPOINT else Unit()
    message = get_result(hconn, handle, stored, options)
    take(hconn, handle, stored, unit)
    return message, None if flags & cmqc.MQGMO_SYNCPOINT else unit


Result = TypeVar("Result")


class WaitingGet(Generic[Result]):
    """A get that is repeated when messages arrive. Call the methods with the queue manager's lock held."""

    def __init__(
        self, hconn: Hconn, hobj: int, options: GetOptions, get: Callable[[], Result], arrived: Callable[[], None]
    ) -> None:
        """`get` calls `mqget`. `arrived` is called on any thread to request another attempt."""
        self._hconn = hconn
        self._hobj = hobj
        self._waits = bool(options.Options & cmqc.MQGMO_WAIT)
        self._get = get
        self._arrived = arrived
        self._waiters: list[Callable[[], None]] = []

    def attempt(self, *, last: bool = False) -> Result | None:
        """Return a message, or None if it must wait. Raises MQError, with MQRC_NO_MSG_AVAILABLE without a wait."""
        self.cancel()
        try:
            return self._get()
        except MQError as error:
            if last or not self._waits or error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
        self._waiters = self._hconn.find_queue(self._hobj).queue.waiters
        self._waiters.append(self._arrived)
        return None

    def cancel(self) -> bool:
        """Stop waiting. Return False if a message has arrived, or if the get did not wait."""
        if self._arrived not in self._waiters:
            return False
        self._waiters.remove(self._arrived)
        return True
