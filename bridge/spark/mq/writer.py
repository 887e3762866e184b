"""The sink `mq`: puts the rows of a batch, which the tasks have staged (`bridge.spark.staging`), in units of work.

Only `commit` puts, which Spark calls on the driver after all tasks have succeeded. A batch of one unit of work is put
together with the state of the query (`bridge.spark.mq.writer_state`). For a larger batch, a manifest of the staged files is
recorded first. Each unit of work then records the position in the manifest. A repeated batch continues at that position,
whatever its tasks return.

The query identifier is stored in the checkpoint. A batch write puts each row once, even if Spark retries tasks. If the whole
program runs again, rows are put again, unless the option `writeId` identifies the write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self

import msgspec
from pyspark.sql.types import StructType

from bridge.config.mapping import ConfiguredNames
from bridge.mapping.chosen_names import ChosenNames
from bridge.mapping.rule import PERSISTENCE
from bridge.mq.dead_letter import DeadLetters
from bridge.mq.message_producer import MessageProducer, name_of
from bridge.mq.mqi import MQOD, Connection, MQError, put_statistics
from bridge.mq.remote import Put, RemoteConnection, put_many
from bridge.spark.mq.queue_manager import (
    APPLICATION_NAME,
    QUEUE_MANAGER_OPTIONS,
    QueueManagerOptions,
    queue_manager_options_of,
)
from bridge.spark.mq.rows import MAPPED_COLUMNS, check_columns, rows_of
from bridge.spark.mq.rows import PutRow as MessageRow
from bridge.spark.mq.writer_state import QueryState, WriterState
from bridge.spark.options import UNIT_ROWS, Options
from bridge.spark.schema import SPARK_OPTIONS, RowRefusal
from bridge.spark.spool import SpoolPlace
from bridge.spark.staging import (
    Manifest,
    StagedBatch,
    StagedStreamWriter,
    StagedWriter,
    check_manifest,
    is_recorded,
    manifest_batches,
    stage_of,
)
from bridge.spark.task import BatchIdentity
from bridge.telemetry.message import Destination, MappedMessage, Message, Unmappable
from bridge.wire import cmqc

#: Maximum number of bytes of message data in one unit of work.
UNIT_BYTES: Final = 64 * 1024 * 1024
#: Maximum number of rows of a larger batch that are converted only once, and stay in memory until they are put.
_HELD_ROWS: Final = 100_000
#: Messages, and bytes of their data, in one request to an embedded queue manager, which processes it within 20 ms.
_REQUEST_ROWS: Final = 1_000
_REQUEST_BYTES: Final = 1024 * 1024
#: Maximum number of open destinations: of simple messages, and of all others.
_HANDLES: Final = 100
#: Prefix of the names of batch writes in their state.
_WRITE: Final = "write "


# Options -------------------------------------------------------------------------------------------------------------

WRITE_OPTIONS: Final = (
    *QUEUE_MANAGER_OPTIONS,
    "queue",
    "topic",
    "retain",
    "persistence",
    "refused",
    "refusedBy",
    "context",
    "names",
    "writeId",
    "epoch",
    "stage",
    *SPARK_OPTIONS,
)
#: Context fields of the MQMD that come from the rows -> the options MQOO_ and MQPMO_.
_CONTEXTS: Final = {
    "default": (0, 0),
    "identity": (cmqc.MQOO_SET_IDENTITY_CONTEXT, cmqc.MQPMO_SET_IDENTITY_CONTEXT),
    "all": (cmqc.MQOO_SET_ALL_CONTEXT, cmqc.MQPMO_SET_ALL_CONTEXT),
}


class NameLimits(msgspec.Struct, frozen=True):
    """The value of the option `names`, which pipelines set: limits of the queues and topics that rows choose."""

    #: queues that the bridge uses itself
    queues: list[str]
    #: names that are allowed nevertheless
    allow: list[str]

    @property
    def text(self) -> str:
        """The limits as text."""
        return msgspec.json.encode(self).decode()

    @property
    def rules(self) -> ChosenNames:
        """The rules for names."""
        return ChosenNames(ConfiguredNames(queues=frozenset(self.queues)), self.allow, where="pipeline")


class MqSinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a write."""

    queue_manager: QueueManagerOptions
    queue: str | None = None
    topic: str | None = None
    #: publications become the retained ones of their topics
    retain: bool = False
    #: MQMD.Persistence of rows without one
    persistence: int = cmqc.MQPER_PERSISTENT
    #: queue for the rows that a mapping rejected. None: such a row ends the write
    refused: str | None = None
    #: PutApplName in the MQDLH of these rows
    refused_by: str = APPLICATION_NAME
    #: a key of _CONTEXTS
    context: str = "default"
    #: directory or URL for rows of a batch until they are put. "": none
    stage: str = ""
    #: the rows come from a mapping: set the identity context of rows with a UserIdentifier
    mapped: bool = False
    #: limits of the queues and topics that rows of a pipeline choose
    chosen: ChosenNames | None = None

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


