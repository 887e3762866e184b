"""Telemetry channels: listeners for MQTT clients, and the connection limit that all channels share."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from bridge.config.channel import ChannelConfig
from bridge.config.values import endpoint
from bridge.mqtt.connection import ConnectionState
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security.authenticator import Certificate, network_of
from bridge.security.tls import ListenerTls, escaped
from bridge.security.unix_socket import bound_socket, remove_left_behind
from bridge.transport.layers import ConnectionLimit, Layer, ProxyHeader, ProxyLayer, Stack, TlsLayer, WebSocketLayer
from bridge.transport.stream import STOPPING, MakesOwner, Rate, StreamConnection

#: Seconds between checks of the keep-alive, connect and retry timeouts.
SWEEP_INTERVAL = 0.5
#: The maximum number of networks whose connect rate is tracked. The least recently connected are forgotten.
NETWORKS = 10_000
#: Seconds between checks for changed TLS files.
FILES_INTERVAL = 2.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Room:
    """The connection limit that all channels share, from the limit of open files."""

    def __init__(self, connections: int) -> None:
        self.connections = connections
        self.taken = 0
        #: called for a rejected connection with the option, the address or channel, 1, and the channel
        self.on_refused: Callable[[str, str, int, str], None] = lambda _option, _subject, _number, _channel: None


class ConnectionRefusal(NamedTuple):
    """The reason for rejecting a connection."""

    #: the option of the channel, or open_files
    option: str
    #: the subject of the limit: an address, a network or, if the limit applies to all clients, the channel
    subject: str
    why: str


#: Number of connections that a stopping channel closes per turn of the event loop.
CLOSED_AT_A_TURN: Final = 200


class Channel:
    """A telemetry channel: a listener and its connection rules."""

    def __init__(
        self, config: ChannelConfig, make_owner: MakesOwner, *, pending_bytes: int, room: Room | None = None
    ) -> None:
        self.config = config
        self.room = room or Room(config.max_clients)
        self.make_owner = make_owner
        self.pending_bytes = pending_bytes
        self.loop = asyncio.get_running_loop()
        self.connections: set[StreamConnection] = set()
        #: the connections that had not sent CONNECT at the last check, the oldest first
        self.silent: dict[StreamConnection, None] = {}
        #: connections rejected because of a limit, or because they did not come from a configured proxy
        self.refused = 0
        #: connections whose TLS handshake, WebSocket handshake or PROXY header failed
        self.handshakes_failed = 0
        #: the client and the reason of the last failed handshake, in words
        self.handshake_failure = ""
        #: listening address and port, or None on a Unix socket
        self.endpoint: tuple[str, int] | None = None
        #: None without TLS
        self.tls: ListenerTls | None = None
        self._networks: list[Network | None] = []
        self._look_again = 0.0
        #: time of the next sweep
        self._due = 0.0
        #: whether the last sweep was skipped because it was late
        self._left_out = False
        #: connect rates by network, if the rate is limited
        self._rates: dict[str, Rate] = {}
        #: connections by network, and the network of each connection, if their number is limited
        self._addresses: Counter[str] = Counter()
        self._located: dict[StreamConnection, str] = {}
        self._empty: asyncio.Future[None] | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def listen(self) -> str:
        """Start to listen and return the endpoint for display. Raises OSError or TlsError."""
        config = self.config
        self.use(config)
        connection = cast("Callable[[], asyncio.Protocol]", lambda: StreamConnection(self))
        if config.socket is not None:
            remove_left_behind(config.socket)
            bound = bound_socket(config.socket)
            self._server = await self.loop.create_unix_server(connection, sock=bound, backlog=config.backlog)
            where = str(config.socket)
        else:
            self._server = await self.loop.create_server(
                connection, config.address, config.port, backlog=config.backlog
            )
            listener = self._server.sockets[0]
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.endpoint = listener.getsockname()[:2]
            where = endpoint(*self.endpoint)
        self._await_sweep()
        return where

    def use(self, config: ChannelConfig) -> None:
        """Apply a configuration to new connections. Raises TlsError, and then changes nothing."""
        tls = None
        if config.tls is not None:
            protocols = ["mqtt"] if config.websocket is None else ["http/1.1"]
            tls = ListenerTls(f"channel {config.name}", config.tls, protocols)
        self.config, self.tls, self._networks = config, tls, _networks(config.proxies)

    def stack(self, connection: StreamConnection) -> Stack | None:
        """Return the layers of a new connection, or None if the connection carries plain MQTT."""
        config = self.config
        layers: list[Layer] = []
        if config.proxies:
            layers.append(ProxyLayer(partial(self._come_through_proxy, connection)))
        if self.tls is not None:
            # Behind a proxy, TLS is between the proxy and the bridge. The client's certificate comes from the PROXY header.
            show = (lambda _certificate: None) if config.proxies else partial(_show_certificate, connection)
            layers.append(TlsLayer(self.tls.context, show))
        if config.websocket is not None:
            layers.append(WebSocketLayer(config.websocket, config.max_packet_size))
        return Stack(layers) if layers else None

    def _come_through_proxy(self, connection: StreamConnection, header: ProxyHeader) -> None:
        """Attribute a connection to the client in a PROXY header. Raises LayerError if a limit is exceeded."""
        if header.address is not None:
            connection.come_from(header.address, header.port)
        if header.common_name is not None:
            connection.certificate = Certificate(f"CN={escaped(header.common_name)}", header.common_name)
        if refusal := self.locate(connection):
            self._refuse(refusal)
            raise ConnectionLimit(refusal.why)

    def _await_sweep(self) -> None:
        self._due = self.loop.time() + SWEEP_INTERVAL
        self._timer = self.loop.call_later(SWEEP_INTERVAL, self._sweep)

    def _sweep(self) -> None:
        now = self.loop.time()
        # uvloop runs timers before it reads. After a pause of the process, first read the data that clients have sent
        # meanwhile. A busy event loop is late each time, so do not skip two sweeps.
        self._left_out = not self._left_out and now >= self._due + SWEEP_INTERVAL
        if not self._left_out:
            for connection in list(self.connections):
                connection.sweep(now)
        if self.tls is not None and now >= self._look_again:
            self._look_again = now + FILES_INTERVAL
            self.tls.reload_if_changed()
        self._await_sweep()

    def stop_listening(self) -> None:
        """Stop accepting clients and stop reading from connected clients."""
        if self._server is not None:
            self._server.close()
            if self.config.socket is not None:
                self.config.socket.unlink(missing_ok=True)
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.hold(STOPPING)

    def admit(self, connection: StreamConnection) -> str:
        """Register a new connection. Return the reason for rejecting it, or ""."""
        refusal = self._admit(connection)
        return "" if refusal is None else self._refuse(refusal)

    def _refuse(self, refusal: ConnectionRefusal) -> str:
        self.refused += 1
        self.room.on_refused(refusal.option, refusal.subject, 1, self.config.name)
        return refusal.why

    def _admit(self, connection: StreamConnection) -> ConnectionRefusal | None:
        if self._networks and not _is_among(connection.address, self._networks):
            why = "it does not come from a proxy of this channel (proxies)"
            return ConnectionRefusal("proxies", connection.address or "a Unix socket", why)
        config = self.config
        full = len(self.connections) >= config.max_clients
        if (full or self.room.taken >= self.room.connections) and not self._make_room():
            if full:
                return ConnectionRefusal(
                    "max_clients", config.name, f"max_clients ({config.max_clients}) are connected"
                )
            why = f"the limit of open files leaves room for {self.room.connections} clients"
            return ConnectionRefusal("open_files", config.name, why)
        refusal = None if config.proxies else self.locate(connection)
        if refusal is None:
            self.connections.add(connection)
            self.room.taken += 1
            self.silent[connection] = None
        return refusal

    def locate(self, connection: StreamConnection) -> ConnectionRefusal | None:
        """Count a connection for its network. Return the limit that it exceeds, or None."""
        if not connection.address:
            return None
        config, network = self.config, network_of(connection.address)
        if config.connect_rate is not None and self._too_fast(network, config.connect_rate):
            why = f"{network} connects more often than {config.connect_rate:g} times in a second (connect_rate)"
            return ConnectionRefusal("connect_rate", network, why)
        most = config.max_clients_per_address
        if most is None:
            return None
        if self._addresses[network] >= most:
            why = f"max_clients_per_address ({most}) of {network} are connected"
            return ConnectionRefusal("max_clients_per_address", network, why)
        self._addresses[network] += 1
        self._located[connection] = network
        return None

    def _too_fast(self, network: str, per_second: float) -> bool:
        """Return whether a network exceeds its connect rate. Rejected connections do not count."""
        now = self.loop.time()
        rate = self._rates.pop(network, None)
        if rate is None or rate.per_second != per_second:
            rate = Rate(per_second, now)
        while len(self._rates) >= NETWORKS:
            del self._rates[next(iter(self._rates))]
        self._rates[network] = rate
        if rate.spend(1.0, now):
            rate.spend(-1.0, now)
            return True
        return False

    def _make_room(self) -> bool:
        """Close the oldest connection that has not sent CONNECT. Return False if all have sent it."""
        for connection in list(self.silent):
            del self.silent[connection]
            if connection.protocol.state is ConnectionState.WAITING_FOR_CONNECT:
                self.discard(connection)
                connection.closing = True
                connection.abort()
                return True
        return False

    def discard(self, connection: StreamConnection) -> None:
        """Forget a closed connection."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.room.taken -= 1
        self.silent.pop(connection, None)
        address = self._located.pop(connection, None)
        if address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]
        if self._empty is not None and not self.connections and not self._empty.done():
            self._empty.set_result(None)

    async def close(self, reason_code: int = ReasonCode.SERVER_SHUTTING_DOWN) -> None:
        """Close all connections after sending their pending output, and wait until they are gone.

        MQTT 5 clients receive the reason code in DISCONNECT.
        """
        if not self.connections:
            return
        self._empty = self.loop.create_future()
        for number, connection in enumerate(list(self.connections), 1):
            connection.close(reason_code=reason_code)
            if not number % CLOSED_AT_A_TURN:
                await asyncio.sleep(0)
        await self._empty

    def abort(self) -> int:
        """Close the remaining connections immediately and return their number."""
        connections = list(self.connections)
        for connection in connections:
            connection.abort()
        return len(connections)


def _networks(proxies: Sequence[str]) -> list[Network | None]:
    """Return the networks of proxies. None represents the Unix socket."""
    return [None if proxy == "unix" else ipaddress.ip_network(proxy) for proxy in proxies]


def _is_among(address: str, networks: Sequence[Network | None]) -> bool:
    if not address:
        return None in networks
    there = ipaddress.ip_address(address)
    there = getattr(there, "ipv4_mapped", None) or there
    return any(network is not None and there in network for network in networks)


def _show_certificate(connection: StreamConnection, certificate: Certificate | None) -> None:
    connection.certificate = certificate
