"""One folder of an MQRFH2: its bytes, and their content.

A folder's NameValueData is a small XML-like text: one element with the name of the folder, which contains elements with
values or further elements, then blanks up to a multiple of four bytes. It is *not* parsed as general XML. Declarations,
comments, and entities other than the five predefined ones and character references are not supported, so nothing expands.

The ``dt`` attribute of an element is the type of its value:

=================== ============ ==================================================
dt                  Python       text
=================== ============ ==================================================
none, ``string``    ``str``      unchanged
``boolean``         ``bool``     ``0`` or ``1`` (``true`` and ``false`` are read too)
``bin.hex``         ``bytes``    two hexadecimal digits per byte
``i1 i2 i4 i8 int`` ``int``      decimal: 8, 16, 32, 64 and 64 bits, signed
``r4 r8``           ``float``    decimal with exponent, ``INF``, ``-INF``, ``NaN``
=================== ============ ==================================================

An element with ``xsi:nil='true'`` is None. A dt that is not in the table is read as text.

Folders are parsed lazily. A malformed folder can still be forwarded, because its bytes are kept.
Source: IBM MQ, "MQRFH2 - Rules and formatting header 2", NameValueData, and "Specifying the data type of a property".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import msgspec

from bridge.wire.mq.structure import ByteOrder, MalformedHeader

Scalar: TypeAlias = "str | bool | int | float | bytes | None"
Value: TypeAlias = "Scalar | dict[str, Value] | list[Value]"

INTEGER_BITS: Final[Mapping[str, int]] = {"i1": 8, "i2": 16, "i4": 32, "i8": 64, "int": 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,25}", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*+", re.ASCII)
# XML Schema's words first, then the words of Java's Double.toString, which JMS providers copy unchanged.
_NOT_FINITE: Final = {"INF": math.inf, "-INF": -math.inf, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BOOLEAN: Final = {"0": False, "1": True, "false": False, "true": True}


class Typed(msgspec.Struct, frozen=True):
    """A value to write with a dt other than the default for its Python type.

    `Typed(7, "i1")` writes `<x dt='i1'>7</x>`. `Typed(7, None)` writes a 7 without dt, which is read back as the string
    "7".
    """

    value: str | bool | int | float | bytes
    dt: str | None


Writable: TypeAlias = "Scalar | Typed | Mapping[str, Writable] | Sequence[Writable]"


def read_value(text: str, dt: str | None) -> Scalar:
    """Return the value of `text` with the type `dt`. Raises ValueError with the reason if it is invalid."""
    if dt is None or dt == "string":
        return text
    text_stripped = text.strip()
    if dt in INTEGER_BITS:
        if not _INTEGER.fullmatch(text_stripped):
            raise ValueError(f"{text!r} is not an integer (dt={dt})")
        number = int(text_stripped)
        limit = 1 << (INTEGER_BITS[dt] - 1)
        if not -limit <= number < limit:
            raise ValueError(f"{number} does not fit dt={dt}")
        return number
    if dt == "boolean":
        if text_stripped not in _BOOLEAN:
            raise ValueError(f"{text!r} is not a boolean")
        return _BOOLEAN[text_stripped]
    if dt == "bin.hex":
        if not _HEX.fullmatch(text_stripped):
            raise ValueError(f"{text!r} is not a string of hexadecimal pairs")
        return bytes.fromhex(text_stripped)
    if dt in ("r4", "r8"):
        if text_stripped in _NOT_FINITE:
            return _NOT_FINITE[text_stripped]
        if not _FLOAT.fullmatch(text_stripped):
            raise ValueError(f"{text!r} is not a floating-point number (dt={dt})")
        return float(text_stripped)
    return text


def write_value(value: str | bool | int | float | bytes | Typed) -> tuple[str, str | None]:
    """Return text and dt of a value. An int is an `i4` if it fits, otherwise an `i8`.

    Raises ValueError if a number does not fit or a `Typed` value does not match its dt, and TypeError if the Python type has
    no dt.
    """
    if isinstance(value, Typed):
        text, _ = write_value(value.value) if not _is_integer(value.value) else (str(value.value), None)
        read_value(text, value.dt)
        return text, value.dt
    if isinstance(value, str):
        return str(value), None
    if isinstance(value, bool):
        return ("1" if value else "0"), "boolean"
    if isinstance(value, int):
        text = str(int(value))
        dt = "i4" if -0x80000000 <= value <= 0x7FFFFFFF else "i8"
        read_value(text, dt)
        return text, dt
    if isinstance(value, float):
        return _float_text(value), "r8"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex(), "bin.hex"
    raise TypeError(f"an RFH2 folder has no type for {type(value).__name__}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(float(value))


UTF_8: Final = 1208
UTF_16: Final = frozenset({1200, 13488, 17584})
"""The other CCSIDs of a NameValueCCSID: UTF-16 (formerly UCS-2) in the byte order of the header."""

MAX_DEPTH: Final = 100
"""The maximum nesting of elements, because users of the content are recursive."""

_CACHED_LENGTH: Final = 512  # longer folders (large usr data) rarely repeat, and would make the cache's size unbounded

# Use only possessive quantifiers, so that the time for hostile text is linear in its length.
_S: Final = r"[ \t\r\n]"
_NAME: Final = r"[^ \t\r\n<>/='\"&!?\x00]++"
_ATTRIBUTE: Final = rf"{_S}++{_NAME}{_S}*+={_S}*+(?:\"[^\"<]*+\"|'[^'<]*+')"
_OPENING: Final = re.compile(rf"<({_NAME})((?:{_ATTRIBUTE})*+){_S}*+(/?)>")
_CLOSING: Final = re.compile(rf"</({_NAME}){_S}*+>")
_EACH_ATTRIBUTE: Final = re.compile(rf"({_NAME}){_S}*+={_S}*+(?:\"([^\"]*+)\"|'([^']*+)')")
_START: Final = re.compile(rf"(?:\ufeff)?{_S}*+<({_NAME})")
_START_UTF_8: Final = re.compile(rf"(?:\xef\xbb\xbf)?{_S}*+<({_NAME})".encode())
_REFERENCE: Final = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6}));|&")
_WRITTEN_NAME: Final = re.compile(r"[^\W\d][\w.$:-]*")
_ENTITIES: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})
_SPACE: Final = " \t\r\n"
_LEADING: Final = _SPACE + "\ufeff"  # a byte order mark is not text
_PADDING: Final = _SPACE + "\0"  # blanks according to IBM's documentation, and NULs from programs that fill a C buffer


class Leaf(NamedTuple):
    """An element without child elements: its value and attributes, including dt."""

    value: Value
    attributes: dict[str, str]


class Folder(msgspec.Struct, frozen=True, gc=False):
    """A folder. `NameValueData` is the complete folder with its padding. Folders are equal if their bytes are.

    `byte_order` is the header's byte order. It matters only for UTF-16, and is "little" for all other CCSIDs.
    """

    NameValueData: bytes
    NameValueCCSID: int = UTF_8
    byte_order: ByteOrder = "little"

    @classmethod
    def build(
        cls, name: str, content: Mapping[str, Writable], *, attributes: Mapping[str, str] | None = None
    ) -> Folder:
        """Create a folder in UTF-8 (CCSID 1208) with the given content.

        `str` is written without dt, `bool` as boolean, `int` as i4 or i8, `float` as r8, `bytes` as bin.hex, None as an
        empty element with `xsi:nil='true'`, and `Typed` with its own dt. A mapping becomes an element with child elements
        (an empty one is read back as ""), and a list or tuple becomes repeated elements. `attributes` are those of the
        folder element, such as `{"content": "properties"}`. Raises MalformedHeader if a name or value cannot be written,
        and TypeError for a value whose type has no dt.
        """
        _check_name(name)
        parts = [f"<{name}"]
        for key, text in (attributes or {}).items():
            _check_name(key)
            parts.append(f" {key}='{text.translate(_ESCAPES)}'")
        parts.append(">")
        _write_elements(parts, content, 1)
        parts.append(f"</{name}>")
        text = "".join(parts)
        if "\0" in text:
            _fail(0, f"folder {name}: U+0000 cannot be written")
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise MalformedHeader("MQRFH2", 0, f"folder {name}: {error.reason}") from error
        return cls(data + b" " * (-len(data) % 4))

    @property
    def name(self) -> str:
        """The name of the folder element, such as "mqps", or "" if the bytes do not begin with an element.

        A folder that cannot be parsed also has a name.
        """
        if self.NameValueCCSID == UTF_8:
            match = _START_UTF_8.match(self.NameValueData)
            return match[1].decode(errors="replace") if match else ""
        try:
            start = _START.match(_decode(self.NameValueData, self.NameValueCCSID, self.byte_order))
        except MalformedHeader:
            return ""
        return start[1] if start else ""

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the folder element. Raises MalformedHeader like `content`."""
        return dict(self._parsed()[0])

    @property
    def content(self) -> dict[str, Value]:
        """The content: element name -> value. Raises MalformedHeader.

        The value of an element with child elements is a dict, that of a repeated element a list. The caller may modify the
        result. Equal bytes are cached. The content is invalid if the text is not well-formed, if a value does not match its
        dt, or if NameValueCCSID is not 1208, 1200, 13488 or 17584. The offset of the error counts from the start of
        NameValueData.
        """
        return _copy(self._parsed()[1])

    @property
    def leaves(self) -> list[tuple[str, Leaf]]:
        """Return name and element of all elements without child elements. Names in a group are `group.element`.

        Raises MalformedHeader like `content`.
        """
        leaves: list[tuple[str, Leaf]] = []
        _walk(_parse(self.NameValueData, self.NameValueCCSID, self.byte_order, _attributed)[1], "", leaves)
        return leaves

    def _parsed(self) -> tuple[dict[str, str], dict[str, Value]]:
        parse = _parse if len(self.NameValueData) > _CACHED_LENGTH else _parse_cached
        return parse(self.NameValueData, self.NameValueCCSID, self.byte_order)


