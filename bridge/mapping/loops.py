"""Loops between mappings: detection in the configuration, and prevention at run time.

A mapping feeds another one if its output may be the other's input: on the same queue, in the topics of the queue manager
(which local clients share), or at the same broker.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping

import msgspec

from bridge.config.link import LOCAL, LinkConfig, broker_host
from bridge.config.mapping import FilterConfig, ToMqMapping, ToMqttMapping
from bridge.mapping.attributes import located
from bridge.mapping.template import Placeholder, Template, template_of
from bridge.mapping.topic_pattern import TopicPattern, overlaps, pattern_of

AnyMapping = ToMqMapping | ToMqttMapping

#: The place of queues in `LoopGuard.closes`. The other places are `local` (the queue manager's topics) and links.
QUEUES = "queue"
#: Maximum number of mappings that a message may pass before the current one.
MAX_HOPS = 16
_NO_FILTER = FilterConfig()
#: Words whose value never contains a slash.
_ONE_LEVEL_WORDS = frozenset(("qos", "messageId", "retained"))


_NO_MARKS = "a link with MQTT 3.1.1, or without `trusted`, transfers no hop mark"


class Loop(msgspec.Struct, frozen=True):
    """A cycle of mappings, each of which may feed the next."""

    names: tuple[str, ...]
    #: every message that one of them takes returns to it
    certain: bool
    #: nothing stops the loop at run time, because links of MQTT 3.1.1, or untrusted links, drop the hop marks
    uncut: bool = False
    #: one link drops the hop mark, so a message may pass the loop once before it is stopped
    late: bool = False

    def __str__(self) -> str:
        comes = "go" if self.certain else "may go"
        end = "the bridge then discards them"
        if self.uncut:
            end = f"the bridge cannot detect it, because {_NO_MARKS}"
        elif self.late:
            end = f"the bridge discards them after the first round, because {_NO_MARKS}"
        return f"messages through {' → '.join((*self.names, self.names[0]))} {comes} in a loop; {end}"


class _Node:
    """A mapping in the graph of loops. Raises RuleError."""

    def __init__(self, name: str, config: AnyMapping, origin: str, links: Mapping[str, LinkConfig]) -> None:
        self.name = name
        self.enabled = config.enabled
        self.filtered = config.filter != _NO_FILTER
        link = config.source.link if isinstance(config, ToMqMapping) else config.destination.link
        self.marks_kept = link not in links or (links[link].version != "3.1.1" and links[link].trusted)
        self._queue: str | None = None
        self._pattern: TopicPattern | None = None
        if isinstance(config, ToMqMapping):
            self._pattern = located(("from", "mqtt"), pattern_of, config.source.mqtt)
            self.source = _place(link, links)
            self._read_mq(config, origin)
            return
        if config.source.queue is not None:
            self.source, self._queue = QUEUES, config.source.queue
        else:
            self._pattern = located(("from", "topic"), pattern_of, config.source.topic or "")
            self.source = LOCAL
        self.destination: str | None = _place(link, links)
        self._template = located(("to", "mqtt"), template_of, config.destination.mqtt)

    def _read_mq(self, config: ToMqMapping, origin: str) -> None:
        to = config.destination
        if to.topic is not None:
            self.destination, self._template = LOCAL, located(("to", "topic"), template_of, to.topic)
            return
        self._template = located(("to", "queue"), template_of, to.queue or "")
        # Mappings take no messages from queues of other queue managers or clients.
        self.destination = QUEUES if to.queue_manager in (None, origin) else None

    def takes(self, place: str, name: str) -> bool:
        """Return whether the mapping takes a message put or published to `name` at `place`."""
        if place != self.source:
            return False
        return self._pattern.matches(name) if self._pattern is not None else name == self._queue

    def feeds(self, other: _Node) -> bool:
        """Return whether the other mapping may take this mapping's output."""
        if self.destination is None or self.destination != other.source:
            return False
        if other._pattern is None:
            return self._names.fullmatch(other._queue or "") is not None
        return overlaps(self._levels, other._pattern.levels)

    def surely_feeds(self, other: _Node) -> bool:
        """Return whether the other mapping takes all output of this mapping.

        This is certain only if the destination is a literal that the other mapping takes.
        """
        literal = self._template.literal
        return self.destination is not None and literal is not None and other.takes(self.destination, literal)

    @property
    def _names(self) -> re.Pattern[str]:
        return name_pattern(self._template)

    @property
    def _levels(self) -> tuple[str, ...]:
        names = self._pattern.one_level_names if self._pattern is not None else ()
        return topic_levels(self._template, names)


