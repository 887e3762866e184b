"""The configuration file and the mapping and pipeline files that it names: loading, merging and validation."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from bridge.config.link import LinkConfig, LinkName
from bridge.config.mapping import AnyMapping, MessageAttributes, Name, PublicationAttributes
from bridge.config.models import Configuration, Names, clashes
from bridge.config.pipeline import PipelineConfig, PipelineName
from bridge.config.problems import (
    Clash,
    ConfigurationError,
    ConfigurationMistake,
    Location,
    dotted,
    expectation,
    key_expectation,
    place_of,
    quoted,
)
from bridge.config.secrets import HIDDEN, names_secret, without_secret_parts
from bridge.config.table import LookupTableName, TableConfig
from bridge.config.values import MIB, Section, Text, size_text

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
    before = sum(not character.isspace() for character in text[:position])
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

# PyYAML's error messages -> (expectation, actual content). The first match wins.
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


#: Quotes of word processors and web pages, which YAML takes for ordinary characters.
_TYPOGRAPHIC_QUOTES = "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u00ab\u00bb"
_STRAIGHT_QUOTES = "replace the typographic quotes with \" or '"
#: A value that contains { outside quotes: YAML treats the brace as the beginning of a mapping, or the value as several.
_UNQUOTED_TEMPLATE = re.compile(r""":\s+(?P<text>[^"'\s{,\[#][^"',{}]*\{[^{}]+\}[^\s,}]*|\{[^{}:]*\}[^\s,}]+)""")


#: An escape such as "\ud83d" makes one, which no text in UTF-8 can contain.
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class _Composer(yaml.SafeLoader):
    """PyYAML's composer, which checks size, depth, tags and the number of documents before it builds anything."""

    def __init__(self, text: str, source: SourceFile) -> None:
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
                self._source.add_mistake(
                    _place(event.start_mark), "", "a value without a tag", tag.replace(_YAML_TAG, "!!")
                )
        if isinstance(event, yaml.ScalarEvent) and (surrogate := _SURROGATE.search(event.value)) is not None:
            actual = f"the surrogate U+{ord(surrogate[0]):04X}"
            self._source.refuse(*_place(event.start_mark), "characters of Unicode (\\U and eight digits)", actual)
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


class SourceFile:
    """A parsed file: its values, their positions, and the mistakes found while parsing.

    Raises ConfigurationError if the file cannot be read or is not YAML.
    """

    def __init__(self, file: Path, sections: Container[str] | None = None, text: str | None = None) -> None:
        """Parse a file, or only the given top-level sections. Mistakes in other sections are then ignored.

        `text` is an edited copy of the file, which is parsed instead.
        """
        self.file = file
        self._directory = file.absolute().parent
        self.values: dict[str, Any] = {}
        """The values of the whole file. Empty for an empty file."""
        self.problems: list[ConfigurationMistake] = []
        """Mistakes that are not visible in the values: duplicate keys, tags."""
        self._nodes: dict[Location, yaml.Node] = {}
        self._keys: dict[Location, yaml.Node] = {}
        self._count = 0
        text = self._decoded(self._bytes()) if text is None else text
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

    def problem(self, location: Location, expected: str, actual: str | None = None) -> ConfigurationMistake:
        """Return a problem at `location` with the given expectation.

        `actual` defaults to the value in the file.
        """
        # A missing key is reported at the start of its section.
        places = [location[:length] for length in range(len(location), -1, -1) if location[:length] in self._nodes]
        if not places:  # an empty file
            return ConfigurationMistake(self.file, None, None, dotted(location), expected, actual or "nothing")
        node = self._nodes[places[0]]
        if isinstance(node, yaml.ScalarNode) and not _is_nothing(node):  # a single word in place of a section
            location = places[0]
        node_text = _shown(node) if places[0] == location else "nothing"
        if isinstance(node, yaml.ScalarNode):
            node_text = HIDDEN if _may_be_secret(location, node.value) else without_secret_parts(node_text)
        hint = _hint(self._text, node) if places[0] == location and "template" in expected else ""
        return ConfigurationMistake(
            self.file, *_place(node.start_mark), dotted(location), expected, actual or node_text, hint
        )

    def key_problem(self, location: Location, expected: str, actual: str | None = None) -> ConfigurationMistake:
        """Return a problem with the key at `location`, rather than its value."""
        place = _place(self._keys[location].start_mark)
        return ConfigurationMistake(self.file, *place, dotted(location), expected, actual or quoted(str(location[-1])))

    def text_problem(self, location: Location, position: int, expected: str, actual: str) -> ConfigurationMistake:
        """Return a problem with one character of the text at `location`.

        `position` is an index, from 0, into the parsed text.
        """
        node = self._nodes[location]
        assert isinstance(node, yaml.ScalarNode)
        place = place_in(self._text, node, position)
        return ConfigurationMistake(self.file, *place, dotted(location), expected, actual)

    def key_place(self, location: Location) -> str:
        """Return the position of the key at `location`, as `file:line`."""
        return f"{self.file}:{_place(self._keys[location].start_mark)[0]}"

    def places(self) -> Iterator[tuple[Location, int]]:
        """Yield the locations of all values with the lines of their keys, or of the values if they have none."""
        for location, node in self._nodes.items():
            if location:
                yield location, _place(self._keys.get(location, node).start_mark)[0]

    def strings(self) -> Iterator[tuple[Location, str]]:
        """Yield the locations of all values that are text."""
        for location, node in self._nodes.items():
            if isinstance(node, yaml.ScalarNode) and isinstance(text := _scalar(node), str):
                yield location, text

    def _bytes(self) -> bytes:
        try:
            with self.file.open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
        except FileNotFoundError:
            self.refuse(None, None, "a configuration file", "no file of this name")
        except IsADirectoryError:
            self.refuse(None, None, "a configuration file", "a directory")
        except PermissionError:
            self.refuse(None, None, "a configuration file that this user may read", "that permission is denied")
        except OSError as error:
            self.refuse(None, None, "a configuration file that can be read", f"the error {error.strerror!r}")
        if len(content) > MAX_BYTES:
            self.refuse(None, None, f"a file of at most {size_text(MAX_BYTES)}", "a longer one")
        return content

    def _decoded(self, content: bytes) -> str:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode("utf-8")
            self.refuse(*_end(before), "text in UTF-8", f"the byte 0x{error.object[error.start]:02X}")

    def _value(self, node: yaml.Node, location: Location, depth: int) -> Any:
        self._nodes[location] = node
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location, depth)
        self._count_in(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(element, (*location, index), depth + 1) for index, element in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        value = _scalar(node)
        if not isinstance(value, str):
            return value
        if node.style is None and value[0] in _TYPOGRAPHIC_QUOTES:
            self._report_quotes(node, location)
            value = value.strip(_TYPOGRAPHIC_QUOTES)
        text = Text(value)
        text.directory = self._directory
        return text

    def _mapping(self, node: yaml.MappingNode, location: Location, depth: int) -> dict[str, Any]:
        self._nodes.setdefault(location, node)
        self._count_in(node, depth)
        mapping: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:  # merged values first: the mapping's own keys override them
            if _is_merge(key_node):
                mapping.update(self._merged(value_node, location, depth + 1))
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                actual = _shown(key_node)
                self.add_mistake(place, dotted(location), "a key that is text", actual)
                continue
            key: str = key_node.value
            if key_node.style is None and key[:1] and key[0] in _TYPOGRAPHIC_QUOTES:
                self._report_quotes(key_node, (*location, key))
                key = key.strip(_TYPOGRAPHIC_QUOTES)
            if key in first:
                actual = f"it again, after line {first[key]}"
                self.add_mistake(place, dotted((*location, key)), "each key once", actual)
                continue
            first[key] = place[0]
            if not _is_merge(key_node):
                self._keys[*location, key] = key_node
                mapping[key] = self._value(value_node, (*location, key), depth + 1)
        return mapping

    def _merged(self, node: yaml.Node, location: Location, depth: int) -> dict[str, Any]:
        """Return the values that `<<: *anchor` or `<<: [*one, *other]` merges into the mapping at `location`."""
        self._count_in(node, depth)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location, depth)
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(part, yaml.MappingNode) for part in parts):
            self._refuse_node(node, "a mapping, or a list of mappings, to merge", _shown(node))
        merged: dict[str, Any] = {}
        for part in reversed(parts):  # the first one wins
            merged.update(self._mapping(part, location, depth + 1))
        return merged

    def _count_in(self, node: yaml.Node, depth: int) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            self._refuse_node(node, f"at most {MAX_NODES} values in the file, aliases written out", "more")
        if depth > MAX_DEPTH:  # only possible with an alias inside its own anchor: the composer has checked the text
            self._refuse_node(node, f"at most {MAX_DEPTH} levels of nesting, aliases written out", "more")

    def _refuse_node(self, node: yaml.Node, expected: str, actual: str) -> NoReturn:
        self.refuse(*_place(node.start_mark), expected, actual)

    def _refuse_syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        reason = error.problem or "something else"
        unclosed = reason == "found unexpected end of stream"  # the position of the end of the file would not help
        place = _place(error.context_mark if unclosed else error.problem_mark)
        line = self._text.splitlines()[place[0] - 1 : place[0]]
        hint = _syntax_hint(line[0]) if line else ""
        for pattern, expected, actual in _SYNTAX:
            if match := re.fullmatch(pattern, reason, re.DOTALL):
                words = match.groupdict()
                self.refuse(*place, expected.format(**words), actual.format(**words), hint)
        self.refuse(*place, "YAML", f"invalid YAML: {reason}", hint)

    def _report_quotes(self, node: yaml.ScalarNode, location: Location) -> None:
        self.add_mistake(
            _place(node.start_mark), dotted(location), "straight quotes", quoted(node.value), _STRAIGHT_QUOTES
        )

    def add_mistake(self, place: tuple[int, int], key: str, expected: str, actual: str, hint: str = "") -> None:
        """Add a mistake that is not visible in the values."""
        self.problems.append(ConfigurationMistake(self.file, *place, key, expected, actual, hint))

    def refuse(self, line: int | None, column: int | None, expected: str, actual: str, hint: str = "") -> NoReturn:
        """Raise ConfigurationError. The rest of the file cannot be checked."""
        raise ConfigurationError(
            [*self.problems, ConfigurationMistake(self.file, line, column, "", expected, actual, hint)]
        )


