"""Remaining Length: how many bytes of a packet follow its fixed header, in one to four bytes (MQTT 3.1 section 2.1).

Each byte carries seven bits, least significant first; its top bit says that another byte follows.
"""

from __future__ import annotations

from .errors import MalformedPacket

MAX_REMAINING_LENGTH = 268_435_455
"""Largest value four bytes can carry, in bytes (MQTT 3.1 section 2.1: 256 MB)."""


def encode_remaining_length(n: int) -> bytes:
    """Write a length in the fewest bytes.

    Raises:
        MalformedPacket: the length is negative or above MAX_REMAINING_LENGTH.
    """
    if 0 <= n < 0x80:
        return bytes((n,))
    if not 0 <= n <= MAX_REMAINING_LENGTH:
        raise MalformedPacket(
            "fixed header", 0, f"MQTT 3.1 section 2.1: Remaining Length is 0 to {MAX_REMAINING_LENGTH} bytes, not {n}"
        )
    digits = bytearray()
    while n > 0x7F:
        digits.append(n & 0x7F | 0x80)
        n >>= 7
    digits.append(n)
    return bytes(digits)


def decode_remaining_length(
    buffer: bytes | bytearray | memoryview, offset: int, packet: str = "fixed header"
) -> tuple[int, int] | None:
    """Read a length.

    Lengths written in more bytes than needed are accepted, as the algorithm of MQTT 3.1 section 2.1 does.

    Args:
        buffer: bytes of one or more packets.
        offset: where the length begins in the buffer; the byte before it is the packet's first.
        packet: name of the packet for the error.

    Returns:
        The value in bytes and the offset behind the length; None when the buffer ends inside the length.

    Raises:
        MalformedPacket: the fourth byte asks for a fifth.
    """
    value = 0
    end = min(len(buffer), offset + 4)
    for position in range(offset, end):
        digit = buffer[position]
        value |= (digit & 0x7F) << 7 * (position - offset)
        if digit < 0x80:
            return value, position + 1
    if end - offset == 4:
        raise MalformedPacket(packet, 4, "MQTT 3.1 section 2.1: Remaining Length takes four bytes at most")
    return None
