"""The archive process: complete files, reported gaps, and days that start with the open sessions."""

from __future__ import annotations

import fcntl
import importlib.util
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.archive import parquet
from bridge.archive import writer as writer_module
from bridge.archive.events import ArchiveEvent, Event, Incoming, PublishedEvent, SessionEvent
from bridge.archive.schema import archive_files
from bridge.archive.writer import ArchiveError, ArchiveWriter
from bridge.config.operations import ArchiveConfig, RollConfig
from bridge.telemetry.outcome import Outcome
from tests.helpers.archive import at, read

#: Settings with which nothing is due before a test triggers it.
LATER = {"time": 3600}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def reports() -> list[tuple[int, int]]:
    """The reports of the writer: batches whose memory is free, batches in finished files."""
    return []


@pytest.fixture
def make(directory: Path, reports: list[tuple[int, int]]) -> Iterator[Callable[..., ArchiveWriter]]:
    writers: list[ArchiveWriter] = []

    def call(*, roll: dict[str, Any] | None = None, **values: Any) -> ArchiveWriter:
        config = ArchiveConfig(directory=directory, roll=RollConfig(**{**LATER, **(roll or {})}), **values)
        writers.append(
            ArchiveWriter(config, lambda taken_count, durable, lost_count: reports.append((taken_count, durable)))
        )
        assert writers[-1].claim_directory()
        return writers[-1]

    yield call
    for writer in writers:
        writer.close()


def hand(writer: ArchiveWriter, *topics: str, size: int = 0, now: int | None = None) -> None:
    """Return a batch with an event that results in a row for each of these topics."""
    now = at(0) if now is None else now
    publications = [Incoming(topic, b"", 0, 0, False) for topic in topics]
    writer.take([PublishedEvent(now, "p", "", now, {}, publications)], size)


def topics(directory: Path) -> list[str]:
    return [row["topic"] for row in read(directory) if row["direction"] == "in"]


def own(directory: Path) -> list[tuple[str, int]]:
    return [(row["outcome"], row["size"]) for row in read(directory) if row["direction"] == "archive"]


def test_submitted_rows_are_written_at_the_end(make: Any, directory: Path, reports: list[Any]) -> None:
    writer = make()
    writer.take([ArchiveEvent(at(0), Outcome.STARTED)], 10)
    hand(writer, "a", "b")
    hand(writer, "c")
    writer.take([ArchiveEvent(at(2), Outcome.GAP, at(1), 7), ArchiveEvent(at(3), Outcome.STOPPED)], 10)
    assert archive_files(directory) == [] and reports == []
    writer.close()
    assert topics(directory) == ["a", "b", "c"]
    assert own(directory) == [("started", 0), ("gap", 7), ("stopped", 0)]
    assert reports == [(4, 4)]
    (gap,) = (row for row in read(directory) if row["outcome"] == "gap")
    assert (gap["received"], gap["settled"]) == tuple(
        datetime(2026, 3, 2, 12, 0, second, tzinfo=UTC) for second in (1, 2)
    )


def test_a_file_appears_when_it_is_complete(
    make: Any, directory: Path, reports: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "GROUP_ROWS", 2)
    monkeypatch.setattr(writer_module, "SLICE_ROWS", 1)
    writer = make()
    for _ in range(3):
        hand(writer, "a")
    # One row group is written to a file with a temporary name, and one row waits.
    assert archive_files(directory) == []
    assert len(list(directory.glob("date=*/hour=*/.*"))) == 1
    assert reports == [(2, 0)]
    writer.close()
    assert len(topics(directory)) == 3
    assert not list(directory.glob("date=*/hour=*/.*"))
    assert reports[-1] == (3, 3)


