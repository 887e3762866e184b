"""What the reader does at a queue: look what is there, browse certain messages, take them away.

Messages are named by their MsgIds, which the queue manager makes unique; applications that choose their own have to choose
unique ones too. Properties come as MQRFH2 headers, whatever PROPCTL of the queue says, so that nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bridge.mq.batch import MESSAGES, get_each, get_many
from bridge.mq.errors import MQError
from bridge.mq.interface import MQOD, MQSD, Connection, GetOptions, Got
from bridge.pipeline.mq.envelope import MqMessage, record_batch
from bridge.wire import cmqc

#: Rows, and bytes of message data, of one record batch at most (one message may be longer).
BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 16 * 1024 * 1024
#: Messages that one unit of work takes away; MAXUMSGS is 10000 by default.
REMOVED_AT_ONCE: Final = 1_000

_BROWSE: Final = cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_TAKE: Final = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_FAIL_IF_QUIESCING
_GET: Final = cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING
#: Gets that want to know of a message only that it is there.
_GLANCE: Final = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_NO_PROPERTIES | cmqc.MQGMO_FAIL_IF_QUIESCING


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A message that is on a queue."""

    msg_id: bytes
    #: it has an Expiry: that it is gone later need not mean that somebody got it
    expires: bool
    #: bytes of message data
    length: int


class MessageGone(Exception):
    """A message of a batch is not on its queue any more, and did not expire."""


def open_for_browse(connection: Connection, queue: str) -> int:
    """A handle to browse and inquire a queue."""
    return connection.open(MQOD(ObjectName=queue), _BROWSE)


def depth(connection: Connection, handle: int) -> int:
    """CURDEPTH: messages on a queue, the uncommitted ones too."""
    return connection.inquire(handle, [cmqc.MQIA_CURRENT_Q_DEPTH])[0][0]


def look(connection: Connection, handle: int) -> Iterator[Seen]:
    """What can be got of a queue at present, in the order of gets."""
    for got in _browsed(connection, handle, GetOptions(Options=_GLANCE, MaxLength=0)):
        yield Seen(got.md.MsgId, got.md.Expiry != cmqc.MQEI_UNLIMITED, got.DataLength)


def browse_all(connection: Connection, handle: int) -> Iterator[MqMessage]:
    """All messages of a queue, without end where some are always put behind."""
    for got in _browsed(connection, handle, GetOptions(Options=_GET)):
        yield got.md, got.data


def _browsed(connection: Connection, handle: int, options: GetOptions) -> Iterator[Got]:
    """Messages of a queue from the first to the last."""
    how = cmqc.MQGMO_BROWSE_FIRST
    while True:
        try:
            yield from get_many(connection, handle, replace(options, Options=how | options.Options))
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return
            raise
        how = cmqc.MQGMO_BROWSE_NEXT


def browse_messages(
    connection: Connection, queue: str, messages: Sequence[tuple[bytes, bool]], *, lenient: bool
) -> Iterator[MqMessage]:
    """Certain messages of a queue (MsgId, and whether it may expire), in the order given.

    They are looked for behind the one before, where they are if they come in the order of the queue, and only then from
    the front. Raises MessageGone for one that is not there, unless it may have expired, or `lenient`.
    """
    handle = open_for_browse(connection, queue)
    following, first = (
        GetOptions(Options=where | _GET, MatchOptions=cmqc.MQMO_MATCH_MSG_ID)
        for where in (cmqc.MQGMO_BROWSE_NEXT, cmqc.MQGMO_BROWSE_FIRST)
    )
    at = 0
    while part := messages[at : at + MESSAGES]:
        found = get_each(connection, handle, following, [msg_id for msg_id, _ in part])
        at += len(found)
        for (msg_id, expires), behind in zip(part, found, strict=False):
            got = behind or get_each(connection, handle, first, [msg_id])[0]
            if got is not None:
                yield got.md, got.data
            elif not (expires or lenient):
                raise MessageGone(
                    f"message {msg_id.hex().upper()} of a batch is not on queue {queue} any more: somebody else got it."
                    " Let one streaming query alone read a queue; to go on without such messages, set the option"
                    " failOnDataLoss to false"
                )
    connection.close(handle)


def present(connection: Connection, queue: str, msg_ids: Sequence[bytes]) -> list[bytes]:
    """Those of some messages that are on a queue, in the order given; found in one pass over the queue."""
    if not msg_ids:
        return []
    try:
        handle = open_for_browse(connection, queue)
    except MQError as error:
        if error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
            return []  # a subscription was removed, and its queue with it
        raise
    there = {seen.msg_id for seen in look(connection, handle)}
    connection.close(handle)
    return [msg_id for msg_id in msg_ids if msg_id in there]


def remove(connection: Connection, queue: str, msg_ids: Sequence[bytes]) -> None:
    """Get messages for good, in units of work; those that are gone already are no error."""
    if not msg_ids:
        return
    handle = connection.open(MQOD(ObjectName=queue), _TAKE)
    taking = GetOptions(Options=cmqc.MQGMO_SYNCPOINT | _GLANCE, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MaxLength=0)
    for start in range(0, len(msg_ids), REMOVED_AT_ONCE):
        waiting = msg_ids[start : start + REMOVED_AT_ONCE]
        while waiting:
            waiting = waiting[len(get_each(connection, handle, taking, waiting[:MESSAGES])) :]
        connection.commit()
    connection.close(handle)


def record_batches(queue: str, messages: Iterable[MqMessage]) -> Iterator[Any]:
    """Envelopes of messages of one queue, in record batches of a bounded size."""
    part: list[MqMessage] = []
    size = 0
    for message in messages:
        part.append(message)
        size += len(message[1])
        if len(part) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield record_batch(queue, part)
            part, size = [], 0
    if part:
        yield record_batch(queue, part)


def managed_queue(connection: Connection, subscription: str, topic: str | None) -> str:
    """The queue of a durable subscription, to which the queue manager puts what is published.

    It is made where there is none of the name, if a topic string is given. Raises MQError.
    """
    options = cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED | cmqc.MQSO_FAIL_IF_QUIESCING
    sd = MQSD(Options=options | (cmqc.MQSO_CREATE if topic else 0), SubName=subscription, ObjectString=topic or "")
    handle, destination = connection.subscribe(sd)
    try:
        return connection.inquire(destination, [cmqc.MQCA_Q_NAME])[1][0].strip()
    finally:
        connection.close(handle, cmqc.MQCO_KEEP_SUB)
        connection.close(destination)
