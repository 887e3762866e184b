"""`mqbridge pipeline show`, `stop`, `drain`, `reset` and `compact`, beside pipelines that others run, ran, or never did."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.files import lock
from bridge.spark.flow.administration import request
from bridge.spark.flow.administration.status import LOCK, BatchSummary, Status, StatusRecord, read_status, runs
from tests.helpers.patience import until
from tests.unit.cli.conftest import Invoke

ONE = "{from: {mq: {queue: Q}}, select: SELECT body FROM input, to: {mq: {queue: R}}}"
BATCH = BatchSummary(7, 1000.0, 0.5, 30, 25, 5, 2, 11, 940.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bridge.yaml"
    path.write_text(f"queue_manager: {{data_directory: data}}\npipelines: {{one: {ONE}, two: {ONE[:-1]}, enabled: no}}}}")
    return path


@pytest.fixture
def directory(file: Path) -> Path:
    """Of the pipeline `one`."""
    directory = file.parent / "data" / "pipelines" / "one"
    directory.mkdir(parents=True)
    return directory


def shown(invoke: Invoke, file: Path) -> dict[str, Any]:
    result = invoke("pipeline", "show", "one", "--json", "--config", file)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = msgspec.json.decode(result.stdout)
    return found


def test_pipelines_that_never_ran(invoke: Invoke, file: Path) -> None:
    result = invoke("pipeline", "show", "--config", file)
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["pipeline", "state", "since"]
    assert [line.split()[:3] for line in lines[1:3]] == [["one", "never", "run"], ["two", "never", "run"]]
    # What waits is on a queue of a queue manager that does not run.
    assert lines[3].startswith("one: what waits is unknown: ")


def test_one_that_runs_and_is_killed(invoke: Invoke, file: Path, directory: Path) -> None:
    with lock(directory / LOCK):
        assert shown(invoke, file)["state"] == "starting"
        record = StatusRecord(directory, print)
        record.running()
        record.done(BATCH)
        record.failed("MQRC_Q_FULL (2053)", "have its messages got")
        found = shown(invoke, file)
        assert (found["state"], found["process"]) == ("failing", int(runs(directory) or 0))
        assert (found["rows_in"], found["rows_out"], found["dead_letters"], found["late"]) == (30, 25, 5, 2)
        assert (found["waiting"], found["oldest"]) == (11, 940.0) and "waiting_unknown" in found  # as the last batch has told
        said = invoke("pipeline", "show", "--config", file).stdout
        oldest = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(940))
        assert said.splitlines()[1].endswith(f" 11  {oldest}")
        assert ": MQRC_Q_FULL (2053); to do: have its messages got" in said
    # Its lock is free, and it has not said that it ended.
    found = shown(invoke, file)
    assert (found["state"], found["process"], found["last_batch"]["number"]) == ("killed", None, 7)


def test_rates_are_of_the_last_minute(tmp_path: Path) -> None:
    status = Status(1, "h", since=0.0, recent=((10.0, 600, 60), (70.0, 300, 30), (100.0, 300, 30)))
    assert status.rate(100.0) == (10.0, 1.0)
    assert status.rate(1000.0) == (0.0, 0.0)
    assert msgspec.structs.replace(status, since=90.0).rate(100.0) == (60.0, 6.0)


def test_a_new_run_keeps_the_last_batch_and_error(directory: Path) -> None:
    record = StatusRecord(directory, print)
    record.done(BATCH)
    record.failed("x")
    record.ended("given up")
    StatusRecord(directory, print)
    status = read_status(directory)
    assert status is not None and (status.state, status.batches, status.last_batch) == ("starting", 0, BATCH)
    assert status.last_error is not None and status.until is None


def test_a_damaged_status(invoke: Invoke, file: Path, directory: Path) -> None:
    (directory / "status.json").write_text("{")
    result = invoke("pipeline", "show", "--config", file)
    assert result.exit_code == 2 and "status.json is damaged, and may be removed" in result.stderr


def test_a_status_that_cannot_be_written_is_told_once(directory: Path) -> None:
    lines: list[str] = []
    record = StatusRecord(directory, lines.append)
    (directory / "status.new").mkdir()
    record.done(BATCH)
    record.done(BATCH)
    assert len(lines) == 1 and "status.json is not written" in lines[0]


@pytest.mark.parametrize("command", ["stop", "drain"])
def test_one_that_does_not_run(command: str, invoke: Invoke, file: Path) -> None:
    result = invoke("pipeline", command, "one", "--config", file)
    assert result.exit_code == 1 and result.stderr.startswith("mqbridge: error: not running: one")
    assert ("pipeline run one --once" in result.stderr) == (command == "drain")
    result = invoke("pipeline", command, "one", "three", "--config", file)
    assert result.exit_code == 2 and "no pipeline three; there are one, two" in result.stderr


@pytest.mark.parametrize(
    ("command", "ends_as", "told", "status"),
    [("stop", "stopped", "one: stopped", 0), ("drain", "done", "one: drained", 0), ("stop", "given up", "one: given up", 1)],
)
def test_one_that_ends(
    command: str, ends_as: Any, told: str, status: int, invoke: Invoke, file: Path, directory: Path
) -> None:
    held = lock(directory / LOCK)
    record = StatusRecord(directory, print)
    taken: list[request.Request] = []

    def asked() -> bool:
        taken.extend(filter(None, [request.take(directory)]))
        return bool(taken)

    def run() -> None:
        until(asked)
        record.ended(ends_as)
        held.close()

    thread = threading.Thread(target=run)
    thread.start()
    result = invoke("pipeline", command, "one", "--config", file)
    thread.join()
    assert (result.exit_code, result.stdout, taken) == (status, f"{told}\n", [command])


def test_reset(invoke: Invoke, file: Path, directory: Path) -> None:
    result = invoke("pipeline", "reset", "one", "--config", file)
    assert (result.exit_code, result.stdout) == (0, "one has nothing to give up\n")
    checkpoint = directory / "checkpoint"
    for name in ("offsets/0", "offsets/1", "commits/0"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text('v1\n{}\n{"version": 2, "number": 1, "partitions": 1, "messages": {}, "reader": "r"}')
    (checkpoint / "metadata").write_text('{"id": "q"}')
    result = invoke("pipeline", "reset", "one", "--config", file, input="n\n")
    assert result.exit_code == 1 and "batch 1 was begun and is not done" in result.stdout
    assert "nothing was changed" in result.stderr
    # Neither without the queue manager, which has what is to be removed.
    result = invoke("pipeline", "reset", "one", "--yes", "--config", file)
    assert result.exit_code == 4 and "data" in result.stderr and checkpoint.exists()
    with lock(directory / LOCK):
        result = invoke("pipeline", "reset", "one", "--config", file)
    assert result.exit_code == 1 and "runs it; end it first (mqbridge pipeline stop one)" in result.stderr


def test_reset_of_one_that_never_ran(invoke: Invoke, file: Path) -> None:
    assert "has nothing to give up" in invoke("pipeline", "reset", "one", "--config", file).stdout


@pytest.mark.parametrize(
    ("pipelines", "arguments", "told"),
    [
        (f"{{one: {ONE}}}", [], "pipeline one writes no archive"),
        (
            "{one: {from: {mq: {queue: Q}}, select: SELECT body FROM input, to: {archive: a/b}},"
            " two: {from: {archive: a}, select: SELECT body FROM input, to: {mq: {queue: R}}}}",
            [],
            "pipeline two streams",
        ),
        (
            "{one: {from: {mq: {queue: Q}}, select: SELECT body FROM input, to: {archive: a/b}}}",
            ["--target", "much"],
            "--target much: expected a size",
        ),
    ],
)
def test_what_is_not_compacted(pipelines: str, arguments: list[str], told: str, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "bridge.yaml").write_text(f"pipelines: {pipelines}")
    result = invoke("pipeline", "compact", "one", *arguments, "--config", tmp_path / "bridge.yaml")
    assert result.exit_code == 2 and told in result.stderr
