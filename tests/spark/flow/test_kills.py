"""Exactly-once delivery of each road when `mqbridge pipeline run` is killed with its JVM and workers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from bridge.wire import cmqc
from tests.helpers.patience import until_at_last
from tests.spark.flow.conftest import Bench

ROWS = 1_200
KILLS = 3
BAD = 30
PIPELINES = """
queue_manager: {data_directory: $data}
spark: {conf: {spark.sql.shuffle.partitions: 1, spark.driver.memory: 1g}}
pipelines:
  files:
    from: {mq: {queue: $a}}
    select: SELECT text FROM input
    to: {format: parquet, path: $files}
    trigger: 0
    batch: 150
    checkpoint: $state/files
  queue:
    from: {mq: {queue: $b}}
    schema: {n: int}
    select: SELECT payload:n::int AS n FROM input
    to: {mq: {queue: $out}}
    dead_letters: {queue: $dead}
    trigger: 0
    batch: 150
    checkpoint: $state/queue
  topic: {from: {mq: {queue: $c}}, select: SELECT body FROM input, to: {mq: {topic: $topic}}, trigger: 0, batch: 150,
          checkpoint: $state/topic}
  windows:
    from: {mq: {queue: $d}}
    schema: {ts: timestamp, n: int}
    watermark: {column: ts, delay: 1 s}
    select: |
      SELECT window(ts, '10 seconds').start AS start, count(*) AS rows, sum(payload:n::int) AS total
      FROM input GROUP BY window(ts, '10 seconds')
    to: {mq: {queue: $sums}}
    late: {archive: $late, window: 10 s}
    trigger: 0
    batch: 150
    checkpoint: $state/windows
"""


class Run:
    """Pipelines that run in a process group of their own, and their lines in a file."""

    def __init__(self, file: Path, lines: Path, *words: str) -> None:
        self.lines = lines
        command = [sys.executable, "-m", "bridge.cli", "pipeline", "run", "--config", str(file), *words]
        with lines.open("wb") as sink:
            self.process = subprocess.Popen(command, stderr=sink, start_new_session=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def cpu_time(self) -> float:
        """Return the seconds of processor time of driver and JVM."""
        try:
            own = psutil.Process(self.process.pid)
            return sum(sum(process.cpu_times()[:2]) for process in (own, *own.children(recursive=True)))
        except psutil.NoSuchProcess:
            return 0.0

    def kill_after_a_batch(self) -> None:
        """Kill all processes at some moment after the first batch."""
        until_at_last(lambda: self.process.poll() is not None or ": batch " in self.lines.read_text(), self.cpu_time)
        time.sleep(random.uniform(0.0, 3.0))
        assert self.process.poll() is None, self.lines.read_text()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def event(number: int) -> bytes:
    """Events in order, but each hundredth is a minute late."""
    at = number - 60 * (number % 100 == 99)
    return json.dumps({"n": number, "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(1_767_225_600 + at))}).encode()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_duplicated_when_all_processes_are_killed(bench: Bench) -> None:
    queues, places = bench.queues, {name: bench.directory / name for name in ("files", "late", "state")}
    names = {name: queues.queue() for name in ("a", "b", "c", "d", "out", "dead", "sums")}
    topic = f"kills/{names['a'].replace('.', '/')}"
    file = bench.write(PIPELINES, topic=topic, data=queues.directory, **names, **places)
    published = queues.queue()
    handle = queues.open(published, cmqc.MQOO_INPUT_SHARED)
    queues.subscribe(topic, handle)
    events = [event(number) for number in range(ROWS)]
    for name in "acd":
        queues.put(names[name], *events, Format=b"MQSTR   ")
    bad = [b"no JSON %d" % number for number in range(BAD)]
    queues.put(names["b"], *(body for pair in zip(events[:BAD], bad, strict=True) for body in pair), *events[BAD:])
    for number in range(KILLS):
        with Run(file, bench.directory / f"lines-{number}") as run:
            run.kill_after_a_batch()
    with Run(file, bench.directory / "lines", "--once") as last:
        until_at_last(lambda: last.process.poll() is not None, last.cpu_time)
        assert last.process.returncode == 0, last.lines.read_text()
    files = Counter(row.text.encode() for row in bench.spark.read.parquet(str(places["files"])).collect())
    assert files == Counter(events)
    assert sorted(json.loads(body)["n"] for body in queues.bodies(names["out"])) == list(range(ROWS))
    assert Counter(letter.data[172:] for letter in queues.take(names["dead"])) == Counter(bad)
    queues.connection.close(handle)
    assert Counter(queues.bodies(published)) == Counter(events)
    # Each event is in a window, late, or in a window that is still open: those of the last seconds.
    windows = [json.loads(body) for body in queues.bodies(names["sums"])]
    assert len({window["start"] for window in windows}) == len(windows)
    late = [json.loads(row.body)["n"] for row in bench.spark.read.parquet(str(places["late"])).collect()]
    assert len(late) == len(set(late))
    counted = sum(window["rows"] for window in windows)
    open_rows = ROWS - counted - len(late)
    assert 0 <= open_rows <= 22, (counted, len(late))
    total = sum(window["total"] for window in windows) + sum(late)
    assert total <= sum(range(ROWS))