def _only(text: str, sections: Container[str]) -> str:
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


def _may_be_secret(location: Location, value: str) -> bool:
    """Return whether a value may be a secret, perhaps in place of the environment variable that contains it."""
    name = next((key for key in reversed(location) if isinstance(key, str)), "")
    return names_secret(name) or (name.endswith("_variable") and not value.isidentifier())


def _hint(text: str, node: yaml.Node) -> str:
    """Return a hint if a value is a mapping, but looks like a template without quotes, such as {line|upper}."""
    if (
        not isinstance(node, yaml.MappingNode)
        or not node.flow_style
        or not all(_is_nothing(value_node) for _, value_node in node.value)
    ):
        return ""
    return f'put templates in quotes: "{text[node.start_mark.index : node.end_mark.index]}"'


def _syntax_hint(line: str) -> str:
    """Return a hint if a line that is not YAML has typographic quotes, or a template without quotes."""
    if any(quote in line for quote in _TYPOGRAPHIC_QUOTES):
        return _STRAIGHT_QUOTES
    match = _UNQUOTED_TEMPLATE.search(line)
    return f'put templates in quotes: "{match["text"]}"' if match else ""


Examine = Callable[[Configuration, Names], list[Clash]]
"""Semantic check of the valid parts of a configuration (`bridge.mapping.check`). The names are those of its invalid parts."""

