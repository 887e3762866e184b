"""The life cycle of a bridge: start, standby and stop.

Parts start in order. Each part that starts pushes its end onto a stack, so the parts end in reverse order, even if the start
fails. `bridge.service.foreground` runs a bridge until a signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from bridge import __version__
from bridge.administration.answers import BridgeState, Problem
from bridge.administration.control_server import ControlServer, answers
from bridge.administration.protocol import Answer, Request
from bridge.administration.requests import ListProblems, ShowLog, ShowStatus
from bridge.config.models import Configuration
from bridge.config.values import endpoint
from bridge.extras import install
from bridge.mapping.schema import SchemaError
from bridge.mq import host_of
from bridge.mq.daemon_threads import DaemonThreads
from bridge.mq.host import THREADS, Events, Host, HostError, QueueManagerAuthenticator
from bridge.mq.mqi import MQError
from bridge.mq.telemetry_channels import RunningChannels
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticator import UnknownPlugin
from bridge.security.authenticators import Authenticators, ChannelAuthentication
from bridge.security.tls import TlsError
from bridge.service.activity import Activity, HistoryRecorder
from bridge.service.administration.commanded_channels import CommandedChannels
from bridge.service.administration.handlers import Administration, Wait, lines_of, waiting_status
from bridge.service.administration.parts import Parts, QueueManagerConnection
from bridge.service.applications import Applications
from bridge.service.channels import ChannelError, Channels
from bridge.service.client_handler import handlers_of
from bridge.service.client_history import ClientEventHistory, HistoryUnavailable
from bridge.service.log import LogTail
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.registry import Mappings, started
from bridge.service.payload_schemas import schemas_of
from bridge.service.problems import ProblemList
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.service.rate_history import RateHistory
from bridge.service.reload import ConfigurationChange, ConfigurationReload, ConfigurationSource
from bridge.service.supervisor import Supervisor
from bridge.service.table_files import TableFiles
from bridge.service.telemetry import TelemetryService
from bridge.service.topic_publishers import TopicPublishers
from bridge.service.tracing import TracesError, Tracing, tracing_of

if TYPE_CHECKING:
    from bridge.service.metrics import Metrics
    from bridge.service.recorder import Recorder

log = logging.getLogger(__name__)

#: Exit status after another bridge has taken over: start again as standby.
STAND_BY: Final = -1
#: Exit status after the bridge has yielded to its standby: start again as standby, with a delay.
YIELDED: Final = -2
#: Seconds that a bridge waits after yielding, so that its standby can open the queue manager.
YIELD_DELAY: Final = 10.0


class StartError(Exception):
    """The bridge cannot start. The message contains the reason and a remedy."""


class AdminPort(Protocol):
    """Serves metrics, health checks and the console: `bridge.console.server.AdminPort`."""

    async def start(self) -> list[str]:
        """Listen and return lines for display. Raises OSError or TlsError."""

    async def stop(self) -> None:
        """Stop listening. Does nothing if the port has not started, or has stopped."""


def announce(line: str) -> None:
    """Log a line about the start of a part."""
    log.info("MQB0013I %s", line)


class Ending:
    """The end of a bridge: requested by a signal, after a failure, or because another bridge has taken over."""

    def __init__(self) -> None:
        #: the exit status
        self.status = 0
        self._event = asyncio.Event()

    @property
    def requested(self) -> bool:
        """Whether the bridge has to end."""
        return self._event.is_set()

    def request(self, status: int = 0) -> None:
        """Request the end with an exit status. The last failure determines the status."""
        self.status = status or self.status
        self._event.set()

    async def wait(self) -> None:
        """Wait until the end is requested."""
        await self._event.wait()


class Bridge:
    """The parts of a bridge: their start, stop and standby, and the answers to requests in all of these states.

    Methods are called on the event loop. A bridge starts once.
    """

    def __init__(
        self,
        configuration: Configuration,
        announce: Callable[[str], None] = announce,
        *,
        source: ConfigurationSource | None = None,
        admin_port: Callable[[Bridge], AdminPort] | None = None,
        supervisor: Supervisor | None = None,
        has_yielded: bool = False,
    ) -> None:
        """Create a bridge. `admin_port` creates the admin port. None creates a bridge without it.

        `has_yielded`: this process has just yielded to its standby, and waits for YIELD_DELAY.
        """
        self._standby_delay = YIELD_DELAY if has_yielded else 0.0
        self._configuration = configuration
        self.announce = announce
        self._source = source
        self._supervisor = supervisor or Supervisor()
        path = configuration.control_socket_path
        self._control = None if path is None else ControlServer(path, self.answer)
        self.state = BridgeState.STARTING
        self.started_at = time.time()
        self.ending = Ending()
        #: the condition that the bridge waits for until it runs
        self._wait = Wait(f"queue manager {configuration.queue_manager.name}", self.started_at)
        #: the ends of the parts that have started
        self._started = AsyncExitStack()
        #: the ends of the parts that finish their work in `stop`: clients, mappings, units of work
        self._serving = AsyncExitStack()
        #: None without an admin port
        self.metrics: Metrics | None = None
        self.log_tail: LogTail | None = None
        #: None until the queue manager is open
        self.host: Host | None = None
        self.problems: ProblemList | None = None
        #: None until the queue manager is open, which may check passwords
        self.authenticators: Authenticators | None = None
        #: None until all parts have been created
        self.administration: Administration | None = None
        self._admin_port = None if admin_port is None else admin_port(self)

    @property
    def configuration(self) -> Configuration:
        """The configuration from the start or the last reload."""
        return self._configuration if self.administration is None else self.administration.parts.configuration

    @property
    def file(self) -> Path | None:
        """The configuration file, or None."""
        return None if self._source is None else self._source.path

    @property
    def parts(self) -> Parts:
        """The parts of a bridge that has started."""
        assert self.administration is not None
        return self.administration.parts

    def enter(self, state: BridgeState) -> None:
        """Enter a state of the life cycle."""
        self.state = state
        if self.administration is not None:
            self.parts.state = state

    # Start -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all parts. Raises StartError after ending the parts that were started."""
        try:
            async with AsyncExitStack() as starting:
                await self._start_monitoring(starting)
                await self._start_parts(starting, *await self._open_queue_manager(starting))
                self._started = starting.pop_all()
        except (HostError, MQError, TracesError, UnknownPlugin, ChannelError, SchemaError) as error:
            raise StartError(str(error)) from error

    async def _start_monitoring(self, stack: AsyncExitStack) -> None:
        """Start the parts that also monitor a starting or standby bridge. Raises StartError."""
        if self._admin_port is not None:
            # Imported only if there is an admin port.
            from bridge.service.metrics import Metrics

            self.metrics = Metrics(self.configuration, self.started_at, asyncio.get_running_loop().time)
            stack.callback(self.metrics.stop)
            self.log_tail = LogTail()
            self.log_tail.begin()
            stack.callback(self.log_tail.end)
            stack.push_async_callback(self._admin_port.stop)
            try:
                for line in await self._admin_port.start():
                    self.announce(line)
            except (OSError, TlsError) as error:
                place = endpoint(self.configuration.admin.address, self.configuration.admin.port or 0)
                raise StartError(f"admin: cannot listen on {place}: {error}") from error
        if self._control is not None:
            stack.push_async_callback(self._control.stop)
            # If the socket answers, another bridge is still running. This one then listens after the other checks, which
            # report that.
            if self._control.path.parent.is_dir() and not answers(self._control.path):
                with contextlib.suppress(OSError):  # reported later, after the other checks
                    await self._control.start()

    async def _open_queue_manager(
        self, stack: AsyncExitStack
    ) -> tuple[Host, Authenticators, Mapping[str, ChannelAuthentication]]:
        """Open the queue manager and prepare authentication, which may use it. Raises HostError or UnknownPlugin."""
        self.host = host = await stack.enter_async_context(_opened(self.configuration, self._standby_delay))
        self.problems = ProblemList(host, self.configuration)
        stack.enter_context(self.problems.evaluating())
        # The queue manager checks passwords in these threads.
        passwords = DaemonThreads(THREADS, "queue-manager-passwords")
        stack.callback(passwords.shutdown)
        authenticators = Authenticators(
            partial(QueueManagerAuthenticator, host.check_password, passwords), self.configuration.password_cache_path
        )
        of_channels = authenticators.of_channels(host.telemetry_channels.channels)
        authenticators.admin = authenticators.of_admin(self.configuration.admin)
        self.authenticators = authenticators
        for line in await host.start(Events(self._failed, self._fenced, self._standing_by, self._outage, self._active)):
            self.announce(line)
        return host, authenticators, of_channels

    async def _start_parts(
        self,
        stack: AsyncExitStack,
        host: Host,
        authenticators: Authenticators,
        authentication: Mapping[str, ChannelAuthentication],
    ) -> None:
        """Start the parts that need the queue manager, which may wait for the end of the active bridge.

        Raises StartError, HostError, MQError, TracesError or ChannelError.
        """
        configuration, loop = self.configuration, asyncio.get_running_loop()
        archive = await self._start_archive(stack)
        traces = tracing_of(configuration.traces, loop.time)
        if traces is not None:
            stack.push_async_callback(asyncio.to_thread, traces.close)
        watch = QueueManagerWatch(host, lambda: self.configuration)
        stack.callback(watch.stop)
        if self._admin_port is not None:
            # Its threads have connections to the queue manager, so it must end first, although it starts earlier.
            stack.push_async_callback(self._admin_port.stop)
        stack.callback(self._end_audit_log)
        serving = self._serving = await stack.enter_async_context(AsyncExitStack())

        service = TelemetryService(
            host.backend,
            configuration.limits,
            loop.time,
            queue_manager_name=host.name,
            epoch=host.epoch,
            authentication=authentication,
            channel_authentication=host.channel_authentication,
            room=host.dead_letter_room,
        )
        self._service = service
        service.payload_schemas.use(schemas_of(host.telemetry_channels.channels))
        service.journal.trace_to_log(configuration.log.level, configuration.log.trace_clients)
        if archive is not None:
            service.events.attach(archive)
        if self.metrics is not None:
            self.metrics.begin(host, watch)
            service.events.attach(self.metrics.traffic)
        if traces is not None:
            service.events.attach(traces.deliveries)
            service.units.traces = traces.publications
        service.journal.keep(await self._open_client_history(stack))
        await service.start()
        serving.push_async_callback(service.stop)
        watch.on_status = service.delivery.use_status
        watch.begin()
        history = None
        if self.metrics is not None:
            totals = self.metrics.traffic.totals
            history = HistoryRecorder(service, totals, watch, host, lambda: self.configuration)
            stack.enter_context(history.recording())
        for line in await host.listen():
            self.announce(line)

        self._wait = Wait("its channels and mappings", time.time())
        self._begin_audit_log()
        channels = Channels(
            handlers_of(service), configuration.limits, host.telemetry_channels, service.limit_hits.note
        )
        parts = Parts(
            configuration=configuration,
            host=host,
            service=service,
            channels=channels,
            applications=Applications(
                handlers_of(service),
                configuration.admin.applications,
                configuration.limits.pending_bytes,
                service.limit_hits.note,
            ),
            table_files=TableFiles(configuration.tables),
            mappings=Mappings(
                _environment(host, configuration, service, archive, traces),
                None if configuration.shard is None else configuration.shard.number,
            ),
            activity=Activity(service),
            publishers=TopicPublishers(service.events),
            queue_manager_watch=watch,
            archive=archive,
            traces=traces,
            queue_manager_connection=QueueManagerConnection(host),
            history=history,
            log_tail=self.log_tail,
            reload=self.reload,
            hand_over=partial(self.ending.request, YIELDED),
            problems=self._current_problems,
            started_at=self.started_at,
        )
        serving.push_async_callback(parts.queue_manager_connection.stop)
        serving.callback(parts.activity.end)
        serving.callback(parts.publishers.end)
        await parts.table_files.refresh()
        stack.enter_context(parts.table_files.watched())
        self.administration = Administration(parts)
        self._reload = ConfigurationReload(self._source, ConfigurationChange(parts, authenticators))
        serving.push_async_callback(self._end_clients, parts)
        for line in await channels.begin():
            self.announce(line)
        host.telemetry_channels.running = commanded = CommandedChannels(parts, authenticators)
        commanded.changed()  # apply channels defined by commands in the meantime
        serving.push_async_callback(parts.mappings.stop)
        serving.callback(self._end_input, parts)
        await parts.mappings.start(configuration.mappings, configuration.links)
        if self.metrics is not None:
            parts.rates = RateHistory(watch, parts.mappings)
            stack.enter_context(parts.rates.recording())
        shard = None if configuration.shard is None else configuration.shard.number
        for name, config in configuration.mappings.items():
            self.announce(started(name, config, shard))
        if self._control is not None:
            serving.push_async_callback(self._control.stop)
            await self._listen_for_control(self._control)
        assert self.problems is not None
        self.problems.serve(parts)

    async def _start_archive(self, stack: AsyncExitStack) -> Recorder | None:
        """Start the archive if it is configured. Raises StartError."""
        if self.configuration.archive.directory is None:
            return None
        # Imported only if there is an archive, because it loads further packages.
        try:
            from bridge.archive.writer import ArchiveError
            from bridge.service.recorder import Recorder
        except ImportError as error:
            raise StartError(f"archive: {error}; `{install('archive')}` installs the dependencies") from error
        try:
            archive = Recorder(self.configuration.archive, asyncio.get_running_loop().time)
        except ArchiveError as error:
            raise StartError(str(error)) from error

        async def close() -> None:
            # Off the event loop: writing the rest may take a while.
            await asyncio.to_thread(archive.close, self.configuration.limits.shutdown_timeout)

        stack.push_async_callback(close)
        return archive

    async def _open_client_history(self, stack: AsyncExitStack) -> ClientEventHistory:
        """Open the history of clients. It ends after the clients. Raises StartError."""
        configuration = self.configuration
        path = configuration.client_history_path
        try:
            history = await asyncio.to_thread(ClientEventHistory, configuration.client_history, path)
        except HistoryUnavailable as error:
            raise StartError(f"client_history.file: {error}") from error
        stack.push_async_callback(history.stop)
        return history

    def _begin_audit_log(self) -> None:
        """Open the audit log if it is configured. Not for a standby: the active bridge may write it. Raises StartError."""
        try:
            audit_log.begin(self.configuration.audit_log)
        except OSError as error:
            file = self.configuration.audit_log.file
            raise StartError(f"audit_log.file {file}: {error.strerror or error}") from error
        audit_log.note("started", version=__version__, queue_manager=self.configuration.queue_manager.name)

    def _end_audit_log(self) -> None:
        audit_log.note("stopped", status=self.ending.status)
        audit_log.end()

    @staticmethod
    async def _listen_for_control(control: ControlServer) -> None:
        """Listen for commands, unless `_start_monitoring` has already started to. Raises StartError."""
        if control.listens:
            return
        try:
            await control.start()
        except OSError as error:
            raise StartError(f"control_socket {control.path}: {error.strerror or error}") from error

    # Events of the queue manager -------------------------------------------------------------------------------------

    def _failed(self, why: str) -> None:
        """Stop with an error so that systemd restarts the bridge: the connection to the queue manager has failed."""
        log.critical("MQB0001S the bridge stops: %s", why)
        self.ending.request(1)

    def _fenced(self, why: str) -> None:
        """Disconnect everything and become standby: another bridge has taken over."""
        if not self.ending.requested:
            log.critical("MQB0002S %s; disconnecting all clients and standing by", why)
            self.ending.request(STAND_BY)

    def _outage(self) -> None:
        """Disconnect all clients: the queue manager is unreachable, and a standby may serve them."""
        self._service.disconnect_all("the queue manager is unreachable", ReasonCode.SERVER_BUSY)

    def _standing_by(self, why: str) -> None:
        self.state = BridgeState.STANDING_BY
        name = self.configuration.queue_manager.name
        log.info("MQB0017I standing by: another bridge serves the clients of queue manager %s", name)
        self._wait = Wait(f"the active bridge to end ({why})", time.time())
        # A standby is ready. Otherwise systemd would treat it as hanging.
        self._supervisor.ready(why)

    def _active(self) -> None:
        self.state = BridgeState.STARTING
        self._wait = Wait("its sessions and messages to be read from the queue manager", time.time())

    # Requests --------------------------------------------------------------------------------------------------------

    async def answer(self, request: Request[Any], user: str) -> Answer:
        """Answer an administration request of a user, in any state of the bridge."""
        refusal = self.refusal
        if refusal is None:
            assert self.administration is not None
            return await self.administration.answer(request, user)
        if isinstance(request, ShowLog) and self.log_tail is not None:
            return Answer(result=msgspec.Raw(msgspec.json.encode(lines_of(self.log_tail, request))))
        status = waiting_status(self.configuration, self.state, self.started_at, self._wait, self.host)
        if not isinstance(request, ShowStatus | ListProblems):
            return Answer(ok=False, lines=[refusal])
        status.problems = await self._current_problems()
        reply = status.problems if isinstance(request, ListProblems) else status
        return Answer(result=msgspec.Raw(msgspec.json.encode(reply)))

    @property
    def refusal(self) -> str | None:
        """Why the bridge cannot answer requests, or None if it can."""
        if self.administration is not None and self.state is not BridgeState.STANDING_BY:
            return None
        status = waiting_status(self.configuration, self.state, self.started_at, self._wait, self.host)
        return (
            f"the bridge is {self.state} and waits for {self._wait.what}; queue manager {status.queue_manager} "
            f"{status.queue_manager_state}"
        )

    async def _current_problems(self) -> list[Problem]:
        return [] if self.problems is None else await self.problems.current()

    async def reload(self) -> tuple[bool, list[str]]:
        """Reload the configuration file. Return whether it was applied, and lines that describe the changes or the error."""
        with self._supervisor.reloading():
            ok, lines = await self._reload()
        self.parts.failed_reload = "" if ok else lines[0]
        return ok, lines

    # Stop ------------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End the parts in reverse order: stop taking messages, finish the work in progress, and close the queue manager.

        No acknowledged message is lost, and nothing is acknowledged early.
        """
        progress = asyncio.get_running_loop().create_task(self._report_progress())
        try:
            await self._serving.aclose()
        finally:
            progress.cancel()
            await self._started.aclose()

    async def stand_down(self) -> None:
        """Disconnect clients, links and queues immediately, without further puts, removals or records.

        Another bridge owns the sessions and queues now. Unlike `stop`, this commits nothing. `stop` must still be called to
        end the other parts.
        """
        self._serving.pop_all()
        parts = self.parts
        if self._control is not None:
            await self._control.stop()
        parts.service.retire()
        parts.channels.stop_listening()
        parts.channels.abort()
        await parts.applications.end()
        await parts.mappings.stop()
        parts.activity.end()
        parts.publishers.end()
        await parts.queue_manager_connection.stop()
        await parts.service.backend.abandon()

    def _end_input(self, parts: Parts) -> None:
        """Stop taking messages from clients."""
        parts.host.telemetry_channels.running = RunningChannels()
        parts.channels.stop_listening()
        parts.applications.stop_input()

    async def _end_clients(self, parts: Parts) -> None:
        """Send the answers of all units of work in progress, and close the connections."""
        await parts.service.flush()
        parts.service.hold_wills()
        await parts.applications.end()
        await parts.channels.end()

    async def _report_progress(self) -> None:
        """Log what remains to be done, once a second."""
        while True:
            await asyncio.sleep(1.0)
            connections = sum(len(channel.connections) for channel in self.parts.channels)
            log.info(
                "MQB0018I stopping: %d connections and %d units of work remain",
                connections,
                self.parts.service.units.under_way,
            )


@contextlib.asynccontextmanager
async def _opened(configuration: Configuration, standby_delay: float) -> AsyncIterator[Host]:
    """Open the queue manager for the duration of the block. Raises HostError.

    It is opened in a thread, so that the bridge can be monitored while an embedded queue manager recovers its messages.
    """
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, host_of, configuration, loop, standby_delay)
    try:
        host = await asyncio.shield(opening)
    except asyncio.CancelledError:
        with contextlib.suppress(HostError):
            await (await opening).stop()
        raise
    try:
        yield host
    finally:
        await host.stop()


def _environment(
    host: Host,
    configuration: Configuration,
    service: TelemetryService,
    archive: Recorder | None,
    traces: Tracing | None,
) -> MappingEnvironment:
    environment = MappingEnvironment(host, configuration.transmission_queue)
    environment.on_limit = service.limit_hits.note
    environment.recorder = None if archive is None else archive.mapping
    environment.traces = None if traces is None else traces.mapping
    return environment