def sink_options_of(options: Options, schema: StructType) -> MqSinkOptions:
    """Return the options of a write, checked against the columns of its rows. Raises OptionError."""
    check_columns(options.source, schema)
    queue, topic = options.text("queue"), options.text("topic")
    if queue:
        options.allow((), ("topic",), "because the option queue is set")
    destinations = [name for name in ("queue", "topic") if name in schema.names]
    if not queue and not topic and len(destinations) != 1:
        why = "both columns, queue and topic, exist" if destinations else "there is no column queue or topic"
        raise options.wrong("queue", f"the name of a queue (or set the option topic), because {why}")
    mapped = sorted(MAPPED_COLUMNS.intersection(schema.names))
    if mapped:
        why = f"because a mapping made these rows (column {mapped[0]}) and sets their UserIdentifier"
        options.allow((), ("context",), why)
    return MqSinkOptions(
        queue_manager=queue_manager_options_of(options),
        queue=queue,
        topic=topic,
        retain=options.truth("retain", False),
        persistence=PERSISTENCE[options.choice("persistence", PERSISTENCE, "persistent")],
        refused=options.text("refused"),
        refused_by=options.text("refusedBy") or APPLICATION_NAME,
        context=options.choice("context", _CONTEXTS, "default"),
        stage=stage_of(options),
        mapped=bool(mapped),
        chosen=_chosen_names(options),
    )


def _chosen_names(options: Options) -> ChosenNames | None:
    text = options.text("names")
    try:
        return None if text is None else msgspec.json.decode(text, type=NameLimits).rules
    except msgspec.DecodeError as error:
        raise options.wrong("names", f"no value, because only pipelines set it ({error})") from error


# Writers -------------------------------------------------------------------------------------------------------------


class MqStreamWriter(StagedStreamWriter):
    """Puts the batches of a streaming query, each exactly once."""

    def __init__(self, options: MqSinkOptions) -> None:
        super().__init__(options.stage)
        self._options = options

    def put(self, batch: StagedBatch) -> None:
        """Put a batch."""
        put_batch(self._options, batch)


class MqWriter(StagedWriter):
    """Puts the rows of a batch write."""

    def __init__(self, options: MqSinkOptions, write_id: str | None, epoch: int | None = None) -> None:
        """Create a writer. `epoch` is the number of the batch of a query that writes in foreachBatch."""
        super().__init__(options.stage, None if write_id is None else f"{_WRITE}{write_id}", epoch or 0)
        self._options = options
        #: a write without a name cannot be repeated
        self._is_named = write_id is not None
        self._expires = epoch is None

    def put(self, batch: StagedBatch) -> None:
        """Put the rows."""
        if self._is_named:
            put_batch(self._options, batch, expires=self._expires)
        else:
            put_once(self._options, batch)


def has_begun(options: Options, write_id: str, epoch: int) -> bool:
    """Return whether a batch write with a `writeId` was put or begun. If so, a repetition finishes it as it began.

    Raises MQError, OSError, OptionError.
    """
    identity = BatchIdentity(f"{_WRITE}{write_id}", epoch)
    stage = stage_of(options)
    if stage and is_recorded(stage, identity):
        return True
    with queue_manager_options_of(options).connected() as connection:
        return WriterState(connection, identity.query).has_begun(epoch)


def put_once(options: MqSinkOptions, batch: StagedBatch) -> None:
    """Put the rows of a write that cannot be repeated. Raises MQError, ValueError, RowRefused, StageDamaged."""
    if batch.rows:
        with options.queue_manager.connected() as connection, WriterUnit(connection, options) as unit:
            for row in _messages(options, batch.batches()):
                if unit.full:
                    unit.commit()
                unit.put(row)
            unit.commit()
    batch.delete()


