"""A pipeline of the configuration file as a streaming frame: its source, checked payloads, its SELECT, its destinations."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType

from bridge.archive.schema import arrow_schema
from bridge.config import PipelineConfig
from bridge.pipeline.flow.changes import only_changes
from bridge.pipeline.flow.columns import TIMES, as_documents, as_text, documents, routed, unknown_columns
from bridge.pipeline.flow.dead_letters import BadPayloads
from bridge.pipeline.flow.mistake import Mistake, told
from bridge.pipeline.flow.payload import BODY, PAYLOAD, REASON, casts, declared, text_of, wrong_type
from bridge.pipeline.flow.sink import ARCHIVE, MQ, MQTT, PipelineSink, mq_target, routes_of
from bridge.pipeline.flow.site import Site
from bridge.pipeline.flow.source import (
    STOP,
    PipelineMqSource,
    PipelineMqttSource,
    mq_origin,
    mqtt_origin,
)

INPUT: Final = "input"
#: Names of observations: what came in, and what goes out.
TAKEN: Final = "taken"
MADE: Final = "made"
_planning: Final = threading.Lock()
_COUNT: Final = "rows"
_MADE_OF: Final = StructType().add(BODY, BinaryType())


class Plan(msgspec.Struct, frozen=True):
    """A pipeline that can be started."""

    name: str
    config: PipelineConfig
    #: where it keeps how far it is
    directory: Path
    frame: DataFrame
    #: destinations, as the sink takes them
    routes: dict[str, dict[str, str]]


def register(spark: SparkSession) -> None:
    """Make the sources and the sink of pipelines known to a session."""
    for source in (PipelineMqSource, PipelineMqttSource, PipelineSink):
        spark.dataSource.register(source)


def plan(spark: SparkSession, name: str, config: PipelineConfig, site: Site) -> Plan:
    """A pipeline, analysed by Spark; nothing is connected or started. Raises Mistake."""
    directory = site.directory_of(name, config)
    # Each pipeline has an `input`, and tables, of its own, but there is one session, and one of each name in it.
    with _planning, _quiet(), _views(spark, INPUT, *config.tables):
        for table, path in config.tables.items():
            with told(("tables", table), "a table"):
                _table(spark, path).createOrReplaceTempView(table)
        with told(("select",), "a SELECT of Spark SQL", config.select):
            # A query and nothing else: spark.sql would run a CREATE or INSERT at once.
            spark._jsparkSession.sessionState().sqlParser().parseQuery(config.select)
        raw = _source(spark, name, config, site, directory)
        checked = _checked(spark, raw, name, config, site, directory)
        made = _selected(spark, checked, config)
        if config.changes is not None:
            texts = documents(made)
            with told(("changes",), "columns of the SELECT"):
                made = as_documents(only_changes(as_text(made, texts), config.changes), texts)
        observed = made.observe(MADE, f.count(f.lit(1)).alias(_COUNT))
        with told(("to",), "a destination"):
            frame = routed(observed, config.destination)
            if lost := unknown_columns(made, config.destination):
                raise Mistake(("select",), "only columns of the message beside body or payload", ", ".join(lost))
            routes = _routes(config, site, directory)
            routes_of(routes, frame.schema)
        with told(("select",), "a SELECT that runs in streams", config.select):
            _check_streaming(spark, frame)
    return Plan(name, config, directory, frame, routes)


@contextmanager
def _views(spark: SparkSession, *names: str) -> Iterator[None]:
    """While in it there may be views of these names; a frame that was made of them needs them no more."""
    try:
        yield
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Spark logs each error of a query with its plan, which is told in words here."""
    log = logging.getLogger("SQLQueryContextLogger")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


# Sources -------------------------------------------------------------------------------------------------------------


def _table(spark: SparkSession, path: Path) -> DataFrame:
    if path.suffix == ".csv":
        return spark.read.csv(str(path), header=True, inferSchema=True)
    return spark.read.json(str(path)) if path.suffix == ".json" else spark.read.parquet(str(path))


def _source(spark: SparkSession, name: str, config: PipelineConfig, site: Site, directory: Path) -> DataFrame:
    """The frame that is read."""
    source = config.source
    options = {STOP: str(directory), "maxMessagesPerTrigger": str(config.batch)}
    if source.archive is not None:
        with told(("from", "archive"), "a directory of Parquet files"):
            return _archive(spark, source.archive)
    if source.mq is not None:
        options |= site.queue_manager
        if source.mq.queue is not None:
            options["queue"] = source.mq.queue
        else:
            options |= {"topic": str(source.mq.topic), "subscription": f"MQBRIDGE.PIPELINE.{name}"}
        with told(("from", "mq"), "a queue or topic"):
            mq_origin(options)
            return spark.readStream.format(PipelineMqSource.name()).options(**options).load()
    options |= site.broker(source.link) | {"topic": str(source.mqtt), "spool": str(directory / "spool")}
    with told(("from", "mqtt"), "a topic filter"):
        mqtt_origin(options)
        return spark.readStream.format(PipelineMqttSource.name()).options(**options).load()


