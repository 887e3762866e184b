"""Patterns of IP addresses, as channel authentication records have them (IBM MQ, "Generic IP addresses").

A part may be a number, a range such as 1-5, or `*`, which is for as many parts as the address has more than the pattern,
at least one. An IPv4 address that is mapped into IPv6 is that IPv4 address, in patterns too.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final, NamedTuple

_MAPPED: Final = re.compile(r"::ffff:([0-9.*-]+)", re.IGNORECASE)
_NUMBERS: Final = {10: re.compile(r"0|[1-9][0-9]{0,2}"), 16: re.compile(r"[0-9A-Fa-f]{1,4}")}


class _Part(NamedTuple):
    low: int
    high: int
    #: it is for one part or more
    many: bool = False


class AddressPattern:
    """The addresses of one pattern."""

    def __init__(self, text: str) -> None:
        """Read a pattern. Raises ValueError, with words for a person."""
        #: any client, also one that has no address: on a Unix socket
        self._is_any = text == "*"
        if mapped := _MAPPED.fullmatch(text):
            text = mapped[1]
        self._version = 6 if ":" in text else 4
        self._base, self._count = (16, 8) if self._version == 6 else (10, 4)
        self._last = 0xFFFF if self._version == 6 else 0xFF
        self._parts = self._read(text)

    def _read(self, text: str) -> list[_Part]:
        words = _without_double_colon(text) if self._version == 6 else text.split(".")
        parts = [self._part(word, text) for word in words]
        wild = [part for part in parts if part.many]
        if len(parts) > self._count or (len(parts) < self._count and not wild):
            raise ValueError(f"an IPv{self._version} address has {self._count} parts, and {text} has {len(parts)}")
        if len(parts) > 1 and parts[-1].many and parts[-2].many:
            raise ValueError(f"no * beside the one at the end of {text}, which is for all parts that follow")
        if self._version == 6 and parts[:6] == [_Part(0, 0)] * 5 + [_Part(0xFFFF, 0xFFFF)]:
            raise ValueError(f"an IPv4 address, which {text} is mapped into IPv6, as such")
        return parts

    def _part(self, word: str, text: str) -> _Part:
        if word == "*":
            return _Part(0, self._last, many=True)
        low, hyphen, high = word.partition("-")
        number = _NUMBERS[self._base]
        if not number.fullmatch(low) or (hyphen and not number.fullmatch(high)):
            raise ValueError(f"a number, a range of them or * as each part of {text}, which {word!r} is not")
        first, last = int(low, self._base), int(high or low, self._base)
        if last > self._last:
            raise ValueError(f"parts of at most {self._last} in {text}")
        if hyphen and first >= last:
            raise ValueError(f"the lower number first in range {word} of {text}")
        return _Part(first, last)

    def matches(self, address: str) -> bool:
        """Return whether an IP address is one of these; "" is that of a client on a Unix socket."""
        if self._is_any:
            return True
        try:
            there = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        there = getattr(there, "ipv4_mapped", None) or there
        if there.version != self._version:
            return False
        size = 16 // self._count if self._version == 6 else 1
        packed = there.packed
        numbers = [int.from_bytes(packed[at : at + size]) for at in range(0, len(packed), size)]
        return self._match(0, numbers)

    def _match(self, begin: int, numbers: list[int]) -> bool:
        """Return whether the parts from one on are for these numbers. It goes as deep as there are parts: eight at most."""
        for index in range(begin, len(self._parts)):
            part = self._parts[index]
            if part.many:
                rest = len(self._parts) - index - 1
                return any(self._match(index + 1, numbers[taken:]) for taken in range(1, len(numbers) - rest + 1))
            if not numbers or not part.low <= numbers[0] <= part.high:
                return False
            numbers = numbers[1:]
        return not numbers

    @property
    def specificity(self) -> tuple[int, ...]:
        """Return a key by which the pattern is the greater that admits fewer addresses, from the first part on."""
        if self._is_any:
            return (-0x1_0000,)
        more = self._count - len(self._parts)
        found: list[int] = []
        for part in self._parts:
            spread = 1
            if part.many:
                spread, more = 1 + more, 0
            found += [part.low - part.high] * spread
        return tuple(found)


@lru_cache(1_000)
def address_pattern(text: str) -> AddressPattern:
    """Return what a pattern stands for. Raises ValueError, with words for a person."""
    return AddressPattern(text)


def _without_double_colon(text: str) -> list[str]:
    """Return the parts of an IPv6 pattern, those that `::` leaves out among them. Raises ValueError."""
    left, double, right = text.partition("::")
    if not double:
        return text.split(":")
    if "*" in text:
        raise ValueError(f"either :: or * in {text}, for it is not clear which parts each is for")
    before, behind = (side.split(":") if side else [] for side in (left, right))
    missing = 8 - len(before) - len(behind)
    if missing < 1:
        raise ValueError(f"fewer than eight parts beside the :: of {text}")
    return [*before, *["0"] * missing, *behind]
