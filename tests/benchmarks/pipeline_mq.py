"""The data source `mq`, compared with a plain Python loop over the same MQ interface: queue to Parquet and back."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import psutil
from pyspark.sql import SparkSession

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, Connection, GetOptions, MQError
from bridge.mq.remote import RemoteConnection, get_many
from bridge.spark.session import session
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks.servers import Bridge

MESSAGES = 100_000
PAYLOAD = 1024
#: The columns of a simple archive.
TWO_COLUMNS = "body,put_time"
ROUNDS = 3
#: Puts per unit of work, in the plain loop and in the writer of the source.
UNIT = 5_000
#: Minimum ratio of the source to the plain loop, on one core.
TARGET = 0.7


@dataclass
class Cost:
    """The duration of some work, and the CPU seconds of the queue manager and of its clients."""

    seconds: float
    queue_manager: float
    others: float


class Place:
    """A queue manager in its own process, and a connection to it."""

    def __init__(self, server: Bridge) -> None:
        self.directory = server.folder / "data"
        self.process = psutil.Process(server.pid)
        self.connection: Connection = RemoteConnection(self.directory, application="bench")
        self._queues = 0
        self.command(f"DEFINE QLOCAL('{MAPPING_STATE_QUEUE}') NOREPLACE MAXDEPTH(1000000) DEFPSIST(YES)")

    def command(self, text: str) -> None:
        """Run MQSC."""
        for response in self.connection.command(text):
            assert response.ok or "already exists" in response.message, response.message

    def queue(self) -> str:
        """Create a queue."""
        self._queues += 1
        name = f"BENCH.{self._queues}"
        self.command(f"DEFINE QLOCAL('{name}') MAXDEPTH(10000000)")
        return name

    def options(self, **options: str) -> dict[str, str]:
        """Return the options of the data source."""
        return {"dataDirectory": str(self.directory), **options}

    def cost(self, work: Callable[[], None]) -> Cost:
        """Do some work, and return its cost."""
        before, start = _cpu(), time.perf_counter()
        work()
        seconds, after = time.perf_counter() - start, _cpu()
        spent = {process: after[process] - before.get(process, 0.0) for process in after}
        queue_manager = spent.pop(self.process.pid)
        return Cost(seconds, queue_manager, sum(spent.values()))

    # The plain loops -------------------------------------------------------------------------------------------------

    def put(self, queue: str, count: int) -> None:
        """Put `count` messages."""
        handle = self.connection.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
        body = b"x" * PAYLOAD
        for number in range(1, count + 1):
            self.connection.put(handle, Message(MQMD(), body), cmqc.MQPMO_SYNCPOINT)
            if number % UNIT == 0:
                self.connection.commit()
        self.connection.commit()
        self.connection.close(handle)

    def browse(self, queue: str, *, batches: bool = False) -> int:
        """Browse all messages of a queue. Return their number."""
        options = GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
        return self._got(queue, cmqc.MQOO_BROWSE, options, batches)

    def take(self, queue: str, *, batches: bool = False) -> int:
        """Get all messages of a queue. Return their number."""
        options = GetOptions(Options=cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
        return self._got(queue, cmqc.MQOO_INPUT_SHARED, options, batches)

    def _got(self, queue: str, how: int, options: GetOptions, batches: bool) -> int:
        """Get messages one by one like an MQI program, or in batches like the source. Return their number."""
        handle = self.connection.open(MQOD(ObjectName=queue), how)
        count = uncommitted = 0
        try:
            while True:
                if batches:
                    number = len(get_many(self.connection, handle, options))
                else:
                    self.connection.get(handle, options)
                    number = 1
                count += number
                uncommitted += number
                if uncommitted >= UNIT:
                    self.connection.commit()
                    uncommitted = 0
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
        self.connection.commit()
        self.connection.close(handle)
        return count


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Confine this process and its descendants (the queue manager and Spark) to one core."""
    cores = os.sched_getaffinity(0)
    _pin({min(cores)})
    try:
        yield
    finally:
        _pin(cores)


def _pin(cores: set[int]) -> None:
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            for thread in process.threads():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, cores)


def _cpu() -> dict[int, float]:
    """Return the CPU seconds of this process and its descendants. Those of processes that ended meanwhile are missing."""
    own = psutil.Process()
    times_of_processes = {}
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            times_of_processes[process.pid] = times.user + times.system
    return times_of_processes


@contextmanager
def place_of() -> Iterator[Place]:
    """Run a queue manager until the block ends."""
    server = Bridge()
    server.start()
    try:
        yield Place(server)
    finally:
        server.stop()


