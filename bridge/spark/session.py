"""Spark sessions as the pipeline wants them: on this machine or on a cluster, with the settings that were measured."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.extras import install
from bridge.spark.errors import SparkMissing
from bridge.spark.java import LAUNCHER_VARIABLE, QUICK_JAVA, find_java

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: Packages of the extra `spark` that are imported.
_PACKAGES: Final = ("pyspark", "pyarrow", "pandas")
#: What Spark logs where nobody has said it: warnings, and nothing of itself.
LOGGING: Final = shlex.quote(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}")
#: A SPARK_CONF_DIR that is not there: with a directory on its class path Java takes nothing from a `class_archive`.
NO_CONFIGURATION: Final = str(Path(__file__).with_name("no_configuration"))
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: What runs Python for Spark: the interpreter that PYTHON_VARIABLE names, without Spark's own archives on its path; and for
#: Spark's daemon, `bridge.spark.daemon`. Where workers unpack an environment it is in that, by the same relative path.
UNPACKED: Final = "environment"
UNPACKED_WORKER: Final = f"./{UNPACKED}/bin/python-worker"
UNPACKED_PYTHON: Final = f"./{UNPACKED}/bin/python"
PYTHON_WORKER: Final = Path(__file__).parent / UNPACKED_WORKER
PYTHON_VARIABLE: Final = "MQBRIDGE_PYTHON"

#: Settings of every session; what the caller sets wins.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # A mapInArrow whose columns stand in another order is an error, not a mix-up.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    # Checkpoints by plain files: a micro-batch takes half the time.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Offsets of the source `mq` hold the MsgIds of a batch: a few events are enough to look at.
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Plans of envelopes have many fields; a warning that says so helps nobody.
    "spark.sql.debug.maxToStringFields": "1000",
    # A table that somebody saves without a path is not left in the working directory.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "mqbridge-spark-warehouse"),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: Of the memory of this machine, the part that the JVM may take where it does all of the work.
_MEMORY_PART: Final = 3
#: GiB that it may take at most.
STREAM_MEMORY: Final = 2
#: More, where driver and executors are one process.
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


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
    meanwhile: Callable[[], object] | None = None,
) -> SparkSession:
    """Return a Spark session with the data sources of this package; the one that runs already, where there is one.

    `master` is Spark's (`local[4]`, `spark://host:7077`); None: all cores of this machine. `settings` are Spark's own
    properties, and win over those of this module; an archive in `spark.archives` that workers unpack as UNPACKED
    (`archived_environment`) is their Python. `meanwhile` is done on a thread while Java starts: imports, whose errors
    come again where their names are used. Sets JAVA_HOME and what Python workers need in the environment of this
    process, which Spark hands on. Raises SparkMissing when something is not installed.
    """
    require_packages()
    master = master or "local[*]"
    unpacked = not master.startswith("local") and f"#{UNPACKED}" in (settings or {}).get("spark.archives", "")
    _prepare_environment(local=master.startswith("local"))
    if unpacked:
        os.environ["PYSPARK_PYTHON"] = UNPACKED_WORKER
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from bridge.spark.registration import register

    local = {"spark.driver.memory": memory(STREAM_MEMORY), **LOCAL_SETTINGS} if master.startswith("local") else {}
    chosen = {**SETTINGS, **local, **(settings or {})}
    # On a cluster an executor starts its own Python: it is to be found by the same path there.
    chosen[f"spark.executorEnv.{PYTHON_VARIABLE}"] = os.environ[PYTHON_VARIABLE]
    if not has_configuration():
        chosen[JAVA_OPTIONS] = f"{LOGGING} {chosen.get(JAVA_OPTIONS, '')}".strip()
    conf = SparkConf().setAppName(name).setMaster(master).setAll(list(chosen.items()))
    if meanwhile is not None:
        threading.Thread(target=_passing_over_errors, args=(meanwhile,), name="imports", daemon=True).start()
    try:
        with _signals_held():
            _launch(conf, Path(__file__).parent if unpacked else None)
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
        register(spark)
    except KeyboardInterrupt:
        _kill()
        raise
    return spark


def has_configuration() -> bool:
    """Return whether somebody has said where Spark is, or its configuration."""
    return "SPARK_HOME" in os.environ or os.environ.get("SPARK_CONF_DIR", NO_CONFIGURATION) != NO_CONFIGURATION


def _passing_over_errors(work: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        work()


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the body has ended: it starts what this process then has to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    # Handlers, and no mask: the JVM would have that, too.
    before = {one: signal.signal(one, lambda number, _: held.append(number)) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in held:
            signal.raise_signal(one)


def _kill() -> None:
    """End the JVM of a session that is half made. It would say with a stack that nobody wants it any more."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _launch(conf: SparkConf, directory: Path | None) -> None:
    """Start the JVM in a process group of its own, if there is none yet, and in a directory (None: in that of this process).

    What ends this process in order, Ctrl-C or a SIGTERM for the group, is not to take the JVM away from it meanwhile. It
    ends with this process, whose pipe it reads.
    """
    from pyspark import SparkContext, java_gateway

    if SparkContext._gateway is None:
        launch: Any = java_gateway.launch_gateway
        SparkContext._ensure_initialized(gateway=launch(conf, {"start_new_session": True, "cwd": directory}))


def abandon(spark: SparkSession) -> None:
    """Leave a session to end by itself, which nobody waits for: what it has on disk its JVM removes."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        spark.stop()
        return
    os.killpg(process.pid, signal.SIGTERM)
    forget()


def forget() -> None:
    """Have the next session start a Java of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def has_ended(spark: SparkSession, wait: float = 0) -> bool:
    """Return whether the JVM of a session is gone, or is within so many seconds: all that is asked of it fails, then."""
    process: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait)
    return process.returncode is not None


def memory(most: int) -> str:
    """Return `spark.driver.memory`: a part of this machine's memory, and at most so many GiB.

    The JVM takes what it may take.
    """
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MEMORY_PART // 1024**3
    return f"{max(1, min(gibibytes, most))}g"


def _prepare_environment(*, local: bool) -> None:
    java = find_java()
    os.environ.update(java.environment)
    if "SPARK_HOME" not in os.environ:
        os.environ.setdefault("SPARK_CONF_DIR", NO_CONFIGURATION)
    os.environ.setdefault(LAUNCHER_VARIABLE, QUICK_JAVA)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", str(PYTHON_WORKER))
    # Checked by Spark against the version of the driver; the wrapper runs the very same interpreter.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
