"""Spans of publications: `publish`, from PUBLISH to its acknowledgement, and in it `put`, to the commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence, Set
from typing import Final

import msgspec

from bridge.mq.unit_of_work import Completion
from bridge.mqtt.packets import LEVEL_MQTT_5, PublishProperties
from bridge.service.tracing.span import TEXT_LENGTH, Attribute, Kind, Sampler, Span, Spans, child_of
from bridge.telemetry.session import Session
from bridge.telemetry.trace_context import TraceContext, context_in, user_property_with
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc

Publications = Sequence[tuple[PublicationMessage, bool]]
Ended = Callable[[Completion], None]

log = logging.getLogger(__name__)

_NOTHING: Final = PublishProperties()


class Traced(msgspec.Struct, frozen=True):
    """A publication that is traced: its index in its unit of work, and the contexts of its spans."""

    index: int
    parent: TraceContext | None
    publish: TraceContext
    put: TraceContext


class PublicationTraces:
    """Traces what clients publish. Everything is called on the event loop."""

    def __init__(self, spans: Spans, sample: float, *, names: bool) -> None:
        """Begin; `sample` is the part of publications without a trace that begin one, `names` whether spans name topics."""
        self._spans = spans
        self._sampler = Sampler(sample)
        self._names = names

    def following(self, session: Session, publications: Publications, received: int, ended: Ended) -> Ended:
        """Return what is to follow the completion of a unit of work: `ended`, and the spans of what is traced in it.

        The unit is not submitted yet. A message that is traced carries the context of its `put` from now on. `received` in
        microseconds since the epoch.
        """
        begun = self._sampler.take(len(publications))
        # Before MQTT 5 no message comes with a context: then one look is enough for all that are not traced.
        if not begun and session.level < LEVEL_MQTT_5:
            return ended
        try:
            traced = self._begin(publications, frozenset(begun))
        except Exception:
            log.exception("MQB9305E traces of publications fail; messages go on")
            return ended
        if not traced:
            return ended
        submitted = time.time_ns()

        def traced_end(completion: Completion) -> None:
            committed = time.time_ns()
            try:
                ended(completion)
            finally:
                times = received * 1_000, submitted, committed, time.time_ns()
                try:
                    self._end(session.client_id, publications, traced, completion, times)
                except Exception:
                    log.exception("MQB9306E spans of publications are lost; messages go on")

        return traced_end

    def _begin(self, publications: Publications, begun: Set[int]) -> list[Traced]:
        """Give those messages the context of their `put` that come with a sampled one, or, by index, have `begun` a trace."""
        traced = []
        for index, (message, _) in enumerate(publications):
            if message.properties is None and not begun:
                continue
            properties = message.properties
            user_property = () if properties is None else properties.user_property
            parent = context_in(user_property) if user_property else None
            if not parent.sampled if parent is not None else index not in begun:
                continue
            publish = child_of(parent)
            put = child_of(publish)
            message.properties = msgspec.structs.replace(
                properties or _NOTHING, user_property=user_property_with(user_property, put, new=parent is None)
            )
            traced.append(Traced(index, parent, publish, put))
        return traced

    def _end(
        self,
        client_id: str,
        publications: Publications,
        traced: Sequence[Traced],
        completion: Completion,
        times: tuple[int, int, int, int],
    ) -> None:
        """Make the spans; `times` are those of PUBLISH, submission, commit and acknowledgement."""
        received, submitted, committed, answered = times
        for one in traced:
            message, retain = publications[one.index]
            reason = completion.failure or completion.refusals.get(one.index, 0)
            error = cmqc.reason_name(reason) if reason else ""
            attributes: dict[str, Attribute] = {
                "messaging.system": "mqtt",
                "messaging.operation.name": "publish",
                "messaging.message.body.size": len(message.payload),
                "mqtt.qos": message.qos,
                "mqtt.retain": retain,
            }
            if message.message_id:
                attributes["messaging.message.id"] = str(message.message_id)
            put: dict[str, Attribute] = {"messaging.system": "ibmmq", "messaging.operation.name": "put"}
            if self._names:
                attributes["messaging.client.id"] = client_id[:TEXT_LENGTH]
                attributes["messaging.destination.name"] = message.topic[:TEXT_LENGTH]
                put["messaging.destination.name"] = (message.reply_to or (message.topic,))[0][:TEXT_LENGTH]
            if diverted := completion.diverted.get(one.index, 0):
                put["ibmmq.dead_letter.reason"] = cmqc.reason_name(diverted)
            if reason:
                attributes["ibmmq.reason"] = put["ibmmq.reason"] = reason
            self._spans.add(
                Span(
                    name="put", kind=Kind.PRODUCER, context=one.put, parent=one.publish, start=submitted, end=committed,
                    attributes=put, error=error,
                )
            )  # fmt: skip
            self._spans.add(
                Span(
                    name="publish", kind=Kind.SERVER, context=one.publish, parent=one.parent,
                    start=min(received, submitted), end=answered, attributes=attributes, error=error,
                )
            )  # fmt: skip
