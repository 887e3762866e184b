"""A Spark driver on a cluster, in a process of its own, which tests kill: messages from queue to queue."""

from __future__ import annotations

import sys

from bridge.spark.session import session
from tests.helpers.spark import SETTINGS

#: One core on each of two workers, and no task before both are there.
CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def main(master: str, directory: str, source: str, target: str, checkpoint: str) -> None:
    """Drain `source` into `target`."""
    spark = session("driver", master=master, settings={**SETTINGS, **CLUSTER})
    options = {"dataDirectory": directory}
    frame = spark.readStream.format("mq").options(**options, queue=source, maxMessagesPerTrigger="20", partitions="2").load()
    writer = frame.drop("queue", "topic").writeStream.format("mq").options(**options, queue=target)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
