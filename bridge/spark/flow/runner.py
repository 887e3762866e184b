"""Pipelines that run: started together in one Spark, watched, started again when they fail, ended in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final

import tenacity
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.config.pipeline import AVAILABLE_NOW, PipelineConfig
from bridge.files import Locked, lock
from bridge.spark.flow.administration import request
from bridge.spark.flow.administration.scheduled_compaction import ScheduledCompaction
from bridge.spark.flow.administration.status import LOCK, State, StatusRecord
from bridge.spark.flow.environment import CHECKPOINT
from bridge.spark.flow.failed_batch import FailedBatch
from bridge.spark.flow.mistake import Mistake
from bridge.spark.flow.plan import Plan
from bridge.spark.flow.progress import Batch, ProgressListener, QueryWatch
from bridge.spark.flow.query_failure import QueryFailure, query_failure_of
from bridge.spark.flow.sink import BatchWriter
from bridge.spark.flow.sources.shutdown import SourceShutdown
from bridge.spark.session import has_ended

#: Seconds between two looks at a query.
_LOOK: Final = 0.25
#: How often in a row a pipeline that fails without a known remedy is started, and the seconds before it is.
ATTEMPTS: Final = 8
_FIRST_PAUSE: Final = 1
_LONGEST_PAUSE: Final = 60
#: Seconds to wait for the lock of a pipeline, which who looks at it has for a moment.
_LOCK_WAIT: Final = 2.0
#: Seconds to wait for the last events of a query that has ended. Spark delivers them late if the machine is busy.
_EVENTS_WAIT: Final = 60.0

Tell = Callable[[str], None]
Plans = Callable[[], Plan]


class QueryFailed(Exception):
    """A query ended by an error; the text is for people."""

    def __init__(self, failure: QueryFailure) -> None:
        super().__init__(f"{failure.what}; to do: {failure.remedy}" if failure.remedy else failure.what)
        self.failure = failure


class PipelineBusy(Exception):
    """Another process runs the pipeline; the text is for people."""


class _Patience(tenacity.stop.stop_base):
    """For tenacity: whether it is time to give up. What has a remedy is tried without end."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._strange = 0

    def __call__(self, state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        healing = isinstance(error, QueryFailed) and bool(error.failure.remedy)
        self._strange = 0 if healing else self._strange + 1
        return self._strange >= self._attempts


class Runner:
    """Runs pipelines until they are done, or until `stop`.

    `pipelines` makes the plan of each by its name, again at each start: reference tables are read then. `tell` takes lines
    for whoever watches, from several threads. `patience` are the seconds that a batch under way may take at the end.

    What ends a query, and heals when the queue manager, the broker or a person does something, is tried again without end;
    the data of single rows that a SELECT cannot be made of are diverted to the dead letters. Only a query that ends
    `attempts` times in a row for any other reason, without a batch done between, is given up; the others go on.
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
        self._listener = ProgressListener()
        #: by pipeline
        self._stopping = {name: threading.Event() for name in pipelines}
        self._draining: set[str] = set()
        self._deaf: set[str] = set()
        self._locks: dict[str, tuple[Path, IO[str]]] = {}
        self._statuses: dict[str, StatusRecord] = {}

    def stop(self) -> None:
        """Have all pipelines end what is under way, and no more. May be called from a signal handler."""
        for stopping in self._stopping.values():
            stopping.set()

    def run(self) -> Sequence[str]:
        """Run to the end; return the names of the pipelines that were given up."""
        failed: list[str] = []
        self._spark.streams.addListener(self._listener)
        threads = [
            threading.Thread(target=self._supervise, args=(name, failed), name=name) for name in self._pipelines
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a join without end would keep signals waiting
                thread.join(_LOOK)
                self._take_requests()
        if not has_ended(self._spark):
            self._spark.streams.removeListener(self._listener)
        return sorted(failed)

    def _take_requests(self) -> None:
        """Do what other processes ask of pipelines that run here."""
        for name, (directory, _) in list(self._locks.items()):
            try:
                asked = request.take(directory)
            except OSError as error:
                if name not in self._deaf:
                    self._tell(f"{name}: what other processes ask of it is not read: {error}")
                self._deaf.add(name)
                continue
            if asked == "stop":
                self._stopping[name].set()
            elif asked == "drain":
                self._draining.add(name)

    def _supervise(self, name: str, failed: list[str]) -> None:
        """Run a pipeline, again and again while it fails; each batch that it has done counts as a new start."""
        # Spark looks for sources in the session that is active in a thread.
        jvm: Any = self._spark._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._spark._jsparkSession)
        end: State = "given up"
        try:
            while not self._retrying(name)(self._run, name):
                pass
            end = "stopped" if self._stopping[name].is_set() else "done"
        except QueryFailed as error:
            self._note(name, error)
            if self._stopping[name].is_set():
                end = "stopped"
                self._tell(f"{name}: stopped, after it had failed: {error}")
                return
            failed.append(name)
            self._tell(f"{name}: given up, and needs a person: {error}")
        except PipelineBusy as error:
            failed.append(name)
            self._tell(f"{name}: not started: {error}")
        except Exception as error:
            failed.append(name)
            self._note(name, error)
            if not has_ended(self._spark, _LOOK):
                self._tell(f"{name}: given up: {type(error).__name__}: {error}")
                raise
            self._tell(
                f"{name}: Spark's virtual machine has ended (killed, or out of memory?); what was done is kept: start again"
            )
        finally:
            if (held := self._locks.pop(name, None)) is not None:
                self._statuses[name].ended(end)
                held[1].close()

    def _note(self, name: str, error: BaseException | None) -> None:
        """Write down what was wrong with a pipeline, where it was this process that ran it."""
        if (status := self._statuses.get(name)) is None or error is None:
            return
        if isinstance(error, QueryFailed):
            status.failed(error.failure.what, error.failure.remedy)
        else:
            status.failed(f"{type(error).__name__}: {error}")

    def _retrying(self, name: str) -> tenacity.Retrying:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(QueryFailed),
            wait=tenacity.wait_exponential_jitter(initial=_FIRST_PAUSE, max=_LONGEST_PAUSE),
            stop=tenacity.stop_any(_Patience(self._attempts), tenacity.stop_when_event_set(self._stopping[name])),
            sleep=tenacity.sleep_using_event(self._stopping[name]),
            before_sleep=lambda state: self._tell_of_pause(name, state),
            reraise=True,
        )

    def _tell_of_pause(self, name: str, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        pause = state.next_action.sleep if state.next_action is not None else 0.0
        self._note(name, error)
        self._tell(f"{name}: {error}; tried again in {pause:.0f} s")

    def _run(self, name: str) -> bool:
        """Run a pipeline once; return whether it came to its end, rather than failing after some batches."""
        stopping = self._stopping[name]
        if stopping.is_set():
            return True
        try:
            plan = self._pipelines[name]()
            self._hold(name, plan)
            once = self._once or name in self._draining or plan.config.trigger == AVAILABLE_NOW
            shutdown = SourceShutdown(plan.directory)
            shutdown.reset()
            writer = BatchWriter(plan.routes, plan.staging, plan.behind)
            watch = QueryWatch(name, writer.written.get, self._done)
            self._listener.expect(name, watch)
            query = _start(plan, writer, once)
        except (PySparkException, Py4JError, Mistake, OSError) as error:
            if has_ended(self._spark, _LOOK):
                raise
            raise QueryFailed(query_failure_of(error)) from error
        self._statuses[name].running()
        self._tell(f"{name}: started; what it has done is kept in {plan.directory}")
        with ScheduledCompaction(plan, writer.writing, self._tell) as compaction:
            while query.isActive and not stopping.is_set() and (once or name not in self._draining):
                stopping.wait(_LOOK)
            while once and compaction.busy and not stopping.is_set():
                stopping.wait(_LOOK)
        cut = (stopping.is_set() or query.isActive) and self._end(query, shutdown, plan)
        self._wait_for_events(watch)
        ended_by = None if cut else query.exception()
        if ended_by is None:
            drains = not once and not stopping.is_set()
            how = "stopped" if stopping.is_set() else "stopped, to be drained" if drains else "done"
            how += " in the middle of a batch, which is run again at the next start" if cut else ""
            self._tell(f"{name}: {how}{_late(watch, plan.config)}")
            return not drains
        failed = QueryFailed(query_failure_of(writer.error or ended_by))
        if not stopping.is_set():
            if failed.failure.data and self._diverts(plan):
                return False
            if watch.done:
                self._note(name, failed)
                self._tell(f"{name}: {failed}; tried again at once")
                return False
        raise failed

    def _done(self, batch: Batch) -> None:
        """Tell of a batch. On the thread that Spark's events come on."""
        self._statuses[batch.pipeline].done(batch.summary())
        self._seen(batch)

    def _wait_for_events(self, watch: QueryWatch) -> None:
        """Wait for the last events of a query that has ended; raise what went wrong with taking them."""
        before = time.monotonic() + _EVENTS_WAIT
        while not watch.ended.wait(_LOOK) and time.monotonic() < before and not has_ended(self._spark):
            pass
        if watch.error is not None:
            raise watch.error

    def _hold(self, name: str, plan: Plan) -> None:
        """Keep other processes from running the pipeline, until this one gives it up."""
        if name in self._locks:
            return
        plan.directory.mkdir(parents=True, exist_ok=True)
        file = plan.directory / LOCK
        before = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                held = lock(file)
                break
            except Locked as error:
                if time.monotonic() >= before:
                    raise PipelineBusy(f"process {error.process} runs it already ({file}); end that first") from error
            time.sleep(_LOOK)
        request.take(plan.directory)  # of a process before this one
        self._statuses[name] = StatusRecord(plan.directory, self._tell)
        self._locks[name] = plan.directory, held

    def _diverts(self, plan: Plan) -> bool:
        """Return whether rows are found that a SELECT cannot be made of.

        They are dead letters when the batch is run again.
        """
        try:
            failed = FailedBatch(self._spark, plan.name, plan.config, plan.environment)
            found = failed.divert(self._stopping[plan.name].is_set)
        except Exception as error:  # of Spark, the source or the queue manager: the query would have it, too
            raise QueryFailed(query_failure_of(error)) from error
        if found is None:
            return False
        rows = "1 row" if len(found.why) == 1 else f"{len(found.why)} rows"
        why = next(iter(found.why.values()))
        self._tell(f"{plan.name}: batch {found.batch}: {rows} of {found.rows} go to the dead letters: {why}")
        return True

    def _end(self, query: StreamingQuery, shutdown: SourceShutdown, plan: Plan) -> bool:
        """Freeze the source, wait until nothing is under way, stop; return whether a batch was all the same."""
        shutdown.request()
        before = time.monotonic() + self._patience
        own = plan.config.source.archive is None

        def is_quiet() -> bool:
            return not query.isActive or (shutdown.complete if own else not query.status["isTriggerActive"])

        while not (quiet := is_quiet()) and time.monotonic() < before:
            time.sleep(_LOOK / 5)
        cut = not quiet and bool(query.status["isTriggerActive"])
        query.stop()
        return cut


def _late(watch: QueryWatch, config: PipelineConfig) -> str:
    """Return what there is to tell of rows that came too late."""
    if not watch.late:
        return ""
    count = f"{'' if watch.late_exact else 'at least '}{watch.late} row{'s' if watch.late > 1 else ''}"
    return f"; {count} came too late, and {'are in no result' if config.late is None else 'went where late: says'}"


def _start(plan: Plan, batch_writer: BatchWriter, once: bool) -> StreamingQuery:
    writer = plan.frame.writeStream.foreachBatch(batch_writer).queryName(plan.name).outputMode("append")
    writer = writer.option("checkpointLocation", str(plan.directory / CHECKPOINT))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(float(plan.config.trigger) * 1000)} milliseconds").start()
