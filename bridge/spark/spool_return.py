"""Put messages of a spool back on their queue, each exactly once.

A unit of work puts the messages of one segment, and replaces the record on SYSTEM.MQTT.MAPPING.STATE that contains the
number of the segment. The segment is deleted after the commit. So an interrupted attempt continues with the next segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.mq.remote import Put, put_many
from bridge.mq.state import MappingState, StateQueue
from bridge.spark.columns import MD_TYPE
from bridge.spark.mq.envelope import field_of
from bridge.spark.mq.queue_reader import recover, with_retries
from bridge.spark.segment import RETURNED, RETURNING, SUFFIX, Segment
from bridge.spark.spool import Spool, columns_in, content_of, read_content
from bridge.spark.spool_inventory import Positions
from bridge.telemetry.message import Destination, Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_OPEN: Final = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
_PUT: Final = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
#: The kind of the record with the number of the last segment that was put back.
RECORD: Final = "returned spool"
#: Columns that make up a message, in addition to all fields of `md`.
_PARTS: Final = ("headers", "body")


class NotReturned(Exception):
    """The messages of a spool cannot be put back. The message contains the reason and a remedy."""


def put_back(
    connection: Connection,
    below: str,
    source: str,
    positions: Positions,
    *,
    to: str | None = None,
    settle: Callable[[Spool, bool], object] = lambda spool, keeps_state: None,
) -> int:
    """Put the messages of the spool of a source on their queue, or on the queue `to`. Return their number.

    Publications of a topic filter become messages as a subscriber of the queue manager receives them, so they need `to`.
    `settle` deletes the segments of a spool that a target already contains. Raises NotReturned, MQError, OSError, SpoolBusy,
    SpoolDamaged.
    """
    spool = Spool(below, source, returning=True)
    try:
        states = StateQueue(connection, MAPPING_STATE_QUEUE)
        from_topic = _is_of_topic(spool)
        state = None if from_topic else recover(spool, states)
        if from_topic:
            spool.recover()
        settle(spool, from_topic)
        position = MappingState(connection, spool.id, kind=RECORD)
        # The commit of an attempt whose connection was lost may be in progress.
        returned = with_retries(lambda: int(position.load(create=False) or 0))
        spool.delete_through(returned, keep_state=from_topic)
        finished = max(returned, positions.finished.get(spool.id, 0))
        segments = spool.between(max(finished, spool.first - 1), spool.last)
        if any(segment.number <= positions.planned.get(spool.id, 0) for segment in segments):
            raise NotReturned(
                f"a batch that is not finished has messages of {source}; hint: run the query once more, which finishes the"
                " batch before it rejects the others"
            )
        queue = to or (None if state is None else state.queue)
        if not any(segment.rows for segment in segments):
            return 0
        if queue is None:
            raise NotReturned(
                f"{source} is a topic filter, and its publications cannot go back to the session at the broker; hint: name a"
                " queue for them with --to"
            )
        spool.place.write(RETURNING, b"")
        position.load()
        transfer = _Put(connection, queue, same_context=not from_topic)
        for segment in segments:
            transfer.all(_publications(spool, segment, queue) if from_topic else _messages(spool, segment))
            position.save(str(segment.number).encode())
            connection.commit()
            spool.delete_through(segment.number, keep_state=from_topic)
        spool.place.write(RETURNED, str(spool.last).encode())
        spool.place.delete(RETURNING)
        position.remove()
        connection.commit()
        return sum(segment.rows for segment in segments)
    finally:
        spool.close()


class _Put:
    """Puts messages to a queue under syncpoint. `same_context`: with the context of the original put."""

    def __init__(self, connection: Connection, queue: str, *, same_context: bool) -> None:
        self._connection = connection
        self._flags = _PUT | (cmqc.MQPMO_SET_ALL_CONTEXT if same_context else 0)
        try:
            options = _OPEN | (cmqc.MQOO_SET_ALL_CONTEXT if same_context else 0)
            self._handle = connection.open(MQOD(ObjectName=queue), options)
        except MQError as error:
            hint = {
                cmqc.MQRC_UNKNOWN_OBJECT_NAME: "name an existing queue with --to",
                cmqc.MQRC_NOT_AUTHORIZED: "the user needs the authorities PUT and SETALL for the queue",
            }.get(error.reason)
            if hint is None:
                raise
            raise NotReturned(f"cannot put to queue {queue}: {error}; hint: {hint}") from error

    def all(self, messages: Iterable[Message]) -> None:
        """Put messages. Raises MQError."""
        puts: list[Put] = [(self._handle, message, self._flags) for message in messages]
        while puts:
            puts = puts[len(put_many(self._connection, puts)) :]


def _is_of_topic(spool: Spool) -> bool:
    """Return whether a spool has publications. Raises SpoolDamaged."""
    name = next((name for name in spool.place.names() if name.endswith(SUFFIX) and Segment.of(name)), None)
    return name is not None and "payload" in columns_in(spool.place, name).names


def _messages(spool: Spool, segment: Segment) -> Iterator[Message]:
    """Yield the messages of a segment as they were on their queue. Raises NotReturned, SpoolDamaged."""
    schema = columns_in(spool.place, segment.name)
    missing = [name for name in _PARTS if name not in schema.names]
    if "md" not in schema.names or schema.field("md").type != MD_TYPE:
        missing.append("md")
    if missing:
        raise NotReturned(
            f"{segment.messages(spool.source)} are in the spool without {' and '.join(missing)}, because the option columns"
            f" left them out, so they cannot be put back as they were; hint: read {spool.source} again until all of its"
            " messages are processed"
        )
    for batch in read_content(content_of(spool.place, segment.name), schema, segment.name):
        for row in batch.to_pylist():
            fields: dict[str, Any] = {
                name: field_of(value) if isinstance(value, str) else value for name, value in row["md"].items()
            }
            yield Message(MQMD(**fields), row["headers"] + row["body"])


def _publications(spool: Spool, segment: Segment, queue: str) -> Iterator[Message]:
    """Yield the publications of a segment as messages. Raises NotReturned, SpoolDamaged."""
    # Imported here, because they need Spark.
    from bridge.spark.mapping import StandardToMq, ToMessages
    from bridge.spark.mq.rows import rows_of

    schema = columns_in(spool.place, segment.name)
    mapping = ToMessages(StandardToMq(Destination(queue)))
    for batch in read_content(content_of(spool.place, segment.name), schema, segment.name):
        for row in rows_of(mapping.of(batch)):
            if row.refusal is not None:
                raise NotReturned(f"a publication in the spool of {spool.source} cannot be a message: {row.refusal}")
            yield row.message
