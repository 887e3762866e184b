"""The destinations of a pipeline's batches: queues, topics, files and other formats of Spark, dead letters and late rows.

A destination writes the batch `epoch` under the name of a writer, which is the identifier of the query and a role. Queues,
files on a file system and Delta accept each (writer, epoch) once. All others get a batch at least once.

A SELECT with a column `body` or `payload` of type string or binary specifies the message itself. Any other SELECT makes a
JSON object of each row.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, TimestampType, VariantType

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.pipeline import Destination, LateConfig, MqSink, PipelineConfig
from bridge.files import durable_file, sync
from bridge.mapping.template import Placeholder, Template, TemplateError
from bridge.spark import MqDataSource, MqttDataSource, to_messages, to_publications
from bridge.spark.columns import PROPERTY_COLUMNS
from bridge.spark.environment import PipelineEnvironment
from bridge.spark.failures import ColumnMissing
from bridge.spark.mapping.messages import TAKEN as OF_PUBLICATIONS
from bridge.spark.mapping.publications import TAKEN as OF_MESSAGES
from bridge.spark.options import OptionError
from bridge.spark.schema import MQ_SCHEMA, MQTT_SCHEMA, REFUSAL
from bridge.wire import cmqc

#: The column of `input` that contains the payload, and the column with its bytes.
PAYLOAD: Final = "payload"
BODY: Final = "body"
#: Columns with the time of arrival.
TIMES: Final = ("received", "put_time")
#: Columns that partition an archive.
DATE: Final = "date"
HOUR: Final = "hour"
#: Format and character set of a message that is a JSON object.
_TEXT: Final = {"format": cmqc.MQFMT_STRING.decode().strip(), "ccsid": 1208}
_MQ_PARTS: Final = ("md", "rfh2", "headers", "format", "ccsid", "encoding")
_MQTT_PARTS: Final = ("qos", "retain", "properties", *PROPERTY_COLUMNS, "expiry", "msg_id", "md")
#: Columns of `input` that are not part of a message that is written.
_KNOWN: Final = frozenset((*MQ_SCHEMA.names, *MQTT_SCHEMA.names))
#: The column with the reason of a dead letter.
REASON: Final = "reason"
_DELTA: Final = "delta"


class Sink:
    """A destination."""

    #: whether a batch that runs again writes nothing twice
    exactly_once = True
    #: whether it takes columns in addition to those of a source
    is_table = False

    def columns(self, frame: DataFrame) -> DataFrame:
        """Return what is written of rows. Raises ColumnMissing, TemplateError, OptionError."""
        raise NotImplementedError

    def check(self, frame: DataFrame) -> None:
        """Check the columns and the options. Raises ColumnMissing, TemplateError, OptionError, AnalysisException."""
        self.columns(frame)

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        """Write a batch; return how many of its rows went to the dead letters instead."""
        raise NotImplementedError


class QueueSink(Sink):
    """Queues and topics of the queue manager."""

    def __init__(self, mq: MqSink, options: Mapping[str, str], section: str, *, all_used: bool = False) -> None:
        """`all_used`: other destinations write the columns that a message does not have."""
        self._mq = mq
        self._section = section
        self._all_used = all_used
        self._options = {**options, "persistence": mq.persistence}

    def columns(self, frame: DataFrame) -> DataFrame:
        return messages(frame, self._mq, self._section, all_used=self._all_used)

    def check(self, frame: DataFrame) -> None:
        MqDataSource({**self._options}).writer(self.columns(frame).schema, False)

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        write_messages(self.columns(frame), self._options, writer, epoch)
        return 0


class TopicSink(Sink):
    """Topics at a broker."""

    exactly_once = False

    def __init__(self, to: Destination, environment: PipelineEnvironment) -> None:
        self._to = to
        self._options = environment.broker(to.link) | {"qos": str(to.qos), "retain": str(to.retain).lower()}

    def columns(self, frame: DataFrame) -> DataFrame:
        return publications(frame, self._to)

    def check(self, frame: DataFrame) -> None:
        MqttDataSource({**self._options}).writer(self.columns(frame).schema, False)

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        publish(self.columns(frame), self._options, writer, epoch)
        return 0


class TableSink(Sink):
    """A format of Spark; an archive is Parquet, partitioned by date and hour."""

    is_table = True

    def __init__(self, to: Destination | Path) -> None:
        """`to`: the destination with a format, or the directory of an archive."""
        self._archive = isinstance(to, Path)
        if isinstance(to, Path):
            to = Destination.model_construct(format="parquet", path=to, partition_by=[DATE, HOUR])
        assert to.format is not None
        self._format = to.format
        self._path = to.path.absolute() if isinstance(to.path, Path) else to.path
        self._options = to.options
        self._secrets = to.secrets
        self._partition_by = to.partition_by
        #: whether the driver moves the files of a batch into place
        self._files = to.writes_files
        self.exactly_once = to.writes_format_once

    def columns(self, frame: DataFrame) -> DataFrame:
        if not self._archive:
            return table_rows(frame)
        if clash := [name for name in (DATE, HOUR) if name in frame.columns]:
            raise OptionError(f"an archive has the columns {DATE} and {HOUR}; hint: rename the column {clash[0]} in select")
        return archive_rows(frame)

    def check(self, frame: DataFrame) -> None:
        frame = self.columns(frame)
        if missing := [name for name in self._partition_by if name not in frame.columns]:
            raise OptionError(f"partitionBy: there is no column {missing[0]} (only {', '.join(frame.columns)})")

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        made = self.columns(frame).write.format(self._format).options(**self._options).mode("append")
        made = made.options(**{name: file.read_text("utf-8").strip() for name, file in self._secrets.items()})
        if self._partition_by:
            made = made.partitionBy(*self._partition_by)
        if self._format == _DELTA:
            made = made.option("txnAppId", writer).option("txnVersion", epoch)
        if self._files:
            assert isinstance(self._path, Path)
            BatchFiles(self._path, writer).write(epoch, made.save)
        else:
            made.save(None if self._path is None else str(self._path))
        return 0


class MappingToQueue(Sink):
    """A mapping to MQ. Rows that it refuses go to the dead-letter queue."""

    def __init__(self, name: str, mapping: ToMqMapping, queue_manager: str, options: Mapping[str, str]) -> None:
        self._name = name
        self._mapping = mapping
        self._queue_manager = queue_manager
        self._options = options

    def columns(self, frame: DataFrame) -> DataFrame:
        return to_messages(_as(frame, PAYLOAD), self._mapping, name=self._name, queue_manager=self._queue_manager)

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        made = self.columns(frame).persist()
        try:
            refused = made.where(f"{REFUSAL.name} IS NOT NULL").count()
            write_messages(made, self._options, writer, epoch)
        finally:
            made.unpersist()
        return refused


class MappingToTopic(Sink):
    """A mapping to MQTT. Messages that it refuses go to the dead-letter queue."""

    exactly_once = False
    #: columns of a message from which a dead letter is made
    _ORIGINAL: Final = ("queue", "headers", "format", "ccsid", "encoding")

    def __init__(
        self, name: str, mapping: ToMqttMapping, queue_manager: str, broker: Mapping[str, str], letters: Mapping[str, str]
    ) -> None:
        self._name = name
        self._mapping = mapping
        self._queue_manager = queue_manager
        self._broker = broker
        self._letters = letters

    def columns(self, frame: DataFrame) -> DataFrame:
        given = _as(frame, BODY)
        original = f.struct(*(f.col(name) for name in (*self._ORIGINAL, "md", BODY) if name in given.columns))
        return to_publications(
            given.withColumn("original", original), self._mapping, name=self._name, queue_manager=self._queue_manager,
            keep=["original"],
        )  # fmt: skip

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        made = self.columns(frame).persist()
        try:
            good = made.where(f"{REFUSAL.name} IS NULL").drop("original", REFUSAL.name)
            publish(good, self._broker, writer, epoch)
            bad = made.where(f"{REFUSAL.name} IS NOT NULL").select("original.*", REFUSAL.name)
            if refused := bad.count():
                write_messages(bad.drop("queue"), self._letters, f"{writer}-refused", epoch)
        finally:
            made.unpersist()
        return refused


class DeadLetterQueue(Sink):
    """The dead-letter queue: messages as they arrived, after an MQDLH."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def columns(self, frame: DataFrame) -> DataFrame:
        """Return the messages of source rows with the column `reason`."""
        source = "queue" if "headers" in frame.columns else "topic"
        refusal = f.struct(
            f.lit(cmqc.MQRC_FORMAT_ERROR).alias("reason"), f.col(REASON).alias("sentence"), f.col(source).alias("source")
        ).alias(REFUSAL.name)
        if source == "queue":
            names = ("md", "headers", BODY, "format", "ccsid", "encoding")
            return frame.select(*(name for name in names if name in frame.columns), refusal)
        made = to_messages(frame.withColumn("letter", refusal), queue=self._options["queue"], keep=["letter"])
        return made.withColumn(REFUSAL.name, f.col("letter")).select("md", "headers", BODY, REFUSAL.name)

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        write_messages(self.columns(frame), self._options, writer, epoch)
        return 0


