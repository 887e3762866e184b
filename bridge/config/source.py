"""The YAML parser: plain values, with the line and column of each.

PyYAML's safe loader composes the text into nodes. This module converts the nodes itself, to keep positions, to reject
duplicate keys (PyYAML keeps the last one), and to read numbers as people write them (in YAML 1.1, `01414` is octal and
`12:30` is base 60).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from bridge.config.problems import ConfigurationError, Location, Problem, dotted, quoted
from bridge.config.values import MIB, size_text

# One character of a scalar as written: an escape sequence in double quotes, a doubled single quote, or the character itself.
_DOUBLE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)|.", re.DOTALL)
_SINGLE = re.compile(r"''|.", re.DOTALL)
_ANY = re.compile(r".", re.DOTALL)
#: Escapes of spaces and line ends. They count as white space, in the file and in the text.
_BLANK_ESCAPES = {"\\n", "\\t", "\\r", "\\ ", "\\\n", "\\_", "\\N", "\\L", "\\P", "\\x20", "\\x09", "\\x0A", "\\x0a"}


def place_in(file: str, node: yaml.ScalarNode, position: int) -> tuple[int, int]:
    """Return the line and column, from 1, of the character at `position` in a scalar's text.

    A `position` beyond the text stands for its end.

    YAML indents and folds lines, but keeps all other characters, in order. The number of non-space characters before
    `position` therefore identifies the place in the file.
    """
    text: str = node.value
    before = sum(not one.isspace() for one in text[:position])
    places = list(_characters(file, node))
    if before and (position >= len(text) or text[position].isspace()):
        index, length = places[before - 1]
        return _line_and_column(file, index + length)
    return _line_and_column(file, places[before][0])


def _characters(file: str, node: yaml.ScalarNode) -> Iterator[tuple[int, int]]:
    """Yield the file index and written length of each character of a scalar that is not white space."""
    start, end = node.start_mark.index, node.end_mark.index
    kind = _ANY
    if node.style in ("|", ">"):
        start = file.index("\n", start) + 1  # skip the header, which may contain a comment
    elif node.style is not None:
        kind = _DOUBLE if node.style == '"' else _SINGLE
        start, end = start + 1, end - 1
    for match in kind.finditer(file, start, end):
        if not match[0].isspace() and match[0] not in _BLANK_ESCAPES:
            yield match.start(), len(match[0])


def _line_and_column(file: str, index: int) -> tuple[int, int]:
    return file.count("\n", 0, index) + 1, index - file.rfind("\n", 0, index)


MAX_BYTES = MIB
"""Maximum size of a file, in bytes."""
MAX_NODES = 10_000
"""Maximum number of values in a file, with aliases expanded: a few nested aliases can expand to billions."""
MAX_DEPTH = 32
"""Maximum nesting depth. The composer and this module recurse."""

_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NOTHING = {"", "~", "null"}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9](?:_?[0-9]){0,99})")
_FRACTION = re.compile(r"[-+]?(?:[0-9]{1,99}\.[0-9]{0,99}|\.[0-9]{1,99})(?:[eE][-+]?[0-9]{1,3})?")
_MERGE = "<<"
_YAML_TAG = "tag:yaml.org,2002:"

# PyYAML's error messages -> (what was expected, what was found). The first match wins.
_SYNTAX = [
    (r"found character '\\t' that cannot start any token", "spaces for indentation", "a tab"),
    (r"found character '(?P<c>.*)' that cannot start any token", "a value, in quotes if it begins with {c}", "{c}"),
    (r"mapping values are not allowed here", "one 'key: value' to a line, indented like its neighbours", "another ':'"),
    (r"could not find expected ':'", "a key with ':' and a blank after it", "none"),
    (r"found unexpected end of stream", "a closing quote to the one that opens here", "the end of the file"),
    (r"expected <block end>, but found .*", "the same indentation as the lines before", "another, or text too many"),
    (r"expected '<document start>', but .*", "the same indentation as the lines before", "another, or text too many"),
    (r"sequence entries are not allowed here", "'- ' at the beginning of a line only", "it after other text"),
    (r"expected the node content, but found '(?P<c>.*)'", "a value", "{c}"),
    (r"expected ',' or '(?P<c>.)', but got .*", "',' or a closing '{c}'", "neither"),
    (r"found undefined alias '(?P<c>.*)'", "an alias whose anchor precedes it", "*{c}"),
    (r"found unknown escape character '(?P<c>.*)'", "an escape that YAML knows (or single quotes)", "\\{c}"),
    (r"found duplicate anchor '(?P<c>[^']*)'.*", "each anchor once", "another &{c}"),
    (r"second occurrence", "each anchor once", "it again"),
]


class _Composer(yaml.SafeLoader):
    """PyYAML's composer, which checks size, depth, tags and the number of documents before it builds anything."""

    def __init__(self, text: str, source: Source) -> None:
        super().__init__(text)
        self._source = source
        self._count = self._depth = 0

    def get_event(self) -> Any:
        """Return the next event. Raises ConfigurationError."""
        event = super().get_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.NodeEvent):
            self._count += 1
            if self._count > MAX_NODES:
                self._source.refuse(*_place(event.start_mark), f"at most {MAX_NODES} values in the file", "more")
            if tag := getattr(event, "tag", None):
                self._source.tell(_place(event.start_mark), "", "a value without a tag", tag.replace(_YAML_TAG, "!!"))
        if isinstance(event, yaml.CollectionStartEvent):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                self._source.refuse(*_place(event.start_mark), f"at most {MAX_DEPTH} levels of nesting", "more")
        elif isinstance(event, yaml.CollectionEndEvent):
            self._depth -= 1
        return event

    def get_single_node(self) -> Any:
        """Return the root node of the only document, or None for an empty text. Raises ConfigurationError."""
        self.get_event()  # the start of the stream
        root = None if self.check_event(yaml.StreamEndEvent) else self.compose_document()
        if not self.check_event(yaml.StreamEndEvent):
            start = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            self._source.refuse(*_place(start), "one document in the file", "a second, after '---'")
        return root


