"""`mqbridge lake` as a process that is killed: each message is in the target once."""

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
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.lake import TARGETS, LakeWriter, ParquetTarget, TargetFailed
from bridge.spark.mq.queue_reader import READ_OPTIONS, former_spools, queue_readers, source_options_of
from bridge.spark.options import Options
from bridge.spark.spool import DataLoss
from tests.helpers.patience import PATIENCE
from tests.spark.conftest import ROOT, Queues
from tests.spark.test_spool_return import take

ROWS = 10_000
KILLS = 20
#: The bridge with the modules of this process, without pyspark: an entry None in sys.modules is an ImportError.
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
    "arguments, reason",
    [
        (["--queue", "NO.SUCH.QUEUE", "--once"], "MQRC_UNKNOWN_OBJECT_NAME"),
        (["--once"], "expected --queue or --topic"),
        (["--topic", "plant/#"], "--topic: requires a configuration file or a broker\nhint: add --config FILE"),
        (["--queue", "Q", "--columns", "nothing"], "unknown column nothing; the columns are queue, topic, md"),
        (
            ["--queue", "Q", "--option", "startingOffsets=earliest"],
            "a queue has no offsets: a stream takes all messages",
        ),
    ],
)
def test_mistakes_are_reported(arguments: Sequence[str], reason: str, queues: Queues, tmp_path: Path) -> None:
    running = lake(queues, tmp_path, *arguments)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode > 0 and reason in errors


def test_a_full_disk_loses_nothing(queues: Queues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with a full target ends with an error that names the location of the rows. The next run writes them."""
    queue = queues.queue()
    queues.put(queue, b"1", b"2")
    options = source_options_of(options_of(queues, queue, tmp_path / "spool"))

    def run() -> int:
        target = ParquetTarget(str(tmp_path / "target"), options.schema, keeps_state=False)
        writer = LakeWriter(queue_readers(options), target, 10, 1, options.stream)
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


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_another_queue_while_the_spool_has_messages(format: str, queues: Queues, tmp_path: Path) -> None:
    """The rows of a killed run are completed. The rest is an error until it is put back."""
    if format == "delta":
        pytest.importorskip("deltalake")
    queue, other, below = queues.queue(), queues.queue(), tmp_path / "target" / ".spool"
    queues.put(queue, *(b"%d" % number for number in range(4)))
    take(queues, queue, below)
    options = source_options_of(options_of(queues, queue, below))
    target = TARGETS[format](str(tmp_path / "target"), options.schema, keeps_state=False)
    spool = former_spools(source_options_of(options_of(queues, other, below)))[queue]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "_delete", killed)
        with pytest.raises(KeyboardInterrupt):
            target.write(spool, spool.between(0, 1))
    spool.close()

    def run(**more: str) -> None:
        options = source_options_of(options_of(queues, other, below, **more))
        former = partial(former_spools, options)
        LakeWriter(queue_readers(options), target, 10, 1, options.stream, former).run(threading.Event(), once=True)

    with pytest.raises(
        DataLoss, match=rf"spool {below} has 2 messages of {queue}.*spool return {queue}` .*--spool {below}"
    ):
        run()
    assert sorted(rows_of(tmp_path / "target", format)) == [b"0", b"1"]
    run(failOnDataLoss="false")


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_messages_of_a_killed_run_are_put_back_only_if_the_target_does_not_have_them(
    format: str, queues: Queues, tmp_path: Path
) -> None:
    if format == "delta":
        pytest.importorskip("deltalake")
    queue, below = queues.queue(), tmp_path / "target" / ".spool"
    queues.put(queue, *(b"%d" % number for number in range(4)))
    take(queues, queue, below)
    options = source_options_of(options_of(queues, queue, below))
    target = TARGETS[format](str(tmp_path / "target"), options.schema, keeps_state=False)
    spool = former_spools(source_options_of(options_of(queues, "another", below)))[queue]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "_delete", killed)
        with pytest.raises(KeyboardInterrupt):
            target.write(spool, spool.between(0, 1))
    spool.close()
    words = ("pipeline", "spool", "return", queue, "--yes", "--spool", below, "--data-dir", queues.directory)
    result = CliRunner().invoke(program, [*map(str, words)])
    assert result.exit_code == 0 and "put 2 messages" in result.output, result.output
    assert sorted(rows_of(tmp_path / "target", format)) == [b"0", b"1"] and queues.bodies(queue) == [b"2", b"3"]


def killed(*_: object) -> None:
    """Simulate the end of the process after the target has the rows, before their segments are deleted."""
    raise KeyboardInterrupt


def options_of(queues: Queues, queue: str, spool: Path, **more: str) -> Options:
    written_options = {"dataDirectory": str(queues.directory), "queue": queue, "spool": str(spool), **more}
    return Options("test", written_options, READ_OPTIONS)


# Delta ---------------------------------------------------------------------------------------------------------------


def test_columns_of_a_delta_table(queues: Queues, tmp_path: Path) -> None:
    """A new column is an error that names the location of the rows, until --merge-schema adds it."""
    deltalake = pytest.importorskip("deltalake")
    queue, target = queues.queue(), tmp_path / "target"

    def run(*words: str, body: bytes) -> tuple[int, str]:
        queues.put(queue, body)
        place = ("--data-dir", str(queues.directory), "--queue", queue, "--format", "delta", "--once")
        result = CliRunner().invoke(program, ["lake", str(target), *place, *words])
        return result.exit_code, f"{result.output}{result.exception}"

    assert run("--columns", "body", body=b"1")[0] == 0
    status, error = run("--columns", "body,queue", body=b"2")
    assert status and f"{target} cannot be written: its columns are not those of the rows" in error
    assert "with --merge-schema, missing columns are added" in error and "the rows are in spool" in error
    assert run("--columns", "body,queue", "--merge-schema", body=b"3")[0] == 0
    # By default, only the columns of the table are written, so that a table of a version with fewer columns can be continued.
    assert run(body=b"4")[0] == 0
    table = deltalake.DeltaTable(str(target)).to_pyarrow_table()
    rows = {(bytes(row["body"]), row["queue"]) for row in table.to_pylist()}
    assert rows == {(b"1", None), (b"2", queue), (b"3", queue), (b"4", queue)}


@pytest.mark.parametrize("damage", ["log", "place"])
def test_errors_of_delta_are_reported(damage: str, queues: Queues, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    queue, target, spool = queues.queue(), tmp_path / "target", tmp_path / "spool"
    queues.put(queue, b"1")
    if damage == "log":
        (target / "_delta_log").mkdir(parents=True)
        (target / "_delta_log" / "00000000000000000000.json").write_text("{garbage")
    else:
        target.touch()
    words = ["lake", target, "--queue", queue, "--format", "delta", "--once", "--spool", spool, "--columns", "body"]
    result = CliRunner().invoke(program, [*map(str, words), "--data-dir", str(queues.directory)])
    error = f"{result.output}{result.exception}"
    assert result.exit_code and f"{target} cannot be written: " in error and "hint: the rows are in spool" in error
    assert "Traceback" not in error
    result = CliRunner().invoke(program, [*map(str, words[:2]), "--queue", queue, "--merge-schema"])
    assert result.exit_code == 2 or "belongs to --format delta" in f"{result.output}{result.exception}"
