"""MQ connections of other processes to the embedded queue manager.

`Conversation` processes one request at a time and limits the read-ahead. It replies after the request's unit of work has
ended, runs waiting gets without blocking other connections, and backs out when the connection ends. Its subclasses decode
requests and encode replies: `ApplicationProtocol` for this package (`bridge.mq.remote`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import msgspec

import bridge
from bridge.mq import remote
from bridge.mq.embedded.admission import (
    FIRST_TIMEOUT,
    Admission,
    ConnectionSlot,
    TcpListener,
    User,
    client_of,
    mapped,
    process_of,
    user_of,
    user_of_process,
)
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit, undo
from bridge.mq.embedded.verbs.administration import clear_retained, subscriptions
from bridge.mq.embedded.verbs.get import BROWSES, PROPERTIES, WaitingGet, candidates, get_result, mqget, ready_handle
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.inquire import mqinq
from bridge.mq.embedded.verbs.open import mqback, mqclose, mqcmit, mqconn, mqdisc, mqopen
from bridge.mq.embedded.verbs.put import mqput, mqput1
from bridge.mq.embedded.verbs.sub import mqsub
from bridge.mq.mqi import GetOptions, Got, MQError, TruncatedMessage
from bridge.mq.remote import LENGTH, SOCKET_NAME, CallPipeline, GetCall, PutCall, following, keep_alive, run_pipeline
from bridge.security import audit_log
from bridge.security.privileged import NOBODY
from bridge.security.tls import certificate_of
from bridge.security.unix_socket import bound_socket
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)

#: The maximum size of a frame in bytes: the longest message of MQ, and headers.
MAX_FRAME = 104_857_600 + 1_048_576
#: The maximum size of a frame before MQCONN, in bytes.
FIRST_FRAME = 65_536
#: The maximum number of bytes to read after the current request. Reading pauses above it.
READ_AHEAD = 262_144
#: Send buffer of a Unix socket in bytes, enough for most batches of messages. (Over TCP, the kernel adapts it.)
SEND_BUFFER = 1_048_576


class Malformed(Exception):
    """The bytes are not a valid request."""


class Conversation(asyncio.Protocol, ABC):
    """One MQ connection of another process.

    The byte stream, the authentication of the user and the current request are in one class, because reading, replying and
    closing depend on the state of all three.
    """

    #: the length before a frame, which does not include itself
    LENGTH: ClassVar[struct.Struct]
    HCONN: ClassVar[type[Hconn]] = Hconn

    def __init__(self, server: ApplicationServer, slot: ConnectionSlot | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        #: whether a request is being processed
        self._working = False
        #: whether reading is paused because too much data follows the current request
        self._unread = False
        #: whether the write buffer is full because the peer reads replies too slowly
        self._full = False
        #: timeout for MQCONN
        self._first: asyncio.TimerHandle | None = None
        self._server = server
        #: the slot of a connection over TCP
        self.slot = slot
        self._queue_manager = server.queue_manager
        self._hconn: Hconn | None = None
        #: IP address of the peer, or "" on a Unix socket
        self.address = "" if slot is None else slot.address
        #: the server-connection channel of a subclass, or ""
        self._channel = ""
        #: the process at the other end of a Unix socket, or 0 over TCP
        self._process_id = 0
        #: the user that has connected
        self._user = ""
        #: authenticates the application
        self._identification: asyncio.Task[None] | None = None
        #: runs until the credentials expire
        self._expiry: asyncio.TimerHandle | None = None
        #: whether a unit of work of a request is about to end
        self._ending = False
        #: whether the application was notified that the queue manager is quiescing
        self._told = False
        #: the waiting get, and the end of its wait interval
        self._waiting: WaitingGet[Any] | None = None
        self._timeout: asyncio.TimerHandle | None = None

    # To be implemented by protocols ----------------------------------------------------------------------------------

    @abstractmethod
    def _work(self, request: bytes) -> None:
        """Execute a request and reply, with the queue manager's lock held. Raises MQError or Malformed."""

    @abstractmethod
    def _answer(self, result: Any = None, warning: MQError | None = None) -> None:
        """Reply to a successful request, possibly with a warning."""

    @abstractmethod
    def _refuse(self, error: MQError) -> None:
        """Reply to a failed request."""

    # The byte stream ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        elif connection is not None:
            keep_alive(connection)
        self._server.connections.add(self)
        self._expect_mqconn()

    def _expect_mqconn(self) -> None:
        """Start the timeout for MQCONN, initially and after a failed MQCONN."""
        if self._first is not None:
            self._first.cancel()
        self._first = self._loop.call_later(FIRST_TIMEOUT, self._silent)

    def _silent(self) -> None:
        if not self._is_connected and self._working:
            self._expect_mqconn()
        elif not self._is_connected:
            self._fail(f"no MQCONN within {FIRST_TIMEOUT:g} s")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for end in (self._first, self._identification, self._expiry):
            if end is not None:
                end.cancel()
        self._server.discard(self)
        self._stop_waiting()
        if not self._ending:
            self._leave()

    def abort(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    @property
    def _may_work(self) -> bool:
        """Whether the next request may be processed. False while the peer does not read replies.

        Requests of a closed connection are not processed, because nothing would clean up after them.
        """
        return not self._working and not self._full and self._transport is not None

    def _pace(self) -> None:
        """Pause or resume reading. This limits the data that follows a request, not the size of the request."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        waits = len(self._buffer) if not self._may_work else 0
        if not self._is_connected and waits > FIRST_FRAME:
            self._fail(f"{waits} bytes after an unanswered MQCONN")
        elif self._waiting is not None and waits > READ_AHEAD:
            # Do not pause reading, because a disconnect would not be detected during an indefinite wait.
            self._fail(f"{waits} bytes after a waiting get")
        elif self._unread != (waits > READ_AHEAD):
            self._unread = not self._unread
            transport.pause_reading() if self._unread else transport.resume_reading()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Process the next complete request."""
        self._work_on()
        self._pace()

    def _work_on(self) -> None:
        buffer = self._buffer
        size = self.LENGTH.size
        while self._may_work and len(buffer) >= size:
            (length,) = self.LENGTH.unpack_from(buffer)
            if length > (FIRST_FRAME if not self._is_connected else MAX_FRAME):
                self._fail(f"a request of {length} bytes")
                return
            if len(buffer) < size + length:
                return
            request = bytes(memoryview(buffer)[size : size + length])
            del buffer[: size + length]
            self._working = True
            try:
                self._take(request)
            except Malformed as error:
                self._fail(str(error))
                return

    def _fail(self, reason: str) -> None:
        log.warning("MQB3307W closed an MQ connection that does not use the protocol of this bridge: %s", reason)
        self.abort()

    def _reply(self, frame: bytes | bytearray) -> None:
        self._working = False
        if self._transport is None:
            return
        self._transport.write(frame)
        if self._buffer or self._unread:
            self._loop.call_soon(self._next)

    # The connection --------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Clean up after the connection has ended."""
        hconn, self._hconn = self._hconn, None
        if hconn is not None:
            with self._queue_manager.lock:
                for unit in mqdisc(hconn, commit=False):
                    self._queue_manager.recovery_log.submit(unit)

    def _stop(self) -> None:
        """Abort the connection, from any thread. Requests that follow are not processed."""
        try:
            same_thread = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            same_thread = False
        if same_thread:
            self.abort()
        else:
            self._loop.call_soon_threadsafe(self.abort)

    def quiesce(self) -> None:
        """Retry a waiting get, which fails now if it has MQGMO_FAIL_IF_QUIESCING."""
        if self._waiting is not None:
            if self._waiting.cancel():
                self._loop.call_soon_threadsafe(self._try_again, self._waiting)
            self._told = True

    @property
    def is_leaving(self) -> bool:
        """Whether the application may still have to commit or disconnect before the queue manager stops."""
        return self._told or (self._hconn is not None and self._hconn.in_unit_of_work)

    @property
    def _is_connected(self) -> bool:
        """Whether MQCONN has succeeded."""
        return self._hconn is not None

    def _take(self, request: bytes) -> None:
        try:
            with self._queue_manager.lock:
                self._work(request)
        except Malformed:
            raise
        except MQError as error:
            self._refuse(error)
        except Exception as error:
            self._refuse(unexpected(error))

    # Verbs -----------------------------------------------------------------------------------------------------------

    def _connect(
        self, queue_manager: str, application: str, user: str, password: bytes, then: Callable[[], None]
    ) -> None:
        """Connect an application, and reply with `then`, immediately or after authentication."""
        name = self._queue_manager.name
        if queue_manager not in ("", name):
            raise MQError(cmqc.MQRC_Q_MGR_NAME_ERROR, f"this is queue manager {name}, not {queue_manager}")
        if self._hconn is not None:
            raise MQError(cmqc.MQRC_ALREADY_CONNECTED, name)
        if self._queue_manager.quiescing:
            raise MQError(cmqc.MQRC_Q_MGR_QUIESCING, f"queue manager {name} is quiescing")

        if peer := self._peer():
            self._admit(application, user_of_process(self._queue_manager, user, peer))
            then()
        else:
            identify = self._identify(application, user, password, then)
            self._identification = self._loop.create_task(identify)

    def _admit(self, name: str, user: User) -> None:
        """Connect an authenticated application. Raises MQError."""
        self._hconn = hconn = mqconn(self.HCONN, self._queue_manager, name, user.identifier, user.principal)
        hconn.address, hconn.channel, hconn.process_id = self.address, self._channel, self._process_id
        hconn.stop = self._stop
        self._user = user.authenticated_user or user.identifier
        audit_log.note("application connected", user=self._user, address=self.address, application=name)

    async def _identify(self, application: str, user: str, password: bytes, then: Callable[[], None]) -> None:
        """Authenticate an application that connects over TCP, and reply to it."""
        assert self._transport is not None
        stream = self._transport.get_extra_info("ssl_object")
        certificate = certificate_of(stream) if stream is not None else None
        try:
            admission = self._server.admission
            login = await admission.admit(user, password, self.address, certificate)
            authenticated_user = login.user_name if admission.asks else None
            client = client_of(
                self._channel, self.address, user if authenticated_user is None else authenticated_user, certificate
            )
            mcauser = mapped(self._queue_manager, client, authenticated_user)
            if (authorization := self._queue_manager.authorization) is not None:
                # Looking up groups in the operating system may block.
                await self._loop.run_in_executor(None, authorization.groups, mcauser or authenticated_user or NOBODY)
            with self._queue_manager.lock:
                self._admit(
                    application, user_of(self._queue_manager, user, authenticated_user if mcauser is None else mcauser)
                )
                then()
        except MQError as error:
            self._refuse(error)
        except Exception as error:
            self._refuse(unexpected(error))
        else:
            if login.expires is not None:
                self._expiry = self._loop.call_later(login.expires - time.time(), self._expire, login.user_name)

    def _expire(self, user: str | None) -> None:
        log.info("MQB3308I closing MQ connection of user %r: credentials expired", user)
        self.abort()

    def _connected(self) -> Hconn:
        if self._hconn is None:
            raise MQError(cmqc.MQRC_HCONN_ERROR, "call MQCONN first")
        return self._hconn

    def _peer(self) -> str:
        """Return the user name of the process at the other end of a Unix socket, or "" over TCP."""
        assert self._transport is not None
        connection = self._transport.get_extra_info("socket")
        if connection is None or connection.family != socket.AF_UNIX:
            return ""
        self._process_id, user = process_of(connection)
        return user

    def _disconnect(self) -> None:
        hconn = self._connected()
        self._hconn = None
        self._expect_mqconn()
        units = mqdisc(hconn, commit=True) or [Unit()]
        for unit in units[:-1]:
            self._queue_manager.recovery_log.submit(unit)
        self._end(units[-1])

    def _end(self, unit: Unit | None, result: Any = None, warning: MQError | None = None) -> None:
        """Reply after a unit of work has ended."""
        if unit is None:
            self._answer(result, warning)
            return

        def done(reason: int) -> None:
            self._ending = False
            if reason:
                self._refuse(MQError(reason, "the unit of work was backed out"))
            else:
                self._answer(result, warning)
            if self._transport is None:
                self._leave()

        unit.done = done
        self._ending = True
        self._queue_manager.recovery_log.submit(unit)

    # Waiting gets ----------------------------------------------------------------------------------------------------

    def _get(
        self,
        hobj: int,
        options: GetOptions,
        form: Callable[[Any], Any] = lambda message: message,
        get: Callable[[], tuple[Any, Unit | None]] | None = None,
    ) -> None:
        """Execute MQGET and reply, now or when the wait ends.

        `form` converts the message to the result of the reply. `get`, if given, replaces MQGET.
        """
        hconn = self._connected()

        def attempt() -> tuple[Any, Unit | None, MQError | None]:
            try:
                message, unit = mqget(hconn, hobj, options) if get is None else get()
            except TruncatedMessage as error:
                return form(error.got), None, error
            return form(message), unit, None

        def arrived() -> None:
            # Units of work in this process may end on any thread.
            self._loop.call_soon_threadsafe(self._try_again, waiting)

        def late() -> None:
            self._stop_waiting()
            self._refuse(MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"no message arrived in {interval} ms"))

        waiting = WaitingGet(hconn, hobj, options, attempt, arrived)
        outcome = waiting.attempt()
        if outcome is not None:
            result, unit, warning = outcome
            self._end(unit, result, warning)
            return
        interval = options.WaitInterval
        self._waiting = waiting
        self._timeout = self._loop.call_later(interval / 1000, late) if interval >= 0 else None

    def _try_again(self, waiting: WaitingGet[tuple[Any, Unit | None, MQError | None]]) -> None:
        if self._waiting is not waiting:
            return
        try:
            with self._queue_manager.lock:
                outcome = waiting.attempt()
                if outcome is None:
                    return
                self._stop_waiting()
                result, unit, warning = outcome
                self._end(unit, result, warning)
        except MQError as error:
            self._stop_waiting()
            self._refuse(error)
        except Exception as error:
            self._stop_waiting()
            self._refuse(unexpected(error))

    def _stop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


