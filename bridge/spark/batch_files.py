"""Files that a streaming query writes exactly once: the batches of a query, each moved into place when it is complete.

    DIRECTORY/.mqbridge/WRITER/staging   the batch that is being written
    DIRECTORY/.mqbridge/WRITER/last      number of the last batch whose files are all in place

Spark writes a batch to the staging directory. Then the driver syncs each file and renames it to its place below DIRECTORY.
A batch that runs again continues the renames if staging is complete, and starts again if not. A batch up to `last` is
skipped. Names that begin with a dot are invisible to readers, so a reader never sees part of a file, nor a row twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bridge.files import durable_file, sync

#: Spark creates this file when all files of a write are complete.
_SUCCESS: Final = "_SUCCESS"


class BatchFiles:
    """The files of one writer (a query and its role) in a directory that the driver reaches as a path."""

    def __init__(self, directory: Path, writer: str) -> None:
        self._directory = directory
        self._own = directory / ".mqbridge" / writer
        self._staging = self._own / "staging"

    def write(self, batch: int, write: Callable[[str], None]) -> None:
        """Write a batch: `write` writes files below a directory, and `_SUCCESS` when they are complete. Raises OSError."""
        if batch <= self._last():
            return
        staged = self._staging / str(batch)
        if not (staged / _SUCCESS).exists():
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging.mkdir(parents=True)
            write(str(staged))
        if not (staged / _SUCCESS).exists():
            raise OSError(f"{staged} has no {_SUCCESS}: expected mapreduce.fileoutputcommitter.marksuccessfuljobs=true")
        self._move(staged, batch)
        with durable_file(self._own / "last") as file:
            file.write(str(batch).encode())
        shutil.rmtree(self._staging, ignore_errors=True)

    def _last(self) -> int:
        try:
            return int((self._own / "last").read_text(encoding="ascii"))
        except FileNotFoundError:
            return -1

    def _move(self, staged: Path, batch: int) -> None:
        """Move the files of a complete batch to their places, those that are still in staging."""
        changed: set[Path] = set()
        for source in sorted(staged.rglob("*")):
            if source.is_dir() or source.name.startswith(("_", ".")):
                continue
            place = self._directory / source.relative_to(staged).parent / f"{batch:08d}-{source.name}"
            sync(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            source.rename(place)
            changed |= {place.parent, place.parent.parent}
        for directory in changed:
            sync(directory)
