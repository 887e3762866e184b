"""Processes of Spark are killed while the sink `mq` writes a batch of several units of work, on one machine and on a cluster.

Rows are never lost. They are put once, except those of a batch write that cannot be recognized when it is repeated.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psutil
import pytest
from pyspark.sql import SparkSession

from bridge.spark.mq.queue_manager import APPLICATION_NAME
from bridge.spark.options import UNIT_ROWS
from tests.helpers.mosquitto import free_port
from tests.helpers.network import Network
from tests.helpers.patience import until, until_at_last
from tests.spark.cluster import executors, start_master, start_worker
from tests.spark.conftest import ROOT, Queues
from tests.spark.faults import Fault, fault, kill_driver
from tests.spark.mq.driver import Write, run

#: Rows of a batch: four units of work. A task gets more than one of Arrow's batches of 10,000 rows.
ROWS = 30_000
#: Commits of a batch: of the first two states, of the manifest, and of each unit of work.
FIRST_UNIT = 3

pytestmark = pytest.mark.slow  # each starts a separate Spark


class Driver:
    """A Spark driver as a process, whose tasks can be delayed (`tests.spark.mq.driver`)."""

    def __init__(self, write: Write, stack: ExitStack, **variables: str) -> None:
        command = [sys.executable, "-m", "tests.spark.mq.driver", msgspec.json.encode(write).decode()]
        environment = {**os.environ, **variables}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        stack.callback(self._end)
        self._held = Path(write.held) if write.held else None

    def _end(self) -> None:
        if self.process.poll() is None:
            kill_driver(self.process.pid)
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def wait_for_tasks(self, count: int) -> None:
        """Wait until this number of tasks have staged a part of their rows."""
        held = self._held
        assert held is not None
        until_at_last(lambda: self.process.poll() is not None or len(list(held.glob("task-*"))) >= count, self.cpu_time)
        assert self.process.poll() is None, self.process.communicate()[1]

    def release(self) -> None:
        """Release the waiting tasks."""
        assert self._held is not None
        (self._held / "go").touch()

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers, which are children of a daemon of PySpark."""
        workers = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                if "pyspark.daemon" in " ".join(process.cmdline()):
                    workers += process.children()
        return workers

    def kill(self) -> None:
        """Kill Python and its JVM."""
        kill_driver(self.process.pid)
        assert self.ended() == -signal.SIGKILL

    def cpu_time(self) -> float:
        """Return the seconds of processor time of Python and its JVM."""
        try:
            driver = psutil.Process(self.process.pid)
            return sum(sum(process.cpu_times()[:2]) for process in (driver, *driver.children()))
        except psutil.NoSuchProcess:
            return 0.0

    def ended(self) -> int:
        """Return the status of the process, at its end."""
        until_at_last(lambda: self.process.poll() is not None, self.cpu_time)
        return self.process.wait()

    def killed_after(self, commits: int) -> None:
        """Release the tasks, and kill the driver after a number of commits whose results it does not get."""
        committed = Fault(
            lambda verb, request: verb == "MQCMIT", commits, action=lambda _: kill_driver(self.process.pid), after=True
        )
        with fault(APPLICATION_NAME, committed):
            if self._held is not None:
                self.release()
            assert self.ended() == -signal.SIGKILL, self.process.communicate()[1]
        assert committed.happened


@pytest.fixture
def write(queues: Queues, tmp_path: Path) -> Write:
    """A streaming write to a new queue, with delayed tasks."""
    (tmp_path / "held").mkdir()
    return Write(
        rows=ROWS,
        partitions=2,
        options={**queues.options, "queue": queues.queue(), "stage": str(tmp_path / "stage")},
        checkpoint=str(tmp_path / "checkpoint"),
        held=str(tmp_path / "held"),
    )


