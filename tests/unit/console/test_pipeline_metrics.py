"""Metrics of pipelines come from the status files of their processes."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from bridge.config.models import Configuration
from bridge.console.metrics import gather_pipelines
from bridge.service.metric_catalogue import Samples
from bridge.spark.administration import LOCK, STATUS, CompletedBatch, StatusRecord
from bridge.spark.segment import IDENTITY, Segment, SpoolIdentity, directory_name


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    pipelines = {
        name: {
            "from": {"mq": {"queue": f"Q.{name.upper()}"}},
            "to": {"archive": tmp_path / "out"},
            "select": "SELECT * FROM input",
        }
        for name in ("runs", "new")
    }
    return Configuration(queue_manager={"data_directory": tmp_path / "data"}, pipelines=pipelines)


def gathered(configuration: Configuration) -> dict[tuple[str, ...], object]:
    samples = Samples()
    gather_pipelines(samples, configuration)
    return {(metric.name, *labels): value for metric, values in samples for labels, value in values}


def test_a_running_pipeline_is_measured(configuration: Configuration, tmp_path: Path) -> None:
    directory = tmp_path / "data" / "pipelines" / "runs"
    directory.mkdir(parents=True)
    record = StatusRecord(directory, pytest.fail)
    record.completed(CompletedBatch(7, 1_000.0, 0.5, rows_in=5, rows_out=3, dead_letters=1, late=1, waiting=9))
    with (directory / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        samples = gathered(configuration)
    assert samples == {
        ("mqbridge_pipeline_up", "runs"): 1,
        ("mqbridge_pipeline_up", "new"): 0,
        ("mqbridge_pipeline_failing", "runs"): 0,
        ("mqbridge_pipeline_failing", "new"): 0,
        ("mqbridge_pipeline_stage_bytes", "runs"): 0,
        ("mqbridge_pipeline_stage_bytes", "new"): 0,
        ("mqbridge_pipeline_rows_total", "runs", "in"): 5,
        ("mqbridge_pipeline_rows_total", "runs", "out"): 3,
        ("mqbridge_pipeline_rows_total", "runs", "dead_letter"): 1,
        ("mqbridge_pipeline_rows_total", "runs", "late"): 1,
        ("mqbridge_pipeline_rows_total", "runs", "discarded"): 0,
        ("mqbridge_pipeline_batches_total", "runs"): 1,
        ("mqbridge_pipeline_last_batch_timestamp_seconds", "runs"): 1_000.0,
        ("mqbridge_pipeline_waiting_messages", "runs"): 9,
        ("mqbridge_pipeline_spool_messages", "runs"): 0,
        ("mqbridge_pipeline_unread_messages", "runs"): 0,
        ("mqbridge_pipeline_spool_messages", "new"): 0,
        ("mqbridge_pipeline_unread_messages", "new"): 0,
    }
    ended = gathered(configuration)
    assert (ended["mqbridge_pipeline_up", "runs"], ended["mqbridge_pipeline_failing", "runs"]) == (0, 1), "killed"


def test_an_unreadable_status_is_omitted(configuration: Configuration, tmp_path: Path) -> None:
    directory = tmp_path / "data" / "pipelines" / "runs"
    directory.mkdir(parents=True)
    (directory / STATUS).write_text("{")
    samples = gathered(configuration)
    assert len(samples) == 5 and {labels[1:] for labels in samples} == {("new",)}


def test_staged_rows_are_measured(configuration: Configuration, tmp_path: Path) -> None:
    batch = tmp_path / "data" / "pipelines" / "runs" / "stage" / "query" / "7"
    batch.mkdir(parents=True)
    (batch / "manifest").write_bytes(b"12345")
    assert gathered(configuration)["mqbridge_pipeline_stage_bytes", "runs"] == 5


def test_pipelines_with_ibm_mq(tmp_path: Path) -> None:
    pipeline = {"from": {"mq": {"queue": "Q"}}, "to": {"archive": tmp_path / "out"}, "checkpoint": tmp_path / "p"}
    ibm = {"type": "ibm", "name": "QM1", "channel": "C", "connections": ["h(1414)"]}
    samples = gathered(Configuration(queue_manager=ibm, pipelines={"p": pipeline}))
    assert samples["mqbridge_pipeline_up", "p"] == 0


def test_messages_in_spools_are_counted(configuration: Configuration, tmp_path: Path) -> None:
    """Those of Q.OLD, which the pipeline no longer reads, are counted separately."""
    for source, rows in (("Q.RUNS", 5), ("Q.OLD", 3)):
        spool = tmp_path / "data" / "pipelines" / "runs" / "spool" / directory_name(source)
        spool.mkdir(parents=True)
        (spool / IDENTITY).write_bytes(msgspec.json.encode(SpoolIdentity(f"id-{source}", source)))
        (spool / Segment(1, rows, 10, 1, 0, "run").name).touch()
    shutil.copytree(tmp_path / "data" / "pipelines" / "runs", tmp_path / "data" / "pipelines" / "removed")
    samples = gathered(configuration)
    assert samples["mqbridge_pipeline_unread_messages", "removed"] == 8
    assert (
        samples["mqbridge_pipeline_spool_messages", "runs"],
        samples["mqbridge_pipeline_unread_messages", "runs"],
    ) == (
        8,
        3,
    )
