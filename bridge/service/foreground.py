"""A bridge in the foreground of a process: signals, notifications to systemd, and the exit status."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable

import uvloop

from bridge import __version__
from bridge.administration.answers import BridgeState
from bridge.config.models import Configuration
from bridge.service.lifecycle import STAND_BY, YIELDED, AdminPort, Bridge, StartError
from bridge.service.log import configure, is_journal
from bridge.service.reload import ConfigurationSource
from bridge.service.supervisor import Supervisor
from bridge.transport.channel import Channel

log = logging.getLogger(__name__)

_ADDRESSES = {"127.0.0.1": "", "0.0.0.0": "", "::": " -h ::1"}


def greeting(channels: Iterable[Channel], hint: str) -> list[str]:
    """Return lines with example commands. The list is empty if no channel listens at an IP address.

    `hint` contains the options with which commands find the bridge.
    """
    listening = [(channel.endpoint, channel.config) for channel in channels if channel.endpoint is not None]
    if not listening:
        return []
    lines = ["Try next, each in a separate terminal:"]
    # Prefer a channel for which the command works without further options.
    plain = [
        place
        for place, config in listening
        if not (config.tls or config.websocket or config.proxies or config.authentication)
    ]
    for address, port in plain[:1]:
        lines.append(f"  mosquitto_sub{_ADDRESSES.get(address, f' -h {address}')} -p {port} -t 'demo/#' -v")
    command = "mqbridge" if shutil.which("mqbridge") else shlex.quote(sys.argv[0])
    return [*lines, f"  {command} mq pub demo/hello 'hello from MQ' {hint}"]


class Foreground:
    """Runs a bridge until SIGTERM or SIGINT, or until it ends by itself.

    SIGHUP reloads the configuration file. Without a configuration file, SIGHUP stops the bridge.
    """

    def __init__(self, bridge: Bridge, supervisor: Supervisor) -> None:
        self._bridge = bridge
        self._supervisor = supervisor
        self._ready = False
        #: a signal has requested the end, so the process must not become a standby
        self._must_end = False
        #: SIGHUP arrived during the start
        self._must_reload = False
        #: reloads in progress; the event loop keeps no strong reference to tasks
        self._reloads: set[asyncio.Task[object]] = set()

    async def run(self) -> int:
        """Start the bridge, run it until it has to end, stop it, and return the exit status. Raises StartError."""
        loop, bridge = asyncio.get_running_loop(), self._bridge
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        if bridge.file is not None:
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            # SIGHUP means that the terminal was closed.
            loop.add_signal_handler(signal.SIGHUP, self._end)
        with self._supervisor.watched(loop):
            if await self._start():
                await bridge.ending.wait()
                await self._stop()
        if bridge.ending.status in (STAND_BY, YIELDED):
            if not self._must_end:
                return bridge.ending.status
            bridge.ending.status = 0
        log.info("MQB0015I stopped, exit status %d", bridge.ending.status)
        return bridge.ending.status

    async def _stop(self) -> None:
        """Stop the bridge after its end was requested."""
        bridge = self._bridge
        bridge.enter(BridgeState.STOPPING)
        if bridge.ending.status == STAND_BY:
            await bridge.stand_down()
        elif bridge.ending.status == YIELDED:
            log.info("MQB0021I yielding to the standby: finishing work in progress")
        else:
            self._supervisor.stopping()
            log.info("MQB0014I stopping: finishing work in progress")
        await bridge.stop()

    def _end(self) -> None:
        """End the bridge at a signal."""
        self._must_end = True
        self._bridge.ending.request()

    async def _start(self) -> bool:
        """Start the bridge. Return False if it has to end before that. Raises StartError."""
        loop, bridge = asyncio.get_running_loop(), self._bridge
        starting = loop.create_task(bridge.start())
        # A standby bridge, or one that waits for its queue manager, must also react to signals.
        ending = loop.create_task(bridge.ending.wait())
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
            return False
        await starting
        if self._must_reload:
            self._reload()
        parts = bridge.parts
        self._supervisor.ready(f"{len(parts.channels)} channels listen, queue manager {parts.host.name}")
        self._ready = True
        bridge.enter(BridgeState.RUNNING)
        log.info(
            "MQB0012I ready after %s s: queue manager %s, channels %s",
            round(time.time() - bridge.started_at, 1),
            parts.host.name,
            ", ".join(f"{name} on {place}" for name, place in parts.channels.places()) or "none",
        )
        if sys.stdout.isatty() and not is_journal():
            with contextlib.suppress(OSError):  # the terminal was closed
                print(*greeting(parts.channels, parts.host.hint(bridge.file)), sep="\n", flush=True)
        return True

    def _hang_up(self) -> None:
        """Reload the configuration, after the start if it is still in progress."""
        if self._ready:
            self._reload()
        else:
            self._must_reload = True

    def _reload(self) -> None:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(self._bridge.reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)


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
    # Thousands of messages are created and freed. With the default thresholds, the garbage collector would run constantly.
    gc.set_threshold(50_000, 20, 100)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            supervisor, status = Supervisor(), STAND_BY
            while status in (STAND_BY, YIELDED):
                bridge = Bridge(
                    configuration,
                    source=source,
                    admin_port=admin_port,
                    supervisor=supervisor,
                    has_yielded=status == YIELDED,
                )
                status = runner.run(Foreground(bridge, supervisor).run())
            return status
    except StartError as error:
        log.critical("MQB0016S cannot start: %s", error)
        return 1
