"""A Spark driver in a process of its own, which tests kill: publications to a queue, and to Parquet."""

from __future__ import annotations

import sys
from pathlib import Path

from bridge.pipeline.session import session
from tests.pipeline.mqtt.conftest import stream
from tests.pipeline.settings import SETTINGS


def main(port: str, directory: str, queue: str, home: str) -> None:
    """Two queries to their end; the tasks of `local[2,4]` are tried up to four times."""
    spark = session("driver", master="local[2,4]", settings=SETTINGS)
    sinks = {
        "queue": ("mq", {"dataDirectory": directory, "queue": queue}),
        "table": ("parquet", {"path": str(Path(home) / "rows")}),
    }
    queries = []
    for name, (sink, options) in sinks.items():
        frame = stream(spark, int(port), Path(home) / name, name, maxMessagesPerTrigger=20)
        writer = frame.selectExpr("payload AS body").writeStream.format(sink).options(**options)
        checkpoint = str(Path(home) / f"{name} checkpoint")
        queries.append(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
