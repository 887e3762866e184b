"""Columns for reading and columns for writing."""

from __future__ import annotations

from pyspark.sql.types import IntegerType, StringType, StructType

from bridge.spark import columns
from bridge.spark.schema import wrong_columns
from bridge.wire.mq import MQDLH, MQMD


def test_structures_have_all_fields() -> None:
    assert [field.name for field in columns.MD_TYPE] == list(MQMD.__struct_fields__)
    assert [field.name for field in columns.MQDLH_TYPE] == list(MQDLH.__struct_fields__)
    assert [field.name for field in columns.MD_VERSION_1_TYPE] == list(MQMD.__struct_fields__)[:-5]


def test_written_columns() -> None:
    schema = StructType().add("body", StringType()).add("qos", StringType()).add("device", IntegerType())
    known = {"body": "binary or string", "qos": "int"}
    wrong_type = "column qos: expected int, found string"
    assert wrong_columns(schema, known) == [wrong_type, "unknown column device (expected body, qos)"]
    assert wrong_columns(schema, known, ignored={"device"}) == [wrong_type]
