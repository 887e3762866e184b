"""Wildcards: generic names of commands, and the character-based scheme of topic strings (WSCHEMA(CHAR)).

In topic strings, `*` matches any characters including `/`, `?` matches one character, and `%` escapes `*`, `?` and `%`.
Source: IBM MQ documentation, "Character-based wildcard scheme".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum

from bridge.telemetry.headers import remembered


class Wildcard(Enum):
    """A wildcard."""

    #: any number of characters, including none
    ANY = "any"
    #: one character
    ONE = "one"


class Glob:
    """A compiled pattern."""

    def __init__(self, tokens: Iterable[str | Wildcard]) -> None:
        parts: list[list[str]] = [[]]
        for token in tokens:
            if token is Wildcard.ANY:
                parts.append([])
            else:
                parts[-1].append("." if token is Wildcard.ONE else re.escape(str(token)))
        compiled = [re.compile("".join(part), re.DOTALL) for part in parts]
        self._first, *self._others = compiled
        #: length of the text that the last part matches
        self._last_length = len(parts[-1])

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        if not self._others:
            return self._first.fullmatch(text) is not None
        found = self._first.match(text)
        if found is None:
            return False
        at = found.end()
        *between, last = self._others
        for part in between:
            found = part.search(text, at)
            if found is None:
                return False
            at = found.end()
        return last.fullmatch(text, max(at, len(text) - self._last_length)) is not None


_WILDCARDS = {"*": Wildcard.ANY, "?": Wildcard.ONE}
_TOKEN = re.compile(r"%([*?%])|([*?])|([^*?%]|%)", re.DOTALL)


def _tokens(topic_filter: str) -> Iterator[str | Wildcard]:
    for match in _TOKEN.finditer(topic_filter):
        yield _WILDCARDS[match[2]] if match[2] else match[1] or match[3]


@remembered(1024)
def _pattern(topic_filter: str) -> Glob:
    return Glob(_tokens(topic_filter))


def matches(topic_filter: str, topic: str) -> bool:
    """Return whether a filter matches a topic string. A leading wildcard does not match topics that begin with `$`."""
    if topic.startswith("$") and topic_filter[:1] in _WILDCARDS:
        return False
    return _pattern(topic_filter).matches(topic)


def literal(topic_filter: str) -> str | None:
    """Return the text before the first wildcard, or None if there is no wildcard."""
    found: list[str] = []
    for token in _tokens(topic_filter):
        if isinstance(token, Wildcard):
            return "".join(found)
        found.append(token)
    return None
