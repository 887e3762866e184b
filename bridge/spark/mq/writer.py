"""Writes: rows put as messages in units of work, each with the state that says so (`bridge.spark.mq.writer_state`).

A streaming query puts each batch exactly once, whatever is killed when: the identity is the query's, which its checkpoint
keeps, the batch's and the partition's. A batch write puts each row once however often Spark runs its tasks again; that of
a whole program run again is known by the option `writeId`, and without it puts all rows again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from bridge.mq.dead_letter import DeadLetters
from bridge.mq.message_producer import MessageProducer, name_of
from bridge.mq.mqi import Connection, MQError
from bridge.mq.remote import MESSAGES, SIZE, Put, put_many
from bridge.spark import task
from bridge.spark.mq.queue_manager import APPLICATION_NAME
from bridge.spark.mq.rows import rows_of
from bridge.spark.mq.sink_options import SinkOptions, opened
from bridge.spark.mq.writer_state import WriterState, digest
from bridge.spark.refusal import Refusal
from bridge.spark.task import Identity
from bridge.telemetry.message import Destination, MappedMessage, Message
from bridge.wire import cmqc

#: Messages, and bytes of their data, of one unit of work at most. MAXUMSGS is 10000 by default.
UNIT_ROWS: Final = 5_000
UNIT_BYTES: Final = 64 * 1024 * 1024
#: Destinations that are kept open, of messages alone and of those with more than that.
_HANDLES: Final = 100


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
        """Discard the state of the partitions: all rows are put, and without a `writeId` nobody asks again what was."""
        self._forget([number for number, one in enumerate(messages) if isinstance(one, Written) and one.marked])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the state of the partitions, because some task failed for good.

        What others have put stays put; nobody asks for it without a `writeId`.
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


class Refusals(Protocol):
    """What becomes of rows that the queue manager does not take, because of what they are."""

    def takes(self, error: MQError) -> bool:
        """Return whether an error of a put is one that the row alone is the cause of."""

    def leave(self, connection: Connection, part: int, rows: Sequence[tuple[Row, MQError]]) -> None:
        """Leave the rows, before the commit of the unit of work that has the others of its `part` of the batch.

        Raises MQError. It is called for each part, also with no rows: a part that is put again may have other rows than
        it had.
        """


def put_all(
    options: SinkOptions,
    identity: Identity,
    batches: Iterable[Any],
    refusals: Refusals | None = None,
    *,
    asynchronous: bool = True,
) -> Written:
    """Put the rows of a partition that were not put yet. Raises MQError, ValueError, RowRefused, Superseded.

    Without `refusals` any row that is not taken ends it; with them, those that the queue manager takes without an answer of
    their own (MQPMO_ASYNC_RESPONSE) do, and another attempt that is not `asynchronous` is to tell which it was.
    """
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
        unit = Unit(connection, options, refusals, asynchronous=asynchronous, part=state.parts)
        messages = 0
        row: Row | None = first
        while row is not None:
            if already and already[key := digest(*row)] > 0:
                already[key] -= 1
            elif unit.full:
                state.leave([digest(*one) for one in unit.rows])
                unit.commit()
                state.take()
                continue
            else:
                unit.put(row)
                messages += 1
            row = next(rows, None)
        state.leave(None)
        unit.commit()
    return Written(messages)


class RowRefused(Exception):
    """A row that its mapping has refused, and no option says where to leave it."""


#: A message, where it goes, whether as the retained publication of a topic, and what more than an MQPUT there is to do: as a
#: mapping says it, or instead of it.
Row = tuple[Message, Destination, bool, MappedMessage | Refusal | None]


def _messages(options: SinkOptions, identity: Identity, batches: Iterable[Any]) -> Iterator[Row]:
    number = 0
    for batch in batches:
        may_clear = "clear" in batch.schema.names
        for row in rows_of(batch, options.persistence):
            message = row.message
            number += 1
            if row.refusal is not None:
                if options.refused is None:
                    raise RowRefused(
                        f"row {number} of partition {identity.partition} cannot be put: {row.refusal}. Leave such rows out"
                        " (where refusal IS NULL), or say with the option refused on which queue they are to go"
                    )
                yield message, Destination(options.refused), False, row.refusal
                continue
            destination = options.destination(row)
            retain = destination.is_topic and (options.retain if row.retain is None else row.retain)
            # Of two publications to one topic the later one says what becomes of the retained one: one place sees both.
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
            else:
                yield message, destination, retain, None


class Unit:
    """Units of work, one after the other: what was put since the last commit."""

    def __init__(
        self,
        connection: Connection,
        options: SinkOptions,
        refusals: Refusals | None = None,
        *,
        asynchronous: bool = True,
        part: int = 0,
    ) -> None:
        self._connection = connection
        self._options = options
        self._refusals = refusals
        self._asynchronous = asynchronous and options.queue_manager.asynchronous_puts
        #: of the batch, that this unit of work is
        self._part = part
        self._refused: list[tuple[Row, MQError]] = []
        #: by destination, and whose the context is
        self._handles: dict[tuple[Destination, str], int] = {}
        #: for what is more than a message
        self._producer = MessageProducer(connection, handles=_HANDLES)
        self._dead_letters = DeadLetters(connection, options.refused or "", APPLICATION_NAME)
        self.rows: list[Row] = []
        self._size = 0
        #: the last of `rows`, not put yet
        self._waiting: list[tuple[Row, Put]] = []
        self._waiting_size = 0

    @property
    def full(self) -> bool:
        """Return whether there is as much as one unit of work takes."""
        return len(self.rows) >= UNIT_ROWS or self._size >= UNIT_BYTES

    def put(self, row: Row) -> None:
        """Put a row by MQPUT in syncpoint, now or with those that come."""
        message, destination, retain, more = row
        self.rows.append(row)
        self._size += message.length
        if more is not None:
            self._put_waiting()
            if isinstance(more, Refusal):
                self._dead_letters.put(message.md, message.data, more.reason, str(more), Destination(more.source, True))
                return
            try:
                self._producer.put(more)
            except MQError as error:
                self._refuse(row, error)
            return
        context = self._options.context_of(message.md)
        options = self._options.put_options(context, retain)
        if not self._asynchronous:
            options &= ~cmqc.MQPMO_ASYNC_RESPONSE
        try:
            handle = self._handle(destination, context)
        except MQError as error:
            self._refuse(row, error)
            return
        self._waiting.append((row, (handle, message, options)))
        self._waiting_size += message.length
        if len(self._waiting) >= MESSAGES or self._waiting_size >= SIZE:
            self._put_waiting()

    def commit(self) -> None:
        """Commit by MQCMIT, if the queue manager took all puts; then have retained publications cleared."""
        self._put_waiting()
        if self._asynchronous:
            status = self._connection.statistics(cmqc.MQSTAT_TYPE_ASYNC_ERROR)
            if status.PutFailureCount:
                raise MQError(status.Reason, f"{status.PutFailureCount} puts, the first to {status.ObjectName}")
        if self._refusals is not None:
            self._refusals.leave(self._connection, self._part, self._refused)
        self._connection.commit()
        self._producer.committed()
        self.rows, self._refused = [], []
        self._size = 0
        self._part += 1

    def _refuse(self, row: Row, error: MQError) -> None:
        """Note that a row is not taken. Raises the error where that is not for the row."""
        if self._refusals is None or not self._refusals.takes(error):
            raise error
        self._refused.append((row, error))

    def _put_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            try:
                done = put_many(self._connection, [put for _, put in waiting])
            except MQError as error:
                _, destination, *_ = waiting[0][0]
                detail = f"{error.detail or 'put'} (to {name_of(destination)})"
                self._refuse(waiting[0][0], MQError(error.reason, detail, error.comp_code))
                waiting = waiting[1:]
            else:
                waiting = waiting[len(done) :]
        self._waiting, self._waiting_size = [], 0

    def _handle(self, destination: Destination, context: str) -> int:
        if (handle := self._handles.get((destination, context))) is not None:
            return handle
        if len(self._handles) >= _HANDLES:
            self._put_waiting()  # it may be to the one that is closed
            self._connection.close(self._handles.pop(next(iter(self._handles))))
        handle = self._connection.open(opened(destination), self._options.open_options(context))
        self._handles[destination, context] = handle
        return handle
