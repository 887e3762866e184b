"""Topic rules of a channel. The queue manager's authorities apply in addition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.mqtt.topics import matches
from bridge.telemetry.request import REPLY_TOPIC_PREFIX

#: The maximum number of cached decisions for a client, and the maximum length of a cached topic.
_REMEMBERED: Final = 100
_REMEMBERED_LENGTH: Final = 256


class TopicAccess:
    """The topic rules for one client."""

    __slots__ = ("_known", "_publish", "_subscribe")

    def __init__(self, publish: Sequence[str] | None, subscribe: Sequence[str] | None, client_id: str, user: str) -> None:
        """Initialize with the patterns of the channel. None allows any topic."""
        self._publish = None if publish is None else _filters(publish, client_id, user)
        self._subscribe = None if subscribe is None else _filters(subscribe, client_id, user)
        self._known: dict[str, bool] = {}

    def may_publish(self, topic: str) -> bool:
        """Return whether the client may publish to a topic. Reply topics are allowed: their code is checked later."""
        if self._publish is None:
            return True
        known = self._known.get(topic)
        if known is None:
            known = topic.startswith(REPLY_TOPIC_PREFIX) or any(matches(one, topic) for one in self._publish)
            if len(topic) <= _REMEMBERED_LENGTH:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[topic] = known
        return known

    def subscribes_like(self, other: TopicAccess) -> bool:
        """Return whether both have the same rules for subscriptions."""
        return self._subscribe == other._subscribe

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether the client may subscribe to all topics that a filter matches."""
        return self._subscribe is None or any(covers(one, topic_filter) for one in self._subscribe)


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


def _filters(patterns: Sequence[str], client_id: str, user: str) -> list[str]:
    """Return patterns with %c and %u replaced, except those in which a name would change the structure of the filter."""
    found = []
    for pattern in patterns:
        used = [name for place, name in (("%c", client_id), ("%u", user)) if place in pattern]
        # A client that chooses its own name could choose a wildcard, another client's level, or $SYS.
        if all(name and not set("/+#") & set(name) and not name.startswith("$") for name in used):
            found.append("/".join(_filled(level, client_id, user) for level in pattern.split("/")))
    return found


def _filled(level: str, client_id: str, user: str) -> str:
    # Replace both at once: the client identifier may contain %u.
    parts = level.split("%c")
    return client_id.join(part.replace("%u", user) for part in parts)
