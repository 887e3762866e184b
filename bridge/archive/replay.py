"""Publications of an archive put back, in their order, each once.

How far a replay has come is a record on SYSTEM.MQTT.MAPPING.STATE, saved in the unit of work of the messages that it speaks
of. A replay that was killed goes on behind the last message that is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.archive.rows import REPLAYED
from bridge.archive.schema import properties_of
from bridge.mq.message_producer import MessageProducer
from bridge.mq.mqi import MQOD, MQError
from bridge.mq.state import MappingState
from bridge.mqtt.packets import UserProperty
from bridge.telemetry.headers import descriptor_with, rfh2_of
from bridge.telemetry.message import NO_PROPERTIES, Destination, MappedMessage, Message
from bridge.telemetry.subscription import PERSISTENCE_FROM_QOS
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

if TYPE_CHECKING:
    from bridge.archive.reading import Selection
    from bridge.mq.mqi import Connection

#: Messages, and bytes of their payloads, of a unit of work at most.
UNIT_MESSAGES, UNIT_BYTES = 200, 1024 * 1024
#: With a rate, units of work are so small that there are about so many a second.
UNITS_PER_SECOND: Final = 10

#: Why there is no queue of a name; the second, for it cannot be one.
_NO_QUEUE: Final = frozenset((cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQRC_OBJECT_NAME_ERROR))

#: User property of what is replayed: when the publication came.
_PUBLISHED: Final = "published"
#: What a row is asked for.
COLUMNS: Final = ("publisher", "qos", "retain", "publisher_message_id", "payload", "received", "properties")


class NoPayload(Exception):
    """A row without its payload: the archive was written with `payloads: false`."""


class _Stop(Exception):
    """Ends a pause."""


class Position(msgspec.Struct, omit_defaults=True):
    """The record of a replay: the time it covers, the number of the last row put, how many were put."""

    start: datetime | None = None
    end: datetime | None = None
    sequence: int = 0
    count: int = 0


class ReplayDestination(msgspec.Struct, frozen=True):
    """Where messages go: to a queue, below a topic, or (neither) to the topics that they were published to."""

    queue: str = ""
    prefix: str = ""
    retain: bool = False

    def for_topic(self, topic: str) -> Destination:
        """Return the destination of a message that was published to `topic`."""
        if self.queue:
            return Destination(self.queue)
        return Destination(f"{self.prefix.rstrip('/')}/{topic}" if self.prefix else topic, is_topic=True)


def message_of(row: dict[str, Any], run: str, destination: ReplayDestination) -> MappedMessage:
    """Return the message that a row becomes: as the bridge made it of the publication, and marked in its usr folder."""
    payload = row["payload"]
    if payload is None:
        raise NoPayload
    topic, qos = row["topic"], row["qos"]
    said = properties_of(row["properties"]) or NO_PROPERTIES
    marked = msgspec.structs.replace(said, user_property=_marked(said.user_property, run, row["received"]))
    md = MQMD(
        Format=cmqc.MQFMT_RF_HEADER_2,
        Priority=cmqc.MQPRI_PRIORITY_AS_Q_DEF,
        Persistence=PERSISTENCE_FROM_QOS[qos],
    )
    md = descriptor_with(md, said, row["publisher"])
    header = rfh2_of(
        row["publisher"] or None,  # no publisher: a mapping may have taken it from an MQ application
        qos,
        row["publisher_message_id"] or 0,
        marked,
        md.CorrelId,
        # The queue manager does not write this folder of a message that is not published.
        mqps=(topic, row["retain"], None) if destination.queue else None,
    )
    retain = destination.retain and row["retain"] and not destination.queue
    return MappedMessage(
        destination=destination.for_topic(topic),
        message=Message(md, header + payload),
        retain=retain and bool(payload),
        clear=retain and not payload,
    )


def _marked(pairs: UserProperty, run: str, received: datetime) -> UserProperty:
    """Return user properties with the marks of a replay behind them, in place of those of an earlier one."""
    if any(name == REPLAYED for name, _ in pairs):
        pairs = tuple([pair for pair in pairs if pair[0] not in (REPLAYED, _PUBLISHED)])
    return (*pairs, (REPLAYED, run), (_PUBLISHED, received.astimezone(UTC).isoformat()))


class Replay:
    """One run, on one connection. `run` is its name: the same name goes on where the last run stopped."""

    def __init__(self, connection: Connection, run: str, destination: ReplayDestination) -> None:
        """Look for the record of an earlier run. Raises MQError."""
        self._connection = connection
        self._producer = MessageProducer(connection)
        self._state = MappingState(connection, f"replay {run}")
        self.run = run
        self.destination = destination
        record = self._state.load()
        self.position = Position() if record is None else msgspec.json.decode(record, type=Position)
        #: it was asked to stop
        self.stopping = False
        self._pausing = False

    def forget(self) -> None:
        """Begin from the start, whatever was put already."""
        self.position = Position()

    def check(self) -> None:
        """Open the queue that messages go to, and close it. Raises MQError. Topics are opened when their messages are put."""
        if self.destination.queue:
            options = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
            self._connection.close(self._connection.open(MQOD(ObjectName=self.destination.queue), options))

    def is_queue(self, name: str) -> bool:
        """Return whether the queue manager has a queue of that name. Raises MQError."""
        if len(name) > cmqc.MQ_Q_NAME_LENGTH:
            return False
        try:
            handle = self._connection.open(MQOD(ObjectName=name), cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING)
        except MQError as error:
            if error.reason in _NO_QUEUE:
                return False
            raise
        self._connection.close(handle)
        return True

    def put(self, selection: Selection, rate: float | None = None, tell: Callable[[int], None] = lambda count: None) -> int:
        """Put what is selected and was not put yet, until the replay is to stop; return how many messages were put.

        At most `rate` messages a second are put. `tell` is called after each unit of work with its number of messages.
        Raises MQError, NoPayload.
        """
        limit = UNIT_MESSAGES if rate is None else max(1, min(UNIT_MESSAGES, int(rate / UNITS_PER_SECOND)))
        began, count = time.monotonic(), 0
        for unit in _units(selection, self.position.sequence, limit):
            for row in unit:
                self._producer.put(message_of(row, self.run, self.destination))
            self.position.sequence = unit[-1]["sequence"]
            self.position.count += len(unit)
            self._commit()
            count += len(unit)
            tell(len(unit))
            if rate is not None:
                self._pause(max(0.0, began + count / rate - time.monotonic()))
            if self.stopping:
                break
        return count

    def stop(self) -> None:
        """End behind the unit of work that is under way. For signal handlers: raises what ends a pause in this thread."""
        self.stopping = True
        if self._pausing:
            raise _Stop

    def _pause(self, seconds: float) -> None:
        try:
            self._pausing = True
            if not self.stopping:
                time.sleep(seconds)
            self._pausing = False
        except _Stop:
            self._pausing = False

    def _commit(self) -> None:
        self._state.save(msgspec.json.encode(self.position))
        self._connection.commit()
        self._producer.committed()


def _units(selection: Selection, after: int, limit: int) -> Iterator[list[dict[str, Any]]]:
    unit: list[dict[str, Any]] = []
    size = 0
    for batch in selection.batches(after, COLUMNS):
        for row in batch:
            unit.append(row)
            size += len(row["payload"] or b"")
            if len(unit) >= limit or size >= UNIT_BYTES:
                yield unit
                unit, size = [], 0
    if unit:
        yield unit
