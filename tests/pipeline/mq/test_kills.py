"""A worker and the driver killed with SIGKILL, and the rest done on a cluster: every message is put once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.pipeline.mq.place import APPLICATION_NAME
from tests.pipeline.cluster import cluster
from tests.pipeline.conftest import ROOT, Queues
from tests.pipeline.faults import Fault, fault, is_marker, kill

#: Two drivers and a cluster are started, on what may be a busy machine.
PATIENCE = 120


def driver(
    queues: Queues, master: str, source: str, target: str, checkpoint: Path
) -> subprocess.Popen[bytes]:
    """The driver, with its JVM in a process group of its own. (Python workers leave that group.)"""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.driver", master, str(queues.directory), source, target, str(checkpoint)],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.timeout(PATIENCE * 3)
def test_a_worker_and_the_driver_killed_and_the_rest_done_on_a_cluster(queues: Queues, tmp_path: Path) -> None:
    source, target = queues.queue(), queues.queue()
    bodies = [b"%03d" % number for number in range(60)]
    queues.put(source, *bodies)
    checkpoint = tmp_path / "checkpoint"
    # `local[2,4]` tries a task up to four times.
    process = driver(queues, "local[2,4]", source, target, checkpoint)
    # The worker in the middle of the first batch: Spark runs its task again. The driver at the fourth commit: after two
    # partitions of the first batch and the removal of its messages it is that of a partition of the second batch, which
    # Spark has not noted then.
    worker = Fault(lambda verb, request: verb == "MQPUT" and not is_marker(request), 5, action=kill(signal.SIGKILL))
    committed = Fault(
        lambda verb, request: verb == "MQCMIT",
        4,
        action=lambda _: os.killpg(process.pid, signal.SIGKILL),
        after=True,
    )
    with cluster(tmp_path / "workers") as master:
        with fault(APPLICATION_NAME, worker, committed):
            assert process.wait(PATIENCE) == -signal.SIGKILL
        assert worker.happened and committed.happened
        process = driver(queues, master, source, target, checkpoint)
        executors, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, executors) == (0, b"3\n")
    assert sorted(queues.bodies(target)) == bodies
    assert queues.depth(source) == 0
