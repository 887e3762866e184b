"""The channels of a bridge: starting, stopping and changing them, within the limit of open files."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections.abc import Callable, Iterator, Sequence

from bridge.administration.answers import counted
from bridge.administration.protocol import NotFound, Refused
from bridge.config.channel import ChannelConfig
from bridge.config.models import LimitsConfig
from bridge.config.values import endpoint
from bridge.mq.telemetry_channels import TelemetryChannelRegister
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security.tls import TlsError, context_of
from bridge.transport.channel import Channel, Room
from bridge.transport.stream import MakesOwner

log = logging.getLogger(__name__)

#: File descriptors needed in addition to those of clients: databases, sockets, links, and the archive's process.
RESERVE = 256


def room_for(clients: int) -> int:
    """Raise the limit of open files for a number of clients, as far as allowed. Return the number of clients it permits.

    uvloop silently closes connections if no file descriptor is left, so the channels must know the limit.
    """
    needed = clients + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return clients
    room = max(1, soft - RESERVE)
    log.warning(
        "MQB0005W the limit of open files is %d, enough for %d clients, but max_clients adds up to %d; raise the hard limit "
        "(LimitNOFILE= of the systemd unit, ulimit -Hn of the shell)",
        soft,
        room,
        clients,
    )
    return room


#: Settings that require a new listening socket when they change.
_LISTENING = ("address", "port", "socket", "backlog")
#: Seconds that disconnected clients of a channel have to read pending output.
CLOSE_TIMEOUT = 5.0


class ChannelError(Refused):
    """A channel cannot listen or does not exist. The message is for display."""


class NoChannel(ChannelError, NotFound):
    """A channel does not exist."""


class Channels:
    """All channels of the configuration file and of commands. Methods are called on the event loop."""

    def __init__(
        self,
        make_owner: MakesOwner,
        limits: LimitsConfig,
        register: TelemetryChannelRegister,
        on_refused: Callable[[str, str, int, str], None] = lambda _option, _subject, _number, _channel: None,
    ) -> None:
        self._make_owner = make_owner
        self._limits = limits
        self._register = register
        self._room = Room(0)
        self._room.on_refused = on_refused
        #: the sum of max_clients of all channels
        self._clients = 0
        self._configs: dict[str, ChannelConfig] = {}
        #: names of the channels in the configuration file
        self._of_file: frozenset[str] = frozenset()
        #: running channels; a stopped channel is only in `_configs`
        self._channels: dict[str, Channel] = {}
        #: why a channel cannot listen, or cannot use its current configuration, by name
        self.problems: dict[str, str] = {}
        self._changing = asyncio.Lock()
        self._ended = False

    def __iter__(self) -> Iterator[Channel]:
        """Yield the running channels."""
        return iter(self._channels.values())

    def __len__(self) -> int:
        return len(self._channels)

    def get(self, name: str) -> Channel | None:
        """Return a running channel, or None if no channel with this name is running."""
        return self._channels.get(name)

    @property
    def configs(self) -> list[ChannelConfig]:
        """The configurations of all channels, including stopped ones."""
        return list(self._configs.values())

    def places(self) -> list[tuple[str, str]]:
        """Return the names and endpoints of the running channels."""
        return [
            (channel.config.name, place_of(channel.config) if channel.endpoint is None else endpoint(*channel.endpoint))
            for channel in self
        ]

    async def begin(self) -> list[str]:
        """Start all channels and return a line for display about each.

        Raises ChannelError if a channel of the file cannot listen. If a channel defined by a command cannot, the error is
        logged.
        """
        async with self._changing:
            self._follow()
            lines = [await self._listen(config) for config in self._register.of_file]
            for config in self._register.of_commands:
                try:
                    lines.append(await self._listen(config))
                except ChannelError as error:
                    log.error("MQB1012E %s", error)
                    lines.append(str(error))
            return lines

    async def start(self, name: str) -> str:
        """Start a stopped channel and return a line for display. Raises ChannelError."""
        async with self._changing:
            config = self._config(name)
            if name in self._channels:
                raise ChannelError(f"channel {name} is already running")
            return await self._listen(config)

    async def stop(self, name: str) -> str:
        """Stop a channel, disconnect its clients and return a line for display. Raises ChannelError."""
        async with self._changing:
            self._config(name)
            self.problems.pop(name, None)
            channel = self._channels.pop(name, None)
            if channel is None:
                raise ChannelError(f"channel {name} is already stopped")
            clients = len(channel.connections)
            await _end(channel)
            return f"channel {name} stopped; {counted(clients, 'client')} disconnected"

    async def apply(self, limits: LimitsConfig | None = None) -> list[str]:
        """Apply the channels of the register and return lines that describe the changes.

        Clients keep the rules that applied when they connected. Clients of removed channels, and of channels with another
        address, are disconnected. A channel that cannot listen is reported, and tried again the next time. Stopped channels
        stay stopped. Channels defined by commands are initially stopped.
        """
        async with self._changing:
            self._limits = limits or self._limits
            before, of_file = self._configs, self._of_file
            self._follow()
            for channel in self:
                channel.pending_bytes = self._limits.pending_bytes
            names = [name for name in before if name not in self._configs]
            moved = [
                name
                for name, config in self._configs.items()
                if name in self._channels and name in before and _listens_elsewhere(before[name], config)
            ]
            # Stop channels before starting others: a channel may take over the port of one that is removed or moved.
            await asyncio.gather(
                *(_end(stopping) for name in (*names, *moved) if (stopping := self._channels.pop(name, None)))
            )
            lines = []
            for name in names:
                self.problems.pop(name, None)
                lines.append(f"channel {name} removed")
            for name, config in self._configs.items():
                starts = name in moved or name in self.problems or name in self._of_file - of_file
                if name not in before and name not in self._of_file:
                    lines.append(f"channel {name} defined; it is stopped")
                elif name not in before:
                    lines.append(await self._try(config, "added"))
                elif before[name] != config:
                    lines.append(await self._alter(config, "changed", starts=starts))
                elif starts and (name not in self._channels or name in self.problems):
                    lines.append(await self._alter(config, "tried again", starts=True))
            return lines

    async def _alter(self, config: ChannelConfig, verb: str, *, starts: bool) -> str:
        """Apply a changed configuration to a channel and, if `starts`, start it. Return a line for display."""
        name = config.name
        channel = self._channels.get(name)
        if channel is None:
            return await self._try(config, verb) if starts else f"channel {name} {verb}; it is stopped"
        try:
            channel.use(config)
        except TlsError as error:
            why = f"channel {name} keeps its previous configuration: TLS cannot be used: {error}"
            log.error("MQB1103E %s", why)
            self.problems[name] = why
            return why
        self.problems.pop(name, None)
        return f"channel {name} {verb}, for clients that connect from now on"

    def check(self, channels: Sequence[ChannelConfig]) -> None:
        """Raise ChannelError if the TLS configuration of a new or changed channel is unusable."""
        for config in channels:
            before = self._configs.get(config.name)
            if config.tls is not None and (before is None or before.tls != config.tls):
                try:
                    context_of(config.tls)
                except TlsError as error:
                    raise ChannelError(f"channel {config.name} cannot use TLS: {error}") from error

    async def _try(self, config: ChannelConfig, verb: str) -> str:
        try:
            return f"{await self._listen(config)} ({verb})"
        except ChannelError as error:
            log.error("MQB1005E %s", error)
            return f"channel {config.name} {verb}, but does not listen: {error}"

    async def _listen(self, config: ChannelConfig) -> str:
        if self._ended:
            raise ChannelError(f"channel {config.name} cannot listen: the bridge stops")
        channel = Channel(config, self._make_owner, pending_bytes=self._limits.pending_bytes, room=self._room)
        try:
            where = await channel.listen()
        except TlsError as error:
            why = f"channel {config.name} cannot use TLS: {error}"
            self.problems[config.name] = why
            raise ChannelError(why) from error
        except OSError as error:
            why = f"channel {config.name} cannot listen on {place_of(config)}: {error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                why += (
                    "; is another broker running there? hint: for any free port, write `port: 0` or run with --port 0 "
                    "(make run ARGS='--port 0')"
                )
            self.problems[config.name] = why
            raise ChannelError(why) from error
        self.problems.pop(config.name, None)
        self._channels[config.name] = channel
        manner = [
            word for word, option in (("TLS", config.tls), ("WebSockets", config.websocket)) if option is not None
        ]
        over = f" over {' and '.join(manner)}" if manner else ""
        return f"channel {config.name} listens for MQTT clients on {where}{over}"

    def _config(self, name: str) -> ChannelConfig:
        if name not in self._configs:
            names = ", ".join(self._configs) or "none"
            raise NoChannel(f"there is no channel {name!r} (channels: {names})")
        return self._configs[name]

    def _follow(self) -> None:
        """Take the channels from the register, and raise the limit of open files as far as possible."""
        self._configs = {config.name: config for config in self._register.channels}
        self._of_file = frozenset(channel.name for channel in self._register.of_file)
        clients = sum(config.max_clients for config in self._configs.values())
        if clients != self._clients:
            self._clients = clients
            self._room.connections = room_for(clients)

    def stop_listening(self) -> None:
        """Stop accepting clients and stop reading from connected clients."""
        self._ended = True
        for channel in self:
            channel.stop_listening()

    def abort(self) -> int:
        """Close the remaining connections immediately and return their number."""
        return sum(channel.abort() for channel in self)

    async def end(self) -> None:
        """Stop accepting clients, and close all connections after sending their pending output.

        Connections of clients that do not read it within `limits.shutdown_timeout` are aborted.
        """
        self.stop_listening()
        try:
            async with asyncio.timeout(self._limits.shutdown_timeout):
                await asyncio.gather(*(channel.close() for channel in self))
        except TimeoutError:
            log.warning("MQB0003W %d clients did not read all data within shutdown_timeout", self.abort())
            # The event loop processes their wills and sessions after it has noticed the closed connections.
            await asyncio.sleep(0)
            await asyncio.sleep(0)


def place_of(config: ChannelConfig) -> str:
    """Return the configured endpoint of a channel for display."""
    return str(config.socket) if config.socket is not None else endpoint(config.address, config.port)


def _listens_elsewhere(before: ChannelConfig, after: ChannelConfig) -> bool:
    return any(getattr(before, key) != getattr(after, key) for key in _LISTENING)


async def _end(channel: Channel) -> None:
    """Stop a channel, and abort the connections of clients that do not read DISCONNECT in time."""
    channel.stop_listening()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await channel.close(ReasonCode.ADMINISTRATIVE_ACTION)
    except TimeoutError:
        channel.abort()