def test_files_are_rolled_by_time(make: Any, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(writer_module.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
    writer = make(roll={"time": 10})
    assert writer.due() is None
    hand(writer, "a")
    assert writer.due() == 10
    now += 9
    hand(writer, "b")
    writer.maintain()
    assert archive_files(directory) == [] and writer.due() == 1
    now += 1
    writer.maintain()
    assert topics(directory) == ["a", "b"] and writer.due() is None


def test_files_are_rolled_by_rows_and_size(make: Any, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SLICE_ROWS", 1)
    monkeypatch.setattr(writer_module, "GROUP_ROWS", 2)
    writer = make(roll={"rows": 4})
    writer.take([ArchiveEvent(at(0), Outcome.STARTED)], 10)
    for _ in range(4):
        hand(writer, "a", "b")
    writer.take([ArchiveEvent(at(0), Outcome.STOPPED)], 10)
    writer.close()
    assert [parquet.pa.parquet.read_metadata(file).num_rows for file in archive_files(directory)] == [5, 4, 1]  # type: ignore[attr-defined]


def test_row_groups_have_a_fixed_size(make: Any, directory: Path, reports: list[Any]) -> None:
    writer = make()
    hand(writer, "a", size=10)
    hand(writer, "b", size=writer_module.GROUP_BYTES)
    assert reports == [(2, 0)]
    hand(writer, "c", size=10)
    writer.close()
    (file,) = archive_files(directory)
    assert parquet.pa.parquet.read_metadata(file).num_row_groups == 2  # type: ignore[attr-defined]


def test_each_hour_has_separate_files(make: Any, directory: Path) -> None:
    writer = make()
    writer.take([ArchiveEvent(at(0), Outcome.STARTED)], 10)
    for hour in range(3):
        hand(writer, f"{hour}", now=at(hour * 3600))
    writer.take([ArchiveEvent(at(2 * 3600), Outcome.STOPPED)], 10)
    writer.close()
    hours = [(file.parent.name, read_topics(file)) for file in archive_files(directory)]
    assert hours == [("hour=12", ["", "0"]), ("hour=13", ["1"]), ("hour=14", ["2", ""])]


def read_topics(file: Path) -> list[str]:
    topics_of_file: list[str] = parquet.pa.parquet.read_table(file, partitioning=None)["topic"].to_pylist()  # type: ignore[attr-defined]
    return topics_of_file


def test_a_day_starts_with_the_open_sessions(make: Any, directory: Path) -> None:
    writer = make()
    happened: list[Event] = [
        SessionEvent(at(0), Outcome.CONNECTED, "c", "anna", True),
        SessionEvent(at(0), Outcome.SUBSCRIBED, "c", "anna", True, [("a/#", 1)], at(0)),
        SessionEvent(at(0), Outcome.CONNECTED, "gone", "", False),
        SessionEvent(at(0), Outcome.ENDED, "gone"),
    ]
    writer.take(happened, 10)
    hand(writer, "next day", now=at(24 * 3600))
    writer.close()
    day = [row for row in read(directory) if row["direction"] == "subscription"]
    sessions = [(row["outcome"], row["client_id"], row["topic"], row["received"]) for row in day]
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert sessions[-2:] == [("subscribed", "c", "a/#", noon), ("connected", "c", "", noon)]
    assert len([session for session in sessions if session[1] == "gone"]) == 2


def failing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Make writes of this number of row groups fail."""
    real = parquet.ArchiveFile.write
    failures = [None] * times

    def write(file: parquet.ArchiveFile, batches: list[Any]) -> None:
        if failures:
            failures.pop()
            raise OSError(28, "No space left on device")
        real(file, batches)

    monkeypatch.setattr(parquet.ArchiveFile, "write", write)


@pytest.mark.parametrize("times", [1, 3])
def test_rows_that_cannot_be_written_are_a_gap(
    make: Any,
    directory: Path,
    reports: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    times: int,
) -> None:
    writer = make(roll={"time": 0.01})
    failing(monkeypatch, times)
    writer.take([ArchiveEvent(at(0), Outcome.STARTED)], 10)
    hand(writer, "a", "b")
    for _ in range(times):
        writer._finish()
    assert not [report for report in reports if report[1]]  # the gap is not reported yet
    hand(writer, "c")
    writer.close()
    assert topics(directory) == ["c"]
    assert own(directory) == [("gap", 3)]  # a, b, and the start
    assert reports[-1] == (3, 3)
    assert "No space left on device" in caplog.text


def test_an_event_without_rows_is_a_gap(make: Any, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = make()
    writer.take([PublishedEvent(at(0), "p", "", at(0), {}, [Incoming("a", None, 0, 0, False)])], 10)
    hand(writer, "b")
    writer.close()
    assert topics(directory) == ["b"]
    assert own(directory) == [("gap", 1)]
    assert "because converting" in caplog.text


def test_only_one_process_can_write(make: Any, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = make()
    second = ArchiveWriter(ArchiveConfig(directory=directory))
    assert not second.claim_directory(lambda: True)
    assert "another process writes" in caplog.text
    first.close()
    assert second.claim_directory()
    second.close()


def test_the_lock_is_held_while_it_writes(make: Any, directory: Path) -> None:
    writer = make()
    with (directory / writer_module.LOCK).open("ab") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        writer.close()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_files_of_a_killed_bridge_are_removed(make: Any, directory: Path) -> None:
    unfinished_file = directory / "date=2026-03-01" / "hour=03" / ".1.parquet"
    unfinished_file.parent.mkdir(parents=True)
    unfinished_file.write_bytes(b"PAR1")
    make()
    assert not unfinished_file.exists()


def test_days_beyond_the_retention_are_removed(make: Any, directory: Path) -> None:
    today = datetime.now(UTC).date()
    days = [directory / f"date={today - timedelta(days=days)}" for days in (2, 3, 4)]
    for day in days:
        day.mkdir(parents=True)
    writer = make(retention_days=3)
    assert writer.due() == 0
    writer.maintain()
    assert [day.exists() for day in days] == [True, True, False]
    assert 0 < writer.due() <= writer_module.RETENTION_INTERVAL


def test_an_unwritable_directory_is_reported_at_the_start(make: Any, directory: Path) -> None:
    directory.write_text("a file")
    with pytest.raises(ArchiveError, match=r"cannot be written to .*archive: File exists; see archive\.directory"):
        make()


def test_without_pyarrow_the_extra_is_named(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else real(name))
    with pytest.raises(ArchiveError, match=r"pyarrow is not installed: .* -m pip install '.*pyarrow"):
        make()
