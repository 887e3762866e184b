"""The data sources `mq` and `mqtt` in plain streaming queries, compared with Spark's own Parquet source, and `mqbridge
lake`.

    python -m tests.benchmarks.spark_sources [ROWS [ROAD...]]

A rate is that of the batches after the first, in which Spark warms up. CPU is the time per row of the JVM, of Python's
processes and of the queue manager or broker in the same period.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark.sql import DataFrame, SparkSession

from bridge.mq.mqi import MQOD
from bridge.mq.remote import put_many
from bridge.spark.session import session
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks.mapping import publish
from tests.benchmarks.pipeline_mq import TWO_COLUMNS, UNIT, Place, place_of
from tests.benchmarks.servers import Mosquitto

#: Rows per batch, and bytes of a payload.
BATCH: Final = 50_000
SIZE: Final = 200


class Broker(Mosquitto):
    """mosquitto with a long window. Its default of 20 messages in flight allows 20 messages per write to disk."""

    in_flight = 20_000


class Meter:
    """CPU seconds of the descendants of this process, including ended ones."""

    def __init__(self, servers: set[int]) -> None:
        self._servers = servers
        self._known: dict[tuple[int, float], tuple[str, float]] = {}
        self._stop = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self.read()

    def stop(self) -> None:
        self._stop.set()

    def read(self) -> Counter[str]:
        """Return the CPU seconds by kind of process."""
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                kind = "server" if process.pid in self._servers else "JVM" if "java" in process.name() else "Python"
                times = process.cpu_times()
                self._known[process.pid, process.create_time()] = kind, times.user + times.system
        total: Counter[str] = Counter()
        for kind, seconds in self._known.values():
            total[kind] += seconds  # type: ignore[assignment]
        return total


class Roads:
    """The measured ways. Each method returns when its rows have arrived."""

    def __init__(self, spark: SparkSession, place: Place, broker: Mosquitto, folder: Path, rows: int) -> None:
        self.spark, self.place, self.broker, self.folder, self.rows = spark, place, broker, folder, rows
        self.servers = {place.process.pid, broker.pid}

    def queue(self) -> str:
        """Create a queue with the rows."""
        queue = self.place.queue()
        handle = self.place.connection.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
        message = Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), b"x" * SIZE)
        for _ in range(self.rows // UNIT):
            remaining = [(handle, message, cmqc.MQPMO_SYNCPOINT)] * UNIT
            while remaining:
                remaining = remaining[len(put_many(self.place.connection, remaining)) :]
            self.place.connection.commit()
        self.place.connection.close(handle)
        return queue

    def stream(self, name: str, frame: DataFrame, format: str = "parquet", **options: str) -> None:
        """Run a query to its end, and print its figures."""
        meter = Meter(self.servers)
        writer = frame.writeStream.format(format).options(**options)
        writer = writer.option("checkpointLocation", f"{self.folder}/{name}/checkpoint").trigger(availableNow=True)
        query = writer.start(f"{self.folder}/{name}/out") if format == "parquet" else writer.start()
        while query.isActive and not any(progress.numInputRows for progress in query.recentProgress):
            time.sleep(0.01)
        start, before = time.perf_counter(), meter.read()
        query.awaitTermination()
        seconds, spent = time.perf_counter() - start, meter.read() - before
        meter.stop()
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
        rows = sum(progress.numInputRows for progress in batches[1:])
        assert rows + batches[0].numInputRows == self.rows, (rows, batches)
        report(name, rows, seconds, spent)

    def parquet(self, columns: str) -> None:
        """Measure Spark's own Parquet source."""
        queue = self.queue()
        place = f"{self.folder}/parquet {columns}"
        frame = self.spark.read.format("mq").options(**self.place.options(queue=queue)).load()
        frame.repartition(self.rows // BATCH).write.parquet(f"{place}/in")
        names = columns.split(",") if columns else frame.columns
        read = self.spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(f"{place}/in")
        self.stream(f"Parquet -> Parquet, {columns or 'all'}", read.select(*names))

    def from_queue(self, columns: str) -> None:
        """Measure the source `mq`."""
        self.stream(f"queue -> Parquet, {columns or 'all'}", self._queue_frame(columns))

    def _queue_frame(self, columns: str, **options: str) -> DataFrame:
        queue = self.queue()
        reader_options = self.place.options(
            queue=queue, spool=f"{self.folder}/spool-{queue}", maxMessagesPerTrigger=str(BATCH), **options
        )
        if columns:
            reader_options["columns"] = columns
        return self.spark.readStream.format("mq").options(**reader_options).load()

    def to_queue(self) -> None:
        """Measure the sink `mq`."""
        target = self.place.queue()
        self.stream("queue -> queue, body", self._queue_frame("body"), "mq", **self.place.options(queue=target))

    def from_broker(self, columns: str) -> None:
        """Measure the source `mqtt`."""
        topic = f"bench{len(columns)}"
        options = {"host": "127.0.0.1", "port": str(self.broker.port), "topic": f"{topic}/#", "qos": "1"}
        options |= {"spool": f"{self.folder}/spool-{topic}", "maxMessagesPerTrigger": str(BATCH)}
        options |= {"columns": columns} if columns else {}
        frame = self.spark.readStream.format("mqtt").options(**options).load()
        name = f"MQTT -> Parquet, {columns or 'all'}"
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{self.folder}/{name}/checkpoint")
        writer.trigger(availableNow=True).start(f"{self.folder}/{name}/out").awaitTermination()  # creates the session
        publish(self.broker.port, f"{topic}/telemetry", b"x" * SIZE, 1, self.rows)
        self.stream(name, frame)

    def lake(self, columns: str) -> None:
        """Measure `mqbridge lake` from start to end, including about a second of imports."""
        queue, target = self.queue(), f"{self.folder}/lake {columns}"
        command = [sys.executable, "-m", "bridge", "lake", target, "--queue", queue, "--once"]
        command += ["--data-dir", str(self.place.directory), *(["--columns", columns] if columns else [])]
        meter = Meter(self.servers)
        start, before = time.perf_counter(), meter.read()
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while running.poll() is None:
            meter.read()
            time.sleep(0.05)
        assert running.returncode == 0
        report(f"lake, {columns or 'all'}", self.rows, time.perf_counter() - start, meter.read() - before)
        meter.stop()


FIGURES: Final[dict[str, dict[str, float]]] = {}


def report(name: str, rows: int, seconds: float, spent: Counter[str]) -> None:
    """Print and record the figures of a way."""
    cpu = {kind: spent[kind] / rows * 1e6 for kind in ("JVM", "Python", "server")}
    parts = ", ".join(f"{kind} {value:.0f}" for kind, value in cpu.items())
    FIGURES[name] = {"rows_per_second": rows / seconds, **cpu}
    print(f"{name:40} {rows / seconds:9,.0f} rows/s  CPU {sum(cpu.values()):5.1f} us a row ({parts})", flush=True)


def main(rows: int, chosen: list[str]) -> None:
    """Measure and print."""
    spark = session("bench", master="local[2]", settings={"spark.log.level": "ERROR"})
    broker = Broker()
    broker.start()
    try:
        with place_of() as place, tempfile.TemporaryDirectory(prefix="mqbridge-bench-") as folder:
            roads = Roads(spark, place, broker, Path(folder), rows)
            ways: dict[str, Callable[[], Any]] = {
                "parquet2": lambda: roads.parquet(TWO_COLUMNS),
                "parquet": lambda: roads.parquet(""),
                "queue2": lambda: roads.from_queue(TWO_COLUMNS),
                "queue": lambda: roads.from_queue(""),
                "queues": roads.to_queue,
                "mqtt": lambda: roads.from_broker(""),
                "lake2": lambda: roads.lake(TWO_COLUMNS),
                "lake": lambda: roads.lake(""),
            }
            for name in chosen or ways:
                ways[name]()
    finally:
        broker.stop()
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000, sys.argv[2:])
    print(json.dumps(FIGURES))
