"""Telemetry channels: listeners for MQTT clients, each with its rules, and the room for connections that they share."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from bridge.config import ChannelConfig
from bridge.mqtt.connection_state import State
from bridge.mqtt.transport.interface import STOPPING, Gateway
from bridge.mqtt.transport.tcp import TcpConnection
from bridge.wire.mqtt import ReasonCode

#: Seconds between looks at keep-alive, connect and retry time-outs.
SWEEP_INTERVAL = 0.5


class Room:
    """How many connections all channels may have: those for which there are descriptors."""

    def __init__(self, connections: int) -> None:
        self.connections = connections
        self.taken = 0


class Channel:
    """A listener with its rules."""

    def __init__(self, config: ChannelConfig, gateway: Gateway, *, pending_bytes: int, room: Room | None = None) -> None:
        self.config = config
        self.room = room or Room(config.max_clients)
        self.gateway = gateway
        self.pending_bytes = pending_bytes
        self.loop = asyncio.get_running_loop()
        self.connections: set[TcpConnection] = set()
        #: of these, those that had sent no CONNECT at the last look, the oldest first
        self.silent: dict[TcpConnection, None] = {}
        self._empty: asyncio.Future[None] | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def listen(self) -> tuple[str, int]:
        """Start to listen; returns address and port. Raises OSError when that is not possible."""
        self._server = await self.loop.create_server(
            lambda: cast(asyncio.Protocol, TcpConnection(self)),
            self.config.address,
            self.config.port,
            backlog=self.config.backlog,
        )
        self._timer = self.loop.call_later(SWEEP_INTERVAL, self._sweep)
        listener = self._server.sockets[0]
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address, port = listener.getsockname()[:2]
        return str(address), int(port)

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            connection.sweep(now)
        self._timer = self.loop.call_later(SWEEP_INTERVAL, self._sweep)

    def stop_listening(self) -> None:
        """Accept no more clients, and read no more from those connected."""
        if self._server is not None:
            self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.hold(STOPPING)

    def admit(self, connection: TcpConnection) -> str:
        """Take a new connection in; why there is no room for it, or ""."""
        full = len(self.connections) >= self.config.max_clients
        if (full or self.room.taken >= self.room.connections) and not self._make_room():
            if full:
                return f"max_clients ({self.config.max_clients}) are connected"
            return f"the limit of open files leaves room for {self.room.connections} clients"
        self.connections.add(connection)
        self.room.taken += 1
        self.silent[connection] = None
        return ""

    def _make_room(self) -> bool:
        """Have the connection give way that has been there longest without a CONNECT; False where all have sent theirs."""
        for connection in list(self.silent):
            del self.silent[connection]
            if connection.protocol.state is State.WAITING_FOR_CONNECT:
                self.discard(connection)
                connection.closing = True
                connection.abort()
                return True
        return False

    def discard(self, connection: TcpConnection) -> None:
        """Forget a connection that is gone."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.room.taken -= 1
        self.silent.pop(connection, None)
        if self._empty is not None and not self.connections and not self._empty.done():
            self._empty.set_result(None)

    async def close(self) -> None:
        """Close all connections once what was written to them is sent; returns when they are gone."""
        if not self.connections:
            return
        self._empty = self.loop.create_future()
        for connection in list(self.connections):
            connection.close(reason_code=ReasonCode.SERVER_SHUTTING_DOWN)
        await self._empty

    def abort(self) -> int:
        """Close the connections that are left at once; how many."""
        left = list(self.connections)
        for connection in left:
            connection.abort()
        return len(left)
