"""TLS as a layer, with Python's ssl module."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable

from bridge.security.authenticator import Certificate
from bridge.security.tls import certificate_of, reason_of
from bridge.transport.layer import LayerError

#: The maximum length of a TLS record in bytes (RFC 8446 section 5.1).
RECORD = 16_384
#: Bytes that pass through a buffer at a time: OpenSSL never shrinks its buffers.
SLICE = 32_768


class TlsLayer:
    """The server side of TLS on one connection."""

    __slots__ = ("_established", "_incoming", "_outgoing", "_shaken", "_stream", "ended")

    def __init__(self, context: ssl.SSLContext, established: Callable[[Certificate | None], None]) -> None:
        """Call `established` after the handshake with the client's certificate, or None if it has none."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._stream = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established = established
        self._shaken = False
        self.ended = False

    def receive(self, data: bytes) -> bytes:
        if len(data) <= SLICE:
            return self._receive(data)
        view = memoryview(data)
        return b"".join([self._receive(view[begin : begin + SLICE]) for begin in range(0, len(data), SLICE)])

    def _receive(self, data: bytes | memoryview) -> bytes:
        incoming, stream = self._incoming, self._stream
        incoming.write(data)
        parts = []
        try:
            if not self._shaken:
                stream.do_handshake()
                self._shaken = True
                self._established(certificate_of(stream))
            # OpenSSL consumes incomplete records entirely. Then both values are 0.
            while incoming.pending or stream.pending():
                plain = stream.read(RECORD)
                if not plain:
                    self.ended = True
                    break
                parts.append(plain)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise LayerError(f"{'TLS' if self._shaken else 'the TLS handshake'} fails: {reason_of(error)}") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes) -> bytes:
        outgoing, stream = self._outgoing, self._stream
        if not self._shaken or len(data) <= SLICE:
            if data and self._shaken:
                stream.write(data)
            return outgoing.read()
        view = memoryview(data)
        parts = []
        for begin in range(0, len(data), SLICE):
            stream.write(view[begin : begin + SLICE])
            parts.append(outgoing.read())
        return b"".join(parts)

    def close(self) -> bytes:
        if self._shaken:
            # unwrap() waits for the peer's close_notify. The bridge does not.
            with contextlib.suppress(ssl.SSLError):
                self._stream.unwrap()
        return self._outgoing.read()
