"""Whether an archive has all of its files, unchanged.

The name of a file contains its number, the number of the first file of its day, and its CRC-32. The number of the last file
is in a witness (`bridge.witness`). So missing and damaged files are detected. The oldest days may be deleted, like with
`archive.retention_days`. Files of release 0.2.0 have other names, and are not checked. That release does not maintain the
witness, so after a downgrade it may remove the days of all files that have numbers.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from bridge.archive.schema import SUFFIX, archive_files
from bridge.files import checksum_of
from bridge.witness import Witness, WitnessDamaged, WitnessPosition, create, read

WITNESS: Final = ".witness"
_PATH: Final = re.compile(rf"/date=(\d{{4}}-\d\d-\d\d)/hour=(\d\d)/\d+-(\d+)-(\d+)-([0-9a-f]{{8}}){re.escape(SUFFIX)}$")
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
_HOUR: Final = timedelta(hours=1)
#: Losses that a start reports one by one.
_REPORTED: Final = 10
#: The last bytes of a Parquet file.
_END: Final = b"PAR1"


class ArchiveDamaged(Exception):
    """Files of an archive are missing or damaged. The message specifies them, and a remedy."""


class NumberedFile(NamedTuple):
    """A file of an archive. Files sort by number."""

    number: int
    #: number of the first file of its day
    first: int
    checksum: int
    path: Path
    #: the beginning of its hour
    hour: datetime

    @classmethod
    def of(cls, path: Path) -> NumberedFile | None:
        """Return the file with this path, or None if its name has no number."""
        match = _PATH.search(str(path))
        if match is None:
            return None
        hour = datetime.fromisoformat(match[1]).replace(hour=int(match[2]), tzinfo=UTC)
        return cls(int(match[3]), int(match[4]), int(match[5], 16), path, hour)


def file_name(sequence: int, number: int, first: int, checksum: int) -> str:
    """Return the name of a file. `sequence` is the number of its first row. Names sort in the order of rows."""
    return f"{sequence:016d}-{number}-{first}-{checksum:08x}{SUFFIX}"


class FileNumbers:
    """The numbers of new files of an archive. Only the process that has locked the archive may use it. Raises OSError."""

    def __init__(self, directory: Path) -> None:
        files, position = _numbered_files(directory), _position(directory)
        end = [loss.text for loss in _missing_end(directory, files, position)]
        damage = [*(loss.text for loss in _gaps(directory, files)), *_cut_off(files), *end]
        more = [f"{len(damage) - _REPORTED} more"] if len(damage) > _REPORTED else []
        #: a sentence about missing and truncated files, or blank. Only `losses` reads whole files
        self.damage = "; ".join(damage[:_REPORTED] + more)
        last = files[-1].number if files else 0
        if not isinstance(position, WitnessPosition):
            # After damage, a number is left out. So readers notice later that files may be missing there.
            position = WitnessPosition(secrets.randbits(62) + 1, 0, last + bool(end), time.time())
            create(directory / WITNESS, position)
        self._witness = Witness(directory / WITNESS, position.identity)
        self._last = max(last, position.number)
        self._day, self._first = (files[-1].path.parent.parent.name, files[-1].first) if files else ("", 0)

    def following(self, hour: Path) -> tuple[int, int]:
        """Return the number of the next file, and of the first one of its day. `hour` is the directory of the file."""
        if hour.parent.name != self._day:
            self._day, self._first = hour.parent.name, self._last + 1
        return self._last + 1, self._first

    def record(self) -> None:
        """Count a file that is on disk. Raises OSError if it cannot be recorded."""
        self._last += 1
        self._witness.record(self._last)

    def forget(self) -> None:
        """Record that the archive has no files. Call it before the last ones are removed. Raises OSError."""
        self._witness.record(0)

    def close(self) -> None:
        self._witness.close()


def is_archive(directory: Path) -> bool:
    """Return whether a directory is that of an archive."""
    return (directory / WITNESS).exists() or bool(archive_files(directory))


class Loss(NamedTuple):
    """Files that are missing, may be missing, or are damaged."""

    text: str
    #: the hours of their rows: the beginning of the first one, and of the last one
    first: datetime
    last: datetime
    #: a damaged file
    file: Path | None = None

    @property
    def end(self) -> datetime:
        """The end of the last hour."""
        return self.last + _HOUR


def refuse(loss: Loss) -> None:
    """Raise ArchiveDamaged."""
    raise ArchiveDamaged(f"{loss.text}; hint: restore the files from a copy of the archive, or use --accept-loss")


def complete_files(
    directory: Path,
    start: datetime | None = None,
    end: datetime | None = None,
    report: Callable[[Loss], None] = refuse,
) -> list[Path]:
    """Return the files like `archive_files`, except damaged ones. `report` is called for each loss. Raises OSError."""
    damaged = set()
    for loss in losses(directory, start, end):
        report(loss)
        damaged.add(loss.file)
    return [file for file in archive_files(directory, start, end) if file not in damaged]


def losses(directory: Path, start: datetime | None = None, end: datetime | None = None) -> Iterator[Loss]:
    """Yield the losses of an archive from the hour of `start` to the hour of `end`, both included. Raises OSError."""
    first, last = start or _EARLIEST, end or _LATEST
    position = _position(directory)  # Before the names, because a bridge may be writing.
    files = _numbered_files(directory)
    damaged = (
        Loss(f"{file.path} is damaged: its checksum is wrong", file.hour, file.hour, file.path)
        for file in files
        if file.hour <= last and file.hour + _HOUR > first and checksum_of(file.path) != file.checksum
    )
    for loss in itertools.chain(_gaps(directory, files), _missing_end(directory, files, position), damaged):
        if loss.first <= last and loss.end > first:
            yield loss


def _numbered_files(directory: Path) -> list[NumberedFile]:
    files = (NumberedFile.of(path) for path in archive_files(directory))
    return sorted(file for file in files if file is not None)


def _position(directory: Path) -> WitnessPosition | str:
    """Return the content of the witness, or a description of its damage. Raises OSError."""
    path = directory / WITNESS
    try:
        return read(path) or f"{path} is missing"
    except WitnessDamaged as error:
        return str(error)


def _gaps(directory: Path, files: list[NumberedFile]) -> Iterator[Loss]:
    """Yield the gaps before files. Whole days may be missing at the beginning."""
    if files and files[0].number > files[0].first:
        file = files[0]
        text = _missing(directory, file.first, file.number - 1, f"before {file.path}")
        yield Loss(text, file.hour.replace(hour=0), file.hour)
    for before, file in itertools.pairwise(files):
        if file.number > before.number + 1:
            text = _missing(directory, before.number + 1, file.number - 1, f"between {before.path} and {file.path}")
            yield Loss(text, before.hour, file.hour)


def _missing_end(directory: Path, files: list[NumberedFile], position: WitnessPosition | str) -> Iterator[Loss]:
    """Yield the gap at the end, or that the end is unknown."""
    last, hour = (files[-1].number, files[-1].hour) if files else (0, _EARLIEST)
    if isinstance(position, str):
        if files or (directory / WITNESS).exists():
            yield Loss(f"files of the archive may be missing: {position}", hour, max(hour, datetime.now(UTC)))
    elif last < position.number:
        finished = datetime.fromtimestamp(position.time, UTC)
        unnumbered = [] if files else archive_files(directory)
        if unnumbered and unnumbered[0].parent.parent.name > f"date={finished:%F}":
            return  # release 0.2.0 wrote after the last file with a number, and has removed the days before
        text = _missing(directory, last + 1, position.number, f"the last one was finished at {finished:%F %T} UTC")
        yield Loss(text, hour, max(hour, finished))


def _cut_off(files: list[NumberedFile]) -> Iterator[str]:
    """Yield a sentence for each file without the end of a Parquet file."""
    for file in files:
        try:
            with file.path.open("rb") as content:
                size = content.seek(0, os.SEEK_END)
                content.seek(max(size - len(_END), 0))
                fault = "" if content.read() == _END else "is truncated"
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
        if fault:
            yield f"{file.path} {fault}"


def _missing(directory: Path, first: int, last: int, position: str) -> str:
    files = f"file {first} is" if first == last else f"files {first} to {last} are"
    return f"archive {directory}: {files} missing, {position}"
