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


def register(spark: SparkSession) -> None:
    """Make the data sources of this package known to a session, by their names.

    Raises SparkMissing when the extra `spark` is not installed.
    """
    from bridge.pipeline.registration import register

    register(spark)
