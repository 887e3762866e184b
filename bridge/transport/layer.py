"""Layers between the bytes of a network connection and those of MQTT: the PROXY protocol, TLS, WebSockets. No I/O.

A `Stack` has those of one connection, the one next to the network first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class LayerError(Exception):
    """The other end does not keep to the rules of a layer, and the connection ends; words for the log."""


class Layer(Protocol):
    """One layer: bytes of the layer below to bytes of the layer above, and back."""

    #: the other end has said by this layer that nothing more comes
    ended: bool

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the layer below; return what they hold for the layer above. Raises LayerError."""

    def send(self, data: bytes) -> bytes:
        """Take bytes of the layer above, perhaps none; return all that is to go to the layer below, answers among it."""

    def close(self) -> bytes:
        """Return the last bytes for the layer below."""


class Stack:
    """The layers of one connection."""

    __slots__ = ("_layers",)

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = tuple(layers)

    @property
    def ended(self) -> bool:
        """Return whether the other end has said that nothing more comes."""
        return any(layer.ended for layer in self._layers)

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the network; return those of MQTT. What `send` returns next is to be sent. Raises LayerError."""
        for layer in self._layers:
            data = layer.receive(data)
        return data

    def send(self, data: bytes = b"") -> bytes:
        """Take bytes of MQTT; return those for the network, answers of the layers among them."""
        for layer in reversed(self._layers):
            data = layer.send(data)
        return data

    def close(self) -> bytes:
        """Return the last bytes for the network."""
        last = b""
        for layer in reversed(self._layers):
            last = (layer.send(last) if last else b"") + layer.close()
        return last
