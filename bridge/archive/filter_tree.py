"""A tree of topic filters. Finding the filters that match a topic takes time proportional to its number of levels."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class FilterTree(Generic[Value]):
    """Topic filters with values. The rules are those of `bridge.mqtt.topics.matches`, with `#` only at the end."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}

    def add(self, topic_filter: str, value: Value) -> None:
        """Add a value for a filter, which may have several."""
        node = self._root
        for level in topic_filter.split("/"):
            node = node.setdefault(level, {})
        # Levels never contain U+0000 (MQTT-1.5.3-2), so this key is unambiguous.
        node.setdefault("\0", []).append(value)

    def find(self, topic: str) -> list[Value]:
        """Return the values of all filters that match a topic."""
        found: list[Value] = []
        nodes = [self._root]
        # MQTT-4.7.2-1: a leading wildcard does not match a topic that starts with $.
        wildcards = not topic.startswith("$")
        for level in topic.split("/"):
            following = []
            for node in nodes:
                if wildcards and "#" in node:
                    found += node["#"].get("\0", ())
                if level in node:
                    following.append(node[level])
                if wildcards and "+" in node and level != "+":
                    following.append(node["+"])
            nodes, wildcards = following, True
        for node in nodes:
            found += node.get("\0", ())
            if "#" in node:  # `#` matches the parent level, too (MQTT-4.7.1-2)
                found += node["#"].get("\0", ())
        return found
