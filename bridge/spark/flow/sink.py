"""What becomes of each batch of a pipeline (`foreachBatch`): its rows, written to one destination after the other.

A row has a struct for each destination: `mq` as the source `mq` takes rows, `mqtt` as that takes them, `archive` as Parquet
files have it, `rows` as a format of Spark's takes them. A batch that is run again puts no message and writes no file of an
archive twice; publications, and what formats of Spark's write, may come twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType

from bridge.mq.mqi import MQError
from bridge.spark import task
from bridge.spark.flow import table
from bridge.spark.flow.bad_rows.dead_letters import put_dead_letters
from bridge.spark.flow.bad_rows.payload import REASON
from bridge.spark.flow.bad_rows.refusals import (
    DeadLetterSink,
    RefusedRows,
    file_of,
    original_messages,
    refused_publications,
    unfit,
    unfit_messages,
    unmapped,
)
from bridge.spark.flow.staging import Staging
from bridge.spark.mq.sink_options import WRITE_OPTIONS as MQ_OPTIONS
from bridge.spark.mq.sink_options import SinkOptions as MqSinkOptions
from bridge.spark.mq.sink_options import sink_options_of as mq_sink_options_of
from bridge.spark.mq.writer import put_all
from bridge.spark.mqtt.sink_options import WRITE_OPTIONS as MQTT_OPTIONS
from bridge.spark.mqtt.sink_options import SinkOptions as MqttSinkOptions
from bridge.spark.mqtt.sink_options import sink_options_of as mqtt_sink_options_of
from bridge.spark.mqtt.writer import Published, publish_all
from bridge.spark.options import Options
from bridge.spark.refusal import REFUSAL
from bridge.spark.task import Identity

#: The one of the routes that is no destination: where rows go that a destination refuses, in options of its own.
DEAD_LETTERS: Final = "dead_letters"
#: What tells apart the rows that one query puts on the dead-letter queue.
UNFIT: Final = "unfit"
REFUSED: Final = "refused"
UNMAPPED: Final = "unmapped"
#: Kinds of destinations, which are also the names of the structs; in the order in which they are written to.
MQ: Final = "mq"
ARCHIVE: Final = "archive"
MQTT: Final = "mqtt"
ROWS: Final = "rows"
#: The struct of a message that a mapping to MQTT refuses: null in rows that it does not.
ORIGINAL: Final = "original"


def mq_sink_options(options: dict[str, str], schema: StructType) -> MqSinkOptions:
    """Return the options of a destination `mq`, checked. Raises OptionError."""
    return mq_sink_options_of(Options("to: mq", options, MQ_OPTIONS), schema)


def mqtt_sink_options(options: dict[str, str], schema: StructType) -> MqttSinkOptions:
    """Return the options of a destination `mqtt`, checked. Raises OptionError."""
    return mqtt_sink_options_of(Options("to: mqtt", options, MQTT_OPTIONS), schema)


class Written(msgspec.Struct, frozen=True):
    """What was written of a batch: all but the rows that were refused, and why the first of them was."""

    refused: int = 0
    why: str = ""
    #: rows of it that came too late; None: nobody has looked which
    late: int | None = None

    def and_also(self, other: Written) -> Written:
        """Return what both have written."""
        late = other.late if self.late is None else self.late
        return Written(self.refused + other.refused, (self.why if self.refused else "") or other.why, late)


#: Batches that `BatchWriter.written` has at most: Spark's event of a batch comes soon after it.
_REMEMBERED: Final = 1000
#: Columns that belong to a destination beside its struct.
_BESIDE: Final = {MQTT: (ORIGINAL,)}
#: What the tasks of a route tell.
_WRITTEN: Final = "refused LONG, why STRING"

#: Columns that a dead letter is made of.
DEAD_LETTER_COLUMNS: Final = StructType().add("body", BinaryType())


class Route(msgspec.Struct, frozen=True):
    """A destination that tasks of our own write to."""

    kind: str
    #: an MqSinkOptions, an MqttSinkOptions, or a directory
    options: Any
    #: None: what is refused ends the query
    dead_letters: DeadLetterSink | None
    #: tells apart what one query writes of several kinds of rows
    role: str = ""

    def write_batch(self, frame: DataFrame, batch: int) -> Written:
        """Write its struct of each row of a batch, with what belongs to it. Raises PySparkException."""
        columns = [name for name in (self.kind, *_BESIDE.get(self.kind, ())) if name in frame.columns]
        written = frame.select(*columns).mapInArrow(self._write_partition, _WRITTEN).collect()
        return _sum(Written(one.refused, one.why) for one in written)

    def _write_partition(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Write a partition, and yield how it went, for mapInArrow."""
        found = [batch for batch in batches if batch.num_rows]
        if found:
            written = self.write(task.identity(self.role), found)
            yield pa.record_batch({"refused": pa.array([written.refused], pa.int64()), "why": [written.why]})

    def write(self, identity: Identity, batches: list[Any]) -> Written:
        """Write its struct of each row of a partition."""
        dead_letters = self.dead_letters
        own = [pa.RecordBatch.from_struct_array(batch.column(self.kind)) for batch in batches]
        if self.kind == MQ:
            if dead_letters is None or not all(REFUSAL.name in batch.schema.names for batch in own):
                return _put(self.options, identity, own, dead_letters)
            return _put_mapped(self.options, identity, own, dead_letters)
        if self.kind == MQTT:
            if dead_letters is not None and all(ORIGINAL in batch.schema.names for batch in batches):
                originals = [pa.RecordBatch.from_struct_array(batch.column(ORIGINAL).drop_null()) for batch in batches]
                return _publish_mapped(self.options, identity, own, originals, dead_letters)
            return _publish(self.options, identity, own, dead_letters)
        table.write_all(self.options, identity, own)
        return Written()


