"""A YAML pipeline as a streaming query: source, table `input`, SELECT, destinations.

A SELECT that keeps no state runs in `foreachBatch`, over the rows of the batch. The query itself only reads the source. So a
batch is read once, and again only if it has dead letters. A SELECT that keeps state (windows, joins of streams, changes) is
part of the query. The query then returns a union: rows of the SELECT, dead letters, and the rows that may be late.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bridge.archive.completeness import losses
from bridge.archive.schema import arrow_schema
from bridge.config.document import load
from bridge.config.pipeline import LateConfig, PipelineConfig
from bridge.config.problems import ConfigurationError
from bridge.config.record import RecordPayloadConfig
from bridge.mapping.rule import rule_of
from bridge.spark import MqDataSource, MqttDataSource
from bridge.spark.administration import CompletedBatch
from bridge.spark.changes import only_changes
from bridge.spark.dead_letter_limits import DeadLetterLimits
from bridge.spark.destinations import (
    BODY,
    PAYLOAD,
    REASON,
    DeadLetterPlace,
    Sink,
    dead_letter_place,
    dead_letter_sink,
    late_sink,
    mapping_sink,
    quoted,
    sinks_of,
    table_rows,
)
from bridge.spark.environment import CHECKPOINT, SPOOL, PipelineEnvironment
from bridge.spark.failures import Mistake, SettingsChanged, mistakes_at, query_failure_of
from bridge.spark.input_table import InputTable, input_table
from bridge.spark.internals import check_sql, check_streaming, columns_read, dropping_clause, has_format, keeps_state
from bridge.spark.record import RecordFunctions
from bridge.spark.validation import Validation, record_validation, recorded_validation

INPUT: Final = "input"
#: Name of the observation of the rows that a stateful query reads.
TAKEN: Final = "taken"
#: Branches of the union that a stateful query returns, and the latest time at which a late row would have been included.
_ROW, _DEAD, _LATE, _LATE_END = "row", "dead", "late", "late_end"
#: The column of late rows in an archive with the time of the watermark.
WATERMARK: Final = "watermark"
#: Seconds to wait for an observation. Spark never reports an observation whose rows the optimizer has removed.
_OBSERVATION_TIMEOUT: Final = 5.0
#: Number of batches whose counts are kept.
_REMEMBERED: Final = 100
_planning: Final = threading.Lock()


class Pipeline(msgspec.Struct, frozen=True):
    """A pipeline that can be started."""

    name: str
    config: PipelineConfig
    #: its checkpoint, spool and status
    directory: Path
    #: the rows that the query returns
    frame: DataFrame
    table: InputTable
    validation: Validation
    stateful: bool
    #: reference tables by name
    tables: dict[str, DataFrame]
    sinks: Sequence[Sink]
    dead_letters: Sink
    late: Sink | None
    #: messages travel with the tasks
    embeds: bool
    #: None: dead letters go to an archive
    dead_letter_limits: DeadLetterLimits | None

    @property
    def checkpoint(self) -> Path:
        """The directory of Spark's checkpoint."""
        return self.directory / CHECKPOINT

    def writers(self, query: str) -> dict[str, Sink]:
        """Return all destinations by the names under which a query writes to them."""
        sinks: dict[str, Sink | None] = {f"{query}-{index}": sink for index, sink in enumerate(self.sinks)}
        sinks |= {f"{query}-dead": self.dead_letters, f"{query}-late": self.late}
        return {name: sink for name, sink in sinks.items() if sink is not None}

    @property
    def at_least_once(self) -> bool:
        """Whether a destination may receive a batch twice after a crash."""
        return not all(sink.exactly_once for sink in (*self.sinks, self.dead_letters, self.late) if sink is not None)


