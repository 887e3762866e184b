"""A broker without own behaviour: a test decides about each packet, including those that no real broker sends."""

from __future__ import annotations

import socket
import struct
from typing import Any

from paho.mqtt.properties import Properties

from bridge.mqtt.properties import decode_remaining_length, encode_remaining_length
from tests.helpers.patience import PATIENCE

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x10, 0x20, 0x30, 0x40, 0x50, 0x62, 0x70
SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 0x82, 0x90, 0xC0, 0xD0, 0xE0


def packet(first: int, *fields: bytes) -> bytes:
    """A packet with its fixed header."""
    body = b"".join(fields)
    return bytes((first,)) + encode_remaining_length(len(body)) + body


def word(number: int) -> bytes:
    """Two bytes, big-endian."""
    return struct.pack(">H", number)


def answer(first: int, packet_id: int, reason: int | None = None, properties: bytes = b"") -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP. The reason code exists in MQTT 5 only."""
    return packet(first, word(packet_id), b"" if reason is None else bytes((reason,)), properties)


def properties_of(packet_type: int, **values: Any) -> bytes:
    """Encode properties with paho."""
    properties: Any = Properties(packet_type)
    for name, value in values.items():
        setattr(properties, name, value)
    return bytes(properties.pack())


class Peer:
    """A link's connection, from the view of the broker."""

    def __init__(self, connection: socket.socket, version: str) -> None:
        self.socket = connection
        self.version_5 = version == "5"
        self._buffer = b""

    def send(self, *packets: bytes) -> None:
        """Send packets at once."""
        self.socket.sendall(b"".join(packets))

    def packet(self) -> tuple[int, bytes]:
        """Return the next packet: its first byte, and the bytes after the fixed header. EOFError: the connection is
        closed.
        """
        while True:
            measured = decode_remaining_length(self._buffer, 1) if len(self._buffer) > 1 else None
            if measured is not None and len(self._buffer) >= sum(measured):
                length, start = measured
                first, body = self._buffer[0], self._buffer[start : start + length]
                self._buffer = self._buffer[start + length :]
                return first, body
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._buffer += data

    def expect(self, *firsts: int) -> list[bytes]:
        """Return the next packets, which must have these first bytes, without their fixed headers."""
        bodies = []
        for first in firsts:
            received_byte, body = self.packet()
            assert received_byte == first, f"0x{received_byte:02x} {body!r} instead of 0x{first:02x}"
            bodies.append(body)
        return bodies

    def packet_after_pings(self) -> tuple[int, bytes]:
        """Return the next packet other than PINGREQ, which is answered. A link sends it if a busy machine takes long."""
        while (received := self.packet())[0] == PINGREQ:
            self.send(packet(PINGRESP))
        return received

    def packet_ids(self, first: int, number: int) -> list[int]:
        """Return the message ids of the next packets, answers of this kind."""
        return [int.from_bytes(body[:2], "big") for body in self.expect(*[first] * number)]

    def published(self, number: int, flags: int) -> list[tuple[str, int]]:
        """Return topic and message id of the next packets, PUBLISH with these flags and a QoS above 0."""
        publications = []
        for body in self.expect(*[PUBLISH | flags] * number):
            behind = 2 + int.from_bytes(body[:2], "big")
            publications.append((body[2:behind].decode(), int.from_bytes(body[behind : behind + 2], "big")))
        return publications

    def nothing_came(self) -> None:
        """Check that the link has sent nothing unexpected: its answer to PINGREQ is the next packet."""
        self.send(packet(PINGREQ))
        self.expect(PINGRESP)

    def connack(self, *, present: bool = False, reason: int = 0, properties: bytes = b"\0") -> bytes:
        """Send CONNACK. The reason is a return code in MQTT 3.1.1."""
        return packet(CONNACK, bytes((present, reason)), properties if self.version_5 else b"")

    def suback(self, subscribe: bytes, *reasons: int) -> bytes:
        """Send SUBACK for the body of a SUBSCRIBE."""
        return packet(SUBACK, subscribe[:2], b"\0" if self.version_5 else b"", bytes(reasons))

    def publish(
        self,
        topic: str,
        packet_id: int = 0,
        *,
        qos: int = 0,
        flags: int = 0,
        payload: bytes = b"p",
        properties: bytes = b"\0",
    ) -> bytes:
        """Send PUBLISH. Flags are those of the first byte: 8 DUP, 1 RETAIN."""
        raw = topic.encode()
        fields = [word(len(raw)), raw, word(packet_id) if qos else b"", properties if self.version_5 else b"", payload]
        return packet(PUBLISH | flags | qos << 1, *fields)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class FakeBroker:
    """A listener on a free port, or on that of an earlier one."""

    def __init__(self, version: str, port: int = 0) -> None:
        self.version = version
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(PATIENCE)
        self.port = int(self._listener.getsockname()[1])
        self._peers: list[Peer] = []

    def connecting(self) -> tuple[Peer, bytes]:
        """Return a new connection, and the body of its CONNECT."""
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE)
        peer = Peer(connection, self.version)
        self._peers.append(peer)
        return peer, peer.expect(CONNECT)[0]

    def connected(self, *, present: bool = False, subscribes: int | None = None, properties: bytes = b"\0") -> Peer:
        """Return a new accepted connection. Its subscription, if any, is granted with this QoS."""
        peer, _ = self.connecting()
        peer.send(peer.connack(present=present, properties=properties))
        if subscribes is not None:
            peer.send(peer.suback(*peer.expect(SUBSCRIBE), subscribes))
        return peer

    def close(self) -> None:
        """Close the port and all connections."""
        self._listener.close()
        for peer in self._peers:
            peer.close()