class FormatRoute(msgspec.Struct, frozen=True):
    """A destination that a format of Spark's writes to."""

    format: str
    options: dict[str, str]
    #: options whose values are in files, which are read for each batch
    secrets: dict[str, str]
    partition_by: list[str]
    role: str = ""
    kind: str = ROWS

    def write_batch(self, frame: DataFrame, batch: int) -> Written:
        """Write its struct of each row of a batch. Raises PySparkException, OSError."""
        rows = frame.select(f"{ROWS}.*")
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        again = {"txnAppId": f"{query}{self.role}", "txnVersion": str(batch)} if self.format == "delta" else {}
        secrets = {name: Path(file).read_text(encoding="utf-8").rstrip("\r\n") for name, file in self.secrets.items()}
        writer = rows.write.format(self.format).options(**again, **self.options, **secrets).mode("append")
        (writer.partitionBy(*self.partition_by) if self.partition_by else writer).save()
        return Written()


class BatchFailed(Exception):
    """A batch was not written; `BatchWriter.error` is why.

    It says little: of a query that is stopped Spark searches all that py4j tells of the error by a regular expression, which
    takes a long text beyond the stack of Java.
    """


#: Writes what has come of a batch beside its rows, when those are written: given the number of the batch.
Behind = Callable[[int], Written]


