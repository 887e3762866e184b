"""A Spark standalone cluster on this machine: a master and two workers, from the installed PySpark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from bridge.pipeline.java import find_java
from tests.acceptance.line_process import PATIENCE, LineProcess
from tests.pipeline.settings import QUICK_JAVA

_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


def _daemon(stack: ExitStack, environment: dict[str, str], name: str, *arguments: str) -> LineProcess:
    command = [_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    daemon = stack.enter_context(LineProcess([*command, "--port", "0", "--webui-port", "0"], env=environment))
    stack.callback(daemon.terminate)
    return daemon


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """The URL of its master."""
    java = find_java()
    environment = {
        **os.environ,
        **java.environment,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(directory),
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
    }
    with ExitStack() as stack:
        master = _daemon(stack, environment, "master.Master")
        found = _MASTER.search(master.line_where(lambda line: _MASTER.search(line) is not None, PATIENCE))
        assert found is not None
        size = ("--cores", "1", "--memory", "600m")
        workers = [_daemon(stack, environment, "worker.Worker", *size, found[1]) for _ in range(2)]
        for worker in workers:
            worker.line_where(lambda line: "Successfully registered with master" in line, PATIENCE)
        yield found[1]
