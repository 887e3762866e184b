"""Spans of mappings: `mapping NAME`, from the take of a message to the commit of its unit of work."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import msgspec

from bridge.archive.mapping_observer import Fate
from bridge.archive.schema import Outcome
from bridge.mq.mqi import Got
from bridge.service.tracing.span import TEXT_LENGTH, Attribute, Kind, Sampler, Span, Spans, child_of
from bridge.telemetry.message import Publication, Received
from bridge.telemetry.trace_context import TraceContext, context_in, user_property_with

log = logging.getLogger(__name__)

#: Outcomes that are no errors of the mapping, beside those of messages that went on.
_GOOD = frozenset((Outcome.PUT, Outcome.DELIVERED, Outcome.ACKNOWLEDGED))


class MappingTraces:
    """Traces what one mapping moves; called by its thread."""

    def __init__(self, mapping: str, spans: Spans, sample: float, *, names: bool) -> None:
        self._mapping = mapping
        self._spans = spans
        self._sampler = Sampler(sample)
        self._names = names
        #: id of an item -> the item, which keeps its id, and the contexts of its span and of the one before
        self._begun: dict[int, tuple[Got | Received, TraceContext, TraceContext | None]] = {}

    def traced(self, item: Got | Received, publication: Publication) -> Publication:
        """Return the publication of a message with the context of this mapping, where it is traced; else the very same."""
        try:
            return self._traced(item, publication)
        except Exception:
            log.exception("MQB9307E mapping %s: its traces fail; messages go on", self._mapping)
            return publication

    def _traced(self, item: Got | Received, publication: Publication) -> Publication:
        pairs = publication.user_property or (*publication.properties.items(),)
        parent = context_in(pairs) if pairs else None
        if not parent.sampled if parent is not None else not self._sampler.take(1):
            return publication
        context = child_of(parent)
        self._begun[id(item)] = item, context, parent
        given = user_property_with(pairs, context, new=parent is None)
        return msgspec.structs.replace(
            publication, properties=dict(given), user_property=given if publication.user_property else ()
        )

    def forget(self) -> None:
        """Forget what has begun: its unit of work is backed out, and it is taken again."""
        self._begun.clear()

    def forget_item(self, item: Got | Received) -> None:
        """Forget a message that stays where it is."""
        self._begun.pop(id(item), None)

    def settled(self, fates: Sequence[Fate], began: int) -> None:
        """Make the spans of messages whose unit of work is committed; `began` in microseconds since the epoch."""
        if not self._begun:
            return
        try:
            self._settled(fates, began)
        except Exception:
            log.exception("MQB9304E mapping %s: its spans are lost; messages go on", self._mapping)

    def _settled(self, fates: Sequence[Fate], began: int) -> None:
        end = time.time_ns()
        for item, outcome, reason, to in fates:
            begun = self._begun.pop(id(item), None)
            if begun is None:
                continue
            _, context, parent = begun
            attributes: dict[str, Attribute] = {
                "messaging.system": "ibmmq",
                "messaging.operation.name": "map",
                "mqbridge.mapping": self._mapping,
                "mqbridge.outcome": outcome.value,
            }
            if self._names and to:
                attributes["messaging.destination.name"] = to[:TEXT_LENGTH]
            self._spans.add(
                Span(
                    name=f"mapping {self._mapping}",
                    kind=Kind.CONSUMER,
                    context=context,
                    parent=parent,
                    start=began * 1_000,
                    end=end,
                    attributes=attributes,
                    error="" if outcome in _GOOD else _error(reason, outcome, names=self._names),
                )
            )


def _error(reason: str | None, outcome: Outcome, *, names: bool) -> str:
    """Return why a message did not go on; in words that name nothing where names are not to leave."""
    return reason[:TEXT_LENGTH] if reason and names else outcome.value
