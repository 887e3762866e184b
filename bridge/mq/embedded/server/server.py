"""MQ connections of other processes to the embedded queue manager: over Unix sockets, and TCP where configured."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import bridge
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server import protocol
from bridge.mq.embedded.server.admission import Admission, Place
from bridge.mq.embedded.server.conversation import Conversation, Language
from bridge.mq.embedded.server.request_stream import Malformed
from bridge.mq.embedded.server.tcp_listener import TcpListener
from bridge.mq.embedded.verbs.batches import get_each, get_many, look_many, put_many, take_each
from bridge.mq.errors import MQError
from bridge.security import audit_log
from bridge.security.unix_socket import bound_socket
from bridge.wire import cmqc

#: Seconds that applications have to end when the queue manager does.
QUIESCE_TIME = 2.0


class ApplicationServer:
    """Accepts MQ connections of other processes: of this package's programs, and of those that speak `language`."""

    def __init__(
        self, queue_manager: QueueManager, admission: Admission | None = None, language: Language | None = None
    ) -> None:
        self.queue_manager = queue_manager
        self.admission = admission or Admission()
        self._tcp: TcpListener | None = None
        self._language = language
        self.connections: set[Conversation] = set()
        #: a connection has ended
        self._gone = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._paths: list[Path] = []
        #: TCP port listened on, 0 when none
        self.port = 0

    async def listen(self, address: tuple[str, int] | None = None, *, with_socket: bool = True) -> list[str]:
        """Listen on a socket in the data directory and on a TCP address; returns a line for each: who connects where.

        `with_socket` says whether the language has a socket of its own there too. Raises OSError, TlsError.
        """
        language = self._language
        place = await self._listen_at(protocol.SOCKET_NAME, lambda: ApplicationProtocol(self))
        lines = [f"MQ applications connect at {place}"]
        if language is not None and with_socket:
            place = await self._listen_at(language.SOCKET_NAME, lambda: language(self))
            lines.append(f"{language.SPEAKERS} connect at {place}")
        if address is not None:
            self._tcp = TcpListener(self.admission, self._conversation, self._blocked)
            host, self.port = await self._tcp.listen(*address)
            by = " by TLS" if self.admission.config.tls is not None else ""
            lines.append(f"MQ applications connect at {host}:{self.port}{by}")
        return lines

    async def _listen_at(self, name: str, conversation: Callable[[], Conversation]) -> str:
        path = self.queue_manager.data_directory / name
        # The lock on the data directory is ours, so a socket that is there was left by a process that died.
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._paths.append(path)
        self._servers.append(await asyncio.get_running_loop().create_unix_server(conversation, sock=bound_socket(path)))
        return str(path)

    def _conversation(self, first: int, place: Place) -> Conversation:
        """Return the conversation for a connection that begins with a byte."""
        # No MessagePack frame is so long that its length, big-endian, began with the first byte of the greeting.
        if self._language is not None and first == self._language.GREETING[0]:
            return self._language(self, place)
        return ApplicationProtocol(self, place)

    def _blocked(self, address: str) -> str:
        return self.queue_manager.channel_authentication.at_work.blocked_address(address)

    def discard(self, connection: Conversation) -> None:
        """Forget a connection that has ended."""
        self.connections.discard(connection)
        if connection.place is not None:
            connection.place.give_back()
        self._gone.set()

    async def close(self) -> None:
        """Stop accepting, and quiesce: connections end by themselves, or break, and their units of work are backed out.

        Who waits for a message, or is in a unit of work, has QUIESCE_TIME to end (IBM MQ, "Stopping a queue manager").
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
    """An MQ connection in MessagePack: `protocol` has the words."""

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
            self._connect(verb.queue_manager, verb.application, verb.user, verb.password, None, answer)
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