class Source:
    """A parsed file: its values, their positions, and the mistakes found while parsing.

    Raises ConfigurationError if the file cannot be read or is not YAML.
    """

    def __init__(self, file: Path, sections: Collection[str] | None = None) -> None:
        """Parse a file, or only the given top-level sections. Mistakes in other sections are then ignored."""
        self.file = file
        self.values: dict[str, Any] = {}
        """The values of the whole file. Empty for an empty file."""
        self.problems: list[Problem] = []
        """Mistakes that are not visible in the values: duplicate keys, tags."""
        self._nodes: dict[Location, yaml.Node] = {}
        self._keys: dict[Location, yaml.Node] = {}
        self._count = 0
        text = self._decoded(self._bytes())
        if sections is not None:
            text = _only(text, sections)
        self._text = text
        try:
            root = _Composer(text, self).get_single_node()
        except yaml.MarkedYAMLError as error:
            self._refuse_syntax(error)
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            self.refuse(*_end(before), "characters that can be printed", f"U+{ord(text[error.position]):04X}")
        except (ValueError, OverflowError):  # PyYAML's own bug, for example with "\\U00110000"
            self.refuse(None, None, "YAML", "an escape or a number in it that stands for nothing")
        if root is not None and not _is_nothing(root):
            if not isinstance(root, yaml.MappingNode):
                self._refuse_node(root, "a mapping (lines of 'key: value')", _shown(root))
            self.values = self._mapping(root, (), 0)

    def problem(self, location: Location, expected: str, found: str | None = None) -> Problem:
        """Return a problem at `location` with the given expectation.

        `found` defaults to the value in the file.
        """
        # A missing key is reported at the start of its section.
        written = [location[:length] for length in range(len(location), -1, -1) if location[:length] in self._nodes]
        if not written:  # an empty file
            return Problem(self.file, None, None, dotted(location), expected, found or "nothing")
        node = self._nodes[written[0]]
        if isinstance(node, yaml.ScalarNode) and not _is_nothing(node):  # a single word in place of a section
            location = written[0]
        shown = _shown(node) if written[0] == location else "nothing"
        return Problem(self.file, *_place(node.start_mark), dotted(location), expected, found or shown)

    def key_problem(self, location: Location, expected: str, found: str | None = None) -> Problem:
        """Return a problem with the key at `location`, rather than its value."""
        place = _place(self._keys[location].start_mark)
        return Problem(self.file, *place, dotted(location), expected, found or quoted(str(location[-1])))

    def text_problem(self, location: Location, position: int, expected: str, found: str) -> Problem:
        """Return a problem with one character of the text at `location`.

        `position` is an index, from 0, into the parsed text.
        """
        node = self._nodes[location]
        assert isinstance(node, yaml.ScalarNode)
        place = place_in(self._text, node, position)
        return Problem(self.file, *place, dotted(location), expected, found)

    def key_place(self, location: Location) -> str:
        """Return the position of the key at `location`, as `file:line`."""
        return f"{self.file}:{_place(self._keys[location].start_mark)[0]}"

    def _bytes(self) -> bytes:
        try:
            with self.file.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        except FileNotFoundError:
            self.refuse(None, None, "a configuration file", "no file of this name")
        except IsADirectoryError:
            self.refuse(None, None, "a configuration file", "a directory")
        except PermissionError:
            self.refuse(None, None, "a configuration file that this user may read", "that permission is denied")
        except OSError as error:
            self.refuse(None, None, "a configuration file that can be read", f"the error {error.strerror!r}")
        if len(data) > MAX_BYTES:
            self.refuse(None, None, f"a file of at most {size_text(MAX_BYTES)}", "a longer one")
        return data

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode("utf-8")
            self.refuse(*_end(before), "text in UTF-8", f"the byte 0x{error.object[error.start]:02X}")

    def _value(self, node: yaml.Node, location: Location, depth: int) -> Any:
        self._nodes[location] = node
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location, depth)
        self._count_in(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*location, index), depth + 1) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, location: Location, depth: int) -> dict[str, Any]:
        self._nodes.setdefault(location, node)
        self._count_in(node, depth)
        result: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:  # merged values first: the mapping's own keys override them
            if _is_merge(key_node):
                result.update(self._merged(value_node, location, depth + 1))
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                found = _shown(key_node)
                self.tell(place, dotted(location), "a key that is text", found)
                continue
            key: str = key_node.value
            if key in first:
                found = f"it again, after line {first[key]}"
                self.tell(place, dotted((*location, key)), "each key once", found)
                continue
            first[key] = place[0]
            if not _is_merge(key_node):
                self._keys[*location, key] = key_node
                result[key] = self._value(value_node, (*location, key), depth + 1)
        return result

    def _merged(self, node: yaml.Node, location: Location, depth: int) -> dict[str, Any]:
        """Return the values that `<<: *anchor` or `<<: [*one, *other]` merges into the mapping at `location`."""
        self._count_in(node, depth)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location, depth)
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(part, yaml.MappingNode) for part in parts):
            self._refuse_node(node, "a mapping, or a list of mappings, to merge", _shown(node))
        result: dict[str, Any] = {}
        for part in reversed(parts):  # the first one wins
            result.update(self._mapping(part, location, depth + 1))
        return result

    def _count_in(self, node: yaml.Node, depth: int) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            self._refuse_node(node, f"at most {MAX_NODES} values in the file, aliases written out", "more")
        if depth > MAX_DEPTH:  # only an alias inside its own anchor gets here: the composer has checked the text
            self._refuse_node(node, f"at most {MAX_DEPTH} levels of nesting, aliases written out", "more")

    def _refuse_node(self, node: yaml.Node, expected: str, found: str) -> NoReturn:
        self.refuse(*_place(node.start_mark), expected, found)

    def _refuse_syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        said = error.problem or "something else"
        unclosed = said == "found unexpected end of stream"  # the end of the file would not help
        place = _place(error.context_mark if unclosed else error.problem_mark)
        for pattern, expected, found in _SYNTAX:
            if match := re.fullmatch(pattern, said, re.DOTALL):
                words = match.groupdict()
                self.refuse(*place, expected.format(**words), found.format(**words))
        self.refuse(*place, "YAML", f"what is not: {said}")

    def tell(self, place: tuple[int, int], key: str, expected: str, found: str) -> None:
        """Add a mistake that is not visible in the values."""
        self.problems.append(Problem(self.file, *place, key, expected, found))

    def refuse(self, line: int | None, column: int | None, expected: str, found: str) -> NoReturn:
        """Raise ConfigurationError. The rest of the file cannot be checked."""
        raise ConfigurationError([*self.problems, Problem(self.file, line, column, "", expected, found)])


