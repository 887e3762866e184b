"""The sink `mqtt`: publishes rows at least once, with an identifier of the row.

The tasks of a batch stage its rows (`bridge.spark.staging`). The driver publishes them after all tasks have succeeded. The
batch ends when the broker has acknowledged all of them. Rows are published again if the connection was lost before their
acknowledgement, or if the batch is repeated after a crash. Repeated publications have the same user properties
`mqbridge-row` and (if the rows contain the MsgIds of MQ messages) `mqbridge-msgid`, so receivers can detect duplicates. MQTT
3.1.1 has no user properties.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql.types import StructType

from bridge.config import values
from bridge.files import durable_file
from bridge.link.connection import LinkConnection
from bridge.link.outbox import CLIENT_ID, HOPS
from bridge.link.state import LinkLost
from bridge.mapping.table import NO_TABLES
from bridge.mapping.template import Template, TemplateError, template_of_columns
from bridge.mqtt.packets import PublishProperties
from bridge.spark.columns import PROPERTY_COLUMNS
from bridge.spark.mqtt.broker import BROKER_OPTIONS, Broker, broker_of
from bridge.spark.options import OptionError, Options
from bridge.spark.schema import MQTT_SCHEMA, REFUSAL_NAME, SPARK_OPTIONS, RowRefusal, column_values, wrong_columns
from bridge.spark.staging import StagedBatch, StagedStreamWriter, StagedWriter, stage_of
from bridge.telemetry.message import Publication, Unmappable

#: Number of rows that are published together. The next rows wait for the answers.
CHUNK_ROWS: Final = 2_000
#: Seconds for which a task retries while the broker is unreachable.
BROKER_TIMEOUT: Final = 60.0
#: Maximum time to disconnect a link, in seconds.
STOP_TIMEOUT: Final = 5.0
#: User property (MQTT 5): MQMD.MsgId of the message from which a row was made, in hexadecimal.
MSG_ID_PROPERTY: Final = "mqbridge-msgid"
#: User property (MQTT 5): `query/batch/partition/row`, the same when a batch is published again.
ROW_PROPERTY: Final = "mqbridge-row"

WRITE_OPTIONS: Final = (
    *(name for name in BROKER_OPTIONS if name != "session"),
    "topic",
    "qos",
    "retain",
    "identity",
    "deadLetter",
    "writeId",
    "stage",
    *SPARK_OPTIONS,
)
#: Columns that are written, and their types.
_COLUMNS: Final[Mapping[str, str]] = {
    "topic": "string",
    "payload": "binary or string",
    "qos": "int",
    "retain": "boolean",
    "properties": "map<string,string>",
    "response_topic": "string",
    "correlation_data": "binary",
    "content_type": "string",
    "payload_format": "int",
    "expiry": "int",
    "msg_id": "binary",
    "md": "struct",
    "refusal": REFUSAL_NAME,
}
#: Columns of a read that a write does not need, because they describe the delivery.
_IGNORED: Final = frozenset(MQTT_SCHEMA.names) - _COLUMNS.keys()


class MqttSinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a write. `topic`, `qos` and `retain` apply to rows without a value in the column."""

    broker: Broker
    topic: Template | None = None
    qos: int = 1
    retain: bool = False
    #: whether publications identify their rows
    identity: bool = True
    #: directory of Parquet files for rejected rows. None: a rejected row ends the query
    dead_letter: str | None = None
    #: directory or URL for rows of a batch until they are published. "": none
    stage: str = ""


def sink_options_of(options: Options, schema: StructType) -> MqttSinkOptions:
    """Return the options of a write, checked against the columns of its rows. Raises OptionError."""
    broker = broker_of(options)
    if not broker.has_own_identifiers:
        raise options.wrong(
            "clientId", "a client identifier with {mapping} in it, because each batch of Spark connects by itself"
        )
    template: Template | None = None
    if (text := options.text("topic")) is not None:
        try:
            template = template_of_columns(text)
        except TemplateError as error:
            raise options.wrong("topic", f"a topic, or a template with {{names of columns}}: {error}") from error
    _check_columns(options.source, schema, template)
    dead_letter = options.path("deadLetter")
    return MqttSinkOptions(
        broker=broker,
        topic=template,
        qos=options.value("qos", values.integer(0, 2), 1),
        retain=options.truth("retain", False),
        identity=options.truth("identity", True),
        dead_letter=None if dead_letter is None else str(dead_letter),
        stage=stage_of(options),
    )


