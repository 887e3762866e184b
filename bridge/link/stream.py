"""The connected socket of a link, plain or TLS, with or without WebSocket frames, as paho wants it.

The network is asked for 64 KiB at once, and paho gets the packets that are its own.
"""

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
"""TLS records that are read at once, of 16 KiB each at most."""

_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux alone has it."""

# Errors become errors of the link.
_websocket_log = logging.getLogger("websockets.client")
_websocket_log.setLevel(logging.CRITICAL)


class Stream:
    """A connected socket, plain or TLS."""

    def __init__(self, connected: Any) -> None:
        # socket.socket or ssl.SSLSocket, which paho has no common type for either.
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        #: the packet that paho reads, and the bytes of it that are read
        self._offered = b""
        self._offset = 0
        #: whether the peer has closed its side
        self.ended = False
        #: the error that a send failed with
        self.error: OSError | None = None

    def fill(self, missing: int) -> bytes:
        """Return the bytes that have come from the network, without waiting. Raises OSError if the connection is broken.

        `missing` is the number of bytes that are known to be missing, and asked for at once.
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
            # before, which TCP delays by 40 ms where nothing is sent. The option has to be set again after each read.
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        return b"".join(chunks)

    def offer(self, packet: bytes) -> None:
        """Let paho read one packet."""
        self._offered, self._offset = packet, 0

    @property
    def unsent(self) -> bool:
        """Whether bytes that paho counts as written wait for the network."""
        return False

    def flush(self) -> None:
        """Send as much of the unsent bytes as the network takes. An error is in `error`."""

    # What paho calls -------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """Return bytes of the packet that is offered. Raises BlockingIOError if it has none left."""
        taken = self._offered[self._offset : self._offset + size]
        if not taken:
            raise BlockingIOError
        self._offset += len(taken)
        return taken

    def send(self, data: bytes | memoryview) -> int:
        """Send as much as the network takes at once; return the number of bytes."""
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


class WebSocketStream(Stream):
    """A connected socket with a WebSocket in it: MQTT in binary frames (MQTT 3.1.1 section 6).

    Not paho's own WebSocket: that answers PING with a PONG that is not masked, at which a server has to close the connection
    (RFC 6455 section 5.1), and loses data when the network takes a part of a frame. The package websockets does neither.
    """

    def __init__(self, connected: Any, host: str, port: int, path: str, timeout: float) -> None:
        """Shake hands on a socket that is connected, for `timeout` seconds at most. Raises OSError or LinkRefused."""
        super().__init__(connected)
        uri = parse_uri(f"{'wss' if self._tls else 'ws'}://{endpoint(host, port)}{path}")
        # The packets in the frames are limited by MQTT.
        self._protocol = ClientProtocol(uri, subprotocols=[Subprotocol("mqtt")], max_size=None, logger=_websocket_log)
        #: bytes of frames that the network has not taken
        self._frames = bytearray()
        #: payloads that came with the answer to the handshake
        self._early = b""
        self._shake_hands(time.monotonic() + timeout)

    def _shake_hands(self, deadline: float) -> None:
        protocol = self._protocol
        protocol.send_request(protocol.connect())
        self._socket.sendall(b"".join(protocol.data_to_send()))
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the broker left the WebSocket handshake unanswered")
            self._socket.settimeout(left)
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
        """Return the payloads of frames; no data are the end of the connection. Raises ConnectionError."""
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
                raise ConnectionError("MQTT-6.0.0-1: the broker sent a WebSocket frame of text, not of bytes")
            elif event.opcode is Opcode.CLOSE:
                self.ended = True
        if protocol.parser_exc is not None and not isinstance(protocol.parser_exc, EOFError):
            raise ConnectionError(f"the broker's WebSocket is malformed: {protocol.parser_exc}")
        if protocol.state is not State.CONNECTING:
            # PONG, and the answer to CLOSE.
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
            self._frames.clear()  # `error` has it

    def send(self, data: bytes | memoryview) -> int:
        """Send one frame; return the number of bytes in it. Raises BlockingIOError while the frame before is not sent."""
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