def _only(text: str, sections: Collection[str]) -> str:
    """Return `text` with all lines outside the given sections blanked, so that line numbers stay correct."""
    lines, keep = [], False
    for line in text.splitlines():
        if line and line[0] not in " \t#":
            keep = line.partition(":")[0].strip(" \"'") in sections
        lines.append(line if keep else "")
    return "\n".join(lines)


def _place(mark: Any) -> tuple[int, int]:
    """Return the line and column of a PyYAML mark, from 1.

    Nodes and events of a text always have a mark, although the type stubs allow None.
    """
    return mark.line + 1, mark.column + 1


def _end(text: str) -> tuple[int, int]:
    """Return the line and column, from 1, of the position after `text`."""
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def _scalar(node: yaml.ScalarNode) -> str | int | float | bool | None:
    """Return the value of a scalar.

    Only unquoted words can be numbers, Booleans or null. Everything else is text.
    """
    word: str = node.value
    if node.style is not None:
        return word
    if word.lower() in _NOTHING:
        return None
    if word.lower() in _TRUTHS:
        return _TRUTHS[word.lower()]
    if _INTEGER.fullmatch(word):
        return int(word)
    if _FRACTION.fullmatch(word):
        return float(word)
    return word


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and _scalar(node) is None


def _is_merge(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value == _MERGE


def _shown(node: yaml.Node) -> str:
    """Describe a value as written: text quoted, other words unchanged."""
    if not isinstance(node, yaml.ScalarNode):
        return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
    if isinstance(_scalar(node), str):
        return quoted(node.value)
    return str(node.value) or "nothing"
