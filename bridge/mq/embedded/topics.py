"""The topic tree of the embedded queue manager: administrative topic objects, subscriptions, and routes.

A topic string inherits attributes from the nearest administrative topic object above it, ultimately SYSTEM.BASE.TOPIC (IBM
MQ documentation, "Administrative topic objects"). A route contains the matching subscriptions and effective attributes of
one topic string. Routes are cached until an object or subscription changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from bridge.mq.embedded.attributes import BASE_TOPIC, Value
from bridge.mq.embedded.mapping_backlog import MappingBacklog, MappingBacklogLimits
from bridge.mq.embedded.subscription import Subscription, literal_prefix
from bridge.mq.memory import MESSAGE_OVERHEAD
from bridge.mq.message_consumer import mapping_of
from bridge.mq.mqi import MQError
from bridge.mqtt.topics import is_wildcard, topic_string_error
from bridge.telemetry.subscription import SubscriptionData, merged, subscription_data
from bridge.wire import cmqc

#: The maximum size of the route cache in bytes, approximately. When it is exceeded, the cache is cleared, because clients
#: choose the topic strings.
ROUTE_BYTES = 32 * 1024 * 1024
#: The approximate size of a route without its topic string, in bytes.
_ROUTE_SIZE = 450
#: The maximum number and length of shared strings. Clients choose them, so both are limited.
MAX_SHARED: Final = 10_000
MAX_SHARED_LENGTH: Final = 256
#: The highest SubLevel, and the usual PubLevel.
MAX_LEVEL = 9
#: The maximum number of copies of a publication for one MQTT client. With more matching subscriptions, it gets one copy.
MAX_COPIES = 20
#: The number of tree nodes that take about as long to visit as one delivery.
_PLACES_PER_DELIVERY = 8


class Route:
    """The matching subscriptions and effective attributes of one topic string."""

    __slots__ = (
        "_put_inhibited",
        "all_deliveries",
        "dead_letters",
        "default_persistent",
        "memory",
        "priority",
        "refusal",
        "reviewed",
        "selective",
        "subscriptions",
        "topic",
        "weight",
    )

    def __init__(
        self, topic: str, subscriptions: tuple[Subscription, ...], attributes: dict[str, Value], weight: int = 1
    ) -> None:
        self.topic = topic
        #: the approximate cost of a publication in deliveries, including the search for its subscriptions
        self.weight = weight
        #: subscriptions that neither filter nor change publications
        self.subscriptions = tuple(subscription for subscription in subscriptions if not subscription.selective)
        #: subscriptions with a selector, priority or identity, and those whose copies are direct messages
        self.selective = tuple(subscription for subscription in subscriptions if subscription.selective)
        #: the approximate memory of a publication in addition to its payload, in bytes
        self.memory = MESSAGE_OVERHEAD * (1 + len(self.subscriptions))
        self._put_inhibited = attributes["PUB"] != "ENABLED"
        #: reason code for which publications are rejected, or MQRC_NONE
        self.refusal = cmqc.MQRC_PUT_INHIBITED if self._put_inhibited else cmqc.MQRC_NONE
        #: the `TopicTree.full_version` for which `refusal` was determined
        self.reviewed = 0
        self.default_persistent = attributes["DEFPSIST"] == "YES"
        self.priority = int(attributes["DEFPRTY"])
        #: PMSGDLV and NPMSGDLV: (not persistent, persistent)
        self.all_deliveries = (str(attributes["NPMSGDLV"]), str(attributes["PMSGDLV"]))
        self.dead_letters = attributes["USEDLQ"] == "YES"

    def review(self, full: Container[str], version: int) -> None:
        """Update `refusal`, because the set of clients that cannot receive more publications has changed."""
        self.reviewed = version
        if self._put_inhibited:
            return
        blocked = bool(full) and any(
            subscription.client_id in full for subscription in (*self.subscriptions, *self.selective)
        )
        self.refusal = cmqc.MQRC_Q_SPACE_NOT_AVAILABLE if blocked else cmqc.MQRC_NONE


@lru_cache(MAX_SHARED)
def _remembered(text: str) -> str:
    return text


def shared_text(text: str) -> str:
    """Return an equal string that is already in use, or the string. Many topic levels and queue names repeat."""
    return _remembered(text) if len(text) <= MAX_SHARED_LENGTH else text


class Level:
    """A node of the subscription tree."""

    __slots__ = ("_only", "_several", "below")

    def __init__(self) -> None:
        #: child nodes by level. `extend` adds to them
        self.below = _NO_LEVELS
        #: the only subscription with this filter, if any. Most filters have one subscription, and a dict takes 250 bytes.
        self._only: Subscription | None = None
        #: the subscriptions with this filter by name, if there are several
        self._several: dict[str, Subscription] | None = None

    @property
    def empty(self) -> bool:
        """Whether no filter ends at or below this node."""
        return not self.below and self._only is None and self._several is None

    @property
    def subscriptions(self) -> Collection[Subscription]:
        """The subscriptions whose filter ends at this node."""
        if self._several is not None:
            return self._several.values()
        return () if self._only is None else (self._only,)

    def extend(self, word: str) -> Level:
        """Return the child node for a level, created if necessary."""
        level = self.below.get(word)
        if level is None:
            if self.below is _NO_LEVELS:
                self.below = {}
            self.below[shared_text(word)] = level = Level()
        return level

    def add(self, subscription: Subscription) -> None:
        """Add a subscription whose filter ends at this node. Its name must be new."""
        if self._several is not None:
            self._several[subscription.name] = subscription
        elif self._only is not None:
            self._several = {member.name: member for member in (self._only, subscription)}
            self._only = None
        else:
            self._only = subscription

    def remove(self, name: str) -> None:
        """Remove a subscription by name."""
        self._only = None
        if self._several is not None:
            del self._several[name]
            if not self._several:
                self._several = None


#: The children of a node without children. Nothing is added to it.
_NO_LEVELS: Final[dict[str, Level]] = {}


class _ObjectLevel:
    """A node of the tree of administrative topic objects."""

    __slots__ = ("below", "name")

    def __init__(self) -> None:
        self.below: dict[str, _ObjectLevel] = {}
        #: the topic object with this topic string, or blank
        self.name = ""


class TopicTree:
    """Administrative topic objects and subscriptions of one queue manager."""

    def __init__(self) -> None:
        #: topic object name -> attributes
        self.objects: dict[str, dict[str, Value]] = {}
        #: subscription name -> subscription
        self.subscriptions: dict[str, Subscription] = {}
        self._root = Level()
        #: subscriptions with `#` before the end or with character-based wildcards, which only MQ applications use
        self._irregular: dict[str, Subscription] = {}
        self._routes: dict[str, Route] = {}
        self._routes_size = 0
        #: MQTT clients that cannot receive more publications
        self.full: set[str] = set()
        #: incremented when `full` changes. The version of the cached routes' `refusal`
        self.full_version = 0
        #: an MQTT client with several matching subscriptions gets one copy (MQTT-3.3.4-2), otherwise several (-3.3.4-3)
        self.overlapping_once = False
        #: limits of the backlogs of mappings
        self.mapping_limits = MappingBacklogLimits()
        #: see `copy_as_subscriber`
        self.copies_as_subscriber = False
        #: incremented when an object changes
        self.version = 0
        self._object_root = _ObjectLevel()
        self._object_root_version = -1

    def forget_routes(self) -> None:
        """Clear the route cache, because an object has changed."""
        self._forget()
        self.version += 1

    def refuse(self, client_id: str, refused: bool) -> None:
        """Reject publications with a subscription of this MQTT client, or accept them again."""
        if refused:
            self.full.add(client_id)
        else:
            self.full.discard(client_id)
        self.full_version += 1

    def _forget(self) -> None:
        self._routes.clear()
        self._routes_size = 0

    def copy_as_subscriber(self) -> None:
        """Put the user of a subscription into its copies, as IBM MQ does. For the tests' stand-in for IBM MQ.

        Source: IBM MQ documentation, "Subscription security".
        """
        self.copies_as_subscriber = True
        for subscription in self.subscriptions.values():
            subscription.as_subscriber = True
        self.forget_routes()

    def add(self, subscription: Subscription) -> None:
        """Add a new or altered subscription."""
        self.remove(subscription.name)
        self.subscriptions[subscription.name] = subscription
        mapping = mapping_of(subscription.name)
        if mapping and subscription.managed and subscription.queue.backlog is None:
            subscription.queue.count(MappingBacklog(mapping, self.mapping_limits))
        levels = subscription.topic_filter.split("/")
        if "#" in levels[:-1] or subscription.characters:
            self._irregular[subscription.name] = subscription
        else:
            level = self._root
            for word in levels:
                level = level.extend(word)
            level.add(subscription)
        self._forget()

    def replace(self, name: str, before: Subscription | None) -> None:
        """Restore the previous subscription of a name, or remove the subscription if there was no previous one."""
        self.remove(name)
        if before is not None:
            self.add(before)

    def remove(self, name: str) -> Subscription | None:
        """Remove and return a subscription, or return None if it does not exist."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            return None
        self._forget()
        if self._irregular.pop(name, None) is not None:
            return subscription
        path = []
        level = self._root
        for word in subscription.topic_filter.split("/"):
            path.append((level, word))
            level = level.below[word]
        level.remove(name)
        for above, word in reversed(path):
            if not above.below[word].empty:
                break
            del above.below[word]
        return subscription

    def level(self, words: Sequence[str]) -> Level | None:
        """Return the node at these levels, or None if it does not exist. No levels are the root."""
        level: Level | None = self._root
        for word in words:
            if level is None:
                return None
            level = level.below.get(word)
        return level

    def route(self, topic: str) -> Route:
        """Return the route of a topic string for publications with the default PubLevel.

        Raises MQError with MQRC_TOPIC_STRING_ERROR if it is too long, has too many levels, or is not UTF-8.
        """
        route = self._routes.get(topic)
        if route is None:
            route = self.new_route(topic)
            self._routes_size += _ROUTE_SIZE + 2 * len(topic)
            if self._routes_size > ROUTE_BYTES:
                self._forget()
                self._routes_size = _ROUTE_SIZE + 2 * len(topic)
            self._routes[topic] = route
        return route

    def new_route(self, topic: str, level: int = MAX_LEVEL) -> Route:
        """Return a route for publications with a PubLevel. Raises MQError like `route`."""
        check_topic_string(topic)
        subscriptions, places = self._collected(topic.split("/"))
        subscriptions += [candidate for candidate in self._irregular.values() if candidate.names(topic)]
        weight = max(1, len(subscriptions) + (places + len(self._irregular)) // _PLACES_PER_DELIVERY)
        route = Route(topic, self._entitled(topic, level, subscriptions), self.attributes(topic), weight)
        route.review(self.full, self.full_version)
        return route

    def _entitled(self, topic: str, level: int, subscriptions: list[Subscription]) -> tuple[Subscription, ...]:
        """Return the matching subscriptions that get a copy."""
        blocks = [block for block in self._blocks() if topic == block or topic.startswith(block + "/")]
        subscriptions = [
            subscription
            for subscription in subscriptions
            if not any(_is_blocked(subscription, block) for block in blocks)
        ]
        subscriptions = [
            subscription
            for subscription in subscriptions
            if subscription.level <= level and not subscription.on_request
        ]
        if any(subscription.level != 1 for subscription in subscriptions):
            # IBM MQ, "Intercepting publications": only the highest SubLevel that does not exceed the PubLevel gets a copy.
            highest = max(subscription.level for subscription in subscriptions)
            subscriptions = [subscription for subscription in subscriptions if subscription.level == highest]
        if any(subscription.grouped for subscription in subscriptions):
            subscriptions = _one_of_each_group(subscriptions)
        if self.overlapping_once and len(subscriptions) > 1:
            subscriptions = _one_of_each_client(subscriptions)
        elif len(subscriptions) > MAX_COPIES:
            subscriptions = _few_of_each_client(subscriptions)
        return tuple(subscriptions)

    def _collected(self, words: list[str]) -> tuple[list[Subscription], int]:
        """Return the matching subscriptions in the tree for the levels of a topic string, and the number of visited nodes.

        The search is breadth-first, so it does not recurse over a topic string.
        """
        subscriptions: list[Subscription] = []
        # MQTT-4.7.2-1: a filter that begins with a wildcard does not match topics that begin with `$`.
        hidden = words[0].startswith("$")
        places, visited = [self._root], 1
        for word in words:
            following: list[Level] = []
            for place in places:
                below = place.below
                if not hidden:
                    if (rest := below.get("#")) is not None:
                        subscriptions += rest.subscriptions
                    if (single := below.get("+")) is not None:
                        following.append(single)
                if word not in ("+", "#") and (exact := below.get(word)) is not None:
                    following.append(exact)
            hidden = False
            places = following
            if not places:
                return subscriptions, visited
            visited += len(places)
        for place in places:
            subscriptions += place.subscriptions
            if (rest := place.below.get("#")) is not None:  # a/# also matches a
                subscriptions += rest.subscriptions
        return subscriptions, visited

    def _blocks(self) -> Iterator[str]:
        for attributes in self.objects.values():
            if attributes["WILDCARD"] == "BLOCK" and attributes["TOPICSTR"]:
                yield str(attributes["TOPICSTR"])

    def above(self, topic: str) -> Iterator[tuple[str, dict[str, Value]]]:
        """Yield the topic objects at or above a topic string, nearest first."""
        level: _ObjectLevel | None = self._objects_by_level()
        names: list[str] = []
        for word in topic.split("/"):
            assert level is not None
            level = level.below.get(word)
            if level is None:
                break
            if level.name:
                names.append(level.name)
        for name in reversed(names):
            yield name, self.objects[name]
        if "SYSTEM.BASE.TOPIC" in self.objects:
            yield "SYSTEM.BASE.TOPIC", self.objects["SYSTEM.BASE.TOPIC"]

    def _objects_by_level(self) -> _ObjectLevel:
        """Return the root of the tree of topic objects, rebuilt if an object has changed."""
        if self._object_root_version != self.version:
            root = _ObjectLevel()
            for name, attributes in self.objects.items():
                if name == "SYSTEM.BASE.TOPIC":
                    continue
                level = root
                for word in str(attributes["TOPICSTR"]).split("/"):
                    level = level.below.setdefault(word, _ObjectLevel())
                level.name = name
            self._object_root, self._object_root_version = root, self.version
        return self._object_root

    def attributes(self, topic: str) -> dict[str, Value]:
        """Return the effective attributes of a topic string: each from the nearest object whose value is not ASPARENT."""
        effective = dict(BASE_TOPIC)
        for _, attributes in reversed(list(self.above(topic))):
            for keyword in effective:
                if attributes[keyword] != "ASPARENT":
                    effective[keyword] = attributes[keyword]
        return effective


def check_topic_string(topic: str) -> None:
    """Raise MQError with MQRC_TOPIC_STRING_ERROR for an invalid topic string or filter."""
    error = topic_string_error(topic)
    if error is not None:
        raise MQError(cmqc.MQRC_TOPIC_STRING_ERROR, error)


def _one_of_each_group(subscriptions: list[Subscription]) -> list[Subscription]:
    """Keep one subscription of each group (MQSO_GROUP_SUB)."""
    chosen: dict[object, Subscription] = {}
    for subscription in subscriptions:
        group = (
            (id(subscription.queue), subscription.remote_queue, subscription.client_id, subscription.correl_id)
            if subscription.grouped
            else id(subscription)
        )
        chosen.setdefault(group, subscription)
    return list(chosen.values())


def _one_of_each_client(subscriptions: list[Subscription]) -> list[Subscription]:
    """Merge the subscriptions of each MQTT client that have the same No Local option."""
    groups: dict[object, list[tuple[Subscription, SubscriptionData]]] = {}
    for subscription in subscriptions:
        data = subscription_data(subscription.user_data or "")
        group = (
            (subscription.client_id, subscription.remote_queue, data.no_local)
            if subscription.client_id and subscription.user_data == data.user_data
            else id(subscription)
        )
        groups.setdefault(group, []).append((subscription, data))
    return [_one_of(members) for members in groups.values()]


def _one_of(members: list[tuple[Subscription, SubscriptionData]]) -> Subscription:
    first = members[0][0]
    if len(members) == 1:
        return first
    data = merged([data for _, data in members])
    return msgspec.structs.replace(first, user_data=data.user_data, retain_as_published=data.retain_as_published)


def _few_of_each_client(subscriptions: list[Subscription]) -> list[Subscription]:
    """Merge the subscriptions of each MQTT client that has more than MAX_COPIES."""
    # The remote queue manager of subscriptions of a shard's clients is its transmission queue. They differ in the queue.
    keys = [(subscription.client_id, subscription.remote_queue) for subscription in subscriptions]
    copies = Counter(key for key in keys if key[0])
    excessive = {key for key, count in copies.items() if count > MAX_COPIES}
    if not excessive:
        return subscriptions
    few = [subscription for subscription, key in zip(subscriptions, keys, strict=True) if key not in excessive]
    many = [subscription for subscription, key in zip(subscriptions, keys, strict=True) if key in excessive]
    return few + _one_of_each_client(many)


def _is_blocked(subscription: Subscription, block: str) -> bool:
    """Return whether a WILDCARD(BLOCK) object at `block` hides the topics below it from a filter with a wildcard above it."""
    topic_filter = subscription.topic_filter
    if subscription.characters:
        before = literal_prefix(topic_filter)
        return before is not None and not before.startswith(block + "/")
    if not is_wildcard(topic_filter):
        return False
    literal = []
    for level in topic_filter.split("/"):
        if level in ("+", "#"):
            break
        literal.append(level)
    fixed = "/".join(literal)
    return not (fixed == block or fixed.startswith(block + "/"))