def unexpected(error: Exception) -> MQError:
    """Log an unexpected error, and return the error for the reply to the application."""
    log.exception("MQB3309E a request of an MQ application failed", exc_info=error)
    return MQError(cmqc.MQRC_UNEXPECTED_ERROR, "internal error; hint: see the log of the bridge")


#: Maximum time for applications to end when the queue manager stops, in seconds.
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
        #: the TCP port, or 0 if it does not listen on TCP
        self.port = 0

    async def listen(self, address: tuple[str, int] | None = None) -> list[str]:
        """Listen in the data directory and on a TCP address. Return a line for each. Raises OSError or TlsError."""
        place = await self.listen_at(SOCKET_NAME, lambda: ApplicationProtocol(self))
        lines = [f"MQ applications connect at {place}"]
        if address is not None:
            self._tcp = TcpListener(self.admission, self.conversation, self._blocked)
            host, self.port = await self._tcp.listen(*address)
            suffix = " with TLS" if self.admission.config.tls is not None else ""
            lines.append(f"MQ applications connect at {host}:{self.port}{suffix}")
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

    def conversation(self, slot: ConnectionSlot) -> asyncio.Protocol:
        """Return the protocol for a connection over TCP. The tests' stand-in for IBM MQ overrides it."""
        return ApplicationProtocol(self, slot)

    def _blocked(self, address: str) -> str:
        return self.queue_manager.objects.channel_authentication.at_work.blocked_address(address)

    def discard(self, connection: Conversation) -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
        if connection.slot is not None:
            connection.slot.give_back()
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
    """An MQ connection that uses the MessagePack protocol (`bridge.mq.remote`)."""

    LENGTH = LENGTH

    def __init__(self, server: ApplicationServer, slot: ConnectionSlot | None = None) -> None:
        super().__init__(server, slot)
        self._decoder = msgspec.msgpack.Decoder(remote.Request)

    def _refuse(self, error: MQError) -> None:
        self._reply(remote.reply(error.comp_code, error.reason, error.detail))

    def _answer(self, result: Any = None, warning: MQError | None = None) -> None:
        if warning is None:
            self._reply(remote.reply(cmqc.MQCC_OK, cmqc.MQRC_NONE, "", result))
        else:
            self._reply(remote.reply(warning.comp_code, warning.reason, warning.detail, result))

    def _work(self, request: bytes) -> None:
        try:
            verb = self._decoder.decode(request)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # msgspec raises UnicodeDecodeError for text that is not UTF-8, and DecodeError since 0.23.
            is_field = isinstance(error, (msgspec.ValidationError, UnicodeDecodeError)) or "UTF-8" in str(error).upper()
            if not self._is_connected or not is_field:
                raise Malformed(str(error)) from error
            # The request is complete, and later requests can be read, so only this request is rejected.
            raise MQError(cmqc.MQRC_UNEXPECTED_ERROR, f"the request has an invalid field: {error}") from error
        if isinstance(verb, remote.ConnectCall):
            if verb.version != remote.PROTOCOL_VERSION:
                raise MQError(
                    cmqc.MQRC_ENVIRONMENT_ERROR,
                    f"this bridge is release {bridge.__version__}, the caller is another release",
                )
            connected = remote.ConnectResult(self._queue_manager.name, os.getpid(), bridge.__version__)
            answer = partial(self._answer, connected)
            self._connect(verb.queue_manager, verb.application, verb.user, verb.password, answer)
            return
        hconn = self._connected()
        match verb:
            case GetCall(hobj, options):
                self._get(hobj, options)
            case PutCall(hobj, message, put_options, properties):
                md, unit = mqput(hconn, hobj, message, put_options, properties)
                self._end(unit, md)
            case remote.Put1Call(od, message, put_options, properties):
                md, unit = mqput1(hconn, od, message, put_options, properties)
                self._end(unit, (md, od))
            case CallPipeline():
                self._run(hconn, verb)
            case remote.OpenCall(od, options):
                self._answer((mqopen(hconn, od, options), od))
            case remote.CloseCall(hobj, options):
                self._end(mqclose(hconn, hobj, options))
            case remote.SubscribeCall(sd):
                hobjs, unit = mqsub(hconn, sd)
                self._end(unit, (hobjs, sd))
            case remote.InquireCall(hobj, selectors):
                self._answer(mqinq(hconn, hobj, selectors))
            case remote.CommitCall():
                self._end(mqcmit(hconn))
            case remote.BackoutCall():
                mqback(hconn)
                self._answer()
            case remote.CommandCall(text):
                self._commands(hconn, text)
            case remote.ClearRetainedCall(topic):
                with self._refusal_audited(command := f"CLEAR TOPICSTR({topic!r})"):
                    unit = clear_retained(hconn, topic)
                audit_log.note("command", user=self._user, command=command, ok=True)
                self._end(unit)
            case remote.SubscriptionsCall(name):
                self._answer(subscriptions(hconn, name))
            case remote.DisconnectCall():
                self._disconnect()

    @contextlib.contextmanager
    def _refusal_audited(self, command: str) -> Iterator[None]:
        """Record in the audit log if the user is not authorized for a command."""
        try:
            yield
        except MQError:
            audit_log.note("command", user=self._user, command=command, ok=False)
            raise

    def _run(self, hconn: Hconn, requested: CallPipeline) -> None:
        """Run a pipeline. It waits if its first call waits."""
        if not requested.calls:
            self._answer([])
            return
        call = requested.calls[0]
        if isinstance(call, GetCall):
            self._get(call.handle, call.options, get=partial(_pipelined, hconn, requested))
        else:
            results, unit = _pipelined(hconn, requested)
            self._end(unit, results)

    def _commands(self, hconn: Hconn, text: str) -> None:
        commands = Commands(self._queue_manager)
        waiting = commands.read(text)
        for command in waiting:
            with self._refusal_audited(command.text):
                hconn.check_administrator(command.text)
        responses: list[Any] = []

        def run(reason: int = cmqc.MQRC_NONE) -> None:
            if reason:
                self._refuse(MQError(reason, f"{responses[-1].command} was backed out"))
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


