"""Files that a batch writes exactly once, even if processes are killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bridge.spark import staging
from bridge.spark.staging import BatchFiles, make_stage


def visible(directory: Path) -> list[str]:
    paths = [path.relative_to(directory) for path in directory.rglob("*") if path.is_file()]
    return sorted(str(path) for path in paths if not any(part.startswith(".") for part in path.parts))


def write(target: str, *names: str, complete: bool = True) -> None:
    for name in names:
        path = Path(target, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(target)
    if complete:
        Path(target, "_SUCCESS").touch()


def test_a_batch_is_written_once(tmp_path: Path) -> None:
    calls: list[str] = []

    def batch(target: str) -> None:
        calls.append(target)
        write(target, "day=1/a.parquet", "day=2/b.parquet", ".a.crc")

    for _ in range(2):
        BatchFiles(tmp_path, "query").write(3, batch)
    BatchFiles(tmp_path, "query").write(2, batch)  # of a checkpoint that was restored
    assert len(calls) == 1
    assert visible(tmp_path) == ["day=1/00000003-a.parquet", "day=2/00000003-b.parquet"]
    BatchFiles(tmp_path, "query").write(4, batch)
    BatchFiles(tmp_path, "another").write(3, lambda target: write(target, "c.parquet"))
    assert len(visible(tmp_path)) == 5


def test_an_incomplete_batch_is_invisible_and_written_again(tmp_path: Path) -> None:
    def killed(target: str) -> None:
        write(target, "a.parquet", complete=False)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BatchFiles(tmp_path, "query").write(0, killed)
    assert visible(tmp_path) == []
    BatchFiles(tmp_path, "query").write(0, lambda target: write(target, "b.parquet"))
    assert visible(tmp_path) == ["00000000-b.parquet"]


@pytest.mark.parametrize("moment", [0, 1, 2, 3])
def test_a_batch_that_is_killed_while_files_are_moved(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move is continued, and the batch is not written again."""
    names = [f"{name}.parquet" for name in "abc"]
    sync, moved = staging.sync, 0  # type: ignore[attr-defined]

    def killed(path: Path) -> None:
        nonlocal moved
        if path.is_file() or moment == 3:
            if moved == moment:
                raise KeyboardInterrupt
            moved += path.is_file()
        sync(path)

    monkeypatch.setattr(staging, "sync", killed)
    with pytest.raises(KeyboardInterrupt):
        BatchFiles(tmp_path, "query").write(0, lambda target: write(target, *names))
    monkeypatch.undo()
    assert len(visible(tmp_path)) == moment
    BatchFiles(tmp_path, "query").write(0, lambda target: pytest.fail("written again"))
    assert visible(tmp_path) == [f"00000000-{name}" for name in names]


def test_a_format_that_does_not_report_success(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="has no _SUCCESS"):
        BatchFiles(tmp_path, "query").write(0, lambda target: write(target, "a", complete=False))


def test_a_writer_whose_number_has_changed(tmp_path: Path) -> None:
    """Another destination of the pipeline was removed before the batch is repeated."""
    BatchFiles(tmp_path, "query-1").write(3, lambda target: write(target, "a.parquet"))
    BatchFiles(tmp_path, "query-0").write(3, lambda target: pytest.fail("written again"))
    BatchFiles(tmp_path, "query-dead").write(3, lambda target: write(target, "b.parquet"))
    assert visible(tmp_path) == ["00000003-a.parquet", "00000003-b.parquet"]


def test_files_of_killed_writes_are_deleted_after_30_days(tmp_path: Path) -> None:
    """Those of a write with a `writeId` or of a query are kept, because it may be repeated."""
    names = ("unnamed-1", "unnamed-2", "write%20daily", "query")
    for name in names:
        file = tmp_path / name / "0" / "attempt" / "00000-1.arrow"
        file.parent.mkdir(parents=True)
        file.touch()
        for path in (file, *file.parents[:3]):
            os.utime(path, (0, time.time() - 31 * 24 * 3600))
    os.utime(tmp_path / names[1] / "0" / "attempt")
    make_stage(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
