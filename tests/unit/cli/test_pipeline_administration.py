"""`mqbridge pipeline show`, `stop`, `drain` and `reset`, with pipelines that run, ran, or never ran."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.files import lock
from bridge.spark.administration import (
    LOCK,
    CompletedBatch,
    ControlThread,
    DrainPipeline,
    PipelineRequest,
    PipelineStatus,
    StatusRecord,
    StopPipeline,
    read_status,
    runs,
)
from tests.helpers.command_line import Invoke

ONE = "{from: {mq: {queue: Q}}, select: SELECT body FROM input, to: {mq: {queue: R}}}"
BATCH = CompletedBatch(7, 1000.0, 0.5, 30, 25, 5, 2, 11, 940.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bridge.yaml"
    path.write_text(
        f"queue_manager: {{data_directory: data}}\npipelines: {{one: {ONE}, two: {ONE[:-1]}, enabled: no}}}}"
    )
    return path


@pytest.fixture
def directory(file: Path) -> Path:
    """Return the status of pipeline `one`."""
    directory = file.parent / "data" / "pipelines" / "one"
    directory.mkdir(parents=True)
    return directory


def pipeline_details(invoke: Invoke, file: Path) -> dict[str, Any]:
    result = invoke("pipeline", "show", "one", "--json", "--config", file)
    assert result.exit_code == 0, result.stderr
    state: dict[str, Any] = msgspec.json.decode(result.stdout)
    return state


def test_pipelines_that_never_ran_have_no_status(invoke: Invoke, file: Path) -> None:
    result = invoke("pipeline", "show", "--config", file)
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["pipeline", "state", "since"]
    assert [line.split()[:3] for line in lines[1:3]] == [["one", "never", "run"], ["two", "never", "run"]]


def test_a_killed_pipeline_is_reported(invoke: Invoke, file: Path, directory: Path) -> None:
    with lock(directory / LOCK):
        assert pipeline_details(invoke, file)["state"] == "starting"
        record = StatusRecord(directory, print)
        record.running()
        record.completed(BATCH)
        record.failed("MQRC_Q_FULL (2053)", "have its messages got")
        state = pipeline_details(invoke, file)
        assert (state["state"], state["process"]) == ("failing", int(runs(directory) or 0))
        assert (state["rows_in"], state["rows_out"], state["dead_letters"], state["late"]) == (30, 25, 5, 2)
        assert (state["waiting"], state["oldest"]) == (11, 940.0)
        table = invoke("pipeline", "show", "--config", file).stdout
        oldest = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(940))
        assert table.splitlines()[1].split()[-4:] == ["11", *oldest.split(), "0"]
        assert ": MQRC_Q_FULL (2053); hint: have its messages got" in table
    # Its lock is free, and it has not reported its end.
    state = pipeline_details(invoke, file)
    assert (state["state"], state["process"], state["last_batch"]["number"]) == ("killed", None, 7)


def test_rates_are_those_of_the_last_minute(tmp_path: Path) -> None:
    status = PipelineStatus(1, "h", since=0.0, recent=((10.0, 600, 60), (70.0, 300, 30), (100.0, 300, 30)))
    assert status.rate(100.0) == (10.0, 1.0)
    assert status.rate(1000.0) == (0.0, 0.0)
    assert msgspec.structs.replace(status, since=90.0).rate(100.0) == (60.0, 6.0)


def test_a_new_run_keeps_the_last_batch_and_error(directory: Path) -> None:
    record = StatusRecord(directory, print)
    record.completed(BATCH)
    record.failed("x")
    record.ended("given up")
    StatusRecord(directory, print)
    status = read_status(directory)
    assert status is not None and (status.state, status.batches, status.last_batch) == ("starting", 0, BATCH)
    assert status.last_error is not None and status.until is None


@pytest.mark.parametrize("content", [b"{", b'{"host":"\xb1"}'])
def test_a_damaged_status_is_reported(content: bytes, invoke: Invoke, file: Path, directory: Path) -> None:
    (directory / "status.json").write_bytes(content)
    result = invoke("pipeline", "show", "--config", file)
    assert result.exit_code == 1 and "status.json is damaged and may be removed" in result.stderr


def test_a_status_that_cannot_be_written_is_reported_once(directory: Path) -> None:
    lines: list[str] = []
    record = StatusRecord(directory, lines.append)
    (directory / "status.new").mkdir()
    record.completed(BATCH)
    record.completed(BATCH)
    assert len(lines) == 1 and "cannot write" in lines[0] and "status.json" in lines[0]


@pytest.mark.parametrize("command", ["stop", "drain"])
def test_a_pipeline_that_does_not_run_cannot_be_stopped(command: str, invoke: Invoke, file: Path) -> None:
    result = invoke("pipeline", command, "one", "--config", file)
    assert result.exit_code == 4 and result.stderr.startswith("mqbridge: error: not running: one")
    assert ("pipeline run one --once" in result.stderr) == (command == "drain")
    result = invoke("pipeline", command, "one", "three", "--config", file)
    assert result.exit_code == 3 and "no pipeline three\nhint: pipelines: one, two" in result.stderr


@pytest.mark.parametrize(
    ("command", "ends_as", "message", "status"),
    [
        ("stop", "stopped", "one: stopped", 0),
        ("drain", "done", "one: drained", 0),
        ("stop", "given up", "one: given up", 1),
    ],
)
def test_a_stop_waits_for_the_end_of_the_pipeline(
    command: str, ends_as: Any, message: str, status: int, invoke: Invoke, file: Path, directory: Path
) -> None:
    held = lock(directory / LOCK)
    record = StatusRecord(directory, print)
    received: list[tuple[str, PipelineRequest]] = []

    def handle(name: str, request: PipelineRequest) -> None:
        received.append((name, request))
        record.ended(ends_as)
        held.close()

    control = ControlThread(handle)
    control.listen("one", directory)
    result = invoke("pipeline", command, "one", "--config", file)
    control.stop()
    assert (result.exit_code, result.stdout) == (status, f"{message}\n")
    assert received == [("one", StopPipeline() if command == "stop" else DrainPipeline())]


def test_a_process_that_does_not_answer_is_reported(invoke: Invoke, file: Path, directory: Path) -> None:
    with lock(directory / LOCK):
        result = invoke("pipeline", "stop", "one", "--config", file)
    assert result.exit_code == 4 and "does not answer" in result.stderr


def test_reset_deletes_the_checkpoint_of_a_stopped_pipeline(invoke: Invoke, file: Path, directory: Path) -> None:
    assert "one has no checkpoint" in invoke("pipeline", "reset", "one", "--config", file).stdout
    checkpoint, spool = directory / "checkpoint", directory / "spool"
    (checkpoint / "offsets").mkdir(parents=True)
    spool.mkdir()
    with lock(directory / LOCK):
        result = invoke("pipeline", "reset", "one", "--yes", "--config", file)
    assert result.exit_code == 1 and "stop it first: mqbridge pipeline stop one --config" in result.stderr
    result = invoke("pipeline", "reset", "one", "--yes", "--config", file)
    assert result.exit_code == 0 and not checkpoint.exists() and spool.exists()
