"""A Spark driver in a separate process that writes a batch to a queue, for tests that kill processes.

`python -m tests.spark.mq.driver JSON` takes the fields of `Write`. After an error, it exits with status 1 and prints the
message on stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bridge.spark.failures import sentence_of
from bridge.spark.session import session
from tests.helpers.spark import SETTINGS


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """The job of the driver."""

    rows: int
    partitions: int
    #: of the sink
    options: dict[str, str]
    #: None: a batch write
    checkpoint: str | None = None
    master: str = "local[2]"
    settings: dict[str, str] = {}
    #: a directory in which tasks report their start, and wait for the file `go`. None: they do not wait
    held: str | None = None


def holding(directory: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for mapInArrow that waits after its first record batch until `directory` has a file `go`."""

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        assert task is not None
        for batch in batches:
            yield batch
            Path(directory, f"task-{task.partitionId()}").touch()
            while not Path(directory, "go").exists():
                time.sleep(0.05)

    return hold


def run(spark: SparkSession, write: Write) -> None:
    """Write the numbers below `rows`, padded to 200 bytes, as messages. Raises PySparkException.

    A task of 15,000 rows has more than it may report to the driver, so it stages a file.
    """
    if write.checkpoint is None:
        numbers = spark.range(0, write.rows, 1, write.partitions).selectExpr("rpad(id, 200, ' ') AS body")
        _held(numbers, write).write.format("mq").options(**write.options).mode("append").save()
        return
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", write.rows)
    source = source.option("numPartitions", write.partitions)
    numbers = source.load().where(f"value < {write.rows}").selectExpr("rpad(value, 200, ' ') AS body")
    written = _held(numbers, write).writeStream.format("mq").options(**write.options)
    query = written.option("checkpointLocation", write.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def _held(frame: DataFrame, write: Write) -> DataFrame:
    return frame if write.held is None else frame.mapInArrow(holding(write.held), frame.schema)


if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.argv[1], type=Write)
    started = session(
        "driver", master=wanted.master, settings={**SETTINGS, "spark.log.level": "OFF", **wanted.settings}
    )
    try:
        run(started, wanted)
    except PySparkException as error:
        sys.exit(sentence_of(error))
