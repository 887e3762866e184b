"""The data sources of this package, made known to a session."""

from __future__ import annotations

import tempfile
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.utils import is_remote

from bridge.spark.mq.source import MqDataSource
from bridge.spark.mqtt.source import MqttDataSource

#: What Spark adds to the environment of a source when one of its streams begins, in one map for all of them. To grow while
#: a task of another stream is serialized with it breaks that task (OptionalDataException); to be replaced does not.
ADDED_BY_SPARK: Final = {
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}


def register(spark: SparkSession) -> None:
    """Register `mq` and `mqtt` with a session, so that `format` finds them."""
    make_known(spark, MqDataSource, MqttDataSource)


def make_known(spark: SparkSession, *sources: type[DataSource]) -> None:
    """Register data sources of which several streams may begin at once."""
    environment: dict[str, str] = {} if is_remote() else spark.sparkContext.environment
    added = ADDED_BY_SPARK.keys() - environment.keys()
    environment.update({name: ADDED_BY_SPARK[name] for name in added})
    try:
        for source in sources:
            spark.dataSource.register(source)
    finally:
        for name in added:
            del environment[name]
