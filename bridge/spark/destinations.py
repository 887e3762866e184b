"""The destinations of a pipeline's batches: queues, topics, files and other formats of Spark, dead letters and late rows.

A destination writes the batch `epoch` under the name of a writer, which is the identifier of the query and a role. Queues,
files on a file system and Delta accept each (writer, epoch) once. All others get a batch at least once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.pipeline import Destination, PipelineConfig
from bridge.spark import MqDataSource, MqttDataSource, to_messages, to_publications
from bridge.spark.batch_files import BatchFiles
from bridge.spark.destination_columns import (
    BODY,
    DATE,
    HOUR,
    PAYLOAD,
    TIMES,
    archive_rows,
    body_of,
    messages,
    publications,
    table_rows,
)
from bridge.spark.errors import OptionError
from bridge.spark.mapping.publication_rows import TAKEN as OF_PUBLICATIONS
from bridge.spark.mapping.publications import TAKEN as OF_MESSAGES
from bridge.spark.pipeline_environment import PipelineEnvironment
from bridge.spark.refusal import REFUSAL
from bridge.wire import cmqc

#: The column with the reason of a dead letter.
REASON: Final = "reason"
_DELTA: Final = "delta"
#: Columns of dead letters in a format of Spark or at a broker.
LETTER_COLUMNS: Final = ("pipeline", "batch", REASON, "queue", "topic", "time", "headers", BODY)


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

    def __init__(self, to: Destination, options: Mapping[str, str], section: str) -> None:
        assert to.mq is not None
        self._to = to
        self._section = section
        self._options = {**options, "persistence": to.mq.persistence}

    def columns(self, frame: DataFrame) -> DataFrame:
        return messages(frame, self._to, self._section)

    def check(self, frame: DataFrame) -> None:
        MqDataSource({**self._options}).writer(self.columns(frame).schema, False)

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        write_messages(self.columns(frame), self._options, writer, epoch)
        return 0


class TopicSink(Sink):
    """Topics at a broker."""

    exactly_once = False

    def __init__(self, to: Destination, environment: PipelineEnvironment, section: str) -> None:
        self._to = to
        self._section = section
        self._options = environment.broker(to.link) | {"qos": str(to.qos), "retain": str(to.retain).lower()}

    def columns(self, frame: DataFrame) -> DataFrame:
        return publications(frame, self._to, self._section)

    def check(self, frame: DataFrame) -> None:
        MqttDataSource({**self._options}).writer(self.columns(frame).schema, False)

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        publish(self.columns(frame), self._options, writer, epoch)
        return 0


class TableSink(Sink):
    """A format of Spark; `archive` is Parquet, partitioned by date and hour."""

    def __init__(self, to: Destination) -> None:
        self._archive = to.archive is not None
        self._format = to.format or "parquet"
        path = to.archive or to.path
        self._path = path.absolute() if isinstance(path, Path) else path
        self._options = to.options
        self._secrets = to.secrets
        self._partition_by = [DATE, HOUR] if self._archive else to.partition_by
        #: whether the driver moves the files of a batch into place
        self._files = self._archive or to.writes_files
        self.exactly_once = self._files or to.writes_format_once

    def columns(self, frame: DataFrame) -> DataFrame:
        if not self._archive:
            return table_rows(frame)
        if clash := [name for name in (DATE, HOUR) if name in frame.columns]:
            raise OptionError(f"an archive has the columns {DATE} and {HOUR}: name the column {clash[0]} otherwise")
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


class DescribedSink(Sink):
    """Another sink for source rows, with columns that tell where the rows come from."""

    is_table = True

    def __init__(self, sink: Sink, added: Mapping[str, Any], chosen: tuple[str, ...] = ()) -> None:
        self._sink = sink
        self._added = added
        self._chosen = chosen
        self.exactly_once = sink.exactly_once

    def columns(self, frame: DataFrame) -> DataFrame:
        return self._sink.columns(self._described(frame, 0))

    def write(self, frame: DataFrame, writer: str, epoch: int) -> int:
        return self._sink.write(self._described(frame, epoch), writer, epoch)

    def _described(self, frame: DataFrame, epoch: int) -> DataFrame:
        body = body_of(frame)
        made = frame.withColumns({name: f.lit(value) for name, value in self._added.items()})
        made = made.withColumn("batch", f.lit(epoch).cast("bigint"))
        if not self._chosen:
            return made
        time = next(name for name in TIMES if name in frame.columns)
        columns: dict[str, Column] = {name: f.col(name) for name in made.columns}
        columns |= {"time": f.col(time), BODY: f.lit(None).cast("binary") if body is None else body}
        return made.select(*(columns.get(name, f.lit(None).cast("string")).alias(name) for name in self._chosen))


def write_messages(frame: DataFrame, options: Mapping[str, str], writer: str, epoch: int) -> None:
    """Put messages, each (writer, epoch) once."""
    frame.write.format("mq").options(**options).options(writeId=writer, epoch=epoch).mode("append").save()


def publish(frame: DataFrame, options: Mapping[str, str], writer: str, epoch: int) -> None:
    """Publish. A batch that runs again repeats the names of its rows (user property mqbridge-row)."""
    frame.write.format("mqtt").options(**options).option("writeId", f"{writer}-{epoch}").mode("append").save()


def sinks_of(to: Destination, environment: PipelineEnvironment, section: str) -> list[Sink]:
    """Return the destinations of a section of a pipeline."""
    sinks: list[Sink] = []
    if to.mq is not None:
        sinks.append(QueueSink(to, environment.queue_manager, section))
    if to.archive is not None:
        sinks.append(TableSink(to.model_copy(update={"format": None})))
    if to.format is not None:
        sinks.append(TableSink(to.model_copy(update={"archive": None})))
    if to.mqtt is not None:
        sinks.append(TopicSink(to, environment, section))
    return sinks


def mapping_sink(
    name: str, mapping: ToMqMapping | ToMqttMapping, queue_manager: str, environment: PipelineEnvironment, letters: str
) -> Sink:
    """Return the destination that a mapping specifies; `letters` is the dead-letter queue."""
    if isinstance(mapping, ToMqMapping):
        return MappingToQueue(name, mapping, queue_manager, environment.queue_manager | {"refused": letters})
    queue = environment.queue_manager | {"queue": letters, "refused": letters}
    return MappingToTopic(name, mapping, queue_manager, environment.broker(mapping.destination.link), queue)


def dead_letter_sink(name: str, config: PipelineConfig, environment: PipelineEnvironment) -> Sink:
    """Return the destination of the dead letters of a pipeline: source rows with the column `reason`."""
    to = config.dead_letters
    if not to.kinds or to.kinds == ["mq"]:
        queue = to.queue_name or environment.dead_letter_queue
        return DeadLetterQueue(environment.queue_manager | {"queue": queue, "refused": queue})
    (sink,) = sinks_of(to, environment, "dead_letters")
    return sink if to.archive is not None else DescribedSink(sink, {"pipeline": name}, LETTER_COLUMNS)


def late_sink(name: str, to: Destination, environment: PipelineEnvironment) -> Sink:
    """Return the destination of late rows, which tables get with the columns `pipeline`, `batch` and `watermark`."""
    (sink,) = sinks_of(to, environment, "late")
    return DescribedSink(sink, {"pipeline": name}) if to.archive is not None or to.format is not None else sink


def _as(frame: DataFrame, payload: str) -> DataFrame:
    """Return the columns of a SELECT that a mapping reads, the message itself as `payload` or `body`. Raises OptionError."""
    reads = set(OF_PUBLICATIONS if payload == PAYLOAD else (*OF_MESSAGES, "headers", "format", "ccsid", "encoding"))
    if (body := body_of(frame)) is None:
        raise OptionError("select must return a column body or payload (binary or string), which the mapping reads")
    if payload == PAYLOAD and "topic" not in frame.columns:
        raise OptionError("select must return a column topic (string), which the mapping reads")
    names = [name for name in frame.columns if name in reads and name not in (BODY, PAYLOAD)]
    return frame.select(*names, body.alias(payload))
