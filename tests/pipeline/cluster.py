"""A Spark standalone cluster on this machine: a master and two workers, in the JVM of the tests' own session.

Executors are processes of their own, which the workers start, and a driver comes to the master's port from a third one.
(Spark's `local-cluster` is made the same way, but shut up in its driver.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

#: Of each worker.
_CORES, _MEGABYTES = 1, 600


@contextmanager
def cluster(spark: SparkSession, directory: Path) -> Iterator[str]:
    """The URL of its master. The workers keep what their executors write in `directory`."""
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
            worker = jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
                "127.0.0.1", 0, 0, _CORES, _MEGABYTES, masters, str(directory), jvm.scala.Some(number), conf, nothing
            )
            stack.callback(worker.shutdown)
        yield master
