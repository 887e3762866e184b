"""Pipelines that run: started together in one Spark, watched, started again when they fail, ended in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

import tenacity
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.config.pipeline import AVAILABLE_NOW
from bridge.mq.embedded.storage.lock import Locked, lock
from bridge.pipeline.flow.failed_batch import FailedBatch
from bridge.pipeline.flow.mistake import Mistake
from bridge.pipeline.flow.plan import Plan
from bridge.pipeline.flow.progress import Batch, batch_of
from bridge.pipeline.flow.query_failure import QueryFailure, query_failure_of
from bridge.pipeline.flow.sink import BatchWriter
from bridge.pipeline.flow.sources.shutdown import SourceShutdown
from bridge.pipeline.session import has_ended

#: Seconds between two looks at a query.
_LOOK: Final = 0.25
#: How often in a row a pipeline that fails without a known remedy is started, and the seconds before it is.
ATTEMPTS: Final = 8
_FIRST_PAUSE: Final = 1
_LONGEST_PAUSE: Final = 60
#: File of a pipeline's directory that the process which runs it has locked.
LOCK: Final = "lock"

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
        self._stopping = threading.Event()
        #: by pipeline
        self._locks: dict[str, IO[str]] = {}

    def stop(self) -> None:
        """Have all pipelines end what is under way, and no more. May be called from a signal handler."""
        self._stopping.set()

    def run(self) -> Sequence[str]:
        """Run to the end; return the names of the pipelines that were given up."""
        failed: list[str] = []
        threads = [
            threading.Thread(target=self._supervise, args=(name, failed), name=name) for name in self._pipelines
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a join without end would keep signals waiting
                thread.join(_LOOK)
        return sorted(failed)

    def _supervise(self, name: str, failed: list[str]) -> None:
        """Run a pipeline, again and again while it fails; each batch that it has done counts as a new start."""
        # Spark looks for sources in the session that is active in a thread.
        jvm: Any = self._spark._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._spark._jsparkSession)
        try:
            while not self._retrying(name)(self._run, name):
                pass
        except QueryFailed as error:
            if self._stopping.is_set():
                self._tell(f"{name}: stopped, after it had failed: {error}")
                return
            failed.append(name)
            self._tell(f"{name}: given up, and needs a person: {error}")
        except PipelineBusy as error:
            failed.append(name)
            self._tell(f"{name}: not started: {error}")
        except Exception as error:
            failed.append(name)
            if not has_ended(self._spark, _LOOK):
                self._tell(f"{name}: given up: {type(error).__name__}: {error}")
                raise
            self._tell(
                f"{name}: Spark's virtual machine has ended (killed, or out of memory?); what was done is kept: start again"
            )
        finally:
            if (held := self._locks.pop(name, None)) is not None:
                held.close()

    def _retrying(self, name: str) -> tenacity.Retrying:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(QueryFailed),
            wait=tenacity.wait_exponential_jitter(initial=_FIRST_PAUSE, max=_LONGEST_PAUSE),
            stop=tenacity.stop_any(_Patience(self._attempts), tenacity.stop_when_event_set(self._stopping)),
            sleep=tenacity.sleep_using_event(self._stopping),
            before_sleep=lambda state: self._tell(f"{name}: {_why(state)}; tried again in {_pause(state):.0f} s"),
            reraise=True,
        )

    def _run(self, name: str) -> bool:
        """Run a pipeline once; return whether it came to its end, rather than failing after some batches."""
        if self._stopping.is_set():
            return True
        try:
            plan = self._pipelines[name]()
            self._hold(name, plan)
            shutdown = SourceShutdown(plan.directory)
            shutdown.reset()
            writer = BatchWriter(plan.routes)
            query = _start(plan, writer, self._once)
        except (PySparkException, Py4JError, Mistake, OSError) as error:
            if has_ended(self._spark, _LOOK):
                raise
            raise QueryFailed(query_failure_of(error)) from error
        self._tell(f"{name}: started; what it has done is kept in {plan.directory}")
        watch = _Watch(plan, query, writer, self._seen)
        while query.isActive and not self._stopping.is_set():
            self._stopping.wait(_LOOK)
            watch.look()
        cut = self._stopping.is_set() and self._end(query, shutdown, plan, watch)
        watch.look()
        ended_by = None if cut else query.exception()
        if ended_by is None:
            how = "stopped" if self._stopping.is_set() else "done"
            how += " in the middle of a batch, which is run again at the next start" if cut else ""
            late = f"; at least {watch.late} rows came too late, and are in no result" if watch.late else ""
            self._tell(f"{name}: {how}{late}")
            return True
        failed = QueryFailed(query_failure_of(writer.error or ended_by))
        if not self._stopping.is_set():
            if failed.failure.data and self._diverts(plan):
                return False
            if watch.done:
                self._tell(f"{name}: {failed}; tried again at once")
                return False
        raise failed

    def _hold(self, name: str, plan: Plan) -> None:
        """Keep other processes from running the pipeline, until this one gives it up."""
        if name in self._locks:
            return
        plan.directory.mkdir(parents=True, exist_ok=True)
        file = plan.directory / LOCK
        try:
            self._locks[name] = lock(file)
        except Locked as error:
            raise PipelineBusy(f"process {error.process} runs it already ({file}); end that first") from error

    def _diverts(self, plan: Plan) -> bool:
        """Return whether rows are found that a SELECT cannot be made of.

        They are dead letters when the batch is run again.
        """
        try:
            found = FailedBatch(self._spark, plan.name, plan.config, plan.environment).divert(self._stopping.is_set)
        except Exception as error:  # of Spark, the source or the queue manager: the query would have it, too
            raise QueryFailed(query_failure_of(error)) from error
        if found is None:
            return False
        rows = "1 row" if len(found.why) == 1 else f"{len(found.why)} rows"
        why = next(iter(found.why.values()))
        self._tell(f"{plan.name}: batch {found.batch}: {rows} of {found.rows} go to the dead letters: {why}")
        return True

    def _end(self, query: StreamingQuery, shutdown: SourceShutdown, plan: Plan, watch: _Watch) -> bool:
        """Freeze the source, wait until nothing is under way, stop; return whether a batch was all the same."""
        shutdown.request()
        before = time.monotonic() + self._patience
        own = plan.config.source.archive is None

        def is_quiet() -> bool:
            return not query.isActive or (shutdown.complete if own else not query.status["isTriggerActive"])

        while not (quiet := is_quiet()) and time.monotonic() < before:
            time.sleep(_LOOK / 5)
            watch.look()
        cut = not quiet and bool(query.status["isTriggerActive"])
        query.stop()
        return cut


class _Watch:
    """What is new of a query since the last look."""

    def __init__(self, plan: Plan, query: StreamingQuery, writer: BatchWriter, seen: Callable[[Batch], None]) -> None:
        self._plan = plan
        self._query = query
        self._writer = writer
        self._seen = seen
        self._last = -1
        #: batches with rows
        self.done = 0
        #: rows at least that came too late
        self.late = 0

    def look(self) -> None:
        for progress in self._query.recentProgress:
            number = int(progress.batchId)
            if number <= self._last:
                continue
            batch = batch_of(self._plan.name, progress, self._writer.refused.get(number))
            if batch.rows or batch.made:
                self._last = number
                self.done += 1
                self.late += batch.late
                self._seen(batch)


def _start(plan: Plan, batch_writer: BatchWriter, once: bool) -> StreamingQuery:
    writer = plan.frame.writeStream.foreachBatch(batch_writer).queryName(plan.name).outputMode("append")
    writer = writer.option("checkpointLocation", str(plan.directory / "checkpoint"))
    trigger = plan.config.trigger
    if once or trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(float(trigger) * 1000)} milliseconds")
    return writer.start()


def _why(state: tenacity.RetryCallState) -> str:
    error = state.outcome.exception() if state.outcome is not None else None
    return str(error)


def _pause(state: tenacity.RetryCallState) -> float:
    return state.next_action.sleep if state.next_action is not None else 0.0
