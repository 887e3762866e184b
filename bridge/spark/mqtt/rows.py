"""Rows to publications: the columns that the writer takes, their types, and what says which message a row is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    BinaryType,
    StructType,
)

from bridge.link.outbox import CLIENT_ID, HOPS
from bridge.mapping.template import Template
from bridge.mqtt.packets import PublishProperties
from bridge.spark.columns import PROPERTY_COLUMNS
from bridge.spark.options import OptionError
from bridge.spark.schema import (
    BINARY,
    BINARY_OR_STRING,
    BOOLEAN,
    INT,
    MQTT_SCHEMA,
    REFUSAL_EXPECTED,
    STRING,
    TEXT_MAP,
    ColumnType,
    Refusal,
    is_refusal,
)
from bridge.telemetry.message import Publication, Unmappable

#: User property (MQTT 5): MQMD.MsgId of the message that a row came from, in hexadecimal.
MSG_ID_PROPERTY: Final = "mqbridge-msgid"
#: User property (MQTT 5): `query/batch/partition/row`, the same when a batch is published again.
ROW_PROPERTY: Final = "mqbridge-row"

#: Column -> what it has to be.
_TAKEN: Final[Mapping[str, ColumnType]] = {
    "topic": STRING,
    "payload": BINARY_OR_STRING,
    "qos": INT,
    "retain": BOOLEAN,
    "properties": TEXT_MAP,
    "response_topic": STRING,
    "correlation_data": BINARY,
    "content_type": STRING,
    "payload_format": INT,
    "expiry": INT,
    "msg_id": BINARY,
    "md": (
        "a struct with MsgId, binary",
        lambda found: (
            isinstance(found, StructType) and "MsgId" in found.names and isinstance(found["MsgId"].dataType, BinaryType)
        ),
    ),
    "refusal": (REFUSAL_EXPECTED, is_refusal),
}
#: Columns of a read that a write does not need: they are about that one delivery.
_IGNORED: Final = frozenset(MQTT_SCHEMA.names) - set(_TAKEN)


class Row(msgspec.Struct, frozen=True, gc=False):
    """A publication, or why the row is none."""

    publication: Publication
    error: str = ""


class Defaults(msgspec.Struct, frozen=True):
    """What holds where a row says nothing."""

    topic: Template | None = None
    qos: int = 1
    retain: bool = False


def check_columns(source: str, schema: StructType, template: Template | None) -> None:
    """Check that rows of a schema can be published. Raises OptionError with all that is wrong, by the columns' names."""
    names = frozenset() if template is None else template.names
    wrong = [
        f"topic contains {{{name}}}, which is not a column ({', '.join(schema.names)})"
        for name in sorted(names)
        if name.partition(".")[0] not in schema.names
    ]
    fillers = {name.partition(".")[0] for name in names}
    for field in schema:
        if field.name in _TAKEN:
            expected, fits = _TAKEN[field.name]
            if not fits(field.dataType):
                wrong.append(f"column {field.name}: expected {expected}, found {field.dataType.simpleString()}")
        elif field.name not in _IGNORED and field.name not in fillers:
            wrong.append(f"unknown column {field.name} (expected {', '.join(_TAKEN)}, or a name in topic)")
    if "payload" not in schema.names:
        wrong.append("column payload is missing (binary or string)")
    if template is None and "topic" not in schema.names:
        wrong.append("column topic is missing, and there is no option topic")
    if wrong:
        raise OptionError(f"{source} cannot publish these rows: {'; '.join(wrong)}")


def rows_of(batch: Any, defaults: Defaults, identity: str | None, first: int) -> Iterator[Row]:
    """Yield the publications that a record batch says; its first row has number `first`.

    `identity` None: none is written.
    """
    columns = {name: batch.column(name) for name in batch.schema.names}
    count = batch.num_rows

    def values(name: str) -> Sequence[Any]:
        column = columns.get(name)
        return [None] * count if column is None or column.null_count == count else column.to_pylist()

    names = (
        "topic", "payload", "qos", "retain", "properties", "payload_format", "expiry", *PROPERTY_COLUMNS
    )  # fmt: skip
    msg_ids = _msg_ids(columns, count)
    fillers = _fillers(defaults.topic, columns)
    refusals = values("refusal")
    rows = zip(msg_ids, *map(values, names), strict=True)
    for index, row in enumerate(rows):
        msg_id, topic, payload, qos, retain, given, format_, expiry, *own = row
        properties = {name: value for name, value in dict(given or ()).items() if value is not None}
        hops, client_id = properties.pop(HOPS, ""), properties.pop(CLIENT_ID, "")
        if identity is not None:
            properties[ROW_PROPERTY] = f"{identity}/{first + index}"
            if msg_id is not None:
                properties[MSG_ID_PROPERTY] = msg_id.hex()
        fields: dict[str, Any] = {name: value or None for name, value in zip(PROPERTY_COLUMNS, own, strict=True)}
        publication = Publication(
            topic="",
            payload=payload.encode() if isinstance(payload, str) else payload or b"",
            qos=defaults.qos if qos is None else qos,
            retain=defaults.retain if retain is None else retain,
            client_id=client_id,
            hops=tuple(hops.split(",")) if hops else (),
            expiry=expiry,
            properties=PublishProperties(
                payload_format_indicator=format_,
                **fields,
                user_property=(*properties.items(),),
            ),
        )
        error = ""
        try:
            publication.topic = _topic(topic, defaults.topic, fillers, index)
        except Unmappable as unmappable:
            error = str(unmappable)
        if publication.qos not in (0, 1, 2):
            error = f"qos: expected 0, 1 or 2, found {publication.qos}"
        if format_ not in (None, 0, 1):
            error = f"payload_format: expected 0 or 1, found {format_}"
        if (refusal := Refusal.of(refusals[index])) is not None:
            error = str(refusal)
        yield Row(publication, error)


def _msg_ids(columns: Mapping[str, Any], count: int) -> Sequence[bytes | None]:
    """Return the MsgIds of the messages that rows came from: the column `msg_id`, else that of `md`."""
    column = columns.get("msg_id")
    if column is None and (md := columns.get("md")) is not None:
        column = md.field("MsgId")
    found: Sequence[bytes | None] = [None] * count if column is None else column.to_pylist()
    return found


def _fillers(template: Template | None, columns: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Return the values of the columns that a template names."""
    names = () if template is None else {name.partition(".")[0] for name in template.names}
    return {name: columns[name].to_pylist() for name in names if name in columns}


def _topic(topic: str | None, template: Template | None, fillers: Mapping[str, Sequence[Any]], index: int) -> str:
    if topic is not None:
        return topic
    if template is None:
        raise Unmappable(0, "its topic is null, and there is no option topic")

    def scope(name: str) -> str | None:
        head, _, rest = name.partition(".")
        value = fillers[head][index] if head in fillers else None
        if rest:
            value = None if value is None else dict(value).get(rest)
        if isinstance(value, bytes):
            return value.hex()
        return None if value is None else str(value)

    return template.render(scope)