def _decode(data: bytes, ccsid: int, byte_order: ByteOrder) -> str:
    if ccsid == UTF_8:
        codec = "utf-8"
    elif ccsid in UTF_16:
        codec = "utf-16-le" if byte_order == "little" else "utf-16-be"
    else:
        _fail(0, f"NameValueCCSID {ccsid} is none of 1208, 1200, 13488, 17584")
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        raise MalformedHeader("MQRFH2", error.start, f"NameValueData is not CCSID {ccsid}: {error.reason}") from error


def _parse(
    data: bytes, ccsid: int, byte_order: ByteOrder, leaf: Callable[[str, dict[str, str], int], Any] | None = None
) -> tuple[dict[str, str], dict[str, Value]]:
    text = _decode(data, ccsid, byte_order)
    try:
        return _scan(text, leaf or _leaf)
    except _ScanError as error:
        prefix = text[: error.position]
        offset = len(prefix.encode("utf-8" if ccsid == UTF_8 else "utf-16-le"))
        raise MalformedHeader("MQRFH2", offset, error.rule) from None


_parse_cached = lru_cache(maxsize=1024)(_parse)


class _ScanError(Exception):
    def __init__(self, position: int, rule: str) -> None:
        super().__init__(rule)
        self.position = position
        self.rule = rule


