"""A pipeline whose staged rows are lost or cannot be written: its status, and the problems of a bridge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.config.document import load
from bridge.service.problems import PipelineDiscards, _of_pipelines
from bridge.spark.mq.queue_manager import APPLICATION_NAME
from tests.spark.faults import Fault, fault, is_state
from tests.spark.flow.conftest import Bench
from tests.spark.flow.test_former_queues import mqbridge

#: Rows of a batch. A unit of work has 5,000.
ROWS = 8_000
TEXT = """
pipelines:
  events: {from: {mq: {queue: $queue}}, to: {mq: {queue: $out}}, checkpoint: $directory}
"""


@pytest.fixture
def pipeline(bench: Bench) -> tuple[str, Path]:
    """A pipeline with a batch of several units of work, its target, and its directory."""
    queue, out, directory = bench.queues.queue(), bench.queues.queue(), bench.directory / "events"
    bench.write(TEXT, queue=queue, out=out, directory=directory)
    bench.queues.put(queue, *(b"%d" % number for number in range(ROWS)))
    return out, directory


def problems(bench: Bench) -> list[str]:
    """Return the problems that a bridge with this configuration reports."""
    return [problem.what for problem in _of_pipelines(load(bench.file), PipelineDiscards())]


def pipeline_details(bench: Bench) -> dict[str, Any]:
    (details,) = json.loads(mqbridge(bench, "pipeline", "show", "-o", "json"))
    return dict(details)


def test_a_missing_staged_file_stops_the_pipeline(bench: Bench, pipeline: tuple[str, Path]) -> None:
    out, directory = pipeline
    # The first two states, that of the manifest, and one for each unit of work.
    lost = Fault(lambda verb, request: verb == "MQPUT" and is_state(request), 5)
    files: list[Path] = []

    def report(line: str) -> None:
        bench.lines.append(line)
        if "next attempt in" in line:
            assert bench.queues.depth(out) == 5_000
            files.extend((directory / "stage").rglob("*.arrow"))
            files[0].rename(bench.directory / "staged")

    with fault(APPLICATION_NAME, lost):
        assert bench.runner(attempts=8, report=report).run() == ["events"]
    (file,) = files
    (line,) = [line for line in bench.lines if "stopped: " in line]
    assert f"staged file {file} of batch 0 of " in line
    assert f"Of the {ROWS} rows of the batch, 5000 were written before. Restore the file" in line
    (problem,) = problems(bench)
    assert problem.startswith(f"pipeline events was given up: staged file {file}")
    assert pipeline_details(bench)["failing"] and pipeline_details(bench)["stage_bytes"] > 0
    (bench.directory / "staged").rename(file)
    bench.run()
    assert [int(body) for body in bench.queues.bodies(out)] == [*range(ROWS)]
    assert problems(bench) == []
    assert not pipeline_details(bench)["failing"] and pipeline_details(bench)["stage_bytes"] == 0


def test_an_unusable_staging_directory_is_retried(bench: Bench, pipeline: tuple[str, Path]) -> None:
    out, directory = pipeline
    directory.mkdir()
    (directory / "stage").write_text("no directory")

    def report(line: str) -> None:
        bench.lines.append(line)
        if "next attempt in" in line:
            assert f"staging directory {directory / 'stage'} on " in line and "check the disk" in line
            (problem,) = problems(bench)
            assert problem.startswith(f"pipeline events fails: staging directory {directory / 'stage'}")
            (directory / "stage").unlink()

    assert bench.runner(report=report).run() == [], "\n".join(bench.lines)
    assert any("next attempt in" in line for line in bench.lines)
    assert bench.queues.depth(out) == ROWS and problems(bench) == []