SUFFIXES = (".yaml", ".yml")
"""Suffixes of mapping files in a directory."""

#: Sections that may be a list of files -> singular noun for error messages.
_LISTED = {"mappings": "mapping", "pipelines": "pipeline"}
_NOT_STANDARD = "exactly the standard profile, because it cannot be changed (write attributes: in a mapping instead)"
_HAS_NO_EFFECT = "standard has no effect: it states the defaults (hint: delete it)"


def load(path: Path, examine: Examine | None = None, text: str | None = None) -> Configuration:
    """Load the configuration from the YAML file `path`.

    Missing keys have their defaults. An empty file is valid. Relative paths in the file are relative to its directory. Raises
    ConfigurationError with all problems of the file and of the mapping files that it names, in line order. A syntax error
    hides later problems of the same file. `text` is an edited copy of the file, which is read instead.
    """
    collection = Collection(path, text)
    problems = list(collection.problems)
    conflicts: list[Clash] = []
    wrong: dict[str, set[str]] = {}
    try:
        configuration = Configuration.model_validate(collection.values)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems += [_value_problem(collection, detail) for detail in details if detail["type"] != "clash"]
        # pydantic checks for clashes only if every value is valid. Report them now as well.
        configuration, wrong = _valid_parts(collection.values, details)
        conflicts = clashes(configuration, wrong)
    if examine is not None:
        conflicts += examine(configuration, wrong)
    problems += [collection.clash_problem(clash) for clash in conflicts]
    if problems:
        raise ConfigurationError(collection.in_order(problems))
    configuration.locate(path, collection.places(), collection.notes)
    return configuration