def _archive(spark: SparkSession, path: Path) -> DataFrame:
    """Files of the archive of the bridge, or those that are there already say what they have."""
    if not path.is_dir():
        raise Mistake(("from", "archive"), "a directory that is there")
    found = any(path.glob("**/*.parquet"))
    schema = spark.read.parquet(str(path)).schema if found else from_arrow_schema(arrow_schema())
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 100).parquet(str(path))


def _late(frame: DataFrame, config: PipelineConfig) -> DataFrame:
    for name in TIMES:
        if name in frame.columns and isinstance(frame.schema[name].dataType, TimestampType):
            return frame.withWatermark(name, f"{round(config.watermark * 1000)} milliseconds")
    return frame


# Payloads ------------------------------------------------------------------------------------------------------------


def _payload_column(frame: DataFrame) -> str | None:
    """The column of a source that has payloads."""
    for name in (BODY, PAYLOAD):
        if name in frame.columns and isinstance(frame.schema[name].dataType, BinaryType | StringType):
            return name
    return None


def _checked(
    spark: SparkSession, raw: DataFrame, name: str, config: PipelineConfig, site: Site, directory: Path
) -> DataFrame:
    """What the SELECT has as `input`: the rows whose payload is good, `payload` as the section `payload` says."""
    column = _payload_column(raw)
    if column is None or config.payload == "bytes":
        return _input(raw.observe(TAKEN, f.count(f.lit(1)).alias(_COUNT)), column, "bytes", config)
    json = config.payload == "json"
    fields = declared(config.fields)
    if json:
        _input(raw, column, "json", config).createOrReplaceTempView(INPUT)
        with told(("select",), "a SELECT of Spark SQL", config.select):
            fields |= casts(_analysed(spark, config.select))
    reason = wrong_type(column, fields) if json else "CAST(NULL AS STRING)"
    judged = raw.withColumn(REASON, f.expr(reason))
    target = folder = None
    if config.dead_letters.archive is not None:
        folder = str(config.dead_letters.archive)
    else:
        options = site.queue_manager | {"queue": config.dead_letters.queue or site.dead_letter_queue}
        with told(("dead_letters",), "a queue"):
            target = mq_target(options, _MADE_OF)
    judge = BadPayloads(name, column, json, target, folder)
    good = judged.mapInArrow(judge, raw.schema)
    return _input(good.observe(TAKEN, f.count(f.lit(1)).alias(_COUNT)), column, config.payload, config)


def _input(frame: DataFrame, column: str | None, kind: str, config: PipelineConfig) -> DataFrame:
    """`payload` as the section `payload` says it, and `body` with its bytes; a watermark on the time of each row."""
    if column is None:
        return _late(frame, config)
    text = f.expr(f"try_parse_json({text_of(column)})" if kind == "json" else text_of(column) if kind == "text" else column)
    columns = [f.col(column).alias(BODY), text.alias(PAYLOAD)]
    made = frame.select(*(name for name in frame.columns if name not in (BODY, PAYLOAD)), *columns)
    return _late(made, config)


def _analysed(spark: SparkSession, select: str) -> str:
    return str(spark.sql(select)._jdf.queryExecution().analyzed().toString())


# SQL -----------------------------------------------------------------------------------------------------------------


def _selected(spark: SparkSession, checked: DataFrame, config: PipelineConfig) -> DataFrame:
    checked.createOrReplaceTempView(INPUT)
    with told(("select",), "a SELECT of Spark SQL", config.select):
        made = spark.sql(config.select)
    if not made.isStreaming:
        raise Mistake(("select",), f"a SELECT that reads the table {INPUT}")
    if double := sorted({one for one in made.columns if made.columns.count(one) > 1}):
        raise Mistake(("select",), "columns of different names", f"{double[0]} twice")
    return made


def _check_streaming(spark: SparkSession, frame: DataFrame) -> None:
    """What Spark refuses of a stream only when it starts. Raises AnalysisException."""
    jvm: Any = spark._jvm
    mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    analyzed = frame._jdf.queryExecution().analyzed()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(analyzed, mode)


# Destinations --------------------------------------------------------------------------------------------------------


def _routes(config: PipelineConfig, site: Site, directory: Path) -> dict[str, dict[str, str]]:
    to, routes = config.destination, {}
    if to.mq is not None:
        routes[MQ] = dict(site.queue_manager)
    if to.mqtt is not None:
        refused = config.dead_letters.archive or directory / "refused"
        options = {"qos": str(to.qos), "retain": str(to.retain).lower(), "deadLetter": str(refused)}
        routes[MQTT] = site.broker(to.link) | options
    if to.archive is not None:
        routes[ARCHIVE] = {"path": str(to.archive.absolute())}
    return routes
