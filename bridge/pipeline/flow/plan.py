"""A pipeline of the configuration file as a streaming frame: its source, checked payloads, its SELECT, its destinations."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, StringType

from bridge.archive.schema import arrow_schema
from bridge.config import PipelineConfig
from bridge.config.link import LOCAL
from bridge.pipeline.flow.bad_rows import diverted_rows
from bridge.pipeline.flow.bad_rows.dead_letters import BadPayloads
from bridge.pipeline.flow.bad_rows.payload import BODY, PAYLOAD, REASON, casts, declared, fault, is_read, text_of
from bridge.pipeline.flow.changes import only_changes
from bridge.pipeline.flow.columns import as_documents, as_text, documents, routed, unknown_columns
from bridge.pipeline.flow.destinations import dead_letter_options, destination_options, format_routes, mapped_rows
from bridge.pipeline.flow.environment import CHECKPOINT, STAGING, PipelineEnvironment
from bridge.pipeline.flow.event_time import with_watermark
from bridge.pipeline.flow.judgement import is_repeatable, judge
from bridge.pipeline.flow.log import silence
from bridge.pipeline.flow.logical_plan import parsed
from bridge.pipeline.flow.mistake import Mistake, mistakes_at
from bridge.pipeline.flow.reach import check_reach
from bridge.pipeline.flow.sink import (
    MQTT,
    FormatRoute,
    Route,
    dead_letter_sink_of,
    routes_of,
)
from bridge.pipeline.flow.sources.mq import PipelineMqSource, mq_source_options
from bridge.pipeline.flow.sources.mqtt import PipelineMqttSource, mqtt_source_options
from bridge.pipeline.flow.state_schema import check_state
from bridge.pipeline.registration import make_known

INPUT: Final = "input"
#: Directory of a pipeline where the batch under way is kept.
#: Names of observations: what came in, and what goes out.
TAKEN: Final = "taken"
MADE: Final = "made"
#: Name of the observation that has, as `WHY`, what is wrong with one of the payloads that are bad, as far as Spark can tell.
FOUND: Final = "found"
WHY: Final = "why"
_planning: Final = threading.Lock()
_COUNT: Final = "rows"


class Plan(msgspec.Struct, frozen=True):
    """A pipeline that can be started."""

    name: str
    config: PipelineConfig
    environment: PipelineEnvironment
    #: where it keeps how far it is
    directory: Path
    frame: DataFrame
    #: destinations, in the order in which they are written to
    routes: Sequence[Route | FormatRoute]
    #: where a batch is kept before it is written; None where it comes out the same when it is run again
    staging: Path | None


def register(spark: SparkSession) -> None:
    """Make the sources of pipelines known to a session, and have it print nothing of errors."""
    silence(spark)
    make_known(spark, PipelineMqSource, PipelineMqttSource)


def plan(spark: SparkSession, name: str, config: PipelineConfig, environment: PipelineEnvironment) -> Plan:
    """Return the Plan of a pipeline, analysed by Spark; nothing is connected or started. Raises Mistake."""
    directory = environment.directory_of(name, config)
    # Each pipeline has an `input`, and tables, of its own, but there is one session, and one of each name in it.
    with names(spark, config):
        for table, path in config.tables.items():
            with mistakes_at(("tables", table), "a table"):
                table_of(spark, path).createOrReplaceTempView(table)
        with mistakes_at(("select",), "a SELECT of Spark SQL", config.select):
            # A query and nothing else: spark.sql would run a CREATE or INSERT at once.
            parsed(spark, config.select)
        raw = _source(spark, name, config, environment)
        config = _with_payload(spark, raw, config)
        checked = _checked(spark, raw, name, config, environment, directory)
        made = selected = _selected(spark, checked, config)
        if config.changes is not None:
            texts = documents(made)
            with mistakes_at(("changes",), "columns of the SELECT"):
                made = as_documents(only_changes(as_text(made, texts), config.changes), texts)
        to = config.destination
        if to is None:
            frame, options = mapped_rows(made, name, config, environment, directory)
            frame = _counted(frame, MADE)
        else:
            with mistakes_at(("to",), "a destination"):
                frame = routed(_counted(made, MADE), to)
                if lost := unknown_columns(made, to):
                    raise Mistake(("select",), "only columns of the message beside body or payload", ", ".join(lost))
                options = destination_options(name, config, to, environment, directory)
        with mistakes_at(("mapping" if to is None else "to",), "a destination"):
            routes: list[Route | FormatRoute] = [*routes_of(options, frame.schema)]
            routes += [] if to is None else format_routes(spark, to)
        with mistakes_at(("select",), "a SELECT that runs in streams", config.select):
            judge(selected, config)
            _check_streaming(spark, frame)
        repeatable = config.changes is None and is_repeatable(selected, {route.kind for route in routes})
        staging = None if repeatable else directory / STAGING
        check_reach(config, environment, directory, frame, options.get(MQTT), staging)
        check_state(spark, name, frame, directory / CHECKPOINT)
    return Plan(name, config, environment, directory, frame, routes, staging)


@contextmanager
def names(spark: SparkSession, config: PipelineConfig) -> Iterator[None]:
    """Have the names of `input` and of the tables be this pipeline's in the block.

    A frame that was made needs them no more.
    """
    with _planning:
        try:
            yield
        finally:
            for name in (INPUT, *config.tables):
                spark.catalog.dropTempView(name)


# Sources -------------------------------------------------------------------------------------------------------------


def table_of(spark: SparkSession, path: Path) -> DataFrame:
    """Return a reference table."""
    if path.suffix == ".csv":
        return spark.read.csv(str(path), header=True, inferSchema=True)
    return spark.read.json(str(path)) if path.suffix == ".json" else spark.read.parquet(str(path))


def _source(spark: SparkSession, name: str, config: PipelineConfig, environment: PipelineEnvironment) -> DataFrame:
    """Return the frame that is read."""
    source = config.source
    if source.archive is not None:
        with mistakes_at(("from", "archive"), "a directory of Parquet files"):
            return _archive(spark, source.archive)
    options = environment.source_options(name, config)
    side, check = ("mq", mq_source_options) if source.mq is not None else ("mqtt", mqtt_source_options)
    with mistakes_at(("from", side), "a queue or topic" if source.mq is not None else "a topic filter"):
        check({name: one for name, one in options.items() if name not in source.options})
    with mistakes_at(("from", "options"), "options of the source"):
        check(options)
    kind = PipelineMqSource if source.mq is not None else PipelineMqttSource
    return spark.readStream.format(kind.name()).options(**options).load()


def _archive(spark: SparkSession, path: Path) -> DataFrame:
    """Return a stream of Parquet files, with the schema of those that are there already, else of the bridge's archive."""
    if not path.is_dir():
        raise Mistake(("from", "archive"), "a directory that is there")
    found = any(path.glob("**/*.parquet"))
    schema = spark.read.parquet(str(path)).schema if found else from_arrow_schema(arrow_schema())
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 100).parquet(str(path))


