"""CPU time of the sink `mq` per row, with real Spark: `python -m tests.benchmarks.spark_sink [--against COMMIT]`.

A streaming query writes batches of 200-byte rows from two partitions to an embedded queue manager. The figures are the CPU
time of the driver (Python and its JVM), the Python workers, and the queue manager, per row. With `--against`, the working
tree and a commit run side by side and take turns at each load, so a drift of the machine affects both. Both are pure Python.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bridge.mq.remote import RemoteConnection
from bridge.spark.session import session
from tests.helpers.bridge_process import BridgeProcess

ROOT = Path(__file__).resolve().parents[2]
#: Rows per batch, and number of batches per turn.
LOADS = ((1_000, 10), (10_000, 4), (100_000, 1))
PARTITIONS = 2
#: Turns of each version at each load that are not counted while Java compiles, and number of counted turns.
WARM_UP, ROUNDS = 1, 5
#: The measured parts, in the order of the table.
PARTS = ("JVM", "Python", "queue manager")


class Sink:
    """A Spark session and a bridge, in this process and its children."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.bridge = BridgeProcess(directory / "data", config="channels: [{name: C, port: 0}]\n")
        self.bridge.start()
        stack.callback(self.bridge.discard)
        self.connection = RemoteConnection(directory / "data", application="benchmark")
        assert self.connection.command("DEFINE QLOCAL('OUT') MAXDEPTH(10000000) DEFPSIST(YES)")[0].ok
        self.spark = session("benchmark", master=f"local[{PARTITIONS}]", settings={"spark.log.level": "ERROR"})
        stack.callback(self.spark.stop)
        #: by the rows of their batches, started before their first measurement
        self.queries: dict[int, Any] = {}

    def query(self, rows: int) -> Any:
        """Start a query whose batches have `rows` rows."""
        name = str(rows)
        (self.directory / name).mkdir()
        frame = self.spark.readStream.schema("body binary").option("maxFilesPerTrigger", PARTITIONS)
        written = frame.parquet(str(self.directory / name)).writeStream.format("mq").option("queue", "OUT")
        written = written.option("dataDirectory", str(self.directory / "data"))
        return written.option("checkpointLocation", str(self.directory / f"checkpoint {name}")).start()

    def run(self, rows: int, batches: int) -> dict[str, float]:
        """Write batches. Return the microseconds of CPU time of each part per row."""
        if rows not in self.queries:
            self.queries[rows] = self.query(rows)
        files = len(list((self.directory / str(rows)).iterdir()))
        for number in range(batches * PARTITIONS):
            body = pa.array([(b"%d" % row).ljust(200, b"x") for row in range(rows // PARTITIONS)], pa.binary())
            pq.write_table(pa.table({"body": body}), self.directory / f".{number}")
        before = self.cpu()
        for number in range(batches * PARTITIONS):
            name = f"{files + number:06}.parquet"
            (self.directory / f".{number}").rename(self.directory / str(rows) / name)
        self.queries[rows].processAllAvailable()
        after = self.cpu()
        depth = int(self.connection.command("DISPLAY QLOCAL('OUT') CURDEPTH")[0].objects[0]["CURDEPTH"])
        assert depth == rows * batches, depth
        self.connection.command("CLEAR QLOCAL('OUT')")
        return {part: (after[part] - before[part]) / depth * 1e6 for part in PARTS}

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of each part so far, including ended processes."""
        assert self.bridge.process is not None
        total = dict.fromkeys(PARTS, 0.0)
        this = psutil.Process()
        for process in (this, *this.children(recursive=True)):
            try:
                name = "JVM" if process.name() == "java" else "Python"
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            if process.pid == self.bridge.process.pid:
                total["queue manager"] += times.user + times.system
                continue
            total[name] += times.user + times.system
            total["Python"] += times.children_user + times.children_system
        return total


def serve() -> None:
    """Measure for each line of standard input: rows per batch and number of batches."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        sink = Sink(Path(name), stack)
        print("ready", flush=True)
        for line in sys.stdin:
            rows, batches = map(int, line.split())
            print(json.dumps(sink.run(rows, batches)), flush=True)


class Version:
    """A version of the bridge that measures in its own process."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        # -P: import the modules of the version instead of those of the working directory.
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--serve"]
        environment = {**os.environ, "PYTHONPATH": str(root), "MQBRIDGE_PURE": "1"}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(self.end)
        self.read()

    def read(self) -> str:
        """Return the next line. Raises RuntimeError if the process has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "ready\n" or line.startswith("{"):
                return line
        raise RuntimeError("the measuring process has ended")

    def run(self, rows: int, batches: int) -> dict[str, float]:
        """Return the microseconds of each part per row."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{rows} {batches}\n")
        self.process.stdin.flush()
        figures: dict[str, float] = json.loads(self.read())
        return figures

    def end(self) -> None:
        """Close the input of the process, which ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def checkout(commit: str, directory: Path) -> Path:
    """Return a directory with the files of a commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(directory)
    return directory


def main() -> None:
    """Print a line for each load and version."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_sink", description=__doc__)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=int, help="rows of a batch, instead of all loads")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve()
        return
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        roots = {"present": ROOT}
        if chosen.against:
            roots[chosen.against] = checkout(chosen.against, Path(name))
        versions = {version: Version(root, stack) for version, root in roots.items()}
        for rows, batches in [load for load in LOADS if chosen.rows in (None, load[0])]:
            turns: list[dict[str, dict[str, float]]] = []
            for turn in range(WARM_UP + chosen.rounds):
                order = list(versions.items())[:: 1 if turn % 2 else -1]
                turns.append({version: measuring.run(rows, batches) for version, measuring in order})
            report(rows, turns[WARM_UP:])


def report(rows: int, turns: list[dict[str, dict[str, float]]]) -> None:
    """Print the medians of a load, and the median of the ratios within each turn."""
    for version in sorted(turns[0], reverse=True):
        medians = {part: statistics.median(turn[version][part] for turn in turns) for part in PARTS}
        total = statistics.median(sum(turn[version].values()) for turn in turns)
        parts = ", ".join(f"{part} {medians[part]:.1f}" for part in PARTS)
        ratios = [sum(turn["present"].values()) / sum(turn[version].values()) for turn in turns]
        ratio = statistics.median(ratios)
        end = "" if version == "present" else f"; ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{rows:>7} rows, {version}: {total:.1f} µs ({parts}){end}", flush=True)


if __name__ == "__main__":
    main()
