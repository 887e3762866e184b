"""Audit of an archive of many rows: seconds from the command to its verdict, and the memory that it takes at most."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks.archive_rows import generate

MQBRIDGE = Path(sys.executable).with_name("mqbridge")
ROWS = 10_000_000
#: Deliveries left out of the archive, which the audit has to find.
LOST = 3
#: Seconds between looks at the memory.
SAMPLE = 0.2


@dataclass
class AuditFigures:
    """What was measured. `memory_mb` is resident."""

    rows: int
    seconds: float
    memory_mb: float
    #: of the archive on disk, which has no payloads
    archive_mb: float

    @property
    def rows_per_second(self) -> float:
        """Rows judged each second, the start of the command included."""
        return self.rows / self.seconds


class Memory(threading.Thread):
    """Watches the resident memory of a process and its children."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(process)
        self._ended = threading.Event()
        self.highest = 0

    def run(self) -> None:
        while not self._ended.wait(SAMPLE):
            self.highest = max(self.highest, self._resident())

    def _resident(self) -> int:
        total = 0
        try:
            for process in (self._process, *self._process.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            return total  # it ends while it is looked at
        return total

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self.join()


def measure(rows: int = ROWS) -> AuditFigures:
    """Make an archive in a temporary directory, audit it by the command, and check the verdict. AssertionError if wrong."""
    with tempfile.TemporaryDirectory(prefix="mqbridge-audit-") as name:
        directory = Path(name)
        generate(directory, rows, lost=LOST)
        size = sum(file.stat().st_size for file in directory.rglob("*.parquet"))
        began = time.monotonic()
        with subprocess.Popen(
            [MQBRIDGE, "audit", "--archive", directory, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            memory = Memory(process.pid)
            memory.start()
            printed, _ = process.communicate()
            memory.end()
        seconds = time.monotonic() - began
    totals = json.loads(printed)["totals"]
    assert process.returncode == 1 and (totals["expected"], totals["lost"]) == (rows // 2, LOST), totals
    return AuditFigures(rows, seconds, memory.highest / 2**20, size / 2**20)


if __name__ == "__main__":
    figures = measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
    print(f"audit of {figures.rows:,} rows: {figures.seconds:.1f} s, {figures.memory_mb:,.0f} MB at most")
