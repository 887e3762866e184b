"""The admin port: an HTTP server in a thread of its own, which asks the bridge on its event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from typing import Any

import uvicorn

from bridge.config.values import endpoint
from bridge.console.application import application
from bridge.console.bridge_access import BridgeAccess
from bridge.console.console import Console
from bridge.console.http_protocol import MOST_CONNECTIONS, HttpProtocol
from bridge.console.tls_gate import Arrival, TlsGate
from bridge.console.tokens import make_token_file
from bridge.security.tls import ListenerTls
from bridge.service.lifecycle import Bridge
from bridge.service.log import LogTail

#: Connections that wait to be accepted; and connections at a time above which requests are refused, twice as many as those
#: above which one that waits gives way to a new one.
BACKLOG, LIMIT_CONCURRENCY = 64, 2 * MOST_CONNECTIONS
#: Seconds that requests under way have to end when the bridge stops.
STOP_TIMEOUT = 2.0


class AdminPort:
    """`bridge.service.lifecycle.AdminPort`; called on the bridge's event loop."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._config = bridge.configuration.admin
        self._tail = LogTail()
        self._console: Console | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> list[str]:
        """Listen; return lines that say where, and how to log in. Raises OSError or TlsError."""
        config = self._config
        tls = None if config.tls is None else ListenerTls("the admin port", config.tls, ["http/1.1"])
        login = self._let_in()
        listener = _bound(config.address, config.port or 0)
        self._tail.begin()
        self._console = Console(BridgeAccess(self._bridge), self._tail)
        settings = uvicorn.Config(
            application(self._console),
            loop="asyncio",
            http=HttpProtocol if tls is None else _behind(TlsGate(tls)),
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            # An address that a header claims is nobody's.
            proxy_headers=False,
            limit_concurrency=LIMIT_CONCURRENCY,
            # So many are accepted in one turn of the event loop, too, before any of them gives way.
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(STOP_TIMEOUT),
        )
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="admin port", daemon=True)
        self._thread.start()
        where = endpoint(*listener.getsockname()[:2])
        return [f"console, metrics and health at {'http' if tls is None else 'https'}://{where}/", login]

    def _let_in(self) -> str:
        """Return in words how to log in; a token file that is not configured is made. Raises OSError."""
        path = self._bridge.configuration.token_file_path
        if path is not None and self._config.token_file is None:
            try:
                make_token_file(path)
            except OSError as error:
                raise OSError(error.errno, f"token file {path}: {error.strerror}") from error
        ways = [] if path is None else [f"with a token in {path}"]
        if self._config.authentication:
            ways.append("with user and password, as admin.authentication says")
        if not ways:
            return "nobody can log in to the console: write admin.token_file or admin.authentication"
        return f"log in to the console {', or '.join(ways)}"

    async def stop(self) -> None:
        """Listen no more; requests under way have a moment to end."""
        if self._console is not None:
            self._console.live_views.end()
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            await asyncio.to_thread(self._thread.join, 2 * STOP_TIMEOUT)
        if self._console is not None:
            await self._console.queue_manager.stop()
        self._tail.end()


def _bound(address: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address. Raises OSError."""
    family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def _behind(gate: TlsGate) -> Any:
    """Return what uvicorn makes the protocol of a connection with: it is HTTP's when the handshake has ended."""

    def protocol(**parts: Any) -> Arrival:
        return Arrival(gate, partial(HttpProtocol, **parts))

    return protocol
