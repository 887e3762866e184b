"""Spans as plain data, created after the operations, and the interface of their receivers."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from enum import Enum
from math import log, log1p
from typing import Final, Protocol

import msgspec

from bridge.telemetry.trace_context import TraceContext

Attribute = str | int | bool
#: Maximum length of a text attribute in characters.
TEXT_LENGTH: Final = 256
#: For identifiers and sampling. Need not be cryptographically secure.
_random = random.Random(secrets.randbits(256))


class Kind(Enum):
    """The role of an operation in a trace (OpenTelemetry, "SpanKind")."""

    #: answers a client
    SERVER = "server"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on a message. Times are in nanoseconds since the epoch."""

    name: str
    kind: Kind
    context: TraceContext
    #: None: the trace begins with this span
    parent: TraceContext | None
    start: int
    end: int
    attributes: Mapping[str, Attribute] = {}
    #: the error, or "" if the operation succeeded
    error: str = ""
    #: events during the operation, with their times
    events: tuple[tuple[str, int], ...] = ()


class Spans(Protocol):
    """Receives spans on any thread, without blocking."""

    def add(self, span: Span) -> None:
        """Add a span, or drop it if there is no room."""


def child_of(parent: TraceContext | None) -> TraceContext:
    """Return the context of a new operation, in the trace of `parent` or in a new trace."""
    if parent is None:
        return TraceContext(_random.getrandbits(128) or 1, _random.getrandbits(64) or 1)
    return msgspec.structs.replace(parent, span_id=_random.getrandbits(64) or 1)


class Sampler:
    """Chooses the messages that begin a trace, each with the same probability, at low cost for many messages.

    May only be used by one thread.
    """

    def __init__(self, sample: float) -> None:
        """Create a sampler with a probability from 0 to 1."""
        self._sample = sample
        #: number of messages to skip before the next one that begins a trace; -1: none begins one
        self._left = 0
        self._draw()

    def _draw(self) -> None:
        gap = 0 if self._sample >= 1 else -1 if self._sample <= 0 else _gap(self._sample)
        self._left = gap

    def take(self, messages: int) -> list[int]:
        """Return the indices of those among the next messages that begin a trace."""
        left = self._left
        if left >= messages:
            self._left = left - messages
            return []
        if left < 0:
            return []
        found = []
        index = left
        while index < messages:
            found.append(index)
            self._draw()
            index += 1 + self._left
        self._left = index - messages
        return found


def _gap(sample: float) -> int:
    """Return a random number of messages to skip, with a geometric distribution."""
    return int(log(1.0 - _random.random()) / log1p(-sample))
