"""The data sources of this package, made known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bridge.pipeline.mq.source import MqDataSource
from bridge.pipeline.mqtt.source import MqttDataSource


def register(spark: SparkSession) -> None:
    """Register `mq` and `mqtt` with a session, so that `format` finds them."""
    spark.dataSource.register(MqDataSource)
    spark.dataSource.register(MqttDataSource)
