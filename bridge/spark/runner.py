"""Running pipelines: several in one Spark session, each restarted when it fails, until they are done or stopped."""

from __future__ import annotations

import contextlib
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
    CompletedBatch,
    ControlThread,
    PipelineRequest,
    State,
    StatusRecord,
    StopPipeline,
)
from bridge.spark.failures import Mistake, QueryFailure, query_failure_of, sentence_of
from bridge.spark.internals import has_ended
from bridge.spark.pipeline import TAKEN, BatchWriter, Pipeline, failing_message

#: Seconds between checks of a query.
_POLL_INTERVAL: Final = 0.25
#: Seconds without an error after which a failed query counts as running again, if it completes no batch.
_STEADY: Final = 30.0
#: Failures in a row without a known remedy after which a pipeline is given up, and the seconds between attempts.
ATTEMPTS: Final = 8
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
#: Seconds to wait for the lock of a pipeline, which `mqbridge pipeline show` takes for a moment.
_LOCK_WAIT: Final = 2.0


class QueryFailed(Exception):
    """A query failed. The message is for display."""

    def __init__(self, failure: QueryFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class PipelineBusy(Exception):
    """Another process runs the pipeline. The message is for display."""


class PipelineRunner:
    """Runs pipelines until they are done, or until `stop`.

    `pipelines` contains functions that plan a pipeline, called at each of its starts. `report` prints a line, and `on_batch`
    is called with each batch, both from several threads. `stop_timeout` is the time, in seconds, that a batch may take when
    the pipeline stops. A failure with a remedy is retried indefinitely. A pipeline is given up if its SELECT cannot be
    computed for some row, or after `attempts` other failures in a row.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipelines: dict[str, Callable[[], Pipeline]],
        *,
        report: Callable[[str], None],
        once: bool = False,
        stop_timeout: float = 10.0,
        attempts: int = ATTEMPTS,
        on_batch: Callable[[CompletedBatch], None] = lambda batch: None,
    ) -> None:
        self.spark = spark
        self.report = report
        self.stop_timeout = stop_timeout
        self.attempts = attempts
        self.on_batch = on_batch
        self.control = ControlThread(self._requested)
        self._runs = {name: _Run(self, name, plan, once) for name, plan in pipelines.items()}

    def stop(self) -> None:
        """Finish the current batches and end. May be called from a signal handler."""
        for run in self._runs.values():
            run.stopping.set()

    def run(self) -> Sequence[str]:
        """Run to the end, and return the names of the pipelines that were given up."""
        threads = [threading.Thread(target=run.supervise, name=name) for name, run in self._runs.items()]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # a join without timeout would delay signals
                    thread.join(_POLL_INTERVAL)
        finally:
            self.control.stop()
        return sorted(name for name, run in self._runs.items() if run.state == "given up")

    def _requested(self, name: str, request: PipelineRequest) -> None:
        run = self._runs[name]
        if isinstance(request, StopPipeline):
            run.stopping.set()
        else:
            run.once = True


class _Run:
    """One pipeline. `supervise` runs on a separate thread."""

    def __init__(self, runner: PipelineRunner, name: str, plan: Callable[[], Pipeline], once: bool) -> None:
        self._runner = runner
        self._name = name
        self._plan = plan
        #: end when all available messages are processed
        self.once = once
        self.stopping = threading.Event()
        self.state: State = "given up"
        self._lock: IO[str] | None = None
        self._status: StatusRecord | None = None

    def supervise(self) -> None:
        """Run the pipeline, and start it again after a failure."""
        try:
            self.state = self._attempt()
        except QueryFailed as error:
            self._note(error.failure)
            how = "stopped" if error.failure.final else f"given up after {self._runner.attempts} attempts"
            self._log(f"{how}: {error}")
        except PipelineBusy as error:
            self._log(str(error))
        except Exception as error:  # a programming error, or the end of the JVM: the other pipelines continue
            is_gone = has_ended(self._runner.spark, _POLL_INTERVAL) or "stopped SparkContext" in str(error)
            if is_gone and self.stopping.is_set():  # SIGTERM for the whole process group, as `timeout` sends it
                self.state = "stopped"
                self._log(
                    "stopped, because its Java was stopped; a batch that was cut off is repeated at the next start"
                )
            else:
                description = (
                    "Java (the JVM of Spark) has ended" if is_gone else f"{type(error).__name__}: {sentence_of(error)}"
                )
                self._note(QueryFailure(description))
                self._log(f"given up: {description}")
        if self._status is not None:
            self._status.ended(self.state)
        if self._lock is not None:
            self._lock.close()

    def _log(self, text: str) -> None:
        self._runner.report(f"{self._name}: {text}")

    def _note(self, failure: QueryFailure) -> None:
        if self._status is not None:
            self._status.failed(failure.what, failure.remedy)

    def _attempt(self) -> State:
        """Run the pipeline until it ends in order. Raises QueryFailed, PipelineBusy."""
        failures, pause = 0, _FIRST_PAUSE
        while not self.stopping.is_set():
            batches: list[CompletedBatch] = []
            try:
                if self._run(batches):
                    return "stopped" if self.stopping.is_set() else "done"
                continue
            except QueryFailed as error:
                if batches:
                    failures, pause = 0, _FIRST_PAUSE
                failures += not error.failure.remedy
                if error.failure.final or failures >= self._runner.attempts:
                    raise
                wait = pause * random.uniform(0.8, 1.2)
                self._note(error.failure)
                self._log(f"{error}; next attempt in {wait:.0f} s")
            self.stopping.wait(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return "stopped"

    def _run(self, batches: list[CompletedBatch]) -> bool:
        """Run a query to its end. Return False if it ended so that it can be drained. Raises QueryFailed, PipelineBusy."""
        try:
            pipeline = self._plan()
            self._hold(pipeline.directory)
            once = self.once or pipeline.config.trigger == AVAILABLE_NOW
            writer = BatchWriter(pipeline)
            query = _start(pipeline, writer, once)
        except (PySparkException, Py4JError, Mistake, OSError) as error:
            if has_ended(self._runner.spark, _POLL_INTERVAL):
                raise
            raise QueryFailed(query_failure_of(error)) from error
        assert self._status is not None
        self._status.running()
        self._log(f"started; its checkpoint is {pipeline.checkpoint}")
        steady = time.monotonic() + _STEADY
        while query.isActive and not self.stopping.is_set() and (once or not self.once):
            self._report(pipeline, query, writer, batches)
            if time.monotonic() > steady:
                self._status.steady()
            self.stopping.wait(_POLL_INTERVAL)
        cut = query.isActive and self._end(pipeline, query, writer)
        self._report(pipeline, query, writer, batches)
        ended_by = query.exception()
        if ended_by is None or writer.stopping:
            drains = not once and not self.stopping.is_set()
            how = "stopped" if self.stopping.is_set() else "stopped, to be drained" if drains else "done"
            how += " during a batch, which is repeated at the next start" if cut else ""
            self._log(f"{how}{_late_text(pipeline, sum(batch.late for batch in batches))}")
            return not drains
        failure = query_failure_of(writer.error or ended_by)
        if failure.data:
            with contextlib.suppress(PySparkException, Py4JError, OSError, ValueError):  # the failure is more important
                message = failing_message(self._runner.spark, pipeline)
                failure = msgspec.structs.replace(
                    failure, what=f"{failure.what}, for {message or 'an unknown message'}"
                )
        raise QueryFailed(failure)

    def _report(
        self, pipeline: Pipeline, query: StreamingQuery, writer: BatchWriter, batches: list[CompletedBatch]
    ) -> None:
        """Report the batches that were completed since the last call. Those without rows are not reported."""
        assert self._status is not None
        for progress in query.recentProgress:
            if (batch := writer.batches.get(progress.batchId)) is None or batch.at:
                continue
            _complete(batch, progress)
            if batch.rows_in or batch.rows_out or batch.late:
                batches.append(batch)
                self._status.completed(batch)
                self._log(_line_of(pipeline, batch))
                self._runner.on_batch(batch)

    def _hold(self, directory: Path) -> None:
        """Prevent other processes from running the pipeline, and listen for requests. Raises PipelineBusy, OSError."""
        if self._lock is not None:
            return
        directory.mkdir(parents=True, exist_ok=True)
        before = time.monotonic() + _LOCK_WAIT
        while self._lock is None:
            try:
                self._lock = lock(directory / LOCK)
            except Locked as error:
                if time.monotonic() >= before:
                    raise PipelineBusy(f"process {error.process} already runs it ({directory / LOCK})") from error
                time.sleep(_POLL_INTERVAL)
        self._status = StatusRecord(directory, self._runner.report)
        self._runner.control.listen(self._name, directory)

    def _end(self, pipeline: Pipeline, query: StreamingQuery, writer: BatchWriter) -> bool:
        """End a query after its current batch, and return whether the batch was cut off."""
        writer.stopping = True
        before = time.monotonic() + self._runner.stop_timeout
        while query.isActive and time.monotonic() < before:
            number = max(writer.batches, default=None)
            if not writer.busy and (number is None or (pipeline.checkpoint / "commits" / str(number)).exists()):
                break
            time.sleep(_POLL_INTERVAL / 5)
        cut = writer.busy
        query.stop()
        return cut


def _start(pipeline: Pipeline, writer: BatchWriter, once: bool) -> StreamingQuery:
    stream = pipeline.frame.writeStream.foreachBatch(writer).queryName(pipeline.name).outputMode("append")
    stream = stream.option("checkpointLocation", str(pipeline.checkpoint))
    if once:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{round(float(pipeline.config.trigger) * 1000)} milliseconds").start()


# Batches -------------------------------------------------------------------------------------------------------------


def _complete(batch: CompletedBatch, progress: Any) -> None:
    """Add to a batch what only Spark's progress contains."""
    if batch.rows_in < 0:
        observed: Any = progress.observedMetrics.get(TAKEN)
        batch.rows_in = progress.numInputRows if observed is None else observed["rows"]
    # Rows or groups that Spark dropped as late, without a destination for them.
    dropped = max((int(operator.numRowsDroppedByWatermark) for operator in progress.stateOperators), default=0)
    batch.late = max(batch.late, dropped)
    batch.seconds = int(progress.durationMs.get("triggerExecution", 0)) / 1000
    batch.at = time.time()
    with contextlib.suppress(IndexError, KeyError, TypeError, ValueError, AttributeError):  # a source without a backlog
        backlog = list(json.loads(progress.sources[0].latestOffset).values())
        times = [
            datetime.fromisoformat(source["oldest"]).timestamp()
            for source in backlog
            if source.get("oldest") is not None
        ]
        batch.waiting = sum(source["waiting"] for source in backlog)
        batch.oldest = min(times, default=None)


def _line_of(pipeline: Pipeline, batch: CompletedBatch) -> str:
    parts = [f"{batch.rows_in} in", f"{batch.rows_out} out"]
    if batch.dead_letters:
        parts.append(f"{batch.dead_letters} dead letter{'s' if batch.dead_letters > 1 else ''}")
    if batch.discarded:
        parts.append(f"{batch.discarded} discarded, because too many dead letters are on the queue (dead_letters_full)")
    if batch.late:
        parts.append(f"{'at least ' if pipeline.late is None else ''}{batch.late} late")
    parts.append(f"{batch.seconds:.2f} s")
    if batch.waiting is not None:
        parts.append(f"{batch.waiting} waiting")
    return f"batch {batch.number}: {', '.join(parts)}{f'; dead letter: {batch.why}' if batch.why else ''}"


def _late_text(pipeline: Pipeline, late: int) -> str:
    """Return the text about late rows at the end of a run."""
    if not late:
        return ""
    rows = f"{late} late row{'s' if late > 1 else ''}"
    return f"; wrote {rows} as specified in late" if pipeline.late is not None else f"; dropped at least {rows}"
