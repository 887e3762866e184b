"""The progress of pipelines: events of Spark's StreamingQueryListener, each batch as a line for whoever watches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from bridge.spark.flow.administration.status import BatchSummary
from bridge.spark.flow.input_table import FOUND, TAKEN, WHY
from bridge.spark.flow.plan import MADE
from bridge.spark.flow.sink import Written

#: Name of the operator of a join of streams.
_JOIN: Final = "symmetricHashJoin"


class Batch(msgspec.Struct, frozen=True):
    """A batch that is done."""

    pipeline: str
    number: int
    #: rows that were read, rows that went on to the SELECT, and rows that were written
    rows: int
    good: int
    made: int
    #: seconds that it took
    seconds: float
    #: messages that wait behind it at the source; None where the source does not tell
    waiting: int | None
    #: seconds since which the first of those waits; None: none does, or the source does not tell
    oldest: float | None = None
    #: rows that a destination has refused; None: none
    refused: Written | None = None
    #: what is wrong with one of the payloads that are bad; None: none is, or only Python can tell
    found: str | None = None
    #: rows that came too late for the watermark, and are in no result
    late: int = 0
    #: whether they are just those, or those at least
    late_exact: bool = False

    @property
    def bad(self) -> int:
        """Return the number of rows that are dead letters."""
        return max(self.rows - self.good, 0) + (0 if self.refused is None else self.refused.refused)

    @property
    def written(self) -> int:
        """Return the number of rows that are at their destinations."""
        return self.made - (0 if self.refused is None else self.refused.refused)

    def summary(self) -> BatchSummary:
        """Return what the status of the pipeline has of it: it was done just now."""
        now, counts = time.time(), (self.rows, self.written, self.bad, self.late, self.waiting)
        return BatchSummary(self.number, now, self.seconds, *counts, None if self.oldest is None else now - self.oldest)

    def __str__(self) -> str:
        parts = [f"{self.rows} in", f"{self.written} out"]
        if self.bad:
            parts.append(f"{self.bad} dead letter{'s' if self.bad > 1 else ''}")
        if self.late:
            parts.append(f"{'' if self.late_exact else 'at least '}{self.late} late")
        parts.append(f"{self.seconds:.2f} s")
        if self.waiting is not None:
            parts.append(f"{self.waiting} waiting")
        if self.oldest is not None:
            parts.append(f"the oldest {_span(self.oldest)}")
        line = f"{self.pipeline}: batch {self.number}: {', '.join(parts)}"
        if self.found is not None:
            line += f"; bad: {self.found}"
        return line if self.refused is None else f"{line}; refused: {self.refused.why}"


class QueryWatch:
    """What one run of a query has done, as far as its events have come. From any thread."""

    def __init__(self, pipeline: str, written: Callable[[int], Written | None], seen: Callable[[Batch], None]) -> None:
        self._pipeline = pipeline
        self._written = written
        self._seen = seen
        #: batches with rows
        self.done = 0
        #: rows that came too late, and whether they are just those, or those at least
        self.late = 0
        self.late_exact = True
        #: all of its events have come
        self.ended = threading.Event()
        #: what was wrong with taking one
        self.error: Exception | None = None

    def took(self, progress: Any) -> None:
        """Take an event (StreamingQueryProgress)."""
        try:
            batch = batch_of(self._pipeline, progress, self._written(int(progress.batchId)))
            if batch.rows or batch.made:
                self.done += 1
                self.late += batch.late
                self.late_exact &= batch.late_exact or not batch.late
                self._seen(batch)
        except Exception as error:  # Java would hear of it, which is silent
            self.error = self.error or error


class ProgressListener(StreamingQueryListener):
    """Hands the events of queries to those who watch them: the first run with the name of a pipeline is the watch's."""

    def __init__(self) -> None:
        #: by name of a query that is about to start, and by its run
        self._expected: dict[str, QueryWatch] = {}
        self._runs: dict[Any, QueryWatch] = {}

    def expect(self, name: str, watch: QueryWatch) -> None:
        """Have the events of the next query of a name go to a watch."""
        self._expected[name] = watch

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if event.name is not None and (watch := self._expected.pop(event.name, None)) is not None:
            self._runs[event.runId] = watch

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if (watch := self._runs.get(event.progress.runId)) is not None:
            watch.took(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if (watch := self._runs.pop(event.runId, None)) is not None:
            watch.ended.set()


def batch_of(pipeline: str, progress: Any, written: Written | None) -> Batch:
    """Return the batch that an event of Spark's (StreamingQueryProgress) is about, with what was written of it."""
    written = Written() if written is None else written
    dropped = max(map(_late, progress.stateOperators), default=0)
    rows = int(progress.numInputRows)
    observed = progress.observedMetrics
    good = _observed(observed, TAKEN)
    return Batch(
        pipeline,
        int(progress.batchId),
        rows,
        good,
        _observed(observed, MADE),
        int(progress.durationMs.get("triggerExecution", 0)) / 1000,
        *_backlog(progress),
        written if written.refused else None,
        observed[FOUND][WHY] if FOUND in observed else None,
        min(dropped, good) if written.late is None else written.late,
        written.late is not None,
    )


def _late(operator: Any) -> int:
    """Return how many rows at least an operator has left out because they came late.

    Spark counts them where it would look for their state: after rows of one group in a partition have become one, and in a
    join of `input` with itself on either side.
    """
    dropped = int(operator.numRowsDroppedByWatermark)
    return -(-dropped // 2) if operator.operatorName == _JOIN else dropped


def _observed(metrics: Any, name: str) -> int:
    row = metrics.get(name)
    return 0 if row is None else int(row["rows"])


def _backlog(progress: Any) -> tuple[int | None, float | None]:
    """Return how many messages are behind the batch, and since how many seconds the first of them is."""
    try:
        queues = list(json.loads(progress.sources[0].latestOffset).values())
        waiting = sum(one["waiting"] for one in queues)
        times = [datetime.fromisoformat(one["oldest"]) for one in queues if one["oldest"] is not None]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        return None, None  # a source of Spark's own, or a batch that was planned before a restart
    now = datetime.fromisoformat(progress.timestamp)
    return waiting, max((now - min(times)).total_seconds(), 0) if times else None


def _span(seconds: float) -> str:
    """Return a span of time in its largest unit: `12 s`, `3 min`, `49 h`."""
    for unit, length in (("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
