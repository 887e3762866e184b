"""Spark schemas of the envelopes, and the types of the columns that are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from bridge.spark.columns import MQ_ARROW_SCHEMA, MQ_COLUMNS, MQTT_ARROW_SCHEMA, MQTT_COLUMNS, Column
from bridge.spark.options import TABLE_OPTION
from bridge.wire import cmqc


def spark_schema(schema: Any, columns: Sequence[Column]) -> StructType:
    """Return the Spark schema of an envelope, or a part of it, with the comments of `columns`."""
    comments = {column.name: column.comment for column in columns}
    return StructType(
        [
            StructField(field.name, from_arrow_type(field.type, False), True, {"comment": comments[field.name]})
            for field in schema
        ]
    )


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema of record batches for a Spark schema."""
    return to_arrow_schema(schema, timezone="UTC")


#: Key of the options of a table in the metadata of its first column.
_TABLE_OPTIONS: Final = "mqbridge.options"


def with_table_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """Return a schema that contains the options of a table.

    CREATE TABLE … USING passes them to `schema` only. Spark passes no options to the reader of a table, but its schema.
    """
    if any(name.startswith(TABLE_OPTION) for name in given):
        schema.fields[0].metadata[_TABLE_OPTIONS] = dict(given)
    return schema


def table_options(schema: StructType | None) -> dict[str, str]:
    """Return the options in the schema of a table."""
    found: dict[str, str] = {}
    return found if schema is None or not schema.fields else schema.fields[0].metadata.get(_TABLE_OPTIONS, found)


MQ_SCHEMA: Final = spark_schema(MQ_ARROW_SCHEMA, MQ_COLUMNS)
MQTT_SCHEMA: Final = spark_schema(MQTT_ARROW_SCHEMA, MQTT_COLUMNS)


# Types of columns that are written -----------------------------------------------------------------------------------

#: A type in words, and the test for it.
ColumnType = tuple[str, Callable[[DataType], bool]]

WHOLE: Final = (IntegerType, LongType, ShortType, ByteType)


def of(expected: str, *types: type[DataType]) -> ColumnType:
    """Return the ColumnType of columns of one of Spark's types."""
    return expected, lambda found: isinstance(found, types)


def is_text_map(found: DataType) -> bool:
    """Return whether a type is map<string, string>."""
    return (
        isinstance(found, MapType) and isinstance(found.keyType, StringType) and isinstance(found.valueType, StringType)
    )


STRING: Final = of("string", StringType)
BINARY: Final = of("binary", BinaryType)
BINARY_OR_STRING: Final = of("binary or string", BinaryType, StringType)
INT: Final = of("int", *WHOLE)
BOOLEAN: Final = of("boolean", BooleanType)
TEXT_MAP: Final[ColumnType] = ("map<string, string>", is_text_map)


# Rows that a mapping rejects: mappings make the column `refusal`, and writers read it --------------------------------

REFUSAL_TYPE: Final = pa.struct(
    [pa.field("reason", pa.int32()), pa.field("sentence", pa.string()), pa.field("source", pa.string())]
)
REFUSAL: Final = Column(
    "refusal",
    REFUSAL_TYPE,
    "why the row cannot be mapped: MQRC_ number, a sentence, and the source topic or queue; null if it was mapped",
)
#: The type of a column `refusal` in words.
REFUSAL_EXPECTED: Final = "struct<reason:int,sentence:string,source:string>"
_REFUSAL_FIELDS: Final = {"reason": IntegerType, "sentence": StringType, "source": StringType}


class Refusal(msgspec.Struct, frozen=True):
    """Why a row cannot be mapped."""

    #: MQRC_
    reason: int
    sentence: str
    #: the topic or queue that it came from
    source: str

    def __str__(self) -> str:
        origin = f" from {self.source!r}" if self.source else ""
        return f"its mapping refuses it{origin}: {self.sentence} ({cmqc.reason_name(self.reason)}, {self.reason})"

    @classmethod
    def of(cls, value: dict[str, Any] | None) -> Refusal | None:
        """Return the refusal in a value of the column, if any."""
        if value is None:
            return None
        return cls(value["reason"] or cmqc.MQRC_NONE, value["sentence"] or "", value["source"] or "")


def is_refusal(found: DataType) -> bool:
    """Return whether a column has the type of `refusal`."""
    return isinstance(found, StructType) and all(
        name in found.names and isinstance(found[name].dataType, type_) for name, type_ in _REFUSAL_FIELDS.items()
    )
