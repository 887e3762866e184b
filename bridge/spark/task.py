"""Which query, batch and partition the code of a task works for."""

from __future__ import annotations

import msgspec
from pyspark import TaskContext


class Identity(msgspec.Struct, frozen=True):
    """The identity of the rows of a task: query (or batch write), partition and batch."""

    query: str
    partition: int
    batch: int
    #: whether the writer state expires: true for batch writes, which are not repeated indefinitely
    passing: bool = False

    @property
    def text(self) -> str:
        """Return the identity as one word."""
        return f"{self.query}/{self.batch}/{self.partition}"


def identity() -> Identity:
    """Return the identity of this task's rows in a streaming query."""
    task = _task()
    query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise RuntimeError("Spark reports no query and batch: a streaming write outside of a query")
    return Identity(query, task.partitionId(), int(batch))


def partition() -> int:
    """Return the number of this task's partition."""
    return int(_task().partitionId())


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("not in a Spark task")
    return task
