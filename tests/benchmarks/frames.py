"""MQTT 3.1.1 packets as bytes: composed ahead of a run, and read in runs of equal frames.

The generator must cost far less than the broker under test.  All PUBLISH packets of one run have the same length, so a
received chunk is cut by stride (slices with a step, done in C) and not packet by packet.
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
    """A remaining length as MQTT writes it."""
    out = bytearray()
    while True:
        value, digit = value >> 7, value & 0x7F
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def text(value: str) -> bytes:
    """A UTF-8 string with its two-byte length."""
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def connect(client_id: str, *, clean: bool, keepalive: int = 600) -> bytes:
    """CONNECT without will, user or password."""
    body = text("MQTT") + bytes((4, 0x02 if clean else 0x00)) + struct.pack(">H", keepalive) + text(client_id)
    return b"\x10" + varint(len(body)) + body


def subscribe(packet_id: int, topic_filter: str, qos: int) -> bytes:
    """SUBSCRIBE to one filter."""
    body = struct.pack(">H", packet_id) + text(topic_filter) + bytes((qos,))
    return b"\x82" + varint(len(body)) + body


def topic(publisher: int) -> str:
    """The topic of one publisher; the same length for all, so that all frames are equally long."""
    return f"bench/{publisher:02d}"


@dataclass(frozen=True)
class Shape:
    """Where the fields of this run's PUBLISH packets are."""

    qos: int
    payload: int

    @property
    def prefix(self) -> bytes:
        """Fixed header: type with QoS, remaining length."""
        remaining = 2 + len(topic(0)) + (2 if self.qos else 0) + self.payload
        return bytes((0x30 | self.qos << 1,)) + varint(remaining)

    @property
    def packet_id_at(self) -> int:
        """Offset of the packet id (QoS 1 and 2)."""
        return len(self.prefix) + 2 + len(topic(0))

    @property
    def payload_at(self) -> int:
        """Offset of the payload."""
        return self.packet_id_at + (2 if self.qos else 0)

    @property
    def size(self) -> int:
        """Length of a whole packet."""
        return self.payload_at + self.payload

    @property
    def stamps(self) -> struct.Struct:
        """Reads publisher and sequence number of one packet; with iter_unpack, of a run of packets."""
        return struct.Struct(f">{self.payload_at}xBI{self.payload - STAMP.size}x")

    def stream(self, publisher: int, count: int) -> bytearray:
        """The `count` packets of one publisher, one after the other, as they go on the wire."""
        size = self.size
        head = self.prefix + text(topic(publisher)) + (b"\0\0" if self.qos else b"")
        out = bytearray((head + STAMP.pack(publisher, 0) + b"x" * (self.payload - STAMP.size)) * count)
        _stripe(out, self.payload_at + 1, size, array("I", range(count)))
        if self.qos:
            _stripe(out, self.packet_id_at, size, array("H", (n % PACKET_IDS + 1 for n in range(count))))
        return out


def _stripe(out: bytearray, offset: int, step: int, values: array[int]) -> None:
    """Write `values`, big-endian, at offset, offset + step, offset + 2 step …"""
    values.byteswap()  # the machines this runs on are little-endian
    raw = values.tobytes()
    for k in range(values.itemsize):
        out[offset + k :: step] = raw[k :: values.itemsize]


def run_of(data: bytes, start: int, prefix: bytes, size: int) -> int:
    """How many whole packets with this fixed header and size follow each other from `start` on.

    Sound by induction: each packet in the run has the checked type and length, so the next one starts one `size` later.
    """
    count = (len(data) - start) // size
    for k, byte in enumerate(prefix):
        column = data[start + k : start + count * size : size]
        count = len(column) - len(column.lstrip(bytes((byte,))))
        if not count:
            break
    return count


def answers(kind: int, packet_ids_from: bytes, start: int, step: int, count: int) -> bytearray:
    """`count` acknowledgements of one kind for the packet ids found at start, start + step …"""
    out = bytearray(bytes((kind, 2, 0, 0)) * count)
    out[2::4] = packet_ids_from[start : start + (count - 1) * step + 1 : step]
    out[3::4] = packet_ids_from[start + 1 : start + (count - 1) * step + 2 : step]
    return out


def packet_end(data: bytes, start: int) -> int | None:
    """Where the packet at `start` ends, or None when its length or its body is not all there."""
    length = shift = 0
    for at in range(start + 1, min(start + 5, len(data))):
        length |= (data[at] & 0x7F) << shift
        shift += 7
        if not data[at] & 0x80:
            end = at + 1 + length
            return end if end <= len(data) else None
    return None
