"""The PROXY protocol as a layer: the connection is that of the client that a proxy names."""

from __future__ import annotations

from collections.abc import Callable

from bridge.mqtt.transport.layer import LayerError
from bridge.wire.proxy_protocol import ProxyHeader, ProxyHeaderError, read_proxy_header


class ProxyLayer:
    """Takes the header off, hands it to `found`, and lets pass what comes behind it."""

    __slots__ = ("_begun", "_found", "ended")

    def __init__(self, found: Callable[[ProxyHeader], None]) -> None:
        self.ended = False
        self._found: Callable[[ProxyHeader], None] | None = found
        self._begun = b""

    def receive(self, data: bytes) -> bytes:
        if self._found is None:
            return data
        data = self._begun + data
        try:
            read = read_proxy_header(data)
        except ProxyHeaderError as error:
            raise LayerError(str(error)) from None
        if read is None:
            self._begun = data
            return b""
        header, length = read
        self._begun = b""
        found, self._found = self._found, None
        found(header)
        return data[length:]

    def send(self, data: bytes) -> bytes:
        return data

    def close(self) -> bytes:
        return b""
