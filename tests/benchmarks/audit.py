"""Duration and peak memory of the audit of an archive with many rows."""

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
#: Deliveries omitted from the archive, which the audit must find.
LOST = 3
#: Seconds between samples of the memory.
SAMPLE = 0.2


@dataclass
class AuditFigures:
    """The figures of an audit. `memory_mb` is resident memory."""

    rows: int
    seconds: float
    memory_mb: float
    #: size of the archive on disk, without payloads
    archive_mb: float

    @property
    def rows_per_second(self) -> float:
        """Rows audited per second, including the start of the command."""
        return self.rows / self.seconds


class Memory(threading.Thread):
    """Sample the resident memory of a process and its children."""

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
            return total  # it has ended meanwhile
        return total

    def end(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self.join()


def measure(rows: int = ROWS) -> AuditFigures:
    """Generate an archive in a temporary directory, audit it, and check the verdict. Raises AssertionError if it is
    wrong.
    """
    with tempfile.TemporaryDirectory(prefix="mqbridge-audit-") as name:
        directory = Path(name)
        generate(directory, rows, lost=LOST)
        size = sum(file.stat().st_size for file in directory.rglob("*.parquet"))
        start = time.monotonic()
        with subprocess.Popen(
            [MQBRIDGE, "audit", "--archive", directory, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            memory = Memory(process.pid)
            memory.start()
            printed, _ = process.communicate()
            memory.end()
        seconds = time.monotonic() - start
    totals = json.loads(printed)["totals"]
    assert process.returncode == 1 and (totals["expected"], totals["lost"]) == (rows // 2, LOST), totals
    return AuditFigures(rows, seconds, memory.highest / 2**20, size / 2**20)


if __name__ == "__main__":
    figures = measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
    print(f"audit of {figures.rows:,} rows: {figures.seconds:.1f} s, {figures.memory_mb:,.0f} MB at most")
