"""The network stream of a link, from which the bridge's codec and paho read in turn: a TCP or TLS socket, or a WebSocket."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from bridge.config.values import endpoint
from bridge.link.state import LinkRefused

_CHUNK = 65536
_RECORDS = 16
"""The maximum number of TLS records (up to 16 KiB each) per read."""

_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Only available on Linux."""

# The link reports WebSocket errors itself.
_websocket_log = logging.getLogger("websockets.client")
_websocket_log.setLevel(logging.CRITICAL)


class Stream:
    """A connected socket, plain or TLS."""

    def __init__(self, connected: Any) -> None:
        # socket.socket or ssl.SSLSocket: paho has no common type for both.
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        #: the packet offered to paho, and the number of bytes that paho has read
        self._offered = b""
        self._offset = 0
        #: whether the peer has closed its sending side
        self.ended = False
        #: the error of the last failed send
        self.error: OSError | None = None

    @property
    def certificate_expiry(self) -> float | None:
        """The expiry date of the broker's certificate, in seconds since the epoch, or None without TLS."""
        certificate = self._socket.getpeercert() if self._tls else None
        return ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else None

    def fill(self, missing: int) -> bytes:
        """Return the available bytes from the network without blocking. Raises OSError if the connection is broken.

        `missing` is the number of bytes known to be missing, which are read at once.
        """
        size = max(_CHUNK, min(missing, 16 * _CHUNK))
        chunks: list[bytes] = []
        try:
            while True:
                chunks.append(self._socket.recv(size))
                self.ended = not chunks[-1]
                # A TLS socket returns one record at a time.
                if self.ended or not self._tls or len(chunks) == _RECORDS:
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        if _QUICK_ACK is not None:
            # A broker with Nagle's algorithm, such as mosquitto, delays answers until TCP acknowledges the previous ones. TCP
            # delays such acknowledgements by 40 ms. The option must be set again after each read.
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        return b"".join(chunks)

    def offer(self, packet: bytes) -> None:
        """Offer one packet to paho for reading."""
        self._offered, self._offset = packet, 0

    @property
    def unsent(self) -> bool:
        """Whether bytes that paho counts as written are still unsent."""
        return False

    def flush(self) -> None:
        """Send as many unsent bytes as the network accepts. Sets `error` on failure."""

    # Called by paho ---------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """Return bytes of the offered packet. Raises BlockingIOError if none are left."""
        chunk = self._offered[self._offset : self._offset + size]
        if not chunk:
            raise BlockingIOError
        self._offset += len(chunk)
        return chunk

    def send(self, data: bytes | memoryview) -> int:
        """Send as much as the network accepts without blocking. Return the number of bytes sent."""
        try:
            return int(self._socket.send(data))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError as error:
            self.error = error
            raise

    def pending(self) -> int:
        """Return the number of readable bytes that select does not report."""
        return len(self._offered) - self._offset

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return int(self._socket.fileno())

    def setblocking(self, flag: bool) -> None:
        """Set whether calls block."""
        self._socket.setblocking(flag)


class MalformedWebSocket(ConnectionError):
    """The broker broke the WebSocket protocol."""


class WebSocketStream(Stream):
    """A connected socket that carries a WebSocket: MQTT in binary frames (MQTT 3.1.1 section 6).

    paho's own WebSocket is not used. It answers PING with an unmasked PONG, for which a server must close the connection (RFC
    6455 section 5.1), and it loses data on partial writes.
    """

    def __init__(self, connected: Any, host: str, port: int, path: str, timeout: float) -> None:
        """Perform the WebSocket handshake within `timeout` seconds. Raises OSError or LinkRefused."""
        super().__init__(connected)
        uri = parse_uri(f"{'wss' if self._tls else 'ws'}://{endpoint(host, port)}{path}")
        # MQTT limits the size of the packets in the frames.
        self._protocol = ClientProtocol(uri, subprotocols=[Subprotocol("mqtt")], max_size=None, logger=_websocket_log)
        #: bytes of frames that were not sent yet
        self._frames = bytearray()
        #: payloads received with the handshake response
        self._early = b""
        self._shake_hands(time.monotonic() + timeout)

    def _shake_hands(self, deadline: float) -> None:
        protocol = self._protocol
        protocol.send_request(protocol.connect())
        self._socket.sendall(b"".join(protocol.data_to_send()))
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise TimeoutError("the broker did not answer the WebSocket handshake")
            self._socket.settimeout(seconds)
            self._early += self._payloads(self._socket.recv(_CHUNK))
        error = protocol.handshake_exc
        if error is None:
            return
        text = f"the broker refused the WebSocket handshake: {error}"
        if isinstance(error, InvalidStatus) and error.response.status_code < 500:
            raise LinkRefused(text)
        raise ConnectionError(text)

    def fill(self, missing: int) -> bytes:
        early, self._early = self._early, b""
        data = super().fill(missing)
        if not data and not self.ended:
            return early
        return early + self._payloads(data)

    def _payloads(self, data: bytes) -> bytes:
        """Return the payloads of frames. Empty `data` means the end of the connection. Raises ConnectionError."""
        protocol = self._protocol
        if data:
            protocol.receive_data(data)
        else:
            protocol.receive_eof()
        payloads = []
        for event in protocol.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode in (Opcode.BINARY, Opcode.CONT):
                payloads.append(bytes(event.data))
            elif event.opcode is Opcode.TEXT:
                raise MalformedWebSocket("MQTT-6.0.0-1: the broker sent a WebSocket frame of text, not of bytes")
            elif event.opcode is Opcode.CLOSE:
                self.ended = True
        if protocol.parser_exc is not None and not isinstance(protocol.parser_exc, EOFError):
            raise MalformedWebSocket(f"the broker's WebSocket is malformed: {protocol.parser_exc}")
        if protocol.state is not State.CONNECTING:
            # PONG, and the response to CLOSE.
            self._frames += b"".join(protocol.data_to_send())
            self.flush()
        return b"".join(payloads)

    @property
    def unsent(self) -> bool:
        return bool(self._frames)

    def flush(self) -> None:
        try:
            while self._frames:
                del self._frames[: super().send(bytes(self._frames[:_CHUNK]))]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._frames.clear()  # reported via `error`

    def send(self, data: bytes | memoryview) -> int:
        """Send one frame and return its payload length. Raises BlockingIOError if the previous frame is not sent yet."""
        self.flush()
        if self.error is not None:
            raise self.error
        if self._frames:
            raise BlockingIOError
        payload = bytes(data[:_CHUNK])
        self._protocol.send_binary(payload)
        self._frames += b"".join(self._protocol.data_to_send())
        self.flush()
        return len(payload)

    def close(self) -> None:
        if self._protocol.state is State.OPEN and not self._frames and self.error is None:
            self._protocol.send_close()
            self._frames += b"".join(self._protocol.data_to_send())
            self.flush()
        super().close()