# Payloads ------------------------------------------------------------------------------------------------------------


def payload_column(frame: DataFrame) -> str | None:
    """Return the column of a source that has payloads."""
    for name in (BODY, PAYLOAD):
        if name in frame.columns and isinstance(frame.schema[name].dataType, BinaryType | StringType):
            return name
    return None


def _with_payload(spark: SparkSession, raw: DataFrame, config: PipelineConfig) -> PipelineConfig:
    """Return the configuration, with payloads of bytes where they may be anything.

    A payload that nobody has called JSON, and that the SELECT does not read, may be anything.
    """
    column = payload_column(raw)
    said = config.model_fields_set & {"payload", "fields"}
    if column is None or said or is_read(spark, raw, column, config.select, INPUT):
        return config
    return config.model_copy(update={"payload": "bytes"})


def _checked(
    spark: SparkSession,
    raw: DataFrame,
    name: str,
    config: PipelineConfig,
    environment: PipelineEnvironment,
    directory: Path,
) -> DataFrame:
    """Return what the SELECT has as `input`: the rows whose payload is good, `payload` as the section `payload` says."""
    column = payload_column(raw)
    diverted = diverted_rows.load(directory)
    if column is None or (config.payload == "bytes" and not diverted.rows):
        return input_of(_counted(raw, TAKEN), column, config)
    with mistakes_at(("dead_letters",), "a queue"):
        dead_letters = dead_letter_sink_of(dead_letter_options(name, config, environment, named=False))
    judge = BadPayloads(name, column, config.payload, dead_letters.options, dead_letters.directory, diverted)
    seen = judged(spark, raw, column, config).observe(FOUND, f.min(REASON).alias(WHY))
    good = seen.mapInArrow(judge, raw.schema)
    return input_of(_counted(good, TAKEN), column, config)


