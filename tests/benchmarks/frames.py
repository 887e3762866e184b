"""MQTT 3.1.1 packets as bytes: encoded before a run, and decoded in runs of equal frames.

The generator must cost far less than the broker under test. All PUBLISH packets of a run have the same length, so a
received chunk is split by stride (slices with a step, in C) instead of packet by packet.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass

PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
CONNACK, SUBACK = 0x20, 0x90
DISCONNECT = b"\xe0\x00"
HANDSHAKE_SIZE = 4
"""PUBACK, PUBREC, PUBREL and PUBCOMP are all four bytes long."""

DUP_FLAG = 0x08
PACKET_IDS = 65535
STAMP = struct.Struct(">BI")
"""The start of each payload: publisher number, sequence number."""


def varint(value: int) -> bytes:
    """Return a remaining length as a variable byte integer."""
    out = bytearray()
    while True:
        value, digit = value >> 7, value & 0x7F
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def text(value: str) -> bytes:
    """Return a UTF-8 string with its two-byte length."""
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def connect(client_id: str, *, clean: bool, keepalive: int = 600) -> bytes:
    """Return a CONNECT without will, user name or password."""
    body = text("MQTT") + bytes((4, 0x02 if clean else 0x00)) + struct.pack(">H", keepalive) + text(client_id)
    return b"\x10" + varint(len(body)) + body


def subscribe(packet_id: int, topic_filter: str, qos: int) -> bytes:
    """Return a SUBSCRIBE with one filter."""
    body = struct.pack(">H", packet_id) + text(topic_filter) + bytes((qos,))
    return b"\x82" + varint(len(body)) + body


def topic(publisher: int) -> str:
    """Return the topic of a publisher. All topics have the same length, so all frames do."""
    return f"bench/{publisher:02d}"


@dataclass(frozen=True)
class Shape:
    """The positions of the fields in the PUBLISH packets of a run."""

    qos: int
    payload: int

    @property
    def prefix(self) -> bytes:
        """The fixed header: type with QoS, and remaining length."""
        remaining = 2 + len(topic(0)) + (2 if self.qos else 0) + self.payload
        return bytes((0x30 | self.qos << 1,)) + varint(remaining)

    @property
    def packet_id_at(self) -> int:
        """The offset of the packet identifier (QoS 1 and 2)."""
        return len(self.prefix) + 2 + len(topic(0))

    @property
    def payload_at(self) -> int:
        """The offset of the payload."""
        return self.packet_id_at + (2 if self.qos else 0)

    @property
    def size(self) -> int:
        """The length of a whole packet."""
        return self.payload_at + self.payload

    @property
    def stamps(self) -> struct.Struct:
        """The structure with publisher and sequence number of one packet. `iter_unpack` reads those of a run."""
        return struct.Struct(f">{self.payload_at}xBI{self.payload - STAMP.size}x")

    def stream(self, publisher: int, count: int) -> bytearray:
        """Return the `count` packets of one publisher, in order."""
        size = self.size
        head = self.prefix + text(topic(publisher)) + (b"\0\0" if self.qos else b"")
        out = bytearray((head + STAMP.pack(publisher, 0) + b"x" * (self.payload - STAMP.size)) * count)
        _stripe(out, self.payload_at + 1, size, array("I", range(count)))
        if self.qos:
            _stripe(out, self.packet_id_at, size, array("H", (n % PACKET_IDS + 1 for n in range(count))))
        return out


def _stripe(out: bytearray, offset: int, step: int, values: array[int]) -> None:
    """Write `values`, big-endian, at offset, offset + step, offset + 2 * step and so on."""
    values.byteswap()  # All machines that run this are little-endian.
    raw = values.tobytes()
    for k in range(values.itemsize):
        out[offset + k :: step] = raw[k :: values.itemsize]


def run_of(data: bytes, start: int, prefix: bytes, size: int) -> int:
    """Return how many whole packets with this fixed header and size follow each other from `start`.

    Each packet in the run has the checked type and length, so the next one starts `size` bytes later.
    """
    count = (len(data) - start) // size
    for k, byte in enumerate(prefix):
        column = data[start + k : start + count * size : size]
        count = len(column) - len(column.lstrip(bytes((byte,))))
        if not count:
            break
    return count


def answers(kind: int, packet_ids_from: bytes, start: int, step: int, count: int) -> bytearray:
    """Return `count` acknowledgements of one kind, for the packet identifiers at start, start + step and so on."""
    out = bytearray(bytes((kind, 2, 0, 0)) * count)
    out[2::4] = packet_ids_from[start : start + (count - 1) * step + 1 : step]
    out[3::4] = packet_ids_from[start + 1 : start + (count - 1) * step + 2 : step]
    return out


def packet_end(data: bytes, start: int) -> int | None:
    """Return the end of the packet at `start`, or None if its length or its body is incomplete."""
    length = shift = 0
    for at in range(start + 1, min(start + 5, len(data))):
        length |= (data[at] & 0x7F) << shift
        shift += 7
        if not data[at] & 0x80:
            end = at + 1 + length
            return end if end <= len(data) else None
    return None