def plan(
    spark: SparkSession, name: str, config: PipelineConfig, environment: PipelineEnvironment, *, reads: bool = True
) -> Pipeline:
    """Return a pipeline, analysed by Spark. Nothing is started. Raises Mistake.

    `reads`: create the real source, which starts a Python process. Otherwise, a source with the same columns replaces it.
    """
    directory = environment.directory_of(name, config)
    source = _source(spark, name, config, environment, reads=reads)
    tables = {}
    for key, path in config.tables.items():
        with mistakes_at(("tables", key), "a table"):
            tables[key] = _table_of(spark, path)
    with _names(spark, tables):
        if config.select is not None:
            with mistakes_at(("select",), "a SELECT of Spark SQL", config.select):
                check_sql(spark, config.select)
        kind = _payload_kind(spark, source, config)
        table = input_table(source, config, kind, _record_functions(spark, config))
        selected = _selected_stream(spark, source, table, config)
        stateful = keeps_state(selected)
        if stateful:
            # The SELECT reads each row of the source, and so do the branches of dead letters and late rows.
            # Without aliases, a join of `input` with itself would create a second source, which could not open the queue.
            aliased = source.select(*(f.col(quoted(name)).alias(name) for name in source.columns))
            observed_rows = aliased.observe(TAKEN, f.count(f.lit(1)).alias("rows"))
            good = observed_rows if table.fault is None else observed_rows.where(f"{table.fault} IS NULL")
            selected = _selected_stream(spark, good, table, config)
            frame = _union(selected, observed_rows, good, table, config)
        else:
            former = recorded_validation(directory) if reads else None
            # A batch that is finished as it began may have dead letters, which need all columns.
            prunes = reads and table.fault is None and (former is None or former.fault is None)
            frame = _pruned(spark, source, table, config) if prunes else source
    if not stateful and config.late is not None:
        raise Mistake(("late",), "no late, because select keeps no state and no row is late")
    environment = environment.staged(directory)
    place = dead_letter_place(name, config, environment)
    sinks = _sinks(spark, config, environment, place, selected)
    letters = dead_letter_sink(environment, place)
    late = None if config.late is None else late_sink(config, environment, place)
    if table.fault is not None:
        with mistakes_at(("dead_letters",), "a destination"):
            letters.check(source.withColumn(REASON, f.lit("")))
    if late is not None:
        with mistakes_at(("late",), "a destination"):
            late.check(source.withColumn(WATERMARK, f.current_timestamp()) if late.is_table else source)
    for location, expected, actual in environment.unreachable(config, directory, stateful=stateful):
        raise Mistake(location, expected, actual)
    embeds = environment.embeds(name, config)
    validation = Validation(table.fault, kind, dict(config.fields))
    return Pipeline(
        name,
        config,
        directory,
        frame,
        table,
        validation,
        stateful,
        tables,
        sinks,
        letters,
        late,
        embeds,
        place.limits,
    )


@contextmanager
def _names(spark: SparkSession, tables: dict[str, DataFrame]) -> Iterator[None]:
    """Give `input` and the reference tables the names of one pipeline while it is planned."""
    with _planning:
        try:
            for name, table in tables.items():
                table.createOrReplaceTempView(name)
            yield
        finally:
            for name in (INPUT, *tables):
                spark.catalog.dropTempView(name)


# Source --------------------------------------------------------------------------------------------------------------


def _table_of(spark: SparkSession, path: Path) -> DataFrame:
    if path.suffix == ".csv":
        return spark.read.csv(str(path), header=True, inferSchema=True)
    return spark.read.json(str(path)) if path.suffix == ".json" else spark.read.parquet(str(path))


def _source(
    spark: SparkSession, name: str, config: PipelineConfig, environment: PipelineEnvironment, *, reads: bool
) -> DataFrame:
    source = config.source
    if source.archive is not None:
        if reads:
            for loss in losses(source.archive):
                raise Mistake(("from", "archive"), "a complete archive", f"{loss.text}; see `mqbridge data verify`")
        with mistakes_at(("from", "archive"), "a directory of Parquet files"):
            return _archive(spark, source.archive)
    options = environment.source_options(name, config)
    kind, data_source = ("mq", MqDataSource) if source.mq is not None else ("mqtt", MqttDataSource)
    place = ("from", "options") if source.options else ("from", kind)
    with mistakes_at(place, "a queue or topic" if kind == "mq" else "a topic filter"):
        schema = data_source(options).schema()
        assert isinstance(schema, StructType)
        if reads:
            return spark.readStream.format(kind).options(**options).load()
    rows = spark.readStream.format("rate").load()
    return rows.select(*(f.lit(None).cast(field.dataType).alias(field.name) for field in schema))


