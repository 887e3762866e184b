"""A Spark driver in a separate process, which tests kill: publications to a queue, and to Parquet."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from bridge.spark.session import session
from tests.helpers.spark import SETTINGS
from tests.spark.mqtt.conftest import stream


def drain(spark: SparkSession, port: int, directory: Path, queue: str, home: Path) -> None:
    """Run two queries to their end, with all their data below `home`."""
    sinks = {
        "queue": ("mq", {"dataDirectory": str(directory), "queue": queue}),
        "table": ("parquet", {"path": str(home / "rows")}),
    }
    queries = []
    for name, (sink, options) in sinks.items():
        frame = stream(spark, port, home / name, name, maxMessagesPerTrigger=20)
        writer = frame.selectExpr("payload AS body").writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", str(home / f"{name} checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    started = session("driver", master="local[2]", settings=SETTINGS)
    drain(started, int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
