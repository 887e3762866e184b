"""The archive's thread: whole files only, bounded memory, gaps that are told, days that begin with what stands."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.archive import parquet
from bridge.archive import writer as writer_module
from bridge.archive.directory import files
from bridge.archive.schema import Direction, Outcome, Row, row
from bridge.archive.writer import ArchiveError, ArchiveWriter
from bridge.config.archive import ArchiveConfig, RollConfig
from tests.archive.made import at, read


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "archive"


class Clock:
    """The time of rows; it stands still until it is told."""

    def __init__(self) -> None:
        self.now = at(0)

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(writer_module, "now_us", clock)
    monkeypatch.setattr(writer_module, "LOOK_INTERVAL", 0.001)
    return clock


@pytest.fixture
def make(directory: Path, clock: Clock) -> Iterator[Callable[..., ArchiveWriter]]:
    made: list[ArchiveWriter] = []

    def call(*, roll: dict[str, Any] | None = None, **values: Any) -> ArchiveWriter:
        config = ArchiveConfig(directory=directory, roll=RollConfig(**{"time": 3600, **(roll or {})}), **values)
        made.append(ArchiveWriter(config))
        return made[-1]

    yield call
    for one in made:
        one.close(10)


def hand(writer: ArchiveWriter, *topics: str, size: int = 0) -> None:
    """An event that makes a row with each of these topics."""

    def expand(now: int) -> list[Row]:
        return [
            row(
                sequence=next(writer._numbers), direction=Direction.IN, outcome=Outcome.PUT, topic=topic,
                received=now, settled=now,
            )
            for topic in topics
        ]  # fmt: skip

    writer.add(len(topics), size, expand)


def topics(directory: Path) -> list[str]:
    return [one["topic"] for one in read(directory) if one["direction"] == "in"]


def own(directory: Path) -> list[tuple[str, int]]:
    return [(one["outcome"], one["size"]) for one in read(directory) if one["direction"] == "archive"]


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(20_000):
        if condition():
            return
        pause.wait(0.001)
    raise AssertionError("it did not come about")


def test_what_is_handed_over_is_written_at_the_end(make: Any, directory: Path) -> None:
    writer = make()
    writer.start()
    hand(writer, "a", "b", size=10)
    hand(writer, "c", size=5)
    assert writer.close(10)
    assert topics(directory) == ["a", "b", "c"]
    assert own(directory) == [("started", 0), ("stopped", 0)]


def test_a_file_is_there_when_it_is_whole(make: Any, directory: Path) -> None:
    writer = make(roll={"rows": 3}, memory=1024 * 1024)
    writer.start()
    for _ in range(10):
        hand(writer, "a")
    # Row groups are written when there are many rows only; a file under way has another name.
    until(lambda: not writer._events)
    assert files(directory) == []
    writer.close(10)
    assert len(topics(directory)) == 10
    assert not list(directory.glob("date=*/hour=*/.*"))


def test_files_are_rolled_by_time(make: Any, directory: Path) -> None:
    writer = make(roll={"time": 0.01})
    writer.start()
    until(lambda: len(files(directory)) == 1)
    hand(writer, "a")
    until(lambda: len(files(directory)) == 2)
    assert topics(directory) == ["a"]


def test_files_are_rolled_by_rows_and_size(make: Any, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SLICE_ROWS", 1)
    monkeypatch.setattr(writer_module, "GROUP_ROWS", 2)
    writer = make(roll={"rows": 4})
    writer.start()
    for _ in range(4):
        hand(writer, "a", "b")
    writer.close(10)
    assert [parquet.pa.parquet.read_metadata(one).num_rows for one in files(directory)] == [5, 4, 1]


def test_each_hour_has_files_of_its_own(make: Any, directory: Path, clock: Clock) -> None:
    writer = make()
    writer.start()
    for hour in range(3):
        clock.now = at(hour * 3600)
        hand(writer, f"{hour}")
    writer.close(10)
    found = [(one.parent.name, read_topics(one)) for one in files(directory)]
    assert found == [("hour=12", ["", "0"]), ("hour=13", ["1"]), ("hour=14", ["2", ""])]


def read_topics(file: Path) -> list[str]:
    found: list[str] = parquet.pa.parquet.read_table(file, partitioning=None)["topic"].to_pylist()
    return found


def test_a_day_begins_with_what_stands(make: Any, directory: Path, clock: Clock) -> None:
    writer = make()
    writer.start()
    writer.add(1, 0, writer.standing.connected, "c", "anna", True)
    writer.add(1, 0, writer.standing.subscribed, "c", "anna", True, [("a/#", 1)], at(0))
    writer.add(1, 0, writer.standing.connected, "gone", "", False)
    writer.add(1, 0, writer.standing.ended, "gone")
    until(lambda: not writer._events)
    clock.now = at(24 * 3600)
    hand(writer, "next day")
    writer.close(10)
    day = [one for one in read(directory) if one["sequence"] > 0 and one["client_id"]]
    said = [(one["outcome"], one["client_id"], one["topic"], one["received"]) for one in day]
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert said[-2:] == [("subscribed", "c", "a/#", noon), ("connected", "c", "", noon)]
    assert len([one for one in said if one[1] == "gone"]) == 2


def test_what_does_not_fit_is_a_gap(
    make: Any, directory: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    writer = make(memory=1024 * 1024)
    hand(writer, "a", size=500_000)
    clock.now = at(5)
    hand(writer, "b", "c", "d", size=600_000)
    hand(writer, "e", "f", size=900_000)
    writer.start()
    until(lambda: not writer._events)
    writer.close(10)
    assert topics(directory) == ["a"]
    assert own(directory) == [("started", 0), ("gap", 5), ("stopped", 0)]
    (gap,) = (one for one in read(directory) if one["outcome"] == "gap")
    assert gap["received"] == datetime(2026, 3, 2, 12, 0, 5, tzinfo=UTC)
    assert "5 rows are missing" in caplog.text and "archive.memory" in caplog.text


def test_memory_is_free_again_when_it_is_written(make: Any, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SLICE_ROWS", 1)
    monkeypatch.setattr(writer_module, "GROUP_ROWS", 1)
    writer = make(memory=1024 * 1024)
    writer.start()
    for number in range(5):
        hand(writer, f"{number}", size=900_000)
        until(lambda: writer._handed == writer._taken)
    writer.close(10)
    assert topics(directory) == [f"{number}" for number in range(5)]


def test_rows_that_cannot_be_written_are_a_gap(
    make: Any, directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = make(roll={"time": 0.01})
    real = parquet.ArchiveFile.write
    full = threading.Event()

    def write(file: parquet.ArchiveFile, batches: list[Any]) -> None:
        if not full.is_set():
            full.set()
            raise OSError(28, "No space left on device")
        real(file, batches)

    monkeypatch.setattr(parquet.ArchiveFile, "write", write)
    hand(writer, "a", "b")
    writer.start()
    until(full.is_set)
    hand(writer, "c")
    until(lambda: topics(directory) == ["c"])
    writer.close(10)
    assert own(directory) == [("gap", 3), ("stopped", 0)]  # a, b, and that it started
    assert "No space left on device" in caplog.text


def test_an_event_that_makes_no_rows_is_a_gap(make: Any, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(now: int) -> list[Row]:
        raise ValueError("no rows")

    writer = make()
    writer.start()
    writer.add(1, 0, broken)
    hand(writer, "a")
    writer.close(10)
    assert topics(directory) == ["a"]
    assert ("gap", 1) in own(directory)
    assert "cannot be made" in caplog.text


def test_one_process_writes_at_a_time(
    make: Any, directory: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first = make()
    clock.now += 1000
    second = make()
    first.start()
    hand(first, "first")
    until(lambda: not first._events)
    second.start()
    hand(second, "second")
    until(lambda: "another process writes" in caplog.text)
    first.close(10)
    until(lambda: not second._events)
    second.close(10)
    assert topics(directory) == ["first", "second"]


def test_what_a_killed_bridge_left_is_removed(make: Any, directory: Path) -> None:
    left = directory / "date=2026-03-01" / "hour=03" / ".1.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")
    writer = make()
    writer.start()
    writer.close(10)
    assert not left.exists()


def test_days_beyond_the_retention_are_removed(make: Any, directory: Path) -> None:
    today = datetime.now(UTC).date()
    days = [directory / f"date={today - timedelta(days=days)}" for days in (2, 3, 4)]
    for day in days:
        day.mkdir(parents=True)
    writer = make(retention_days=3)
    writer.start()
    until(lambda: not days[2].exists())
    writer.close(10)
    assert days[0].exists() and days[1].exists()


def test_a_directory_that_cannot_be_written_is_said_at_the_start(make: Any, directory: Path) -> None:
    directory.write_text("a file")
    with pytest.raises(ArchiveError, match=r"cannot be written to .*archive: File exists; see archive\.directory"):
        make()


def test_without_pyarrow_the_extra_is_named(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "bridge.archive.parquet":
            raise ImportError("No module named 'pyarrow'", name="pyarrow")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ArchiveError, match=r"pyarrow is not installed: pip install 'mq-mqtt-bridge\[archive\]'"):
        make()