def _archive(spark: SparkSession, path: Path) -> DataFrame:
    """Return a stream of Parquet files. The schema is that of existing files, otherwise of the bridge's archive."""
    if not path.is_dir():
        raise Mistake(("from", "archive"), "an existing directory", str(path))
    some = any(path.glob("**/*.parquet"))
    schema = spark.read.parquet(str(path)).schema if some else from_arrow_schema(arrow_schema())
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 100).parquet(str(path))


# SELECT --------------------------------------------------------------------------------------------------------------


def _selected_stream(spark: SparkSession, rows: DataFrame, table: InputTable, config: PipelineConfig) -> DataFrame:
    """Return the streaming frame of the SELECT and of `changes`. Raises Mistake."""
    input_rows = table.of(rows)
    if config.select is None:
        selected = _default(input_rows, table, config)
    else:
        with mistakes_at(("select",), "a SELECT of Spark SQL", config.select):
            try:
                table.with_watermark(input_rows).createOrReplaceTempView(INPUT)
                selected = spark.sql(config.select)
            except PySparkException:
                # A WATERMARK clause of the SELECT replaces ours. Spark accepts only one.
                input_rows.createOrReplaceTempView(INPUT)
                selected = spark.sql(config.select)
        if not selected.isStreaming:
            raise Mistake(("select",), f"a SELECT that reads the table {INPUT}")
        if twice := sorted({name for name in selected.columns if selected.columns.count(name) > 1}):
            raise Mistake(("select",), "columns of different names", f"{twice[0]} twice")
        if (clause := dropping_clause(selected)) is not None:
            raise Mistake(("select",), "a SELECT without clauses that silently drop rows", clause)
    if config.changes is not None:
        with mistakes_at(("changes",), "columns of the SELECT"):
            selected = only_changes(table_rows(selected), config.changes)
    with mistakes_at(("select",), "a SELECT that runs in streams", config.select):
        check_streaming(selected)
    return selected


def _default(table_: DataFrame, table: InputTable, config: PipelineConfig) -> DataFrame:
    """Return all columns: without a SELECT, bytes that are not declared as JSON or text are only in `body`."""
    drops = table.payload is not None and table.payload == table.column and config.mapping is None
    return table_.drop(PAYLOAD) if drops else table_


def _record_functions(spark: SparkSession, config: PipelineConfig) -> RecordFunctions | None:
    """Return the functions for the records that a pipeline reads, or None. Raises Mistake."""
    if not isinstance(config.payload, RecordPayloadConfig):
        return None
    with mistakes_at(("payload",), "a copybook and options that fit it"):
        return RecordFunctions(spark, config.payload)


def _payload_kind(spark: SparkSession, source: DataFrame, config: PipelineConfig) -> str:
    """Return the type of the column `payload`: bytes if nothing declares it and the SELECT does not read it."""
    if config.model_fields_set & {"payload", "fields"}:
        return config.payload_type
    if config.select is None:
        return "bytes"
    table = input_table(source, config, config.payload_type)
    if table.column is None:
        return config.payload_type
    return config.payload_type if PAYLOAD in _read_by(spark, table.of(source), config.select) else "bytes"


def _read_by(spark: SparkSession, rows: DataFrame, select: str) -> set[str]:
    """Return the columns of `input` that the SELECT reads, or all of them if it cannot be analysed."""
    try:
        rows.createOrReplaceTempView(INPUT)
        return columns_read(spark.sql(select), INPUT)
    except PySparkException:  # reported when the SELECT is checked
        return set(rows.columns)


def _pruned(spark: SparkSession, source: DataFrame, table: InputTable, config: PipelineConfig) -> DataFrame:
    """Return the columns of the source that the SELECT reads."""
    if config.select is None:
        return source
    needed = {*_read_by(spark, table.of(source), config.select), *([table.column] if table.column else [])}
    if table.event_time is not None:
        needed.add(table.event_time[1])
    return source.select(*(quoted(name) for name in source.columns if name in needed))