def new_files(path: Path, text: str) -> list[ConfigurationMistake]:
    """Return a mistake for each existing file that an edited copy of the file `path` names, and the file itself does not.

    Messages about mistakes quote the files that they are in, so a copy of unknown origin could read any file. Raises
    ConfigurationError if the copy is not YAML.
    """
    copy, directory = SourceFile(path, text=text), path.absolute().parent
    try:
        files = {_real(directory, value) for _, value in SourceFile(path).strings()}
    except ConfigurationError:
        files = set()
    mistakes = []
    for location, value in copy.strings():
        real = _real(directory, value)
        if real is None or real in files:
            continue
        is_listed = len(location) == 2 and location[0] in _LISTED
        if real.is_file() or (is_listed and real.is_dir()):
            expected = "only files that the present configuration names (check others with `mqbridge check`)"
            mistakes.append(copy.problem(location, expected))
    return mistakes


def _real(directory: Path, value: str) -> Path | None:
    """Return the file or directory that a text names, or None if it does not exist."""
    try:
        real = (directory / value).resolve()
        return real if real.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, a cycle of links, a NUL
        return None


def _value_problem(collection: Collection, detail: ErrorDetails) -> ConfigurationMistake:
    location, is_key = place_of(detail, Configuration)
    problem_at = collection.key_problem if is_key else collection.problem
    return problem_at(location, expectation(detail, Configuration))


#: The sections that are needed to reach a running bridge and its queue manager.
_CONNECTION_SECTIONS = ("queue_manager", "control_socket", "transmission_queue")


