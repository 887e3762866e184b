"""Topic names and topic filters: validation, matching and overlap (MQTT 3.1.1 and 5 section 4.7).

IBM MQ's topic-based wildcard scheme agrees with MQTT on `/`, `+` and `#`, with one exception: MQ allows `#` inside a filter
(`a/#/z`), MQTT only at its end.

Publishers reuse topic names, often one for each device. `TOPIC_CACHE`, shared by all decoders, maps their bytes to valid
names. The number and size of its entries are bounded.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

Value = TypeVar("Value")

MAX_CACHED_TOPICS: Final = 32_768
"""The maximum number of entries. A full cache is cleared, which is cheaper than tracking the order of use."""

MAX_CACHED_BYTES: Final = 256
"""The maximum length of a cached name in bytes, which limits the cache to about 25 MB. Names of 40 bytes take 9 MB."""

SHARE: Final = "$share/"
"""The prefix of filters of shared subscriptions (MQTT 5 section 4.8.2)."""


def topic_name_fault(topic: str) -> str | None:
    """Return the rule that a topic name of a PUBLISH or will violates, or None. Rules for all strings are not checked."""
    if not topic:
        return "MQTT-4.7.3-1: topic name is empty"
    if "+" in topic or "#" in topic:
        return "MQTT-3.3.2-2: topic name contains a wildcard"
    return None


def topic_filter_fault(topic_filter: str) -> str | None:
    """Return the rule of MQTT 3.1.1 and MQTT 5 section 4.7 that a topic filter violates, or None."""
    if not topic_filter:
        return "MQTT-4.7.3-1: topic filter is empty"
    if "+" not in topic_filter and "#" not in topic_filter:
        return None
    # Counting is faster than splitting. A client may send many filters of 64 KiB that consist of slashes.
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
    """Return the rule that the filter of a shared subscription violates, or None (MQTT 5 section 4.8.2)."""
    name, separator, rest = topic_filter.removeprefix(SHARE).partition("/")
    if not name:
        return "MQTT-4.8.2-1: the share name is empty"
    if "+" in name or "#" in name:
        return "MQTT-4.8.2-2: the share name contains a wildcard"
    if not separator or not rest:
        return "MQTT-4.8.2-2: the share name must be followed by / and a topic filter"
    return topic_filter_fault(rest)


class TopicCache(dict[bytes, str]):
    """Valid topic names by their UTF-8 bytes. Use ``get`` and ``remember``."""

    def remember(self, raw: bytes, topic: str) -> None:
        """Add a valid name, unless it is too long."""
        if len(raw) > MAX_CACHED_BYTES:
            return
        if len(self) >= MAX_CACHED_TOPICS:
            self.clear()
        self[raw] = topic


TOPIC_CACHE: Final = TopicCache()
"""The cache of all decoders."""


#: The maximum length of a topic string in IBM MQ, in characters.
MQ_TOPIC_STR_LENGTH = 10_240
#: The maximum number of levels of a topic string or filter. It limits the time and memory that a client's topic can consume.
TOPIC_LEVELS = 128


def topic_string_error(topic: str) -> str | None:
    """Return why queue managers reject `topic` as a topic string or filter, or None if they accept it."""
    if len(topic) > MQ_TOPIC_STR_LENGTH:
        return f"a topic string has at most {MQ_TOPIC_STR_LENGTH} characters, not {len(topic)}"
    if topic.count("/") >= TOPIC_LEVELS:
        return f"a topic string has at most {TOPIC_LEVELS} levels, not {topic.count('/') + 1}"
    if not topic.isascii():
        try:
            topic.encode()
        except UnicodeEncodeError:
            return "a topic string is UTF-8"
    if "\0" in topic:
        return "a topic string holds no U+0000"
    return None


def topic_filter_error(topic_filter: str) -> str | None:
    """Return why an MQTT client cannot subscribe to `topic_filter`, or None if it can."""
    fault = topic_filter_fault(topic_filter)
    # Omit the section of MQTT, which users who write a filter in a file or a command do not need.
    return fault.partition(": ")[2] if fault is not None else topic_string_error(topic_filter)


def is_wildcard(topic_filter: str) -> bool:
    """Return whether a filter contains a `+` or `#` level."""
    return any(level in ("+", "#") for level in topic_filter.split("/"))


def matches(topic_filter: str, topic: str) -> bool:
    """Return whether a topic filter matches a topic string.

    `#` matches any number of levels and the parent level (MQTT-4.7.1-2), also inside a filter (IBM MQ). A filter that begins
    with a wildcard does not match a topic that begins with `$` (MQTT-4.7.2-1).
    """
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    return _levels_match(topic_filter.split("/"), topic.split("/"))


def _levels_match(pattern: list[str], levels: list[str]) -> bool:
    """Return whether a pattern matches levels, by glob matching with a single backtracking point.

    Memory use is linear. The worst-case time is the product of both lengths.
    """
    at, position, hash_at, retry = 0, 0, -1, 0
    while position < len(levels):
        if at < len(pattern) and pattern[at] == "#":
            hash_at, retry = at, position
            at += 1
        elif at < len(pattern) and pattern[at] in ("+", levels[position]):
            at += 1
            position += 1
        elif hash_at >= 0:
            retry += 1
            at, position = hash_at + 1, retry
        else:
            return False
    return all(level == "#" for level in pattern[at:])


def overlap(topic_filter: str, other: str) -> bool:
    """Return whether some topic string matches both topic filters.

    Levels after a `#` inside a filter, which only MQ allows, are ignored.
    """
    if (topic_filter.startswith("$") and other[:1] in ("+", "#")) or (
        other.startswith("$") and topic_filter[:1] in ("+", "#")
    ):
        return False
    mine, theirs = topic_filter.split("/"), other.split("/")
    for my, their in zip(mine, theirs, strict=False):
        if my == "#" or their == "#":
            return True
        if my != their and my != "+" and their != "+":
            return False
    longer = max(mine, theirs, key=len)
    shared = min(len(mine), len(theirs))
    return longer[shared : shared + 1] in ([], ["#"])  # a/# also matches a


def covers(pattern: str, topic_filter: str) -> bool:
    """Return whether `pattern` matches all topics that `topic_filter` matches."""
    if topic_filter.startswith("$") and pattern[:1] in ("+", "#"):
        return False
    wide, narrow = pattern.split("/"), topic_filter.split("/")
    for index, level in enumerate(wide):
        if level == "#":
            return True
        if index == len(narrow):
            return False
        if narrow[index] == "#" or (level != "+" and level != narrow[index]):
            return False
    return len(wide) == len(narrow)


class FilterTree(Generic[Value]):
    """Topic filters with values. Filters match as in `matches`, with `#` only at the end.

    Finding the filters that match a topic takes time proportional to its number of levels.
    """

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}

    def add(self, topic_filter: str, value: Value) -> None:
        """Add a value for a filter. A filter may have several values."""
        node = self._root
        for level in topic_filter.split("/"):
            node = node.setdefault(level, {})
        # Levels never contain U+0000 (MQTT-1.5.3-2), so this key is unambiguous.
        node.setdefault("\0", []).append(value)

    def find(self, topic: str) -> list[Value]:
        """Return the values of all filters that match a topic."""
        values: list[Value] = []
        nodes = [self._root]
        # MQTT-4.7.2-1: a leading wildcard does not match a topic that starts with $.
        wildcards = not topic.startswith("$")
        for level in topic.split("/"):
            following = []
            for node in nodes:
                if wildcards and "#" in node:
                    values += node["#"].get("\0", ())
                if level in node:
                    following.append(node[level])
                if wildcards and "+" in node and level != "+":
                    following.append(node["+"])
            nodes, wildcards = following, True
        for node in nodes:
            values += node.get("\0", ())
            if "#" in node:  # `#` matches the parent level, too (MQTT-4.7.1-2)
                values += node["#"].get("\0", ())
        return values
