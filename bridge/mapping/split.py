"""The parts of a JSON payload: `split: $.readings` of a mapping creates a message from each element of an array."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, Self, TypeVar

import msgspec

from bridge.config.mapping import SplitConfig
from bridge.mapping.json_document import MISSING, PathError, path_of
from bridge.mapping.template import RuleError, Scope
from bridge.telemetry.message import MappedMessage, Publication, Unmappable
from bridge.wire import cmqc

#: Names of the number of a part, from 0, and the number of parts: message properties, and names in templates.
PART_INDEX: Final = "partIndex"
PART_COUNT: Final = "partCount"
#: Maximum total size of the messages created from one payload, in bytes.
MAX_BYTES: Final = 64 * 1024 * 1024
#: Maximum time that one payload takes, in seconds of the processor.
MAX_SECONDS: Final = 2.0

_LOCATION = ("split",)
Made = TypeVar("Made", MappedMessage, Publication)


class PayloadPart(msgspec.Struct, frozen=True):
    """A part of a payload."""

    value: object
    #: from 0
    index: int
    count: int

    @property
    def names(self) -> dict[str, str]:
        """The names that templates can use, which are message properties, too."""
        return {PART_INDEX: str(self.index), PART_COUNT: str(self.count)}


class PartScope(Scope, Protocol):
    """The values of a message, or of a part of it."""

    def with_part(self, part: PayloadPart) -> Self:
        """Return the values for a part."""


SomeScope = TypeVar("SomeScope", bound=PartScope)


class Split:
    """Divides payloads. Raises RuleError."""

    def __init__(self, config: SplitConfig) -> None:
        try:
            self._path = path_of(config.path)
        except PathError as error:
            raise RuleError.at(_LOCATION, error.sentence) from error
        self._max_parts = config.max_parts

    def messages(self, scope: SomeScope, make: Callable[[SomeScope], Made]) -> Sequence[Made]:
        """Return the results of `make` for each part. An array without elements results in no messages. Raises Unmappable."""
        messages = []
        size, until = 0, time.thread_time() + MAX_SECONDS
        for part in self._parts(scope):
            try:
                message = make(scope.with_part(part))
            except Unmappable as error:
                raise Unmappable(error.reason, f"part {part.index} of {part.count}: {error}") from error
            messages.append(message)
            size += len(message.message.data if isinstance(message, MappedMessage) else message.payload)
            if size > MAX_BYTES:
                raise _too_much(f"{part.index + 1} of {part.count} parts have more than {MAX_BYTES:,} bytes together")
            if time.thread_time() > until:
                raise _too_much(f"{part.index + 1} of {part.count} parts took {MAX_SECONDS:g} s of the processor")
        return messages

    def _parts(self, scope: Scope) -> Iterator[PayloadPart]:
        elements = self._path.value(scope.document)
        if elements is MISSING:
            raise Unmappable(cmqc.MQRC_PROPERTY_NOT_AVAILABLE, f"split: the payload has no {self._path.text}")
        if not isinstance(elements, list):
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, f"split: {self._path.text} of the payload is not an array")
        if len(elements) > self._max_parts:
            raise _too_much(
                f"{self._path.text} of the payload has {len(elements):,} elements, of {self._max_parts:,} at most"
                " (split.max_parts)"
            )
        return (PayloadPart(element, index, len(elements)) for index, element in enumerate(elements))


def _too_much(why: str) -> Unmappable:
    return Unmappable(cmqc.MQRC_DATA_LENGTH_ERROR, f"split: {why}")
