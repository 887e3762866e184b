"""The embedded queue manager's door for other processes: MQ connections over a Unix socket, and TCP where configured."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

import bridge
from bridge.mq.errors import MQError
from bridge.mq.local import protocol
from bridge.mq.local.application import Application
from bridge.mq.local.client import socket_address
from bridge.mq.local.commands import Commands
from bridge.mq.local.journal import Unit
from bridge.mq.local.queuemanager import QueueManager
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class ApplicationServer:
    """Accepts MQ connections of other processes."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self.queue_manager = queue_manager
        self.connections: set[ApplicationProtocol] = set()
        self._servers: list[asyncio.Server] = []
        self._path: Path | None = None

    async def listen(self, address: tuple[str, int] | None = None) -> list[str]:
        """Listen on the socket in the data directory, and on a TCP address; returns both as text."""
        loop = asyncio.get_running_loop()
        self._path = path = self.queue_manager.data_directory / protocol.SOCKET_NAME
        # The lock on the data directory is ours, so a socket that is there was left by a process that died.
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with socket_address(path) as name:
            listener.bind(name)
        os.chmod(path, 0o660)
        self._servers.append(await loop.create_unix_server(lambda: ApplicationProtocol(self), sock=listener))
        places = [str(path)]
        if address is not None:
            server = await loop.create_server(lambda: ApplicationProtocol(self), *address)
            self._servers.append(server)
            places.append("{}:{}".format(*server.sockets[0].getsockname()[:2]))
        return places

    async def close(self) -> None:
        """Stop accepting; connections that are open break, and their units of work are backed out."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.abort()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()


class ApplicationProtocol(asyncio.Protocol):
    """One MQ connection of another process."""

    def __init__(self, server: ApplicationServer) -> None:
        self._server = server
        self._queue_manager = server.queue_manager
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._application: Application | None = None
        self._decoder = msgspec.msgpack.Decoder(protocol.Request)
        self._transport: asyncio.Transport | None = None
        #: a request is being worked on: what arrives meanwhile waits
        self._working = False
        self._wait: tuple[list[Callable[[], None]], Callable[[], None], asyncio.TimerHandle | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.connections.discard(self)
        self._stop_waiting()
        application, self._application = self._application, None
        if application is not None:
            with self._queue_manager.lock:
                for unit in application.disconnect(commit=False):
                    self._queue_manager.journal.submit(unit)

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._working:
            self._next()

    def _next(self) -> None:
        """Work on the next request that has arrived in full."""
        buffer = self._buffer
        while not self._working and len(buffer) >= protocol.LENGTH.size:
            (length,) = protocol.LENGTH.unpack_from(buffer)
            if length > protocol.MAX_FRAME:
                self._fail(f"a request of {length} bytes")
                return
            end = protocol.LENGTH.size + length
            if len(buffer) < end:
                return
            body = bytes(buffer[protocol.LENGTH.size : end])
            del buffer[:end]
            try:
                request = self._decoder.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self._fail(str(error))
                return
            self._working = True
            try:
                with self._queue_manager.lock:
                    self._work(request)
            except MQError as error:
                self._refuse(error)
            except Exception as error:
                self._refuse(_unexpected(error))

    def _fail(self, what: str) -> None:
        log.warning("an MQ connection is closed, it does not speak the protocol of this bridge: %s", what)
        self.abort()

    def _refuse(self, error: MQError) -> None:
        self._reply(protocol.Reply(error.comp_code, error.reason, error.detail))

    def _answer(self, result: Any = None) -> None:
        raw = msgspec.Raw(msgspec.msgpack.encode(result))
        self._reply(protocol.Reply(cmqc.MQCC_OK, cmqc.MQRC_NONE, "", raw))

    def _reply(self, reply: protocol.Reply) -> None:
        self._working = False
        if self._transport is None:
            return
        self._transport.write(protocol.frame(reply))
        if self._buffer:
            self._loop.call_soon(self._next)

    def _end(self, unit: Unit | None, result: Any = None) -> None:
        """Answer once a unit of work has ended."""
        if unit is None:
            self._answer(result)
            return

        def done(reason: int) -> None:
            if reason:
                self._refuse(MQError(reason, "the unit of work was backed out"))
            else:
                self._answer(result)

        unit.done = done
        self._queue_manager.journal.submit(unit)

    def _work(self, request: protocol.Request) -> None:
        if isinstance(request, protocol.Connect):
            self._connect(request)
            return
        application = self._application
        if application is None:
            raise MQError(cmqc.MQRC_HCONN_ERROR, "MQCONN comes first")
        match request:
            case protocol.Get(handle, options):
                self._get(application, request)
            case protocol.Put(handle, message, options):
                md, unit = application.put(handle, message, options)
                self._end(unit, md)
            case protocol.Put1(od, message, options):
                md, unit = application.put1(od, message, options)
                self._end(unit, md)
            case protocol.Open(od, options):
                self._answer(application.open(od, options))
            case protocol.Close(handle, options):
                self._end(application.close(handle, options))
            case protocol.Subscribe(sd, handle):
                handles, unit = application.subscribe(sd, handle)
                self._end(unit, handles)
            case protocol.Commit():
                self._end(application.commit())
            case protocol.Backout():
                application.backout()
                self._answer()
            case protocol.Command(text):
                self._commands(text)
            case protocol.Disconnect():
                self._disconnect(application)

    def _connect(self, request: protocol.Connect) -> None:
        name = self._queue_manager.name
        if request.version != protocol.PROTOCOL_VERSION:
            raise MQError(
                cmqc.MQRC_ENVIRONMENT_ERROR, f"this bridge is release {bridge.__version__}, the caller another"
            )
        if request.queue_manager not in ("", name):
            raise MQError(cmqc.MQRC_Q_MGR_NAME_ERROR, f"this is queue manager {name}, not {request.queue_manager}")
        if self._application is not None:
            raise MQError(cmqc.MQRC_ALREADY_CONNECTED, name)
        self._application = Application(self._queue_manager, request.application, self._peer())
        self._answer(protocol.Connected(name, os.getpid(), bridge.__version__))

    def _peer(self) -> str:
        """User name of the process at the other end of a Unix socket; blank over TCP, where nothing vouches for one."""
        assert self._transport is not None
        connection = self._transport.get_extra_info("socket")
        if connection is None or connection.family != socket.AF_UNIX:
            return ""
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            return pwd.getpwuid(user).pw_name
        except KeyError:
            return str(user)

    def _disconnect(self, application: Application) -> None:
        self._application = None
        units = application.disconnect(commit=True) or [Unit()]
        for unit in units[:-1]:
            self._queue_manager.journal.submit(unit)
        self._end(units[-1])

    def _commands(self, text: str) -> None:
        commands = Commands(self._queue_manager)
        waiting = commands.read(text)
        responses: list[Any] = []

        def run(reason: int = cmqc.MQRC_NONE) -> None:
            if reason:
                self._refuse(MQError(reason, f"{responses[-1].command}: it was backed out"))
                return
            while waiting:
                with self._queue_manager.lock:
                    response, unit = commands.run(waiting.pop(0))
                    responses.append(response)
                    if unit is not None:
                        unit.done = run
                        self._queue_manager.journal.submit(unit)
                        return
            self._answer(responses)

        run()

    def _get(self, application: Application, request: protocol.Get) -> None:
        options = request.options
        try:
            got, unit = application.get(request.handle, options)
        except MQError as error:
            if not options.Options & cmqc.MQGMO_WAIT or error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
            self._wait_for_message(application, request)
            return
        self._end(unit, got)

    def _wait_for_message(self, application: Application, request: protocol.Get) -> None:
        waiters = application.queue_of(request.handle).waiters
        interval = request.options.WaitInterval

        def arrived() -> None:
            # Units of work of this process end in the thread that submits them.
            self._loop.call_soon_threadsafe(again)

        def again() -> None:
            if self._wait is None or self._application is not application:
                return
            timer = self._wait[2]
            try:
                with self._queue_manager.lock:
                    got, unit = application.get(request.handle, request.options)
            except MQError as error:
                if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                    waiters.append(arrived)
                    return
                self._stop_waiting()
                self._refuse(error)
                return
            except Exception as error:
                self._stop_waiting()
                self._refuse(_unexpected(error))
                return
            self._wait = None
            if timer is not None:
                timer.cancel()
            with self._queue_manager.lock:
                self._end(unit, got)

        def late() -> None:
            self._stop_waiting()
            self._refuse(MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"none came in {interval} ms"))

        timer = self._loop.call_later(interval / 1000, late) if interval >= 0 else None
        waiters.append(arrived)
        self._wait = (waiters, arrived, timer)

    def _stop_waiting(self) -> None:
        if self._wait is None:
            return
        waiters, arrived, timer = self._wait
        self._wait = None
        if arrived in waiters:
            waiters.remove(arrived)
        if timer is not None:
            timer.cancel()


def _unexpected(error: Exception) -> MQError:
    """What an application is told when its request fails in a way that nobody foresaw: it must not wait for ever."""
    log.exception("a request of an MQ application failed", exc_info=error)
    return MQError(cmqc.MQRC_UNEXPECTED_ERROR, "the log of the bridge says more")
