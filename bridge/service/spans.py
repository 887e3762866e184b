"""Trace contexts (W3C "Trace Context") and spans as plain data, created after the operations."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from bridge.mqtt.packets import UserProperty
from bridge.telemetry.headers import DISCARDED_FORMATS, Headers
from bridge.telemetry.message import Unmappable
from bridge.telemetry.transmission import AnyMessage, PublicationMessage

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
#: The maximum length of a tracestate passed to a collector, in characters: the required minimum (section 3.3.1.5).
TRACESTATE_LENGTH: Final = 512
#: Number of bytes at the start of a message to search for the property name before parsing its headers.
_SEARCHED: Final = 65_536

_SAMPLED: Final = 0x01
_RANDOM: Final = 0x02
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """The position of an operation in a trace."""

    #: 128 bits, not 0
    trace_id: int
    #: 64 bits, not 0
    span_id: int
    #: the supported trace-flags
    flags: int = _SAMPLED
    #: tracestate, for the collector, or "" if absent
    state: str = ""

    @property
    def sampled(self) -> bool:
        """Whether the originator of the trace may have recorded it."""
        return bool(self.flags & _SAMPLED)

    @property
    def traceparent(self) -> str:
        """The value of `traceparent`, version 00."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def parsed(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Parse a `traceparent`. Return None if it is not valid (sections 3.2 and 4.3).

    Only the fields of version 00 of later versions are read. Unknown flags are cleared. A tracestate that is too long is
    omitted.
    """
    # Ignore everything after the known fields, regardless of length.
    match = _TRACEPARENT.fullmatch(traceparent, 0, 56)
    if match is None or match[1] == "ff" or (match[1] == "00" and len(traceparent) != 55):
        return None
    trace_id, span_id = int(match[2], 16), int(match[3], 16)
    if not trace_id or not span_id:
        return None
    state = tracestate if len(tracestate) <= TRACESTATE_LENGTH else ""
    return TraceContext(trace_id, span_id, int(match[4], 16) & (_SAMPLED | _RANDOM), state)


def context_in(user_property: UserProperty) -> TraceContext | None:
    """Return the context in user properties, or None if there is not exactly one valid `traceparent`."""
    traceparents = [value for name, value in user_property if name == TRACEPARENT]
    if len(traceparents) != 1:
        return None
    # Several tracestate fields form one list (section 3.3.1).
    return parsed(traceparents[0], ",".join([value for name, value in user_property if name == TRACESTATE]))


def user_property_with(user_property: Sequence[tuple[str, str]], context: TraceContext, *, new: bool) -> UserProperty:
    """Return user properties with this `traceparent`. For a `new` trace, remove the tracestate too."""
    replaced = (TRACEPARENT, TRACESTATE) if new else (TRACEPARENT,)
    pairs = [pair for pair in user_property if pair[0] not in replaced]
    return (*pairs, (TRACEPARENT, context.traceparent))


def context_of(message: AnyMessage) -> TraceContext | None:
    """Return the context of a message, or None, also for malformed headers.

    Headers of messages from MQ are parsed only if the property name occurs in the first bytes.
    """
    if isinstance(message, PublicationMessage):
        properties = message.properties
        if properties is None or not properties.user_property:
            return None
        return context_in(properties.user_property)
    if message.md.Format not in DISCARDED_FORMATS or message.data.find(b"traceparent", 0, _SEARCHED) < 0:
        return None
    try:
        return context_in(Headers(message, discard_others=True).properties.user_property)
    except Unmappable:
        return None


Attribute = str | int | bool
#: Maximum length of a text attribute in characters.
TEXT_LENGTH: Final = 256


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on a message. Times are in nanoseconds since the epoch."""

    name: str
    #: the role of the operation (OpenTelemetry, "SpanKind"); a server answers a client
    kind: Literal["server", "producer", "consumer"]
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


#: The type of each operation (OpenTelemetry, "Semantic conventions for messaging spans").
OPERATION_TYPES: Final = {"publish": "receive", "put": "send", "map": "process", "deliver": "process"}


def span_name(operation: str, destination: str) -> str:
    """Return the name of a span: the operation and its destination, which is blank if traces contain no names."""
    return f"{operation} {destination[:TEXT_LENGTH]}" if destination else operation


def operation_attributes(system: Literal["mqtt", "ibmmq"], operation: str, destination: str) -> dict[str, Attribute]:
    """Return the attributes of the semantic conventions that all operations have."""
    attributes: dict[str, Attribute] = {
        "messaging.system": system,
        "messaging.operation.name": operation,
        "messaging.operation.type": OPERATION_TYPES[operation],
    }
    if destination:
        attributes["messaging.destination.name"] = destination[:TEXT_LENGTH]
    return attributes


def child_of(parent: TraceContext | None) -> TraceContext:
    """Return the context of a new operation, in the trace of `parent` or in a new trace.

    Identifiers are random, but need not be cryptographically secure.
    """
    if parent is None:
        return TraceContext(random.getrandbits(128) or 1, random.getrandbits(64) or 1)
    return msgspec.structs.replace(parent, span_id=random.getrandbits(64) or 1)


def sampled(sample: float, messages: int) -> list[int]:
    """Return the indices of those among some messages that begin a trace, each with the same probability."""
    return [index for index in range(messages) if random.random() < sample] if sample else []