class BatchWriter:
    """Writes each batch of a query to all destinations: what `foreachBatch` takes."""

    def __init__(
        self, routes: Sequence[Route | FormatRoute], staging: Path | None = None, behind: Sequence[Behind] = ()
    ) -> None:
        """`staging`: the directory where a batch is kept before it is written, that may come out otherwise the next time."""
        self._routes = routes
        self._staging = None if staging is None else Staging(staging)
        self._behind = behind
        #: by number of the batch, of the last ones
        self.written: dict[int, Written] = {}
        #: what ended the query
        self.error: Exception | None = None
        #: held while a batch is written
        self.writing = threading.Lock()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch. What is read once for several destinations is read, and looked at, once. Raises BatchFailed."""
        with self.writing:
            self._write(frame, batch)

    def _write(self, frame: DataFrame, batch: int) -> None:
        several = self._staging is None and len(self._routes) > 1
        if several:
            frame.persist()
        try:
            if self._staging is not None:
                frame = self._staging.staged(frame, batch)
            written = _sum(route.write_batch(frame, batch) for route in self._routes)
            written = _sum((written, *(write(batch) for write in self._behind)))
        except Exception as error:
            self.error = error
            raise BatchFailed(type(error).__name__) from None
        finally:
            if several:
                frame.unpersist()
        self.written[batch] = written
        self.written.pop(batch - _REMEMBERED, None)


def _sum(written: Iterable[Written]) -> Written:
    everything = Written()
    for one in written:
        everything = everything.and_also(one)
    return everything


def _put_mapped(options: MqSinkOptions, identity: Identity, batches: list[Any], dead_letters: DeadLetterSink) -> Written:
    """Put what a mapping has made; what it refuses goes to the dead-letter queue with the others, or to a table."""
    good, bad = unmapped(batches)
    if bad and options.refused is None:
        assert dead_letters.directory is not None
        table.write(file_of(dead_letters.directory, identity, UNMAPPED), pa.Table.from_batches(bad))
        batches = good
    return _counted(bad).and_also(_put(options, identity, batches, dead_letters))


def _publish_mapped(
    options: MqttSinkOptions, identity: Identity, batches: list[Any], originals: list[Any], dead_letters: DeadLetterSink
) -> Written:
    """Publish what a mapping has made; of what it refuses the message itself goes to the dead letters."""
    good, _ = unmapped(batches)
    _, bad = unmapped(originals)
    if bad and dead_letters.options is not None:
        own = msgspec.structs.replace(identity, query=f"{identity.query}-{UNMAPPED}")
        messages = original_messages(bad, dead_letters.options.persistence)
        put_dead_letters(dead_letters.options, own, dead_letters.pipeline, messages)
    elif bad:
        assert dead_letters.directory is not None
        table.write(file_of(dead_letters.directory, identity, UNMAPPED), pa.Table.from_batches(bad))
    return _counted(bad).and_also(_publish(options, identity, good, dead_letters))


def _counted(bad: list[Any]) -> Written:
    """Return the number of rows that are refused, and why the first is, of batches with a column `reason`."""
    return Written(sum(batch.num_rows for batch in bad), bad[0].column(REASON)[0].as_py() if bad else "")


def _put(options: MqSinkOptions, identity: Identity, batches: list[Any], dead_letters: DeadLetterSink | None) -> Written:
    if dead_letters is None:
        put_all(options, identity, batches)
        return Written()
    try:
        return _put_fit(options, identity, batches, dead_letters)
    except ValueError:
        batches, bad = unfit(options, batches)
        if not bad:
            raise
        own = msgspec.structs.replace(identity, query=f"{identity.query}-{UNFIT}")
        if dead_letters.options is None:
            assert dead_letters.directory is not None
            table.write(file_of(dead_letters.directory, identity, UNFIT), pa.Table.from_batches(bad))
        else:
            put_dead_letters(dead_letters.options, own, dead_letters.pipeline, unfit_messages(bad, options.persistence))
        return _counted(bad).and_also(_put_fit(options, identity, batches, dead_letters))


def _put_fit(options: MqSinkOptions, identity: Identity, batches: list[Any], dead_letters: DeadLetterSink) -> Written:
    rows = RefusedRows(dead_letters, identity)
    try:
        put_all(options, identity, batches, rows)
    except MQError as error:
        if not (options.queue_manager.asynchronous_puts and rows.takes(error)):
            raise
        # Which of them it was, only a put that waits for its answer tells.
        rows = RefusedRows(dead_letters, identity)
        put_all(options, identity, batches, rows, asynchronous=False)
    return Written(rows.count, rows.why)


def _publish(
    options: MqttSinkOptions, identity: Identity, batches: list[Any], dead_letters: DeadLetterSink | None
) -> Written:
    row = identity.text
    if dead_letters is None or dead_letters.options is None:
        return _refused(publish_all(options, row, batches))
    # It leaves what is refused in a file, from which it is put on the queue.
    assert options.dead_letter is not None
    left = Path(options.dead_letter, f"{row.replace('/', '-')}.parquet")
    left.unlink(missing_ok=True)  # of an attempt that did not come to its end
    published = publish_all(options, row, batches)
    own = msgspec.structs.replace(identity, query=f"{identity.query}-{REFUSED}")
    put_dead_letters(dead_letters.options, own, dead_letters.pipeline, refused_publications(left, dead_letters.options))
    left.unlink(missing_ok=True)
    return _refused(published)


def _refused(published: Published) -> Written:
    return Written(published.refused, "publications that the broker does not take")


def routes_of(given: dict[str, dict[str, str]], schema: StructType, role: str = "") -> list[Route]:
    """Return the destinations that options name, for rows of a schema. Raises OptionError."""
    dead_letters = dead_letter_sink_of(given[DEAD_LETTERS]) if DEAD_LETTERS in given else None
    routes = []
    for kind in (MQ, ARCHIVE, MQTT):
        if (options := given.get(kind)) is None:
            continue
        columns = schema[kind].dataType
        assert isinstance(columns, StructType)
        checked: Any = options.get("path")
        if kind == MQ:
            checked = mq_sink_options(options, columns)
        elif kind == MQTT:
            checked = mqtt_sink_options(options, columns)
        routes.append(Route(kind, checked, dead_letters, role))
    return routes


def dead_letter_sink_of(given: dict[str, str]) -> DeadLetterSink:
    """Return where refused rows go. Raises OptionError.

    Options are `pipeline`, `named` (the rows name their destinations), and `archive`, or options of the source `mq` with
    the `queue`.
    """
    options = dict(given)
    pipeline, named = options.pop("pipeline"), options.pop("named") == "true"
    if (directory := options.pop("archive", None)) is not None:
        return DeadLetterSink(pipeline, None, directory, named=named)
    return DeadLetterSink(pipeline, mq_sink_options(options, DEAD_LETTER_COLUMNS), None, named=named)
