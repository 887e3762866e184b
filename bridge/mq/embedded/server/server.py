"""Listeners for MQ applications: Unix sockets, and TCP if configured."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

import bridge
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server import protocol
from bridge.mq.embedded.server.admission import Admission, Place, note_refusal
from bridge.mq.embedded.server.conversation import Conversation
from bridge.mq.embedded.server.request_stream import FIRST_TIMEOUT, Malformed
from bridge.mq.embedded.verbs.batches import get_each, get_many, look_many, put_many, take_each
from bridge.mq.mqi import MQError
from bridge.security import audit_log
from bridge.security.tls import ListenerTls, reason_of
from bridge.security.unix_socket import bound_socket
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: The backlog of the listening socket.
_BACKLOG: Final = 128
#: Errors of accept for a lack of resources, and the delay before the next attempt in seconds.
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_ROOM_INTERVAL: Final = 1.0


class TcpListener:
    """Listens on a TCP address.

    `conversation` returns the protocol for a connection with a slot. `blocked` returns why an address is blocked, or "".
    """

    def __init__(
        self,
        admission: Admission,
        conversation: Callable[[Place], asyncio.Protocol],
        blocked: Callable[[str], str] = lambda address: "",
    ) -> None:
        self._admission = admission
        self._blocked = blocked
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()
        #: None without TLS
        self._tls: ListenerTls | None = None
        self._sockets: list[socket.socket] = []
        #: tasks that accept connections, and tasks of connections before their protocol starts
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: str, port: int) -> tuple[str, int]:
        """Listen, and return the bound address and port. Raises OSError or TlsError."""
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
        """Stop accepting connections. Accepted ones stay open."""
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
                lambda: self._conversation(place),
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


#: Time that applications have to end when the queue manager stops, in seconds.
QUIESCE_TIME = 2.0


class ApplicationServer:
    """Accepts MQ connections from other processes that use this package."""

    def __init__(self, queue_manager: QueueManager, admission: Admission | None = None) -> None:
        self.queue_manager = queue_manager
        self.admission = admission or Admission()
        self._tcp: TcpListener | None = None
        self.connections: set[Conversation] = set()
        #: set when a connection has ended
        self._gone = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._paths: list[Path] = []
        #: the TCP port, 0 if it does not listen on TCP
        self.port = 0

    async def listen(self, address: tuple[str, int] | None = None) -> list[str]:
        """Listen in the data directory and on a TCP address. Return a line for each. Raises OSError or TlsError."""
        place = await self.listen_at(protocol.SOCKET_NAME, lambda: ApplicationProtocol(self))
        lines = [f"MQ applications connect at {place}"]
        if address is not None:
            self._tcp = TcpListener(self.admission, self.conversation, self._blocked)
            host, self.port = await self._tcp.listen(*address)
            by = " by TLS" if self.admission.config.tls is not None else ""
            lines.append(f"MQ applications connect at {host}:{self.port}{by}")
        return lines

    async def listen_at(self, name: str, conversation: Callable[[], Conversation]) -> str:
        """Listen on a Unix socket in the data directory, and return its path. Raises OSError."""
        path = self.queue_manager.data_directory / name
        # This process has locked the data directory, so an existing socket is from a process that died.
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._paths.append(path)
        self._servers.append(await asyncio.get_running_loop().create_unix_server(conversation, sock=bound_socket(path)))
        return str(path)

    def conversation(self, place: Place) -> asyncio.Protocol:
        """Return the protocol for a connection over TCP. The tests' stand-in for IBM MQ overrides it."""
        return ApplicationProtocol(self, place)

    def _blocked(self, address: str) -> str:
        return self.queue_manager.channel_authentication.at_work.blocked_address(address)

    def discard(self, connection: Conversation) -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
        if connection.place is not None:
            connection.place.give_back()
        self._gone.set()

    async def close(self) -> None:
        """Stop accepting connections and quiesce. Then close the remaining connections and back out their units of work.

        Applications that wait for a message or have a unit of work get QUIESCE_TIME to end (IBM MQ, "Stopping a queue
        manager").
        """
        for server in self._servers:
            server.close()
        if self._tcp is not None:
            self._tcp.close()
        with self.queue_manager.lock:
            self.queue_manager.quiescing = True
            for connection in self.connections:
                connection.quiesce()
        leaving = {connection for connection in self.connections if connection.is_leaving}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIESCE_TIME):
                while leaving & self.connections:
                    self._gone.clear()
                    await self._gone.wait()
        for connection in list(self.connections):
            connection.abort()
        self.admission.close()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


