"""The section `archive`: where, what, when, how much."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.description import describe
from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.config.operations import ArchiveConfig, RollConfig
from bridge.config.problems import ConfigurationError


def archive_of(tmp_path: Path, *lines: str) -> ArchiveConfig:
    file = tmp_path / "bridge.yaml"
    file.write_text("archive:\n" + "".join(f"  {line}\n" for line in lines))
    return load(file).archive


def test_without_the_section_there_is_no_archive(tmp_path: Path) -> None:
    assert archive_of(tmp_path).directory is None


def test_all_of_it(tmp_path: Path) -> None:
    found = archive_of(
        tmp_path, "directory: kept", "payloads: false", "roll: {rows: 5000, size: 1 MiB, time: 2 min}", "memory: 1 GiB",
        "retention_days: 30",
    )  # fmt: skip
    assert found == ArchiveConfig(
        directory=tmp_path / "kept",
        payloads=False,
        roll=RollConfig(rows=5000, size=2**20, time=120.0),
        memory=2**30,
        retention_days=30,
    )


@pytest.mark.parametrize(
    ("archive", "expected"),
    [
        (ArchiveConfig(), []),
        (
            ArchiveConfig(directory=Path("/kept")),
            ["messages are archived in /kept, with payloads, kept without limit; killing the archive "
             "process loses the last 10 s"],
        ),
        (
            ArchiveConfig(directory=Path("/kept"), payloads=False, retention_days=30, roll=RollConfig(time=60)),
            ["messages are archived in /kept, without payloads, kept 30 days; killing the archive "
             "process loses the last 1 min"],
        ),
    ],
)
def test_check_says_what_is_archived(archive: ArchiveConfig, expected: list[str]) -> None:
    assert [line for line in describe(Configuration(archive=archive)) if "archived" in line] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("roll: {time: 0 s}", "archive.roll.time: expected a duration from 10 ms to 24 h"),
        ("roll: {rows: 0}", "archive.roll.rows: expected an integer from 1 to 100000000"),
        ("roll: {size: 1 B}", "archive.roll.size: expected a size from 64 KiB to 16 GiB"),
        ("memory: 1 KiB", "archive.memory: expected a size from 1 MiB to 64 GiB"),
        ("retention_days: 0", "archive.retention_days: expected an integer from 1 to 36500"),
        ("payloads: some", "archive.payloads: expected true or false"),
        ("compress: true", "archive.compress"),
    ],
)
def test_mistakes(tmp_path: Path, line: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        archive_of(tmp_path, line)
    assert expected in str(error.value)
