"""A thread that owns one connection to a queue manager, runs jobs in batches, and reconnects."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bridge.mq.backend import Commits, Silence
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.parking import ParkingThread, Pause
from bridge.wire import cmqc

if TYPE_CHECKING:
    import tenacity

log = logging.getLogger(__name__)

Job = TypeVar("Job")

#: Reason codes for a connection that is lost or temporarily unavailable.
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
        # Stale handles (ALTER ... FORCE, REFRESH CLUSTER): a new connection opens all objects again.
        cmqc.MQRC_OBJECT_CHANGED,
        cmqc.MQRC_HOBJ_ERROR,
    )
)
#: The reason codes in LOST for which it would suffice to reopen handles.
STALE = frozenset((cmqc.MQRC_OBJECT_CHANGED, cmqc.MQRC_HOBJ_ERROR))
#: Exponential back-off between attempts to connect, in seconds, with jitter.
FIRST_PAUSE, MAX_PAUSE = 0.1, 10.0


#: Interval between probes of the connection, in seconds.
PROBE_INTERVAL = 10.0
#: Time for which a failure is reported, in seconds. A persistent failure recurs within it.
FAILURE_KEPT = 60.0


class Stopped(Exception):
    """The worker was stopped while it waited to reconnect."""


class Fenced(Exception):
    """Another bridge has taken over, so this bridge's view of the queue manager is outdated."""


def raise_if_lost(error: MQError) -> None:
    """Raise an error that means that the connection is lost."""
    if error.reason in LOST:
        raise error


def probe(connection: Connection) -> None:
    """Check a connection by opening and closing the queue manager object.

    Raises MQError, with a reason code in LOST, if the connection is lost or if the queue manager is quiescing, which an idle
    connection would delay. Other reason codes prove that the connection works.
    """
    try:
        od = MQOD(ObjectType=cmqc.MQOT_Q_MGR)
        connection.close(connection.open(od, cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING))
    except MQError as error:
        raise_if_lost(error)


def back_out(connection: Connection) -> None:
    """Back out the unit of work (MQBACK). A lost connection has done that already. Raises MQError."""
    try:
        connection.backout()
    except MQError as error:
        if error.reason not in LOST:
            raise


class WorkerEvents:
    """Events of workers, reported on their threads. The methods of this class only log fatal events."""

    def connection_lost(self, worker: Worker[Any]) -> None:
        """Handle the loss of a worker's connection."""

    def connected(self, worker: Worker[Any]) -> None:
        """Handle a new connection of a worker."""

    def crashed(self, why: str) -> None:
        """Handle the end of a worker due to an internal error."""
        log.critical("MQB4015S a worker ended: %s", why)

    def fenced(self, why: str) -> None:
        """Handle the end of a worker after another bridge has taken over."""
        log.critical("MQB4016S a worker ended, another bridge has taken over: %s", why)