def write_messages(frame: DataFrame, options: Mapping[str, str], writer: str, epoch: int) -> None:
    """Put messages, each (writer, epoch) once."""
    frame.write.format("mq").options(**options).options(writeId=writer, epoch=epoch).mode("append").save()


def publish(frame: DataFrame, options: Mapping[str, str], writer: str, epoch: int) -> None:
    """Publish. A batch that runs again repeats the names of its rows (user property mqbridge-row)."""
    frame.write.format("mqtt").options(**options).option("writeId", f"{writer}-{epoch}").mode("append").save()


def sinks_of(to: Destination, environment: PipelineEnvironment) -> list[Sink]:
    """Return the destinations of a pipeline."""
    sinks: list[Sink] = []
    if to.mq is not None:
        all_used = to.archive is not None or to.format is not None
        sinks.append(QueueSink(to.mq, environment.queue_manager, "to", all_used=all_used))
    if to.archive is not None:
        sinks.append(TableSink(to.archive))
    if to.format is not None:
        sinks.append(TableSink(to))
    if to.mqtt is not None:
        sinks.append(TopicSink(to, environment))
    return sinks


def mapping_sink(
    name: str, mapping: ToMqMapping | ToMqttMapping, queue_manager: str, environment: PipelineEnvironment, letters: str
) -> Sink:
    """Return the destination that a mapping specifies; `letters` is the dead-letter queue."""
    if isinstance(mapping, ToMqMapping):
        return MappingToQueue(name, mapping, queue_manager, environment.queue_manager | {"refused": letters})
    queue = environment.queue_manager | {"queue": letters, "refused": letters}
    return MappingToTopic(name, mapping, queue_manager, environment.broker(mapping.destination.link), queue)


