"""The byte stream of another process: framing of its requests, and bounds on what is read ahead.

One request is processed at a time. The size of the requests that follow it is limited, and so is everything before MQCONN.
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

#: The maximum size of a frame in bytes: the longest message of MQ, and headers.
MAX_FRAME = 104_857_600 + 1_048_576
#: Limits before MQCONN: the size of a frame in bytes, and the time in seconds.
FIRST_FRAME = 65_536
FIRST_TIMEOUT = 30.0
#: The maximum number of bytes to read after the current request. Reading pauses above it.
READ_AHEAD = 262_144
#: Send buffer of a Unix socket in bytes, enough for most batches of messages. (Over TCP, the kernel adapts it.)
SEND_BUFFER = 1_048_576


class Malformed(Exception):
    """The bytes are not a valid request."""


class RequestStream(asyncio.Protocol, ABC):
    """The byte stream of one connection. Subclasses process the requests."""

    #: the length before a frame, which does not include itself
    LENGTH: ClassVar[struct.Struct]

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        #: a request is being processed
        self._working = False
        #: reading is paused because too much data follows the current request
        self._unread = False
        #: the write buffer is full because the peer reads replies too slowly
        self._full = False
        #: timeout for MQCONN
        self._first: asyncio.TimerHandle | None = None

    @abstractmethod
    def _take(self, request: bytes) -> None:
        """Process a request, which ends with `_reply`. Raises Malformed."""

    @property
    @abstractmethod
    def _is_connected(self) -> bool:
        """Whether MQCONN has succeeded."""

    @property
    @abstractmethod
    def _waits(self) -> bool:
        """Whether the current request waits for a message, possibly indefinitely."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        elif connection is not None:
            keep_alive(connection)
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
        if self._first is not None:
            self._first.cancel()

    def abort(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    @property
    def _may_work(self) -> bool:
        """Whether the next request may be processed: not while the peer does not read replies.

        Requests of a closed connection are not processed, because nothing would clean up after them.
        """
        return not self._working and not self._full and self._transport is not None

    def _pace(self) -> None:
        """Pause or resume reading. The size of a request is not limited here, only the data that follows it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        waits = len(self._buffer) if not self._may_work else 0
        if not self._is_connected and waits > FIRST_FRAME:
            self._fail(f"{waits} bytes behind an MQCONN that is not answered")
        elif self._waits and waits > READ_AHEAD:
            # Reading must not pause, because a disconnect would not be detected during an indefinite wait.
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
