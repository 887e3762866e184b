"""The sink of a pipeline: each row to all of its destinations, in one query.

A row has a struct for each destination: `mq` as the source `mq` takes rows, `mqtt` as that takes them, `archive` as Parquet
files have it. A batch that is run again puts no message and writes no file twice; publications, last in turn, may come
twice, and say which row they are.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StructType

from bridge.mq.errors import MQError
from bridge.pipeline import task
from bridge.pipeline.flow import refused_counts, table
from bridge.pipeline.flow.dead_letters import put_dead_letters
from bridge.pipeline.flow.payload import REASON
from bridge.pipeline.flow.refusals import (
    DeadLetterSink,
    RefusedRows,
    file_of,
    original_messages,
    refused_publications,
    unfit,
    unfit_messages,
    unmapped,
)
from bridge.pipeline.mq.sink_options import WRITE_OPTIONS as MQ_OPTIONS
from bridge.pipeline.mq.sink_options import SinkOptions as MqSinkOptions
from bridge.pipeline.mq.sink_options import sink_options_of as mq_sink_options_of
from bridge.pipeline.mq.writer import put_all
from bridge.pipeline.mqtt.sink_options import WRITE_OPTIONS as MQTT_OPTIONS
from bridge.pipeline.mqtt.sink_options import SinkOptions as MqttSinkOptions
from bridge.pipeline.mqtt.sink_options import sink_options_of as mqtt_sink_options_of
from bridge.pipeline.mqtt.writer import Published, publish_all
from bridge.pipeline.options import Options
from bridge.pipeline.refusal import REFUSAL
from bridge.pipeline.task import Identity

#: The option that says all destinations, in JSON: kind -> options.
ROUTES: Final = "routes"
#: The option that names the directory of the pipeline.
DIRECTORY: Final = "directory"
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
#: The struct of a message that a mapping to MQTT refuses: null in rows that it does not.
ORIGINAL: Final = "original"


def mq_sink_options(options: dict[str, str], schema: StructType) -> MqSinkOptions:
    """Return the options of a destination `mq`, checked. Raises OptionError."""
    return mq_sink_options_of(Options("to: mq", options, MQ_OPTIONS), schema)


def mqtt_sink_options(options: dict[str, str], schema: StructType) -> MqttSinkOptions:
    """Return the options of a destination `mqtt`, checked. Raises OptionError."""
    return mqtt_sink_options_of(Options("to: mqtt", options, MQTT_OPTIONS), schema)


class Written(WriterCommitMessage):
    """What a task has written: all but the rows that were refused, and why the first of them was."""

    def __init__(self, refused: int = 0, why: str = "") -> None:
        self.refused = refused
        self.why = why

    def and_also(self, other: Written) -> Written:
        """Return what both have written."""
        return Written(self.refused + other.refused, (self.why if self.refused else "") or other.why)


#: Columns that a dead letter is made of.
DEAD_LETTER_COLUMNS: Final = StructType().add("body", BinaryType())


class Route(msgspec.Struct, frozen=True):
    """A destination."""

    kind: str
    #: an MqSinkOptions, an MqttSinkOptions, or a directory
    options: Any

    def write(self, identity: Identity, batches: list[Any], dead_letters: DeadLetterSink | None) -> Written:
        """Write its struct of each row of a partition; what is refused goes to the dead letters, or (None) ends the query."""
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


class RouteWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, routes: tuple[Route, ...], dead_letters: DeadLetterSink | None, directory: str | None) -> None:
        self._routes = routes
        self._dead_letters = dead_letters
        #: of the pipeline, for the count of refused rows
        self._directory = directory

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write a partition of a batch."""
        identity = task.identity()
        batches = [batch for batch in iterator if batch.num_rows]
        written = Written()
        for route in self._routes:
            written = written.and_also(route.write(identity, batches, self._dead_letters))
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Write down how many rows were refused, since all is written."""
        everything = Written()
        for message in messages:
            if isinstance(message, Written):
                everything = everything.and_also(message)
        if everything.refused and self._directory is not None:
            count = refused_counts.RefusedCount(batchId, everything.refused, everything.why)
            refused_counts.write(Path(self._directory), count)


class PipelineSink(DataSource):
    """The sink of a pipeline."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "mqbridge_sink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming write. Raises OptionError."""
        options = dict(self.options)
        given = msgspec.json.decode(options[ROUTES], type=dict[str, dict[str, str]])
        dead_letters = dead_letter_sink_of(given[DEAD_LETTERS]) if DEAD_LETTERS in given else None
        return RouteWriter(routes_of(given, schema), dead_letters, options.get(DIRECTORY))


def routes_of(given: dict[str, dict[str, str]], schema: StructType) -> tuple[Route, ...]:
    """Return the destinations that options name, for rows of a schema. Raises OptionError."""
    routes = []
    for kind in (MQ, ARCHIVE, MQTT):
        if (options := given.get(kind)) is None:
            continue
        columns = schema[kind].dataType
        assert isinstance(columns, StructType)
        if kind == MQ:
            routes.append(Route(kind, mq_sink_options(options, columns)))
        elif kind == MQTT:
            routes.append(Route(kind, mqtt_sink_options(options, columns)))
        else:
            routes.append(Route(kind, options["path"]))
    return tuple(routes)


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