def load_connection(path: Path) -> Configuration:
    """Load only the sections that are needed to reach a running bridge and its queue manager.

    All other sections have their defaults, and mistakes in them are ignored, even of syntax. Raises ConfigurationError.
    """
    source = SourceFile(path, _CONNECTION_SECTIONS)
    if source.problems:
        raise ConfigurationError(source.problems)
    try:
        return Configuration.model_validate(source.values)
    except ValidationError as error:
        locations = [
            place_of(detail, Configuration)[0] for detail in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigurationError(
            [source.problem(location, "a value that is valid") for location in locations]
        ) from error


#: Sections whose entries have names. An invalid entry is omitted from the valid parts, with all its options.
_NAMED = ("links", "mappings", "tables", "pipelines")


def _valid_parts(values: Mapping[str, Any], details: list[ErrorDetails]) -> tuple[Configuration, dict[str, set[str]]]:
    """Return the valid parts of an invalid file, for the detection of clashes, and the names of invalid entries by section.

    Invalid options have their defaults. The name and port of a channel are replaced by values that clash with nothing.
    """
    parts: dict[str, Any] = copy.deepcopy(dict(values))
    wrong: dict[str, set[str]] = {}
    for _ in range(MAX_DEPTH):  # removing an option can make others invalid
        places = (place_of(detail, Configuration)[0] for detail in details if detail["type"] != "clash")
        for section, *below in filter(None, places):  # a detail about the whole file has no place
            if section in _NAMED and below:
                wrong.setdefault(str(section), set()).add(str(below[0]))
            if section == "channels" and below:
                _repair_channel(parts["channels"], int(below[0]), below[1:])
            elif below and isinstance(options := parts.get(str(section)), dict) and below[0] in options:
                del options[below[0]]
            elif section not in _NAMED or not below:
                parts.pop(str(section), None)
        try:
            return Configuration.model_validate(parts, context={"parts": True}), wrong
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
    return Configuration(), wrong


def _repair_channel(channels: list[Any], index: int, below: Sequence[str | int]) -> None:
    free = {"name": f"%{index}%", "port": 0}
    if not below or not isinstance(channels[index], dict) or below[0] not in channels[index]:
        channels[index] = free
        return
    del channels[index][below[0]]
    if below[0] in ("name", "port", "address"):
        key = "name" if below[0] == "name" else "port"
        channels[index][key] = free[key]


class Collection:
    """The values of a configuration file, merged with the files named under `mappings` and `pipelines`.

    Raises ConfigurationError if the configuration file cannot be read or is not YAML.
    """

    def __init__(self, file: Path, text: str | None = None) -> None:
        """`text` is an edited copy of the file, which is parsed instead."""
        self._main = SourceFile(file, text=text)
        self.values: dict[str, Any] = dict(self._main.values)
        """The whole configuration, with the mappings, pipelines, links and tables of all files."""
        self.problems: list[ConfigurationMistake] = list(self._main.problems)
        """Mistakes that are not visible in the values: duplicate names, paths that do not exist, unreadable files."""
        self.notes: list[str] = []
        """Lines about keys that are valid, but have no effect."""
        self._files = [self._main.file]
        # (section, name) of a mapping, pipeline or link -> the file that contains it, and its location there.
        self._places: dict[Location, tuple[SourceFile, Location]] = {}
        lists = {section: listed for section in _LISTED if isinstance(listed := self._main.values.get(section), list)}
        if lists:
            for section in ("links", "tables", *_LISTED):
                self._places |= {(section, name): (self._main, (section, name)) for name in self._names(section)}
        for section, word in _LISTED.items():
            listed = self._main.values.get(section)
            if listed is not None and not isinstance(listed, dict):
                self.values[section] = {}
                if section not in lists:
                    self._add_mistake(self._main, (section,), f"{section} by name, or a list of paths of {word} files")
        for section, items in lists.items():
            for index, item in enumerate(items):
                self._add_item((section, index), item)

    def problem(self, location: Location, expected: str, actual: str | None = None) -> ConfigurationMistake:
        """Return a problem at `location` of the merged values, with its position in its file."""
        source, place = self._written(location)
        return source.problem(place, expected, actual)

    def key_problem(self, location: Location, expected: str) -> ConfigurationMistake:
        """Return a problem with the key at `location` of the merged values, rather than its value."""
        source, place = self._written(location)
        return source.key_problem(place, expected)

    def text_problem(self, location: Location, position: int, expected: str, actual: str) -> ConfigurationMistake:
        """Return a problem with one character of the text at `location`.

        `position` is an index, from 0, into the parsed text.
        """
        source, place = self._written(location)
        return source.text_problem(place, position, expected, actual)

    def clash_problem(self, clash: Clash) -> ConfigurationMistake:
        """Return the problem for a clash, with its position in its file."""
        problem = self.problem(clash.location, clash.expected, clash.found)
        return replace(problem, found=f"{problem.found} again, {clash.again}") if clash.again else problem

    def in_order(self, problems: list[ConfigurationMistake]) -> list[ConfigurationMistake]:
        """Sort `problems` by file, in reading order, then by position."""
        order = {file: index for index, file in enumerate(self._files)}
        return sorted(
            problems, key=lambda mistake: (order.get(mistake.file, len(order)), mistake.line or 0, mistake.column or 0)
        )

    def places(self) -> dict[Location, str]:
        """Return the places of all values of the merged configuration, as `file:line`."""
        places = {location: f"{self._main.file}:{line}" for location, line in self._main.places()}
        entries: dict[SourceFile, dict[Location, Location]] = {}
        for merged, (source, way) in self._places.items():
            entries.setdefault(source, {})[way] = merged
        for source, ways in entries.items():
            for location, line in source.places():
                for length in (2, 3):  # an entry is at (section, name), or at (section, index, name) in a list of files
                    if (entry := ways.get(location[:length])) is not None:
                        places[*entry, *location[length:]] = f"{source.file}:{line}"
        return places

    def _written(self, location: Location) -> tuple[SourceFile, Location]:
        source, way = self._places.get(location[:2], (self._main, location[:2]))
        return source, (*way, *location[2:])

    def _add_item(self, location: Location, item: Any) -> None:
        """Add an item of the list under `mappings` or `pipelines`: a path, or entries by name."""
        section = str(location[0])
        word = _LISTED[section]
        if isinstance(item, dict):
            self._merge(section, item, self._main, location)
        elif not isinstance(item, str) or not item or not item.isprintable():
            self._add_mistake(
                self._main, location, f"the path of a {word} file or a directory of such, or {section} by name"
            )
        else:
            path = self._main.file.parent / item
            for file in _files_at(path):
                self._add_file(location, file)
            if not path.exists():
                actual = f"{quoted(item)}, which does not exist"
                self._add_mistake(self._main, location, f"the path of a {word} file, or of a directory of such", actual)

    def _add_file(self, location: Location, file: Path) -> None:
        if any(file.samefile(other) for other in self._files):
            word = _LISTED[str(location[0])]
            self._add_mistake(self._main, location, f"each {word} file once, and not this file itself", f"{file} again")
            return
        self._files.append(file)
        try:
            source = SourceFile(file)
        except ConfigurationError as error:
            self.problems += error.problems
            return
        self.problems += source.problems
        for key, value in source.values.items():
            if key not in MappingFile.model_fields:
                self.problems.append(source.key_problem((key,), key_expectation(key, MappingFile)))
            elif key == "standard":
                if is_standard(value):
                    self.notes.append(f"{source.key_place((key,))}: {_HAS_NO_EFFECT}")
                else:
                    self._add_mistake(source, (key,), _NOT_STANDARD)
            elif isinstance(value, dict):
                self._merge(key, value, source, (key,))
            elif isinstance(value, list) and key in _LISTED:
                self._add_mistake(
                    source, (key,), f"{key} by name, because a {_LISTED[key]} file names no further files"
                )
            elif value is not None:
                self._add_mistake(source, (key,), "a mapping (lines of 'key: value')")

    def _merge(self, section: str, entries: dict[str, Any], source: SourceFile, location: Location) -> None:
        """Merge the named entries at `location` of a file into `section`."""
        whole = self.values.get(section)
        if whole is not None and not isinstance(whole, dict):
            return  # the section itself is invalid, which is reported elsewhere
        merged = dict(whole or {})
        for name, value in entries.items():
            place: Location = (section, name)
            if place in self._places:
                other, way = self._places[place]
                again = f"{quoted(name)} again, which is also at {other.key_place(way)}"
                expected = f"a name that no other {section.removesuffix('s')} has"
                self.problems.append(source.key_problem((*location, name), expected, again))
                continue
            self._places[place] = (source, (*location, name))
            merged[name] = value
        self.values[section] = merged

    def _names(self, section: str) -> list[str]:
        listed = self._main.values.get(section)
        return list(listed) if isinstance(listed, dict) else []

    def _add_mistake(self, source: SourceFile, location: Location, expected: str, actual: str | None = None) -> None:
        self.problems.append(source.problem(location, expected, actual))


def _files_at(path: Path) -> Iterator[Path]:
    """Yield the files that a path names: the file itself, or the mapping files of a directory, sorted by name."""
    if not path.is_dir():
        yield from [path] if path.exists() else []
        return
    for file in sorted(path.iterdir()):
        if file.suffix in SUFFIXES and file.is_file() and not file.name.startswith("."):
            yield file


class StandardProfile(Section):
    """The default attributes of mappings, in both directions."""

    to_mq: MessageAttributes = Field(default_factory=MessageAttributes)
    """Integration tables 1 to 3: from a publication to an MQ message."""
    to_mqtt: PublicationAttributes = Field(default_factory=PublicationAttributes)
    """Integration tables 4 and 5: from an MQ message to a publication."""


def is_standard(stated: object) -> bool:
    """Return whether `stated`, unvalidated values, equals the standard profile."""
    try:
        return StandardProfile.model_validate(stated) == StandardProfile()
    except ValidationError:
        return False


class MappingFile(Section):
    """The structure of a mapping or pipeline file. Its values are validated as part of the configuration."""

    mappings: dict[Name, AnyMapping] = Field(default_factory=dict)
    """Mappings by name, as in the configuration file. Unlike there, a list of files is not allowed."""
    links: dict[LinkName, LinkConfig] = Field(default_factory=dict)
    """Links by name, as in the configuration file."""
    tables: dict[LookupTableName, TableConfig] = Field(default_factory=dict)
    """Tables by name, as in the configuration file."""
    pipelines: dict[PipelineName, PipelineConfig] = Field(default_factory=dict)
    """Pipelines by name, as in the configuration file."""
    standard: StandardProfile | None = None
    """Obsolete. The default attributes of mappings, which cannot be changed. Any other value is a mistake."""
