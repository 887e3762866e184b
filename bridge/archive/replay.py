"""Replay of archived publications, in order and exactly once, and the batchwise reading of the rows of an archive.

A replay stores its position on SYSTEM.MQTT.MAPPING.STATE, in the unit of work of the messages it covers. A killed replay
continues after the last committed message. Requires pyarrow, but not Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from bridge.archive.completeness import Loss, complete_files, refuse
from bridge.archive.rows import REPLAYED
from bridge.archive.schema import Direction, arrow_schema, properties_of
from bridge.mq.message_producer import MessageProducer
from bridge.mq.mqi import MQOD, MQError
from bridge.mq.state import MappingState
from bridge.mqtt.packets import UserProperty
from bridge.mqtt.topics import matches
from bridge.telemetry.headers import descriptor_with, rfh2_of
from bridge.telemetry.message import NO_PROPERTIES, Destination, MappedMessage, Message
from bridge.telemetry.outcome import Outcome
from bridge.telemetry.subscription import PERSISTENCE_FROM_QOS
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

if TYPE_CHECKING:
    from bridge.mq.mqi import Connection


class ReplaySelection:
    """The publications of an archive, selected by time, topic filter and client.

    With `mapping`, the messages that this mapping took and successfully put or published. Their topic is then the topic or
    queue of the source, and their client is the publisher.
    """

    def __init__(
        self,
        directory: Path,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        topic_filter: str = "#",
        clients: Sequence[str] = (),
        mapping: str = "",
        report: Callable[[Loss], None] = refuse,
    ) -> None:
        """Select. `report` is called for each file that is missing or damaged. Raises ArchiveDamaged or OSError."""
        # Rows of messages received before `end` may have been committed, and so written, later.
        last = None if end is None else end + timedelta(hours=1)
        self._files = complete_files(directory, start, last, report)
        self._schema = arrow_schema()
        self._start = start
        self._end = end
        self._filter = topic_filter
        self._clients = list(clients)
        self._mapping = mapping
        self._matches: dict[str, bool] = {}

    def count(self, after: int = 0) -> int:
        """Return the number of selected rows with a number greater than `after`."""
        columns = ["topic"]
        return sum(len(self._chosen(file, after, columns)) for file in self._files)

    def batches(self, after: int, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """Yield the selected rows with a number greater than `after`, in the order of `sequence`."""
        for file in self._files:
            table = self._chosen(file, after, ["sequence", "topic", *columns])
            for batch in table.sort_by("sequence").to_batches(max_chunksize=1_000):
                yield batch.to_pylist()

    def _chosen(self, file: Path, after: int, columns: list[str]) -> Any:
        direction, outcomes = Direction.IN, [Outcome.PUT]
        if self._mapping:
            direction, outcomes = Direction.MAPPED, [Outcome.PUT, Outcome.DELIVERED, Outcome.ACKNOWLEDGED]
        expression = (
            (pa.compute.field("direction") == str(direction))
            & pa.compute.field("outcome").isin(list(map(str, outcomes)))
            & (pa.compute.field("sequence") > after)
        )
        if self._mapping:
            expression &= pa.compute.field("client_id") == self._mapping
        if self._start is not None:
            expression &= pa.compute.field("received") >= pa.scalar(self._start)
        if self._end is not None:
            expression &= pa.compute.field("received") < pa.scalar(self._end)
        if self._clients:
            expression &= pa.compute.field("publisher").isin(self._clients)
        # The partition columns are in the path and are not needed. With the schema, columns that are missing in files of
        # earlier versions are null.
        table = pa.parquet.read_table(
            file, columns=list(dict.fromkeys(columns)), filters=expression, partitioning=None, schema=self._schema
        )
        if self._filter == "#":
            # A leading wildcard does not match topics that start with $ (MQTT-4.7.2-1).
            return table.filter(pa.compute.invert(pa.compute.starts_with(table["topic"], "$")))
        return table.filter(pa.array([self._named(topic) for topic in table["topic"].to_pylist()], pa.bool_()))

    def _named(self, topic: str) -> bool:
        is_match = self._matches.get(topic)
        if is_match is None:
            is_match = self._matches[topic] = matches(self._filter, topic)
        return is_match


#: Maximum number of messages in a unit of work, and maximum bytes of their payloads.
UNIT_MESSAGES, UNIT_BYTES = 200, 1024 * 1024
#: With a rate, the approximate number of units of work per second. Determines their size.
UNITS_PER_SECOND: Final = 10

#: Reasons with which MQOPEN reports a missing queue. The second one means that the name is not valid.
_NO_QUEUE: Final = frozenset((cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQRC_OBJECT_NAME_ERROR))

#: User property of replayed messages: the original time of publication.
_PUBLISHED: Final = "published"
#: Columns read from the archive.
COLUMNS: Final = ("publisher", "qos", "retain", "publisher_message_id", "payload", "received", "properties")


class NoPayload(Exception):
    """A row without its payload. The archive was written with `payloads: false`."""


class _Stop(Exception):
    """Interrupts a pause."""


class ReplayPosition(msgspec.Struct, omit_defaults=True):
    """The stored position of a replay: its time range, the number of the last row put, and the number of rows put."""

    start: datetime | None = None
    end: datetime | None = None
    sequence: int = 0
    count: int = 0


class ReplayDestination(msgspec.Struct, frozen=True):
    """The destination of replayed messages: a queue, a topic prefix, or (with neither) their original topics."""

    queue: str = ""
    prefix: str = ""
    retain: bool = False

    def for_topic(self, topic: str) -> Destination:
        """Return the destination of a message that was published to `topic`."""
        if self.queue:
            return Destination(self.queue)
        return Destination(f"{self.prefix.rstrip('/')}/{topic}" if self.prefix else topic, is_topic=True)


def message_of(row: dict[str, Any], run: str, destination: ReplayDestination) -> MappedMessage:
    """Return the message that the bridge made from the archived publication, with the marks of the replay.

    The marks are in the usr folder. Raises NoPayload.
    """
    payload = row["payload"]
    if payload is None:
        raise NoPayload
    topic, qos = row["topic"], row["qos"]
    properties = properties_of(row["properties"]) or NO_PROPERTIES
    marked = msgspec.structs.replace(properties, user_property=_marked(properties.user_property, run, row["received"]))
    md = MQMD(
        Format=cmqc.MQFMT_RF_HEADER_2, Priority=cmqc.MQPRI_PRIORITY_AS_Q_DEF, Persistence=PERSISTENCE_FROM_QOS[qos]
    )
    md = descriptor_with(md, properties, row["publisher"])
    header = rfh2_of(
        row["publisher"] or None,  # None if a mapping took the message from an MQ application
        qos,
        row["publisher_message_id"] or 0,
        marked,
        md.CorrelId,
        # The queue manager writes this folder only for published messages.
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
    """Return user properties with the marks of a replay appended. They replace the marks of an earlier replay."""
    if any(name == REPLAYED for name, _ in pairs):
        pairs = tuple([pair for pair in pairs if pair[0] not in (REPLAYED, _PUBLISHED)])
    return (*pairs, (REPLAYED, run), (_PUBLISHED, received.astimezone(UTC).isoformat()))


class Replay:
    """A replay on one connection. A run with the same name continues where the last one stopped."""

    def __init__(self, connection: Connection, run: str, destination: ReplayDestination) -> None:
        """Load the position of an earlier run. Raises MQError."""
        self._connection = connection
        self._producer = MessageProducer(connection)
        self._state = MappingState(connection, f"replay {run}")
        self.run = run
        self.destination = destination
        record = self._state.load()
        self.position = ReplayPosition() if record is None else msgspec.json.decode(record, type=ReplayPosition)
        #: a stop was requested
        self.stopping = False
        self._pausing = False

    def forget(self) -> None:
        """Restart from the first row, ignoring the stored position."""
        self.position = ReplayPosition()

    def check(self) -> None:
        """Check that the destination queue can be opened. Raises MQError. Topics are opened by the first put."""
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

    def put(
        self, selection: ReplaySelection, rate: float | None = None, tell: Callable[[int], None] = lambda count: None
    ) -> int:
        """Put the selected messages that are not put yet, until a stop is requested. Returns the number of messages put.

        At most `rate` messages per second are put. `tell` is called after each unit of work with its number of messages.
        Raises MQError and NoPayload.
        """
        limit = UNIT_MESSAGES if rate is None else max(1, min(UNIT_MESSAGES, int(rate / UNITS_PER_SECOND)))
        start, count = time.monotonic(), 0
        for unit in _units(selection, self.position.sequence, limit):
            for row in unit:
                self._producer.put(message_of(row, self.run, self.destination))
            self.position.sequence = unit[-1]["sequence"]
            self.position.count += len(unit)
            self._commit()
            count += len(unit)
            tell(len(unit))
            if rate is not None:
                self._pause(max(0.0, start + count / rate - time.monotonic()))
            if self.stopping:
                break
        return count

    def stop(self) -> None:
        """Stop after the current unit of work. Intended for signal handlers: raises an exception that interrupts a pause."""
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


def _units(selection: ReplaySelection, after: int, limit: int) -> Iterator[list[dict[str, Any]]]:
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
