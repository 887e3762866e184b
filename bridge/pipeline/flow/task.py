"""Which query, batch and partition the code of a task works for."""

from __future__ import annotations

from pyspark import TaskContext

from bridge.pipeline.mq.marker import Identity


def identity(role: str = "") -> Identity:
    """The identity of this task's rows; `role` tells apart what one query writes to several places."""
    task = TaskContext.get()
    query = None if task is None else task.getLocalProperty("sql.streaming.queryId")
    batch = None if task is None else task.getLocalProperty("streaming.sql.batchId")
    if task is None or query is None or batch is None:
        raise RuntimeError("Spark does not say which query and batch this is: not in a task of a streaming query")
    return Identity(f"{query}-{role}" if role else query, task.partitionId(), int(batch))
