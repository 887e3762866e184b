"""Browsing queues, and the queues of subscriptions.

Properties are returned as MQRFH2 headers, whatever PROPCTL of the queue is, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, MQError
from bridge.mq.remote import get_many
from bridge.spark.mq.envelope import MqMessage, record_batch
from bridge.wire import cmqc

#: Rows, and bytes of message data, of one record batch at most (one message may be longer).
BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 16 * 1024 * 1024

_BROWSE: Final = cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
#: Gets that want all of a message.
GET: Final = cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING


def open_for_browse(connection: Connection, queue: str, selector: str = "") -> int:
    """Return a handle to browse and inquire a queue; with a selector, those of its messages that it selects."""
    return connection.open(MQOD(ObjectName=queue, SelectionString=selector), _BROWSE)


def depth(connection: Connection, handle: int) -> int:
    """Return CURDEPTH: messages on a queue, the uncommitted ones too."""
    return connection.inquire(handle, [cmqc.MQIA_CURRENT_Q_DEPTH])[0][0]


def browse_all(connection: Connection, handle: int) -> Iterator[MqMessage]:
    """Yield all messages of a queue. It does not end while applications keep putting messages."""
    options = GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST | GET)
    while True:
        try:
            for got in get_many(connection, handle, options):
                yield got.md, got.data
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return
            raise
        options = GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT | GET)


def record_batches(queue: str, messages: Iterable[MqMessage], schema: Any) -> Iterator[Any]:
    """Yield envelopes of messages of one queue, in record batches of a bounded size."""
    part: list[MqMessage] = []
    size = 0
    for message in messages:
        part.append(message)
        size += len(message[1])
        if len(part) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield record_batch(queue, part, schema)
            part, size = [], 0
    if part:
        yield record_batch(queue, part, schema)


def managed_queue(connection: Connection, subscription: str, topic: str | None) -> str:
    """Return the queue of a durable subscription, to which the queue manager puts what is published.

    The subscription is made where there is none of the name, if a topic string is given. Raises MQError.
    """
    options = cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED | cmqc.MQSO_FAIL_IF_QUIESCING
    sd = MQSD(Options=options | (cmqc.MQSO_CREATE if topic else 0), SubName=subscription, ObjectString=topic or "")
    handle, destination = connection.subscribe(sd)
    try:
        return connection.inquire(destination, [cmqc.MQCA_Q_NAME])[1][0].strip()
    finally:
        connection.close(handle, cmqc.MQCO_KEEP_SUB)
        connection.close(destination)
