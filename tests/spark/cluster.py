"""A Spark standalone cluster on this machine: a master and two workers, in the JVM of the tests' own session.

Executors are processes of their own, which the workers start, and a driver comes to the master's port from a third one.
(Spark's `local-cluster` is made the same way, but shut up in its driver.)
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from bridge.spark.session import LAUNCHER_HOME, find_java
from tests.helpers.patience import PATIENCE
from tests.helpers.spark import QUICK_JAVA

ROOT = str(Path(__file__).resolve().parents[2])
_SPARK = Path(pyspark.__file__).parent

#: Of each worker.
_CORES, _MEGABYTES = 1, 600
#: Has directories be empty for a command, and for all that it starts, or be in other places: `sh -c _APART sh DIRECTORY… --
#: COMMAND`, a DIRECTORY that is `old=new` as it is, before it is hidden, in another place.
_APART = """
while [ "$1" != -- ]; do
    case $1 in
        *=*) mkdir -p "${1#*=}" && mount --bind "${1%%=*}" "${1#*=}" || exit 1 ;;
        *) mount -t tmpfs none "$1" || exit 1 ;;
    esac
    shift
done
shift
exec "$@"
"""


def can_stand_apart() -> bool:
    """Whether processes can be started here that do not see some directories."""
    command = "command -v unshare && unshare --mount mount -t tmpfs none /mnt"
    return subprocess.run(command, shell=True, capture_output=True).returncode == 0


@contextmanager
def cluster(
    spark: SparkSession, directory: Path, hidden: Sequence[Path] = (), installed: Path | None = None
) -> Iterator[str]:
    """The URL of its master. The workers keep what their executors write in `directory`.

    With `hidden` the workers are processes for which those directories are empty, as on machines of their own. With
    `installed` they have Spark and Java there, and nothing of this repository.
    """
    context = spark.sparkContext
    jvm: Any = context._jvm
    conf = context._jsc.sc().conf().clone()
    nothing = jvm.scala.Option.empty()
    with ExitStack() as stack:
        started = jvm.org.apache.spark.deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
        stack.callback(started._1().shutdown)
        master = "spark://" + started._1().address().hostPort()
        masters = context._gateway.new_array(jvm.String, 1)
        masters[0] = master
        for number in range(2):
            if hidden:
                stack.enter_context(_worker_apart(master, directory, hidden, installed))
                continue
            worker = jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
                "127.0.0.1", 0, 0, _CORES, _MEGABYTES, masters, str(directory), jvm.scala.Some(number), conf, nothing
            )
            stack.callback(worker.shutdown)
        yield master


@contextmanager
def _worker_apart(master: str, directory: Path, hidden: Sequence[Path], installed: Path | None) -> Iterator[None]:
    worker = start_worker(master, directory, hidden, installed)
    with worker:
        try:
            yield
        finally:
            worker.terminate()
            worker.wait(PATIENCE)


def start_worker(
    master: str, directory: Path, hidden: Sequence[Path], installed: Path | None = None
) -> subprocess.Popen[bytes]:
    """A worker as a process, for which some directories are empty. Its executors write to `directory`."""
    moved = {} if installed is None else {_SPARK: installed / "spark", LAUNCHER_HOME: installed / "java"}
    places = [*(f"{old}={new}" for old, new in moved.items()), *map(str, hidden)]
    apart = ["unshare", "--mount", "sh", "-c", _APART, "sh", *places, "--"] if places else []
    cores = ["--cores", str(_CORES), "--memory", f"{_MEGABYTES}m"]
    return _start("worker.Worker", directory, *cores, "--work-dir", str(directory), master, before=apart, moved=moved)


def start_master(port: int, directory: Path) -> subprocess.Popen[bytes]:
    """A master as a process, which knows in `directory` what it knew when it was killed."""
    recovery = {"recoveryMode": "FILESYSTEM", "recoveryDirectory": directory}
    java = [f"-Dspark.deploy.{name}={value}" for name, value in recovery.items()]
    return _start("master.Master", directory, "--port", str(port), java=java)


def _start(
    name: str,
    directory: Path,
    *arguments: str,
    java: Sequence[str] = (),
    before: Sequence[str] = (),
    moved: Mapping[Path, Path] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    home = moved.get(_SPARK, _SPARK)
    environment = os.environ | find_java().environment | {"SPARK_HOME": str(home), "PYTHONPATH": "" if moved else ROOT}
    environment["JAVA_HOME"] = str(moved.get(LAUNCHER_HOME, LAUNCHER_HOME))
    environment["SPARK_SCALA_VERSION"] = "2.13"  # which bin/spark-class would find out
    command = [*before, f"{environment['JAVA_HOME']}/bin/java", "-Xmx200m", *QUICK_JAVA.split(), *java]
    command += ["-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
    with (directory.parent / f"{name}.log").open("ab") as log:
        return subprocess.Popen([*command, *arguments], env=environment, stderr=log, start_new_session=True)
