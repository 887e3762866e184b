"""A proxy between a client and a broker that runs an action at the n-th packet of a type from the client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import BinaryIO

from tests.helpers.relay import Pair, Relay

PUBLISH, PUBACK, PUBREC, PUBCOMP, SUBSCRIBE = 3, 4, 5, 7, 8


class Proxy(Relay):
    """Forward to a broker. `at` specifies an action, which is run once."""

    def __init__(self, broker: int) -> None:
        self._lock = threading.Lock()
        self._fault: tuple[int, bool, Callable[[], None]] | None = None
        self._left = 0
        self.happened = False
        self._unacknowledged: set[int] = set()
        #: publications of QoS 1 that the broker had sent and got no PUBACK for, at one time, over all connections
        self.most_unacknowledged = 0
        super().__init__(broker)

    def at(self, packet: int, action: Callable[[], None], *, number: int = 1, after: bool = False) -> None:
        """Run the action at the `number`-th packet of a type from the client, before or after the broker gets it."""
        with self._lock:
            self._fault, self._left, self.happened = (packet, after, action), number, False

    def hand_on(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        hand_on = self._to_broker if source is pair.client else self._to_client
        with source.makefile("rb") as packets:
            while first := packets.read(1):
                header, length = _remaining_length(packets)
                hand_on(first[0], first + header, packets.read(length), target)

    def _to_client(self, first: int, header: bytes, body: bytes, client: socket.socket) -> None:
        if first >> 4 == PUBLISH and first >> 1 & 3 == 1:
            behind = 2 + int.from_bytes(body[:2], "big")
            with self._lock:
                self._unacknowledged.add(int.from_bytes(body[behind : behind + 2], "big"))
                self.most_unacknowledged = max(self.most_unacknowledged, len(self._unacknowledged))
        client.sendall(header + body)

    def _to_broker(self, first: int, header: bytes, body: bytes, broker: socket.socket) -> None:
        kind, packet, action, after = first >> 4, header + body, None, True
        with self._lock:
            if self._fault is not None and kind == self._fault[0]:
                self._left -= 1
                if self._left == 0:
                    _, after, action = self._fault
                    self._fault, self.happened = None, True
            if kind == PUBACK and after:
                self._unacknowledged.discard(int.from_bytes(body[:2], "big"))
        if after:
            broker.sendall(packet)
        if action is not None:
            action()
            raise EOFError


def _remaining_length(packets: BinaryIO) -> tuple[bytes, int]:
    header, length = b"", 0
    while not header or header[-1] >= 0x80:
        byte = packets.read(1)
        if not byte:
            raise EOFError
        length |= (byte[0] & 0x7F) << 7 * len(header)
        header += byte
    return header, length
