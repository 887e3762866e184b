"""The data sources of this package, made known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bridge.pipeline.mq.source import MqDataSource


def register(spark: SparkSession) -> None:
    """Register `mq` with a session, so that `format("mq")` finds it."""
    spark.dataSource.register(MqDataSource)
