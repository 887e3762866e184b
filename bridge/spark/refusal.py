"""Rows that a mapping refuses: the column `refusal`, which mappings make and writers read."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import DataType, IntegerType, StringType, StructType

from bridge.spark.columns import Column
from bridge.wire import cmqc

REFUSAL_TYPE: Final = pa.struct(
    [pa.field("reason", pa.int32()), pa.field("sentence", pa.string()), pa.field("source", pa.string())]
)
REFUSAL: Final = Column(
    "refusal",
    REFUSAL_TYPE,
    "why the row cannot be mapped: MQRC_ number, a sentence, and the topic or queue that it came from; null where it is",
)
#: What a column `refusal` has to be, in words.
EXPECTED: Final = "struct<reason:int,sentence:string,source:string>"
_FIELDS: Final = {"reason": IntegerType, "sentence": StringType, "source": StringType}


class Refusal(msgspec.Struct, frozen=True):
    """Why a row cannot be mapped; as text, a sentence for people."""

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
        """Return what a value of the column says."""
        if value is None:
            return None
        return cls(value["reason"] or cmqc.MQRC_NONE, value["sentence"] or "", value["source"] or "")


def is_refusal(found: DataType) -> bool:
    """Return whether a column has the type of `refusal`."""
    return isinstance(found, StructType) and all(
        name in found.names and isinstance(found[name].dataType, type_) for name, type_ in _FIELDS.items()
    )
