"""Which topics the rules of a channel let a client use; the queue manager's authorities count beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.mqtt.topics import matches
from bridge.telemetry.request import REPLY_TOPIC_PREFIX

#: Answers about topics remembered for a client, at most, and the longest topic of one that is.
_REMEMBERED: Final = 100
_REMEMBERED_LENGTH: Final = 256


class TopicAccess:
    """The rules for one client."""

    __slots__ = ("_known", "_publish", "_subscribe")

    def __init__(self, publish: Sequence[str] | None, subscribe: Sequence[str] | None, client_id: str, user: str) -> None:
        """Begin, with the patterns of the channel; None allows any topic."""
        self._publish = None if publish is None else _filters(publish, client_id, user)
        self._subscribe = None if subscribe is None else _filters(subscribe, client_id, user)
        self._known: dict[str, bool] = {}

    def may_publish(self, topic: str) -> bool:
        """Return whether the client may publish to a topic. Answers to requests go to where their code leads."""
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
        """Return whether the rules for subscriptions are those of `other`."""
        return self._subscribe == other._subscribe

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether all topics that a filter matches are topics that the client may subscribe to."""
        return self._subscribe is None or any(covers(one, topic_filter) for one in self._subscribe)


def covers(pattern: str, topic_filter: str) -> bool:
    """Return whether a topic filter matches each topic that another one matches."""
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
    """Return patterns with %c and %u filled in; those that a name would make another filter of are left out."""
    found = []
    for pattern in patterns:
        used = [name for place, name in (("%c", client_id), ("%u", user)) if place in pattern]
        # A client that may choose its name could choose +, a level of somebody else's, or $SYS.
        if all(name and not set("/+#") & set(name) and not name.startswith("$") for name in used):
            found.append("/".join(_filled(level, client_id, user) for level in pattern.split("/")))
    return found


def _filled(level: str, client_id: str, user: str) -> str:
    # In one go: what stands in for %c may hold %u.
    parts = level.split("%c")
    return client_id.join(part.replace("%u", user) for part in parts)
