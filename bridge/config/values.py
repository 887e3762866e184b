"""Value types of the YAML file: notation, unit and range.

Each type is a pydantic validator whose error is a complete phrase for administrators. pydantic's own errors for the same
types are fragments ("valid integer", "less than or equal to"). These validators run first, so pydantic never reports them.
The docstring of a function that returns a `ValueKind` describes the accepted values.
"""

import contextlib
import ipaddress
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from bridge import durations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
DAY = 86_400.0
"""A day, in seconds. The default maximum of durations."""

SIZE_UNITS = {"B": 1, "KB": 1000, "KiB": KIB, "MB": 1000**2, "MiB": MIB, "GB": 1000**3, "GiB": GIB}
"""Bytes per unit of size. KB, MB and GB are powers of 1000 (IEC 80000-13). MQ's "100 MB" is 100 MiB here."""

_SIZES = {name.lower(): factor for name, factor in SIZE_UNITS.items()}
# The number of digits is limited, because int() rejects more than 4300 with its own error.
_QUANTITY = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?) *([A-Za-z]+)")
_PERCENTAGE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)%")
_CONNECTION = re.compile(r"([^()]+)\(([0-9]{1,5})\)")
_ENDPOINT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+)):([0-9]{1,5})")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.(?!\Z)|\Z))+")


@dataclass(frozen=True)
class ValueKind(BeforeValidator):
    """A validator for one type of value, with the JSON Schema of that type."""

    schema: dict[str, Any] = field(default_factory=dict, kw_only=True, compare=False)

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return dict(self.schema)


def _kind(schema: dict[str, Any]) -> Callable[[Callable[..., Any]], ValueKind]:
    """Return a decorator that turns a function that checks and returns a value into the validator of a type."""
    return lambda check: ValueKind(check, schema=schema)


def refusal(expected: str, *at: str | int) -> PydanticCustomError:
    """Return the error for a value that differs from the `expected` one.

    The caller adds the position and the actual value. `at` is the path from the validated value to the wrong one.
    """
    return PydanticCustomError("expected", "expected {expected}", {"expected": expected, "at": at})


def integer(low: int, high: int, because: str = "") -> ValueKind:
    """Accept an integer from `low` to `high`, but no text, fraction or Boolean.

    `because` is appended to the error.
    """

    def check(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise refusal(f"an integer from {low} to {high}{because}")

    return ValueKind(check, schema={"type": "integer", "minimum": low, "maximum": high})


def number(low: float, high: float | None = None) -> ValueKind:
    """Accept a number of at least `low` and, unless None, at most `high`."""
    expected = f"a number of at least {low:g}" if high is None else f"a number from {low:g} to {high:g}"
    most = sys.float_info.max if high is None else high

    def check(value: object) -> float:
        # This form rejects NaN too: comparisons with NaN are false.
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= most:
            return float(value)
        raise refusal(expected)

    limits = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
    return ValueKind(check, schema={"type": "number", **limits})


def size(low: int, high: int) -> ValueKind:
    """Accept a number of bytes from `low` to `high`.

    A size is an integer, or text such as `64 KiB`, `1 MB` or `1.5mib` (case is ignored).
    """
    units = _either(SIZE_UNITS)
    expected = f"a size from {size_text(low)} to {size_text(high)} (an integer of bytes, or a number with {units})"

    def check(value: object) -> int:
        number: Fraction | None = None
        if isinstance(value, int) and not isinstance(value, bool):
            number = Fraction(value)
        elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value)) and match[2].lower() in _SIZES:
            number = Fraction(match[1]) * _SIZES[match[2].lower()]
        if number is None or number.denominator != 1 or not low <= number <= high:
            raise refusal(expected)
        return int(number)

    return ValueKind(check, schema=_quantity({"type": "integer", "minimum": low, "maximum": high}, SIZE_UNITS, "i"))


def share_or_size(low: int, high: int) -> ValueKind:
    """Accept a percentage such as `70%`, or a number of bytes as in `size`."""
    sizes = size(low, high)
    expected = f"a percentage from 1% to 100%, or a size from {size_text(low)} to {size_text(high)}"

    def check(value: object) -> str | int:
        if isinstance(value, str) and (match := _PERCENTAGE.fullmatch(value)) and 1 <= float(match[1]) <= 100:
            return value
        try:
            checked: int = sizes.func(value)  # type: ignore[call-arg]
        except PydanticCustomError:
            raise refusal(expected) from None
        return checked

    percentage = {"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]{1,9})?%$"}
    return ValueKind(check, schema={"anyOf": [percentage, *sizes.schema["anyOf"]]})


