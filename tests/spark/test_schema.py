"""The envelopes are the same to Arrow and to Spark, and have every field."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from bridge.spark import columns, schema
from bridge.wire.mq import MQDLH, MQMD


@pytest.mark.parametrize("name", ["MQ", "MQTT"])
def test_one_definition(name: str) -> None:
    columns = getattr(schema, f"{name}_COLUMNS")
    spark: StructType = getattr(schema, f"{name}_SCHEMA")
    arrow = getattr(schema, f"{name}_ARROW_SCHEMA")
    assert [(column.name, column.type) for column in columns] == [(field.name, field.type) for field in arrow]
    assert spark.names == arrow.names
    assert all(field.metadata["comment"] for field in spark)


def test_structures_have_every_field() -> None:
    assert [field.name for field in columns.MD_TYPE] == list(MQMD.__struct_fields__)
    assert [field.name for field in columns.MQDLH_TYPE] == list(MQDLH.__struct_fields__)
    assert [field.name for field in columns.MD_VERSION_1_TYPE] == list(MQMD.__struct_fields__)[:-5]
