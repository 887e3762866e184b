"""Registration of the data sources with a session."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.utils import is_remote

from bridge.spark.mq.source import MqDataSource
from bridge.spark.mqtt.source import MqttDataSource

#: What Spark adds to the environment of a source when one of its streams begins, in one map for all of them. If the map
#: grows while a task of another stream is serialized with it, that task fails (OptionalDataException). A replaced value is
#: harmless.
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
    """Register data sources of which several streams may begin at once.

    Local workers run the interpreter of this process. Spark's default is the `python3` of PATH, which has no mqbridge if the
    environment is not activated.
    """
    if is_remote():
        _register(spark, sources)
        return
    context = spark.sparkContext
    if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    environment: dict[str, str] = context.environment
    added = ADDED_BY_SPARK.keys() - environment.keys()
    environment.update({name: ADDED_BY_SPARK[name] for name in added})
    try:
        _register(spark, sources)
    finally:
        for name in added:
            del environment[name]


def _register(spark: SparkSession, sources: tuple[type[DataSource], ...]) -> None:
    for source in sources:
        spark.dataSource.register(source)
