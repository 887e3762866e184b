"""A Spark driver in a process of its own, which tests kill: messages from queue to queue, until none is left."""

from __future__ import annotations

import sys

from bridge.pipeline.session import session
from tests.pipeline.settings import SETTINGS


def main(directory: str, source: str, target: str, checkpoint: str) -> None:
    """Drain `source` into `target`; the tasks of `local[2,4]` are tried up to four times."""
    spark = session("driver", master="local[2,4]", settings=SETTINGS)
    options = {"dataDirectory": directory}
    frame = spark.readStream.format("mq").options(**options, queue=source, maxMessagesPerTrigger="20").load()
    writer = frame.drop("queue", "topic").writeStream.format("mq").options(**options, queue=target)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
