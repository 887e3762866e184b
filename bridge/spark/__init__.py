"""Data pipelines on Spark, through PySpark: the data sources `mq` and `mqtt`, and the pipelines that use them.

Only this package imports Spark, which the extra `spark` of the installation provides. Use in any PySpark program:

    import mqbridge

    mqbridge.register(spark)        # or: spark.dataSource.register(mqbridge.MqDataSource)
    spark.read.format("mq").option("config", "bridge.yaml").option("queue", "ORDERS").load()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bridge.spark.mapping import to_messages, to_publications
    from bridge.spark.mq.source import MqDataSource
    from bridge.spark.mqtt.source import MqttDataSource
    from bridge.spark.record import from_record, to_record

__all__ = [
    "MqDataSource",
    "MqttDataSource",
    "from_record",
    "register",
    "to_messages",
    "to_publications",
    "to_record",
]

#: Names whose modules import Spark -> these modules.
_LAZY: Final = {
    "MqDataSource": "bridge.spark.mq.source",
    "MqttDataSource": "bridge.spark.mqtt.source",
    "from_record": "bridge.spark.record",
    "to_messages": "bridge.spark.mapping",
    "to_publications": "bridge.spark.mapping",
    "to_record": "bridge.spark.record",
}


def register(spark: SparkSession) -> None:
    """Register the data sources of this package with a session.

    Raises ImportError if a package of the extra `spark` is not installed.
    """
    from bridge.spark.session import register

    register(spark)


def __getattr__(name: str) -> object:
    """Import a name of _LAZY on first use."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
