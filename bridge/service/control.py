"""The control socket: how `mqbridge reload` and `mqbridge mappings` reach a running bridge.

A Unix socket that the bridge's own user alone may use. A request is one line of JSON, so is the answer; then the
connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import msgspec

from bridge.security.unix_socket import bound_socket, socket_address
from bridge.service.mappings.status import Status

log = logging.getLogger(__name__)

#: Bytes of a request at most, and seconds that it may take.
REQUEST_LENGTH, REQUEST_TIMEOUT = 4096, 5.0
#: Seconds that a bridge may take to answer: a reload waits for units of work under way.
ANSWER_TIMEOUT = 60.0


class Request(msgspec.Struct):
    """What is asked for."""

    command: Literal["reload", "mappings"]


class Answer(msgspec.Struct, kw_only=True):
    """What came of it."""

    ok: bool = True
    #: for a person: what was done, or why nothing was
    lines: list[str] = []
    mappings: list[Status] = []


class NoBridge(Exception):
    """No bridge answers at a control socket; the message says where it was looked for."""


Handler = Callable[[Request], Awaitable[Answer]]


class ControlServer:
    """Answers requests on the event loop of the bridge."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self.path = path
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. A socket that a killed bridge left behind is replaced. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, sock=bound_socket(self.path), limit=REQUEST_LENGTH)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                line = await reader.readline()
            answer = await self._answer(line)
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except (TimeoutError, ValueError, ConnectionError) as error:
            log.debug("control socket: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Answer:
        try:
            request = msgspec.json.decode(line, type=Request)
        except msgspec.DecodeError as error:
            return Answer(ok=False, lines=[f"not a request: {error}"])
        return await self._handler(request)

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()


def ask(path: Path, request: Request) -> Answer:
    """Have a running bridge answer. Raises NoBridge where none does, or none in time."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_TIMEOUT)
            with socket_address(path) as address:
                connection.connect(address)
            connection.sendall(msgspec.json.encode(request) + b"\n")
            with connection.makefile("rb") as stream:
                answer = stream.readline()
    except OSError as error:
        raise NoBridge(f"no bridge answers at {path} ({error.strerror or error}); is it running?") from error
    try:
        return msgspec.json.decode(answer, type=Answer)
    except msgspec.DecodeError as error:
        raise NoBridge(f"what answers at {path} is no bridge, or it ended meanwhile: {error}") from error
