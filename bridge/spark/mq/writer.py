"""The sink `mq`: puts rows in units of work, together with the writer state (`bridge.spark.mq.writer_state`).

A streaming query puts each batch exactly once, even if processes are killed. The writer state is identified by query,
batch and partition. The query identifier is stored in the checkpoint. A batch write puts each row once, even if Spark
retries tasks. If the whole program runs again, rows are put again, unless the option `writeId` identifies the write.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self

import msgspec
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bridge.mapping.rule import PERSISTENCE
from bridge.mq.dead_letter import DeadLetters
from bridge.mq.message_producer import MessageProducer, name_of
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.mq.remote import Put, RemoteConnection, put_many
from bridge.spark import task
from bridge.spark.mq.queue_manager import (
    APPLICATION_NAME,
    QUEUE_MANAGER_OPTIONS,
    QueueManagerOptions,
    queue_manager_options_of,
)
from bridge.spark.mq.rows import MAPPED_COLUMNS, check_columns, rows_of
from bridge.spark.mq.rows import Row as MessageRow
from bridge.spark.mq.writer_state import WriterState, digests
from bridge.spark.options import Options
from bridge.spark.schema import SPARK_OPTIONS, Refusal
from bridge.spark.task import Identity
from bridge.telemetry.message import Destination, MappedMessage, Message
from bridge.wire import cmqc

#: Messages, and bytes of their data, of one unit of work at most. MAXUMSGS is 10000 by default.
UNIT_ROWS: Final = 5_000
UNIT_BYTES: Final = 64 * 1024 * 1024
#: Messages, and bytes of their data, of one request to an embedded queue manager, which works on one for 20 ms at most.
_REQUEST_ROWS: Final = 1_000
_REQUEST_BYTES: Final = 1024 * 1024
#: Destinations that are kept open, of messages alone and of those with more than that.
_HANDLES: Final = 100


# Options -------------------------------------------------------------------------------------------------------------

WRITE_OPTIONS: Final = (
    *QUEUE_MANAGER_OPTIONS,
    "queue",
    "topic",
    "retain",
    "persistence",
    "refused",
    "context",
    "writeId",
    "epoch",
    *SPARK_OPTIONS,
)
#: Context fields of the MQMD that come from the rows -> the options MQOO_ and MQPMO_.
_CONTEXTS: Final = {
    "default": (0, 0),
    "identity": (cmqc.MQOO_SET_IDENTITY_CONTEXT, cmqc.MQPMO_SET_IDENTITY_CONTEXT),
    "all": (cmqc.MQOO_SET_ALL_CONTEXT, cmqc.MQPMO_SET_ALL_CONTEXT),
}


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a write."""

    queue_manager: QueueManagerOptions
    queue: str | None = None
    topic: str | None = None
    #: publications become the retained ones of their topics
    retain: bool = False
    #: MQMD.Persistence of rows without one
    persistence: int = cmqc.MQPER_PERSISTENT
    #: queue for the rows that a mapping has refused; None: they end the write
    refused: str | None = None
    #: a key of _CONTEXTS
    context: str = "default"
    #: a mapping made the rows: set the identity context of rows with a UserIdentifier
    mapped: bool = False

    def destination(self, row: MessageRow) -> Destination:
        """Return the destination of a row. Raises ValueError if it has none."""
        if self.queue is not None:
            return Destination(self.queue)
        if self.topic is not None:
            return Destination(self.topic, True)
        if row.queue is not None:
            return Destination(row.queue, False, row.queue_manager or "")
        if row.topic is not None:
            return Destination(row.topic, True)
        raise ValueError("a row has no destination: its queue or topic is null; hint: set the option queue or topic")


def sink_options_of(options: Options, schema: StructType) -> SinkOptions:
    """Return the options of a write, checked, also against the columns of its rows. Raises OptionError."""
    check_columns(options.source, schema)
    queue, topic = options.text("queue"), options.text("topic")
    if queue:
        options.allow((), ("topic",), "because the option queue is set")
    named = [name for name in ("queue", "topic") if name in schema.names]
    if not queue and not topic and len(named) != 1:
        why = "both columns, queue and topic, exist" if named else "there is no column queue or topic"
        raise options.wrong("queue", f"the name of a queue (or set the option topic), because {why}")
    mapped = sorted(MAPPED_COLUMNS.intersection(schema.names))
    if mapped:
        why = f"because a mapping made these rows (column {mapped[0]}) and sets their UserIdentifier"
        options.allow((), ("context",), why)
    return SinkOptions(
        queue_manager=queue_manager_options_of(options),
        queue=queue,
        topic=topic,
        retain=options.truth("retain", False),
        persistence=PERSISTENCE[options.choice("persistence", PERSISTENCE, "persistent")],
        refused=options.text("refused"),
        context=options.choice("context", _CONTEXTS, "default"),
        mapped=bool(mapped),
    )


