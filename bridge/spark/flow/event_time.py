"""Event time: the column of `input` with the watermark, which says when a window is over and what comes late for it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType

from bridge.config import PipelineConfig
from bridge.config.pipeline import WatermarkConfig
from bridge.spark.flow.bad_rows.payload import PAYLOAD
from bridge.spark.flow.columns import TIMES
from bridge.spark.flow.logical_plan import kind, nodes, parsed
from bridge.spark.flow.mistake import Mistake

_WATERMARK: Final = "UnresolvedEventTimeWatermark"
_TIMESTAMP: Final = "timestamp"


def has_watermark(spark: SparkSession, select: str) -> bool:
    """Return whether a SELECT has a WATERMARK clause: Spark takes no second one on the same rows."""
    return any(kind(node) == _WATERMARK for node in nodes(parsed(spark, select)))


def with_watermark(frame: DataFrame, config: PipelineConfig) -> DataFrame:
    """Return `input` with the watermark that the section `watermark` says, unless the SELECT has one. Raises Mistake.

    A column that the source does not have is a field of the payload, which the section `schema` declares.
    """
    own = has_watermark(frame.sparkSession, config.select)
    if isinstance(config.watermark, WatermarkConfig):
        if own:
            raise Mistake(("watermark",), "no column, because select has a WATERMARK of its own")
        column, delay = config.watermark.column, config.watermark.delay
        return _with_column(frame, column, config).withWatermark(column, _interval(delay))
    if own:
        return frame
    for name in TIMES:
        if name in frame.columns and isinstance(frame.schema[name].dataType, TimestampType):
            return frame.withWatermark(name, _interval(config.watermark))
    return frame


def _with_column(frame: DataFrame, name: str, config: PipelineConfig) -> DataFrame:
    if name in frame.columns:
        if isinstance(frame.schema[name].dataType, TimestampType):
            return frame
    elif config.fields.get(name) == _TIMESTAMP:
        return frame.withColumn(name, f.expr(f"try_variant_get({PAYLOAD}, '$.{name}', '{_TIMESTAMP}')"))
    times = [field.name for field in frame.schema if isinstance(field.dataType, TimestampType)]
    times += [field for field, declared in config.fields.items() if declared == _TIMESTAMP and field not in times]
    expected = f"a column of input of type timestamp, or a field that schema declares as one ({', '.join(times) or 'none'})"
    raise Mistake(("watermark", "column"), expected, repr(name))


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1000)} milliseconds"
