"""A thread that owns one connection to a queue manager, takes jobs in batches, and outlives lost connections."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from bridge.mq.backend import Commits
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.wire import cmqc

if TYPE_CHECKING:
    import tenacity

log = logging.getLogger(__name__)

Job = TypeVar("Job")

#: Reasons that say that the connection is lost, or cannot be had at the moment: they heal by waiting.
LOST = frozenset(
    (
        cmqc.MQRC_CONNECTION_BROKEN,
        cmqc.MQRC_HCONN_ERROR,
        cmqc.MQRC_MAX_CONNS_LIMIT_REACHED,
        cmqc.MQRC_Q_MGR_NOT_AVAILABLE,
        cmqc.MQRC_Q_MGR_QUIESCING,
        cmqc.MQRC_Q_MGR_STOPPING,
        cmqc.MQRC_CONNECTION_QUIESCING,
        cmqc.MQRC_CONNECTION_STOPPING,
        cmqc.MQRC_CONNECTION_ERROR,
        cmqc.MQRC_CHANNEL_NOT_AVAILABLE,
        cmqc.MQRC_HOST_NOT_AVAILABLE,
        cmqc.MQRC_CHANNEL_STOPPED_BY_USER,
        cmqc.MQRC_CALL_INTERRUPTED,
        cmqc.MQRC_RECONNECTING,
        cmqc.MQRC_RECONNECTED,
        cmqc.MQRC_RECONNECT_QMID_MISMATCH,
        cmqc.MQRC_RECONNECT_INCOMPATIBLE,
        cmqc.MQRC_RECONNECT_FAILED,
        # Handles that are stale (ALTER ... FORCE, REFRESH CLUSTER): a new connection opens every object again.
        cmqc.MQRC_OBJECT_CHANGED,
        cmqc.MQRC_HOBJ_ERROR,
    )
)
#: The reasons in LOST for which only handles have to be opened again.
STALE = frozenset((cmqc.MQRC_OBJECT_CHANGED, cmqc.MQRC_HOBJ_ERROR))
#: Seconds: first and longest pause between attempts to connect, doubling, with jitter.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0


#: Seconds after which a connection that nobody uses is looked at.
PROBE_INTERVAL = 10.0
#: Seconds for which a failure is told of a worker: one that goes on comes again within them.
FAILURE_KEPT = 60.0


class Stopped(Exception):
    """The worker is told to end while it waits."""


class Fenced(Exception):
    """Another bridge has taken over: nothing that this one believes of the queue manager holds any more."""


def probe(connection: Connection) -> None:
    """Find out whether a connection lives, by opening the queue manager itself and closing it again.

    Whatever the queue manager answers, it is life. Raises MQError, with a reason of LOST, where the connection is lost; also
    where the queue manager quiesces, which an idle connection would hold up.
    """
    try:
        od = MQOD(ObjectType=cmqc.MQOT_Q_MGR)
        connection.close(connection.open(od, cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING))
    except MQError as error:
        if error.reason in LOST:
            raise


class Worker(ABC, Generic[Job]):
    """Runs jobs on a connection of its own.

    A subclass says what to open on a new connection (`opened`) and how to run a batch (`serve`). While the queue manager
    is away, jobs wait; a batch under way when it was lost is handed to `recover` after the reconnect. An idle connection is
    probed: a loss is noticed, and told by `on_lost`, without any traffic.
    """

    def __init__(
        self, name: str, connect: Callable[[], Connection], *, probe_interval: float = PROBE_INTERVAL
    ) -> None:
        self.name = name
        #: seconds
        self.probe_interval = probe_interval
        #: time.monotonic() when the connection was probed last
        self._probed = 0.0
        #: the connection of another worker is lost: this one is probed at once
        self._look = False
        #: somebody is back: an attempt to connect need not wait for its time
        self._hint = False
        #: time.monotonic() since when the worker waits for the queue manager to answer; 0.0 while it does not. A round of
        #: many calls notes each answer with `answered`.
        self.busy_since = 0.0
        #: time.monotonic() when the connection was lost; 0.0 while there is one, and before the first
        self.lost_since = 0.0
        #: what failed last though the queue manager answers, in words, and when (time.monotonic())
        self.failure = ""
        self.failed_at = -FAILURE_KEPT
        #: Seconds: the longest pause between attempts to connect.
        self.longest_pause = LONGEST_PAUSE
        self._connect = connect
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._ending = False
        #: the log says that the queue manager is away
        self._loss_logged = False
        #: and that the queue manager is there, but not all that the worker opens
        self._lacks = False
        self.connection: Connection | None = None
        #: counts what `commit_units` does, where somebody wants to know
        self.commits: Commits | None = None
        #: called on the thread, with a sentence, when an error of the bridge itself ends it
        self.on_crash: Callable[[str], None] = log.critical
        #: called on the thread when the connection is lost, and when there is one again
        self.on_lost: Callable[[], None] = lambda: None
        self.on_back: Callable[[], None] = lambda: None
        #: called on the thread, with a sentence, when another bridge has taken over; the worker ends
        self.on_fenced: Callable[[str], None] = log.critical
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def commit_units(self, connection: Connection, units: int) -> None:
        """Commit so many units of work of the bridge by one MQCMIT. Raises MQError."""
        commits = self.commits
        if commits is None:
            connection.commit()
            return
        began = time.perf_counter()
        try:
            connection.commit()
        except MQError:
            commits.fail()
            raise
        commits.count(units, 0, time.perf_counter() - began)

    def start(self) -> None:
        """Begin; the first connection is made on the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Hand over a job; callable on any thread."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def look(self) -> None:
        """Probe the connection at once: another's is lost. Callable on any thread."""
        with self._changed:
            self._look = True
            self._changed.notify_all()

    def hint(self) -> None:
        """Try to connect at once, where this worker waits to: another is back. Callable on any thread."""
        with self._changed:
            self._hint = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """End as soon as may be, with nothing of what is waiting done."""
        with self._changed:
            self._jobs.clear()
            self._ending = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End once the jobs given so far are done, or at once where the queue manager is away."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait for the end; False when it did not come in time."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def unanswered_since(self) -> float:
        """time.monotonic() since when the queue manager owes this worker an answer or a connection; 0.0 if it does not."""
        return self.lost_since or self.busy_since

    @property
    def ended(self) -> bool:
        """Return whether it was told to end, and its thread has."""
        return self._ending and not self._thread.is_alive()

    # On the thread ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def opened(self, connection: Connection) -> None:
        """Open what is needed on a new connection."""

    @abstractmethod
    def serve(self, connection: Connection) -> None:
        """Run one round of jobs, waiting for them where there are none; returns often enough to be stopped."""

    @abstractmethod
    def failed(self, error: MQError) -> None:
        """Handle an error that ended a round and that no reconnect heals; the jobs of the round have to be answered."""

    def lost(self) -> None:
        """Note that the connection is gone, and every handle with it."""

    @property
    def ending(self) -> bool:
        """Return whether the worker is to end, and nothing is left to do."""
        with self._changed:
            return self._ending and not self._jobs

    def wait_for_jobs(self, timeout: float) -> bool:
        """Wait until there is a job (True) or the time is over or the worker is to end (False)."""
        self.busy_since = 0.0
        due = self._probed + self.probe_interval - time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._ending or self._look, max(0.0, min(timeout, due)))
            self.busy_since = time.monotonic()
            return bool(self._jobs)

    def answered(self) -> None:
        """Note that the queue manager has answered a call of this round."""
        self.busy_since = time.monotonic()

    def next_job(self) -> Job | None:
        """Take a job if there is one."""
        with self._changed:
            return self._jobs.popleft() if self._jobs else None

    def give_back(self, jobs: list[Job]) -> None:
        """Put jobs that were taken back in front."""
        with self._changed:
            self._jobs.extendleft(reversed(jobs))

    def _run(self) -> None:
        try:
            while not self.ending:
                connection = self._reconnect()
                self.connection = connection
                self.lost_since = 0.0
                self._probed = time.monotonic()
                self.on_back()
                try:
                    while not self.ending:
                        self._round(connection)
                except MQError as error:
                    if error.reason in STALE:
                        log.info("MQB4011I %s: an object was changed: %s; opening all objects again", self.name, error)
                    else:
                        self._loss_logged = True
                        log.warning("MQB4001W %s: the queue manager is lost: %s; reconnecting", self.name, error)
                    self.lost_since = time.monotonic()
                    self.lost()
                    self.on_lost()
                finally:
                    self.connection = None
                    self._leave(connection)
        except Stopped:
            pass
        except Fenced as error:
            self.on_fenced(f"{self.name}: {error}")
        except Exception as error:
            log.exception("MQB4002E %s ended by an error of the bridge", self.name)
            self.on_crash(f"{self.name} ended by {type(error).__name__}: {error}")

    def _round(self, connection: Connection) -> None:
        try:
            self.busy_since = time.monotonic()
            if self._look or self.busy_since - self._probed >= self.probe_interval:
                self._look = False  # before the probe: what is lost behind it is looked for again
                self.probe(connection)
                self._probed = time.monotonic()
            self.serve(connection)
        except MQError as error:
            if error.reason in LOST:
                raise
            self.failure, self.failed_at = f"{self.name}: {error}", time.monotonic()
            self.failed(error)
        finally:
            self.busy_since = 0.0

    def probe(self, connection: Connection) -> None:
        """Find out whether the connection lives. Raises MQError, with a reason of LOST, where it does not."""
        probe(connection)

    def _reconnect(self) -> Connection:
        """Connect, as often as it takes: at once, then after pauses that double, with jitter."""
        # Imported by what connects: the embedded queue manager's process takes only names from this module.
        import tenacity

        def log_retry(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome is not None else None
            if isinstance(error, MQError) and self.is_told(error):
                return
            if state.attempt_number in (1, 5) or state.attempt_number % 30 == 0:
                self._loss_logged = True
                self._lacks = isinstance(error, MQError) and error.reason not in LOST
                what = "what the queue manager lacks" if self._lacks else "the queue manager"
                log.warning(
                    "MQB4003W %s: waiting for %s (attempt %d): %s", self.name, what, state.attempt_number, error
                )

        def pause(seconds: float) -> None:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or self._hint, seconds)
                self._hint = False
                if self._ending:
                    raise Stopped

        connection = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self.is_temporary),
            wait=tenacity.wait_exponential(multiplier=FIRST_PAUSE, max=self.longest_pause)
            + tenacity.wait_random(0, FIRST_PAUSE),
            before_sleep=log_retry,
            sleep=pause,
        )(self._attempt)
        if self._loss_logged:
            if self._lacks:
                log.warning("MQB4005W %s: all that it needs is there", self.name)
            else:
                log.warning("MQB4004W %s: the queue manager is back", self.name)
        self._loss_logged = self._lacks = False
        return connection

    def is_told(self, error: MQError) -> bool:
        """Return whether the log says why an attempt to connect failed, in words of its own."""
        return False

    def is_temporary(self, error: BaseException) -> bool:
        """Return whether to try again after a failed attempt."""
        return isinstance(error, MQError)

    def _attempt(self) -> Connection:
        connection = self._connect()
        try:
            self.opened(connection)
        except BaseException:
            self._leave(connection)
            raise
        return connection

    def _leave(self, connection: Connection) -> None:
        with contextlib.suppress(MQError):
            connection.backout()  # MQDISC would commit what an error has left half done
        try:
            connection.disconnect()
        except MQError as error:
            log.debug("%s: disconnect: %s", self.name, error)
