"""Spans of deliveries: `deliver`, from the put of a message to the acknowledgement of its subscriber."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from bridge.service.observers import Observer
from bridge.service.put_time import put_time_of
from bridge.service.tracing.span import TEXT_LENGTH, Attribute, Kind, Span, Spans, child_of
from bridge.telemetry.in_flight import Outgoing
from bridge.telemetry.session import ReceiveEffects, Session
from bridge.telemetry.trace_context import TraceContext, context_of
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc

_REJECTED = "the client has refused it (PUBREC)"


class DeliveryTraces(Observer):
    """Traces what clients get of messages that carry a trace; `clock` is the service's."""

    def __init__(self, spans: Spans, clock: Callable[[], float], *, names: bool) -> None:
        self._spans = spans
        self._clock = clock
        self._names = names

    def acknowledged(self, session: Session, effects: ReceiveEffects) -> None:
        in_flight = session.outbox.in_flight
        for message_id, transmission in effects.acknowledged:
            context = context_of(transmission.message)
            if context is not None and context.sampled:
                outgoing = in_flight.get(message_id)
                # A message with QoS 2 ends so only where the client refuses it.
                error = _REJECTED if outgoing is not None and outgoing.qos == 2 else ""
                self._delivered(session.client_id, transmission, context, outgoing, error)
        for _, released, transmission in effects.released:
            context = context_of(transmission.message)
            if context is not None and context.sampled:
                self._delivered(session.client_id, transmission, context, released, "")

    def finished(self, session: Session, done: Sequence[Transmission], discarded: Mapping[int, str]) -> None:
        for transmission in done:
            context = context_of(transmission.message)
            if context is not None and context.sampled:
                why = discarded.get(transmission.msg_number, "") if discarded else ""
                self._delivered(session.client_id, transmission, context, None, why)

    def dead_lettered(self, transmission: Transmission, reason: int) -> None:
        context = context_of(transmission.message)
        if context is not None and context.sampled:
            self._delivered(transmission.client_id, transmission, context, None, cmqc.reason_name(reason))

    def _delivered(
        self,
        client_id: str,
        transmission: Transmission,
        parent: TraceContext,
        outgoing: Outgoing | None,
        error: str,
    ) -> None:
        end = time.time_ns()
        sent = end
        attributes: dict[str, Attribute] = {
            "messaging.system": "mqtt",
            "messaging.operation.name": "deliver",
            "messaging.message.id": f"{transmission.msg_number:016x}",
            "mqtt.retain": transmission.retained,
            "mqtt.qos": 0,
        }
        if outgoing is not None:
            sent = min(end - int((self._clock() - outgoing.sent_at) * 1e9), end)
            attributes["mqtt.qos"] = outgoing.qos
            attributes["mqtt.times_sent"] = outgoing.times_sent
        elif error:
            del attributes["mqtt.qos"]
        if self._names:
            attributes["messaging.client.id"] = client_id[:TEXT_LENGTH]
            attributes["messaging.destination.name"] = (transmission.topic or transmission.remote_queue)[:TEXT_LENGTH]
        # What was retained may have been put long ago: its delivery begins when somebody asks for it.
        put = 0 if transmission.retained else int(put_time_of(transmission) * 1e9)
        self._spans.add(
            Span(
                name="deliver",
                kind=Kind.CONSUMER,
                context=child_of(parent),
                parent=parent,
                start=min(put or sent, sent),
                end=end,
                attributes=attributes,
                error=error,
                events=() if error and outgoing is None else (("sent", sent),),
            )
        )
