"""A standalone Spark cluster: a master and workers as processes on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark

from bridge.spark.session import LAUNCHER_HOME, QUICK_JAVA, find_java

ROOT = str(Path(__file__).resolve().parents[2])
_SPARK = Path(pyspark.__file__).parent

#: Cores and megabytes of each worker.
_CORES, _MEGABYTES = 1, 600
#: `sh -c _HIDE sh DIRECTORY... -- COMMAND` runs COMMAND with an empty file system mounted on each DIRECTORY.
_HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done; shift; exec "$@"'


def start_worker(master: str, directory: Path, hidden: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Start a worker that does not see the hidden directories. Its executors write to `directory`."""
    hide = ["unshare", "--mount", "sh", "-c", _HIDE, "sh", *map(str, hidden), "--"] if hidden else []
    cores = ["--cores", str(_CORES), "--memory", f"{_MEGABYTES}m"]
    return _start("worker.Worker", directory, *cores, "--work-dir", str(directory), master, before=hide)


def start_master(port: int, directory: Path) -> subprocess.Popen[bytes]:
    """Start a master that restores its state from `directory` after a kill."""
    recovery = {"recoveryMode": "FILESYSTEM", "recoveryDirectory": directory}
    java = [f"-Dspark.deploy.{name}={value}" for name, value in recovery.items()]
    return _start("master.Master", directory, "--port", str(port), java=java)


def _start(
    name: str, directory: Path, *arguments: str, java: Sequence[str] = (), before: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    # bin/spark-class would determine SPARK_SCALA_VERSION.
    environment = os.environ | find_java().environment
    environment |= {"SPARK_HOME": str(_SPARK), "JAVA_HOME": str(LAUNCHER_HOME), "SPARK_SCALA_VERSION": "2.13"}
    environment |= {"PYTHONPATH": ROOT}
    command = [*before, f"{LAUNCHER_HOME}/bin/java", "-Xmx200m", *QUICK_JAVA.split(), *java]
    command += ["-cp", f"{_SPARK}/jars/*", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
    with (directory.parent / f"{name}.log").open("ab") as log:
        return subprocess.Popen([*command, *arguments], env=environment, stderr=log, start_new_session=True)