def _counted(frame: DataFrame, observation: str) -> DataFrame:
    return frame.observe(observation, f.count(f.lit(1)).alias(_COUNT))


def judged(spark: SparkSession, raw: DataFrame, column: str, config: PipelineConfig) -> DataFrame:
    """Return the rows of a source with a column `reason`: what is wrong with the payload, as far as Spark can tell."""
    fields = {}
    if config.payload == "json":
        fields = declared(config.fields)
        input_of(raw, column, config).createOrReplaceTempView(INPUT)
        with mistakes_at(("select",), "a SELECT of Spark SQL", config.select):
            fields |= casts(_analysed(spark, config.select))
    return raw.withColumn(REASON, f.expr(fault(raw.columns, column, config.payload, fields)))


def input_of(frame: DataFrame, column: str | None, config: PipelineConfig) -> DataFrame:
    """Return a frame with `payload` as the section `payload` says it, `body` its bytes, and a watermark. Raises Mistake.

    For a mapping, `client_id` is the link, as the service has it of publications that tell no other: not the session here.
    """
    if config.mapping is not None and config.source.mqtt is not None:
        publisher = None if config.source.link == LOCAL else config.source.link
        frame = frame.withColumn("client_id", f.lit(publisher).cast("string"))
    if column is None:
        return with_watermark(frame, config)
    text = text_of(frame.columns, column)
    payload = {"json": f"try_parse_json({text})", "text": text, "bytes": column}[config.payload]
    columns = [f.col(column).alias(BODY), f.expr(payload).alias(PAYLOAD)]
    made = frame.select(*(name for name in frame.columns if name not in (BODY, PAYLOAD)), *columns)
    return with_watermark(made, config)


def _analysed(spark: SparkSession, select: str) -> str:
    return str(spark.sql(select)._jdf.queryExecution().analyzed().toString())


# SQL -----------------------------------------------------------------------------------------------------------------


def _selected(spark: SparkSession, checked: DataFrame, config: PipelineConfig) -> DataFrame:
    checked.createOrReplaceTempView(INPUT)
    with mistakes_at(("select",), "a SELECT of Spark SQL", config.select):
        made = spark.sql(config.select)
    if not made.isStreaming:
        raise Mistake(("select",), f"a SELECT that reads the table {INPUT}")
    if double := sorted({one for one in made.columns if made.columns.count(one) > 1}):
        raise Mistake(("select",), "columns of different names", f"{double[0]} twice")
    return made


def _check_streaming(spark: SparkSession, frame: DataFrame) -> None:
    """Check for what Spark refuses of a stream only when it starts. Raises AnalysisException."""
    jvm: Any = spark._jvm
    mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    analyzed = frame._jdf.queryExecution().analyzed()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(analyzed, mode)
