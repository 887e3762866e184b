"""Batches of a streaming query that fail and run again with other partitions, in another order, with other values."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from bridge.spark.mq.queue_manager import APPLICATION_NAME
from bridge.spark.options import UNIT_ROWS
from bridge.wire import cmqc
from tests.spark.conftest import Queues
from tests.spark.faults import Fault, fault, is_state

#: Rows of a batch. Spark passes them to the writer in Arrow batches of 10,000, and a unit of work has 5,000.
ROWS = int(os.environ.get("MQBRIDGE_TEST_BATCH", "12000"))


class Query:
    """A query that writes to a queue, with one checkpoint. Each run may have another source and another SELECT."""

    def __init__(self, spark: SparkSession, queues: Queues, directory: Path) -> None:
        self.spark = spark
        self.queues = queues
        self.directory = directory
        self.target = queues.queue()

    def numbers(self, partitions: int = 1) -> DataFrame:
        """A source whose batches have the same rows in any number of partitions."""
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        return source.option("numPartitions", partitions).load().selectExpr("CAST(value AS STRING) AS text")

    def run(self, frame: DataFrame, body: str = "text") -> None:
        """Process all available rows. Raises StreamingQueryException."""
        written = frame.selectExpr(f"{body} AS body").writeStream.format("mq").options(**self.queues.options)
        written = written.option("queue", self.target).option("checkpointLocation", str(self.directory / "checkpoint"))
        while True:
            try:
                written.trigger(availableNow=True).start().awaitTermination()
            except StreamingQueryException as error:
                # Spark gives a process ten seconds to start, which are not enough on a busy machine.
                if "failed to connect back" not in str(error):
                    raise
            else:
                return

    def fail(self, frame: DataFrame, body: str = "text") -> None:
        """Process a batch, and lose the connection to the queue manager in its second unit of work."""
        # The first two states, that of the manifest, and one for each unit of work.
        states = Fault(lambda verb, request: verb == "MQPUT" and is_state(request), 5)
        with fault(APPLICATION_NAME, states), pytest.raises(StreamingQueryException):
            self.run(frame, body)
        assert states.happened and 0 < self.queues.depth(self.target) < ROWS

    def check(self) -> None:
        """Check that each number is at the beginning of one message."""
        numbers = Counter(int(body.partition(b" ")[0]) for body in self.queues.bodies(self.target))
        assert len(numbers) >= ROWS and numbers == Counter(range(len(numbers)))


@pytest.fixture
def query(spark: SparkSession, queues: Queues, tmp_path: Path) -> Query:
    return Query(spark, queues, tmp_path)


def test_a_row_that_fails_in_the_middle_of_a_partition(query: Query) -> None:
    """The input of the writer ends after 10,000 rows."""
    with pytest.raises(StreamingQueryException, match="no row"):
        query.run(query.numbers(), "IF(text = '11000', raise_error('no row'), text)")
    assert query.queues.depth(query.target) == 0
    query.run(query.numbers())
    query.check()


VALUES = "concat(text, ' ', uuid(), current_timestamp())"
#: Partitions and body of the run that fails in the middle of the batch, and of the run that repeats it.
CHANGES = {
    "fewer partitions, other values": ((4, VALUES), (1, VALUES)),
    "more partitions, another SELECT": ((1, "text"), (4, f"IF(int(text) < {ROWS}, '-1', text)")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_batch_of_several_units_is_finished_as_it_started(change: str, query: Query) -> None:
    (partitions, body), (others, other_body) = CHANGES[change]
    query.fail(query.numbers(partitions), body)
    query.run(query.numbers(others), other_body)
    query.check()


def test_queues_that_are_read_in_another_order(query: Query) -> None:
    queues = query.queues
    names = [queues.queue(), queues.queue()]
    for number, name in enumerate(names):
        for first in range(number, ROWS, UNIT_ROWS):
            bodies = [b"%d" % row for row in range(first, min(first + UNIT_ROWS, ROWS), 2)]
            queues.put(name, *bodies, Format=cmqc.MQFMT_STRING)

    def source(*names: str) -> DataFrame:
        options = {"queue": ",".join(names), "spool": str(query.directory / "spool")}
        return query.spark.readStream.format("mq").options(**queues.options).options(**options).load()

    query.fail(source(*names))
    query.run(source(*reversed(names)))
    query.check()
