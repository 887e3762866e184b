"""Problems of the archive, which a separate process writes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bridge.administration.answers import BridgeState
from bridge.archive.schema import archive_files
from bridge.config.models import Configuration
from bridge.service.metrics import Metrics
from bridge.service.problems import ARCHIVE_LOSS_TIMEOUT
from tests.helpers.archive import Story, write
from tests.helpers.patience import happens
from tests.helpers.running_bridge import current_problems, running


def configuration(tmp_path: Path, archive: Path) -> Configuration:
    return Configuration(
        queue_manager={"data_directory": tmp_path / "data"}, channels=[], archive={"directory": archive}
    )


async def test_rows_missing_from_the_archive_are_a_problem_for_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(configuration(tmp_path, tmp_path / "archive")) as bridge:
        assert bridge.parts.archive is not None
        await happens(lambda: bridge.parts.archive is not None and bridge.parts.archive._archive.child is not None)
        child = bridge.parts.archive._archive.child
        assert child is not None
        bridge.parts.archive._archive._progress(0, 0, 7)
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.what) == ("archive", "7 rows are missing from the archive")
        bridge.parts.archive.loss.last -= ARCHIVE_LOSS_TIMEOUT
        assert await current_problems(bridge) == []


async def test_files_missing_from_the_archive_are_a_problem_for_an_hour(tmp_path: Path) -> None:
    """The archive process notices it at its start."""
    directory = tmp_path / "archive"
    write(directory, Story().put(1, "t", b"").rows)
    (file,) = archive_files(directory)
    file.unlink()
    async with running(configuration(tmp_path, directory)) as bridge:
        assert bridge.parts.archive is not None
        loss = bridge.parts.archive.loss
        await happens(lambda: loss.files)
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity) == ("archive_files", "warning")
        assert problem.what.startswith(f"archive {directory}: file 1 is missing, the last one was finished at ")
        assert problem.command == f"mqbridge data verify {directory}"
        loss.noticed -= ARCHIVE_LOSS_TIMEOUT
        assert await current_problems(bridge) == []
        assert bridge.administration is not None
        metrics = Metrics(bridge.configuration, 0, time.monotonic)
        metrics.begin(bridge.administration.parts.host, bridge.administration.parts.queue_manager_watch)
        samples = await metrics.gather(BridgeState.RUNNING, bridge.administration.parts, await current_problems(bridge))
        assert [values for metric, values in samples if metric.name == "mqbridge_archive_files_missing"] == [
            [((), 1.0)]
        ]
        metrics.stop()