def _check_columns(source: str, schema: StructType, template: Template | None) -> None:
    """Check that rows of a schema can be published. Raises OptionError with all mistakes."""
    names = {} if template is None else {name: name.partition(".")[0] for name in sorted(template.names)}
    wrong = [
        f"topic contains {{{name}}}, which is not a column ({', '.join(schema.names)})"
        for name, column in names.items()
        if column not in schema.names
    ]
    wrong += wrong_columns(schema, _COLUMNS, _IGNORED | set(names.values()))
    if "payload" not in schema.names:
        wrong.append("column payload is missing (binary or string)")
    if template is None and "topic" not in schema.names:
        wrong.append("column topic is missing, and there is no option topic")
    if wrong:
        raise OptionError(f"{source} cannot publish these rows: {'; '.join(wrong)}")


# Writers -------------------------------------------------------------------------------------------------------------


class PublicationRefused(Exception):
    """A row that can never be published. The message contains its topic and the reason."""


class BrokerAway(Exception):
    """The broker was unreachable for BROKER_TIMEOUT seconds."""


class MqttStreamWriter(StagedStreamWriter):
    """Publishes the batches of a streaming query."""

    def __init__(self, options: MqttSinkOptions) -> None:
        super().__init__(options.stage)
        self._options = options

    def put(self, batch: StagedBatch) -> None:
        """Publish a batch."""
        publish_batch(self._options, batch)


class MqttWriter(StagedWriter):
    """Publishes the rows of a batch write."""

    def __init__(self, options: MqttSinkOptions, write_id: str | None) -> None:
        super().__init__(options.stage, write_id)
        self._options = options

    def put(self, batch: StagedBatch) -> None:
        """Publish the rows."""
        publish_batch(self._options, batch)


def publish_batch(options: MqttSinkOptions, batch: StagedBatch) -> None:
    """Publish the rows of a batch. Raises PublicationRefused, BrokerAway, StageDamaged, OptionError without a password."""
    link: LinkConnection | None = None
    #: rejected rows, by the name of the partition
    dead: dict[str, list[Any]] = {}
    rows: dict[str, int] = {}
    try:
        for partition, staged in batch.batches():
            identity = f"{batch.identity.query}/{batch.identity.batch}/{partition}"
            for start in range(0, staged.num_rows, CHUNK_ROWS):
                if link is None:  # each batch has a clean session
                    link = options.broker.connection(f"spark-{uuid.uuid4().hex[:12]}", clean=True)
                    link.start()
                chunk = staged.slice(start, CHUNK_ROWS)
                rejected = _publish(options, identity, link, chunk, rows.get(identity, 0))
                if rejected is not None:
                    dead.setdefault(identity, []).append(rejected)
                rows[identity] = rows.get(identity, 0) + chunk.num_rows
    finally:
        if link is not None:
            link.stop(STOP_TIMEOUT)
    for identity, rejections in dead.items():
        # The name is the same if the batch is published again.
        assert options.dead_letter is not None
        with durable_file(Path(options.dead_letter, f"{identity.replace('/', '-')}.parquet")) as file:
            pa.parquet.write_table(pa.Table.from_batches(rejections), file)
    batch.delete()


def _publish(options: MqttSinkOptions, identity: str, link: LinkConnection, chunk: Any, first: int) -> Any:
    """Publish a chunk whose first row has the number `first`. Return the rejected rows with the reasons, if any."""
    publications, errors = _publications(chunk, options, identity, first)
    good = [index for index in range(len(publications)) if index not in errors]
    for position, answer in _answers(link, [publications[index] for index in good]).items():
        reason = f"the broker {options.broker.place} rejects it: {answer.text} (reason code 0x{answer.reason:02x})"
        errors[good[position]] = reason
    if not errors:
        return None
    if options.dead_letter is None:
        index, error = min(errors.items())
        raise PublicationRefused(
            f"row {identity}/{first + index} to topic {publications[index].topic!r} cannot be published:"
            f" {error}. {len(errors)} of {len(publications)} rows are rejected; hint: filter them out (rows of a mapping:"
            " where refusal IS NULL), or set the option deadLetter to a directory for them, so that the query continues"
        )
    numbers = sorted(errors)
    reasons = pa.array([errors[index] for index in numbers], pa.string())
    return chunk.take(pa.array(numbers, pa.int64())).append_column("reason", reasons)