class ApplicationProtocol(Conversation):
    """An MQ connection that uses the MessagePack protocol (`protocol`)."""

    LENGTH = protocol.LENGTH

    def __init__(self, server: ApplicationServer, place: Place | None = None) -> None:
        super().__init__(server, place)
        self._decoder = msgspec.msgpack.Decoder(protocol.Request)

    def _refuse(self, error: MQError) -> None:
        self._reply(protocol.reply(error.comp_code, error.reason, error.detail))

    def _answer(self, result: Any = None, warning: MQError | None = None) -> None:
        if warning is None:
            self._reply(protocol.reply(cmqc.MQCC_OK, cmqc.MQRC_NONE, "", result))
        else:
            self._reply(protocol.reply(warning.comp_code, warning.reason, warning.detail, result))

    def _work(self, request: bytes) -> None:
        try:
            verb = self._decoder.decode(request)
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            if not self._is_connected:
                raise Malformed(str(error)) from error
            # The request is complete, and the requests after it can be read: only this one is rejected.
            raise MQError(cmqc.MQRC_UNEXPECTED_ERROR, f"the request has an invalid field: {error}") from error
        except msgspec.DecodeError as error:
            raise Malformed(str(error)) from error
        if isinstance(verb, protocol.Connect):
            if verb.version != protocol.PROTOCOL_VERSION:
                raise MQError(
                    cmqc.MQRC_ENVIRONMENT_ERROR, f"this bridge is release {bridge.__version__}, the caller another"
                )
            connected = protocol.Connected(self._queue_manager.name, os.getpid(), bridge.__version__)
            answer = partial(self._answer, connected)
            self._connect(verb.queue_manager, verb.application, verb.user, verb.password, answer)
            return
        application = self._connected()
        match verb:
            case protocol.Get(handle, options):
                self._get(handle, options)
            case protocol.Put(handle, message, pmo, properties):
                md, unit = application.put(handle, message, pmo, properties)
                self._end(unit, (md, pmo))
            case protocol.Put1(od, message, pmo, properties):
                md, unit = application.put1(od, message, pmo, properties)
                self._end(unit, (md, od, pmo))
            case protocol.GetMany(handle, options, messages, size):
                self._get(handle, options, verb=partial(get_many, application, handle, options, messages, size))
            case protocol.GetEach(handle, options, msg_ids, size):
                options.Options &= ~cmqc.MQGMO_WAIT
                self._get(handle, options, verb=partial(get_each, application, handle, options, msg_ids, size))
            case protocol.LookMany(handle, options, messages):
                self._get(handle, options, verb=partial(look_many, application, handle, options, messages))
            case protocol.TakeEach(handle, options, wanted):
                options.Options &= ~cmqc.MQGMO_WAIT
                self._get(handle, options, verb=partial(take_each, application, handle, options, wanted))
            case protocol.PutMany(puts):
                mds, unit = put_many(application, puts)
                self._end(unit, mds)
            case protocol.Open(od, options):
                self._answer((application.open(od, options), od))
            case protocol.Close(handle, options):
                self._end(application.close(handle, options))
            case protocol.Subscribe(sd, handle):
                handles, unit = application.subscribe(sd, handle)
                self._end(unit, (handles, sd))
            case protocol.SubscriptionRequest(handle, action, options):
                count, unit = application.subscription_request(handle, action, options)
                self._end(unit, count)
            case protocol.Inquire(handle, selectors):
                self._answer(application.inquire(handle, selectors))
            case protocol.Set(handle, selectors, ints, chars):
                self._end(application.set(handle, selectors, ints, chars))
            case protocol.Statistics(kind):
                self._answer(application.statistics(kind))
            case protocol.Commit():
                self._end(application.commit())
            case protocol.Backout():
                application.backout()
                self._answer()
            case protocol.Command(text):
                self._commands(text)
            case protocol.Disconnect():
                self._disconnect()

    def _commands(self, text: str) -> None:
        commands = Commands(self._queue_manager)
        waiting = commands.read(text)
        for command in waiting:
            self._connected().check_administrator(command.text)
        responses: list[Any] = []

        def run(reason: int = cmqc.MQRC_NONE) -> None:
            if reason:
                self._refuse(MQError(reason, f"{responses[-1].command}: it was backed out"))
                return
            while waiting:
                with self._queue_manager.lock:
                    command = waiting.pop(0)
                    response, unit = commands.run(command)
                    responses.append(response)
                    if command.verb != "DISPLAY":
                        audit_log.note("command", user=self._user, command=command.text, ok=response.ok)
                    if unit is not None:
                        unit.done = run
                        self._queue_manager.recovery_log.submit(unit)
                        return
            self._answer(responses)

        run()
