"""The data pipeline on Spark, through PySpark: data sources `mq` and `mqtt`, and what is built on them.

The one package that imports Spark and Arrow, which are the extra `spark` of the installation. From any PySpark program:

    import mqbridge

    mqbridge.register(spark)
    spark.read.format("mq").option("config", "bridge.yaml").option("queue", "ORDERS").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bridge.pipeline.mapping import to_messages as to_messages
    from bridge.pipeline.mapping import to_publications as to_publications


def register(spark: SparkSession) -> None:
    """Make the data sources of this package known to a session, by their names.

    Raises SparkMissing when the extra `spark` is not installed.
    """
    from bridge.pipeline.registration import register

    register(spark)


def __getattr__(name: str) -> object:
    """`to_messages` and `to_publications`: imported when they are asked for, since they bring Spark with them."""
    if name in ("to_messages", "to_publications"):
        from bridge.pipeline import mapping

        return getattr(mapping, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
