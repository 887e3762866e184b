"""The retained publications in force, by topic string, in a tree of levels.

What a filter names is found by following the filter down the tree: what does not match costs nothing (MQTT 3.1.1 section
4.7; IBM MQ documentation, "Retained publications").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.subscription import Subscription
from bridge.mqtt.topics import is_wildcard, matches
from bridge.telemetry.headers import size_of_properties
from bridge.telemetry.transmission import PublicationMessage

#: Bytes, about, of a retained publication beside its topic string and payload.
OVERHEAD = 512
#: Looks at a level of the tree that take as long, about, as one publication that is put.
PUT_LOOKS = 20


class Level:
    """A level of the tree of retained publications."""

    __slots__ = ("below", "topic")

    def __init__(self) -> None:
        self.below: dict[str, Level] = {}
        #: the topic string that ends here, where a publication is retained for it
        self.topic: str | None = None

    def lower(self) -> Iterator[Level]:
        """Return an iterator of the levels below as they are now; the tree may change while it is used."""
        return iter(list(self.below.values()))

    def lower_than_root(self) -> Iterator[Level]:
        """Return an iterator of the levels below whose names do not begin with `$`."""
        return (below for name, below in list(self.below.items()) if not name.startswith("$"))


class RetainedPublications(dict[str, StoredMessage]):
    """The retained publications in force: topic string -> message on SYSTEM.RETAINED.PUB.QUEUE."""

    def __init__(self) -> None:
        super().__init__()
        self._root = Level()
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
            level = level.below.setdefault(word, Level())
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

    def level(self, words: Sequence[str]) -> Level | None:
        """Return the place of the tree at these levels, the root for none; None where nothing is retained at it or below."""
        level: Level | None = self._root
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
            left = self.bytes_of.get(owner, 0) + size
            if left:
                self.bytes_of[owner] = left
            else:
                self.bytes_of.pop(owner, None)

    def matching(self, topic_filter: str) -> Iterator[str | None]:
        """Yield the topic strings that a filter of the topic-based wildcard scheme names, and None for each look at another.

        They are worked out as they are asked for, so that a caller can stop after so many looks and go on later; what has
        been removed meanwhile is left out.
        """
        if not is_wildcard(topic_filter):
            yield topic_filter if topic_filter in self else None
            return
        words = topic_filter.split("/")
        if "#" in words[:-1]:
            yield from (topic if matches(topic_filter, topic) else None for topic in list(self))
            return
        last = len(words)
        walks: list[tuple[Iterator[Level], int]] = [(iter((self._root,)), 0)]
        while walks:
            levels, at = walks[-1]
            level = next(levels, None)
            if level is None:
                walks.pop()
                continue
            # a/# names a as well
            named = at >= last or (words[at] == "#" and at)
            yield level.topic if named else None
            if at > last:
                walks.append((level.lower(), at))
            elif at < last and words[at] == "#":
                # MQTT-4.7.2-1: a wildcard in front names nothing that begins with `$`.
                walks.append((level.lower() if at else level.lower_than_root(), last + 1))
            elif at < last and words[at] == "+":
                walks.append((level.lower() if at else level.lower_than_root(), at + 1))
            elif at < last and (exact := level.below.get(words[at])) is not None:
                walks.append((iter((exact,)), at + 1))

    def named_by(self, subscription: Subscription) -> Iterator[str | None]:
        """Yield the topic strings that a subscription is for, and None for each look at another."""
        if not subscription.characters:
            return self.matching(subscription.topic_filter)
        return (topic if subscription.names(topic) else None for topic in list(self))


def owner_of(message: PublicationMessage) -> str | bytes:
    """Return whose quota a retained publication counts for: the MQ user, or the client identifier if there is no user.

    Clients choose their client identifiers. The user is authenticated, or given by the channel, or a claim that the queue
    manager believes.
    """
    return message.md.UserIdentifier or message.client_id


def size_of(message: PublicationMessage) -> int:
    """Return the bytes, about, that a publication takes while it is retained."""
    said = message.properties
    size = OVERHEAD + 2 * len(message.topic) + len(message.payload)
    return size if said is None else size + size_of_properties(said)
