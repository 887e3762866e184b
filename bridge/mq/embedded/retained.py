"""The current retained publications, in a tree of topic levels.

Matching descends the tree along the filter, so it does not visit branches that cannot match. Source: MQTT 3.1.1 section 4.7,
IBM MQ documentation, "Retained publications".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.subscription import Subscription
from bridge.mqtt.topics import is_wildcard, matches
from bridge.telemetry.headers import size_of_properties
from bridge.telemetry.transmission import PublicationMessage

#: Memory overhead of a retained publication in bytes, in addition to topic string, payload and properties: 1,080 in pure
#: Python, measured with 20,000 publications.
OVERHEAD = 1080
#: The number of visited levels of the tree that takes about as long as putting one publication.
PUT_VISITS = 20


class RetainedLevel:
    """A level of the tree of retained publications."""

    __slots__ = ("below", "topic")

    def __init__(self) -> None:
        self.below: dict[str, RetainedLevel] = {}
        #: the topic string that ends here, if it has a retained publication
        self.topic: str | None = None

    def lower(self) -> Iterator[RetainedLevel]:
        """Return an iterator over a snapshot of the levels below. The tree may change during the iteration."""
        return iter(list(self.below.values()))

    def lower_than_root(self) -> Iterator[RetainedLevel]:
        """Return an iterator over a snapshot of the levels below whose names do not begin with `$`."""
        return (below for name, below in list(self.below.items()) if not name.startswith("$"))


class RetainedPublications(dict[str, StoredMessage]):
    """The current retained publications: topic string -> message on SYSTEM.RETAINED.PUB.QUEUE."""

    def __init__(self) -> None:
        super().__init__()
        self._root = RetainedLevel()
        #: bytes of the retained publications of each owner (`owner_of`), and of all clients
        self.bytes_of: dict[str | bytes, int] = {}
        self.total_bytes = 0

    def __setitem__(self, topic: str, stored: StoredMessage) -> None:
        before = self.get(topic)
        super().__setitem__(topic, stored)
        self._count(stored, 1)
        if before is not None:
            self._count(before, -1)
            return
        level = self._root
        for word in topic.split("/"):
            level = level.below.setdefault(word, RetainedLevel())
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

    def level(self, words: Sequence[str]) -> RetainedLevel | None:
        """Return the tree node at these levels, or None if nothing is retained at or below it. No levels are the root."""
        level: RetainedLevel | None = self._root
        for word in words:
            if level is None:
                return None
            level = level.below.get(word)
        return level

    def _count(self, stored: StoredMessage, sign: int) -> None:
        message = stored.message
        if isinstance(message, PublicationMessage):
            owner, size = owner_of(message), sign * size_of(message)
            self.total_bytes += size
            size_left = self.bytes_of.get(owner, 0) + size
            if size_left:
                self.bytes_of[owner] = size_left
            else:
                self.bytes_of.pop(owner, None)

    def matching(self, topic_filter: str) -> Iterator[str | None]:
        """Yield the topic strings that match a filter with topic-based wildcards, and None for each other visited level.

        The iterator is lazy, so a caller can pause after a number of levels. Topics removed meanwhile are omitted.
        """
        if not is_wildcard(topic_filter):
            yield topic_filter if topic_filter in self else None
            return
        words = topic_filter.split("/")
        if "#" in words[:-1]:
            yield from (topic if matches(topic_filter, topic) else None for topic in list(self))
            return
        last = len(words)
        walks: list[tuple[Iterator[RetainedLevel], int]] = [(iter((self._root,)), 0)]
        while walks:
            levels, at = walks[-1]
            level = next(levels, None)
            if level is None:
                walks.pop()
                continue
            # a/# also matches a
            has_topic = at >= last or (words[at] == "#" and at)
            yield level.topic if has_topic else None
            if at > last:
                walks.append((level.lower(), at))
            elif at < last and words[at] == "#":
                # MQTT-4.7.2-1: a leading wildcard does not match topics that begin with `$`.
                walks.append((level.lower() if at else level.lower_than_root(), last + 1))
            elif at < last and words[at] == "+":
                walks.append((level.lower() if at else level.lower_than_root(), at + 1))
            elif at < last and (exact := level.below.get(words[at])) is not None:
                walks.append((iter((exact,)), at + 1))

    def named_by(self, subscription: Subscription) -> Iterator[str | None]:
        """Yield the topic strings that match a subscription, and None for each other visited level or topic."""
        if not subscription.characters:
            return self.matching(subscription.topic_filter)
        return (topic if subscription.names(topic) else None for topic in list(self))


def owner_of(message: PublicationMessage) -> str | bytes:
    """Return the owner of the quota for a retained publication: the MQ user or, without a user, the client identifier.

    Clients choose their client identifiers, but the user is authenticated, set by the channel, or a trusted claim.
    """
    return message.md.UserIdentifier or message.client_id


def size_of(message: PublicationMessage) -> int:
    """Return the approximate memory use of a retained publication, in bytes."""
    properties = message.properties
    size = OVERHEAD + 2 * len(message.topic) + len(message.payload)
    return size if properties is None else size + size_of_properties(properties)