def duration(low: float, high: float = DAY) -> ValueKind:
    """Accept a duration from `low` to `high` seconds.

    A duration is a number of seconds, or text such as `500 ms`, `10 s`, `2 min`, `1 h` or `30 d`.
    """
    expected = (
        f"a duration from {durations.shown(low)} to {durations.shown(high)}"
        f" (a number of seconds, or a number with {_either(durations.UNITS)})"
    )

    def check(value: object) -> float:
        number: float | Fraction | None = None
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = value
        elif isinstance(value, str):
            with contextlib.suppress(ValueError):
                number = float(durations.parsed(value))  # as exact as `low`: 1/10 is less than 0.1
        # This form rejects NaN too: comparisons with NaN are false.
        if number is None or not low <= number <= high:
            raise refusal(expected)
        return float(number)

    return ValueKind(check, schema=_quantity({"type": "number", "minimum": low, "maximum": high}, durations.UNITS))


def text(pattern: str, expected: str) -> ValueKind:
    """Accept text that fully matches `pattern`. `expected` describes the pattern in the error."""
    compiled = re.compile(pattern)

    def check(value: object) -> str:
        if isinstance(value, str) and compiled.fullmatch(value):
            return value
        # `name: 1234` and `name: NO` look like text, but YAML reads a number and a Boolean.
        raise refusal(f"{expected}, in quotes" if isinstance(value, int | float) else expected)

    # JSON Schema uses the regular expressions of ECMA 262, which have no \Z. Their $ matches only at the end.
    return ValueKind(check, schema={"type": "string", "pattern": "^(?:" + pattern.replace(r"\Z", "$") + ")$"})


def read_by(reader: Callable[[str], object], pattern: str, expected: str) -> ValueKind:
    """Accept text that matches `pattern` and that `reader` accepts. The reader's ValueError states the expectation."""
    of_signs = text(pattern, expected)

    def check(value: object) -> str:
        converted: str = of_signs.func(value)  # type: ignore[call-arg]
        try:
            reader(converted)
        except ValueError as error:
            raise refusal(str(error)) from None
        return converted

    return ValueKind(check, schema=of_signs.schema)


def choice(literal: Any, because: str = "") -> ValueKind:
    """Accept one of the words of the `Literal` type `literal`.

    `because` is appended to the error. If a word is numeric, such as "5", the unquoted number is accepted too.
    """
    words: tuple[str, ...] = get_args(literal)
    numbers = {int(word): word for word in words if word.isdigit()}
    expected = _either(words) + because

    def check(value: object) -> str:
        if isinstance(value, int) and not isinstance(value, bool) and value in numbers:
            return numbers[value]
        if isinstance(value, str) and value in words:
            return value
        raise refusal(expected)

    return ValueKind(check, schema={"enum": [*words, *numbers]})


def one_of(*kinds: ValueKind) -> ValueKind:
    """Accept a value of any of several types. The error names them all."""

    def check(value: object) -> Any:
        expected = []
        for kind in kinds:
            try:
                return kind.func(value)  # type: ignore[call-arg]
            except PydanticCustomError as error:
                expected.append(str((error.context or {})["expected"]))
        raise refusal(", or ".join(expected))

    return ValueKind(check, schema={"anyOf": [kind.schema for kind in kinds]})


@_kind({"type": "boolean"})
def truth(value: object) -> bool:
    """Accept true or false, but no numbers or quoted words."""
    if isinstance(value, bool):
        return value
    raise refusal("true or false")


@_kind({"type": ["string", "number", "boolean"]})
def setting(value: object) -> str:
    """Accept text, a number or a Boolean, and return it as text for Spark."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise refusal("text, a number, or true or false")


class Text(str):
    """Text in a YAML file."""

    directory: Path
    """The directory of the file, to which relative paths in it refer."""


def plain(value: Any) -> Any:
    """Return a value of the file with plain `str` for each `Text`. pydantic converts only values of known types."""
    match value:
        case str():
            return str(value)
        case list():
            return [plain(element) for element in value]
        case dict():
            return {name: plain(element) for name, element in value.items()}
    return value


@_kind({"type": "string", "minLength": 1})
def path(value: object) -> Path:
    """Accept a path. In a YAML file, a relative path is relative to the directory of the file."""
    # YAML escapes can produce NUL and lone surrogates, which operating system calls do not accept.
    if not isinstance(value, str | Path) or not str(value) or not str(value).isprintable():
        raise refusal("a path")
    return Path(getattr(value, "directory", ""), value)


@_kind({"type": "string", "pattern": "^[0-9A-Za-z_.:%-]+$"})
def address(value: object) -> str:
    """Accept an address to listen on: an IPv4 or IPv6 address (without brackets), or a host name."""
    if isinstance(value, str) and (_ip(value) is not None or _is_host_name(value)):
        return value
    raise refusal("an IP address or a host name (0.0.0.0 means every IPv4 address of this machine)")


@_kind({"type": "string", "pattern": rf"^{_ENDPOINT.pattern}$"})
def host_and_port(value: object) -> str:
    """Accept `host:port`. An IPv6 address must be in brackets."""
    if isinstance(value, str):
        match = _ENDPOINT.fullmatch(value)
        if match is not None and 0 < int(match[3]) <= 65535:
            in_brackets, name = match[1], match[2]
            if _ip(in_brackets) is not None if in_brackets else _ip(name) is not None or _is_host_name(name):
                return value
    raise refusal("host:port, such as broker.example.com:1883 or [2001:db8::1]:1883")


def host_and_port_of(text: str) -> tuple[str, int]:
    """Return the host and port of text that `host_and_port` accepts."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