def dead_letter_sink(config: PipelineConfig, environment: PipelineEnvironment) -> Sink:
    """Return the destination of the dead letters of a pipeline: source rows with the column `reason`."""
    if config.dead_letters.archive is not None:
        return TableSink(config.dead_letters.archive)
    queue = config.dead_letters.queue or environment.dead_letter_queue
    return DeadLetterQueue(environment.queue_manager | {"queue": queue, "refused": queue})


def late_sink(late: LateConfig, environment: PipelineEnvironment) -> Sink:
    """Return the destination of late rows, which an archive gets with the column `watermark`."""
    if late.archive is not None:
        return TableSink(late.archive)
    assert late.mq is not None
    return QueueSink(late.mq, environment.queue_manager, "late")


def _as(frame: DataFrame, payload: str) -> DataFrame:
    """Return the columns of a SELECT that a mapping reads, the message itself as `payload` or `body`. Raises OptionError."""
    reads = set(OF_PUBLICATIONS if payload == PAYLOAD else (*OF_MESSAGES, "headers", "format", "ccsid", "encoding"))
    if (body := body_of(frame)) is None:
        raise OptionError("select must return a column body or payload (binary or string), which the mapping reads")
    if payload == PAYLOAD and "topic" not in frame.columns:
        raise OptionError("select must return a column topic (string), which the mapping reads")
    names = [name for name in frame.columns if name in reads and name not in (BODY, PAYLOAD)]
    return frame.select(*names, body.alias(payload))


# Columns --------------------------------------------------------------------------------------------------------------


def messages(frame: DataFrame, mq: MqSink, section: str, *, all_used: bool) -> DataFrame:
    """Return the messages of rows, for the sink `mq`. Raises ColumnMissing, TemplateError, OptionError."""
    key = next((name for name in ("queue", "topic") if getattr(mq, name) is not None), None)
    named = key is not None
    if key is not None:
        place = _filled(frame, getattr(mq, key), (section, "mq", key)).alias(key)
    else:
        key = next((name for name in ("queue", "topic") if name in frame.columns), None)
        if key is None:
            raise ColumnMissing((section, "mq"), "queue", frame.columns)
        place = f.col(key)
    if (body := body_of(frame)) is None:
        described = [f.lit(value).alias(name) for name, value in _TEXT.items()]
        return frame.select(place, _json(frame, set() if named else {key}).alias(BODY), *described)
    if not all_used:
        _check_lost(frame, mq.queue or mq.topic)
    return frame.select(place, body.alias(BODY), *(name for name in _MQ_PARTS if name in frame.columns))


def publications(frame: DataFrame, to: Destination) -> DataFrame:
    """Return the publications of rows, for the sink `mqtt`. Raises ColumnMissing, TemplateError, OptionError."""
    assert to.mqtt is not None
    topic = _filled(frame, to.mqtt, ("to", "mqtt")).alias("topic")
    if (body := body_of(frame)) is None:
        return frame.select(topic, _json(frame, set()).alias(PAYLOAD))
    if to.archive is None and to.format is None:
        _check_lost(frame, to.mqtt)
    return frame.select(topic, body.alias(PAYLOAD), *(name for name in _MQTT_PARTS if name in frame.columns))


