"""Rows that a destination refuses because of what they are: dead letters, in the unit of work of the others.

What concerns every row, or heals by waiting (a queue that is full, or put-inhibited), is none of this: the batch is tried
again as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.mq.dead_letter import DeadLetterRefused, DeadLetters
from bridge.mq.mqi import Connection, MQError
from bridge.spark.flow import table
from bridge.spark.flow.bad_rows.dead_letters import DeadLetter
from bridge.spark.flow.bad_rows.payload import REASON
from bridge.spark.mapping.standard import StandardToMq
from bridge.spark.mq.envelope import record_batch
from bridge.spark.mq.rows import rows_of
from bridge.spark.mq.sink_options import SinkOptions
from bridge.spark.mq.writer import Row
from bridge.spark.mqtt.rows import Defaults
from bridge.spark.mqtt.rows import rows_of as publications_of
from bridge.spark.refusal import REFUSAL, Refusal
from bridge.spark.task import Identity
from bridge.telemetry.message import Destination, Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: What a message is, whoever puts it where.
_OF_MESSAGES: Final = frozenset(
    (
        cmqc.MQRC_MSG_TOO_BIG_FOR_Q,
        cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR,
        cmqc.MQRC_MSG_TOO_BIG_FOR_CHANNEL,
        cmqc.MQRC_DATA_LENGTH_ERROR,
        cmqc.MQRC_MD_ERROR,
        cmqc.MQRC_MSG_TYPE_ERROR,
        cmqc.MQRC_MISSING_REPLY_TO_Q,
        cmqc.MQRC_REPORT_OPTIONS_ERROR,
        cmqc.MQRC_EXPIRY_ERROR,
        cmqc.MQRC_FEEDBACK_ERROR,
        cmqc.MQRC_PRIORITY_ERROR,
        cmqc.MQRC_PERSISTENCE_ERROR,
        cmqc.MQRC_PERSISTENT_NOT_ALLOWED,
        cmqc.MQRC_FORMAT_ERROR,
        cmqc.MQRC_RFH_ERROR,
        cmqc.MQRC_RFH_FORMAT_ERROR,
        cmqc.MQRC_RFH_DUPLICATE_PARM,
        cmqc.MQRC_HEADER_ERROR,
        cmqc.MQRC_GROUP_ID_ERROR,
        cmqc.MQRC_MSG_SEQ_NUMBER_ERROR,
        cmqc.MQRC_MSG_FLAGS_ERROR,
        cmqc.MQRC_OFFSET_ERROR,
        cmqc.MQRC_ORIGINAL_LENGTH_ERROR,
        cmqc.MQRC_PROPERTY_NAME_ERROR,
        cmqc.MQRC_PROPERTIES_TOO_BIG,
    )
)
#: What a destination is: of a row, where the row names it.
_OF_DESTINATIONS: Final = frozenset(
    (
        cmqc.MQRC_UNKNOWN_OBJECT_NAME,
        cmqc.MQRC_UNKNOWN_OBJECT_Q_MGR,
        cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR,
        cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q,
        cmqc.MQRC_OBJECT_NAME_ERROR,
        cmqc.MQRC_OBJECT_Q_MGR_NAME_ERROR,
        cmqc.MQRC_OBJECT_STRING_ERROR,
        cmqc.MQRC_TOPIC_STRING_ERROR,
        cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE,
        cmqc.MQRC_ALIAS_BASE_Q_TYPE_ERROR,
        cmqc.MQRC_NOT_AUTHORIZED,
    )
)
#: In front of a file of refused rows: readers of the directory see it, and know whose it is.
_FILE: Final = "refused"


class DeadLetterSink:
    """Where rows go that a destination refuses: a queue, else a directory of Parquet files. Cheap to pickle."""

    def __init__(self, pipeline: str, options: SinkOptions | None, directory: str | None, *, named: bool) -> None:
        self.pipeline = pipeline
        self.options = options
        self.directory = directory
        #: the rows name their destinations
        self.named = named


class RefusedRows:
    """`bridge.spark.mq.writer.Refusals` for a partition of a batch."""

    def __init__(self, sink: DeadLetterSink, identity: Identity) -> None:
        self._sink = sink
        self._identity = identity
        #: those that are left, and why the first of them is
        self.count = 0
        self.why = ""

    def takes(self, error: MQError) -> bool:
        if isinstance(error, DeadLetterRefused):
            return False
        return error.reason in _OF_MESSAGES or (self._sink.named and error.reason in _OF_DESTINATIONS)

    def leave(self, connection: Connection, part: int, rows: Sequence[tuple[Row, MQError]]) -> None:
        sink = self._sink
        if rows:
            self.count += len(rows)
            self.why = self.why or str(rows[0][1])
        if sink.options is not None:
            dead_letters = DeadLetters(connection, sink.options.queue or "", sink.pipeline)
            for (message, destination, *_), error in rows:
                dead_letters.put(message.md, message.data, error.reason, str(error), destination)
            return
        assert sink.directory is not None
        path = file_of(sink.directory, self._identity, f"{_FILE}-{part}")
        if not rows:
            path.unlink(missing_ok=True)
            return
        envelopes = [record_batch(destination.name, [(message.md, message.data)]) for (message, destination, *_), _ in rows]
        reasons = pa.array([str(error) for _, error in rows], pa.string())
        table.write(path, pa.Table.from_batches(envelopes).append_column(REASON, reasons))


def file_of(directory: str, identity: Identity, role: str) -> Path:
    """Return the path of a file of dead letters."""
    name = f"{identity.query}-{identity.batch:08d}-{identity.partition:04d}-{role}.parquet"
    return Path(directory, name)


# Rows that are no messages -------------------------------------------------------------------------------------------


def unfit(options: SinkOptions, batches: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return record batches of the rows that make a message, and of the others, with a column `reason`."""
    good, bad = [], []
    for batch in batches:
        reasons = pa.array([_fault(options, batch.slice(index, 1)) for index in range(batch.num_rows)], pa.string())
        good.append(batch.filter(reasons.is_null()))
        bad.append(batch.append_column(REASON, reasons).filter(reasons.is_valid()))
    return good, [batch for batch in bad if batch.num_rows]


