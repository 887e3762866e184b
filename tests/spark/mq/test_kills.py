"""A worker and the driver killed with SIGKILL on a cluster, the rest done by another driver: every message is put once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from bridge.spark.mq.queue_manager import APPLICATION_NAME
from tests.spark.cluster import cluster
from tests.spark.conftest import ROOT, Queues
from tests.spark.faults import Fault, fault, is_marker, kill, kill_driver

#: A driver and a cluster are started, on what may be a busy machine.
PATIENCE = 120


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE * 2)
def test_a_worker_and_the_driver_killed_on_a_cluster(
    spark: SparkSession, read: Callable[..., DataFrame], queues: Queues, tmp_path: Path
) -> None:
    source, target, checkpoint = queues.queue(), queues.queue(), str(tmp_path / "checkpoint")
    bodies = [b"%03d" % number for number in range(60)]
    queues.put(source, *bodies)
    # The worker in the middle of the first batch: Spark runs its task again. The driver at the fourth commit: after two
    # partitions of the first batch and the removal of its messages it is that of a partition of the second batch, which
    # Spark has not noted then.
    worker = Fault(lambda verb, request: verb == "MQPUT" and not is_marker(request), 5, action=kill(signal.SIGKILL))
    committed = Fault(
        lambda verb, request: verb == "MQCMIT",
        4,
        action=lambda _: kill_driver(driver.pid),
        after=True,
    )
    with cluster(spark, tmp_path / "workers") as master, fault(APPLICATION_NAME, worker, committed):
        # The driver, with its JVM in a process group of its own. (Python workers leave that group.)
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", master, str(queues.directory), source, target, checkpoint],
            cwd=ROOT,
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        assert driver.wait(PATIENCE) == -signal.SIGKILL
    # An executor of one core on each worker, and no task began before both were there: two partitions are on both.
    assert sorted(one.name for one in tmp_path.glob("workers/app-*/*")) == ["0", "1"]
    assert worker.happened and committed.happened
    frame = read(queue=source, stream=True, maxMessagesPerTrigger=20, partitions=2).drop("queue", "topic")
    writer = frame.writeStream.format("mq").options(**queues.options, queue=target)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    assert sorted(queues.bodies(target)) == bodies
    assert queues.depth(source) == 0
