"""Dead letters for a broker or a format of Spark's: tasks leave them in files, and the driver writes them behind their batch.

They come there at least once: a batch that is run again leaves them again, in files of the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bridge.config import Destination
from bridge.spark.flow.columns import routed
from bridge.spark.flow.destinations import broker_options, format_routes
from bridge.spark.flow.environment import LEFT, PipelineEnvironment
from bridge.spark.flow.mistake import mistakes_at
from bridge.spark.flow.sink import DEAD_LETTERS, MQTT, FormatRoute, Route, Written, routes_of

#: Columns that such files have, if not each: of a message or a publication, as it came or as it was to go.
_LEFT: Final = (
    "queue STRING, topic STRING, put_time TIMESTAMP, received TIMESTAMP, headers BINARY, body BINARY, payload BINARY,"
    " reason STRING"
)
#: Why a publication is left, where its file does not say it.
_REFUSED: Final = "the broker does not take the publication"


class LeftDeadLetters(msgspec.Struct, frozen=True):
    """Writes the dead letters that a batch has left (`bridge.spark.flow.sink.Behind`)."""

    spark: SparkSession
    pipeline: str
    directory: Path
    to: Destination
    routes: Sequence[Route | FormatRoute]

    def __call__(self, batch: int) -> Written:
        """Write what is there: it is of this batch, or of an attempt at it. Raises PySparkException, OSError."""
        files = list(self.directory.glob("*.parquet"))
        if files:
            rows = self.spark.read.schema(_LEFT).parquet(*map(str, files))
            made = routed(_dead_letters(rows, self.pipeline, batch), self.to, DEAD_LETTERS)
            for route in self.routes:
                route.write_batch(made, batch)
            for file in files:
                file.unlink()
        return Written()


def left_dead_letters(
    spark: SparkSession, name: str, to: Destination, environment: PipelineEnvironment, directory: Path
) -> LeftDeadLetters | None:
    """Return what writes the dead letters of a pipeline; None where its tasks do that. Raises Mistake."""
    if to.mqtt is None and to.format is None:
        return None
    with mistakes_at((DEAD_LETTERS,), "a destination"):
        schema = routed(_dead_letters(spark.createDataFrame([], _LEFT), name, 0), to, DEAD_LETTERS).schema
        options = {MQTT: broker_options(to, environment)} if to.mqtt is not None else {}
        routes: list[Route | FormatRoute] = [*routes_of(options, schema, DEAD_LETTERS)]
        routes += format_routes(spark, to, DEAD_LETTERS)
    return LeftDeadLetters(spark, name, directory / LEFT, to, routes)


def _dead_letters(left: DataFrame, pipeline: str, batch: int) -> DataFrame:
    """Return dead letters as rows that any format takes."""
    return left.select(
        f.lit(pipeline).alias("pipeline"),
        f.lit(batch).cast("bigint").alias("batch"),
        f.coalesce("reason", f.lit(_REFUSED)).alias("reason"),
        "queue",
        "topic",
        f.coalesce("put_time", "received").alias("time"),
        "headers",
        f.coalesce("body", "payload").alias("body"),
    )