def put_batch(options: MqSinkOptions, batch: StagedBatch, *, expires: bool = False) -> None:
    """Put the rows of a batch that have not been put yet.

    Raises MQError, ValueError, RowRefused, AttemptSuperseded, BatchUnfinished, StageMissing, StageDamaged, OSError.
    """
    with options.queue_manager.connected() as connection, WriterUnit(connection, options) as unit:
        batch_put = _BatchPut(options, batch, unit, WriterState(connection, batch.identity.query, expires=expires))
        batch_put.run()
        connection.backout()  # restores the state if the batch was complete
    for manifest in batch_put.manifests:
        SpoolPlace(manifest.place).delete_all()
    batch.delete()


class _BatchPut:
    """Puts a batch, after the rest of a batch that is recorded in a manifest."""

    def __init__(self, options: MqSinkOptions, batch: StagedBatch, unit: WriterUnit, state: WriterState) -> None:
        self._options = options
        self._batch = batch
        self._unit = unit
        self._state = state
        #: the manifests of which all rows were put
        self.manifests: list[Manifest] = []

    def run(self) -> None:
        """Put the rows."""
        batch, identity = self._batch, self._batch.identity
        state = self._take()
        if not state.complete and state.batch <= identity.batch:
            manifest = self._state.manifest()
            check_manifest(manifest, state.rows)
            rows = _messages(self._options, manifest_batches(manifest, state.rows))
            self._put_units(manifest, rows, state.rows)
            state = self._take()
        if state.batch >= identity.batch:
            return
        recorded = batch.recorded()
        if recorded is not None or not self._fits(batch):
            self._put_recorded(recorded)
        else:
            for row in _messages(self._options, batch.batches()):
                self._unit.put(row)
            self._end_unit(identity.batch, batch.rows, complete=True)

    def _take(self) -> QueryState:
        return self._state.take(self._batch.identity, self._batch.partitions)

    def _fits(self, batch: StagedBatch) -> bool:
        """Return whether a batch is put in one unit of work. A request of a mapping needs two messages."""
        return batch.rows <= (UNIT_ROWS // 2 if self._options.mapped else UNIT_ROWS) and batch.size <= UNIT_BYTES

    def _put_recorded(self, manifest: Manifest | None) -> None:
        """Record a manifest and put its rows. `manifest`: the one of an attempt that ended before recording it."""
        batch = self._batch
        rows: Iterable[Row] | None = None
        if manifest is None:
            # Once the manifest is recorded, the batch cannot change. So find rows that cannot be put before that.
            if batch.rows <= _HELD_ROWS and batch.size <= UNIT_BYTES:
                rows = list(_messages(self._options, batch.batches()))
            else:
                for _ in _messages(self._options, batch.batches()):
                    pass
            manifest = batch.record()
        else:
            check_manifest(manifest, 0)
        self._state.put_manifest(manifest)
        self._end_unit(manifest.identity.batch, 0)
        self._take()
        self._put_units(manifest, rows or _messages(self._options, manifest_batches(manifest, 0)), 0)

    def _put_units(self, manifest: Manifest, rows: Iterable[Row], position: int) -> None:
        """Put rows of a manifest from a position, in units of work."""
        for row in rows:
            if self._unit.full:
                self._end_unit(manifest.identity.batch, position)
                self._take()
            self._unit.put(row)
            position += 1
        self._unit.settle()
        self._state.remove_manifest()
        self._end_unit(manifest.identity.batch, position, complete=True)
        self.manifests.append(manifest)

    def _end_unit(self, batch: int, rows: int, *, complete: bool = False) -> None:
        self._unit.settle()
        self._state.leave(batch, rows, complete=complete)
        self._unit.commit()


class RowRefused(Exception):
    """The mapping rejected a row, and the option `refused` is not set."""


#: Message, destination, whether it is retained, and None for a simple MQPUT. Otherwise the MappedMessage with further
#: actions, or the Refusal that sends it to the dead-letter queue.
Row = tuple[Message, Destination, bool, MappedMessage | RowRefusal | None]


def _messages(options: MqSinkOptions, batches: Iterable[tuple[int, Any]]) -> Iterator[Row]:
    """Yield the messages of record batches, which are given with the numbers of their partitions."""
    number, last = 0, -1
    for partition, batch in batches:
        number, last = number if partition == last else 0, partition
        may_clear = "clear" in batch.schema.names
        for row in rows_of(batch, options.persistence):
            message = row.message
            number += 1
            refusal = row.refusal
            if row.unencodable is not None and refusal is None:
                refusal = RowRefusal(row.unencodable.reason, str(row.unencodable), "", options.destination(row))
            if options.chosen is not None and (why := _rejected_name(options.chosen, options.destination(row))):
                refusal = why
            if refusal is not None:
                if options.refused is None:
                    others = "" if row.unencodable else "filter out such rows (where refusal IS NULL), or "
                    raise RowRefused(
                        f"row {number} of partition {partition} cannot be put: {refusal}; hint: {others}name a queue"
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


def _rejected_name(chosen: ChosenNames, destination: Destination) -> RowRefusal | None:
    """Return why a row of a pipeline must not choose its destination, or None."""
    try:
        chosen.object_name("topic" if destination.is_topic else "queue", destination.name)
    except Unmappable as error:
        return RowRefusal(error.reason, str(error), "", destination, "it")
    return None


class WriterUnit:
    """The current unit of work: the puts since the last commit.

    Rows are sent in large requests. An embedded queue manager processes a request while this thread creates the next one.
    """

    def __init__(self, connection: Connection, options: MqSinkOptions) -> None:
        self._connection = connection
        self._options = options
        self._put_flags = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
        if options.queue_manager.asynchronous_puts:
            self._put_flags |= cmqc.MQPMO_ASYNC_RESPONSE
        #: by destination and context
        self._handles: dict[tuple[Destination, str], int] = {}
        #: for rows that need more than a simple put
        self._producer = MessageProducer(connection, handles=_HANDLES)
        self._dead_letters = DeadLetters(connection, options.refused or "", options.refused_by)
        #: messages, and bytes of their data, since the last commit
        self._messages = self._size = 0
        #: rows that have not been sent
        self._waiting: list[tuple[Row, Put]] = []
        self._waiting_size = 0
        # A connection to IBM MQ belongs to one thread.
        self._sender = ThreadPoolExecutor(1) if isinstance(connection, RemoteConnection) else None
        #: the request in progress
        self._request: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sender is not None:
            self._sender.shutdown()

    @property
    def full(self) -> bool:
        """Whether the unit of work has reached its maximum size."""
        return self._messages >= UNIT_ROWS or self._size >= UNIT_BYTES

    def put(self, row: Row) -> None:
        """Put a row with MQPUT under syncpoint, now or together with later rows. Raises MQError, also for an earlier row."""
        message, destination, retain, more = row
        self._messages += 2 if isinstance(more, MappedMessage) and more.kept is not None else 1
        self._size += message.length
        if isinstance(more, RowRefusal):
            self.settle()
            destination = more.destination or Destination(more.source, True)
            self._dead_letters.put(message.md, message.data, more.reason, more.problem, destination, source=more.source)
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
        """Wait until the queue manager has received all rows. Raises MQError."""
        self._send()
        request, self._request = self._request, None
        if request is not None:
            request.result()

    def commit(self) -> None:
        """Commit with MQCMIT if all puts succeeded. Then clear retained publications. Raises MQError."""
        self.settle()
        if self._options.queue_manager.asynchronous_puts:
            status = put_statistics(self._connection)
            if status.PutFailureCount:
                raise MQError(status.Reason, f"{status.PutFailureCount} puts, the first to {status.ObjectName}")
        self._connection.commit()
        self._producer.committed()
        self._messages = self._size = 0

    def _send(self) -> None:
        """Begin the next request after the end of the current one."""
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
    position = 0
    while position < len(rows):
        try:
            position += len(
                put_many(connection, [put_call for _, put_call in rows[position:]], _REQUEST_ROWS, _REQUEST_BYTES)
            )
        except MQError as error:
            _, destination, *_ = rows[position][0]
            raise MQError(
                error.reason, f"{error.detail or 'put'} (to {name_of(destination)})", error.comp_code
            ) from error