def _union(
    selected: DataFrame, observed_rows: DataFrame, good: DataFrame, table: InputTable, config: PipelineConfig
) -> DataFrame:
    """Return the rows of the SELECT, the dead letters, and the rows that may be late, each in a separate struct."""
    frame = selected.select(f.struct("*").alias(_ROW))
    if table.fault is not None:
        dead = observed_rows.withColumn(REASON, f.expr(table.fault)).where(f"{REASON} IS NOT NULL")
        frame = frame.unionByName(dead.select(f.struct("*").alias(_DEAD)), allowMissingColumns=True)
    if config.late is not None and table.event_time is not None:
        late = good.select(
            f.struct(*good.columns).alias(_LATE), _late_end(table.event_time[0], config.late).alias(_LATE_END)
        )
        frame = frame.unionByName(late.where(f"{_LATE_END} IS NOT NULL"), allowMissingColumns=True)
    return frame


def _late_end(event_time: str, late: LateConfig) -> Column:
    """Return the end of the last window that a row belongs to, in milliseconds since 1970."""
    at = f.unix_millis(f.expr(event_time))
    window, slide = round(late.window * 1000), round((late.slide or late.window) * 1000)
    return at if not window else at - f.pmod(at, f.lit(slide)) + f.lit(window)


# Destinations --------------------------------------------------------------------------------------------------------


def _sinks(
    spark: SparkSession,
    config: PipelineConfig,
    environment: PipelineEnvironment,
    letters: DeadLetterPlace,
    selected: DataFrame,
) -> list[Sink]:
    """Return the destinations, checked against the columns of the SELECT. Raises Mistake."""
    to = config.destination
    if to is None:
        sinks = [_mapping(config, environment, letters)]
        place = "mapping"
    else:
        if to.format is not None and not has_format(spark, to.format):
            raise Mistake(("to", "format"), "a format that this Spark has (--packages adds others)", repr(to.format))
        sinks, place = sinks_of(config, environment, letters), "to"
    with mistakes_at((place,), "a destination"):
        for sink in sinks:
            sink.check(selected)
    return sinks


def _mapping(config: PipelineConfig, environment: PipelineEnvironment, letters: DeadLetterPlace) -> Sink:
    assert environment.file is not None and config.mapping is not None
    try:
        configuration = load(environment.file)
    except ConfigurationError as error:
        raise Mistake(("mapping",), f"the name of a mapping; the file has mistakes now: {error}") from error
    if config.mapping not in configuration.mappings:
        raise Mistake(("mapping",), "the name of a mapping of the file", repr(config.mapping))
    if config.dead_letters.archive is not None:
        raise Mistake(("dead_letters",), "a queue, because the mapping dead-letters messages", "archive")
    mapping, queue_manager = configuration.mappings[config.mapping], configuration.queue_manager.name
    with mistakes_at(("mapping",), "a mapping"):
        rule_of(config.mapping, mapping, queue_manager)
    return mapping_sink(config.mapping, mapping, queue_manager, environment, letters)


# A row on which the SELECT fails -------------------------------------------------------------------------------------


def failing_message(spark: SparkSession, pipeline: Pipeline) -> str:
    """Return the first message in the spool for which the SELECT cannot be computed, in words. "": not found.

    The spool still contains the segments of a failed batch. A segment is divided in halves until one row is left.
    """

    def fails(rows: pa.Table) -> bool:
        with _names(spark, pipeline.tables):
            frame = spark.createDataFrame(rows)
            good = frame if pipeline.table.fault is None else frame.where(f"{pipeline.table.fault} IS NULL")
            pipeline.table.of(good).createOrReplaceTempView(INPUT)
            try:
                spark.sql(str(pipeline.config.select)).write.format("noop").mode("overwrite").save()
            except PySparkException as error:
                return query_failure_of(error).data
        return False

    for segment in sorted((pipeline.directory / SPOOL).glob("*/*.arrow")):
        rows = pa.ipc.open_file(segment.read_bytes()).read_all()
        if not rows.num_rows or not fails(rows):
            continue
        while half := rows.num_rows // 2:
            rows = rows.slice(0, half) if fails(rows.slice(0, half)) else rows.slice(half)
        row = rows.to_pylist()[0]
        msg_id = (row.get("md") or {}).get("MsgId")
        place = f"queue {row.get('queue')}" if msg_id else f"topic {row.get('topic')}, received {row.get('received')}"
        return f"{f'MsgId {msg_id.hex().upper()}' if msg_id else 'publication'} of {place}, in {segment}"
    return ""


