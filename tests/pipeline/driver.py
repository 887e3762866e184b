"""A Spark driver in a process of its own, which tests kill: messages from queue to queue, until none is left."""

from __future__ import annotations

import sys

from bridge.pipeline.session import session
from tests.pipeline.settings import SETTINGS


def main(master: str, directory: str, source: str, target: str, checkpoint: str) -> None:
    """Drain `source` into `target`, and say on how many executors (the driver's own storage counted too)."""
    spark = session("driver", master=master, settings={**SETTINGS, "spark.executor.memory": "512m"})
    options = {"dataDirectory": directory}
    frame = spark.readStream.format("mq").options(**options, queue=source, maxMessagesPerTrigger="20", partitions="2").load()
    writer = frame.drop("queue", "topic").writeStream.format("mq").options(**options, queue=target)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    print(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
