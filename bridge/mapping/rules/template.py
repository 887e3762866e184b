"""Templates: text with `{name|filter|filter:'argument'}` in it, filled from a message.

What a name stands for is its scope's to say (:mod:`bridge.mapping.rules.scope`); here it is looked up, filtered, and put in
its place. Literal braces are written twice.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from bridge.telemetry.headers import TEXT_PROPERTIES
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class RuleError(ValueError):
    """A mapping cannot be made a rule. The text is a sentence for the person who wrote it.

    `column` counts from 1 in the text that is wrong; None if no single place is. `location` leads to the part of the mapping
    that is wrong (`("to", "queue")`); it is empty until the rule adds it.
    """

    def __init__(self, sentence: str, column: int | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.column = column
        self.location: tuple[str, ...] = ()

    @classmethod
    def at(cls, location: tuple[str, ...], sentence: str) -> RuleError:
        """Make the error of a part of the mapping."""
        error = cls(sentence)
        error.location = location
        return error

    @property
    def where(self) -> str:
        """The part of the mapping, as a dotted path; "" if it is unknown."""
        return ".".join(self.location)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.sentence}" + (f" (column {self.column})" if self.column is not None else "")


class PatternError(RuleError):
    """A topic filter with captures that cannot be read."""


class TemplateError(RuleError):
    """A template that cannot be read, or refers to what there is not."""


class FilterError(RuleError):
    """A filter that cannot be read."""


#: name -> its value, None where the message has none
Scope = Callable[[str], str | None]
Filter = Callable[[str | None], str | None]

#: What stands in messages beside captures, properties and MQMD fields: its name, and what it is in words.
WORDS: Mapping[str, str] = {
    "topic": "topic of the publication",
    "clientId": "client identifier of who published it",
    "qos": "QoS of the publication; of a message that no MQTT client published, what its persistence makes of it",
    "messageId": "packet identifier of the publication",
    "retained": "`true` or `false`: whether it is retained",
    "user": "user name of who published it; of a message, its UserIdentifier",
    "text": "payload as text",
    **{
        element: f"{title} (MQTT 5)" + ("" if text is str else ", in hexadecimal")
        for _, element, title, text in TEXT_PROPERTIES
    },
}
MD_FIELDS = frozenset(MQMD.__struct_fields__)

_TOKEN = re.compile(r"\{\{|\}\}|\{|\}|[^{}]+")
_NAME = re.compile(r"\s*([^\s|{}':]+)\s*")
_FILTER = re.compile(r"\|\s*([A-Za-z]*)\s*(?::\s*'([^']*)'\s*)?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9._%]")


def check_name(name: str, column: int | None = None) -> None:
    """Raise TemplateError for a name that no message can have."""
    folder, dot, field = name.partition(".")
    if folder == "md" and dot and field not in MD_FIELDS:
        near = [known for known in MQMD.__struct_fields__ if known.lower() == field.lower()]
        hint = f"did you mean md.{near[0]}?" if near else f"there are {', '.join(MQMD.__struct_fields__)}"
        raise TemplateError(f"MQMD has no field {field!r}; {hint}", column)
    if not all(name.split(".")):
        raise TemplateError(f"{name!r} is no name; write folder.property, such as usr.site", column)


class Placeholder(NamedTuple):
    """A name in a template, and what its value goes through."""

    name: str
    filters: tuple[Filter, ...]
    #: the same as it is written: (name of the filter, its argument)
    written: tuple[tuple[str, str | None], ...]


class Template:
    """A text with names in it. Raises TemplateError."""

    __slots__ = ("_literal", "_pieces", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        surrogate = _SURROGATE.search(text)
        if surrogate is not None:
            raise TemplateError("half of a surrogate pair is no character", surrogate.start() + 1)
        pieces: list[str | Placeholder] = []
        position = 0
        while position < len(text):
            token = _TOKEN.match(text, position)
            assert token is not None  # the alternatives take every character
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
        self._pieces = tuple(pieces)
        #: what it refers to
        self.names = frozenset(piece.name for piece in pieces if isinstance(piece, Placeholder))
        self._literal = None if self.names else "".join(piece for piece in pieces if isinstance(piece, str))

    def __reduce__(self) -> tuple[type[Template], tuple[str]]:
        return Template, (self.text,)

    @property
    def literal(self) -> str | None:
        """Return the text of a template that refers to nothing; None for any other template."""
        return self._literal

    @property
    def pieces(self) -> tuple[str | Placeholder, ...]:
        """Return the literal text, and the placeholders that stand between."""
        return self._pieces

    def render(self, scope: Scope) -> str:
        """Return the filled text.

        Raises Unmappable when a name has no value, or a filter cannot take the value it has.
        """
        if self._literal is not None:
            return self._literal
        rendered = []
        for piece in self._pieces:
            if isinstance(piece, str):
                rendered.append(piece)
                continue
            value = scope(piece.name)
            for filtered in piece.filters:
                value = filtered(value)
            if value is None:
                why = f"{self.text!r} cannot be filled: the message has no {piece.name}"
                raise Unmappable(cmqc.MQRC_PROPERTY_NOT_AVAILABLE, why)
            rendered.append(value)
        return "".join(rendered)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


@lru_cache(4096)
def template_of(text: str) -> Template:
    """Return the template that is parsed from a text, once for all who look at it. Raises TemplateError."""
    return Template(text)


def _placeholder(text: str, start: int) -> tuple[Placeholder, int]:
    """Read the placeholder that begins at `start`, and return it with the position where it ends."""
    found = _NAME.match(text, start + 1)
    if found is None:
        raise TemplateError("a name is missing after {; {{ stands for a literal {", start + 2)
    name = found[1]
    check_name(name, found.start(1) + 1)
    filters: list[Filter] = []
    as_written: list[tuple[str, str | None]] = []
    position = found.end()
    while text.startswith("|", position):
        written = _FILTER.match(text, position)
        assert written is not None  # it begins with |
        column = written.start(1) + 1
        filters.append(_filter(written[1], written[2], column))
        as_written.append((written[1], written[2]))
        position = written.end()
    if not text.startswith("}", position):
        raise TemplateError(f"}} is missing after {{{text[start + 1 : position].strip()}", position + 1)
    return Placeholder(name, tuple(filters), tuple(as_written)), position + 1


def _filter(name: str, argument: str | None, column: int) -> Filter:
    if name == "default":
        if argument is None:
            raise TemplateError("default has its value behind it, as in default:'none'", column)
        return partial(_default, argument)
    if name not in _FILTERS:
        known = ", ".join((*_FILTERS, "default:'…'"))
        raise TemplateError(f"{name!r} is no filter; there are {known}" if name else f"a filter follows |: {known}", column)
    if argument is not None:
        raise TemplateError(f"{name} takes no value", column)
    return _FILTERS[name]


def filters_in_words() -> dict[str, str]:
    """Return by each filter, as it is written, what it makes of a value."""
    filters: dict[str, Callable[..., str | None]] = {**_FILTERS, "default:'…'": _default}
    return {name: (inspect.getdoc(made) or "").removeprefix("Return ").rstrip(".") for name, made in filters.items()}


def _default(otherwise: str, value: str | None) -> str:
    """Return the text between the quotes, where there is no value."""
    return value or otherwise


def _upper(value: str | None) -> str | None:
    """Return the value in capitals."""
    return value and value.upper()


def _lower(value: str | None) -> str | None:
    """Return the value in small letters."""
    return value and value.lower()


def _trim(value: str | None) -> str | None:
    """Return the value without the blanks at its ends."""
    return value and value.strip()


def _mqname(value: str | None) -> str | None:
    """Return the value in the characters of MQ's object names: a dot for each /, an underscore for any other."""
    # IBM MQ documentation, "Rules for naming IBM MQ objects".
    return value and _NOT_OF_A_NAME.sub("_", value.replace("/", "."))


def _text(value: str | None) -> str | None:
    """Return the text that the hexadecimal digits of a byte field stand for."""
    if value is None:
        return None
    try:
        return bytes.fromhex(value).rstrip(b"\0 ").decode()
    except UnicodeDecodeError as error:
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, f"the bytes {value} are no text in UTF-8") from error
    except ValueError as error:
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, f"{value!r} is no byte field in hexadecimal") from error


_FILTERS: dict[str, Filter] = {"upper": _upper, "lower": _lower, "mqname": _mqname, "text": _text, "trim": _trim}
