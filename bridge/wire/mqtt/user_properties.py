"""User Properties that came or went lately, as bytes and as pairs: publishers say the same ones over and over.

What is read of equal bytes is one value, however many messages have it; and what is passed on is written as it came.
"""

from __future__ import annotations

from typing import Final

from .packet_properties import UserProperty

#: How many are remembered before all are forgotten, and the longest one in bytes.
ENTRIES: Final = 1_000
LONGEST: Final = 1_000


class UserPropertyCache:
    """The properties at the end of a packet's properties, by their bytes; and these by the identity of the value."""

    __slots__ = ("_bytes", "_pairs")

    def __init__(self) -> None:
        self._pairs: dict[bytes, UserProperty] = {}
        #: by id; the value itself is kept, so that no other has its id
        self._bytes: dict[int, tuple[UserProperty, bytes]] = {}

    def pairs_of(self, encoded: bytes) -> UserProperty | None:
        """Return the User Properties that bytes are known to be."""
        return self._pairs.get(encoded)

    def bytes_of(self, pairs: UserProperty) -> bytes | None:
        """Return the bytes that User Properties, this very value, are known to be."""
        known = self._bytes.get(id(pairs))
        return known[1] if known is not None and known[0] is pairs else None

    def remember(self, encoded: bytes, pairs: UserProperty) -> None:
        """Remember that these are the same."""
        if len(encoded) > LONGEST:
            return
        if len(self._bytes) >= ENTRIES:
            self._pairs.clear()
            self._bytes.clear()
        self._pairs[encoded] = pairs
        self._bytes[id(pairs)] = pairs, encoded


USER_PROPERTIES: Final = UserPropertyCache()
