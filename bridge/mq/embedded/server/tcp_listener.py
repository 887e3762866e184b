"""The TCP listener: accepts connections, counts them, has them speak TLS, and finds out which language each speaks."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from bridge.mq.embedded.server.admission import Admission, Place, note_refusal
from bridge.mq.embedded.server.conversation import Conversation
from bridge.mq.embedded.server.request_stream import FIRST_TIMEOUT
from bridge.security.tls import ListenerTls, reason_of

log = logging.getLogger(__name__)

#: Connections that may wait to be accepted.
_BACKLOG: Final = 128
#: What accept says where there is no room for a connection, and seconds until that may have changed.
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_ROOM_INTERVAL: Final = 1.0


class TcpListener:
    """Listens on a TCP address.

    `conversation` makes the conversation for a first byte and the place of the connection; `blocked` says why nobody may
    come from an address, "" where somebody may.
    """

    def __init__(
        self,
        admission: Admission,
        conversation: Callable[[int, Place], Conversation],
        blocked: Callable[[str], str] = lambda address: "",
    ) -> None:
        self._admission = admission
        self._blocked = blocked
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()
        #: None where it has none
        self._tls: ListenerTls | None = None
        self._sockets: list[socket.socket] = []
        #: the tasks that accept, and those of connections that are not let in yet
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: str, port: int) -> tuple[str, int]:
        """Listen, and return where. Raises OSError, TlsError."""
        config = self._admission.config.tls
        if config is not None:
            self._tls = ListenerTls("queue_manager.listener", config)
        flags = socket.AI_PASSIVE
        try:
            for found in await self._loop.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=flags):
                listening = socket.create_server(found[4][:2], family=found[0], backlog=_BACKLOG)
                listening.setblocking(False)
                self._sockets.append(listening)
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            self._start(self._accept(listening))
        name = self._sockets[0].getsockname()
        return name[0], name[1]

    def close(self) -> None:
        """Accept no more connections; those that are let in stay."""
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    log.error("MQB3310E MQ applications cannot be let in now: %s", error.strerror)
                    await asyncio.sleep(_NO_ROOM_INTERVAL)
                continue
            if why := self._blocked(address[0]):
                log.warning("MQB3313W an MQ application at %s is refused: %s", address[0], why)
                note_refusal(address[0], why)
                connection.close()
                continue
            place = self._admission.take(address[0])
            if place is not None:
                self._start(self._let_in(connection, place))
            else:
                connection.close()

    async def _let_in(self, connection: socket.socket, place: Place) -> None:
        context = None
        if self._tls is not None:
            self._tls.look_again()
            context = self._tls.context
        try:
            await self._loop.connect_accepted_socket(
                lambda: _FirstByte(self._conversation, place),
                connection,
                ssl=context,
                ssl_handshake_timeout=None if context is None else FIRST_TIMEOUT,
            )
        except OSError as error:
            place.give_back()
            log.warning("MQB3311W an MQ application at %s is refused: TLS: %s", place.address, reason_of(error))
            note_refusal(place.address, f"TLS: {reason_of(error)}")
        except BaseException:
            place.give_back()
            raise


class _FirstByte(asyncio.Protocol):
    """Finds out by the first byte of a connection which language it speaks."""

    def __init__(self, conversation: Callable[[int, Place], Conversation], place: Place) -> None:
        self._conversation = conversation
        self._place = place

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses
        self._timer = asyncio.get_running_loop().call_later(FIRST_TIMEOUT, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._place.give_back()

    def data_received(self, data: bytes) -> None:
        self._timer.cancel()
        conversation = self._conversation(data[0], self._place)
        self._transport.set_protocol(conversation)
        conversation.connection_made(self._transport)
        conversation.data_received(data)
