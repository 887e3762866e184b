"""The admin port: an HTTP server on its own thread, with limits for silent and slow connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bridge.config.operations import MAX_REQUESTS
from bridge.config.values import endpoint
from bridge.console.app import application
from bridge.console.bridge_access import BridgeAccess
from bridge.console.console import Console
from bridge.console.pace import TURN
from bridge.security.authenticator import network_of
from bridge.security.tls import ListenerTls, reason_of
from bridge.security.tokens import make_token_file
from bridge.service.lifecycle import Bridge

log = logging.getLogger(__name__)

#: Maximum time to receive the head of a request, from the connection or the previous answer, in seconds.
HEAD_TIMEOUT: Final = 10.0
#: Number of connections that wait for a request above which a new one replaces one of them.
MAX_CONNECTIONS: Final = 64


Waiting = TypeVar("Waiting")


def to_replace(networks: Mapping[Waiting, str]) -> Waiting:
    """Return the oldest connection of the client network with most of them.

    `networks` contains the network of each connection, the oldest connection first.
    """
    sizes = Counter(networks.values())
    return max(networks, key=lambda connection: sizes[networks[connection]])


class HttpProtocol(H11Protocol):
    """A connection that is closed if the head of a request takes too long.

    If there are too many connections, a new one replaces the one that has waited longest, of the client network with most
    of them: silent and slow connections do not block others, above all not health checks.
    """

    _head_timer: asyncio.TimerHandle | None = None
    #: start of the wait for a request, by the clock of the event loop
    _awaited_since = 0.0
    _network = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self._network = network_of(self.client[0])
        if len(self.connections) > MAX_CONNECTIONS:
            self._replace_oldest()
        self._wait_for_head()

    def _replace_oldest(self) -> None:
        """Abort the connection that has waited longest for a request, its rest or its turn, of the largest network."""
        waiting = [
            connection
            for connection in self.connections
            if isinstance(connection, HttpProtocol) and connection is not self and connection._is_waiting
        ]
        if len(waiting) >= MAX_CONNECTIONS:  # others wait for the reply to a call
            waiting.sort(key=lambda connection: connection._awaited_since)
            oldest = to_replace({connection: connection._network for connection in waiting})
            oldest._stop_waiting()
            # asyncio reports its end later, and many connections may arrive in one turn of the event loop.
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._turn is not None:
            self._turn.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_head()

    def shutdown(self) -> None:
        """Shut down without waiting for incomplete requests."""
        if self._awaits_body:
            self.transport.abort()
        else:
            super().shutdown()

    @property
    def _is_waiting(self) -> bool:
        """Whether the head of a request, the rest of its body, or its turn is awaited."""
        return self._head_timer is not None or self._awaits_body or (self._turn is not None and not self._turn.done())

    @property
    def _turn(self) -> asyncio.Future[None] | None:
        """The turn of the request, unless it has credentials."""
        return self.scope["state"].get(TURN) if self._is_answering else None

    @property
    def _awaits_body(self) -> bool:
        """Whether the rest of a body is awaited."""
        return self._is_answering and bool(self.cycle.more_body)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        if self._is_answering:
            self._stop_waiting()
        elif self._head_timer is None:
            self._awaited_since = self.loop.time()
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self._is_answering:
            self.transport.close()


#: Maximum number of handshakes (a new one replaces another), and maximum duration of one in seconds.
MAX_HANDSHAKES, HANDSHAKE_TIMEOUT = 64, 10.0
#: Creates the protocol of a connection after its handshake.
ProtocolFactory = Callable[[], asyncio.Protocol]


class TlsGate:
    """Performs TLS handshakes. Used on the event loop of the admin port.

    asyncio counts a connection only after its handshake, for which it waits a minute. Silent connections would use all file
    descriptors, including those of MQTT clients.
    """

    def __init__(self, tls: ListenerTls) -> None:
        self._tls = tls
        #: handshakes in progress, the oldest first, with the networks of the clients
        self._handshakes: dict[asyncio.Task[None], str] = {}

    def begin(self, connection: socket.socket, protocol: ProtocolFactory) -> None:
        """Begin a handshake. If there are too many, it replaces the oldest one of the client network with most of them."""
        try:
            network = network_of(connection.getpeername()[0])
        except OSError:  # the client has closed the connection
            connection.close()
            return
        if len(self._handshakes) >= MAX_HANDSHAKES:
            oldest = to_replace(self._handshakes)
            self._handshakes.pop(oldest)
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._handshake(connection, protocol))
        self._handshakes[task] = network
        task.add_done_callback(lambda handshake: self._handshakes.pop(handshake, None))

    async def _handshake(self, connection: socket.socket, protocol: ProtocolFactory) -> None:
        # The files may have changed since the last connection.
        self._tls.reload_if_changed()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, connection, ssl=self._tls.context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
            )
        except OSError as error:
            log.debug("TLS handshake at the admin port failed: %s", reason_of(error))


class TlsArrival(asyncio.Protocol):
    """A new connection without TLS, which is replaced by one with TLS."""

    def __init__(self, gate: TlsGate, protocol: ProtocolFactory) -> None:
        self._gate = gate
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = transport.get_extra_info("socket").dup()
        connection.setblocking(False)
        # Nothing has been read yet, so the handshake gets all bytes.
        cast(asyncio.Transport, transport).abort()
        self._gate.begin(connection, self._protocol)


#: Maximum number of connections that wait to be accepted, and number of connections above which requests are rejected.
BACKLOG, LIMIT_CONCURRENCY = 64, 2 * MAX_CONNECTIONS + MAX_REQUESTS
#: Seconds for requests in progress to end when the bridge stops.
STOP_TIMEOUT = 2.0


class AdminPort:
    """`bridge.service.lifecycle.AdminPort`. Called on the bridge's event loop."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._config = bridge.configuration.admin
        self._console: Console | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> list[str]:
        """Listen. Return lines with the address and how to log in. Raises OSError or TlsError."""
        config = self._config
        tls = None if config.tls is None else ListenerTls("the admin port", config.tls, ["http/1.1"])
        login = self._prepare_login()
        listener = _bound(config.address, config.port or 0)
        self._console = Console(BridgeAccess(self._bridge))
        settings = uvicorn.Config(
            application(self._console),
            loop="asyncio",
            http=HttpProtocol if tls is None else _behind(TlsGate(tls)),
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            # Headers with a client address can be forged.
            proxy_headers=False,
            limit_concurrency=LIMIT_CONCURRENCY,
            # As many are accepted in one turn of the event loop, before any is replaced.
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(STOP_TIMEOUT),
        )
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="admin port", daemon=True)
        self._thread.start()
        address = endpoint(*listener.getsockname()[:2])
        return [f"console, metrics and health at {'http' if tls is None else 'https'}://{address}/", login]

    def _prepare_login(self) -> str:
        """Return a line that explains how to log in. Create the default token file if necessary. Raises OSError."""
        path = self._bridge.configuration.token_file_path
        if path is not None and self._config.token_file is None:
            try:
                make_token_file(path)
            except OSError as error:
                raise OSError(error.errno, f"token file {path}: {error.strerror}") from error
        ways = [] if path is None else [f"with a token in {path}"]
        if self._config.authentication:
            ways.append("with a user and password of admin.authentication")
        if not ways:
            return "logins to the console are disabled: neither admin.token_file nor admin.authentication is configured"
        return f"log in to the console {', or '.join(ways)}"

    async def stop(self) -> None:
        """Stop listening. Requests in progress have a moment to end."""
        if self._console is not None:
            self._console.live_views.end()
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            await asyncio.to_thread(self._thread.join, 2 * STOP_TIMEOUT)


def _bound(address: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
    family, kind, protocol, _, socket_address = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(socket_address)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def _behind(gate: TlsGate) -> Any:
    """Return a protocol factory for uvicorn: HTTP after a TLS handshake."""

    def protocol(**arguments: Any) -> TlsArrival:
        return TlsArrival(gate, partial(HttpProtocol, **arguments))

    return protocol
