"""Validation of JSON payloads with JSON Schema 2020-12: `payload: {schema: FILE}` of a mapping."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bridge.mapping.template import RuleError
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

#: Maximum size of a schema, in bytes, and maximum length of a violation in words, which may contain values of the payload.
MAX_SIZE: Final = 1024 * 1024
_MAX_WORDS: Final = 300


class SchemaError(RuleError):
    """An invalid JSON Schema."""


class Schema:
    """A compiled schema. Raises SchemaError.

    References to other documents ($ref) are rejected, so that nothing is read from files or the network. Patterns are
    matched in linear time.
    """

    __slots__ = ("_name", "_validator")

    def __init__(self, content: bytes, name: str) -> None:
        """Compile the schema in a file of this name."""
        # Imported late: few mappings have a schema.
        import jsonschema_rs

        self._name = name
        if len(content) > MAX_SIZE:
            raise SchemaError(f"{name} has {len(content):,} bytes, of {MAX_SIZE:,} at most")
        try:
            schema = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SchemaError(f"{name} is not JSON: {error}") from error
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            words = getattr(error, "message", str(error)).partition("\n")[0]
            raise SchemaError(f"{name} is not a schema: {words[:_MAX_WORDS]}") from error

    def check(self, document: Any) -> None:
        """Raise Unmappable with the first violation, if there is one."""
        import jsonschema_rs

        try:
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            place = "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.instance_path)
            why = f"the payload does not match {self._name}: {place}: {error.message}"
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, why[:_MAX_WORDS]) from error
        except (ValueError, RecursionError) as error:  # nested too deeply for the package
            raise Unmappable(
                cmqc.MQRC_FORMAT_ERROR, f"{self._name} cannot be applied to the payload: {error}"
            ) from error


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri[:100]!r} is another document (hint: $defs in the same file)")
