"""Spans as plain data, made after the fact, and where they go."""

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
#: Characters of a text among the attributes, at most.
TEXT_LENGTH: Final = 256
#: Of ids and samples; nothing secret hangs on it.
_random = random.Random(secrets.randbits(256))


class Kind(Enum):
    """What an operation is to those before and behind it (OpenTelemetry, "SpanKind")."""

    #: it answers a client
    SERVER = "server"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on one message. Times are nanoseconds since the epoch."""

    name: str
    kind: Kind
    context: TraceContext
    #: None: the trace begins here
    parent: TraceContext | None
    start: int
    end: int
    attributes: Mapping[str, Attribute] = {}
    #: why it failed; "" where it did not
    error: str = ""
    #: what happened in between, with its time
    events: tuple[tuple[str, int], ...] = ()


class Spans(Protocol):
    """Takes spans, on any thread, and holds nobody up."""

    def add(self, span: Span) -> None:
        """Take a span; one that there is no room for is dropped."""


def child_of(parent: TraceContext | None) -> TraceContext:
    """Return the context of a new operation: in the trace of `parent`, or in one that begins with it."""
    if parent is None:
        return TraceContext(_random.getrandbits(128) or 1, _random.getrandbits(64) or 1)
    return msgspec.structs.replace(parent, span_id=_random.getrandbits(64) or 1)


class Sampler:
    """Decides which messages begin a trace: each with the same probability, by one look at many messages.

    It belongs to one thread.
    """

    def __init__(self, sample: float) -> None:
        """Begin; `sample` is the probability, 0 to 1."""
        self._sample = sample
        #: messages that go by until the next one begins a trace
        self._left = 0
        self._draw()

    def _draw(self) -> None:
        gap = 0 if self._sample >= 1 else -1 if self._sample <= 0 else _gap(self._sample)
        self._left = gap

    def take(self, messages: int) -> list[int]:
        """Return which of the next messages, by index, begin a trace."""
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
    """Return how many messages go by before one begins a trace: a geometric distribution."""
    return int(log(1.0 - _random.random()) / log1p(-sample))
