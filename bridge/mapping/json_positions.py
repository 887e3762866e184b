"""Positions in JSON files, for error messages with lines. The texts are valid JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

_SPACE: Final = re.compile(r"[ \t\n\r]*")


class RepeatedName(Exception):
    """Two members of an object have the same name: the program that reads it determines which one applies."""

    def __init__(self, name: str, position: int = 0) -> None:
        super().__init__(f"the name {name[:100]!r} again in the same object")
        self.name = name
        #: index of the second member, or of the element of the file that contains it
        self.position = position


class Element(NamedTuple):
    """An element of an array, or a member of an object."""

    #: the index or the name
    key: int | str
    #: index of the element or the name in the text
    position: int
    #: index of its value
    value: int


def line_of_index(text: str, index: int) -> int:
    """Return the line of an index, from 1."""
    return text.count("\n", 0, index) + 1


def elements(text: str, start: int = 0) -> Iterator[Element]:
    """Yield the elements of the array or object at `start`: nothing for another value. Raises RepeatedName."""
    position = _after_space(text, start)
    is_object = text[position] == "{"
    if not is_object and text[position] != "[":
        return
    names: set[str] = set()
    index = 0
    position = _after_space(text, position + 1)
    while text[position] not in "]}":
        begin, key = position, index
        if is_object:
            name, position = _DECODER.raw_decode(text, position)
            if name in names:
                raise RepeatedName(name, begin)
            names.add(name)
            position = _after_space(text, text.index(":", position) + 1)
            yield Element(name, begin, position)
        else:
            yield Element(key, begin, position)
        try:
            _, position = _DECODER.raw_decode(text, position)
        except RepeatedName as error:
            error.position = begin
            raise
        position, index = _after_space(text, position), index + 1
        if text[position] == ",":
            position = _after_space(text, position + 1)


def line_of_path(text: str, path: Sequence[int | str]) -> int:
    """Return the line of the element that a path of names and indexes leads to, or of the last one on the way."""
    position = value = 0
    for key in path:
        element = next((element for element in elements(text, value) if element.key == key), None)
        if element is None:
            break
        position, value = element.position, element.value
    return line_of_index(text, position)


def _after_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    assert space is not None  # it matches the empty text
    return space.end()


def _check_names(members: list[tuple[str, Any]]) -> None:
    if len(dict(members)) < len(members):
        names = [name for name, _ in members]
        raise RepeatedName(next(name for name in names if names.count(name) > 1))


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_check_names)
