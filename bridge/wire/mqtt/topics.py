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


def topic_filter_fault(topic_filter: str) -> str | None:
    """Return the rule of MQTT 3.1.1 and MQTT 5 section 4.7 that a topic filter breaks; None if it breaks none."""
    if not topic_filter:
        return "MQTT-4.7.3-1: topic filter is empty"
    if "+" not in topic_filter and "#" not in topic_filter:
        return None
    # Counting is faster than splitting: a client may send many filters of 64 KiB that consist of slashes.
    levels = f"/{topic_filter.replace('/', '//')}/"
    if levels.count("/+/") != topic_filter.count("+"):
        return "MQTT section 4.7.1.3: + must be alone in its level of a topic filter"
    hashes = topic_filter.count("#")
    if levels.count("/#/") != hashes:
        return "MQTT section 4.7.1.2: # must be alone in its level of a topic filter"
    if hashes > 1 or (hashes and not topic_filter.endswith("#")):
        return "MQTT section 4.7.1.2: # must be at the end of a topic filter"
    return None


def shared_subscription_fault(topic_filter: str) -> str | None:
    """Return the rule that the filter of a shared subscription breaks; None if it breaks none (MQTT 5 section 4.8.2)."""
    name, separator, rest = topic_filter.removeprefix(SHARE).partition("/")
    if not name:
        return "MQTT-4.8.2-1: the share name is empty"
    if "+" in name or "#" in name:
        return "MQTT-4.8.2-2: the share name contains a wildcard"
    if not separator or not rest:
        return "MQTT-4.8.2-2: the share name must be followed by / and a topic filter"
    return topic_filter_fault(rest)


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