class Worker(ABC, Generic[Job]):
    """Runs jobs on a connection of its own.

    Subclasses open objects on a new connection (`opened`) and run batches (`serve`). Jobs wait while the queue manager is
    unavailable. Idle connections are probed, so that a loss is reported even without traffic. A subclass may set `idle` on
    an embedded queue manager, whose connections any thread may use: its thread ends until `wake` is called.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        *,
        events: WorkerEvents | None = None,
        probe_interval: float = PROBE_INTERVAL,
    ) -> None:
        self.name = name
        self.probe_interval = probe_interval
        #: time.monotonic() of the last probe
        self._probed = 0.0
        #: probe now: another worker has lost its connection
        self._probe_requested = False
        #: reconnect now: another worker has reconnected
        self._reconnect_requested = False
        #: time.monotonic() when the worker began to wait for the queue manager, or 0.0 if it does not wait. A round with many
        #: calls updates it with `answered`.
        self.busy_since = 0.0
        #: time.monotonic() when the connection was lost, or 0.0 while connected and before the first connection
        self.lost_since = 0.0
        #: since when and why there is no connection. None if the queue manager answers, and before the first attempt
        self.silence: Silence | None = None
        #: set when the first attempt to connect and to open objects is over, or when the worker is to end
        self.attempted = threading.Event()
        #: description and time.monotonic() of the last failure other than a lost connection
        self.failure = ""
        self.failed_at = -FAILURE_KEPT
        #: the maximum back-off between attempts to connect, in seconds
        self.max_pause = MAX_PAUSE
        self._connect = connect
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._ending = False
        #: the log reports that the worker has no connection
        self._loss_logged = False
        #: the log reports that the queue manager is available, but an object that the worker opens is not
        self._object_missing = False
        self.connection: Connection | None = None
        #: counters of `commit_units`, or None
        self.commits: Commits | None = None
        self.events = events or WorkerEvents()
        #: `serve` has nothing to do until `wake` is called, so the thread may end
        self.idle = False
        self._thread = ParkingThread(name, self._run)

    def commit_units(self, connection: Connection, units: int) -> None:
        """Commit the MQ unit of work, which contains `units` of the bridge's units of work (MQCMIT). Raises MQError."""
        commits = self.commits
        if commits is None:
            connection.commit()
            return
        start = time.perf_counter()
        try:
            connection.commit()
        except MQError:
            commits.fail()
            raise
        commits.count(units, 0, time.perf_counter() - start)

    def start(self) -> None:
        """Start the thread, which connects to the queue manager."""
        self._thread.start()

    def wake(self) -> None:
        """End the pause of an idle worker. Callable on any thread. It does not block."""
        self._thread.wake()

    @property
    def parked(self) -> bool:
        """Whether the worker is idle and has no thread."""
        return self._thread.parked

    def submit(self, job: Job) -> None:
        """Submit a job. Callable on any thread."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def request_probe(self) -> None:
        """Probe the connection now, because another worker has lost its connection. Callable on any thread."""
        with self._changed:
            self._probe_requested = True
            self._changed.notify_all()

    def request_reconnect(self) -> None:
        """Stop waiting and reconnect now, because another worker has reconnected. Callable on any thread."""
        with self._changed:
            self._reconnect_requested = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Discard waiting jobs and end as soon as possible."""
        with self._changed:
            self._jobs.clear()
            self._ending = True
            self._changed.notify_all()
        self.attempted.set()
        self.wake()

    def stop(self) -> None:
        """End after all submitted jobs are done, or immediately if the queue manager is unavailable."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self.attempted.set()
        self.wake()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end. Return False if it did not end within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def unanswered_since(self) -> float:
        """time.monotonic() when this worker began to wait for an answer or a connection, or 0.0 if it does not wait."""
        return self.lost_since or self.busy_since

    @property
    def ended(self) -> bool:
        """Whether the worker was stopped and its thread has ended."""
        return self._ending and not self._thread.is_alive()

    # On the thread ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def opened(self, connection: Connection) -> None:
        """Open objects on a new connection."""

    @abstractmethod
    def serve(self, connection: Connection) -> None:
        """Wait for jobs and run one batch. Return often enough for the worker to be stopped."""

    @abstractmethod
    def failed(self, error: MQError) -> None:
        """Handle an error in `serve` that a reconnect does not fix, and report it as the result of the batch's jobs."""

    def lost(self) -> None:
        """Handle the loss of the connection and all its handles."""

    @property
    def ending(self) -> bool:
        """Whether the worker was stopped and has no jobs left."""
        with self._changed:
            return self._ending and not self._jobs

    def wait_for_jobs(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a job. Return whether there is one. Return early for a probe or a stop."""
        self.busy_since = 0.0
        due = self._probed + self.probe_interval - time.monotonic()
        with self._changed:
            self._changed.wait_for(
                lambda: self._jobs or self._ending or self._probe_requested, max(0.0, min(timeout, due))
            )
            self.busy_since = time.monotonic()
            return bool(self._jobs)

    def answered(self) -> None:
        """Record that the queue manager has answered a call."""
        self.busy_since = time.monotonic()

    def next_job(self) -> Job | None:
        """Remove and return the next job, or None."""
        with self._changed:
            return self._jobs.popleft() if self._jobs else None

    def give_back(self, jobs: list[Job]) -> None:
        """Put jobs back at the front of the queue."""
        with self._changed:
            self._jobs.extendleft(reversed(jobs))

    def _run(self) -> Iterator[Pause]:
        try:
            while not self.ending:
                connection = self._reconnect()
                self.connection = connection
                self.lost_since = 0.0
                self._probed = time.monotonic()
                self.events.connected(self)
                try:
                    while not self.ending:
                        self._round(connection)
                        if self.idle:
                            self.idle = False
                            yield Pause()
                except MQError as error:
                    if error.reason in STALE:
                        log.info("MQB4011I %s: an object was changed: %s; opening all objects again", self.name, error)
                    else:
                        self._loss_logged = True
                        self._unanswered(error)
                        log.info(
                            "MQB4001I %s: lost the connection to the queue manager: %s; reconnecting", self.name, error
                        )
                    self.lost_since = time.monotonic()
                    self.lost()
                    self.events.connection_lost(self)
                finally:
                    self.connection = None
                    self._leave(connection)
        except Stopped:
            pass
        except Fenced as error:
            self.events.fenced(f"{self.name}: {error}")
        except Exception as error:
            log.exception("MQB4002E %s ended because of an internal error", self.name)
            self.events.crashed(f"{self.name} ended by {type(error).__name__}: {error}")

    def _round(self, connection: Connection) -> None:
        try:
            self.busy_since = time.monotonic()
            if self._probe_requested or self.busy_since - self._probed >= self.probe_interval:
                self._probe_requested = False  # before the probe, so that a later request causes another one
                self.probe(connection)
                self._probed = time.monotonic()
            self.serve(connection)
        except MQError as error:
            raise_if_lost(error)
            self.failure, self.failed_at = f"{self.name}: {error}", time.monotonic()
            self.failed(error)
        finally:
            self.busy_since = 0.0

    def probe(self, connection: Connection) -> None:
        """Check the connection. Raises MQError, with a reason code in LOST, if it is lost."""
        probe(connection)

    def _reconnect(self) -> Connection:
        """Connect, with exponential back-off and jitter between attempts. Raises Stopped."""
        # Imported here because processes with an embedded queue manager do not need it.
        import tenacity

        def log_retry(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome is not None else None
            if isinstance(error, MQError) and self.is_logged(error):
                return
            if state.attempt_number in (1, 5) or state.attempt_number % 30 == 0:
                self._loss_logged = True
                self._object_missing = isinstance(error, MQError) and error.reason not in LOST
                number = state.attempt_number
                if self.lost_since and not self._object_missing:
                    # The list of problems reports a lost queue manager once for all workers.
                    log.info("MQB4014I %s: not reconnected (attempt %d): %s", self.name, number, error)
                else:
                    resource = "an object or authority" if self._object_missing else "the queue manager"
                    log.warning("MQB4003W %s: waiting for %s (attempt %d): %s", self.name, resource, number, error)

        def pause(seconds: float) -> None:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or self._reconnect_requested, seconds)
                self._reconnect_requested = False
                if self._ending:
                    raise Stopped

        connection = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self.is_temporary),
            wait=tenacity.wait_exponential(multiplier=FIRST_PAUSE, max=self.max_pause)
            + tenacity.wait_random(0, FIRST_PAUSE),
            before_sleep=log_retry,
            sleep=pause,
        )(self._attempt)
        if self._loss_logged:
            if self._object_missing:
                log.info("MQB4005I %s: the missing object or authority is now present", self.name)
            else:
                log.info("MQB4004I %s: reconnected to the queue manager", self.name)
        self._loss_logged = self._object_missing = False
        return connection

    def is_logged(self, error: MQError) -> bool:
        """Return whether the subclass has logged why an attempt to connect failed."""
        return False

    def is_temporary(self, error: BaseException) -> bool:
        """Return whether to retry after an error in an attempt to connect."""
        return isinstance(error, MQError)

    def _attempt(self) -> Connection:
        try:
            connection = self._connected()
            try:
                self.opened(connection)
            except BaseException:
                self._leave(connection)
                raise
        except MQError as error:
            if error.reason in LOST:
                self._unanswered(error)
            else:
                self.silence = None
            raise
        finally:
            self.attempted.set()
        self.silence = None
        return connection

    def _connected(self) -> Connection:
        self.busy_since = time.monotonic()
        try:
            return self._connect()
        finally:
            self.busy_since = 0.0

    def _unanswered(self, error: MQError) -> None:
        """Keep the reason, and the time of the first failure."""
        if self.silence is None:
            self.silence = Silence(time.time(), str(error))
        elif error.reason != cmqc.MQRC_RECONNECTING:  # another thread tries, and knows the reason
            self.silence = self.silence._replace(why=str(error))

    def _leave(self, connection: Connection) -> None:
        with contextlib.suppress(MQError):
            connection.backout()  # MQDISC would commit an incomplete unit of work
        try:
            connection.disconnect()
        except MQError as error:
            log.debug("%s: disconnect: %s", self.name, error)