#: The maximum duration of a pipeline in seconds, and of its results in bytes of message data.
MAX_PIPELINE_SECONDS: Final = 0.02
_MAX_PIPELINE_SIZE: Final = 4 * 1024 * 1024
#: Options of browses that change only the cursor, so repeated browses are a single pass over the queue.
_WALK: Final = (
    cmqc.MQGMO_BROWSE_FIRST
    | cmqc.MQGMO_BROWSE_NEXT
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_WAIT
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | PROPERTIES
)


def _pipelined(hconn: Hconn, pipeline: CallPipeline) -> tuple[list[Any], Unit | None]:
    """Run a pipeline, during which the queue manager does nothing else. Raises MQError.

    Return its results, and the unit of work to submit. Calls outside syncpoint share one unit of work, so they are committed
    together or not at all.
    """
    until = time.monotonic() + MAX_PIPELINE_SECONDS
    pipeline.size = min(pipeline.size, _MAX_PIPELINE_SIZE)
    call = pipeline.calls[0]
    if pipeline.times > 1 and isinstance(call, GetCall) and _is_walk(call.options.Options):
        return _walk(hconn, call, pipeline, until), None
    unit = Unit()

    def collect(result: Any, part: Unit | None) -> Any:
        if part is not None:
            unit.add(part)
        return result

    def get(hobj: int, options: GetOptions) -> Any:
        return collect(*mqget(hconn, hobj, options))

    def put(call: PutCall) -> MQMD:
        md: MQMD = collect(*mqput(hconn, call.handle, call.message, call.options, call.properties))
        return md

    try:
        results = run_pipeline(pipeline, get, put, until=until)
    except BaseException:
        undo(unit)
        raise
    return results, None if unit.empty else unit


def _is_walk(options: int) -> bool:
    return bool(options & BROWSES) and not options & ~_WALK


def _walk(hconn: Hconn, call: GetCall, pipeline: CallPipeline, until: float) -> list[Got]:
    """Repeat a browse like `run_pipeline`, with one check of its options. Raises the MQError of the first browse."""
    options = call.options
    handle = ready_handle(hconn, call.handle, options)
    messages: list[Got] = []
    size = pipeline.size
    for stored in candidates(hconn, handle, options):
        try:
            message = get_result(hconn, handle, stored, options)
        except MQError:
            if not messages:
                raise
            break
        if not messages:
            options = following(options)
        handle.cursor = stored
        messages.append(message)
        size -= len(message.data)
        if len(messages) >= pipeline.times or size <= 0 or time.monotonic() > until:
            break
    if not messages:
        raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")
    return messages
