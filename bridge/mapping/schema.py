"""Validation of JSON payloads with JSON Schema 2020-12: `payload: {schema: FILE}` of a mapping, `schemas` of a channel."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.config.values import MAX_SCHEMA_SIZE
from bridge.mapping.json_document import line_of
from bridge.mapping.json_positions import RepeatedName, elements, line_of_index, line_of_path
from bridge.mapping.pattern_length import pattern_length
from bridge.mapping.template import RuleError
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

if TYPE_CHECKING:  # pydantic takes long to import, and MQ applications do not need it
    from bridge.config.channel import ChannelConfig

#: Maximum length of the description of a violation, which may contain values of the payload.
_MAX_WORDS: Final = 300
#: Keywords whose violation the package describes with the violations of all alternatives.
_ALTERNATIVES: Final = frozenset(("anyOf", "oneOf"))
#: Keywords that apply another schema.
_REFERENCES: Final = frozenset(("$ref", "$dynamicRef"))
#: Maximum length of a pattern. Up to it, a byte of a text takes 1 µs at most, and beyond it up to 80 µs.
MAX_PATTERN: Final = 1_000
#: Maximum number of subschemas, including those of references, of a schema whose violations are described.
_MAX_SUBSCHEMAS: Final = 10_000


class SchemaError(RuleError):
    """An invalid JSON Schema."""


class Schema:
    """A compiled schema. Raises SchemaError.

    References to other documents ($ref) are rejected, so that nothing is read from files or the network. Patterns are
    matched in linear time.
    """

    __slots__ = ("_describes", "_validator", "name")

    def __init__(self, content: bytes, name: str) -> None:
        """Compile the schema in a file of this name."""
        # Imported late: few mappings have a schema.
        import jsonschema_rs

        #: name of the file
        self.name = name
        if len(content) > MAX_SCHEMA_SIZE:
            raise SchemaError(f"{name} has {len(content):,} bytes, of {MAX_SCHEMA_SIZE:,} at most")
        try:
            schema = msgspec.json.decode(content)
            _check_names(content.decode(), name)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            line = line_of(error, content)
            raise SchemaError(f"{name} is not JSON: {'' if line is None else f'line {line}: '}{error}") from error
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            words = getattr(error, "message", str(error)).partition("\n")[0]
            place = _place(content, getattr(error, "instance_path", ()))
            raise SchemaError(f"{name} is not a schema: {place}{words[:_MAX_WORDS]}") from error
        for path, pattern in _patterns(schema, ()):
            if (length := pattern_length(pattern)) > MAX_PATTERN:
                raise SchemaError(
                    f"{name}: {_place(content, path)}with its counts written out, the pattern has {length:,} characters, of"
                    f" {MAX_PATTERN:,} at most (hint: maxLength)"
                )
        try:
            limited = not _uses(schema, _ALTERNATIVES) or _subschemas(schema, schema, ()) <= _MAX_SUBSCHEMAS
        except RecursionError:
            limited = False
        #: whether describing a violation takes limited time and memory
        self._describes = limited

    def check(self, document: Any) -> None:
        """Raise Unmappable with the first violation, if any."""
        import jsonschema_rs

        try:
            if self._validator.is_valid(document):
                return
            if not self._describes:
                raise Unmappable(cmqc.MQRC_FORMAT_ERROR, f"the payload does not match {self.name}")
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            place = "$" + "".join(
                f"[{element}]" if isinstance(element, int) else f".{element}" for element in error.instance_path
            )
            why = f"the payload does not match {self.name}: {place}: {error.message}"
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, _shortened(why)) from error
        except (ValueError, RecursionError) as error:  # nested too deeply for the package
            raise Unmappable(
                cmqc.MQRC_FORMAT_ERROR, f"{self.name} cannot be applied to the payload: {error}"
            ) from error


def schema_of_channel(channel: ChannelConfig, topic_filter: str) -> Schema:
    """Return the schema of a channel for a topic filter of its `schemas`. Raises SchemaError."""
    file = channel.schemas[topic_filter]
    try:
        return Schema(channel.schema_content(topic_filter), file.name)
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}") from error


def _check_names(text: str, name: str) -> None:
    """Raise SchemaError if two members of an object have the same name: only the last one would apply."""
    try:
        for _ in elements(text):
            pass
    except RepeatedName as error:
        raise SchemaError(f"{name} is not a schema: line {line_of_index(text, error.position)}: {error}") from error


def _place(content: bytes, path: Sequence[int | str]) -> str:
    """Return the line and the JSON pointer (RFC 6901) of a part of a schema, or "" for the whole schema."""
    if not path:
        return ""
    pointer = "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)
    return f"line {line_of_path(content.decode(), path)}, #{pointer}: "


def _shortened(words: str) -> str:
    """Return the beginning and the end of a long text: a violation begins with the value, and ends with the rule."""
    half = _MAX_WORDS // 2 - 2
    return words if len(words) <= _MAX_WORDS else f"{words[:half]} … {words[-half:]}"


def _patterns(schema: Any, path: tuple[int | str, ...]) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield the patterns of a schema and the paths that lead to them."""
    if not isinstance(schema, dict | list):
        return
    for key, part in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if key == "pattern" and isinstance(part, str):
            yield (*path, key), part
        elif key == "patternProperties" and isinstance(part, dict):
            yield from (((*path, key, pattern), pattern) for pattern in part)
        yield from _patterns(part, (*path, key))


def _uses(schema: Any, keywords: Collection[str]) -> bool:
    """Return whether a schema contains one of these keywords, or has members of that name."""
    if isinstance(schema, dict):
        return not schema.keys().isdisjoint(keywords) or any(_uses(part, keywords) for part in schema.values())
    return isinstance(schema, list) and any(_uses(part, keywords) for part in schema)


def _subschemas(schema: Any, root: Any, referenced: tuple[str, ...]) -> float:
    """Return the number of parts of a schema, with those of its references. Infinite for a recursive schema.

    `referenced` are the references that lead to the schema.
    """
    if not isinstance(schema, dict | list):
        return 1
    number = 1.0
    for keyword, part in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if keyword == "$defs":
            continue
        if keyword in _REFERENCES and isinstance(part, str):
            target = _target(root, part) if keyword == "$ref" and part not in referenced else None
            number += math.inf if target is None else _subschemas(target, root, (*referenced, part))
        else:
            number += _subschemas(part, root, referenced)
        if number > _MAX_SUBSCHEMAS:
            return math.inf
    return number


def _target(root: Any, reference: str) -> Any:
    """Return the part of a schema that a JSON pointer such as #/$defs/device selects, or None for another reference."""
    if not reference.startswith("#/"):
        return None
    part = root
    for name in reference[2:].split("/"):
        part = part.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(part, dict) else None
    return part


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri[:100]!r} is another document (hint: $defs in the same file)")
