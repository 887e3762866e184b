"""W3C trace context in user properties: `traceparent` and `tracestate`, as MQTT 5 and the usr folder of an RFH2 carry them.

Source: W3C Trace Context (Level 1, and the random flag of Level 2) and W3C Trace Context: MQTT protocol.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from bridge.mqtt.packets import UserProperty
from bridge.telemetry.headers import DISCARDED_FORMATS, Headers
from bridge.telemetry.message import Unmappable
from bridge.telemetry.transmission import AnyMessage, PublicationMessage

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
#: Characters of a tracestate that are passed on to a collector, at most: as many as have to be passed on (section 3.3.1.5).
TRACESTATE_LENGTH: Final = 512
#: Bytes at the beginning of a message in which the name of the property is looked for before its headers are read.
_SEARCHED: Final = 65_536

_SAMPLED: Final = 0x01
_RANDOM: Final = 0x02
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """The place of an operation in a trace."""

    #: 128 bits, not 0
    trace_id: int
    #: 64 bits, not 0
    span_id: int
    #: trace-flags, as far as they are known
    flags: int = _SAMPLED
    #: tracestate, for the collector; "" for none
    state: str = ""

    @property
    def sampled(self) -> bool:
        """Return whether whoever began the trace has it recorded."""
        return bool(self.flags & _SAMPLED)

    @property
    def traceparent(self) -> str:
        """Return the context as the value of `traceparent`, version 00."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def parsed(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Return the context that a `traceparent` says; None where it is not valid (sections 3.2 and 4.3).

    One of a later version is read as far as version 00 goes. Flags that nobody knows are cleared, and a tracestate that is
    too long is left out.
    """
    # What is behind the known fields is not read, however long.
    found = _TRACEPARENT.fullmatch(traceparent, 0, 56)
    if found is None or found[1] == "ff" or (found[1] == "00" and len(traceparent) != 55):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    state = tracestate if len(tracestate) <= TRACESTATE_LENGTH else ""
    return TraceContext(trace_id, span_id, int(found[4], 16) & (_SAMPLED | _RANDOM), state)


def context_in(user_property: UserProperty) -> TraceContext | None:
    """Return the context among user properties; None for none, for several, and for one that is not valid."""
    traceparents = [value for name, value in user_property if name == TRACEPARENT]
    if len(traceparents) != 1:
        return None
    # Of several, the list is one (section 3.3.1).
    return parsed(traceparents[0], ",".join([value for name, value in user_property if name == TRACESTATE]))


def user_property_with(user_property: Sequence[tuple[str, str]], context: TraceContext, *, new: bool) -> UserProperty:
    """Return user properties with this context in the place of another; of a `new` trace there is no tracestate yet."""
    replaced = (TRACEPARENT, TRACESTATE) if new else (TRACEPARENT,)
    kept = [pair for pair in user_property if pair[0] not in replaced]
    return (*kept, (TRACEPARENT, context.traceparent))


def context_of(message: AnyMessage) -> TraceContext | None:
    """Return the context that a message carries; None for none. It raises nothing.

    The headers of a message in bytes are read only where the name of the property is found in front.
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
