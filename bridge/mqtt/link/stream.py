"""The socket of a link, with a buffer of its own: paho asks for single bytes, the network is asked for 64 KiB."""

from __future__ import annotations

import socket
import ssl
from typing import Any

_CHUNK = 65536

_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux alone has it."""


class Stream:
    """A connected, non-blocking socket, plain or TLS, as paho wants it, and the bytes that have come and wait."""

    def __init__(self, connected: Any) -> None:
        # socket.socket or ssl.SSLSocket, which paho has no common type for either.
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        self._gathering = bytearray()
        #: whole bytes to read packets from, and how far they are read
        self.buffer = b""
        self.offset = 0
        #: bytes that the packet which began at the end of the buffer has, header included; 0 where that is unknown
        self.needed = 0
        #: whether the peer has closed its side
        self.ended = False
        #: the error that a send failed with
        self.error: OSError | None = None

    def fill(self) -> None:
        """Take what has come from the network, without waiting. Raises OSError where the connection is broken."""
        rest = self.buffer[self.offset :] if self.offset else self.buffer
        gathering = self._gathering
        # A large packet in small pieces is made into one only when all of it has come.
        gathering += rest
        self.buffer, self.offset = b"", 0
        size = max(_CHUNK, min(self.needed - len(gathering), 16 * _CHUNK))
        try:
            while True:
                data = self._socket.recv(size)
                gathering += data
                self.ended = not data
                # TLS hands out a record of 16 KiB at most at a time.
                if not data or not self._tls or len(gathering) > 4 * size:
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        if _QUICK_ACK is not None:
            # A broker that leaves Nagle's algorithm on (mosquitto does) holds answers back until TCP acknowledges those
            # before, which TCP delays by 40 ms where nothing is sent. The option has to be set anew after each read.
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        if len(gathering) >= self.needed or self.ended:
            self.buffer = bytes(gathering)
            gathering.clear()
            self.needed = 0

    # What paho calls -------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """Return bytes out of the buffer alone. Raises BlockingIOError where it has none."""
        taken = self.buffer[self.offset : self.offset + size]
        if not taken:
            raise BlockingIOError
        self.offset += len(taken)
        return taken

    def send(self, data: bytes) -> int:
        """Send what the network takes at once; its number of bytes."""
        try:
            return int(self._socket.send(data))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError as error:
            self.error = error
            raise

    def pending(self) -> int:
        """Return the number of bytes that are here and that select does not know of."""
        return len(self.buffer) - self.offset

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return int(self._socket.fileno())

    def setblocking(self, flag: bool) -> None:
        """Set whether calls wait for the network."""
        self._socket.setblocking(flag)
