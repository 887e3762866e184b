"""The parts of a running bridge that administration requests need, and their connection to the queue manager."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from bridge.administration.answers import BridgeState, Problem
from bridge.administration.protocol import Refused, Unavailable
from bridge.config.models import Configuration
from bridge.mq.daemon_threads import DaemonThreads
from bridge.mq.host import MAX_WAITING, TOO_MANY_WAITING, Host, TooMany, TooManyWaiting
from bridge.mq.mqi import Connection, MQError
from bridge.mq.worker import LOST
from bridge.service.activity import Activity, HistoryRecorder
from bridge.service.applications import Applications
from bridge.service.channels import Channels
from bridge.service.log import LogTail
from bridge.service.mappings.registry import Mappings
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.service.rate_history import RateHistory
from bridge.service.table_files import TableFiles
from bridge.service.telemetry import TelemetryService
from bridge.service.topic_publishers import TopicPublishers
from bridge.service.tracing import Tracing

if TYPE_CHECKING:
    from bridge.service.recorder import Recorder

#: Number of rows processed per turn of the event loop.
ROWS_AT_A_TURN = 500


T = TypeVar("T")

#: Maximum duration of a call, in seconds.
TIMEOUT: Final = 30.0
#: Seconds that `stop` waits for the call in progress.
_STOP_TIMEOUT: Final = 5.0


async def answer_of(host: Host, answer: Awaitable[T], *, changes: bool = False) -> T:
    """Return the answer of a queue manager. `changes` specifies that the call may change something. Raises Refused."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await answer
    except TimeoutError as error:
        later = ". The operation may still be performed" if changes else ""
        raise Unavailable(f"the queue manager did not answer within {TIMEOUT:g} s{later}") from error
    except TooManyWaiting as error:
        raise Unavailable(str(error)) from error
    except (MQError, TooMany) as error:
        is_lost = isinstance(error, MQError) and error.reason in LOST
        raise (Unavailable if is_lost else Refused)(f"queue manager {host.name}: {error}") from error


class QueueManagerConnection:
    """Runs MQI calls of requests on a separate thread, so that they don't delay messages.

    Connects for the first call, and again after the connection was lost.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._thread = DaemonThreads(1, "administration")
        self._connection: Connection | None = None
        self._waiting = 0
        self._stopped = False

    async def run(self, work: Callable[[Connection], T], *, repeatable: bool = True, changes: bool = False) -> T:
        """Run MQI calls on the thread and return their result. Uncommitted operations are backed out.

        A `repeatable` call is repeated if the connection turns out to be lost. Calls that are not repeatable, and calls with
        `changes`, may change something. Raises Refused.
        """
        if self._stopped:
            raise Unavailable("the bridge is stopping")
        if self._waiting >= MAX_WAITING:
            raise Unavailable(TOO_MANY_WAITING)
        self._waiting += 1
        call = asyncio.get_running_loop().run_in_executor(self._thread, self._run, work, repeatable)
        call.add_done_callback(self._ended)
        return await answer_of(self._host, asyncio.shield(call), changes=changes or not repeatable)

    def _ended(self, call: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not call.cancelled():
            call.exception()  # after a timeout, nothing else retrieves it

    def _run(self, work: Callable[[Connection], T], repeatable: bool) -> T:
        is_new = self._connection is None
        if self._connection is None:
            self._connection = self._host.connect("administration")
        try:
            return self._backed_out(self._connection, work)
        except MQError as error:
            if error.reason not in LOST:
                raise
            self._disconnect()
            if is_new or not repeatable:
                raise
        return self._run(work, False)

    @staticmethod
    def _backed_out(connection: Connection, work: Callable[[Connection], T]) -> T:
        try:
            return work(connection)
        finally:
            with contextlib.suppress(MQError):  # a lost connection is backed out by the queue manager
                connection.backout()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(MQError):
                self._connection.disconnect()
            self._connection = None

    async def stop(self) -> None:
        """Disconnect after the calls in progress. Later calls raise Unavailable."""
        if self._stopped:
            return
        self._stopped = True
        closing = self._thread.submit(self._disconnect)
        self._thread.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await asyncio.wrap_future(closing)


class Parts(msgspec.Struct, kw_only=True):
    """The parts of a running bridge."""

    #: from the start or the last reload
    configuration: Configuration
    host: Host
    service: TelemetryService
    channels: Channels
    applications: Applications
    mappings: Mappings
    table_files: TableFiles
    activity: Activity
    publishers: TopicPublishers
    queue_manager_watch: QueueManagerWatch
    queue_manager_connection: QueueManagerConnection
    #: None without an archive
    archive: Recorder | None
    reload: Callable[[], Awaitable[tuple[bool, list[str]]]]
    #: makes the bridge stand by. Raises CommandFailure if the bridge has no standby
    hand_over: Callable[[], None]
    #: None if tracing is disabled
    traces: Tracing | None
    #: returns the current problems
    problems: Callable[[], Awaitable[list[Problem]]]
    #: seconds since the epoch
    started_at: float
    #: None without an admin port
    history: HistoryRecorder | None = None
    rates: RateHistory | None = None
    log_tail: LogTail | None = None
    state: BridgeState = BridgeState.STARTING
    #: why the last reload failed; blank if it succeeded or the configuration was never reloaded
    failed_reload: str = ""
    #: a link test is running
    trying_link: bool = False
    #: an edited copy of the configuration file is being checked
    checking_copy: bool = False
