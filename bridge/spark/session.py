"""Spark sessions with the data sources of this package: on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.extras import install
from bridge.spark.errors import SparkMissing
from bridge.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Imported packages of the extra `spark`.
_PACKAGES: Final = ("pyspark", "pyarrow", "pandas")
#: A log configuration for the case that nobody has one: warnings only.
_LOGGING: Final = shlex.quote(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: Runs Python workers without Spark's own archives on their path, which halves the time of their imports.
PYTHON_WORKER: Final = Path(__file__).with_name("python-worker")
#: The interpreter that PYTHON_WORKER runs.
PYTHON_VARIABLE: Final = "MQBRIDGE_PYTHON"

#: Settings of every session. Those of the caller take precedence.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # A mapInArrow with its columns in another order is an error.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    # Checkpoints as plain files halve the time of a micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # A table that is saved without a path is not left in the working directory.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "mqbridge-spark-warehouse"),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: Settings of a session on this machine.
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    _JAVA_OPTIONS: "-XX:+UseSerialGC",
}
#: Settings of a session that only analyses SQL: a Java that compiles fast.
ANALYSIS_SETTINGS: Final[Mapping[str, str]] = {_JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


class JobFailed(Exception):
    """Spark does not start, or cannot do a job. The message is Spark's."""


def require_packages() -> None:
    """Raise SparkMissing if a package that pipelines need is not installed."""
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise SparkMissing(f"{package} is not installed: `{install('spark')}` installs it")


def session(
    name: str = "mqbridge", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a Spark session with the data sources of this package, or the one that runs already.

    `master` is Spark's (`local[4]`, `spark://host:7077`); None: all cores of this machine. `settings` are Spark's own
    properties and take precedence. Sets JAVA_HOME and what Python workers need in the environment of this process. Raises
    SparkMissing if something is not installed.
    """
    require_packages()
    master = master or "local[*]"
    local = master.startswith("local")
    _prepare_environment(local=local)
    from pyspark.sql import SparkSession

    from bridge.spark.registration import register

    chosen = {**SETTINGS, **(LOCAL_SETTINGS if local else {}), **(settings or {})}
    # An executor of a cluster starts its own Python, at the same path.
    chosen[f"spark.executorEnv.{PYTHON_VARIABLE}"] = os.environ[PYTHON_VARIABLE]
    if "SPARK_CONF_DIR" not in os.environ and "SPARK_HOME" not in os.environ:
        chosen[_JAVA_OPTIONS] = f"{_LOGGING} {chosen.get(_JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


@contextlib.contextmanager
def job(name: str, master: str | None, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session that ends with a command. Raises SparkMissing, and JobFailed for errors of Spark."""
    require_packages()
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    from bridge.spark.internals import has_ended, silence

    try:
        spark = session(name, master=master, settings={"spark.log.level": "FATAL", **settings})
        silence(spark)
        try:
            yield spark
        finally:
            if not has_ended(spark):
                spark.stop()
    except (PySparkException, Py4JError) as error:
        text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        raise JobFailed(f"Spark failed: {str(text).strip().splitlines()[0]}") from error


def _prepare_environment(*, local: bool) -> None:
    os.environ.update(find_java().environment)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", str(PYTHON_WORKER))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
