"""`mqbridge lake`, as a process that is killed: every message is in the target once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow.dataset
import pytest

from bridge.lake import LakeWriter, ParquetTarget, TargetFailed
from bridge.spark.mq.queue_reader import READ_OPTIONS, queue_readers, source_options_of
from bridge.spark.options import Options
from tests.helpers.patience import PATIENCE
from tests.spark.conftest import ROOT, Queues

ROWS = 10_000
KILLS = 20
#: The bridge, with what this process has imported it from, and no pyspark: an entry None in sys.modules is an ImportError.
COMMAND = "import sys; sys.modules['pyspark'] = None; from bridge.cli import main; main()"


def lake(queues: Queues, target: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COMMAND, "lake", str(target), "--data-dir", str(queues.directory), *arguments]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def rows_of(target: Path, format: str) -> list[bytes]:
    if format == "delta":
        import deltalake

        table = deltalake.DeltaTable(str(target)).to_pyarrow_table()
    else:
        table = pyarrow.dataset.dataset(str(target), format="parquet").to_table()
    return [bytes(body) for body in table.column("body").to_pylist()]


@pytest.mark.parametrize("format", ["parquet", pytest.param("delta", marks=pytest.mark.slow)])
def test_killed_again_and_again(format: str, queues: Queues, tmp_path: Path) -> None:
    if format == "delta":
        pytest.importorskip("deltalake")
    queue, target = queues.queue(), tmp_path / "target"
    bodies = [b"%05d" % number for number in range(ROWS)]
    chance = random.Random(34)

    def put() -> None:
        for start in range(0, ROWS, 50):
            queues.put(queue, *bodies[start : start + 50], MsgId=b"M" * 24)
            time.sleep(0.05)

    putting = threading.Thread(target=put)
    putting.start()
    arguments = ("--queue", queue, "--format", format, "--rows", "500", "--interval", "0.2")
    option = ("--option", "maxMessagesPerTrigger=100")
    for _ in range(KILLS):
        running = lake(queues, target, *arguments, *option)
        # A process that starts imports for a while.
        time.sleep(1 + 2 * chance.random())
        running.kill()
        running.communicate()
    putting.join()
    running = lake(queues, target, *arguments, "--once")
    output, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors
    assert f"rows written to {target}" in output
    assert sorted(rows_of(target, format)) == bodies
    assert queues.depth(queue) == 0


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--queue", "NO.SUCH.QUEUE", "--once"], "MQRC_UNKNOWN_OBJECT_NAME"),
        (["--once"], "expected --queue or --topic"),
        (["--queue", "Q", "--columns", "nothing"], "unknown column nothing; the columns are queue, topic, md"),
        (
            ["--queue", "Q", "--option", "startingOffsets=earliest"],
            "a queue has no offsets: a stream takes all messages",
        ),
    ],
)
def test_mistakes(arguments: Sequence[str], said: str, queues: Queues, tmp_path: Path) -> None:
    running = lake(queues, tmp_path, *arguments)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode > 0 and said in errors


def test_a_full_disk_loses_nothing(queues: Queues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose target is full ends with an error that says where the rows are. The next run writes them."""
    queue = queues.queue()
    queues.put(queue, b"1", b"2")
    readers = partial(queue_readers, source_options_of(options_of(queues, queue, tmp_path / "spool")))
    schema = source_options_of(options_of(queues, queue, tmp_path / "spool")).schema

    def run() -> int:
        target = ParquetTarget(str(tmp_path / "target"), schema, keeps_state=False)
        writer = LakeWriter(readers(), target, 10, 1)
        writer.run(threading.Event(), once=True)
        return writer.written

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("bridge.lake.pq.ParquetWriter.write_table", full)
        with pytest.raises(TargetFailed, match=r"cannot be written: .*No space left.*hint: the rows are in spool"):
            run()
    assert queues.depth(queue) == 0
    assert (run(), sorted(rows_of(tmp_path / "target", "parquet"))) == (2, [b"1", b"2"])


def options_of(queues: Queues, queue: str, spool: Path) -> Options:
    given = {"dataDirectory": str(queues.directory), "queue": queue, "spool": str(spool)}
    return Options("test", given, READ_OPTIONS)