def table_rows(frame: DataFrame) -> DataFrame:
    """Return rows without documents (VARIANT), which file formats do not support: JSON text takes their place."""
    names = [field.name for field in frame.schema if isinstance(field.dataType, VariantType)]
    return frame.withColumns({name: f.to_json(quoted(name)) for name in names}) if names else frame


def archive_rows(frame: DataFrame) -> DataFrame:
    """Return rows with the columns `date` and `hour` (UTC) of their arrival, otherwise of the time of the batch."""
    schema = frame.schema
    times = [f.col(name) for name in TIMES if name in frame.columns and isinstance(schema[name].dataType, TimestampType)]
    when = f.coalesce(*times, f.current_timestamp())
    return table_rows(frame).withColumns({DATE: f.date_format(when, "yyyy-MM-dd"), HOUR: f.date_format(when, "HH")})


def body_of(frame: DataFrame) -> Column | None:
    """Return the column that is the message itself, or None if there is no such column."""
    for name in (BODY, PAYLOAD):
        if name in frame.columns and isinstance(frame.schema[name].dataType, BinaryType | StringType):
            return f.col(name)
    return None


def quoted(name: str) -> str:
    """Return a column name for SQL."""
    return f"`{name.replace('`', '``')}`"


def _check_lost(frame: DataFrame, address: str | None) -> None:
    """Check that a SELECT which specifies the message has no columns that would be lost. Raises OptionError."""
    used = {*_MQ_PARTS, *_MQTT_PARTS, *_KNOWN, *(Template(address).names if address else ())}
    if lost := [name for name in frame.columns if name not in used]:
        raise OptionError(f"select returns the message (body or payload), so these columns would be lost: {', '.join(lost)}")


def _json(frame: DataFrame, without: set[str]) -> Column:
    names = [name for name in frame.columns if name not in without]
    return f.to_json(f.struct(*(f.col(quoted(name)) for name in names)), {"ignoreNullFields": "false"})


def _filled(frame: DataFrame, text: str, location: tuple[str | int, ...]) -> Column:
    """Return a template whose names are columns, as a column. Raises ColumnMissing, TemplateError."""
    parts: list[Any] = []
    for piece in Template(text).pieces:
        if not isinstance(piece, Placeholder):
            parts.append(f.lit(piece))
            continue
        if piece.filters:
            raise TemplateError(f"{piece.name} has a filter, which pipelines do not support: use SQL in select")
        if piece.name not in frame.columns:
            raise ColumnMissing(location, piece.name, frame.columns)
        parts.append(f.col(quoted(piece.name)).cast("string"))
    return f.concat(*parts) if len(parts) > 1 else parts[0]


# Files ----------------------------------------------------------------------------------------------------------------

#: Spark creates this file when all files of a write are complete.
_SUCCESS: Final = "_SUCCESS"


class BatchFiles:
    """Files that a query writes exactly once: each batch is moved into place when it is complete.

        DIRECTORY/.mqbridge/WRITER/staging   the batch that is being written
        DIRECTORY/.mqbridge/WRITER/last      number of the last batch whose files are all in place

    Spark writes a batch to the staging directory. The driver then syncs each file and renames it to its place in DIRECTORY.
    A batch that runs again continues the renames if staging is complete, and starts again if not. A batch up to `last` is
    skipped. Names that begin with a dot are invisible to readers, so a reader never sees part of a file, nor a row twice.
    """

    def __init__(self, directory: Path, writer: str) -> None:
        self._directory = directory
        self._own = directory / ".mqbridge" / writer
        self._staging = self._own / "staging"

    def write(self, batch: int, write: Callable[[str], None]) -> None:
        """Write a batch: `write` writes files below a directory, and `_SUCCESS` when they are complete. Raises OSError."""
        if batch <= self._last():
            return
        staged = self._staging / str(batch)
        if not (staged / _SUCCESS).exists():
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging.mkdir(parents=True)
            write(str(staged))
        if not (staged / _SUCCESS).exists():
            raise OSError(f"{staged} has no {_SUCCESS}: expected mapreduce.fileoutputcommitter.marksuccessfuljobs=true")
        self._move(staged, batch)
        with durable_file(self._own / "last") as file:
            file.write(str(batch).encode())
        shutil.rmtree(self._staging, ignore_errors=True)

    def _last(self) -> int:
        try:
            return int((self._own / "last").read_text(encoding="ascii"))
        except FileNotFoundError:
            return -1

    def _move(self, staged: Path, batch: int) -> None:
        """Move the files of a complete batch to their places, those that are still in staging."""
        changed: set[Path] = set()
        for source in sorted(staged.rglob("*")):
            if source.is_dir() or source.name.startswith(("_", ".")):
                continue
            place = self._directory / source.relative_to(staged).parent / f"{batch:08d}-{source.name}"
            sync(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            source.rename(place)
            changed |= {place.parent, place.parent.parent}
        for directory in changed:
            sync(directory)