def _scan(text: str, leaf: Callable[[str, dict[str, str], int], Any]) -> tuple[dict[str, str], dict[str, Value]]:
    """Return attributes and content of the only element in `text`.

    `leaf` converts the value of an element without child elements. Each iteration reads the text up to a "<" and the tag
    that begins there. `path` contains the open elements: name, attributes and the children so far.
    """
    position = len(text) - len(text.lstrip(_LEADING))
    opening = _OPENING.match(text, position)
    if opening is None:
        raise _ScanError(position, "a folder begins with the opening tag of its element")
    name = opening[1]
    attributes = _read_attributes(opening[2], position)
    children: dict[str, Value] = {}
    root = (attributes, children)
    position = opening.end()
    path: list[tuple[str, dict[str, str], dict[str, Value]]] = []
    while not opening[3]:  # an empty root element has nothing to loop over
        bracket = text.find("<", position)
        if bracket < 0:
            raise _ScanError(len(text), f"element {name} is not closed")
        between = text[position:bracket]
        closing = _CLOSING.match(text, bracket)
        if closing is not None:
            if closing[1] != name:
                raise _ScanError(bracket, f"</{closing[1]}> closes element {name}")
            position = closing.end()
            if (children or not path) and between.strip(_SPACE):
                raise _ScanError(bracket - len(between), f"element {name} has text next to elements")
            if not path:
                break
            value = children or leaf(between, attributes, bracket - len(between))
            if children and _is_nil(attributes):
                raise _ScanError(bracket, f"element {name} is nil, yet has elements")
            name_closed = name
            name, attributes, children = path.pop()
            _add(children, name_closed, value)
            continue
        tag = _OPENING.match(text, bracket)
        if tag is None:
            raise _ScanError(bracket, f"no tag: {text[bracket : bracket + 20]!r}")
        if between.strip(_SPACE):
            raise _ScanError(bracket - len(between), f"element {name} has text next to elements")
        inner = _read_attributes(tag[2], bracket) if tag[2] else {}
        position = tag.end()
        if tag[3]:
            _add(children, tag[1], leaf("", inner, bracket))
            continue
        if len(path) + 2 > MAX_DEPTH:
            raise _ScanError(bracket, f"more than {MAX_DEPTH} elements within each other")
        path.append((name, attributes, children))
        name, attributes, children = tag[1], inner, {}
    if text[position:].strip(_PADDING):
        raise _ScanError(position, f"something follows the closing tag of folder {name}")
    return root


