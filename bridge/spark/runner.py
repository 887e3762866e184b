"""Running pipelines: several in one Spark session, each restarted when it fails, until they are done or stopped."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.config.pipeline import AVAILABLE_NOW
from bridge.files import Locked, lock
from bridge.spark.administration import (
    LOCK,
    BatchSummary,
    ControlThread,
    PipelineRequest,
    State,
    StatusRecord,
    StopPipeline,
)
from bridge.spark.failures import Mistake, QueryFailure, query_failure_of
from bridge.spark.internals import has_ended
from bridge.spark.pipeline import TAKEN, BatchWriter, Counts, Pipeline, failing_message

#: Seconds between two looks at a query.
_LOOK: Final = 0.25
#: Failures in a row without a known remedy after which a pipeline is given up, and the seconds between attempts.
ATTEMPTS: Final = 8
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
#: Seconds to wait for the lock of a pipeline, which `mqbridge pipeline show` takes for a moment.
_LOCK_WAIT: Final = 2.0

Tell = Callable[[str], None]
Plans = Callable[[], Pipeline]


class QueryFailed(Exception):
    """A query failed. The message is for people."""

    def __init__(self, failure: QueryFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class PipelineBusy(Exception):
    """Another process runs the pipeline. The message is for people."""


class Batch(msgspec.Struct, frozen=True):
    """A completed batch."""

    pipeline: str
    number: int
    rows: int
    counts: Counts
    seconds: float
    #: backlog at the source, and the age in seconds of its oldest message; None: unknown
    waiting: int | None = None
    oldest: float | None = None
    #: rows or groups that Spark dropped as late
    dropped: int = 0

    @property
    def late(self) -> int:
        """The number of late rows: counted if they have a destination, otherwise as Spark counts them (at least)."""
        return max(self.counts.late, self.dropped)

    def summary(self) -> BatchSummary:
        """Return what the status contains of the batch."""
        now, counts = time.time(), self.counts
        oldest = None if self.oldest is None else now - self.oldest
        rows = (self.rows, counts.written, counts.dead, self.late)
        return BatchSummary(self.number, now, self.seconds, *rows, self.waiting, oldest)

    def __str__(self) -> str:
        counts = self.counts
        parts = [f"{self.rows} in", f"{counts.written} out"]
        if counts.dead:
            parts.append(f"{counts.dead} dead letter{'s' if counts.dead > 1 else ''}")
        if self.late:
            parts.append(f"{'' if counts.late else 'at least '}{self.late} late")
        parts.append(f"{self.seconds:.2f} s")
        if self.waiting is not None:
            parts.append(f"{self.waiting} waiting")
        line = f"{self.pipeline}: batch {self.number}: {', '.join(parts)}"
        return f"{line}; dead letter: {counts.why}" if counts.why else line


class Runner:
    """Runs pipelines until they are done, or until `stop`.

    `pipelines` plans each pipeline at each of its starts. `tell` prints a line, from several threads. `patience` is the time,
    in seconds, that a batch may take when the pipeline stops. A failure with a remedy is tried again without end. A pipeline
    is given up if its SELECT cannot be computed of some row, or after `attempts` failures in a row of any other kind.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipelines: dict[str, Plans],
        *,
        tell: Tell,
        once: bool = False,
        patience: float = 10.0,
        attempts: int = ATTEMPTS,
        seen: Callable[[Batch], None] | None = None,
    ) -> None:
        self._spark = spark
        self._pipelines = pipelines
        self._tell = tell
        self._once = once
        self._patience = patience
        self._attempts = attempts
        self._seen = seen or (lambda batch: tell(str(batch)))
        self._stopping = {name: threading.Event() for name in pipelines}
        self._draining: set[str] = set()
        self._locks: dict[str, IO[str]] = {}
        self._statuses: dict[str, StatusRecord] = {}
        self._control = ControlThread(self._requested)

    def stop(self) -> None:
        """Finish the current batches and end. May be called from a signal handler."""
        for stopping in self._stopping.values():
            stopping.set()

    def run(self) -> Sequence[str]:
        """Run to the end; return the names of the pipelines that were given up."""
        failed: list[str] = []
        threads = [
            threading.Thread(target=self._supervise, args=(name, failed), name=name) for name in self._pipelines
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # a join without timeout would delay signals
                    thread.join(_LOOK)
        finally:
            self._control.stop()
            for held in self._locks.values():
                held.close()
        return sorted(failed)

    def _requested(self, name: str, request: PipelineRequest) -> None:
        if isinstance(request, StopPipeline):
            self._stopping[name].set()
        else:
            self._draining.add(name)

    def _supervise(self, name: str, failed: list[str]) -> None:
        """Run a pipeline, and start it again after a failure."""
        state: State = "given up"
        try:
            state = self._attempt(name)
        except QueryFailed as error:
            self._note(name, error.failure)
            how = "stopped" if error.failure.data else f"given up after {self._attempts} attempts"
            self._tell(f"{name}: {how}: {error}")
        except PipelineBusy as error:
            self._tell(f"{name}: {error}")
        except Exception as error:  # a programming error, or the end of the JVM: the other pipelines continue
            gone = has_ended(self._spark, _LOOK)
            what = "Java (the JVM of Spark) has ended" if gone else f"{type(error).__name__}: {error}"
            self._note(name, QueryFailure(what))
            self._tell(f"{name}: given up: {what}")
        if state == "given up":
            failed.append(name)
        if (status := self._statuses.get(name)) is not None:
            status.ended(state)
        if (held := self._locks.pop(name, None)) is not None:
            held.close()

    def _attempt(self, name: str) -> State:
        """Run a pipeline until it ends in order. Raises QueryFailed, PipelineBusy."""
        failures, pause = 0, _FIRST_PAUSE
        stopping = self._stopping[name]
        while not stopping.is_set():
            batches: list[Batch] = []
            try:
                if self._run(name, batches):
                    return "stopped" if stopping.is_set() else "done"
                continue
            except QueryFailed as error:
                if batches:
                    failures, pause = 0, _FIRST_PAUSE
                failures += not error.failure.remedy
                if error.failure.data or failures >= self._attempts:
                    raise
                wait = pause * random.uniform(0.8, 1.2)
                self._note(name, error.failure)
                self._tell(f"{name}: {error}; next attempt in {wait:.0f} s")
            stopping.wait(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return "stopped"

    def _note(self, name: str, failure: QueryFailure) -> None:
        if (status := self._statuses.get(name)) is not None:
            status.failed(failure.what, failure.remedy)

    def _run(self, name: str, batches: list[Batch]) -> bool:
        """Run a query to its end; return False if it ended to be drained. Raises QueryFailed, PipelineBusy."""
        stopping = self._stopping[name]
        try:
            pipeline = self._pipelines[name]()
            self._hold(name, pipeline.directory)
            once = self._once or name in self._draining or pipeline.config.trigger == AVAILABLE_NOW
            writer = BatchWriter(pipeline)
            query = _start(pipeline, writer, once)
        except (PySparkException, Py4JError, Mistake, OSError) as error:
            if has_ended(self._spark, _LOOK):
                raise
            raise QueryFailed(query_failure_of(error)) from error
        self._statuses[name].running()
        self._tell(f"{name}: started; its checkpoint is {pipeline.checkpoint}")
        watch = _Watch(pipeline, query, writer)
        while query.isActive and not stopping.is_set() and (once or name not in self._draining):
            self._report(name, watch, batches)
            stopping.wait(_LOOK)
        cut = query.isActive and self._end(query, writer, watch)
        self._report(name, watch, batches)
        ended_by = query.exception()
        if ended_by is None or writer.stopping:
            drains = not once and not stopping.is_set()
            how = "stopped" if stopping.is_set() else "stopped, to be drained" if drains else "done"
            how += " during a batch, which is repeated at the next start" if cut else ""
            self._tell(f"{name}: {how}{watch.late_text}")
            return not drains
        failure = query_failure_of(writer.error or ended_by)
        if failure.data and (message := failing_message(self._spark, pipeline)):
            failure = msgspec.structs.replace(failure, what=f"{failure.what}, for {message}")
        raise QueryFailed(failure)

    def _report(self, name: str, watch: _Watch, batches: list[Batch]) -> None:
        for batch in watch.completed():
            batches.append(batch)
            self._statuses[name].completed(batch.summary())
            self._seen(batch)

    def _hold(self, name: str, directory: Path) -> None:
        """Keep other processes from running the pipeline, and listen for requests. Raises PipelineBusy, OSError."""
        if name in self._locks:
            return
        directory.mkdir(parents=True, exist_ok=True)
        before = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                self._locks[name] = lock(directory / LOCK)
                break
            except Locked as error:
                if time.monotonic() >= before:
                    raise PipelineBusy(f"process {error.process} runs it already ({directory / LOCK})") from error
            time.sleep(_LOOK)
        self._statuses[name] = StatusRecord(directory, self._tell)
        self._control.listen(name, directory)

    def _end(self, query: StreamingQuery, writer: BatchWriter, watch: _Watch) -> bool:
        """End a query after its current batch; return whether the batch was cut off."""
        writer.stopping = True
        before = time.monotonic() + self._patience
        while query.isActive and time.monotonic() < before:
            if not writer.busy and watch.is_committed():
                break
            time.sleep(_LOOK / 5)
        cut = writer.busy
        query.stop()
        return cut


class _Watch:
    """The progress of a query."""

    def __init__(self, pipeline: Pipeline, query: StreamingQuery, writer: BatchWriter) -> None:
        self._pipeline = pipeline
        self._query = query
        self._writer = writer
        self._last = -1
        self._late = 0
        self._exact = pipeline.late is not None

    def completed(self) -> list[Batch]:
        """Return the batches with rows that were completed since the last call."""
        batches = []
        for progress in self._query.recentProgress:
            if progress.batchId <= self._last or progress.batchId not in self._writer.counts:
                continue
            self._last = progress.batchId
            counts = self._writer.counts[progress.batchId]
            rows = counts.rows
            if rows is None:
                observed: Any = progress.observedMetrics.get(TAKEN)
                rows = progress.numInputRows if observed is None else observed["rows"]
            dropped = max((int(operator.numRowsDroppedByWatermark) for operator in progress.stateOperators), default=0)
            seconds = int(progress.durationMs.get("triggerExecution", 0)) / 1000
            waiting, oldest = _backlog(progress)
            batch = Batch(self._pipeline.name, progress.batchId, rows, counts, seconds, waiting, oldest, dropped)
            self._late += batch.late
            if rows or counts.written or batch.late:
                batches.append(batch)
        return batches

    def is_committed(self) -> bool:
        """Return whether the last batch that was written is in the checkpoint."""
        number = max(self._writer.counts, default=None)
        return number is None or (self._pipeline.checkpoint / "commits" / str(number)).exists()

    @property
    def late_text(self) -> str:
        """What to tell about late rows at the end."""
        if not self._late:
            return ""
        where = "went where late: says" if self._exact else "are in no result"
        rows = f"{'' if self._exact else 'at least '}{self._late} row{'s' if self._late > 1 else ''}"
        return f"; {rows} came too late and {where}"


def _backlog(progress: Any) -> tuple[int | None, float | None]:
    """Return the backlog of the source and the age of its oldest message, if the source reports them."""
    try:
        queues = list(json.loads(progress.sources[0].latestOffset).values())
        waiting = sum(queue["waiting"] for queue in queues)
        times = [datetime.fromisoformat(queue["oldest"]) for queue in queues if queue.get("oldest") is not None]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        return None, None
    now = datetime.fromisoformat(progress.timestamp)
    return waiting, max((now - min(times)).total_seconds(), 0) if times else None


def _start(pipeline: Pipeline, writer: BatchWriter, once: bool) -> StreamingQuery:
    stream = pipeline.frame.writeStream.foreachBatch(writer).queryName(pipeline.name).outputMode("append")
    stream = stream.option("checkpointLocation", str(pipeline.checkpoint))
    if once:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{round(float(pipeline.config.trigger) * 1000)} milliseconds").start()
