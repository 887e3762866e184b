"""A relay that stops during exchanges of QoS 2: the receiver has sent PUBREC, and gets no PUBREL."""

from __future__ import annotations

import socket

from tests.helpers.relay import Pair, Relay

_PUBREL = 6


class FrozenRelay(Relay):
    """A relay that can stop at the first PUBREL: then its connection forwards nothing."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.freezing = False
        self.frozen = 0

    def hand_on(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        file = source.makefile("rb")
        while first := file.read(1):
            packet, length, shift = first, 0, 0
            while True:
                packet += (more := file.read(1))
                length |= (more[0] & 127) << shift
                shift += 7
                if more[0] < 128:
                    break
            packet += file.read(length)
            if self.freezing and first[0] >> 4 == _PUBREL and not pair.forgotten:
                pair.forgotten = True
                self.frozen += 1
            if not pair.forgotten:
                target.sendall(packet)

    def thaw(self) -> None:
        """End the stopped connections. New ones work."""
        self.freezing = False
        for pair in self._pairs:
            pair.close()
        self._pairs.clear()

    def redirect(self, target: int) -> None:
        """Connect to another port of this machine from now on."""
        self._target = target
