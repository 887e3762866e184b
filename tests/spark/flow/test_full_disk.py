"""The disk of the staging directory is full: the pipeline reports it, and continues when there is space."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter

import pytest

from tests.helpers.patience import until
from tests.spark.flow.conftest import Bench

ROWS = 8_000


@pytest.mark.slow  # mounts a file system
@pytest.mark.parametrize("partitions", [1, 16], ids=["files of tasks", "a file of the driver"])
def test_a_full_staging_disk(partitions: int, bench: Bench) -> None:
    """A task with more than 1 MiB of rows writes a file. The driver writes the rows of smaller tasks."""
    if os.getuid():
        pytest.skip("only root can mount a file system")
    queue, out = bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          large:
            from: {mq: {queue: $queue}, options: {partitions: $partitions}}
            to: {mq: {queue: $out}}
            batch: 8000
            trigger: 0
        """,
        queue=queue, out=out, partitions=partitions,
    )  # fmt: skip
    bodies = [b"%1000d" % number for number in range(ROWS)]
    for first in range(0, ROWS, ROWS // 2):
        bench.queues.put(queue, *bodies[first : first + ROWS // 2], Format=b"MQSTR   ")
    stage = bench.directory / "state" / "large" / "stage"
    stage.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", stage], check=True)
    runner = bench.runner(once=False)
    thread = threading.Thread(target=runner.run)
    try:
        thread.start()
        full = f"staging directory {stage} on "
        until(lambda: any(full in line and "the disk is full; hint: free disk space" in line for line in bench.lines))
        assert bench.queues.depth(out) == 0
        subprocess.run(["mount", "-o", "remount,size=64m", stage], check=True)
        until(lambda: sum(batch.rows_out for batch in bench.batches) == ROWS)
    finally:
        runner.stop()
        thread.join()
        staged = [path for path in stage.rglob("*") if path.is_file()]
        subprocess.run(["umount", "--lazy", stage], check=True)
    assert Counter(bench.queues.bodies(out)) == Counter(bodies)
    assert not staged
