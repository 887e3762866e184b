"""The data source `mqtt` for Spark's automatic registration: Spark imports installed modules that are called `pyspark_*`."""

from bridge.spark.mqtt.source import MqttDataSource as DefaultSource

__all__ = ["DefaultSource"]
