"""The retained publications in force, by topic string, in a tree of levels.

What a filter names is found by following the filter down the tree: what does not match costs nothing (MQTT 3.1.1 section
4.7; IBM MQ documentation, "Retained publications").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

from bridge.mapping.message import PublicationMessage
from bridge.mapping.topic import is_wildcard, matches
from bridge.mq.local.stored import StoredMessage
from bridge.mq.local.topics import Subscription

#: Bytes, about, of a retained publication beside its topic string and payload.
OVERHEAD = 512


class _Level:
    __slots__ = ("below", "topic")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        #: the topic string that ends here, where a publication is retained for it
        self.topic: str | None = None


class RetainedPublications(dict[str, StoredMessage]):
    """The retained publications in force: topic string -> message on SYSTEM.RETAINED.PUB.QUEUE."""

    def __init__(self) -> None:
        super().__init__()
        self._root = _Level()
        #: client identifier -> bytes, about, that its retained publications take
        self.bytes_of: dict[str, int] = {}

    def __setitem__(self, topic: str, stored: StoredMessage) -> None:
        before = self.get(topic)
        super().__setitem__(topic, stored)
        self._count(stored, 1)
        if before is not None:
            self._count(before, -1)
            return
        level = self._root
        for word in topic.split("/"):
            level = level.below.setdefault(word, _Level())
        level.topic = topic

    def __delitem__(self, topic: str) -> None:
        self._count(self[topic], -1)
        super().__delitem__(topic)
        path = []
        level = self._root
        for word in topic.split("/"):
            path.append((level, word))
            level = level.below[word]
        level.topic = None
        for above, word in reversed(path):
            if above.below[word].below or above.below[word].topic is not None:
                break
            del above.below[word]

    @overload
    def pop(self, topic: str, /) -> StoredMessage: ...
    @overload
    def pop(self, topic: str, otherwise: Any, /) -> Any: ...
    def pop(self, topic: str, *otherwise: Any) -> Any:
        """Remove and return the publication of a topic string."""
        if topic not in self:
            return super().pop(topic, *otherwise)
        stored = self[topic]
        del self[topic]
        return stored

    def _count(self, stored: StoredMessage, sign: int) -> None:
        message = stored.message
        if isinstance(message, PublicationMessage):
            left = self.bytes_of.get(message.client_id, 0) + sign * size_of(message)
            if left:
                self.bytes_of[message.client_id] = left
            else:
                self.bytes_of.pop(message.client_id, None)

    def matching(self, topic_filter: str) -> Iterator[str]:
        """Yield the topic strings that a filter of the topic-based wildcard scheme names.

        They are worked out as they are asked for; what has been removed meanwhile is left out.
        """
        if not is_wildcard(topic_filter):
            if topic_filter in self:
                yield topic_filter
            return
        words = topic_filter.split("/")
        if "#" in words[:-1]:
            yield from (topic for topic in list(self) if matches(topic_filter, topic))
            return
        places: list[tuple[_Level, int]] = [(self._root, 0)]
        while places:
            place, at = places.pop()
            if at >= len(words):
                if place.topic is not None:
                    yield place.topic
                if at > len(words):  # below a `#`
                    places += [(below, at) for below in reversed(place.below.values())]
                continue
            word = words[at]
            if word not in ("+", "#"):
                if (exact := place.below.get(word)) is not None:
                    places.append((exact, at + 1))
                continue
            # MQTT-4.7.2-1: a wildcard in front names nothing that begins with `$`.
            found = [below for name, below in reversed(place.below.items()) if at or not name.startswith("$")]
            if word == "+":
                places += [(below, at + 1) for below in found]
            else:
                if at and place.topic is not None:  # a/# names a as well
                    yield place.topic
                places += [(below, at + 2) for below in found]

    def named_by(self, subscription: Subscription) -> Iterator[str]:
        """Yield the topic strings that a subscription is for."""
        if not subscription.characters:
            return self.matching(subscription.topic_filter)
        return (topic for topic in list(self) if subscription.names(topic))


def size_of(message: PublicationMessage) -> int:
    """Return the bytes, about, that a publication takes while it is retained."""
    return OVERHEAD + 2 * len(message.topic) + len(message.payload)
