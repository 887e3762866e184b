"""Topic names as they travel: checked UTF-8, remembered by their bytes.

A publisher sends the same few topic names over and over. Reading a name from its bytes therefore asks a cache first,
shared by all decoders; a name found there was checked when it was put in. The cache is bounded both in entries and in
the size of an entry, so that no client can make it hold much.
"""

from __future__ import annotations

from typing import Final

MAX_CACHED_TOPICS: Final = 4096
"""Number of names the cache may hold; it starts afresh when full, which costs less than keeping an order of use."""

MAX_CACHED_BYTES: Final = 512
"""Longest name in bytes worth remembering: a bound on the cache's memory of some 5 MB."""

SHARE: Final = "$share/"
"""How the filter of a shared subscription begins (MQTT 5 section 4.8.2)."""


def topic_name_fault(topic: str) -> str | None:
    """Tell which rule a topic name of PUBLISH or of a will breaks, beyond those for any string; None if none."""
    if not topic:
        return "MQTT-4.7.3-1: topic name is empty"
    if "+" in topic or "#" in topic:
        return "MQTT-3.3.2-2: topic name contains a wildcard"
    return None


class TopicCache(dict[bytes, str]):
    """Valid topic names by their UTF-8 bytes; look up with ``get``, add with ``remember``."""

    def remember(self, raw: bytes, topic: str) -> None:
        """Add a name which was found valid, unless it is too long to be kept."""
        if len(raw) > MAX_CACHED_BYTES:
            return
        if len(self) >= MAX_CACHED_TOPICS:
            self.clear()
        self[raw] = topic


TOPIC_CACHE: Final = TopicCache()
"""The cache of all decoders: clients publish to each other's topics, and most to few."""
