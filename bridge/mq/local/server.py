"""The embedded queue manager's door for other processes: MQ connections over a Unix socket, and TCP where configured."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import msgspec

import bridge
from bridge.mq.errors import MQError
from bridge.mq.local import protocol
from bridge.mq.local.client import socket_address
from bridge.mq.local.commands import Commands
from bridge.mq.local.conversation import Conversation, Malformed
from bridge.mq.local.queuemanager import QueueManager
from bridge.wire import cmqc


class ApplicationServer:
    """Accepts MQ connections of other processes."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self.queue_manager = queue_manager
        self.connections: set[Conversation] = set()
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


class ApplicationProtocol(Conversation):
    """An MQ connection in MessagePack: `protocol` has the words."""

    LENGTH = protocol.LENGTH

    def __init__(self, server: ApplicationServer) -> None:
        super().__init__(server)
        self._decoder = msgspec.msgpack.Decoder(protocol.Request)

    def _refuse(self, error: MQError) -> None:
        self._reply(protocol.frame(protocol.Reply(error.comp_code, error.reason, error.detail)))

    def _answer(self, result: Any = None, warning: MQError | None = None) -> None:
        raw = msgspec.Raw(msgspec.msgpack.encode(result))
        reply = protocol.Reply(cmqc.MQCC_OK, cmqc.MQRC_NONE, "", raw)
        if warning is not None:
            reply = protocol.Reply(warning.comp_code, warning.reason, warning.detail, raw)
        self._reply(protocol.frame(reply))

    def _work(self, request: bytes) -> None:
        try:
            verb = self._decoder.decode(request)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Malformed(str(error)) from error
        if isinstance(verb, protocol.Connect):
            if verb.version != protocol.PROTOCOL_VERSION:
                raise MQError(
                    cmqc.MQRC_ENVIRONMENT_ERROR, f"this bridge is release {bridge.__version__}, the caller another"
                )
            self._connect(verb.queue_manager, verb.application)
            self._answer(protocol.Connected(self._queue_manager.name, os.getpid(), bridge.__version__))
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
            case protocol.Statistics(type_):
                self._answer(application.statistics(type_))
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
