"""The files of a period, and expired days."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from bridge.archive.schema import archive_files, expired_days, unfinished_files


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for day, hour in (("2026-03-01", 23), ("2026-03-02", 0), ("2026-03-02", 12), ("2026-04-01", 5)):
        place = tmp_path / f"date={day}" / f"hour={hour:02d}"
        place.mkdir(parents=True)
        for name in ("2.parquet", "1.parquet", ".3.parquet", "notes.txt"):
            (place / name).touch()
    return tmp_path


def hours(files: list[Path]) -> list[str]:
    return [f"{file.parent.parent.name[5:]}T{file.parent.name[5:]}/{file.name}" for file in files]


def test_files_are_in_order_and_complete(archive: Path) -> None:
    hours_of_files = hours(archive_files(archive))
    assert hours_of_files == sorted(hours_of_files) and len(hours_of_files) == 8
    assert all("/." not in hour for hour in hours_of_files)
    assert len(list(unfinished_files(archive))) == 4


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (datetime(2026, 3, 1, 23, 59, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC), {"2026-03-01T23", "2026-03-02T00"}),
        (datetime(2026, 3, 2, 1, 30, tzinfo=timezone(timedelta(hours=1))), None,
         {"2026-03-02T00", "2026-03-02T12", "2026-04-01T05"}),
        (None, datetime(2026, 3, 1, 22, 59, tzinfo=UTC), set()),
        (datetime(2026, 5, 1, tzinfo=UTC), None, set()),
    ],
)  # fmt: skip
def test_a_period_has_its_hours(
    archive: Path, start: datetime | None, end: datetime | None, expected: set[str]
) -> None:
    assert {file.split("/")[0] for file in hours(archive_files(archive, start, end))} == expected


def test_days_completely_older_than_the_retention_are_expired(archive: Path) -> None:
    (archive / "date=someday-x").mkdir()
    (archive / "date=9999-99-99").mkdir()
    now = datetime(2026, 3, 12, 12, tzinfo=UTC)
    assert [day.name for day in expired_days(archive, timedelta(days=10), now)] == ["date=2026-03-01"]
    assert [day.name for day in expired_days(archive, timedelta(days=11), now)] == []


def test_a_removed_day_is_deleted(archive: Path) -> None:
    shutil.rmtree(archive / "date=2026-03-02")
    assert {file[:10] for file in hours(archive_files(archive))} == {"2026-03-01", "2026-04-01"}