def loops(
    mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig] | None = None, origin: str = ""
) -> list[Loop]:
    """Return the loops between enabled mappings: for each mapping, a shortest loop through it. Raises RuleError.

    `links` determine which links lead to the same broker, and which carry hop marks. `origin` is the name of the queue
    manager. Property values are unknown here, so they count as closing a loop.
    """
    nodes = [_Node(name, config, origin, links or {}) for name, config in mappings.items()]
    nodes = [node for node in nodes if node.enabled]
    fed = {node.name: [other for other in nodes if node.feeds(other)] for node in nodes}
    by_names: dict[frozenset[str], Loop] = {}
    for node in nodes:
        cycle = _shortest_cycle(node, fed)
        if cycle is not None:
            by_names.setdefault(frozenset(mapping.name for mapping in cycle), _loop(cycle))
    return list(by_names.values())


def _shortest_cycle(start: _Node, fed: Mapping[str, list[_Node]]) -> list[_Node] | None:
    before: dict[str, _Node] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for other in fed[node.name]:
            if other is start:
                return list(reversed(list(_back(node, start, before))))
            if other.name not in before:
                before[other.name] = node
                waiting.append(other)
    return None


def _back(node: _Node, start: _Node, before: Mapping[str, _Node]) -> Iterator[_Node]:
    while node is not start:
        yield node
        node = before[node.name]
    yield start


def _loop(cycle: list[_Node]) -> Loop:
    edges = list(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    certain = all(not node.filtered and node.surely_feeds(other) for node, other in edges)
    unmarked = sum(
        node.destination not in (LOCAL, QUEUES) and not (node.marks_kept and other.marks_kept) for node, other in edges
    )
    # If a mark is lost once per round, the following mappings add it again, and it stops the loop in the next round.
    uncut = unmarked > (len(cycle) > 1)
    return Loop(tuple(node.name for node in cycle), certain, uncut, late=unmarked > 0 and not uncut)


class LoopGuard:
    """Detects messages that would return to a mapping, before they are put or published. Raises RuleError.

    `origin` is the name of the queue manager, and `links` as for `loops`. `mark` is the prefix of the marks of its mappings,
    by default `origin`.
    """

    def __init__(
        self,
        mappings: Mapping[str, AnyMapping],
        origin: str,
        links: Mapping[str, LinkConfig] | None = None,
        *,
        mark: str | None = None,
    ) -> None:
        self._origin = origin if mark is None else mark
        self._links = links or {}
        self._nodes = {name: _Node(name, config, origin, self._links) for name, config in mappings.items()}

    def closes(self, hops: tuple[str, ...], place: str, name: str) -> str | None:
        """Return the mapping that makes a message loop, or None if the message may be sent.

        A message loops if a mapping that it passed would take it again, if it passed the current mapping before, or if it
        passed more than MAX_HOPS mappings. `hops` are the marks of the outgoing message, with that of the current mapping
        last. `place` is QUEUES, LOCAL or the name of a link, and `name` the queue or topic there. Queues of other queue
        managers need no check.
        """
        if len(hops) < 2:
            return None
        *earlier, own = hops
        if own in earlier:
            return own.rpartition("/")[2]
        if len(earlier) > MAX_HOPS:
            return earlier[-1].rpartition("/")[2]
        where = _place(place, self._links)
        for mark in earlier:
            origin, _, mapping = mark.rpartition("/")
            node = self._nodes.get(mapping)
            if node is not None and origin == self._origin and node.takes(where, name):
                return mapping
        return None


def _place(link: str, links: Mapping[str, LinkConfig]) -> str:
    """Return a name of the broker that is the same for all links to it."""
    config = links.get(link)
    return link if config is None else f"{broker_host(config.host)}:{config.broker_port}"


def topic_levels(template: Template, one_level: Collection[str]) -> tuple[str, ...]:
    """Return the levels of a pattern that covers all topics of a template.

    `one_level` contains the captures that match a single level.
    """
    levels: list[str] = []
    #: state of the current level: literal text, and whether it contains a name with one level or with any number
    literal, single, many = "", False, False
    for piece in template.pieces:
        if isinstance(piece, Placeholder):
            if _is_one_level(piece, one_level):
                single = True
            else:
                many = True
            continue
        first, *others = piece.split("/")
        literal += first
        for other in others:
            levels += _level(literal, single, many)
            literal, single, many = other, False, False
    levels += _level(literal, single, many)
    return tuple(levels)


def name_pattern(template: Template) -> re.Pattern[str]:
    """Return a pattern that covers all names of a template. Only the literal parts are known."""
    return re.compile(
        "".join(".*" if isinstance(piece, Placeholder) else re.escape(piece) for piece in template.pieces), re.DOTALL
    )


def _level(literal: str, single: bool, many: bool) -> tuple[str, ...]:
    if many:
        return ("+", "#")
    return ("+",) if single else (literal,)


def _is_one_level(placeholder: Placeholder, one_level: Collection[str]) -> bool:
    is_single = placeholder.name in one_level or placeholder.name in _ONE_LEVEL_WORDS
    for name, argument in placeholder.written:
        if name == "mqname":  # mqname replaces / with .
            is_single = True
        elif name == "text" or (argument is not None and "/" in argument):
            is_single = False
    return is_single
