"""The query, batch and partition of the task that runs this code."""

from __future__ import annotations

import msgspec
from pyspark import TaskContext


class BatchIdentity(msgspec.Struct, array_like=True, frozen=True):
    """The identity of a batch: the query (or batch write), and the number of the batch."""

    query: str
    batch: int

    def __str__(self) -> str:
        return f"batch {self.batch} of {self.query}"


def streaming_batch() -> BatchIdentity:
    """Return the identity of the batch of a streaming query that this task belongs to."""
    task = _task()
    query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise RuntimeError("Spark reports no query and batch: a streaming write outside of a query")
    return BatchIdentity(query, int(batch))


def partition() -> int:
    """Return the number of this task's partition."""
    return int(_task().partitionId())


def attempt() -> int:
    """Return the number of this attempt at a task, which is unique in a Spark application."""
    return int(_task().taskAttemptId())


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("not in a Spark task")
    return task
