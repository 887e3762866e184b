"""The JSON Schemas of channels, with which the bridge checks payloads of clients before the queue manager gets them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from bridge.config.channel import ChannelConfig
from bridge.log_messages.printable import printable
from bridge.mapping.json_document import plain_document_of
from bridge.mapping.schema import Schema, schema_of_channel
from bridge.mq.backend import UnitOfWork
from bridge.mqtt.packets import LEVEL_MQTT_5
from bridge.mqtt.topics import FilterTree
from bridge.telemetry.message import Unmappable
from bridge.telemetry.session import NONE_INVALID, Session
from bridge.wire import cmqc

#: Number of invalid publications of a channel within a time in seconds that is reported as a problem.
MANY_INVALID: Final = 3
INVALID_PERIOD: Final = 300.0
#: Maximum number of remembered invalid publications of a channel.
_REMEMBERED: Final = 1_000


class ChannelSchema(msgspec.Struct, frozen=True):
    """A schema of a channel."""

    channel: str
    topic_filter: str
    schema: Schema

    @property
    def labels(self) -> tuple[str, str, str]:
        """The labels of its counter: channel, topic filter and name of the file."""
        return self.channel, self.topic_filter, self.schema.name

    def violation(self, payload: bytes) -> str:
        """Return how a payload violates the schema, or ""."""
        try:
            self.schema.check(plain_document_of(payload))
        except Unmappable as error:
            return printable(str(error))  # it contains text of the payload
        return ""


class InvalidPublication(msgspec.Struct, frozen=True):
    """A publication that violates a schema."""

    #: by time.monotonic()
    moment: float
    client_id: str
    topic: str
    violation: str


def schemas_of(channels: Iterable[ChannelConfig]) -> list[ChannelSchema]:
    """Return the compiled schemas of channels. Raises SchemaError."""
    return [
        ChannelSchema(channel.name, topic_filter, schema_of_channel(channel, topic_filter))
        for channel in channels
        for topic_filter in channel.schemas
    ]


class PayloadSchemas:
    """Checks publications with the schemas of their channels.

    Methods are called on the event loop.
    """

    def __init__(self, schemas: Iterable[ChannelSchema] = ()) -> None:
        #: channel -> its schemas by topic filter
        self._schemas: dict[str, FilterTree[ChannelSchema]] = {}
        #: whether there are schemas
        self.active = False
        #: invalid publications since the start, by `ChannelSchema.labels`
        self.counts: Counter[tuple[str, str, str]] = Counter()
        #: channel -> its last invalid publications
        self._last: dict[str, deque[InvalidPublication]] = {}
        self.use(schemas)

    def use(self, schemas: Iterable[ChannelSchema]) -> None:
        """Check the publications that follow with these schemas."""
        self._schemas = {}
        for schema in schemas:
            self._schemas.setdefault(schema.channel, FilterTree()).add(schema.topic_filter, schema)
            self.counts.setdefault(schema.labels, 0)
        self.active = bool(self._schemas)

    def refuse(self, unit: UnitOfWork, session: Session, *, will: bool = False) -> Mapping[int, str]:
        """Reject publications of a unit of work that violate a schema. Return the violations by index.

        Dead-letter them if the client cannot be notified: before MQTT 5, with QoS 0, and for a `will`.
        """
        tree = self._schemas.get(session.channel)
        if tree is None:
            return NONE_INVALID
        violations: dict[int, str] = {}
        for index, (message, retain) in enumerate(unit.publications):
            clears = retain and not message.payload
            if clears or index in unit.forbidden or message.reply_to is not None:
                continue
            for schema in tree.find(message.topic):
                if violation := schema.violation(message.payload):
                    violations[index] = violation
                    self.counts[schema.labels] += 1
                    self._note(session, message.topic, violation)
                    break
        if violations:
            unit.forbidden = {**unit.forbidden, **dict.fromkeys(violations, cmqc.MQRC_FORMAT_ERROR)}
            unit.unreportable = frozenset(
                index
                for index in violations
                if will or session.level < LEVEL_MQTT_5 or not unit.publications[index][0].qos
            )
        return violations

    def _note(self, session: Session, topic: str, violation: str) -> None:
        session.invalid_publications += 1
        last = self._last.setdefault(session.channel, deque(maxlen=_REMEMBERED))
        last.append(InvalidPublication(time.monotonic(), session.client_id, topic, violation))

    def recent(self) -> Iterator[tuple[str, list[InvalidPublication]]]:
        """Yield the channels with many recent invalid publications, and these publications."""
        since = time.monotonic() - INVALID_PERIOD
        for channel, last in self._last.items():
            recent = [publication for publication in last if publication.moment > since]
            if len(recent) >= MANY_INVALID:
                yield channel, recent
