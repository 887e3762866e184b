"""The socket of a link: the network is asked for 64 KiB, and paho gets the packets that are its own."""

from __future__ import annotations

import socket
import ssl
from typing import Any

_CHUNK = 65536
_RECORDS = 16
"""TLS records that are read at once, of 16 KiB each at most."""

_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux alone has it."""


class Stream:
    """A connected, non-blocking socket, plain or TLS, as paho wants it."""

    def __init__(self, connected: Any) -> None:
        # socket.socket or ssl.SSLSocket, which paho has no common type for either.
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        #: the packet that paho reads, and how far it has
        self._offered = b""
        self._offset = 0
        #: whether the peer has closed its side
        self.ended = False
        #: the error that a send failed with
        self.error: OSError | None = None

    def fill(self, missing: int) -> bytes:
        """Return what has come from the network, without waiting. Raises OSError where the connection is broken.

        So many bytes are known to be missing, and to be asked for at once.
        """
        size = max(_CHUNK, min(missing, 16 * _CHUNK))
        chunks: list[bytes] = []
        try:
            while True:
                chunks.append(self._socket.recv(size))
                self.ended = not chunks[-1]
                # TLS hands out one record at a time.
                if self.ended or not self._tls or len(chunks) == _RECORDS:
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        if _QUICK_ACK is not None:
            # A broker that leaves Nagle's algorithm on (mosquitto does) holds answers back until TCP acknowledges those
            # before, which TCP delays by 40 ms where nothing is sent. The option has to be set anew after each read.
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        return b"".join(chunks)

    def offer(self, packet: bytes) -> None:
        """Let paho read one packet."""
        self._offered, self._offset = packet, 0

    # What paho calls -------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """Return bytes of the packet that is offered. Raises BlockingIOError where it has none left."""
        taken = self._offered[self._offset : self._offset + size]
        if not taken:
            raise BlockingIOError
        self._offset += len(taken)
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
        return len(self._offered) - self._offset

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return int(self._socket.fileno())

    def setblocking(self, flag: bool) -> None:
        """Set whether calls wait for the network."""
        self._socket.setblocking(flag)
