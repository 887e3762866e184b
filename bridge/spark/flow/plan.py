"""A pipeline of the configuration file as a streaming frame: its source, checked payloads, its SELECT, its destinations."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bridge.archive.schema import arrow_schema
from bridge.config import PipelineConfig
from bridge.spark.flow.changes import only_changes
from bridge.spark.flow.columns import as_documents, as_text, documents, routed, unknown_columns
from bridge.spark.flow.destinations import destination_options, format_routes, mapped_rows
from bridge.spark.flow.environment import CHECKPOINT, STAGING, PipelineEnvironment
from bridge.spark.flow.input_table import INPUT, counted, payloads_of
from bridge.spark.flow.judgement import is_repeatable, judge
from bridge.spark.flow.late_destination import late_destination
from bridge.spark.flow.left_dead_letters import left_dead_letters
from bridge.spark.flow.log import silence
from bridge.spark.flow.logical_plan import parsed
from bridge.spark.flow.mistake import Mistake, mistakes_at
from bridge.spark.flow.reach import check_reach
from bridge.spark.flow.sink import (
    MQTT,
    Behind,
    FormatRoute,
    Route,
    routes_of,
)
from bridge.spark.flow.sources.mq import PipelineMqSource, mq_source_options
from bridge.spark.flow.sources.mqtt import PipelineMqttSource, mqtt_source_options
from bridge.spark.flow.state_schema import check_state
from bridge.spark.registration import make_known

#: Name of the observation of what goes out.
MADE: Final = "made"
_planning: Final = threading.Lock()


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
    #: what is written behind these: late rows, dead letters
    behind: Sequence[Behind]


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
        payloads = payloads_of(spark, raw, name, config, environment, directory)
        config = payloads.config
        made = selected = _selected(spark, payloads.input_of(raw), config)
        if config.changes is not None:
            texts = documents(made)
            with mistakes_at(("changes",), "columns of the SELECT"):
                made = as_documents(only_changes(as_text(made, texts), config.changes), texts)
        to = config.destination
        if to is None:
            frame, options = mapped_rows(made, name, config, environment, directory)
            frame = counted(frame, MADE)
        else:
            with mistakes_at(("to",), "a destination"):
                frame = routed(counted(made, MADE), to)
                if lost := unknown_columns(made, to):
                    raise Mistake(("select",), "only columns of the message beside body or payload", ", ".join(lost))
                options = destination_options(name, config, to, environment, directory)
        with mistakes_at(("mapping" if to is None else "to",), "a destination"):
            routes: list[Route | FormatRoute] = [*routes_of(options, frame.schema)]
            routes += [] if to is None else format_routes(spark, to)
        with mistakes_at(("select",), "a SELECT that runs in streams", config.select):
            judge(selected, config)
            _check_streaming(spark, frame)
        late = late_destination(selected, raw, payloads, name, environment, directory)
        left = left_dead_letters(spark, name, config.dead_letters, environment, directory)
        behind: list[Behind] = [one for one in (late, left) if one is not None]
        repeatable = config.changes is None and is_repeatable(selected, {route.kind for route in routes})
        staging = None if repeatable else directory / STAGING
        check_reach(config, environment, directory, frame, options.get(MQTT), staging)
        check_state(spark, name, frame, directory / CHECKPOINT)
    return Plan(name, config, environment, directory, frame, routes, staging, behind)


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
