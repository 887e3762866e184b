"""TLS connections of the admin port, before their handshakes have ended."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from bridge.security.tls import ListenerTls, reason_of

log = logging.getLogger(__name__)

#: Handshakes at a time, with one more of which the oldest gives way; seconds that one may take.
MOST_HANDSHAKES, HANDSHAKE_TIMEOUT = 64, 10.0
#: Makes the protocol of a connection whose handshake has ended.
ProtocolFactory = Callable[[], asyncio.Protocol]


class TlsGate:
    """Lets connections in as their handshakes end. Used on the event loop of the admin port.

    asyncio counts a connection when its handshake has ended, and waits a minute for that: silent connections would take all
    file descriptors, those of MQTT clients among them.
    """

    def __init__(self, tls: ListenerTls) -> None:
        self._tls = tls
        #: handshakes under way, the oldest first
        self._handshakes: dict[asyncio.Task[None], None] = {}

    def begin(self, connection: socket.socket, protocol: ProtocolFactory) -> None:
        """Begin a handshake."""
        if len(self._handshakes) >= MOST_HANDSHAKES:
            oldest = next(iter(self._handshakes))
            self._handshakes.pop(oldest)
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._let_in(connection, protocol))
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _let_in(self, connection: socket.socket, protocol: ProtocolFactory) -> None:
        # The files may have changed since the last connection.
        self._tls.look_again()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, connection, ssl=self._tls.context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
            )
        except OSError as error:
            log.debug("admin port: a handshake fails: %s", reason_of(error))


class Arrival(asyncio.Protocol):
    """A connection that has come just now: what it is without TLS is over at once."""

    def __init__(self, gate: TlsGate, protocol: ProtocolFactory) -> None:
        self._gate = gate
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = transport.get_extra_info("socket").dup()
        connection.setblocking(False)
        # Nothing was read yet: all bytes are the handshake's.
        cast(asyncio.Transport, transport).abort()
        self._gate.begin(connection, self._protocol)
