"""The table `input` of a SELECT: the rows of a source whose payload is good, and the payload as the file says it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType

from bridge.config import PipelineConfig
from bridge.config.link import LOCAL
from bridge.spark.flow.bad_rows import diverted_rows
from bridge.spark.flow.bad_rows.dead_letters import BadPayloads
from bridge.spark.flow.bad_rows.payload import BODY, PAYLOAD, REASON, casts, declared, fault, is_read, text_of
from bridge.spark.flow.destinations import dead_letter_options
from bridge.spark.flow.environment import PipelineEnvironment
from bridge.spark.flow.event_time import with_watermark
from bridge.spark.flow.mistake import mistakes_at
from bridge.spark.flow.sink import dead_letter_sink_of

INPUT: Final = "input"
#: Name of the observation of what came in.
TAKEN: Final = "taken"
#: Name of the observation that has, as `WHY`, what is wrong with one of the payloads that are bad, as far as Spark can tell.
FOUND: Final = "found"
WHY: Final = "why"
_COUNT: Final = "rows"


class Payloads(msgspec.Struct, frozen=True):
    """What is looked at of the payloads of a pipeline."""

    config: PipelineConfig
    #: the column that has them; None: there is none
    column: str | None
    #: takes bad ones out, by the SQL of what is wrong with one; None: each is good
    judge: BadPayloads | None = None
    fault: str = ""

    def input_of(self, raw: DataFrame) -> DataFrame:
        """Return the table of rows as the source gives them; what is bad goes to the dead letters."""
        good = raw
        if self.judge is not None:
            seen = raw.withColumn(REASON, f.expr(self.fault)).observe(FOUND, f.min(REASON).alias(WHY))
            good = seen.mapInArrow(self.judge, raw.schema)
        return input_of(counted(good, TAKEN), self.column, self.config)

    def again(self) -> Payloads:
        """Return the same for a batch that is read again, whose bad payloads are dead letters already."""
        return msgspec.structs.replace(self, judge=None if self.judge is None else self.judge.again())


def payloads_of(
    spark: SparkSession,
    raw: DataFrame,
    name: str,
    config: PipelineConfig,
    environment: PipelineEnvironment,
    directory: Path,
) -> Payloads:
    """Return what is looked at of the payloads of a source, in whose configuration they are bytes where they may be anything.

    Raises Mistake.
    """
    config = _with_payload(spark, raw, config)
    column = payload_column(raw)
    diverted = diverted_rows.load(directory)
    if column is None or (config.payload == "bytes" and not diverted.rows):
        return Payloads(config, column)
    with mistakes_at(("dead_letters",), "a destination"):
        dead_letters = dead_letter_sink_of(dead_letter_options(name, config, environment, named=False))
    judge = BadPayloads(name, column, config.payload, dead_letters.options, dead_letters.directory, diverted)
    return Payloads(config, column, judge, fault_of(spark, raw, column, config))


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


def fault_of(spark: SparkSession, raw: DataFrame, column: str, config: PipelineConfig) -> str:
    """Return the SQL of what is wrong with a payload, as far as Spark can tell. Raises Mistake."""
    fields = {}
    if config.payload == "json":
        fields = declared(config.fields)
        input_of(raw, column, config).createOrReplaceTempView(INPUT)
        with mistakes_at(("select",), "a SELECT of Spark SQL", config.select):
            fields |= casts(str(spark.sql(config.select)._jdf.queryExecution().analyzed().toString()))
    return fault(raw.columns, column, config.payload, fields)


def counted(frame: DataFrame, observation: str) -> DataFrame:
    """Return a frame that counts its rows as it makes them."""
    return frame.observe(observation, f.count(f.lit(1)).alias(_COUNT))


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
