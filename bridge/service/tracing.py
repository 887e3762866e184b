"""OpenTelemetry spans of publications, deliveries and mappings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bridge.config.operations import TracesConfig
from bridge.extras import install
from bridge.mq.backend import Completion
from bridge.mq.mqi import Got
from bridge.mqtt.packets import LEVEL_MQTT_5, PublishProperties
from bridge.service.events import Acknowledged, DeadLettered, Fate, Finished, Publications
from bridge.service.spans import (
    TEXT_LENGTH,
    Span,
    TraceContext,
    child_of,
    context_in,
    context_of,
    operation_attributes,
    sampled,
    span_name,
    user_property_with,
)
from bridge.telemetry.message import Publication, Received
from bridge.telemetry.outbox import Outgoing
from bridge.telemetry.outcome import Outcome
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import Transmission, put_time_of
from bridge.wire import cmqc

if TYPE_CHECKING:
    from bridge.service.trace_export import SpanExport

Ended = Callable[[Completion], None]

log = logging.getLogger(__name__)

_NOTHING: Final = PublishProperties()


class Traced(msgspec.Struct, frozen=True):
    """A traced publication: its index in its unit of work, and the contexts of its spans."""

    index: int
    parent: TraceContext | None
    publish: TraceContext
    put: TraceContext


class PublicationTraces:
    """Traces the publications of clients. Methods are called on the event loop."""

    def __init__(self, spans: SpanExport, sample: float, *, names: bool) -> None:
        """Create the tracer.

        `sample` is the fraction of publications that begin a trace, `names` whether spans contain names.
        """
        self._spans = spans
        self._sample = sample
        self._names = names

    def following(self, session: Session, publications: Publications, received: int, ended: Ended) -> Ended:
        """Return the completion callback of a unit of work that calls `ended` and creates the spans of traced publications.

        Must be called before the unit is submitted. Traced messages carry the context of their `put` afterwards. `received`
        is in microseconds since the epoch.
        """
        sampled_indexes = sampled(self._sample, len(publications))
        # Before MQTT 5, no message has a context, so only the sample counts.
        if not sampled_indexes and session.level < LEVEL_MQTT_5:
            return ended
        try:
            traced = self._begin(publications, frozenset(sampled_indexes))
        except Exception:
            log.exception("MQB9305E tracing publications failed; messages are not affected")
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
                    log.exception("MQB9306E spans of publications were lost; messages are not affected")

        return traced_end

    def _begin(self, publications: Publications, sampled_indexes: Set[int]) -> list[Traced]:
        """Set the `put` context of messages that have a sampled context or whose index is in `sampled_indexes`."""
        traced = []
        for index, (message, _) in enumerate(publications):
            if message.properties is None and not sampled_indexes:
                continue
            properties = message.properties
            user_property = () if properties is None else properties.user_property
            parent = context_in(user_property) if user_property else None
            if not parent.sampled if parent is not None else index not in sampled_indexes:
                continue
            publish = child_of(parent)
            put_context = child_of(publish)
            message.properties = msgspec.structs.replace(
                properties or _NOTHING, user_property=user_property_with(user_property, put_context, new=parent is None)
            )
            traced.append(Traced(index, parent, publish, put_context))
        return traced

    def _end(
        self,
        client_id: str,
        publications: Publications,
        traced: Sequence[Traced],
        completion: Completion,
        times: tuple[int, int, int, int],
    ) -> None:
        """Create the spans. `times` are those of PUBLISH, submission, commit and acknowledgement."""
        received, submitted, committed, answered_at = times
        for trace in traced:
            message, retain = publications[trace.index]
            reason = completion.failure or completion.refusals.get(trace.index, 0)
            error = cmqc.reason_name(reason) if reason else ""
            topic = message.topic if self._names else ""
            queue = (message.reply_to or (message.topic,))[0] if self._names else ""
            attributes = operation_attributes("mqtt", "publish", topic)
            attributes |= {
                "messaging.message.body.size": len(message.payload),
                "mqtt.qos": message.qos,
                "mqtt.retain": retain,
            }
            if message.packet_id:
                attributes["messaging.message.id"] = str(message.packet_id)
            put_attributes = operation_attributes("ibmmq", "put", queue)
            if self._names:
                attributes["messaging.client.id"] = client_id[:TEXT_LENGTH]
            if diverted := completion.diverted.get(trace.index, 0):
                put_attributes["ibmmq.dead_letter.reason"] = cmqc.reason_name(diverted)
            if reason:
                attributes["ibmmq.reason"] = put_attributes["ibmmq.reason"] = reason
                attributes["error.type"] = put_attributes["error.type"] = error
            self._spans.add(
                Span(
                    name=span_name("put", queue),
                    kind="producer",
                    context=trace.put,
                    parent=trace.publish,
                    start=submitted,
                    end=committed,
                    attributes=put_attributes,
                    error=error,
                )
            )
            self._spans.add(
                Span(
                    name=span_name("publish", topic),
                    kind="server",
                    context=trace.publish,
                    parent=trace.parent,
                    start=min(received, submitted),
                    end=answered_at,
                    attributes=attributes,
                    error=error,
                )
            )


_REJECTED = "the client has rejected it (PUBREC)"


class DeliveryTraces:
    """Traces the deliveries of messages that have a context. `clock` is that of the service."""

    def __init__(self, spans: SpanExport, clock: Callable[[], float], *, names: bool) -> None:
        self._spans = spans
        self._clock = clock
        self._names = names

    def _acknowledged(self, event: Acknowledged) -> None:
        session, effects = event.session, event.effects
        in_flight = session.outbox.in_flight.deliveries
        for packet_id, transmission in effects.acknowledged:
            context = context_of(transmission.message)
            if context is not None and context.sampled:
                outgoing = in_flight.get(packet_id)
                # For QoS 2, this event means that the client rejected the message.
                error = _REJECTED if outgoing is not None and outgoing.qos == 2 else ""
                self._delivered(session.client_id, transmission, context, outgoing, error)
        for _, released, transmission in effects.released:
            context = context_of(transmission.message)
            if context is not None and context.sampled:
                self._delivered(session.client_id, transmission, context, released, "")

    def _finished(self, event: Finished) -> None:
        for transmission in event.transmissions:
            context = context_of(transmission.message)
            if context is not None and context.sampled:
                why = event.discarded.get(transmission.msg_number, "")
                self._delivered(event.session.client_id, transmission, context, None, why)

    def _dead_lettered(self, event: DeadLettered) -> None:
        transmission = event.transmission
        context = context_of(transmission.message)
        if context is not None and context.sampled:
            self._delivered(transmission.client_id, transmission, context, None, cmqc.reason_name(event.reason))

    def _delivered(
        self, client_id: str, transmission: Transmission, parent: TraceContext, outgoing: Outgoing | None, error: str
    ) -> None:
        end = time.time_ns()
        sent_at = end
        destination = (transmission.topic or transmission.remote_queue) if self._names else ""
        attributes = operation_attributes("mqtt", "deliver", destination)
        attributes |= {
            "messaging.message.id": f"{transmission.msg_number:016x}",
            "mqtt.retain": transmission.retained,
            "mqtt.qos": 0,
        }
        if outgoing is not None:
            sent_at = min(end - int((self._clock() - outgoing.sent_at) * 1e9), end)
            attributes["mqtt.qos"] = outgoing.qos
            attributes["mqtt.times_sent"] = outgoing.times_sent
        elif error:
            del attributes["mqtt.qos"]
        if self._names:
            attributes["messaging.client.id"] = client_id[:TEXT_LENGTH]
        if error:
            attributes["error.type"] = error
        # A retained message may have been put long ago. Its delivery begins with the subscription.
        put_at = 0 if transmission.retained else int(put_time_of(transmission) * 1e9)
        self._spans.add(
            Span(
                name=span_name("deliver", destination),
                kind="consumer",
                context=child_of(parent),
                parent=parent,
                start=min(put_at or sent_at, sent_at),
                end=end,
                attributes=attributes,
                error=error,
                events=() if error and outgoing is None else (("sent", sent_at),),
            )
        )


#: Outcomes that are not errors.
_GOOD = frozenset((Outcome.PUT, Outcome.DELIVERED, Outcome.ACKNOWLEDGED))


class MappingTraces:
    """Traces the messages moved by one mapping. Methods are called by its thread."""

    def __init__(self, mapping: str, spans: SpanExport, sample: float, *, names: bool) -> None:
        self._mapping = mapping
        self._spans = spans
        self._sample = sample
        self._names = names
        #: id of an incoming message -> the message (a reference keeps the id valid), the context of its span, and the
        #: parent's
        self._begun: dict[int, tuple[Got | Received, TraceContext, TraceContext | None]] = {}

    def traced(self, incoming: Got | Received, publication: Publication) -> Publication:
        """Return a publication with the context of this mapping, or the unchanged publication if it is not traced."""
        try:
            return self._traced(incoming, publication)
        except Exception:
            log.exception("MQB9307E mapping %s: tracing failed; messages are not affected", self._mapping)
            return publication

    def _traced(self, incoming: Got | Received, publication: Publication) -> Publication:
        pairs = publication.properties.user_property
        parent = context_in(pairs) if pairs else None
        if not parent.sampled if parent is not None else not sampled(self._sample, 1):
            return publication
        context = child_of(parent)
        self._begun[id(incoming)] = incoming, context, parent
        user_property = user_property_with(pairs, context, new=parent is None)
        properties = msgspec.structs.replace(publication.properties, user_property=user_property)
        return msgspec.structs.replace(publication, properties=properties)

    def forget(self) -> None:
        """Forget all unfinished spans: the unit of work was backed out, and its messages will be taken again."""
        self._begun.clear()

    def forget_message(self, incoming: Got | Received) -> None:
        """Forget the span of a message that stays at the source."""
        self._begun.pop(id(incoming), None)

    def settled(self, fates: Sequence[Fate], start: int) -> None:
        """Create the spans of messages after the commit of their unit of work. `start` is in microseconds since the epoch."""
        if not self._begun:
            return
        try:
            self._settled(fates, start)
        except Exception:
            log.exception("MQB9304E mapping %s: spans were lost; messages are not affected", self._mapping)

    def _settled(self, fates: Sequence[Fate], start: int) -> None:
        end = time.time_ns()
        for incoming, outcome, reason, to in fates:
            open_trace = self._begun.pop(id(incoming), None)
            if open_trace is None:
                continue
            _, context, parent = open_trace
            destination = (to or "") if self._names else ""
            attributes = operation_attributes("ibmmq", "map", destination)
            attributes |= {"mqbridge.mapping": self._mapping, "mqbridge.outcome": outcome.value}
            if outcome not in _GOOD:
                attributes["error.type"] = outcome.value
            self._spans.add(
                Span(
                    name=span_name("map", destination),
                    kind="consumer",
                    context=context,
                    parent=parent,
                    start=start * 1_000,
                    end=end,
                    attributes=attributes,
                    error="" if outcome in _GOOD else _error(reason, outcome, names=self._names),
                )
            )


def _error(reason: str | None, outcome: Outcome, *, names: bool) -> str:
    """Return the error of a message, without details if `names` is False."""
    return reason[:TEXT_LENGTH] if reason and names else outcome.value


#: Seconds to wait for the collector when the bridge stops.
CLOSE_TIMEOUT = 3.0


class TracesError(Exception):
    """Traces cannot be exported. The message is for display."""


class Tracing:
    """Traces the messages of clients and mappings. `clock` is that of the service."""

    def __init__(self, config: TracesConfig, export: SpanExport, clock: Callable[[], float]) -> None:
        self._config = config
        self._export = export
        self.publications = PublicationTraces(export, config.sample, names=config.names)
        self.deliveries = DeliveryTraces(export, clock, names=config.names)

    def mapping(self, name: str) -> MappingTraces:
        """Return the tracer for a mapping's thread."""
        return MappingTraces(name, self._export, self._config.sample, names=self._config.names)

    def close(self) -> None:
        """Export the remaining spans. Blocks for a while: call it on a separate thread."""
        self._export.close(CLOSE_TIMEOUT)


def tracing_of(config: TracesConfig, clock: Callable[[], float]) -> Tracing | None:
    """Return the configured tracing, or None. Raises TracesError."""
    if config.endpoint is None:
        return None
    headers = {} if config.headers_file is None else _headers(config.headers_file)
    # Imported only if tracing is configured.
    try:
        from bridge.service.trace_export import SpanExport
    except ImportError as error:
        raise TracesError(f"traces: {error}; `{install('otel')}` installs the dependencies") from error
    try:
        return Tracing(config, SpanExport(config, headers), clock)
    except OSError as error:
        raise TracesError(f"traces: {error}") from error


def _headers(file: Path) -> dict[str, str]:
    """Read a headers file: lines NAME: VALUE, empty lines, and comments (#). Raises TracesError."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TracesError(f"traces.headers_file {file}: {getattr(error, 'strerror', None) or error}") from error
    headers = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not value.strip() or not line.isprintable():
            # The line itself is secret.
            raise TracesError(f"traces.headers_file {file}, line {number}: expected NAME: VALUE")
        headers[name.strip()] = value.strip()
    return headers
