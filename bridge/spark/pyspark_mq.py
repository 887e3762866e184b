"""The data source `mq` for Spark's automatic registration: Spark imports installed modules that are called `pyspark_*`."""

from bridge.spark.mq.source import MqDataSource as DefaultSource

__all__ = ["DefaultSource"]
