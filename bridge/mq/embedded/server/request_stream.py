"""The byte stream of another process: framing of its requests, and bounds on what is read ahead.

One request is processed at a time. The number of bytes behind it is bounded, and so is everything before MQCONN.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from abc import ABC, abstractmethod
from typing import ClassVar, cast

from bridge.mq.embedded.server.protocol import keep_alive

log = logging.getLogger(__name__)

#: Bytes of a frame at most: the largest message MQ knows, and room for headers.
MAX_FRAME = 104_857_600 + 1_048_576
#: Bytes of a frame at most before MQCONN, and seconds until it has to be there: whoever says nothing is owed nothing.
FIRST_FRAME = 65_536
FIRST_TIMEOUT = 30.0
#: Bytes of requests that wait behind the one that is worked on: with more, the application is not read until they are fewer.
READ_AHEAD = 262_144
#: Bytes that a Unix socket takes of a reply at once: most batches of messages. (Over TCP the kernel finds out by itself.)
SEND_BUFFER = 1_048_576


class Malformed(Exception):
    """The bytes are no request: the other side does not speak this language."""


class RequestStream(asyncio.Protocol, ABC):
    """The bytes of one connection; a subclass takes the requests."""

    #: the length in front of a frame; it does not count itself
    LENGTH: ClassVar[struct.Struct]

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        #: a request is being worked on: what arrives meanwhile waits
        self._working = False
        #: too much waits behind the request that is worked on
        self._unread = False
        #: the other end does not read its replies as fast as they are written
        self._full = False
        #: runs until MQCONN
        self._first: asyncio.TimerHandle | None = None

    @abstractmethod
    def _take(self, request: bytes) -> None:
        """Work on a request, which `_reply` ends. Raises Malformed."""

    @property
    @abstractmethod
    def _is_connected(self) -> bool:
        """Return whether MQCONN was done."""

    @property
    @abstractmethod
    def _waits(self) -> bool:
        """Return whether the request that is worked on waits for a message, for ever perhaps."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        elif connection is not None:
            keep_alive(connection)
        self._expect_mqconn()

    def _expect_mqconn(self) -> None:
        """End the connection unless MQCONN comes soon: without one, or after one that was refused, it is owed nothing."""
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
        if self._first is not None:
            self._first.cancel()

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    @property
    def _may_work(self) -> bool:
        """Return whether the next request may be worked on: nobody works for who does not read the replies.

        What has arrived of a connection that has ended is not worked on: nothing would end what it begins.
        """
        return not self._working and not self._full and self._transport is not None

    def _pace(self) -> None:
        """Read the other end, or not: a request is as long as it has to be, but what waits behind one is bounded."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        waits = len(self._buffer) if not self._may_work else 0
        if not self._is_connected and waits > FIRST_FRAME:
            self._fail(f"{waits} bytes behind an MQCONN that is not answered")
        elif self._waits and waits > READ_AHEAD:
            # While it is not read its end would not be seen, and a wait may be for ever.
            self._fail(f"{waits} bytes behind a get that waits")
        elif self._unread != (waits > READ_AHEAD):
            self._unread = not self._unread
            transport.pause_reading() if self._unread else transport.resume_reading()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Work on the next request that has arrived in full."""
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

    def _fail(self, what: str) -> None:
        log.warning("MQB3307W an MQ connection is closed, it does not speak the protocol of this bridge: %s", what)
        self.abort()

    def _reply(self, frame: bytes | bytearray) -> None:
        self._working = False
        if self._transport is None:
            return
        self._transport.write(frame)
        if self._buffer or self._unread:
            self._loop.call_soon(self._next)
