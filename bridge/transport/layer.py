"""Protocol layers between the network and MQTT: the PROXY protocol, TLS and WebSocket. No I/O.

The layers of a `Stack` are ordered from the network to MQTT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class LayerError(Exception):
    """A violation of a layer's protocol by the peer. The connection must be closed. The message is for the log."""


class Layer(Protocol):
    """One layer: converts bytes between the layer below and the layer above."""

    #: the peer has closed its sending side
    ended: bool

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the layer below and return the bytes for the layer above. Raises LayerError."""

    def send(self, data: bytes) -> bytes:
        """Take bytes (may be empty) from the layer above. Return the bytes for the layer below, including pending answers."""

    def close(self) -> bytes:
        """Return the final bytes for the layer below."""


class Stack:
    """The layers of one connection."""

    __slots__ = ("_layers",)

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = tuple(layers)

    @property
    def ended(self) -> bool:
        """Whether the peer has closed its sending side."""
        return any(layer.ended for layer in self._layers)

    def receive(self, data: bytes) -> bytes:
        """Decode bytes from the network. Call `send` afterwards for the layers' answers. Raises LayerError."""
        for layer in self._layers:
            data = layer.receive(data)
        return data

    def send(self, data: bytes = b"") -> bytes:
        """Encode MQTT bytes for the network. The result includes pending answers of the layers."""
        for layer in reversed(self._layers):
            data = layer.send(data)
        return data

    def close(self) -> bytes:
        """Return the final bytes for the network."""
        last = b""
        for layer in reversed(self._layers):
            last = (layer.send(last) if last else b"") + layer.close()
        return last
