"""The disk of the staging directory is full or fails: the pipeline reports it, and continues after the repair."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bridge.mq.remote import RemoteConnection
from bridge.spark.session import QUICK_JAVA
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.faulty_disk import compiled
from tests.helpers.patience import until, until_at_last
from tests.spark.flow.conftest import Bench
from tests.spark.flow.test_kills import Run, put, take

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


CONFIGURATION = """
queue_manager: {data_directory: $data}
channels: [{name: C, port: 0}]
spark: {conf: {spark.driver.extraJavaOptions: "$java"}}
pipelines:
  large:
    from: {mq: {queue: IN}}
    select: SELECT repeat(text, 20) AS body FROM input
    to: {mq: {queue: OUT}}
    batch: $rows
    trigger: 0
    checkpoint: $state
"""
#: Maximum number of bytes of a file. The staged rows have more than twice as many, the segments of the spool fewer.
_FILE_SIZE = 6 * 1024 * 1024


def end_of_syncs(run: Run, directory: Path) -> None:
    (directory / "fault").unlink()


def end_of_limit(run: Run, directory: Path) -> None:
    for process in run.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.slow  # a bridge and a separate Spark
@pytest.mark.parametrize(
    ("why", "repair"),
    [("Input/output error", end_of_syncs), ("File too large", end_of_limit)],
    ids=["files are not synced", "files have a maximum size"],
)
def test_a_staging_disk_that_fails(why: str, repair: Callable[[Run, Path], None], tmp_path: Path) -> None:
    text = CONFIGURATION.replace("$java", QUICK_JAVA).replace("$rows", str(ROWS))
    text = text.replace("$data", str(tmp_path / "data")).replace("$state", str(tmp_path / "large"))
    bridge = BridgeProcess(tmp_path / "data", config=text).start()
    run: Run | None = None
    try:
        connection = RemoteConnection(tmp_path / "data", application="tests")
        for name in ("IN", "OUT"):
            assert connection.command(f"DEFINE QLOCAL('{name}') MAXDEPTH(1000000) DEFPSIST(YES)")[0].ok
        bodies = [b"%100d" % number for number in range(ROWS)]
        put(connection, "IN", bodies)
        assert bridge.config is not None
        variables = {}
        if repair is end_of_syncs:
            (tmp_path / "fault").write_text("fsync")
            variables = {"LD_PRELOAD": str(compiled(tmp_path)), "FAULTY_DISK": str(tmp_path / "fault")}
            variables["FAULTY_DISK_NAME"] = "/stage/"
        run = Run(bridge.config, tmp_path / "lines", **variables)
        if repair is end_of_limit:
            psutil.Process(run.process.pid).rlimit(psutil.RLIMIT_FSIZE, (_FILE_SIZE, resource.RLIM_INFINITY))
        clear = f"staging directory {tmp_path / 'large' / 'stage'} on "
        until_at_last(lambda: clear in run.lines.read_text(), run.cpu_time)
        assert f"cannot be written: {why}; hint: check the disk" in run.lines.read_text()
        assert next(take(connection, "OUT"), None) is None
        repair(run, tmp_path)
        until_at_last(lambda: run.batches() > 0, run.cpu_time)
        assert Counter(take(connection, "OUT")) == Counter(body * 20 for body in bodies)
    finally:
        if run is not None:
            run.end()
        bridge.discard()
    assert not [path for path in (tmp_path / "large" / "stage").rglob("*") if path.is_file()]