# Batches -------------------------------------------------------------------------------------------------------------


class BatchFailed(Exception):
    """A batch failed. `BatchWriter.error` is the reason."""


class BatchWriter:
    """Writes the batches of a pipeline: the function of `foreachBatch`."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        #: the latest batches, by number. `rows_in` is -1 if only Spark's progress contains it
        self.batches: dict[int, CompletedBatch] = {}
        self.error: Exception | None = None
        #: the last batch of former runs
        self._former = last_planned(pipeline.checkpoint)
        self._recorded = recorded_validation(pipeline.directory)
        #: no further batch may begin
        self.stopping = False
        self.busy = False

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Write a batch. Raises BatchFailed."""
        if self.stopping:
            raise BatchFailed("stopped")
        self.busy = True
        try:
            writer = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert writer is not None
            batch = CompletedBatch(epoch)
            limits = self._pipeline.dead_letter_limits
            if limits is not None:
                limits.discarded = 0
            validation = self._validation(writer, epoch)
            if self._pipeline.stateful:
                self._write_stateful(frame, writer, batch)
            else:
                self._write_stateless(frame, writer, batch, validation.fault)
            if limits is not None:
                batch.discarded = limits.discarded
                batch.dead_letters -= limits.discarded
            self.batches[epoch] = batch
            self.batches.pop(epoch - _REMEMBERED, None)
        except Exception as error:
            self.error = error
            raise BatchFailed(type(error).__name__) from None
        finally:
            self.busy = False

    def _validation(self, writer: str, epoch: int) -> Validation:
        """Return the validation of a batch: that of the run that began to write it, otherwise that of this run.

        Raises SettingsChanged.
        """
        pipeline, former = self._pipeline, self._recorded
        if former is not None and former.fault == pipeline.validation.fault:
            return former
        if former is not None and epoch <= self._former:
            begun_states = {sink.has_begun(name, epoch) for name, sink in pipeline.writers(writer).items()}
            if begun_states != {False}:
                # The functions for the former records no longer exist.
                if (
                    pipeline.stateful
                    or True not in begun_states
                    or "record" in (former.payload, pipeline.validation.payload)
                ):
                    raise SettingsChanged(
                        f"batch {epoch} began with other settings ({former}); hint: set them again, finish the batch"
                        f" (mqbridge pipeline run {pipeline.name} --once), and then change them"
                    )
                return former
        record_validation(pipeline.directory, pipeline.validation)
        self._recorded = pipeline.validation
        return pipeline.validation

    def _write_stateless(self, frame: DataFrame, writer: str, batch: CompletedBatch, fault: str | None) -> None:
        observation = Observation()
        judged = frame.withColumn(REASON, f.lit(None).cast("string") if fault is None else f.expr(fault))
        counts = _counts(judged)
        good = judged.observe(observation, *counts).where(f"{REASON} IS NULL").drop(REASON)
        self._write_all(self._selected(good), writer, batch)
        counts_seen = _observed(observation, judged, counts)
        batch.rows_in = counts_seen["rows"]
        self._write_dead(judged.where(f"{REASON} IS NOT NULL"), counts_seen, writer, batch)

    def _selected(self, good: DataFrame) -> DataFrame:
        """Return the rows of the SELECT over a batch. Spark has a separate session for each query."""
        config, table, spark = self._pipeline.config, self._pipeline.table, good.sparkSession
        input_rows = table.of(good)
        if config.select is None:
            return _default(input_rows, table, config)
        input_rows.createOrReplaceTempView(INPUT)
        for name, frame in self._pipeline.tables.items():
            frame.createOrReplaceTempView(name)
        return spark.sql(config.select)

    def _write_all(self, rows: DataFrame, writer: str, batch: CompletedBatch) -> None:
        """Write rows to all destinations. Rows for several destinations are computed once."""
        sinks = self._pipeline.sinks
        if len(sinks) == 1:
            observation, counts = Observation(), [f.count(f.lit(1)).alias("rows")]
            refused = sinks[0].write(rows.observe(observation, *counts), f"{writer}-0", batch.number)
            rows_written = _observed(observation, rows, counts)["rows"]
        else:
            rows.persist()
            try:
                rows_written = rows.count()
                refused = sum(sink.write(rows, f"{writer}-{index}", batch.number) for index, sink in enumerate(sinks))
            finally:
                rows.unpersist()
        batch.rows_out += rows_written - refused
        batch.dead_letters += refused

    def _write_dead(self, rows: DataFrame, counts_seen: dict[str, Any], writer: str, batch: CompletedBatch) -> None:
        """Write dead letters, or discard them if there are too many. `counts_seen` contains their number and size."""
        count, sink, limits = counts_seen["bad"], self._pipeline.dead_letters, self._pipeline.dead_letter_limits
        if not count:
            return
        batch.dead_letters += count
        batch.why = counts_seen["why"]
        name = f"{writer}-dead"
        if limits is None or sink.has_begun(name, batch.number) or limits.admit(count, counts_seen["size"] or 0):
            sink.write(rows, name, batch.number)

    def _write_stateful(self, frame: DataFrame, writer: str, batch: CompletedBatch) -> None:
        pipeline, epoch = self._pipeline, batch.number
        frame.persist()
        try:
            if _DEAD in frame.columns:
                dead = frame.where(f"{_DEAD} IS NOT NULL").select(f"{_DEAD}.*")
                self._write_dead(dead, _counted(dead, _counts(dead)), writer, batch)
            if pipeline.late is not None and (watermark := watermark_for_late_rows(pipeline.checkpoint, epoch)):
                late = frame.where(f"{_LATE} IS NOT NULL AND {_LATE_END} <= {watermark}").select(f"{_LATE}.*")
                if rows := late.count():
                    if pipeline.late.is_table:
                        late = late.withColumn(WATERMARK, f.timestamp_millis(f.lit(watermark)))
                    refused = pipeline.late.write(late, f"{writer}-late", epoch)
                    batch.late = rows
                    batch.dead_letters += refused
            self._write_all(frame.where(f"{_ROW} IS NOT NULL").select(f"{_ROW}.*"), writer, batch)
        finally:
            frame.unpersist()