Start = Callable[..., Driver]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(write)` starts a driver. It ends with the test."""
    with ExitStack() as stack:
        yield lambda write, **variables: Driver(write, stack, **variables)


def check(queues: Queues, write: Write, again: int = 0) -> None:
    """Check that each number was put once (the first `again` numbers twice), and that nothing is staged."""
    numbers = Counter(int(body) for body in queues.bodies(write.options["queue"]))
    expected = Counter(range(ROWS)) + Counter(range(again))
    assert numbers == expected, ((expected - numbers).total(), (numbers - expected).total())
    assert not [path for path in Path(write.options.get("stage", "none")).rglob("*") if path.is_file()]


def repeated(write: Write, partitions: int) -> Write:
    """Return the same write with other tasks, which are not delayed."""
    return msgspec.structs.replace(write, partitions=partitions, held=None)


# One machine ----------------------------------------------------------------------------------------------------------


def test_the_driver_is_killed_while_tasks_stage(
    start: Start, spark: SparkSession, queues: Queues, write: Write
) -> None:
    driver = start(write)
    driver.wait_for_tasks(2)
    driver.kill()
    assert queues.depth(write.options["queue"]) == 0
    run(spark, repeated(write, 3))
    check(queues, write)


def test_workers_and_the_driver_are_killed_in_the_same_batch(
    start: Start, spark: SparkSession, queues: Queues, write: Write
) -> None:
    """Spark repeats the tasks whose workers were killed. The driver is killed after the first of six units of work."""
    driver = start(msgspec.structs.replace(write, master="local[2,4]"))
    driver.wait_for_tasks(2)
    for worker in driver.workers():
        worker.kill()
    driver.killed_after(FIRST_UNIT)
    assert queues.depth(write.options["queue"]) == UNIT_ROWS
    run(spark, repeated(write, 3))
    check(queues, write)


@pytest.mark.parametrize("name", ["nightly", None])
def test_a_batch_write_is_killed_and_repeated(
    name: str | None, start: Start, spark: SparkSession, queues: Queues, write: Write, tmp_path: Path
) -> None:
    """With a `writeId`, each row is put once. Without one, the rows that were already put are put again, and staged files
    stay.
    """
    (tmp_path / "temporary").mkdir()
    write = msgspec.structs.replace(write, checkpoint=None, held=None)
    if name is not None:
        write.options["writeId"] = f"{name} {write.options['queue']}"
    else:
        del write.options["stage"]
    start(write, TMPDIR=str(tmp_path / "temporary")).killed_after(FIRST_UNIT if name else 1)
    assert queues.depth(write.options["queue"]) == UNIT_ROWS
    run(spark, repeated(write, 3))
    check(queues, write, again=0 if name else UNIT_ROWS)
    assert len(list((tmp_path / "temporary").glob("mqbridge-stage-*"))) == (0 if name else 1)


# A standalone cluster of two workers ----------------------------------------------------------------------------------


class Cluster:
    """A master and two workers, which can access neither the loopback addresses of this machine nor the directory
    `private`.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.private = directory / "private"
        self._work = directory / "work"
        self._network = Network(stack)
        self.private.mkdir()
        self._work.mkdir()
        self._stack = stack
        port = free_port()
        self.address = self._network.address
        self.master = f"spark://{self.address}:{port}"
        self._stack.callback(stop, start_master(self.address, port, self._work))
        self.workers: list[subprocess.Popen[bytes]] = []
        self._stack.callback(self._end)

    def start_workers(self) -> None:
        """Start workers with one core each, until two are running."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            self.workers.append(start_worker(self.master, self._work, [self.private], self._network))

    def _end(self) -> None:
        for worker in self.workers:
            stop(worker)
        for executor in self.executors():  # a namespace lives as long as its processes
            executor.kill()
        until(lambda: not self.executors())

    def on(self, write: Write) -> Write:
        """Return a write whose tasks run on both workers."""
        settings = {
            "spark.driver.host": self.address,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
        }
        return msgspec.structs.replace(write, master=self.master, settings=settings)

    def executors(self) -> list[psutil.Process]:
        """Return the executors."""
        return executors(self.address)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if os.getuid():
        pytest.skip("only root can make network namespaces")
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    running_cluster.start_workers()
    return running_cluster


def test_a_cluster_without_a_shared_staging_directory(
    start: Start, cluster: Cluster, queues: Queues, write: Write
) -> None:
    """The error names the option, and nothing is put. A batch of one unit of work needs no directory."""
    for stage in (cluster.private / "stage", None):
        options = {key: value for key, value in write.options.items() if key != "stage"}
        if stage is not None:
            options["stage"] = str(stage)
        refused = msgspec.structs.replace(
            write, held=None, options=options, checkpoint=str(cluster.private / "checkpoint")
        )
        driver = start(cluster.on(refused))
        assert driver.ended() == 1
        error = driver.process.communicate()[1]
        missing = stage or f"{refused.checkpoint}/stage"
        assert f"staging directory {missing} does not exist on " in error
        assert "set the option stage to a directory (or URL) that the driver and all workers reach" in error
        assert queues.depth(write.options["queue"]) == 0
    few = msgspec.structs.replace(refused, rows=UNIT_ROWS, checkpoint=str(cluster.private / "few"))
    driver = start(cluster.on(few))
    assert driver.ended() == 0, driver.process.communicate()[1]
    assert queues.depth(write.options["queue"]) == UNIT_ROWS


@pytest.mark.parametrize("kind", ["executor", "worker", "worker and driver"])
def test_processes_of_a_cluster_are_killed(
    kind: str, start: Start, cluster: Cluster, queues: Queues, write: Write
) -> None:
    """Spark repeats the tasks of the lost executor. If the driver is killed, too, another one finishes the batch."""
    driver = start(cluster.on(write))
    driver.wait_for_tasks(2)
    until(lambda: len(cluster.executors()) == 2)  # those of an earlier driver end with it
    before = cluster.executors()
    if kind == "executor":
        before[0].kill()
    else:
        stop(cluster.workers[0])  # its executor ends when it loses the connection
    until(lambda: any(executor not in cluster.executors() for executor in before))
    if kind == "worker and driver":
        driver.killed_after(FIRST_UNIT)
        assert queues.depth(write.options["queue"]) == UNIT_ROWS
        driver = start(cluster.on(repeated(write, 3)))
    else:
        driver.release()
    assert driver.ended() == 0, driver.process.communicate()[1]
    check(queues, write)


def test_two_drivers_with_one_checkpoint(start: Start, write: Write, queues: Queues, tmp_path: Path) -> None:
    """The second one puts nothing and fails, because the batch is put and its staging directory was deleted."""
    (tmp_path / "second").mkdir()
    first = start(write)
    first.wait_for_tasks(2)
    second = start(msgspec.structs.replace(write, held=str(tmp_path / "second")))
    second.wait_for_tasks(2)
    first.release()
    assert first.ended() == 0, first.process.communicate()[1]
    second.release()
    second.ended()
    _, error = second.process.communicate()
    assert second.process.returncode == 1
    assert "Multiple streaming jobs detected" in error or "staging directory" in error, error
    check(queues, write)
