"""The control socket: the server for commands of `mqbridge`.

A Unix socket, accessible only to the bridge's user and group (0660). The request and the answer are one line of JSON each.
Then the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from bridge.administration.protocol import Answer
from bridge.administration.requests import AnyRequest
from bridge.security.unix_socket import bound_socket, socket_address

log = logging.getLogger(__name__)

#: Maximum length of a request in bytes (enough for the longest topic with all characters escaped), and its timeout in
#: seconds.
REQUEST_LENGTH, REQUEST_TIMEOUT = 131_072, 5.0
#: struct ucred: process, user and group (unix(7), SO_PEERCRED).
_UCRED = struct.Struct("3i")

#: Answers a request of a local user, given by name.
Handler = Callable[[Any, str], Awaitable[Answer]]


def answers(path: Path) -> bool:
    """Return whether a process listens at a socket, even if it does not accept the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            with socket_address(path) as address:
                connection.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True


class ControlServer:
    """Answers requests on the bridge's event loop."""

    def __init__(self, path: Path, handler: Handler, requests: Any = AnyRequest) -> None:
        """Accept requests of the union `requests`."""
        self.path = path
        self._handler = handler
        self._requests = requests
        self._server: asyncio.Server | None = None
        #: inode of the socket; another inode at its path means that another bridge has taken over
        self._inode = 0

    @property
    def listens(self) -> bool:
        """Whether the server listens."""
        return self._server is not None

    async def start(self) -> None:
        """Listen, replacing the socket of a killed bridge. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, sock=bound_socket(self.path), limit=REQUEST_LENGTH)
        self._inode = self.path.stat().st_ino

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(reader, _user_of(writer))
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except (TimeoutError, ConnectionError) as error:
            log.debug("control socket: %s", error)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, user: str) -> Answer:
        """Read a request and return its answer. Raises TimeoutError, ConnectionError."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                line = await reader.readline()
            request = msgspec.json.decode(line, type=self._requests)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Answer(ok=False, lines=[f"not a request: {error}"])
        except ValueError:
            return Answer(ok=False, lines=[f"a request has at most {REQUEST_LENGTH} bytes"])
        return await self._handler(request, user)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                if self.path.stat().st_ino == self._inode:
                    self.path.unlink()


def _user_of(writer: asyncio.StreamWriter) -> str:
    """Return the name of the user who runs the peer process."""
    connected: socket.socket = writer.get_extra_info("socket")
    _, user, _ = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
