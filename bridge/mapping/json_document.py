"""JSON payloads: parsed with the digits of their numbers, encoded with the same digits, and singular JSONPath queries."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import msgspec

from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

#: Maximum number of payload bytes in an error message.
_SHOWN: Final = 40
#: The position in an error of the JSON parser.
_BYTE: Final = re.compile(r"\(byte (\d+)\)")
#: An error of the JSON parser at the end of the text.
_TRUNCATED: Final = "truncated"


class ExactFloat(float):
    """A number with a fraction or an exponent, and its digits as written: 1.10 is not written as 1.1."""

    __slots__ = ("digits",)

    digits: str

    def __new__(cls, digits: str) -> ExactFloat:
        """Return the number with these digits. Raises ValueError for a number beyond the range of a double."""
        number = super().__new__(cls, digits)
        if not math.isfinite(number):
            raise ValueError(f"{digits[:_SHOWN]} is beyond the range of a double")
        number.digits = digits
        return number


_DECODER: Final = msgspec.json.Decoder(float_hook=ExactFloat)
_PLAIN_DECODER: Final = msgspec.json.Decoder()


def line_of(error: BaseException, content: bytes) -> int | None:
    """Return the line of a file to which an error of its parser refers, or None if the error has no position."""
    position = _position_of(error, content)
    return None if position is None else content.count(b"\n", 0, position) + 1


def _position_of(error: BaseException, content: bytes) -> int | None:
    if (match := _BYTE.search(str(error))) is not None:
        return int(match[1])
    if _TRUNCATED in str(error):
        return len(content.rstrip())
    # The parser reports text that is not UTF-8 with a position in that text, or with none.
    try:
        content.decode()
    except UnicodeDecodeError as first:
        return first.start
    return None


def document_of(payload: bytes) -> Any:
    """Parse a JSON document in UTF-8. Raises Unmappable.

    Only JSON according to RFC 8259 is accepted: no NaN, and no numbers beyond the range of a double. Numbers with a fraction
    or an exponent are ExactFloat. Integers are exact.
    """
    return _parsed(_DECODER, payload)


def plain_document_of(payload: bytes) -> Any:
    """Parse a JSON document like `document_of`, with ordinary floating-point numbers. Raises Unmappable."""
    return _parsed(_PLAIN_DECODER, payload)


def _parsed(decoder: msgspec.json.Decoder[Any], payload: bytes) -> Any:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        why = f"the payload is not JSON ({error}): {shown(payload)}"
        raise Unmappable(cmqc.MQRC_FORMAT_ERROR, why) from error


def _digits(value: object) -> msgspec.Raw:
    assert isinstance(value, ExactFloat)
    return msgspec.Raw(value.digits.encode())


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_digits)


def encoded(document: Any) -> bytes:
    """Encode a document as JSON without white space. Numbers keep their digits. Raises Unmappable if it is too deep."""
    try:
        return _ENCODER.encode(document)
    except RecursionError as error:
        raise Unmappable(cmqc.MQRC_FORMAT_ERROR, "the JSON document is nested too deeply") from error


def shown(payload: bytes) -> str:
    """Return the beginning of a payload for an error message."""
    return repr(payload[:_SHOWN])[1:] + (f" and {len(payload) - _SHOWN} bytes more" if len(payload) > _SHOWN else "")


class PathError(ValueError):
    """An invalid query. `position` is the index of the fault."""

    def __init__(self, sentence: str, position: int) -> None:
        super().__init__(sentence)
        self.sentence, self.position = sentence, position


class _Missing:
    """The value of a query that selects nothing."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


#: The result of a query that selects nothing, other than null.
MISSING: Final = _Missing()

#: RFC 9535, section 2.3.5.1: shorthand names, quoted names, indexes.
_SEGMENT = re.compile(
    r"""\.(?P<name>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)
    |\[\s*(?:(?P<index>0|-?[1-9][0-9]*)|(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))\s*\]""",
    re.VERBOSE | re.DOTALL,
)
_SHORTHAND = re.compile(r"\.([^\s.\[\]{}|'\"]+)")
#: Characters that end a query in a template, and one that is the key of a table.
_ENDS = frozenset(" \t}|")
KEY_ENDS: Final = frozenset(" \t]}|")