def _add(children: dict[str, Value], name: str, value: Value) -> None:
    if name not in children:
        children[name] = value
        return
    there = children[name]
    if isinstance(there, list):  # only a repetition creates a list, because the value of an element is never a list
        there.append(value)
    else:
        children[name] = [there, value]


def _leaf(text: str, attributes: dict[str, str], position: int) -> Value:
    text = _unescape(text, position)
    if not attributes:
        return text
    if _is_nil(attributes):
        if text.strip(_SPACE):
            raise _ScanError(position, "an element is nil, yet has text")
        return None
    try:
        return read_value(text, attributes.get("dt"))
    except ValueError as error:
        raise _ScanError(position, str(error)) from error


def _attributed(text: str, attributes: dict[str, str], position: int) -> Leaf:
    return Leaf(_leaf(text, attributes, position), attributes)


def _walk(children: Mapping[str, Any], prefix: str, leaves: list[tuple[str, Leaf]]) -> None:
    for name, value in children.items():
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, Leaf):
                leaves.append((prefix + name, child))
            else:
                _walk(child, f"{prefix}{name}.", leaves)


def _is_nil(attributes: dict[str, str]) -> bool:
    return attributes.get("xsi:nil") in ("true", "1")


def _read_attributes(text: str, position: int) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for match in _EACH_ATTRIBUTE.finditer(text):
        if match[1] in attributes:
            raise _ScanError(position, f"attribute {match[1]} stands there twice")
        attributes[match[1]] = _unescape(match[2] or match[3] or "", position)
    return attributes


def _unescape(text: str, position: int) -> str:
    if "&" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        if match[1]:
            return _ENTITIES[match[1]]
        number = int(match[2]) if match[2] else int(match[3], 16) if match[3] else 0
        if not 0 < number <= 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise _ScanError(position + match.start(), f"no such reference: {text[match.start() :][:12]!r}")
        return chr(number)

    return _REFERENCE.sub(character, text)


def _copy(children: dict[str, Value]) -> dict[str, Value]:
    """Copy `children` down to the scalars, because callers of `Folder.content` must not modify the cache."""
    return {name: _copy_value(value) if type(value) in (dict, list) else value for name, value in children.items()}


def _copy_value(value: Any) -> Any:
    if isinstance(value, dict):
        return _copy(value)
    if isinstance(value, list):
        return [_copy_value(child) for child in value]
    return value


def _write_elements(parts: list[str], content: Mapping[str, Writable], depth: int) -> None:
    if depth >= MAX_DEPTH:
        _fail(0, f"more than {MAX_DEPTH} elements within each other")
    for name, value in content.items():
        _check_name(name)
        for child in value if isinstance(value, (list, tuple)) else (value,):
            _write_element(parts, name, child, depth)


def _write_element(parts: list[str], name: str, value: Writable, depth: int) -> None:
    if value is None:
        parts.append(f"<{name} xsi:nil='true'></{name}>")
    elif isinstance(value, Mapping):
        parts.append(f"<{name}>")
        _write_elements(parts, value, depth + 1)
        parts.append(f"</{name}>")
    else:
        try:
            text, dt = write_value(value)  # type: ignore[arg-type]  # raises TypeError for other Sequences
        except ValueError as error:
            raise MalformedHeader("MQRFH2", 0, f"element {name}: {error}") from error
        parts.append(f"<{name}>" if dt is None else f"<{name} dt='{dt.translate(_ESCAPES)}'>")
        parts.append(f"{text.translate(_ESCAPES)}</{name}>")


def _check_name(name: str) -> None:
    if not _WRITTEN_NAME.fullmatch(name):
        _fail(0, f"{name!r} cannot be the name of an element or attribute")


def _fail(offset: int, rule: str) -> NoReturn:
    raise MalformedHeader("MQRFH2", offset, rule)
