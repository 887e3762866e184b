"""The telemetry channels of a running bridge: started, stopped and altered one by one while the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from bridge.config import ChannelConfig, LimitsConfig
from bridge.config.values import endpoint
from bridge.mqtt.transport.channel import Channel, Room
from bridge.mqtt.transport.interface import Gateway
from bridge.security.tls import TlsError
from bridge.service.descriptors import room_for
from bridge.wire.mqtt import ReasonCode

log = logging.getLogger(__name__)

#: What a channel listens by: where one of these changes it has to listen anew.
_LISTENING = ("address", "port", "socket", "backlog")
#: Seconds that disconnected clients of a channel have to read what was sent to them.
CLOSE_TIMEOUT = 5.0


class ChannelError(Exception):
    """A channel cannot listen, or there is none of that name; words for a person."""


class Channels:
    """All channels of the configuration, on the event loop."""

    def __init__(self, gateway: Gateway, limits: LimitsConfig) -> None:
        self._gateway = gateway
        self._limits = limits
        self._room = Room(0)
        self._configs: dict[str, ChannelConfig] = {}
        #: those that listen; one that was stopped is in `_configs` alone
        self._channels: dict[str, Channel] = {}
        #: why a channel does not listen that should
        self._problems: dict[str, str] = {}

    def __iter__(self) -> Iterator[Channel]:
        """Yield the channels that listen."""
        return iter(self._channels.values())

    def __len__(self) -> int:
        return len(self._channels)

    def get(self, name: str) -> Channel | None:
        """Return a channel that listens; None where none of that name does."""
        return self._channels.get(name)

    @property
    def configs(self) -> list[ChannelConfig]:
        """Return all channels as they are configured, those included that are stopped."""
        return list(self._configs.values())

    @property
    def problems(self) -> dict[str, str]:
        """Return why channels do not listen that should, by name."""
        return self._problems

    async def begin(self, configs: Sequence[ChannelConfig]) -> list[str]:
        """Have all of them listen; return a line for each that tells a person where. Raises ChannelError."""
        self._configs = {config.name: config for config in configs}
        self._measure()
        return [await self._listen(config) for config in configs]

    async def start(self, name: str) -> str:
        """Have a channel listen that was stopped; return a line that says where. Raises ChannelError."""
        config = self._config(name)
        if name in self._channels:
            raise ChannelError(f"channel {name} is running already")
        return await self._listen(config)

    async def stop(self, name: str) -> str:
        """Have a channel listen no more, and its clients disconnected; return a line that says so. Raises ChannelError."""
        self._config(name)
        self._problems.pop(name, None)
        channel = self._channels.pop(name, None)
        if channel is None:
            raise ChannelError(f"channel {name} is stopped already")
        clients = len(channel.connections)
        await _end(channel)
        return f"channel {name} stopped; {clients} clients disconnected"

    async def apply(self, configs: Sequence[ChannelConfig], limits: LimitsConfig) -> list[str]:
        """Let the channels be these from now on; return lines that say what has changed.

        What a client may do is said by the channel as it was when the client connected. The clients of a channel that is
        removed, or listens elsewhere, are disconnected. A channel that cannot listen as altered is told, and does not listen
        until it is altered again or started. One that was stopped stays so.
        """
        self._limits = limits
        wanted = {config.name: config for config in configs}
        before, self._configs = self._configs, wanted
        self._measure()
        lines = []
        for name in [name for name in before if name not in wanted]:
            self._problems.pop(name, None)
            channel = self._channels.pop(name, None)
            if channel is not None:
                await _end(channel)
            lines.append(f"channel {name} removed")
        for name, config in wanted.items():
            channel = self._channels.get(name)
            if channel is not None:
                channel.pending_bytes = limits.pending_bytes
            if name not in before:
                lines.append(await self._try(config, "added"))
            elif before[name] != config:
                lines.append(await self._alter(before[name], config))
        return lines

    async def _alter(self, before: ChannelConfig, config: ChannelConfig) -> str:
        name = config.name
        channel = self._channels.get(name)
        if channel is None:
            # Stopped on purpose it stays so; one that could not listen is tried again.
            return await self._try(config, "changed") if name in self._problems else f"channel {name} changed; it is stopped"
        if all(getattr(before, key) == getattr(config, key) for key in _LISTENING):
            try:
                channel.use(config)
            except TlsError as error:
                log.error("MQB1103E channel %s goes on as it was: it cannot speak TLS: %s", name, error)
                return f"channel {name} goes on as it was: it cannot speak TLS: {error}"
            return f"channel {name} changed, for clients that connect from now on"
        del self._channels[name]
        await _end(channel)
        return await self._try(config, "changed")

    async def _try(self, config: ChannelConfig, done: str) -> str:
        try:
            return f"{await self._listen(config)} ({done})"
        except ChannelError as error:
            log.error("MQB1005E %s", error)
            return f"channel {config.name} {done}, but does not listen: {error}"

    async def _listen(self, config: ChannelConfig) -> str:
        channel = Channel(config, self._gateway, pending_bytes=self._limits.pending_bytes, room=self._room)
        try:
            where = await channel.listen()
        except TlsError as error:
            why = f"channel {config.name} cannot speak TLS: {error}"
            self._problems[config.name] = why
            raise ChannelError(why) from error
        except OSError as error:
            why = (
                f"channel {config.name} cannot listen on {place_of(config)}: {error.strerror or error}; "
                "is another broker running there? --port 0 takes any free one"
            )
            self._problems[config.name] = why
            raise ChannelError(why) from error
        self._problems.pop(config.name, None)
        self._channels[config.name] = channel
        manner = [word for word, one in (("TLS", config.tls), ("WebSockets", config.websocket)) if one is not None]
        over = f" over {' and '.join(manner)}" if manner else ""
        return f"channel {config.name} listens for MQTT clients on {where}{over}"

    def _config(self, name: str) -> ChannelConfig:
        if name not in self._configs:
            known = ", ".join(self._configs) or "none"
            raise ChannelError(f"there is no channel {name!r} (channels: {known})")
        return self._configs[name]

    def _measure(self) -> None:
        """See to it that there are descriptors for all clients, as far as may be."""
        self._room.connections = room_for(sum(config.max_clients for config in self._configs.values()))

    def stop_listening(self) -> None:
        """Accept no more clients, and read no more from those connected."""
        for channel in self:
            channel.stop_listening()

    def abort(self) -> int:
        """Close the connections that are left at once; return how many."""
        return sum(channel.abort() for channel in self)

    async def close(self) -> None:
        """Close all connections once what was written to them is sent; returns when they are gone."""
        await asyncio.gather(*(channel.close() for channel in self))


def place_of(config: ChannelConfig) -> str:
    """Return where a channel is to listen, for people."""
    return str(config.socket) if config.socket is not None else endpoint(config.address, config.port)


async def _end(channel: Channel) -> None:
    """End a channel: its clients are told, and those that do not read are cut off."""
    channel.stop_listening()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await channel.close(ReasonCode.ADMINISTRATIVE_ACTION)
    except TimeoutError:
        channel.abort()
