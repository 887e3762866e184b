"""What the thread of a mapping tells the archive: what became of each message that it took, once that is committed."""

from __future__ import annotations

from typing import Any, Final

from bridge.archive.event_queue import EventProducer
from bridge.archive.events import Arrived, Mapped, Taken, encode, now_us
from bridge.archive.schema import Outcome
from bridge.mq.mqi import Got
from bridge.mqtt.link.state import Received

_MAPPED, _TAKEN, _ARRIVED = (kind.__struct_config__.tag for kind in (Mapped, Taken, Arrived))

#: A message as it was taken, what became of it, why, and the queue or topic that it went to.
Fate = tuple["Got | Received", Outcome, str | None, str | None]

#: `reason` of messages that a mapping discarded.
FILTERED: Final = "the mapping's filter does not take it"
CAME_ROUND: Final = "it has come round"
LINK_LOST: Final = "the link was lost, and it is sent once at most"


class MappingObserver:
    """Is told what becomes of the messages of one mapping; called by its thread. This one has nobody to tell."""

    def settled(self, fates: list[Fate], began: int, queue: str) -> None:
        """Note the messages of a unit of work that is committed.

        `began` in microseconds since the epoch; `queue` is blank for a topic or link.
        """


class MappingRecorder(MappingObserver):
    """The archive of one mapping."""

    def __init__(self, mapping: str, producer: EventProducer) -> None:
        self._mapping = mapping
        self._producer = producer

    def settled(self, fates: list[Fate], began: int, queue: str) -> None:
        """Record the messages of a unit of work that is committed."""
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
    )  # fmt: skip


def _arrived(received: Received) -> tuple[Any, ...]:
    one = received.publication
    return _ARRIVED, one.topic, one.payload, one.qos, one.retain, one.client_id, one.message_id, received.dup