# Writers -------------------------------------------------------------------------------------------------------------


class Written(WriterCommitMessage):
    """What a task has put."""

    def __init__(self, messages: int, *, marked: bool = True) -> None:
        self.messages = messages
        #: there is a state of the partition; of one without rows there is none
        self.marked = marked


class MqStreamWriter(DataSourceStreamArrowWriter):
    """Puts the batches of a streaming query, each exactly once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Put a partition of a batch."""
        return put_all(self._options, task.identity(), iterator)


class MqWriter(DataSourceArrowWriter):
    """Puts the rows of a batch write."""

    def __init__(self, options: SinkOptions, write_id: str | None, epoch: int | None = None) -> None:
        self._options = options
        self._write_id = write_id
        #: number of the batch of a query that writes in foreachBatch
        self._epoch = epoch
        self._query = f"write {write_id}" if write_id is not None else f"one write {uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Put a partition."""
        return put_all(self._options, self._identity(task.partition()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the state of the partitions, because all rows are put. With a `writeId`, keep it until it expires."""
        self._forget([number for number, one in enumerate(messages) if isinstance(one, Written) and one.marked])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the state of the partitions, because a task has failed permanently.

        Rows of other tasks stay on their queues. With a `writeId`, keep the state until it expires.
        """
        self._forget(range(len(messages)))

    def _forget(self, partitions: Sequence[int]) -> None:
        if self._write_id is not None or not partitions:
            return
        with self._options.queue_manager.connected() as connection:
            for partition in partitions:
                WriterState(connection, self._identity(partition)).discard()
                connection.commit()

    def _identity(self, partition: int) -> Identity:
        if self._epoch is not None:
            return Identity(self._query, partition, self._epoch)
        return Identity(self._query, partition, 0, passing=True)


def put_all(options: SinkOptions, identity: Identity, batches: Iterable[Any]) -> Written:
    """Put the rows of a partition that were not put yet. Raises MQError, ValueError, RowRefused, Superseded."""
    rows = _messages(options, identity, batches)
    first = next(rows, None)
    if first is None:
        return Written(0, marked=False)
    with options.queue_manager.connected() as connection:
        state = WriterState(connection, identity)
        already = state.take()
        if already is None:
            connection.backout()  # the state goes back to where it was
            return Written(0)
        messages = 0
        row: Row | None = first
        with Unit(connection, options) as unit:
            while row is not None:
                if already and already[key := next(digests([row]))] > 0:
                    already[key] -= 1
                elif unit.full:
                    unit.settle()
                    state.leave(digests(unit.rows))
                    unit.commit()
                    state.take()
                    continue
                else:
                    unit.put(row)
                    messages += 1
                row = next(rows, None)
            unit.settle()
            state.leave(None)
            unit.commit()
    return Written(messages)


class RowRefused(Exception):
    """The mapping rejected a row, and the option `refused` is not set."""


#: Message, destination, whether it is retained, and None for a simple MQPUT. Otherwise the MappedMessage with further
#: actions, or the Refusal that sends it to the dead-letter queue.
Row = tuple[Message, Destination, bool, MappedMessage | Refusal | None]


def _messages(options: SinkOptions, identity: Identity, batches: Iterable[Any]) -> Iterator[Row]:
    number = 0
    for batch in batches:
        may_clear = "clear" in batch.schema.names
        for row in rows_of(batch, options.persistence):
            message = row.message
            number += 1
            refusal = row.refusal
            if row.unencodable is not None and refusal is None:
                refusal = Refusal(row.unencodable.reason, str(row.unencodable), "", options.destination(row))
            if refusal is not None:
                if options.refused is None:
                    others = "" if row.unencodable else "filter out such rows (where refusal IS NULL), or "
                    raise RowRefused(
                        f"row {number} of partition {identity.partition} cannot be put: {refusal}; hint: {others}name a queue"
                        " for them with the option refused"
                    )
                yield message, Destination(options.refused), False, refusal
                continue
            destination = options.destination(row)
            retain = destination.is_topic and (options.retain if row.retain is None else row.retain)
            mapped: MappedMessage | None = None
            # One producer must handle all retained publications that may be cleared, so that the last one per topic wins.
            if row.properties or row.clear or row.kept is not None or (retain and may_clear):
                mapped = MappedMessage(
                    destination=destination,
                    message=message,
                    properties=row.properties or {},
                    retain=retain,
                    clear=row.clear,
                    kept=row.kept,
                )
            yield message, destination, retain, mapped


class Unit:
    """Units of work, one after the other: what was put since the last commit.

    Rows go to the queue manager in requests of many. An embedded one works on a request while this thread makes the next.
    """

    def __init__(self, connection: Connection, options: SinkOptions) -> None:
        self._connection = connection
        self._options = options
        self._put_flags = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
        if options.queue_manager.asynchronous_puts:
            self._put_flags |= cmqc.MQPMO_ASYNC_RESPONSE
        #: by destination and context
        self._handles: dict[tuple[Destination, str], int] = {}
        #: for what is more than a message
        self._producer = MessageProducer(connection, handles=_HANDLES)
        self._dead_letters = DeadLetters(connection, options.refused or "", APPLICATION_NAME)
        self.rows: list[Row] = []
        self._size = 0
        #: the last of `rows`, which are in no request yet
        self._waiting: list[tuple[Row, Put]] = []
        self._waiting_size = 0
        # A connection to IBM MQ belongs to one thread.
        self._sender = ThreadPoolExecutor(1) if isinstance(connection, RemoteConnection) else None
        #: the request under way
        self._request: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sender is not None:
            self._sender.shutdown()

    @property
    def full(self) -> bool:
        """Whether the unit of work has reached its maximum size."""
        return len(self.rows) >= UNIT_ROWS or self._size >= UNIT_BYTES

    def put(self, row: Row) -> None:
        """Put a row by MQPUT under syncpoint, now or with others. Raises MQError, also of an earlier row."""
        message, destination, retain, more = row
        self.rows.append(row)
        self._size += message.length
        if isinstance(more, Refusal):
            self.settle()
            self._dead_letters.put(
                message.md, message.data, more.reason, str(more), more.destination or Destination(more.source, True)
            )
        elif more is not None:
            self.settle()
            self._producer.put(more)
        else:
            options = self._options
            context = "identity" if options.mapped and message.md.UserIdentifier else options.context
            if (handle := self._handles.get((destination, context))) is None:
                handle = self._opened(destination, context)
            flags = self._put_flags | _CONTEXTS[context][1] | (cmqc.MQPMO_RETAIN if retain else 0)
            self._waiting.append((row, (handle, message, flags)))
            self._waiting_size += message.length
            if len(self._waiting) >= _REQUEST_ROWS or self._waiting_size >= _REQUEST_BYTES:
                self._send()

    def settle(self) -> None:
        """Wait until the queue manager has all rows. Raises MQError."""
        self._send()
        request, self._request = self._request, None
        if request is not None:
            request.result()

    def commit(self) -> None:
        """Commit by MQCMIT, if the queue manager took all puts. Then clear retained publications. Raises MQError."""
        self.settle()
        if self._options.queue_manager.asynchronous_puts:
            status = self._connection.statistics(cmqc.MQSTAT_TYPE_ASYNC_ERROR)
            if status.PutFailureCount:
                raise MQError(status.Reason, f"{status.PutFailureCount} puts, the first to {status.ObjectName}")
        self._connection.commit()
        self._producer.committed()
        self.rows, self._size = [], 0

    def _send(self) -> None:
        """Begin the next request, after the end of the one under way."""
        request, self._request = self._request, None
        if request is not None:
            request.result()
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        if waiting and self._sender is not None:
            self._request = self._sender.submit(_put, self._connection, waiting)
        elif waiting:
            _put(self._connection, waiting)

    def _opened(self, destination: Destination, context: str) -> int:
        self.settle()
        if len(self._handles) >= _HANDLES:
            self._connection.close(self._handles.pop(next(iter(self._handles))))
        od = MQOD(ObjectName=destination.name, ObjectQMgrName=destination.queue_manager)
        if destination.is_topic:
            od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=destination.name)
        options = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING | _CONTEXTS[context][0]
        handle = self._handles[destination, context] = self._connection.open(od, options)
        return handle


def _put(connection: Connection, rows: list[tuple[Row, Put]]) -> None:
    """Put rows. Raises MQError, which names the destination."""
    done = 0
    while done < len(rows):
        try:
            done += len(put_many(connection, [put for _, put in rows[done:]], _REQUEST_ROWS, _REQUEST_BYTES))
        except MQError as error:
            _, destination, *_ = rows[done][0]
            raise MQError(
                error.reason, f"{error.detail or 'put'} (to {name_of(destination)})", error.comp_code
            ) from error