def last_planned(checkpoint: Path) -> int:
    """Return the number of the last batch in a checkpoint, finished or not, or -1 without batches."""
    return max((int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdecimal()), default=-1)


def watermark_for_late_rows(checkpoint: Path, epoch: int) -> int:
    """Return the watermark, in milliseconds since 1970, below which Spark treats rows of a batch as late, or 0 without one.

    It is that of the previous batch. Spark's checkpoint contains it in the offsets of each batch, and repeats it after a
    crash.
    """
    try:
        lines = (checkpoint / "offsets" / str(epoch - 1)).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[1])["batchWatermarkMs"])


def _counts(frame: DataFrame) -> list[Column]:
    """Return the counts of rows with the column REASON, and the bytes of their messages."""
    body = next((f.octet_length(name) for name in (BODY, PAYLOAD) if name in frame.columns), f.lit(0))
    size = f.sum(f.when(f.col(REASON).isNotNull(), body)).alias("size")
    return [f.count(f.lit(1)).alias("rows"), f.count(REASON).alias("bad"), f.min(REASON).alias("why"), size]


def _counted(frame: DataFrame, counts: Sequence[Column]) -> dict[str, Any]:
    row = frame.agg(*counts).first()
    assert row is not None
    return row.asDict()


def _observed(observation: Observation, frame: DataFrame, counts: Sequence[Column]) -> dict[str, Any]:
    """Return the values of an observation. They are computed again if Spark does not report them."""
    values: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: values.append(observation.get), daemon=True)
    thread.start()
    thread.join(_OBSERVATION_TIMEOUT)
    return values[0] if values else _counted(frame, counts)
