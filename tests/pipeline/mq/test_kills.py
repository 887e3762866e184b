"""A worker and the driver killed with SIGKILL: every message is put once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from bridge.pipeline.mq.place import APPLICATION_NAME
from tests.pipeline.conftest import ROOT, Queues
from tests.pipeline.faults import Fault, fault, is_marker, kill

PATIENCE = 90


def driver(queues: Queues, source: str, target: str, checkpoint: Path) -> subprocess.Popen[bytes]:
    """The driver, with its JVM in a process group of its own. (Python workers leave that group.)"""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.driver", str(queues.directory), source, target, str(checkpoint)],
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )


def test_a_worker_and_the_driver_killed(queues: Queues, tmp_path: Path) -> None:
    source, target = queues.queue(), queues.queue()
    bodies = [b"%03d" % number for number in range(60)]
    queues.put(source, *bodies)
    process = driver(queues, source, target, tmp_path)
    # The worker in the middle of the first batch: Spark runs its task again. The driver at the third commit: after the
    # first batch and the removal of its messages it is that of the second batch, which Spark has not noted then.
    worker = Fault(lambda verb, request: verb == "MQPUT" and not is_marker(request), 10, action=kill(signal.SIGKILL))
    committed = Fault(
        lambda verb, request: verb == "MQCMIT",
        3,
        action=lambda _: os.killpg(process.pid, signal.SIGKILL),
        after=True,
    )
    with fault(APPLICATION_NAME, worker, committed):
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert worker.happened and committed.happened
    assert driver(queues, source, target, tmp_path).wait(PATIENCE) == 0
    assert queues.bodies(target) == bodies
    assert queues.depth(source) == 0
