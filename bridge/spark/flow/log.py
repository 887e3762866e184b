"""What Spark, its Python server and py4j would print of errors, stacks and plans: pipelines tell it in words."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import py4j  # type: ignore[import-untyped]
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

_PY4J: Final = str(Path(py4j.__file__).parent)


def silence(spark: SparkSession) -> None:
    """Keep stacks and plans off standard error, for as long as the process lives."""
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    # What ends a query's foreachBatch, Spark hands on; py4j logs it beside that, and once it has used the root logger, there.
    logging.getLogger("py4j").propagate = False
    root = logging.getLogger()
    if _not_of_py4j not in root.filters:
        root.addFilter(_not_of_py4j)
    # The server of accumulators prints that its client is gone, when the JVM is.
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record is not py4j's, which logs a lost connection on the root logger and raises it, too."""
    return not record.pathname.startswith(_PY4J)
