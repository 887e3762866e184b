"""Where in a YAML file a character of a text stands that was read from it, whichever way the text is written there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

# A character of a text as the file has it: an escape of a text in double quotes, a doubled single quote, or itself.
_DOUBLE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)|.", re.DOTALL)
_SINGLE = re.compile(r"''|.", re.DOTALL)
_ANY = re.compile(r".", re.DOTALL)
#: Escapes of blanks and line ends, which count as white space on both sides.
_BLANK_ESCAPES = {"\\n", "\\t", "\\r", "\\ ", "\\\n", "\\_", "\\N", "\\L", "\\P", "\\x20", "\\x09", "\\x0A", "\\x0a"}


def place_in(file: str, node: yaml.ScalarNode, position: int) -> tuple[int, int]:
    """Return line and column, from 1, of the character at `position` of a scalar's text.

    For a `position` beyond the text, return those of its end.

    YAML indents and folds lines, but leaves all characters that are no white space as they are and in order. So what stands
    before `position` without its white space stands before the place, too.
    """
    text: str = node.value
    before = sum(not one.isspace() for one in text[:position])
    places = list(_characters(file, node))
    if before and (position >= len(text) or text[position].isspace()):
        index, length = places[before - 1]
        return _line_and_column(file, index + length)
    return _line_and_column(file, places[before][0])


def _characters(file: str, node: yaml.ScalarNode) -> Iterator[tuple[int, int]]:
    """Yield the place in the file of each character of a scalar that is no white space, and its length there."""
    start, end = node.start_mark.index, node.end_mark.index
    kind = _ANY
    if node.style in ("|", ">"):
        start = file.index("\n", start) + 1  # behind the header, which may have a comment
    elif node.style is not None:
        kind = _DOUBLE if node.style == '"' else _SINGLE
        start, end = start + 1, end - 1
    for match in kind.finditer(file, start, end):
        if not match[0].isspace() and match[0] not in _BLANK_ESCAPES:
            yield match.start(), len(match[0])


def _line_and_column(file: str, index: int) -> tuple[int, int]:
    return file.count("\n", 0, index) + 1, index - file.rfind("\n", 0, index)
