"""The life cycle of a bridge: start, standby and stop, with notifications to systemd (sd_notify(3)).

Parts start in order and stop in reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
import uvloop

from bridge import __version__
from bridge.administration.answers import BridgeState, Problem
from bridge.administration.control_server import ControlServer, answers
from bridge.administration.protocol import Answer, Request
from bridge.administration.requests import ListProblems, ShowLog, ShowStatus
from bridge.config.models import Configuration
from bridge.config.values import endpoint
from bridge.extras import install
from bridge.mq import host_of
from bridge.mq.host import THREADS, Events, Host, HostError, QueueManagerAuthenticator
from bridge.mq.mqi import MQError
from bridge.mq.telemetry_channels import RunningChannels
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticator import UnknownPlugin
from bridge.security.authenticators import Authenticators
from bridge.security.tls import TlsError
from bridge.service.activity import Activity, HistoryRecorder
from bridge.service.administration.commanded_channels import CommandedChannels
from bridge.service.administration.handlers import Administration, Wait, lines_of, waiting_status
from bridge.service.administration.parts import Parts, QueueManagerConnection
from bridge.service.channels import ChannelError, Channels
from bridge.service.client_handler import handlers_of
from bridge.service.log import LogTail, configure, is_journal
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.registry import Mappings, started
from bridge.service.problems import ProblemList
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.service.reload import ConfigurationChange, ConfigurationReload, ConfigurationSource
from bridge.service.telemetry import TelemetryService
from bridge.service.tracing import TracesError, Tracing, tracing_of
from bridge.transport.channel import Channel

if TYPE_CHECKING:
    from bridge.mq.ibm.backend import IbmBackend
    from bridge.service.metrics import Metrics
    from bridge.service.recorder import Recorder

log = logging.getLogger(__name__)


class Supervisor:
    """Notifies systemd via NOTIFY_SOCKET. Does nothing if that variable is not set."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        watchdog = os.environ.get("WATCHDOG_USEC", "")
        pid = os.environ.get("WATCHDOG_PID", "")
        meant = not pid or pid == str(os.getpid())
        self._is_ready = False
        #: seconds between watchdog notifications: half of systemd's timeout, or 0.0 without a watchdog
        self.interval = int(watchdog) / 2_000_000 if watchdog.isdigit() and meant else 0.0

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
                notifier.connect(self._address)
                notifier.send(state.encode())
        except OSError as error:
            log.warning("MQB0006W notifying systemd of %r failed: %s", state.split("\n")[0], error)

    def ready(self, status: str) -> None:
        """Report that the channels listen and the queue manager is available."""
        self._is_ready = True
        self._tell(f"READY=1\nSTATUS={status}")

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Report the beginning and the end of a reload."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        try:
            yield
        finally:
            self._tell("READY=1\nSTATUS=running")

    def stopping(self) -> None:
        """Report that the service stops."""
        self._tell("STOPPING=1\nSTATUS=finishing work in progress")

    @contextlib.contextmanager
    def watched(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Send watchdog notifications from the event loop: if it hangs, systemd restarts the service."""
        if not self.interval:
            yield
            return

        async def beat() -> None:
            while True:
                await asyncio.sleep(self.interval)
                if self._is_ready:  # systemd waits for READY first
                    self._tell("WATCHDOG=1")

        beating = loop.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()


_ADDRESSES = {"127.0.0.1": "", "0.0.0.0": "", "::": " -h ::1"}


def greeting(channels: Iterable[Channel], hint: str) -> list[str]:
    """Return lines with example commands; none if no channel listens at an IP address.

    `hint` contains the options with which commands find the bridge.
    """
    listening = [(one.endpoint, one.config) for one in channels if one.endpoint is not None]
    if not listening:
        return []
    lines = ["Try next, each in a separate terminal:"]
    # Prefer a channel for which the command works without further options.
    plain = [place for place, one in listening if not (one.tls or one.websocket or one.proxies or one.authentication)]
    for address, port in plain[:1]:
        lines.append(f"  mosquitto_sub{_ADDRESSES.get(address, f' -h {address}')} -p {port} -t 'demo/#' -v")
    command = "mqbridge" if shutil.which("mqbridge") else shlex.quote(sys.argv[0])
    return [*lines, f"  {command} mq pub demo/hello 'hello from MQ' {hint}"]


#: Result of `Bridge.run` after another bridge has taken over: start again as standby.
STAND_BY = -1


class StartError(Exception):
    """The bridge cannot start. The message contains the reason and a remedy."""


class AdminPort(Protocol):
    """Serves metrics, health checks and the console: `bridge.console.server.AdminPort`."""

    async def start(self) -> list[str]:
        """Listen and return lines for display. Raises OSError or TlsError."""

    async def stop(self) -> None:
        """Stop listening."""


def announce(line: str) -> None:
    """Log a line about the start of a part."""
    log.info("MQB0013I %s", line)


class Bridge:
    """A running bridge. `start` and `stop` are called on its event loop."""

    def __init__(
        self,
        configuration: Configuration,
        announce: Callable[[str], None] = announce,
        *,
        source: ConfigurationSource | None = None,
        admin_port: Callable[[Bridge], AdminPort] | None = None,
    ) -> None:
        """Create a bridge. `admin_port` creates the admin port. None creates a bridge without it."""
        self._configuration = configuration
        self.state = BridgeState.STARTING
        self.started_at = time.time()
        #: None until the bridge has created all parts
        self.administration: Administration | None = None
        self.problems: ProblemList | None = None
        #: None until the queue manager is available, which may check passwords
        self.authenticators: Authenticators | None = None
        self._admin_port = None if admin_port is None else admin_port(self)
        self.announce = announce
        self._source = source
        self._control: ControlServer | None = None
        #: reloads in progress; the event loop keeps no strong reference to tasks
        self._reloads: set[asyncio.Task[object]] = set()
        self.host: Host | None = None
        #: threads in which a queue manager checks passwords
        self._passwords = ThreadPoolExecutor(THREADS, "queue-manager-passwords")
        self.archive: Recorder | None = None
        #: None without an admin port
        self.metrics: Metrics | None = None
        #: None without an admin port
        self.log_tail: LogTail | None = None
        self.history: HistoryRecorder | None = None
        #: None until the queue manager is available
        self.queue_manager_watch: QueueManagerWatch | None = None
        #: None if tracing is disabled
        self.traces: Tracing | None = None
        self.status = 0
        #: what the bridge waits for until it runs
        self._wait = Wait(f"queue manager {configuration.queue_manager.name}", self.started_at)
        #: creates the host
        self._opening: asyncio.Future[Host] | None = None
        self._supervisor = Supervisor()
        self._started = self._hung_up = False
        self._ended = asyncio.Event()

    @property
    def configuration(self) -> Configuration:
        """The configuration from the start or the last reload."""
        return self._configuration if self.administration is None else self.administration.parts.configuration

    @property
    def file(self) -> Path | None:
        """The configuration file, or None."""
        return None if self._source is None else self._source.path

    async def start(self) -> None:
        """Start all parts. Raises StartError."""
        loop = asyncio.get_running_loop()
        if self._admin_port is not None:
            # Imported only if there is an admin port.
            from bridge.service.metrics import Metrics

            self.metrics = Metrics(self.configuration, self.started_at, loop.time)
            self.log_tail = LogTail()
            self.log_tail.begin()
            # First, so that a starting or standby bridge can be monitored, too.
            try:
                for line in await self._admin_port.start():
                    self.announce(line)
            except (OSError, TlsError) as error:
                place = endpoint(self.configuration.admin.address, self.configuration.admin.port or 0)
                raise StartError(f"admin: cannot listen on {place}: {error}") from error
        # Listen early so that `status` can report what the bridge waits for. If the socket answers, another bridge is still
        # running.
        if (path := self.configuration.control_socket_path) is not None and path.parent.is_dir() and not answers(path):
            with contextlib.suppress(StartError):  # reported later, after the other checks
                await self._let_control_in(path)
        try:
            # On a thread, so that the bridge can be monitored while an embedded queue manager recovers its messages.
            self._opening = loop.run_in_executor(None, host_of, self.configuration, loop)
            self.host = await asyncio.shield(self._opening)
            self.problems = ProblemList(self.host, self.configuration)
            self.problems.begin()
            authenticators = Authenticators(
                partial(QueueManagerAuthenticator, self.host.check_password, self._passwords),
                self.configuration.password_cache_path,
            )
            authentication = authenticators.of_channels(self.host.telemetry_channels.channels)
            authenticators.admin = authenticators.of_admin(self.configuration.admin)
            self.authenticators = authenticators
            events = Events(self._failed, self._fenced, self._standing_by, self._outage, self._active)
            for line in await self.host.start(events):
                self.announce(line)
            self.archive = self._recorder()
            self.traces = tracing_of(self.configuration.traces, loop.time)
            self.queue_manager_watch = QueueManagerWatch(self.host, lambda: self.configuration)
            if self.metrics is not None:
                self.metrics.begin(self.host, self.queue_manager_watch)
            self.service = TelemetryService(
                self.host.backend,
                self.configuration.limits,
                loop.time,
                queue_manager_name=self.host.name,
                epoch=self.host.epoch,
                authentication=authentication,
                channel_authentication=self.host.channel_authentication,
                room=self.host.dead_letter_room,
            )
            self.service.journal.trace(self.configuration.log.level, self.configuration.log.trace_clients)
            if self.archive is not None:
                self.service.events.attach(self.archive)
            if self.metrics is not None:
                self.service.events.attach(self.metrics.traffic)
            if self.traces is not None:
                self.service.events.attach(self.traces.deliveries)
                self.service.units.traces = self.traces.publications
            await self.service.start()
            self.queue_manager_watch.on_status = self.service.delivery.use_status
            self.queue_manager_watch.begin()
            if self.metrics is not None:
                self.history = HistoryRecorder(
                    self.service,
                    self.metrics.traffic.totals,
                    self.queue_manager_watch,
                    self.host,
                    lambda: self.configuration,
                )
                self.history.begin()
            for line in await self.host.listen():
                self.announce(line)
        except (HostError, MQError, TracesError, UnknownPlugin) as error:
            raise StartError(str(error)) from error
        self._wait = Wait("its channels and mappings", time.time())
        environment = MappingEnvironment(self.host, self.configuration.transmission_queue)
        environment.recorder = None if self.archive is None else self.archive.mapping
        environment.traces = None if self.traces is None else self.traces.mapping
        self.mappings = Mappings(environment)
        try:
            audit_log.begin(self.configuration.audit_log)
        except OSError as error:
            file = self.configuration.audit_log.file
            raise StartError(f"audit_log.file {file}: {error.strerror or error}") from error
        audit_log.note("started", version=__version__, queue_manager=self.host.name)
        self.channels = Channels(
            handlers_of(self.service),
            self.configuration.limits,
            self.host.telemetry_channels,
            self.service.limit_hits.note,
        )
        self._activity = Activity(self.service)
        parts = Parts(
            configuration=self._configuration,
            host=self.host,
            service=self.service,
            channels=self.channels,
            mappings=self.mappings,
            activity=self._activity,
            queue_manager_watch=self.queue_manager_watch,
            archive=self.archive,
            queue_manager_connection=QueueManagerConnection(self.host),
            history=self.history,
            log_tail=self.log_tail,
            reload=self._reload,
            problems=self._current_problems,
            started_at=self.started_at,
        )
        if self.history is not None:
            self.service.journal.keep()
        self.administration = Administration(parts)
        self.reload = ConfigurationReload(self._source, ConfigurationChange(parts, authenticators))
        try:
            for line in await self.channels.begin():
                self.announce(line)
        except ChannelError as error:
            raise StartError(str(error)) from error
        self.host.telemetry_channels.running = commanded = CommandedChannels(parts, authenticators)
        commanded.changed()  # apply channels defined by commands in the meantime
        await self.mappings.start(self.configuration.mappings, self.configuration.links)
        for line in map(started, self.configuration.mappings.items()):
            self.announce(line)
        if path is not None and self._control is None:
            await self._let_control_in(path)
        self.problems.serve(parts)

    def _recorder(self) -> Recorder | None:
        if self.configuration.archive.directory is None:
            return None
        # Imported only if there is an archive, because it loads further packages.
        try:
            from bridge.archive.writer import ArchiveError
            from bridge.service.recorder import Recorder
        except ImportError as error:
            raise StartError(f"archive: {error}; `{install('archive')}` installs the dependencies") from error
        try:
            return Recorder(self.configuration.archive, asyncio.get_running_loop().time)
        except ArchiveError as error:
            raise StartError(str(error)) from error

    async def _current_problems(self) -> list[Problem]:
        return [] if self.problems is None else await self.problems.current()

    async def _let_control_in(self, path: Path) -> None:
        control = ControlServer(path, self.answer)
        try:
            await control.start()
        except OSError as error:
            raise StartError(f"control_socket {path}: {error.strerror or error}") from error
        self._control = control

    async def answer(self, request: Request[Any], user: str) -> Answer:
        """Answer an administration request of a user, in any state of the bridge."""
        if self.administration is not None and self.state is not BridgeState.STANDING_BY:
            return await self.administration.answer(request, user)
        if isinstance(request, ShowLog) and self.log_tail is not None:
            return Answer(result=msgspec.Raw(msgspec.json.encode(lines_of(self.log_tail, request))))
        status = waiting_status(self.configuration, self.state, self.started_at, self._wait, self.host)
        if not isinstance(request, ShowStatus | ListProblems):
            line = (
                f"the bridge is {self.state} and waits for {self._wait.what}; queue manager {status.queue_manager} "
                f"{status.queue_manager_state}"
            )
            return Answer(ok=False, lines=[line])
        status.problems = await self._current_problems()
        result = status.problems if isinstance(request, ListProblems) else status
        return Answer(result=msgspec.Raw(msgspec.json.encode(result)))

    async def _reload(self) -> tuple[bool, list[str]]:
        with self._supervisor.reloading():
            ok, lines = await self.reload()
        if self.administration is not None:
            self.administration.parts.failed_reload = "" if ok else lines[0]
        return ok, lines

    def _hang_up(self) -> None:
        """Reload the configuration at SIGHUP. If the bridge has not started yet, reload after the start."""
        if not self._started and not self._hung_up:
            self._hung_up = True
            return
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def _failed(self, why: str) -> None:
        """Stop with an error so that systemd restarts the bridge: the connection to the queue manager has failed."""
        log.critical("MQB0001S the bridge stops: %s", why)
        self.status = 1
        self._ended.set()

    def _fenced(self, why: str) -> None:
        """Disconnect everything and become standby: another bridge has taken over."""
        if not self._ended.is_set():
            log.critical("MQB0002S %s; disconnecting all clients and standing by", why)
            self.status = STAND_BY
            self._ended.set()

    def _outage(self) -> None:
        """Disconnect all clients: the queue manager is unreachable, and a standby may serve them."""
        self.service.disconnect_all("the queue manager is unreachable", ReasonCode.SERVER_BUSY)

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

    async def stand_down(self) -> None:
        """Disconnect clients, links and queues immediately, without further puts, removals or records.

        They belong to another bridge now.
        """
        if self._control is not None:
            await self._control.stop()
        self.service.retire()
        self.channels.stop_listening()
        self.channels.abort()
        await self.mappings.stop()
        self._activity.end()
        await self._stop_administration()
        await cast("IbmBackend", self.service.backend).abandon()  # only this backend is ever fenced

    async def stop(self) -> None:
        """Stop in order: stop taking messages, finish what is in flight, and close.

        No acknowledged message is lost, and nothing is acknowledged early.
        """
        if self._control is not None:
            await self._control.stop()
        assert self.host is not None
        self.host.telemetry_channels.running = RunningChannels()
        self.channels.stop_listening()
        await self.mappings.stop()
        self._activity.end()
        progress = asyncio.get_running_loop().create_task(self._report_progress())
        await self._stop_administration()
        await self._idle()
        if self.configuration.limits.will_grace:
            self.service.wills.hold()
        try:
            async with asyncio.timeout(self.configuration.limits.shutdown_timeout):
                await self.channels.close()
        except TimeoutError:
            left = self.channels.abort()
            log.warning("MQB0003W %d clients did not read all data within shutdown_timeout", left)
            # The event loop processes their wills and sessions after it has noticed the closed connections.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await self.service.settled()
        self.service.wills.publish_all()
        await self.service.backend.stop()
        progress.cancel()

    async def _report_progress(self) -> None:
        """Log what remains to be done, once a second."""
        while True:
            await asyncio.sleep(1.0)
            connections = sum(len(channel.connections) for channel in self.channels)
            log.info(
                "MQB0018I stopping: %d connections and %d units of work remain",
                connections,
                self.service.units.under_way,
            )

    async def _stop_administration(self) -> None:
        if self.history is not None:
            self.history.stop()
        if self.administration is not None:
            await self.administration.parts.queue_manager_connection.stop()

    async def _idle(self) -> None:
        """Wait until all submitted units of work have ended and their answers are written."""
        ended = self.service.backend.flush()
        try:
            async with asyncio.timeout(self.configuration.limits.shutdown_timeout):
                await ended
        except TimeoutError:
            log.warning("MQB0004W units of work were not completed within shutdown_timeout and are not acknowledged")

    async def run(self, supervisor: Supervisor) -> int:
        """Start, run until SIGTERM or SIGINT, stop, and return the exit status. Raises StartError.

        SIGHUP reloads the configuration file. Without a configuration file, SIGHUP stops the bridge.
        """
        loop = asyncio.get_running_loop()
        self._supervisor = supervisor
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        if self._source is not None:
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            # SIGHUP means that the terminal was closed.
            loop.add_signal_handler(signal.SIGHUP, self._ended.set)
        with supervisor.watched(loop):
            return await self._run(loop)

    async def _run(self, loop: asyncio.AbstractEventLoop) -> int:
        supervisor = self._supervisor
        try:
            starting = loop.create_task(self.start())
            # A bridge that stands by, or waits for its queue manager, must react to signals, too.
            stopped = loop.create_task(self._ended.wait())
            await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                return self.status
            await starting
            if self._hung_up:
                self._hang_up()
            supervisor.ready(
                f"{len(self.channels)} channels listen, queue manager {self.configuration.queue_manager.name}"
            )
            self._started = True
            self._stands(BridgeState.RUNNING)
            log.info(
                "MQB0012I ready after %s s: queue manager %s, channels %s",
                round(time.time() - self.started_at, 1),
                self.configuration.queue_manager.name,
                ", ".join(f"{name} on {place}" for name, place in self.channels.places()) or "none",
            )
            self._greet()
            await self._ended.wait()
            self._stands(BridgeState.STOPPING)
            if self.status == STAND_BY:
                await self.stand_down()
                return self.status
            supervisor.stopping()
            log.info("MQB0014I stopping: finishing work in progress")
            await self.stop()
        finally:
            if self._control is not None:
                await self._control.stop()
            if self._admin_port is not None:
                await self._admin_port.stop()
            if self.metrics is not None:
                self.metrics.stop()
            if self.problems is not None:
                self.problems.stop()
            if self.log_tail is not None:
                self.log_tail.end()
            if self.queue_manager_watch is not None:
                self.queue_manager_watch.stop()
            if self.archive is not None:
                # Off the event loop: writing the rest may take a while.
                await asyncio.to_thread(self.archive.close, self.configuration.limits.shutdown_timeout)
            if self.traces is not None:
                await asyncio.to_thread(self.traces.close)
            if self._opening is not None and self.host is None:
                with contextlib.suppress(HostError):  # reported by `start`
                    self.host = await self._opening
            if self.host is not None:
                await self.host.stop()
            audit_log.note("stopped", status=self.status)
            audit_log.end()
        log.info("MQB0015I stopped, exit status %d", self.status)
        return self.status

    def _greet(self) -> None:
        """Print example commands if standard output is a terminal."""
        if not sys.stdout.isatty() or is_journal():
            return
        assert self.host is not None
        with contextlib.suppress(OSError):  # the terminal was closed
            print(*greeting(self.channels, self.host.hint(self.file)), sep="\n", flush=True)

    def _stands(self, state: BridgeState) -> None:
        """Set the life cycle state."""
        self.state = state
        if self.administration is not None:
            self.administration.parts.state = state


#: The interpreter's thread switch interval in seconds. With the default of 5 ms, each short step of a commit in the recovery
#: log's thread would have to wait that long for a busy event loop.
SWITCH_INTERVAL = 0.0005


def run(
    configuration: Configuration,
    source: ConfigurationSource | None = None,
    admin_port: Callable[[Bridge], AdminPort] | None = None,
) -> int:
    """Run the bridge in the foreground until it is stopped, and return the exit status.

    `source` is the source for reloading the configuration at SIGHUP.
    """
    configure(configuration.log)
    log.info(
        "MQB0011I starting mqbridge %s: configuration %s, queue manager %s (%s), process %d",
        __version__,
        "defaults" if source is None else source.path,
        configuration.queue_manager.name,
        configuration.queue_manager.type,
        os.getpid(),
    )
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Thousands of messages are created and freed. With the default thresholds, the garbage collector would run all the time.
    gc.set_threshold(50_000, 20, 100)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            supervisor = Supervisor()
            while True:
                bridge = Bridge(configuration, source=source, admin_port=admin_port)
                status = runner.run(bridge.run(supervisor))
                if status != STAND_BY:
                    return status
    except StartError as error:
        log.critical("MQB0016S cannot start: %s", error)
        return 1
