"""The sink `mqtt`: publishes rows at least once, with an identifier of the row.

A task ends when the broker has acknowledged all rows of its partition. Rows are published again if the connection was lost
before their acknowledgement, if Spark retries the task, or if the batch is repeated after a crash. Repeated publications
have the same user properties `mqbridge-row` and (if the rows contain the MsgIds of MQ messages) `mqbridge-msgid`, so
receivers can detect duplicates. MQTT 3.1.1 has no user properties.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bridge.files import durable_file
from bridge.link.connection import LinkConnection
from bridge.link.state import LinkLost, Refusal
from bridge.mapping.template import Template, TemplateError
from bridge.spark import task
from bridge.spark.mqtt.broker import BROKER_OPTIONS, Broker, broker_of
from bridge.spark.mqtt.rows import Defaults, Row, check_columns, rows_of
from bridge.spark.options import Options
from bridge.spark.task import Identity

#: Rows that are published, and answered, before the next ones are.
CHUNK_ROWS: Final = 2_000
#: Seconds that a task goes on trying while the broker is away.
BROKER_TIMEOUT: Final = 60.0
#: Maximum time to disconnect a link, in seconds.
STOP_TIMEOUT: Final = 5.0


# Options -------------------------------------------------------------------------------------------------------------

WRITE_OPTIONS: Final = (
    *(name for name in BROKER_OPTIONS if name != "session"),
    "topic",
    "qos",
    "retain",
    "identity",
    "deadLetter",
    "writeId",
    # Spark hands the sink these of its own.
    "checkpointLocation",
    "queryName",
    "path",
)


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked: where rows are published, and how."""

    broker: Broker
    defaults: Defaults
    #: whether publications say which row they are
    identity: bool = True
    #: directory of Parquet files, of rows that are refused; None: they end the query
    dead_letter: str | None = None


def sink_options_of(options: Options, schema: StructType) -> SinkOptions:
    """Return the options of a writer, checked, also against the columns of its rows. Raises OptionError."""
    broker = broker_of(options)
    if not broker.has_own_identifiers:
        raise options.wrong(
            "clientId", "a client identifier with {mapping} in it, because each task of Spark connects by itself"
        )
    template: Template | None = None
    if (text := options.text("topic")) is not None:
        try:
            template = Template(text)
        except TemplateError as error:
            raise options.wrong("topic", f"a topic, or a template with {{names of columns}}: {error}") from error
    check_columns(options.source, schema, template)
    dead_letter = options.path("deadLetter")
    return SinkOptions(
        broker=broker,
        defaults=Defaults(template, options.number("qos", 1, 0, 2), options.truth("retain", False)),
        identity=options.truth("identity", True),
        dead_letter=None if dead_letter is None else str(dead_letter),
    )


# Writers -------------------------------------------------------------------------------------------------------------


class Published(WriterCommitMessage):
    """What a task has published."""

    def __init__(self, messages: int, refused: int) -> None:
        self.messages = messages
        self.refused = refused


class PublicationRefused(Exception):
    """A row that cannot be published, now or ever; the text names its topic and the reason."""


class BrokerAway(Exception):
    """The broker was unreachable for BROKER_TIMEOUT seconds."""


class MqttStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the batches of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Publish a partition of a batch."""
        return publish_all(self._options, task.identity().text, iterator)


class MqttWriter(DataSourceArrowWriter):
    """Publishes the rows of a batch write."""

    def __init__(self, options: SinkOptions, write_id: str | None) -> None:
        self._options = options
        self._write_id = write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Publish a partition."""
        return publish_all(self._options, Identity(self._write_id, task.partition(), 0).text, iterator)


def publish_all(options: SinkOptions, identity: str, batches: Iterable[Any]) -> Published:
    """Publish the rows of a partition. Raises PublicationRefused, BrokerAway, OptionError without a password."""
    waiting = (part for batch in batches if batch.num_rows for part in _chunks(batch))
    first = next(waiting, None)
    if first is None:
        return Published(0, 0)
    # A session of its own for each task: nothing of it is wanted when the task has ended.
    link = options.broker.connection(f"spark-{uuid.uuid4().hex[:12]}", clean=True)
    link.start()
    try:
        return _Partition(options, identity, link).publish(first, waiting)
    finally:
        link.stop(STOP_TIMEOUT)


def _chunks(batch: Any) -> Iterator[Any]:
    for start in range(0, batch.num_rows, CHUNK_ROWS):
        yield batch.slice(start, CHUNK_ROWS)


class _Partition:
    """A partition on its way to the broker."""

    def __init__(self, options: SinkOptions, identity: str, link: LinkConnection) -> None:
        self._options = options
        self._identity = identity
        self._link = link
        self._rows = 0
        #: rows that were refused, with the reasons
        self._dead: list[Any] = []

    def publish(self, first: Any, others: Iterable[Any]) -> Published:
        self._chunk(first)
        for chunk in others:
            self._chunk(chunk)
        dead = sum(one.num_rows for one in self._dead)
        if self._options.dead_letter is not None:
            _leave(Path(self._options.dead_letter), self._identity.replace("/", "-"), self._dead)
        return Published(self._rows - dead, dead)

    def _chunk(self, chunk: Any) -> None:
        options = self._options
        identity = self._identity if options.identity else None
        rows = list(rows_of(chunk, options.defaults, identity, self._rows))
        good = [index for index, row in enumerate(rows) if not row.error]
        refusals = self._answered([rows[index] for index in good])
        errors = {index: row.error for index, row in enumerate(rows) if row.error}
        errors |= {
            good[position]: f"the broker {options.broker.place} refuses it: {one.text} (reason code 0x{one.reason:02x})"
            for position, one in refusals.items()
        }
        if errors and options.dead_letter is None:
            index, error = min(errors.items())
            raise PublicationRefused(
                f"row {self._identity}/{self._rows + index} to topic {rows[index].publication.topic!r} cannot be published:"
                f" {error}. {len(errors)} of {len(rows)} rows are rejected; hint: filter them out (rows of a mapping: where"
                " refusal IS NULL), or set the option deadLetter to a directory for them, so that the query continues"
            )
        if errors:
            refused = chunk.take(pa.array(sorted(errors), pa.int64()))
            reasons = pa.array([errors[index] for index in sorted(errors)], pa.string())
            self._dead.append(refused.append_column("reason", reasons))
        self._rows += len(rows)

    def _answered(self, rows: list[Row]) -> dict[int, Refusal]:
        """Publish, and again when the connection is lost, until the broker has answered for all."""
        publications = [row.publication for row in rows]
        before = time.monotonic() + BROKER_TIMEOUT
        while True:
            if not self._link.wait_connected(max(before - time.monotonic(), 0)):
                raise BrokerAway(f"no connection to {self._link.name} for {BROKER_TIMEOUT:g} s: {self._link.state.error}")
            try:
                return self._link.publish(publications)
            except LinkLost as error:
                if time.monotonic() > before:
                    raise BrokerAway(f"{self._link.name} accepted no batch for {BROKER_TIMEOUT:g} s: {error}") from error


def _leave(directory: Path, name: str, dead: list[Any]) -> None:
    """Write one file for each partition that has refused rows, the same when it is published again. Raises OSError."""
    if dead:
        with durable_file(directory / f"{name}.parquet") as file:
            pa.parquet.write_table(pa.Table.from_batches(dead), file)
