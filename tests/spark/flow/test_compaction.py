"""Small files become few: each row is there once for readers, and for a batch that is run again, whatever is killed when."""

from __future__ import annotations

import errno
import shutil
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.archive import directory as archive_directory
from bridge.spark.flow import table
from bridge.spark.flow.administration import compaction
from bridge.spark.flow.administration.compaction import Compaction
from bridge.spark.flow.administration.given_up import done, note_given_up
from bridge.spark.flow.administration.scheduled_compaction import ScheduledCompaction
from bridge.spark.task import Identity
from tests.helpers.patience import PATIENCE, until
from tests.spark.flow.conftest import Bench

QUERY, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
NOW = datetime(2026, 1, 2, 12, 30, tzinfo=UTC)
MB = 1_000_000


def write(directory: Path, query: str, batch: int, *, hour: str = "05", partition: int = 0, column: str = "n") -> None:
    numbers = [batch * 3, batch * 3 + 1, batch * 3 + 2]
    rows = pa.record_batch({"date": ["2026-01-02"] * 3, "hour": [hour] * 3, column: numbers})
    table.write_all(str(directory), Identity(query, partition, batch), [rows])


def read(directory: Path) -> list[Any]:
    tables = [pq.read_table(file, partitioning=None) for file in archive_directory.files(directory)]
    return sorted(number for one in tables for number in one[0].to_pylist())