@_kind({"type": "string", "minLength": 1})
def topic_pattern(value: object) -> str:
    """Accept an MQTT topic filter. Its levels may contain %c and %u."""
    if isinstance(value, str) and _is_topic_filter(value):
        return value
    raise refusal("a topic filter, in which %c stands for the client identifier and %u for the user")


@_kind({"type": "string", "minLength": 1})
def topic_filter(value: object) -> str:
    """Accept an MQTT topic filter."""
    if isinstance(value, str) and _is_topic_filter(value):
        return value
    raise refusal("a topic filter such as plant/+/reading")


def _is_topic_filter(text: str) -> bool:
    levels = text.split("/")
    return (
        0 < len(text.encode()) <= 65_535
        and "\0" not in text
        and all(level in ("+", "#") or not {"+", "#"} & set(level) for level in levels)
        and "#" not in levels[:-1]
    )


@_kind({"type": "string", "pattern": "^(unix|[0-9A-Fa-f.:]+(/[0-9]{1,3})?)$"})
def network(value: object) -> str:
    """Accept an IP address, a network such as 10.0.0.0/8, or `unix`."""
    try:
        if isinstance(value, str):
            return value if value == "unix" else str(ipaddress.ip_network(value))
    except ValueError:
        pass
    raise refusal("an IP address, a network such as 10.0.0.0/8, or unix")


def connections(longest: int) -> ValueKind:
    """Accept MQ connection names of at most `longest` characters in total.

    They are text `host(port),host(port)`, or a list of `host(port)`.
    """
    expected = f"host(port), or several with commas or as a list, of at most {longest} characters together"

    def check(value: object) -> list[str]:
        listed = value.split(",") if isinstance(value, str) else value
        if not isinstance(listed, list) or not listed or not all(isinstance(entry, str) for entry in listed):
            raise refusal(expected)
        names = [entry.strip() for entry in listed]
        if not all(map(_is_connection, names)) or len(",".join(names)) > longest:
            raise refusal(expected)
        return names

    name = {"type": "string", "pattern": r"\([0-9]{1,5}\)\s*$"}
    return ValueKind(check, schema={"anyOf": [name, {"type": "array", "items": name, "minItems": 1}]})


def url(*schemes: str) -> ValueKind:
    """Accept a URL with one of the given schemes."""
    expected = f"a URL that begins with {_either(tuple(f'{scheme}://' for scheme in schemes))}"

    def check(value: object) -> str:
        if isinstance(value, str) and value.isprintable() and " " not in value:
            scheme, separator, rest = value.partition("://")
            if separator and rest and scheme.lower() in schemes:
                return value
        raise refusal(expected)

    return ValueKind(check, schema={"type": "string", "pattern": f"^({'|'.join(schemes)})://[^ ]+$"})


def is_loopback(address: str) -> bool:
    """Return whether `address` can be reached from this machine only.

    `localhost` is the only host name that counts as loopback.
    """
    parsed = _ip(address)
    return parsed.is_loopback if parsed is not None else address.lower() == "localhost"


def same_address(address: str) -> str:
    """Return a normalized `address`, equal for `::1` and `0:0::1`, and for `localhost` and `127.0.0.1`."""
    parsed = _ip(address)
    if parsed is not None:
        return str(parsed)
    return "127.0.0.1" if address.lower() == "localhost" else address.lower()


def endpoint(address: str, port: int) -> str:
    """Return `address:port`, with an IPv6 address in brackets (RFC 3986, section 3.2.2)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def size_text(number: int) -> str:
    """Return `number` bytes in the largest binary unit that needs no fraction.

    4194304 is `4 MiB`, 4194305 is `4194305 B`.
    """
    for name in ("GiB", "MiB", "KiB"):
        if number and number % SIZE_UNITS[name] == 0:
            return f"{number // SIZE_UNITS[name]} {name}"
    return f"{number} B"


def listing(words: list[str], last: str) -> str:
    """Join `words`: `a, b or c` if `last` is "or"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _either(words: tuple[str, ...] | dict[str, Any]) -> str:
    return listing(list(words), "or")


