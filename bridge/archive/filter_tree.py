"""Many topic filters at once: which of them name a topic, in the time that the topic's levels take."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class FilterTree(Generic[Value]):
    """Topic filters with values. The rules are those of `bridge.mqtt.topics.matches`, with `#` at the end only."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}

    def add(self, topic_filter: str, value: Value) -> None:
        """Add a value for a filter; a filter may have several."""
        node = self._root
        for level in topic_filter.split("/"):
            node = node.setdefault(level, {})
        # No level of a topic holds U+0000 (MQTT-1.5.3-2), so it cannot be taken for one.
        node.setdefault("\0", []).append(value)

    def find(self, topic: str) -> list[Value]:
        """Return the values of all filters that name this topic."""
        found: list[Value] = []
        nodes = [self._root]
        # MQTT-4.7.2-1: a filter that begins with a wildcard does not name a topic that begins with $.
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
            if "#" in node:  # the parent level is named as well (MQTT-4.7.1-2)
                found += node["#"].get("\0", ())
        return found
