"""The envelopes as Spark schemas, with the columns' comments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from bridge.spark.columns import MQ_ARROW_SCHEMA, MQ_COLUMNS, MQTT_ARROW_SCHEMA, MQTT_COLUMNS, Column


def spark_schema(schema: Any, columns: Sequence[Column]) -> StructType:
    """Return the Spark schema of (a part of) an envelope that has `columns`."""
    comments = {column.name: column.comment for column in columns}
    return StructType(
        [
            StructField(field.name, from_arrow_type(field.type, False), True, {"comment": comments[field.name]})
            for field in schema
        ]
    )


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema in which Spark takes record batches of a Spark schema."""
    return to_arrow_schema(schema, timezone="UTC")


MQ_SCHEMA: Final = spark_schema(MQ_ARROW_SCHEMA, MQ_COLUMNS)
MQTT_SCHEMA: Final = spark_schema(MQTT_ARROW_SCHEMA, MQTT_COLUMNS)
