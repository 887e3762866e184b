"""Templates: text that contains `{name|filter|filter:'argument'}`, rendered for a message.

:mod:`bridge.mapping.attributes` provides the values of the names. A name that begins with `$` is a field of the JSON payload,
and one that begins with `@` a field of its part. `{table[name].column}` looks up a row by the value of a name. Literal braces
are doubled.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, Self

from bridge.mapping.json_document import (
    KEY_ENDS,
    MISSING,
    PathError,
    PayloadPath,
    encoded,
    parse_path,
    value_json,
    value_text,
)
from bridge.mapping.table import LookupScope, key_text, row_of
from bridge.telemetry.headers import TEXT_PROPERTIES
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD


class RuleError(ValueError):
    """A mapping that cannot be converted to a rule. The message is a sentence for the author of the mapping.

    `column` is a position in the faulty text, from 1, or None if the error has no single position. `location` is the path of
    the faulty part of the mapping (`("to", "queue")`). It is empty until the rule adds it.
    """

    def __init__(self, sentence: str, column: int | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.column = column
        self.location: tuple[str, ...] = ()

    @classmethod
    def at(cls, location: tuple[str, ...], sentence: str) -> Self:
        """Create an error with a location."""
        error = cls(sentence)
        error.location = location
        return error

    @property
    def where(self) -> str:
        """The location as a dotted path, or "" if it is unknown."""
        return ".".join(self.location)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.sentence}" + (f" (column {self.column})" if self.column is not None else "")


class PatternError(RuleError):
    """An invalid topic filter with captures."""


class TemplateError(RuleError):
    """An invalid template, or a template that refers to an unknown name."""


class FilterError(RuleError):
    """An invalid filter."""


class RecordLayoutError(RuleError):
    """A copybook that cannot be used, or options that do not fit it."""


class Scope(LookupScope, Protocol):
    """The values of a message that templates use."""

    def __call__(self, name: str, /) -> str | None:
        """Return the value of a name, or None if the message has none."""
        ...

    @property
    def document(self) -> Any:
        """The payload parsed as JSON. Raises Unmappable."""

    @property
    def part(self) -> Any:
        """The part of the document that `split` has made."""


Filter = Callable[[str | None], str | None]

#: Names that messages provide besides captures, properties and MQMD fields -> description.
WORDS: Mapping[str, str] = {
    "topic": "topic of the publication",
    "clientId": "client identifier of the publisher",
    "qos": "QoS of the publication; for a message of an MQ application, the QoS that follows from its persistence",
    "messageId": "packet identifier of the publication",
    "retained": "`true` if the publication is retained, otherwise `false`",
    "user": "user of the publisher; for a message of an MQ application, its UserIdentifier. With IBM MQ, a publication from "
    "a topic has the user of the mapping's subscription: use clientId",
    "text": "payload as text",
    **{
        element: f"{title} (MQTT 5)" + ("" if text is str else ", in hexadecimal")
        for _, element, title, text in TEXT_PROPERTIES
    },
}
MD_FIELDS = frozenset(MQMD.__struct_fields__)
#: Name of the reason in an MQDLH, such as MQRC_Q_FULL, in addition to its fields.
REASON_NAME = "ReasonName"
#: Folder of names -> its fields.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "md": MQMD.__struct_fields__,
    "dlh": (*MQDLH.__struct_fields__, REASON_NAME),
}

_TOKEN = re.compile(r"\{\{|\}\}|\{|\}|[^{}]+")
_ROOT = re.compile(r"\s*[$@]")
_NAME = re.compile(r"\s*([^\s|{}':]+)\s*")
#: A lookup: the table, its key unless that is a query, and the column.
_TABLE = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\[\s*")
_KEY = re.compile(r"[^\s|{}':\[\]]+")
_COLUMN = re.compile(r"""\s*\](?:\.(?P<plain>[^\s.|{}\[\]'":]+)|\[\s*(?P<quoted>'[^'{}]*'|"[^"{}]*")\s*\])\s*""")
#: A text in quotes, a filter or a lookup in the place of a key.
_WRONG_KEY = re.compile(r"""['"{]|[^\s|{}':\[\]]*\s*(?:\|[^}]*\]|\[)""")
_LOOKUP_FORM = (
    "a lookup is {TABLE[KEY].COLUMN|FILTER}, such as {devices[$.id].site|upper}, and KEY is one name or field, without quotes"
    " and filters"
)
_FILTER = re.compile(r"\|\s*([A-Za-z]*)\s*(?::\s*'([^']*)'\s*)?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9._%]")


def check_name(name: str, column: int | None = None) -> None:
    """Raise TemplateError for a name that no message can have."""
    folder, dot, field = name.partition(".")
    if dot and folder in FIELDS and field not in FIELDS[folder]:
        near = [field_name for field_name in FIELDS[folder] if field_name.lower() == field.lower()]
        hint = f"did you mean {folder}.{near[0]}?" if near else f"there are {', '.join(FIELDS[folder])}"
        raise TemplateError(f"MQ{folder.upper()} has no field {field!r}; {hint}", column)
    if not all(name.split(".")):
        raise TemplateError(f"{name!r} is not a name; write folder.property, such as usr.site", column)


class Lookup(NamedTuple):
    """A column of the row of a table whose key is the value of a name."""

    table: str
    column: str


class Placeholder(NamedTuple):
    """A name in a template, and the filters for its value."""

    #: the name, or that of the key of a lookup
    name: str
    filters: tuple[Filter, ...]
    #: the filters as written: (name, argument)
    written: tuple[tuple[str, str | None], ...]
    #: the query of a payload field. None: the name is not a payload field
    path: PayloadPath | None = None
    #: the table in which the value is a key, or None
    lookup: Lookup | None = None

    @property
    def is_typed(self) -> bool:
        """Whether the value is a value of JSON: a field of the payload, or a value of a table."""
        return self.path is not None or self.lookup is not None

    def value(self, scope: Scope) -> str | None:
        """Return the filtered value for a message, or None if it is missing. Raises Unmappable."""
        if self.path is None and self.lookup is None:
            value = scope(self.name)
        else:
            selected = self.selected(scope)
            is_json = self.written and self.written[0][0] == _JSON
            value = value_json(selected) if is_json else value_text(selected, self.shown)
        for filtered in self.filters:
            value = filtered(value)
        return value

    def selected(self, scope: Scope) -> Any:
        """Return the unfiltered value of JSON, or MISSING. Raises Unmappable."""
        if self.lookup is None:
            assert self.path is not None
            return self.path.value(scope.part if self.path.of_part else scope.document)
        key = self._key(scope)
        row = None if key is None else row_of(scope, self.lookup.table, key)
        return MISSING if row is None else scope.tables[self.lookup.table].value(row, self.lookup.column)

    def _key(self, scope: Scope) -> str | None:
        if self.path is None:
            return scope(self.name)
        return key_text(self.path.value(scope.part if self.path.of_part else scope.document))

    @property
    def shown(self) -> str:
        """The placeholder without filters, as written."""
        return self.name if self.lookup is None else f"{self.lookup.table}[{self.name}].{self.lookup.column}"

    def lack(self, scope: Scope) -> str:
        """Return the reason why a message has no value for this placeholder. Raises Unmappable."""
        key = None if self.lookup is None else self._key(scope)
        if self.lookup is None or key is None:
            return f"the {'message' if self.path is None else 'payload'} has no {self.name}"
        table, column = self.lookup
        if scope.tables[table].row(key) is None:
            return f"table {table} has no row {key[:100]!r}"
        return f"row {key[:100]!r} of table {table} has no {column}"


class Template:
    """A parsed template. Raises TemplateError."""

    __slots__ = ("is_bytes", "literal", "names", "pieces", "reads_payload", "tables", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        surrogate = _SURROGATE.search(text)
        if surrogate is not None:
            raise TemplateError("half of a surrogate pair is not a character", surrogate.start() + 1)
        pieces: list[str | Placeholder] = []
        position = 0
        while position < len(text):
            token = _TOKEN.match(text, position)
            assert token is not None  # the alternatives match every character
            if token[0] == "{":
                placeholder, position = _placeholder(text, position)
                pieces.append(placeholder)
                continue
            if token[0] == "}":
                raise TemplateError("} has no partner; }} stands for a literal }", position + 1)
            literal = token[0][0] if token[0] in ("{{", "}}") else token[0]
            if pieces and isinstance(pieces[-1], str):
                pieces[-1] += literal
            else:
                pieces.append(literal)
            position = token.end()
        #: the literal texts and placeholders, in order
        self.pieces = tuple(pieces)
        #: the names in the template
        self.names = frozenset(piece.name for piece in pieces if isinstance(piece, Placeholder))
        #: whether the template uses fields of the payload
        self.reads_payload = any(isinstance(piece, Placeholder) and piece.path is not None for piece in pieces)
        #: the tables in which the template looks up
        self.tables = frozenset(
            piece.lookup.table for piece in pieces if isinstance(piece, Placeholder) and piece.lookup is not None
        )
        #: the text of a template without placeholders; None for any other template
        self.literal = None if self.names else "".join(piece for piece in pieces if isinstance(piece, str))
        #: whether the rendered text contains the hexadecimal digits of bytes, because of the filter `bytes`
        self.is_bytes = _is_bytes(pieces)

    def __reduce__(self) -> tuple[type[Template], tuple[str]]:
        return Template, (self.text,)

    def render(self, scope: Scope) -> str:
        """Return the text with all placeholders replaced.

        Raises Unmappable if a name has no value, or if a filter rejects its value.
        """
        if self.literal is not None:
            return self.literal
        rendered = []
        for piece in self.pieces:
            if isinstance(piece, str):
                rendered.append(piece)
                continue
            value = piece.value(scope)
            if value is None:
                why = f"{self.text!r} cannot be filled: {piece.lack(scope)}"
                raise Unmappable(cmqc.MQRC_PROPERTY_NOT_AVAILABLE, why)
            rendered.append(value)
        return "".join(rendered)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


@lru_cache(4096)
def template_of(text: str) -> Template:
    """Parse a template (cached). Raises TemplateError."""
    return Template(text)


def template_of_columns(text: str) -> Template:
    """Parse a template whose names are the columns of a row. Raises TemplateError."""
    template = Template(text)
    if template.reads_payload:
        raise TemplateError("a row has columns, not fields of a payload (hint: select payload:device.id::string AS id)")
    if template.tables:
        raise TemplateError(
            "a lookup is for templates of mappings (hint: tables of the pipeline, and a JOIN in select)"
        )
    return template


def _placeholder(text: str, start: int) -> tuple[Placeholder, int]:
    """Parse the placeholder at `start`. Returns it with its end position."""
    path: PayloadPath | None = None
    lookup: Lookup | None = None
    root = _ROOT.match(text, start + 1)
    looked_up = _lookup(text, start + 1)
    if looked_up is not None:
        name, path, lookup, position = looked_up
    elif root is not None:
        try:
            path, end = parse_path(text, root.end() - 1)
        except PathError as error:
            raise TemplateError(
                f"{{{text[start + 1 : error.position].strip()}: {error.sentence}", error.position + 1
            ) from error
        name, position = path.text, end + len(text[end:]) - len(text[end:].lstrip())
    else:
        match = _NAME.match(text, start + 1)
        if match is None:
            raise TemplateError("a name is missing after {; {{ stands for a literal {", start + 2)
        name, position = match[1], match.end()
        check_name(name, match.start(1) + 1)
    filters: list[Filter] = []
    as_written: list[tuple[str, str | None]] = []
    while text.startswith("|", position):
        filter_match = _FILTER.match(text, position)
        assert filter_match is not None  # the text starts with |
        column = filter_match.start(1) + 1
        filter_ = _filter(filter_match[1], filter_match[2], column)
        # The placeholder itself applies `json` to a value of JSON.
        if (path is None and lookup is None) or as_written or filter_match[1] != _JSON:
            filters.append(filter_)
        as_written.append((filter_match[1], filter_match[2]))
        position = filter_match.end()
    if not text.startswith("}", position):
        raise TemplateError(f"}} is missing after {{{text[start + 1 : position].strip()}", position + 1)
    return Placeholder(name, tuple(filters), tuple(as_written), path, lookup), position + 1


def _lookup(text: str, start: int) -> tuple[str, PayloadPath | None, Lookup, int] | None:
    """Parse the lookup at `start`, without filters. Returns key, query of the key, table and column, and the end.

    Return None if there is no lookup. Raises TemplateError.
    """
    table = _TABLE.match(text, start)
    if table is None:
        return None
    path: PayloadPath | None = None
    position = table.end()
    if text[position : position + 1] in ("$", "@"):
        try:
            path, position = parse_path(text, position, KEY_ENDS)
        except PathError as error:
            raise TemplateError(error.sentence, error.position + 1) from error
        name = path.text
    else:
        if _WRONG_KEY.match(text, position) is not None:
            raise TemplateError(_LOOKUP_FORM, position + 1)
        key = _KEY.match(text, position)
        if key is None:
            return None
        name, position = key[0], key.end()
    column = _COLUMN.match(text, position)
    if column is None:
        if path is None:
            return None  # a property with brackets in its name
        raise TemplateError(_LOOKUP_FORM, position + 1)
    if text[column.end() : column.end() + 1] not in ("", "|", "}"):
        raise TemplateError(_LOOKUP_FORM, column.end() + 1)
    if path is None:
        check_name(name, table.end() + 1)
    return name, path, Lookup(table[1], column["plain"] or column["quoted"][1:-1]), column.end()


def _is_bytes(pieces: Sequence[str | Placeholder]) -> bool:
    """Return whether the filter `bytes` is used. Raises TemplateError unless its result is the whole template."""
    filters = [[name for name, _ in piece.written] for piece in pieces if isinstance(piece, Placeholder)]
    if not any(_BYTES in names for names in filters):
        return False
    if len(pieces) > 1 or _BYTES in filters[0][:-1]:
        raise TemplateError("bytes is the last filter of a template with one name and no other text")
    return True


def _filter(name: str, argument: str | None, column: int) -> Filter:
    if name == "default":
        if argument is None:
            raise TemplateError("default needs a value after it, as in default:'none'", column)
        return partial(_default, argument)
    if name not in _FILTERS:
        filter_names = ", ".join((*_FILTERS, "default:'…'"))
        raise TemplateError(
            f"{name!r} is not a filter; available filters: {filter_names}"
            if name
            else f"a filter follows |: {filter_names}",
            column,
        )
    if argument is not None:
        raise TemplateError(f"{name} accepts no value", column)
    return _FILTERS[name]


def filters_in_words() -> dict[str, str]:
    """Return the filters as written in templates -> their descriptions, for the reference page."""
    filters: dict[str, Callable[..., str | None]] = {**_FILTERS, "default:'…'": _default}
    return {
        name: (inspect.getdoc(function) or "").removeprefix("Return ").rstrip(".") for name, function in filters.items()
    }


def _default(otherwise: str, value: str | None) -> str:
    """Return the value, or the text between the quotes if there is no value or it is empty."""
    return value or otherwise


def _upper(value: str | None) -> str | None:
    """Return the value in upper case."""
    return value and value.upper()


def _lower(value: str | None) -> str | None:
    """Return the value in lower case."""
    return value and value.lower()


def _trim(value: str | None) -> str | None:
    """Return the value without leading and trailing white space."""
    return value and value.strip()


def _mqname(value: str | None) -> str | None:
    """Return the value as an MQ object name: `/` becomes a dot, any other invalid character an underscore."""
    # IBM MQ documentation, "Rules for naming IBM MQ objects".
    return value and _NOT_OF_A_NAME.sub("_", value.replace("/", "."))


def _text(value: str | None) -> str | None:
    """Return the text of a byte field, decoded from its hexadecimal digits."""
    if value is None:
        return None
    try:
        return _decoded(value).rstrip(b"\0 ").decode()
    except UnicodeDecodeError as error:
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, f"the bytes {value} are not UTF-8") from error


def _json(value: str | None) -> str | None:
    """Return the value as JSON: text with quotes, and other values of the payload as they are."""
    return value if value is None else encoded(value).decode()


def _bytes(value: str | None) -> str | None:
    """Return the bytes of a byte field, whatever their number. Last filter of `msg_id`, `correl_id`, `correlation_data`."""
    return value if value is None else _decoded(value).hex()


def _decoded(value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError as error:
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, f"{value!r} is not a byte field in hexadecimal") from error


_BYTES, _JSON = "bytes", "json"
_FILTERS: dict[str, Filter] = {
    "upper": _upper,
    "lower": _lower,
    "mqname": _mqname,
    "text": _text,
    _BYTES: _bytes,
    _JSON: _json,
    "trim": _trim,
}