class PayloadPath:
    """A singular query of JSONPath (RFC 9535, section 2.3.5.1): names and indexes, such as $.readings[0].value.

    A query that begins with @ selects from a part of the payload.
    """

    __slots__ = ("of_part", "segments", "text")

    def __init__(self, text: str, segments: tuple[str | int, ...]) -> None:
        self.text = text
        self.segments = segments
        #: whether the query selects from the part that `split` has made
        self.of_part = text.startswith("@")

    def __reduce__(self) -> tuple[type[PayloadPath], tuple[str, tuple[str | int, ...]]]:
        return PayloadPath, (self.text, self.segments)

    def value(self, document: Any) -> Any:
        """Return the selected value of a document, or MISSING."""
        value = document
        for segment in self.segments:
            if isinstance(segment, str):
                if not isinstance(value, dict) or segment not in value:
                    return MISSING
                value = value[segment]
            elif isinstance(value, list) and -len(value) <= segment < len(value):
                value = value[segment]
            else:
                return MISSING
        return value

    def render(self, document: Any) -> str | None:
        """Return the selected value as text, or None if it is null or missing. Raises Unmappable.

        Numbers have the digits of the document. Objects and arrays have no text.
        """
        return value_text(self.value(document), self.text)

    def render_json(self, document: Any) -> str | None:
        """Return the selected value as JSON text, or None if it is missing."""
        return value_json(self.value(document))


def value_text(value: Any, name: str) -> str | None:
    """Return a value of a document as text, or None if it is null or MISSING. Raises Unmappable.

    `name` is the name of the value in a template.
    """
    if isinstance(value, str):
        return value
    if value is None or value is MISSING:
        return None
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "an array"
        owner = " of the payload" if name[0] in "$@" else ""
        why = f"{name}{owner} is {kind}, not text (hint: {{{name}|json}})"
        raise Unmappable(cmqc.MQRC_PROPERTY_TYPE_ERROR, why)
    return encoded(value).decode()


def value_json(value: Any) -> str | None:
    """Return a value of a document as JSON text, or None if it is MISSING."""
    return None if value is MISSING else encoded(value).decode()


def parse_path(text: str, start: int = 0, ends: frozenset[str] = _ENDS) -> tuple[PayloadPath, int]:
    """Parse the query that begins at `start` of a template and ends before a character of `ends`.

    Returns it with its end. Raises PathError.
    """
    assert text[start] in "$@"
    position = start + 1
    segments: list[str | int] = []
    while position < len(text) and text[position] not in ends:
        segment = _SEGMENT.match(text, position)
        end = segment.end() if segment is not None else position
        if segment is None or (end < len(text) and text[end] not in ends and text[end] not in ".["):
            raise PathError(_fault(text, position), position)
        if segment["index"] is not None:
            segments.append(int(segment["index"]))
        else:
            segments.append(segment["name"] or _unquoted(segment["quoted"], position))
        position = end
    return PayloadPath(text[start:position], tuple(segments)), position


def path_of(text: str, root: str = "$") -> PayloadPath:
    """Parse a text that is a query and begins with `root`. Raises PathError."""
    if not text.startswith(root):
        subject = "the payload" if root == "$" else "a part of the payload"
        raise PathError(f"{text!r} is not a query of {subject}: it begins with {root}, such as {root}.device.id", 0)
    path, end = parse_path(text)
    if end < len(text):
        raise PathError(_fault(text, end), end)
    return path


def _fault(text: str, position: int) -> str:
    name = _SHORTHAND.match(text, position)
    if name is not None and name[1] != "*":
        return f"{name[1]!r} is not a name without quotes (hint: ['{name[1]}'])"
    return "a query has names and indexes only, such as $.readings[0].value or $['a name'] (RFC 9535, singular queries)"


def _unquoted(quoted: str, position: int) -> str:
    """Return the name in quotes. Its escapes are those of JSON. Single quotes inside single quotes are escaped."""
    inner = quoted[1:-1]
    if quoted[0] == "'":
        inner = re.sub(
            r"\\.|\"", lambda match: {"\\'": "'", '"': '\\"'}.get(match[0], match[0]), inner, flags=re.DOTALL
        )
    try:
        name = json.loads(f'"{inner}"')
        assert isinstance(name, str)
        name.encode()
    except ValueError as error:
        raise PathError(f"{quoted} is not a name with the escapes of JSON", position) from error
    return name
