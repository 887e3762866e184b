"""Servers of Spark as processes on this machine.

A standalone cluster has a master and workers, each worker in separate namespaces. A Spark Connect server is a driver for
clients in other processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil
import pyspark

from bridge.spark.session import LAUNCHER_HOME, QUICK_JAVA, java_variables
from tests.helpers.network import Network

ROOT = str(Path(__file__).resolve().parents[2])
_SPARK = Path(pyspark.__file__).parent

#: Cores and megabytes of each worker.
_CORES, _MEGABYTES = 1, 600
#: Packages that Spark opens to itself if it starts Java by its own programs.
_OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "sun.nio.ch",
    "sun.util.calendar",
)
#: `sh -c _HIDE sh DIRECTORY... -- COMMAND` runs COMMAND with an empty file system mounted on each DIRECTORY.
_HIDE: Final = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done; shift; exec "$@"'


def start_worker(master: str, directory: Path, hidden: Sequence[Path], network: Network) -> subprocess.Popen[bytes]:
    """Start a worker that sees neither the hidden directories nor this machine's loopback addresses.

    Its executors write to `directory`.
    """
    namespace, address = network.namespace()
    isolated = [
        "ip",
        "netns",
        "exec",
        namespace,
        "unshare",
        "--mount",
        "sh",
        "-c",
        _HIDE,
        "sh",
        *map(str, hidden),
        "--",
    ]
    cores = ["--cores", str(_CORES), "--memory", f"{_MEGABYTES}m"]
    arguments = ["--host", address, *cores, "--work-dir", str(directory), master]
    return _start("deploy.worker.Worker", directory, "--webui-port", "0", *arguments, before=isolated)


def start_master(address: str, port: int, directory: Path) -> subprocess.Popen[bytes]:
    """Start a master that restores its state from `directory` after a kill."""
    recovery = {"recoveryMode": "FILESYSTEM", "recoveryDirectory": directory}
    java = [f"-Dspark.deploy.{name}={value}" for name, value in recovery.items()]
    arguments = ["--webui-port", "0", "--host", address, "--port", str(port)]
    return _start("deploy.master.Master", directory, *arguments, java=java)


def start_connect_server(port: int, directory: Path) -> subprocess.Popen[bytes]:
    """Start a Spark Connect server at a port of this machine, as `sbin/start-connect-server.sh` does."""
    settings = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
    }
    java = ["-Xmx1g", *(f"-D{name}={value}" for name, value in settings.items())]
    java += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    return _start("sql.connect.service.SparkConnectServer", directory, java=java)


def executors(driver: str) -> list[psutil.Process]:
    """Return the executors of the drivers at an address."""
    scheduler = f"CoarseGrainedScheduler@{driver}:"
    running = psutil.process_iter(["cmdline"])
    return [process for process in running if scheduler in " ".join(process.info["cmdline"] or ())]


def _start(
    name: str, directory: Path, *arguments: str, java: Sequence[str] = (), before: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    # bin/spark-class would determine SPARK_SCALA_VERSION.
    environment = os.environ | java_variables()
    environment |= {"SPARK_HOME": str(_SPARK), "JAVA_HOME": str(LAUNCHER_HOME), "SPARK_SCALA_VERSION": "2.13"}
    environment |= {"PYTHONPATH": ROOT, "PYSPARK_PYTHON": sys.executable}
    command = [*before, f"{LAUNCHER_HOME}/bin/java", "-Xmx200m", *QUICK_JAVA.split(), *java]
    command += ["-cp", f"{_SPARK}/jars/*", f"org.apache.spark.{name}"]
    with (directory.parent / f"{name}.log").open("ab") as log:
        return subprocess.Popen([*command, *arguments], env=environment, stderr=log, start_new_session=True)
