"""Spark schemas of the envelopes, and the types of the columns that are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, IntegralType, MapType, StringType, StructField, StructType

from bridge.spark.columns import MQ_ARROW_SCHEMA, MQ_COLUMNS, MQTT_ARROW_SCHEMA, MQTT_COLUMNS, EnvelopeColumn
from bridge.telemetry.message import Destination
from bridge.wire import cmqc


def spark_schema(schema: Any, columns: Sequence[EnvelopeColumn]) -> StructType:
    """Return the Spark schema of an envelope, or a part of it, with the comments of `columns`."""
    comments = {column.name: column.comment for column in columns}
    return StructType(
        [
            StructField(field.name, from_arrow_type(field.type, False), True, {"comment": comments[field.name]})
            for field in schema
        ]
    )


MQ_SCHEMA: Final = spark_schema(MQ_ARROW_SCHEMA, MQ_COLUMNS)
MQTT_SCHEMA: Final = spark_schema(MQTT_ARROW_SCHEMA, MQTT_COLUMNS)

# Written columns -----------------------------------------------------------------------------------------------------

#: Options of Spark itself that it passes to a sink.
SPARK_OPTIONS: Final = ("checkpointLocation", "queryName", "path")


def wrong_columns(
    schema: StructType, types: Mapping[str, str], ignored: Collection[str] = (), prefix: str = ""
) -> list[str]:
    """Return the mistakes in the columns of a frame that is written, as sentences.

    `types` are the types of the columns, such as `binary or string`. `int` means any integer, `struct` any structure.
    """
    wrong = []
    for field in schema:
        name = f"{prefix}{field.name}"
        if field.name not in types:
            if field.name not in ignored:
                wrong.append(f"unknown column {name} (expected {', '.join(types)})")
        elif _type_name(field.dataType, types[field.name]) not in types[field.name].split(" or "):
            wrong.append(f"column {name}: expected {types[field.name]}, found {field.dataType.simpleString()}")
    return wrong


def _type_name(type_: DataType, expected: str) -> str:
    if isinstance(type_, StringType | IntegralType):
        return "string" if isinstance(type_, StringType) else "int"
    if isinstance(type_, MapType):
        return f"map<{_type_name(type_.keyType, '')},{_type_name(type_.valueType, '')}>"
    if isinstance(type_, StructType):
        return "struct" if expected == "struct" else type_.simpleString()
    return type_.simpleString()


def column_values(batch: Any, name: str) -> Sequence[Any]:
    """Return the values of a column of a record batch, null if the column does not exist."""
    if name not in batch.schema.names or (column := batch.column(name)).null_count == batch.num_rows:
        return [None] * batch.num_rows
    values: list[Any] = column.to_pylist()
    return values


# Rows that a mapping rejects: mappings create the column `refusal`, and writers read it ------------------------------

REFUSAL_TYPE: Final = pa.struct(
    [pa.field("reason", pa.int32()), pa.field("sentence", pa.string()), pa.field("source", pa.string())]
)
#: Spark's name of REFUSAL_TYPE.
REFUSAL_NAME: Final = "struct<reason:int,sentence:string,source:string>"
#: The column with the reason why a row cannot be mapped: MQRC_ number, a sentence, and the source topic or queue.
REFUSAL: Final = "refusal"


class RowRefusal(msgspec.Struct, frozen=True):
    """Why a row must not be put."""

    #: MQRC_
    reason: int
    sentence: str
    #: the topic or queue from which the row came
    source: str
    #: set for a row whose text cannot be encoded, or that chooses a forbidden name
    destination: Destination | None = None
    #: what cannot be put to the destination
    what: str = "its text"

    def __str__(self) -> str:
        origin = f" from {self.source!r}" if self.source else ""
        start = f"it is rejected{origin}: " if self.destination is None else ""
        return f"{start}{self.problem} ({cmqc.reason_name(self.reason)}, {self.reason})"

    @property
    def problem(self) -> str:
        """The problem, without source and reason code."""
        if self.destination is None:
            return self.sentence
        kind = "topic" if self.destination.is_topic else "queue"
        return f"{self.what} cannot be put to {kind} {self.destination.name}: {self.sentence}"

    @classmethod
    def of(cls, value: dict[str, Any] | None) -> RowRefusal | None:
        """Return the refusal in a value of the column, or None."""
        if value is None:
            return None
        return cls(value["reason"] or cmqc.MQRC_NONE, value["sentence"] or "", value["source"] or "")
