"""Topic filters with named captures: `plant/{line}/+/{metric...}`.

`{name}` matches one level like `+`. `{name...}`, at the end, matches one or more levels. Both capture the matched text.
Literal braces are doubled. Everything else is an MQTT topic filter (MQTT 3.1.1, section 4.7).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from bridge.mapping.template import PatternError
from bridge.mqtt.topics import MQ_TOPIC_STR_LENGTH

CAPTURE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CAPTURE = re.compile(r"\{([^{}]*)\}")
_BRACES = re.compile(r"\{\{|\}\}|[{}]")
#: Prefix of a shared subscription (MQTT 5, section 4.8.2), or of EMQX's equivalents.
_SHARED = re.compile(r"(?:\$share/(?P<name>[^/]*)|\$queue|\$exclusive)(?:/|\Z)")


def shared_prefix(topic_filter: str) -> str:
    """Return the prefix of a shared subscription, or "" if the topic filter has none. Raises PatternError."""
    shared = _SHARED.match(topic_filter)
    if shared is None:
        return ""
    if shared["name"] is not None and (not shared["name"] or re.search(r"[+#{}]", shared["name"])):
        raise PatternError("MQTT-4.8.2-1: the name of a share has at least one character, and no +, # or brace", 8)
    if shared.end() == len(topic_filter):
        raise PatternError("MQTT-4.8.2-2: a topic filter must follow the share name", shared.end() + 1)
    return shared[0]


class TopicPattern:
    """A topic filter that captures levels of the topics it matches. Raises PatternError."""

    __slots__ = ("_expression", "_literal", "filter", "levels", "names", "one_level_names", "prefix", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        #: prefix of a shared subscription, such as `$share/NAME/`, or ""
        self.prefix = ""
        #: levels: literal text, "+" or "#". `{name...}` becomes "+" and "#"
        self.levels: tuple[str, ...]
        #: names of the captures, in order
        self.names: tuple[str, ...]
        self._read()
        literal = not any(level in ("+", "#") for level in self.levels)
        self._literal = "/".join(self.levels) if literal else None

    def __reduce__(self) -> tuple[type[TopicPattern], tuple[str]]:
        return TopicPattern, (self.text,)

    def _read(self) -> None:
        if not self.text:
            raise PatternError("a topic filter has at least one character")
        if "\0" in self.text:
            raise PatternError("a topic filter contains no U+0000", self.text.index("\0") + 1)
        levels: list[str] = []
        filters: list[str] = []
        expressions: list[str] = []
        names: list[str] = []
        self.prefix = shared_prefix(self.text)
        column = len(self.prefix) + 1
        level_texts = self.text[len(self.prefix) :].split("/")
        for index, level in enumerate(level_texts):
            last = index == len(level_texts) - 1
            kind, name = _level(level, column)
            if name:
                if name in names:
                    raise PatternError(f"the capture {{{name}}} occurs twice, and its values could differ", column)
                names.append(name)
            if kind in ("#", "...") and not last:
                sign = level if kind == "..." else "#"
                raise PatternError(f"{sign} matches all following levels, and is allowed only at the end", column)
            if kind == "#":
                levels.append("#")
                filters.append("#")
                # a/# matches a as well (MQTT-4.7.1-2)
                expressions.append("(?:/.*)?" if index else ".*")
            else:
                separator = "/" if index else ""
                if kind == "...":
                    levels += ("+", "#")
                    filters.append("#")
                    expressions.append(f"{separator}(.*)")
                elif kind == "+":
                    levels.append("+")
                    filters.append("+")
                    expressions.append(separator + ("([^/]*)" if name else "[^/]*"))
                else:
                    levels.append(kind)
                    filters.append(kind)
                    expressions.append(separator + re.escape(kind))
            column += len(level) + 1
        self.levels, self.names = tuple(levels), tuple(names)
        #: captures that match exactly one level
        self.one_level_names = self.names[:-1] if kind == "..." else self.names
        #: topic filter to subscribe to
        self.filter = self.prefix + "/".join(filters)
        if len(self.filter) > MQ_TOPIC_STR_LENGTH:
            raise PatternError(f"a topic string has at most {MQ_TOPIC_STR_LENGTH} characters")
        # MQTT-4.7.2-1: a leading wildcard does not match a topic that starts with $.
        guard = r"(?!\$)" if filters[0] in ("+", "#") else ""
        self._expression = re.compile(guard + "".join(expressions), re.DOTALL)

    def captures(self, topic: str) -> dict[str, str] | None:
        """Return the captured values of a topic, or None if the filter does not match."""
        if self._literal is not None:
            return {} if topic == self._literal else None
        match = self._expression.fullmatch(topic)
        if match is None:
            return None
        return dict(zip(self.names, match.groups(), strict=True))

    def matches(self, topic: str) -> bool:
        """Return whether the filter matches a topic."""
        return self.captures(topic) is not None

    def __repr__(self) -> str:
        return f"TopicPattern({self.text!r})"


@lru_cache(4096)
def pattern_of(text: str) -> TopicPattern:
    """Parse a topic filter (cached). Raises PatternError."""
    return TopicPattern(text)


def _level(level: str, column: int) -> tuple[str, str]:
    """Return the kind (literal text, "+", "#" or "...") and capture name of a level that starts at `column`."""
    if level in ("+", "#"):
        return level, ""
    capture = _CAPTURE.fullmatch(level)
    if capture is not None:
        name, several = capture[1].removesuffix("..."), capture[1].endswith("...")
        if not CAPTURE_NAME.fullmatch(name):
            raise PatternError(
                f"{name!r} is not a valid capture name, which has letters, digits and _, and begins with no digit",
                column + 1,
            )
        return ("..." if several else "+"), name
    wildcard = re.search(r"[+#]", level)
    if wildcard is not None:
        raise PatternError(f"{wildcard[0]} must be alone in its level", column + wildcard.start())
    for brace in _BRACES.finditer(level):
        if len(brace[0]) == 2:
            continue
        if _CAPTURE.match(level, brace.start()):
            raise PatternError("a capture is a whole level, as in a/{name}/b", column + brace.start())
        sentence = f"{brace[0]} has no partner; {brace[0] * 2} stands for a literal {brace[0]}"
        raise PatternError(sentence, column + brace.start())
    return level.replace("{{", "{").replace("}}", "}"), ""


def overlaps(destination: Sequence[str], source: Sequence[str]) -> bool:
    """Return whether any topic that `destination` can produce matches the topic filter `source`.

    A leading wildcard does not match a topic that starts with `$` (MQTT-4.7.2-1).
    """
    shy = source[0] in ("+", "#")
    ends = (len(destination), len(source))
    # The third element is whether a level was consumed. The first consumed level determines whether the topic starts with
    # `$`.
    start = (0, 0, False)
    reached, waiting = {start}, [start]
    while waiting:
        at, to, has_consumed = waiting.pop()
        if (at, to) == ends:
            return True
        mine = destination[at] if at < ends[0] else None
        right = source[to] if to < ends[1] else None
        following = []
        if mine == "#":
            following.append((at + 1, to, has_consumed))
        if right == "#":
            following.append((at, to + 1, has_consumed))
        if mine is not None and right is not None and (mine in ("+", "#") or right in ("+", "#") or mine == right):
            # Consume one level of both. A # remains, to consume more.
            literal = mine if mine not in ("+", "#") else right
            if has_consumed or not shy or not literal.startswith("$"):
                following.append((at + (mine != "#"), to + (right != "#"), True))
        for state in following:
            if state not in reached:
                reached.add(state)
                waiting.append(state)
    return False