class Figures:
    """Messages per second of each way: the best of several rounds, because other load only reduces them."""

    def __init__(self, place: Place, count: int, report: Callable[[str], None]) -> None:
        self._place = place
        self._count = count
        self._report = report
        self.best: dict[str, Cost] = {}

    def measure(self, name: str, work: Callable[[], None]) -> None:
        """Measure one more round of a way."""
        cost = self._place.cost(work)
        if name not in self.best or cost.seconds < self.best[name].seconds:
            self.best[name] = cost

    def summarize(self, plain: str) -> dict[str, dict[str, float]]:
        """Return and report all figures. `ratio` is to the way named `plain`."""
        summary = {}
        for name, cost in self.best.items():
            rate = self._count / cost.seconds
            ratio = self.best[plain].seconds / cost.seconds
            summary[name] = {
                "messages_per_second": rate,
                "ratio": ratio,
                "queue_manager_cpu": cost.queue_manager,
                "other_cpu": cost.others,
            }
            self._report(
                f"{name}: {rate:,.0f} messages/s, {ratio:.2f} x {plain}; CPU seconds: queue manager"
                f" {cost.queue_manager:.1f}, others {cost.others:.1f}"
            )
        return summary


def _spark() -> SparkSession:
    return session("bench", master="local[2]", settings={"spark.log.level": "ERROR"})


def mq_to_parquet(report: Callable[[str], None], count: int = MESSAGES) -> dict[str, dict[str, float]]:
    """Measure a queue browsed into Parquet, on one core and on all, compared with a loop of MQGETs on one core."""
    spark = _spark()
    with place_of() as place, tempfile.TemporaryDirectory(prefix="mqbridge-bench-") as name:
        queue = place.queue()
        place.put(queue, count)

        def write() -> None:
            frame = spark.read.format("mq").options(**place.options(queue=queue)).load()
            frame.write.mode("overwrite").parquet(f"{name}/out")

        figures = Figures(place, count, report)
        write()  # warms Spark up
        assert spark.read.parquet(f"{name}/out").count() == count
        for _ in range(ROUNDS):
            with _on_one_core():
                figures.measure("loop of MQGET", partial(_all, place.browse, queue, count))
                figures.measure("loop of batches", partial(_all, partial(place.browse, batches=True), queue, count))
                figures.measure("mq -> Parquet, one core", write)
            figures.measure("mq -> Parquet, all cores", write)
        return figures.summarize("loop of MQGET")


def parquet_to_mq(report: Callable[[str], None], count: int = MESSAGES) -> dict[str, dict[str, float]]:
    """Measure Parquet put to a queue, on one core and on all, compared with a loop of MQPUTs on one core."""
    spark = _spark()
    with place_of() as place, tempfile.TemporaryDirectory(prefix="mqbridge-bench-") as name:
        for partitions in (1, 2):
            rows = spark.range(0, count, 1, partitions).selectExpr(f"repeat('x', {PAYLOAD}) AS body")
            rows.write.mode("overwrite").parquet(f"{name}/{partitions}")

        def write(partitions: int, queue: str) -> None:
            frame = spark.read.parquet(f"{name}/{partitions}")
            assert frame.rdd.getNumPartitions() == partitions
            # The messages are like those of the loop.
            options = place.options(queue=queue, persistence="not-persistent")
            frame.write.format("mq").options(**options).mode("append").save()

        figures = Figures(place, count, report)
        write(2, place.queue())
        for _ in range(ROUNDS):
            target = place.queue()
            with _on_one_core():
                figures.measure("loop of MQPUT", partial(place.put, target, count))
                place.command(f"CLEAR QLOCAL('{target}')")
                figures.measure("Parquet -> mq, one core", partial(write, 1, target))
                _all(place.browse, target, count)
                place.command(f"CLEAR QLOCAL('{target}')")
            for partitions in (1, 2):
                way = f"Parquet -> mq, all cores, partitions: {partitions}"
                figures.measure(way, partial(write, partitions, target))
                _all(place.browse, target, count)
                place.command(f"CLEAR QLOCAL('{target}')")
        return figures.summarize("loop of MQPUT")


def _all(loop: Callable[[str], int], queue: str, expected: int) -> None:
    count = loop(queue)
    assert count == expected, f"{count} messages of {expected}"


if __name__ == "__main__":
    for part in (mq_to_parquet, parquet_to_mq):
        if len(sys.argv) < 2 or part.__name__ in sys.argv[1:]:
            part(print)
