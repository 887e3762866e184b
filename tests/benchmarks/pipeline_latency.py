"""Latency of a stream from the put of a message to its row in the output, and the duration of a pipeline's start."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq

from bridge.mq.mqi import MQOD, Connection
from bridge.mq.remote import RemoteConnection
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks.servers import Bridge

QUEUE = "BENCH.STREAM"
PAYLOAD = 1024
#: Seconds between two checks for output, and maximum seconds to wait for it.
_LOOK, _LONGEST = 0.01, 120.0

_PIPELINE = """
import sys
from bridge.spark.session import session
directory, queue, out, trigger = sys.argv[1:]
spark = session("bench", master="local[2]")
reader = spark.readStream.format("mq").option("dataDirectory", directory).option("queue", queue)
rows = reader.option("spool", out + "/spool").option("columns", "body").load()
query = rows.select("body").writeStream.format("parquet").option("checkpointLocation", out + "/checkpoint")
query = query.trigger(processingTime=trigger).start(out + "/table")
sys.stdin.read()
query.stop()
"""


class Output:
    """The files of a table, and when they appear."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._read: set[Path] = set()
        #: number of a message -> seconds (perf_counter) when its row was seen
        self.seen: dict[int, float] = {}

    def wait(self, rows: int) -> None:
        """Wait for this many rows. Raises TimeoutError."""
        end = time.perf_counter() + _LONGEST
        while len(self.seen) < rows:
            if time.perf_counter() > end:
                raise TimeoutError(f"{len(self.seen)} of {rows} rows came within {_LONGEST:.0f} s")
            self._look()
            time.sleep(_LOOK)

    def _look(self) -> None:
        # A file counts when the commit of its batch names it, not before.
        log = self._table / "_spark_metadata"
        for entry in sorted(log.glob("[0-9]*")) if log.is_dir() else ():
            if entry in self._read:
                continue
            now = time.perf_counter()
            self._read.add(entry)
            for line in entry.read_text().splitlines()[1:]:
                name = json.loads(line)["path"].rpartition("/")[2]
                for body in pq.read_table(self._table / name).column("body").to_pylist():
                    self.seen.setdefault(int.from_bytes(body[:8]), now)


def measure(rate: int, seconds: float, trigger: str = "1 second") -> dict[str, float]:
    """Return the latency at `rate` messages per second and the duration of a cold start, in seconds."""
    server = Bridge()
    server.start()
    try:
        with tempfile.TemporaryDirectory(prefix="mqbridge-latency-") as name:
            return _measured(server.folder / "data", Path(name), rate, int(rate * seconds), trigger)
    finally:
        server.stop()


def _measured(data: Path, directory: Path, rate: int, count: int, trigger: str) -> dict[str, float]:
    connection = RemoteConnection(data, application="bench")
    for response in connection.command(f"DEFINE QLOCAL('{QUEUE}') MAXDEPTH(10000000)"):
        assert response.ok, response.message
    output = Output(directory / "table")
    sent = {0: time.perf_counter()}
    _put(connection, [0])
    command = [sys.executable, "-c", _PIPELINE, str(data), QUEUE, str(directory), trigger]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            output.wait(1)
            cold = output.seen[0] - sent[0]
            putting = threading.Thread(target=_put_evenly, args=(connection, rate, count, sent))
            putting.start()
            output.wait(count + 1)
            putting.join()
        finally:
            process.communicate()
    latencies = sorted(output.seen[number] - sent[number] for number in range(1, count + 1))
    return {
        "cold_start_s": cold,
        "p50_s": statistics.median(latencies),
        "p99_s": latencies[int(len(latencies) * 0.99)],
        "messages": count,
    }


def _put_evenly(connection: Connection, rate: int, count: int, sent: dict[int, float]) -> None:
    """Put messages on schedule, in small units of work."""
    step = max(rate // 50, 1)
    start = time.perf_counter()
    for first in range(1, count + 1, step):
        numbers = list(range(first, min(first + step, count + 1)))
        time.sleep(max(start + first / rate - time.perf_counter(), 0))
        now = time.perf_counter()
        sent.update(dict.fromkeys(numbers, now))
        _put(connection, numbers)


def _put(connection: Connection, numbers: list[int]) -> None:
    handle = connection.open(MQOD(ObjectName=QUEUE), cmqc.MQOO_OUTPUT)
    md = MQMD(Persistence=cmqc.MQPER_NOT_PERSISTENT)
    for number in numbers:
        connection.put(handle, Message(md, number.to_bytes(8) * (PAYLOAD // 8)), cmqc.MQPMO_SYNCPOINT)
    connection.commit()
    connection.close(handle)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--trigger", default="1 second", help="interval of the trigger (1 second)")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.rate, arguments.seconds, arguments.trigger)))