def _answers(link: LinkConnection, publications: list[Publication]) -> dict[int, Any]:
    """Publish until the broker has answered all publications, again if the connection is lost. Return the rejections."""
    before = time.monotonic() + BROKER_TIMEOUT
    while True:
        if not link.wait_connected(max(before - time.monotonic(), 0)):
            raise BrokerAway(f"no connection to {link.name} for {BROKER_TIMEOUT:g} s: {link.state.error}")
        try:
            return link.publish(publications)
        except LinkLost as error:
            if time.monotonic() > before:
                raise BrokerAway(f"{link.name} accepted no batch for {BROKER_TIMEOUT:g} s: {error}") from error


# Rows ----------------------------------------------------------------------------------------------------------------


def _publications(
    batch: Any, options: MqttSinkOptions, identity: str, first: int
) -> tuple[list[Publication], dict[int, str]]:
    """Return the publications of the rows of a record batch, and why rows cannot be published, by index."""
    publications: list[Publication] = []
    errors: dict[int, str] = {}
    columns = (
        "topic",
        "payload",
        "qos",
        "retain",
        "properties",
        "payload_format",
        "expiry",
        "refusal",
        *PROPERTY_COLUMNS,
    )
    rows = zip(_msg_ids(batch), *(column_values(batch, name) for name in columns), strict=True)
    scope = _Scope(batch, options.topic)
    for index, row in enumerate(rows):
        msg_id, topic, payload, qos, retain, named_values, format_, expiry, refusal, *own = row
        properties = {name: value for name, value in named_values or () if value is not None}
        hops, client_id = properties.pop(HOPS, ""), properties.pop(CLIENT_ID, "")
        if options.identity:
            properties[ROW_PROPERTY] = f"{identity}/{first + index}"
            if msg_id is not None:
                properties[MSG_ID_PROPERTY] = msg_id.hex()
        qos = options.qos if qos is None else qos
        if (why := RowRefusal.of(refusal)) is not None:
            errors[index] = str(why)
        elif format_ not in (None, 0, 1):
            errors[index] = f"payload_format: expected 0 or 1, found {format_}"
        elif qos not in (0, 1, 2):
            errors[index] = f"qos: expected 0, 1 or 2, found {qos}"
        elif topic is None and options.topic is None:
            errors[index] = "its topic is null, and there is no option topic"
        elif topic is None and options.topic is not None:
            scope.index = index
            try:
                topic = options.topic.render(scope)
            except Unmappable as error:
                errors[index] = str(error)
        fields: dict[str, Any] = {name: value or None for name, value in zip(PROPERTY_COLUMNS, own, strict=True)}
        publications.append(
            Publication(
                topic=topic or "",
                payload=payload.encode() if isinstance(payload, str) else payload or b"",
                qos=qos,
                retain=options.retain if retain is None else retain,
                client_id=client_id,
                hops=tuple(hops.split(",")) if hops else (),
                expiry=expiry,
                properties=PublishProperties(
                    payload_format_indicator=format_, **fields, user_property=(*properties.items(),)
                ),
            )
        )
    return publications, errors


def _msg_ids(batch: Any) -> Sequence[bytes | None]:
    """Return the MsgIds of the messages that rows came from: the column `msg_id`, otherwise that of `md`."""
    if "msg_id" not in batch.schema.names and "md" in batch.schema.names:
        md = batch.column("md")
        if md.type.get_field_index("MsgId") >= 0:
            msg_ids: list[bytes | None] = md.field("MsgId").to_pylist()
            return msg_ids
    return column_values(batch, "msg_id")


class _Scope:
    """The values of a template: columns of a row, and values of its map columns."""

    def __init__(self, batch: Any, template: Template | None) -> None:
        names = () if template is None else {name.partition(".")[0] for name in template.names}
        self._columns = {name: column_values(batch, name) for name in names}
        self.index = 0
        #: templates of columns do not refer to fields of a payload or of a part of it, or to tables
        self.document = self.part = None
        self.tables, self.steps = NO_TABLES, None

    def __call__(self, name: str) -> str | None:
        head, _, rest = name.partition(".")
        value = self._columns[head][self.index]
        if rest:
            value = None if value is None else dict(value).get(rest)
        if isinstance(value, bytes):
            return value.hex()
        return None if value is None else str(value)
