"""Patterns of characters: any characters, one character, and characters that are meant themselves.

A pattern is cut at its `any characters`. The first part has to stand at the beginning of a text and the last one at its
end; each part between is looked for from left to right, and the first place found is as good as any. So nothing is ever
tried twice: matching takes time in proportion to the text and the longest part, whatever pattern an application thinks up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum


class Wildcard(Enum):
    """What stands for other characters."""

    #: any number of characters, none among them
    ANY = "any"
    #: one character
    ONE = "one"


class Glob:
    """A pattern, ready to match."""

    def __init__(self, tokens: Iterable[str | Wildcard]) -> None:
        parts: list[list[str]] = [[]]
        for token in tokens:
            if token is Wildcard.ANY:
                parts.append([])
            else:
                parts[-1].append("." if token is Wildcard.ONE else re.escape(str(token)))
        compiled = [re.compile("".join(part), re.DOTALL) for part in parts]
        self._first, *self._others = compiled
        #: characters that the last part matches: neither `.` nor a literal character is longer than one
        self._last_length = len(parts[-1])

    def matches(self, text: str) -> bool:
        """Return whether the whole text is as the pattern says."""
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
