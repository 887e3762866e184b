"""A TCP connection of the generator to the broker under test."""

from __future__ import annotations

import socket
from typing import Self

from tests.benchmarks import frames

RECEIVE = 1 << 18


class BrokerGone(Exception):
    """The broker rejected or closed a connection."""


class Channel:
    """A connected MQTT client: blocking while it connects, then non-blocking for the load."""

    def __init__(self, port: int, client_id: str, *, clean: bool = True, wait: float = 15.0) -> None:
        self._open(port, frames.connect(client_id, clean=clean), wait)
        self.expect(frames.CONNACK)

    def _open(self, port: int, packets: bytes, wait: float) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=wait)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.out = bytearray()
        self.rest = b""
        self.socket.sendall(packets)

    @classmethod
    def begin(cls, port: int, client_id: str) -> Self:
        """Send CONNECT without waiting for the CONNACK, so that many clients can connect at once."""
        return cls.opened(port, frames.connect(client_id, clean=True))

    @classmethod
    def opened(cls, port: int, packets: bytes) -> Self:
        """Connect and send packets without waiting for their replies."""
        self = cls.__new__(cls)
        self._open(port, packets, 15.0)
        return self

    def expect(self, kind: int) -> bytes:
        """Wait for one packet of this kind, for instance CONNACK."""
        while (end := frames.packet_end(self.rest, 0)) is None:
            chunk = self.socket.recv(RECEIVE)
            if not chunk:
                raise BrokerGone("closed the connection")
            self.rest += chunk
        packet, self.rest = self.rest[:end], self.rest[end:]
        if packet[0] != kind or (kind == frames.CONNACK and packet[3] != 0):
            raise BrokerGone(f"answered {packet[:4].hex()} where {kind:#x} was due")
        return packet

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Subscribe and wait for the SUBACK."""
        self.socket.sendall(frames.subscribe(1, topic_filter, qos))
        if self.expect(frames.SUBACK)[-1] != qos:
            raise BrokerGone(f"did not grant QoS {qos}")

    def receive(self) -> bytes:
        """Return the available bytes, after those left over from the previous read."""
        try:
            chunk = self.socket.recv(RECEIVE)
        except BlockingIOError:
            return self.rest
        if not chunk:
            raise BrokerGone("closed the connection")
        data, self.rest = self.rest + chunk, b""
        return data

    def flush(self) -> bool:
        """Send pending bytes. Return whether all were sent."""
        if self.out:
            try:
                sent = self.socket.send(self.out)
            except BlockingIOError:
                return False
            del self.out[:sent]
        return not self.out

    def close(self) -> None:
        """Disconnect in order, unless the broker has closed the connection."""
        try:
            self.socket.setblocking(True)
            self.socket.settimeout(1.0)
            self.socket.sendall(frames.DISCONNECT)
        except OSError:
            pass
        finally:
            self.socket.close()
