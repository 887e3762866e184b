"""Types that columns of rows to be written have to be of, with their names for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
)

#: What a column has to be, and whether a type is that.
ColumnType = tuple[str, Callable[[DataType], bool]]

WHOLE: Final = (IntegerType, LongType, ShortType, ByteType)


def of(expected: str, *types: type[DataType]) -> ColumnType:
    """Return the ColumnType of columns that are of one of Spark's types."""
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