def _fault(options: SinkOptions, row: Any) -> str | None:
    try:
        for one in rows_of(row, options.persistence):
            if one.refusal is None:
                options.destination(one)
    except ValueError as error:
        return str(error)
    return None


def unfit_messages(batches: Sequence[Any], persistence: int) -> Iterator[DeadLetter]:
    """Yield what is there of rows that make no message: the body; and where it was to go, as far as that is known.

    `persistence` is the MQMD.Persistence that the messages of such rows have.
    """
    for batch in batches:
        names = batch.schema.names
        queues = batch.column("queue").to_pylist() if "queue" in names else [None] * batch.num_rows
        for body, queue in zip(batch.column("body").to_pylist(), queues, strict=True):
            data = body.encode() if isinstance(body, str) else body or b""
            yield Message(MQMD(Persistence=persistence), data), queue or "", None, cmqc.MQRC_MD_ERROR


# Rows that a mapping refuses -----------------------------------------------------------------------------------------


def unmapped(batches: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return record batches of the rows that their mapping has made something of, and of those that it refuses.

    The rows that it refuses (column `refusal`) have a column `reason`.
    """
    good, bad = [], []
    for batch in batches:
        refusals = batch.column(REFUSAL.name)
        good.append(batch.filter(refusals.is_null()))
        if refusals.null_count < batch.num_rows:
            reasons = [None if one is None else str(Refusal.of(one)) for one in refusals.to_pylist()]
            bad.append(batch.append_column(REASON, pa.array(reasons, pa.string())).filter(refusals.is_valid()))
    return good, bad


def original_messages(batches: Sequence[Any], persistence: int) -> Iterator[DeadLetter]:
    """Yield the messages that a mapping to MQTT refuses, where they came from, when, and why."""
    for batch in batches:
        times = batch.column("put_time").to_pylist() if "put_time" in batch.schema.names else [None] * batch.num_rows
        for row, when in zip(rows_of(batch, persistence), times, strict=True):
            assert row.refusal is not None
            yield row.message, row.refusal.source, when, row.refusal.reason


# Publications --------------------------------------------------------------------------------------------------------


def refused_publications(path: Path, options: SinkOptions) -> Iterator[DeadLetter]:
    """Yield the publications that `publish_all` has left in a file, as messages of the standard profile."""
    if not path.exists():
        return
    rule = StandardToMq(Destination(options.queue or ""))
    for batch in pq.read_table(path).to_batches():
        for row in publications_of(batch, Defaults(), None, 0):
            one = row.publication
            try:
                message = rule.map(one).message
            except Unmappable:  # a topic that is none, or the like: what is left is the payload
                message = Message(MQMD(Persistence=options.persistence), one.payload)
            yield message, one.topic, None, cmqc.MQRC_PUBLICATION_FAILURE
