"""Recorder of the outcome of each message that a mapping takes."""

from __future__ import annotations

from typing import Any

from bridge.archive.event_queue import EventProducer
from bridge.archive.events import Arrived, Mapped, Taken, encode, now_us
from bridge.archive.mapping_observer import Fate, MappingObserver
from bridge.mq.mqi import Got
from bridge.telemetry.message import NO_PROPERTIES, Received

_MAPPED, _TAKEN, _ARRIVED = (kind.__struct_config__.tag for kind in (Mapped, Taken, Arrived))


class MappingRecorder(MappingObserver):
    """Writes the messages of one mapping to the archive."""

    def __init__(self, mapping: str, producer: EventProducer) -> None:
        self._mapping = mapping
        self._producer = producer

    def settled(self, fates: list[Fate], began: int, queue: str) -> None:
        """Record the messages of a committed unit of work."""
        if not fates:
            return
        now = now_us()
        messages = [
            (outcome, reason, destination, _taken(item, queue) if isinstance(item, Got) else _arrived(item))
            for item, outcome, reason, destination in fates
        ]
        self._producer.add(now, encode((_MAPPED, now, self._mapping, began, messages)), len(messages))


def _taken(got: Got, queue: str) -> tuple[Any, ...]:
    md = got.md
    return (
        _TAKEN, md.Format, md.Encoding, md.CodedCharSetId, md.Persistence, md.MsgId, md.PutDate, md.PutTime, got.data, queue,
        md.CorrelId,
    )  # fmt: skip


def _arrived(received: Received) -> tuple[Any, ...]:
    one = received.publication
    return (
        _ARRIVED, one.topic, one.payload, one.qos, one.retain, one.client_id, one.message_id, received.dup,
        None if one.properties == NO_PROPERTIES else one.properties,
    )  # fmt: skip