def _quantity(number: dict[str, Any], units: dict[str, Any], flag: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a number, or a number with one of `units` (`flag` "i": ignore case)."""
    names = "|".join(units)
    if flag:  # ECMA 262 has no inline flags
        names = "|".join("".join(f"[{letter.upper()}{letter.lower()}]" for letter in name) for name in units)
    return {"anyOf": [number, {"type": "string", "pattern": rf"^[0-9]{{1,20}}(\.[0-9]{{1,9}})? *({names})$"}]}


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


def _is_host_name(name: str) -> bool:
    # A numeric last label means a mistyped IPv4 address such as 10.0.0.256 (RFC 1123, section 2.1).
    return _HOST_NAME.fullmatch(name) is not None and not name.rpartition(".")[2].isdigit()


def _is_connection(name: str) -> bool:
    match = _CONNECTION.fullmatch(name)
    if match is None or not 0 < int(match[2]) <= 65535:
        return False
    return _ip(match[1]) is not None or _is_host_name(match[1])


# "Rules for naming IBM MQ objects": up to 48 of these characters, up to 20 for a channel. Case matters.
_OBJECT_NAME = text(r"[A-Za-z0-9._/%]{1,48}", "an MQ name of 1 to 48 of the characters A-Z a-z 0-9 . _ / %")
_CHANNEL_NAME = text(r"[A-Za-z0-9._/%]{1,20}", "a channel name of 1 to 20 of the characters A-Z a-z 0-9 . _ / %")
_USER_NAME = text(r"[!-~]{1,12}", "a user name of 1 to 12 ASCII characters without blanks")

ObjectName = Annotated[str, _OBJECT_NAME]
ChannelName = Annotated[str, _CHANNEL_NAME]
UserName = Annotated[str, _USER_NAME]
VariableName = Annotated[
    str, text(r"[A-Za-z_][A-Za-z0-9_]{0,254}", "the name of an environment variable (not the password)")
]
Address = Annotated[str, address]
Port = Annotated[int, integer(0, 65535)]
Truth = Annotated[bool, truth]
FilePath = Annotated[Path, path]
MAX_SCHEMA_SIZE = MIB
"""Maximum size of a file with a JSON Schema, in bytes."""
_SECRET = object()
SecretPath = Annotated[Path, path, _SECRET]
"""Path of a file that only the bridge may read, such as a password file or a private key."""


class Section(BaseModel):
    """A mapping in the YAML file. It is immutable and rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Likely but rejected keys -> the expectation instead."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, data: Any) -> Any:
        """Remove keys without a value: a heading whose lines are all commented out stands for its defaults."""
        if not isinstance(data, Mapping) or None not in data.values():
            return data
        return {key: value for key, value in data.items() if value is not None or key not in _headings(cls)}

    @property
    def irrelevant(self) -> tuple[str, ...]:
        """The options without an effect because of other options. The effective configuration omits them."""
        return ()

    def files_with_secrets(self) -> Iterator[tuple[str, Path]]:
        """Yield option and path of each file with a secret that this section or a section within it names."""
        for name, option in type(self).model_fields.items():
            yield from _files_with_secrets(option.alias or name, getattr(self, name), is_secret(option))


def _files_with_secrets(option: str, value: object, secret: bool) -> Iterator[tuple[str, Path]]:
    match value:
        case Section():
            yield from ((f"{option}.{name}", file) for name, file in value.files_with_secrets())
        case list():
            for index, element in enumerate(value):
                yield from _files_with_secrets(f"{option}[{index}]", element, secret)
        case dict():
            for key, element in value.items():
                yield from _files_with_secrets(f"{option}.{key}", element, secret)
        case Path() if secret:
            yield option, value


def is_secret(option: FieldInfo) -> bool:
    """Return whether the type of an option is SecretPath, or a list, mapping or union with it."""
    # pydantic moves the metadata of the outermost type to the option.
    return _SECRET in option.metadata or _contains_secret_path(option.annotation)


def _contains_secret_path(annotation: Any) -> bool:
    return _SECRET in getattr(annotation, "__metadata__", ()) or any(map(_contains_secret_path, get_args(annotation)))


@cache
def _headings(section: type[Section]) -> set[str]:
    """Return the keys of a section whose default is a list, a mapping or a section."""
    fields = section.model_fields.items()
    defaults = {field.alias or name: field.get_default(call_default_factory=True) for name, field in fields}
    return {key for key, default in defaults.items() if isinstance(default, list | dict | BaseModel)}
