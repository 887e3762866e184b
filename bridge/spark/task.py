"""Which query, batch and partition the code of a task works for."""

from __future__ import annotations

import msgspec
from pyspark import TaskContext


class Identity(msgspec.Struct, frozen=True):
    """Whose rows are put: a query (or a batch write) and a partition; and which batch."""

    query: str
    partition: int
    batch: int
    #: of a batch write, which is not run again for ever
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
        raise RuntimeError("Spark does not say which query and batch this is: a streaming write outside of a query")
    return Identity(query, task.partitionId(), int(batch))


def partition() -> int:
    """Return the number of this task's partition."""
    return int(_task().partitionId())


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("not in a Spark task")
    return task
