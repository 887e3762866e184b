"""Whether what one mapping writes may be what another takes: patterns of topics against patterns of topics.

A pattern is its levels: a literal level, `+` for any one level, `#` for any number of levels, none included.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from bridge.mapping.rules.template import Placeholder, Template

#: Words whose value has no slash in it.
_ONE_LEVEL_WORDS = frozenset(("qos", "messageId", "retained"))


def overlaps(destination: Sequence[str], source: Sequence[str]) -> bool:
    """Return whether the second pattern, a topic filter, matches a topic of the first.

    A topic that begins with `$` is none for a filter that begins with a wildcard (MQTT-4.7.2-1).
    """
    shy = source[0] in ("+", "#")
    ends = (len(destination), len(source))
    # The third says whether a level was consumed: the first one that is decides whether the topic begins with `$`.
    start = (0, 0, False)
    reached, waiting = {start}, [start]
    while waiting:
        at, to, begun = waiting.pop()
        if (at, to) == ends:
            return True
        left = destination[at] if at < ends[0] else None
        right = source[to] if to < ends[1] else None
        following = []
        if left == "#":
            following.append((at + 1, to, begun))
        if right == "#":
            following.append((at, to + 1, begun))
        if left is not None and right is not None and (left in ("+", "#") or right in ("+", "#") or left == right):
            # One level of both; a # stays for further ones.
            literal = left if left not in ("+", "#") else right
            if begun or not shy or not literal.startswith("$"):
                following.append((at + (left != "#"), to + (right != "#"), True))
        for state in following:
            if state not in reached:
                reached.add(state)
                waiting.append(state)
    return False


def topic_levels(template: Template, one_level: Collection[str]) -> tuple[str, ...]:
    """Return the pattern of the topics that a template makes.

    `one_level` are the captures that stand for a single level.
    """
    levels: list[str] = []
    #: of the level at hand: its literal text, and whether a name is in it whose value is one level, or any number
    literal, one, many = "", False, False
    for piece in template.pieces:
        if isinstance(piece, Placeholder):
            if _is_one_level(piece, one_level):
                one = True
            else:
                many = True
            continue
        first, *others = piece.split("/")
        literal += first
        for other in others:
            levels += _level(literal, one, many)
            literal, one, many = other, False, False
    levels += _level(literal, one, many)
    return tuple(levels)


def name_pattern(template: Template) -> re.Pattern[str]:
    """Return the pattern of the names that a template makes, of which nothing is known but their literal parts."""
    return re.compile(
        "".join(".*" if isinstance(piece, Placeholder) else re.escape(piece) for piece in template.pieces), re.DOTALL
    )


def _level(literal: str, one: bool, many: bool) -> tuple[str, ...]:
    if many:
        return ("+", "#")
    return ("+",) if one else (literal,)


def _is_one_level(placeholder: Placeholder, one_level: Collection[str]) -> bool:
    result = placeholder.name in one_level or placeholder.name in _ONE_LEVEL_WORDS
    for name, argument in placeholder.written:
        if name == "mqname":  # which writes . for /
            result = True
        elif name == "text" or (argument is not None and "/" in argument):
            result = False
    return result