def compact(directory: Path, last: int | None = 4, target: int = MB) -> list[tuple[int, int]]:
    return [(one.before, one.after) for one in Compaction(directory, {QUERY: last}, target).run(NOW)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of batches 0 to 5, of which 5 may be run again, and one of a query that nobody knows."""
    for batch in range(6):
        write(tmp_path, QUERY, batch)
    write(tmp_path, OTHER, 100)
    return tmp_path


def test_files_of_batches_that_are_done_are_joined(directory: Path) -> None:
    rows = read(directory)
    write(directory, QUERY, 6, hour="12")
    write(directory, QUERY, 7, hour="11")  # ended half an hour ago
    assert compact(directory, last=7) == [(7, 2)]
    assert compact(directory, last=7) == []
    assert read(directory) == sorted([*rows, *range(18, 24)])
    (hour,) = directory.glob("date=*/hour=05")
    assert [one for one in hour.iterdir() if one.name.startswith(".")] == []
    # More comes for the hour, late.
    write(directory, QUERY, 8)
    assert compact(directory, last=8) == [(3, 2)]


def test_a_batch_that_is_run_again_replaces_its_file(directory: Path) -> None:
    rows = read(directory)
    assert compact(directory) == [(7, 3)]
    write(directory, QUERY, 5)
    assert read(directory) == rows


def test_files_of_other_columns_and_large_ones_stay_apart(directory: Path) -> None:
    write(directory, QUERY, 6, column="m")
    write(directory, QUERY, 7, column="m")
    size = next(directory.glob(f"date=*/hour=*/{QUERY}-*")).stat().st_size
    assert compact(directory, last=7, target=size) == []
    assert compact(directory, last=7, target=round(size * 2.5)) == [(9, 5)]
    rows = read(directory)
    assert compact(directory, last=7) == [(5, 3)]
    assert read(directory) == rows


class Killed(BaseException):
    """The process ends here."""


def test_killed_at_each_step(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read(directory)
    steps = 0

    def killed_at(step: int) -> bool:
        """Compact, killed at that step; return whether it came so far. A writer has a file for the hour meanwhile."""
        seen = 0

        def reached() -> None:
            nonlocal seen
            seen += 1
            if seen == step:
                raise Killed

        def watched(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                reached()
                made = function(*arguments, **options)
                reached()
                return made

            return call

        def halved(directory: Path, **_: Any) -> None:
            """What rmtree has done when it is killed."""
            for one in list(directory.iterdir() if directory.exists() else ()):
                reached()
                one.unlink()
            rmtree(directory, ignore_errors=True)

        def exchanged(one: Path, other: Path) -> None:
            write(one.parents[1], QUERY, 6)
            exchange(one, other)

        exchange, rmtree = compaction._exchange, shutil.rmtree
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "_exchange", watched(exchanged))
            patch.setattr(compaction, "_join", watched(compaction._join))
            patch.setattr(compaction.os, "link", watched(compaction.os.link))
            patch.setattr(compaction.shutil, "rmtree", halved)
            patch.setattr(Path, "rename", watched(Path.rename))
            try:
                compact(directory)
            except Killed:
                return True
        return False

    original = directory.parent / "original"
    shutil.copytree(directory, original)
    while killed_at(steps := steps + 1):
        # The file that came in between is a reader's a moment later, at the latest when the next compaction begins.
        assert read(directory) in (rows, sorted([*rows, 18, 19, 20])), steps
        compact(directory)
        assert read(directory) in (rows, sorted([*rows, 18, 19, 20])), steps
        assert len(archive_directory.files(directory)) in (3, 4)
        hidden = [one for one in directory.rglob(".*") if one.name != compaction.LOCK]
        assert hidden == [], steps
        written = [*directory.rglob(f"{QUERY}-00000006*")]
        assert len(written) == (read(directory) != rows)
        shutil.rmtree(directory)
        shutil.copytree(original, directory)
    assert steps > 20
    assert read(directory) == sorted([*rows, 18, 19, 20])


def test_what_is_done(tmp_path: Path) -> None:
    assert done(tmp_path) == {}
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "metadata").write_text(f'{{"id": "{QUERY}"}}')
    assert done(tmp_path) == {}
    for number in (9, 10):
        (tmp_path / "checkpoint" / "commits" / str(number)).touch()
    note_given_up(tmp_path, OTHER)
    note_given_up(tmp_path, OTHER)
    assert done(tmp_path) == {QUERY: 10, OTHER: None}


class Running:
    """A pipeline that compacts the archive in a directory, without Spark; the batch that it writes is this test's."""

    def __init__(self, directory: Path, state: Path) -> None:
        self.writing, self.lines = threading.Lock(), SimpleQueue[str]()
        note_given_up(state, QUERY)
        to = SimpleNamespace(archive=directory, compact=0.01)
        plan: Any = SimpleNamespace(name="one", directory=state, config=SimpleNamespace(destination=to))
        self.compaction = ScheduledCompaction(plan, self.writing, self.lines.put)

    def told(self) -> str:
        return self.lines.get(timeout=PATIENCE)


def test_a_pipeline_compacts_its_archive_between_its_batches(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Again and again, with a line when there was something to do; small files are joined beside a batch already."""
    rows = read(directory)
    running = Running(directory, tmp_path_factory.mktemp("state"))
    (hour,) = directory.glob("date=*/hour=05")
    with running.writing, running.compaction as compaction:
        until(lambda: (hour.with_name(f".compaction-{hour.name}") / ".compaction.json").exists())
        assert len(archive_directory.files(directory)) == 7
        assert compaction.busy
        running.writing.release()
        assert running.told() == f"one: compacted {hour}: 7 files are 2"
        until(lambda: not compaction.busy)
        write(directory, QUERY, 8)
        assert running.told() == f"one: compacted {hour}: 3 files are 2"
        running.writing.acquire()
    assert running.lines.empty()
    assert read(directory) == sorted([*rows, 24, 25, 26])


def test_an_archive_that_is_not_compacted_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "file")

    monkeypatch.setattr(compaction, "_join", full)
    running = Running(directory, directory.parent / "state")
    with running.compaction:
        assert running.told() == f"one: {directory} is not compacted: [Errno 28] No space left on device: 'file'"
        monkeypatch.undo()
        while not (line := running.told()).endswith("7 files are 2"):
            assert "is not compacted" in line


@pytest.mark.slow
def test_a_pipeline_that_ends_when_all_is_read_compacts_first(bench: Bench) -> None:
    source = bench.queues.queue()
    bench.write(
        """
        pipelines:
          rows:
            from: {mq: {queue: $source}}
            select: SELECT payload:n::int AS n, timestamp'2026-01-02 05:10:00' AS put_time FROM input
            to: {archive: table, compact: 1 h}
            batch: 2
        """,
        source=source,
    )
    bench.queues.put(source, *(b'{"n": %d}' % number for number in range(6)))
    bench.run()
    assert not any("compacted" in line for line in bench.lines)  # there was nothing yet when it began
    bench.run()
    (line,) = [line for line in bench.lines if "compacted" in line]
    assert line == f"rows: compacted {bench.directory}/table/date=2026-01-02/hour=05: 3 files are 1"
    rows = bench.spark.read.parquet(str(bench.directory / "table")).collect()
    assert sorted(row.n for row in rows) == list(range(6))
