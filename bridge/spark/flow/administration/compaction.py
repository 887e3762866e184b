"""Compaction of a pipeline's archive: the small files of hours that are over become few. Needs pyarrow, and no Spark.

Parquet files in a directory have no list of their own: who reads them takes those that are there. So an hour is made anew
beside its place, under a name that readers pass by, and both directories are exchanged at once (renameat2): a reader that
lists the hour sees the rows once, whatever is killed when. A file of a batch that may be run again keeps its name, by which
the batch replaces it: only files of batches that are in the commit log of their checkpoint are joined.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from bridge.archive.directory import SUFFIX, UNFINISHED
from bridge.files import durable_file, sync

#: In the directory of an archive, while it is compacted.
LOCK: Final = ".compaction.lock"
#: Bytes of a file, about, where nobody says it.
TARGET: Final = 128_000_000
#: In front of the name of an hour that is made anew, or was there before; in it, and then in its place: what it was made of.
_MADE: Final = f"{UNFINISHED}compaction-"
_MANIFEST: Final = f"{UNFINISHED}compaction.json"
#: How files of a batch are named (`bridge.spark.flow.table`), and those that were joined.
_OF_BATCH: Final = re.compile(r"(?P<query>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(?P<batch>\d{8,})-\d{4,}")
_JOINED: Final = "joined-"
#: Bytes of Arrow's that become a row group.
_GROUP_BYTES: Final = 64 * 1024 * 1024
#: A file of this part of the target is large enough.
_ENOUGH: Final = 0.75
#: An hour is over when it ended so long ago.
_OVER: Final = timedelta(hours=1)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class _Manifest(msgspec.Struct, frozen=True):
    """The files that an hour had when it was made anew: any other came in between."""

    names: list[str]


class Compacted(msgspec.Struct, frozen=True):
    """An hour that was made anew: how many files it had, and has."""

    hour: Path
    before: int
    after: int


class Compaction:
    """Joins files of an archive, each to about `target` bytes at most; whoever makes one has the archive's lock.

    `done` says of the queries whose files may be joined which batch is the last that cannot be run again; None: all.
    `between` is held while an hour takes its place: a lock that keeps batches of this process out.
    """

    def __init__(
        self,
        directory: Path,
        done: Mapping[str, int | None],
        target: int,
        between: AbstractContextManager[object] | None = None,
    ) -> None:
        self._between = nullcontext() if between is None else between
        self._directory = directory
        self._done = done
        self._target = target

    def run(self, now: datetime) -> Iterator[Compacted]:
        """Compact the hours that are over; yield each that is. Raises OSError and pyarrow.ArrowException."""
        for hour in sorted(self._directory.glob("date=*/hour=*")):
            self._recover(hour)
            if (ended := _end(hour)) is None or ended + _OVER > now:
                continue
            if any(one.is_dir() for one in hour.iterdir()):
                continue  # partitions that others have made below it
            names = sorted(one.name for one in hour.iterdir())
            groups = [group for group in self._groups(hour, names) if len(group) > 1]
            if not groups:
                continue
            self._make(hour, names, groups)
            with self._between:
                _exchange(hour, _made(hour))
                self._recover(hour)
            yield Compacted(hour, len(names), len(names) - sum(map(len, groups)) + len(groups))

    def _groups(self, hour: Path, names: list[str]) -> Iterator[list[str]]:
        """Yield names of files that are joined, in their order: of equal columns, and together of the target at most."""
        open_groups: dict[Any, tuple[list[str], int]] = {}
        for name in names:
            size = (hour / name).stat().st_size
            if not self._may_be_joined(name) or size > self._target * _ENOUGH:
                continue
            schema = pq.read_schema(hour / name)
            key = schema.remove_metadata().to_string()
            group, total = open_groups.get(key, ([], 0))
            if total + size > self._target:
                yield group
                group, total = [], 0
            group.append(name)
            open_groups[key] = group, total + size
        for group, _ in open_groups.values():
            yield group

    def _may_be_joined(self, name: str) -> bool:
        if name.startswith(UNFINISHED) or not name.endswith(SUFFIX):
            return False
        if name.startswith(_JOINED):
            return True
        found = _OF_BATCH.fullmatch(name.removesuffix(SUFFIX))
        if found is None or found["query"] not in self._done:
            return False
        last = self._done[found["query"]]
        return last is None or int(found["batch"]) <= last

    def _make(self, hour: Path, names: list[str], groups: list[list[str]]) -> None:
        """Make the hour anew beside its place: what is joined, and links to the other files."""
        made = _made(hour)
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        for group in groups:
            with durable_file(made / f"{_JOINED}{uuid.uuid4().hex}{SUFFIX}") as file:
                _join([hour / name for name in group], file)
        joined = {name for group in groups for name in group}
        for name in names:
            if name not in joined and not name.startswith(UNFINISHED):
                os.link(hour / name, made / name)
        with durable_file(made / _MANIFEST) as file:
            file.write(msgspec.json.encode(_Manifest(names)))

    def _recover(self, hour: Path) -> None:
        """Bring what was begun to its end: an hour that has a manifest is the new one, and the old one goes.

        A file that came to the old one in between is moved. Without a manifest the new one was not finished.
        """
        made, manifest = _made(hour), hour / _MANIFEST
        if not manifest.exists():
            shutil.rmtree(made, ignore_errors=True)
            return
        known = set(msgspec.json.decode(manifest.read_bytes(), type=_Manifest).names)
        if made.is_dir():
            for one in made.iterdir():
                if one.name not in known and not one.name.startswith(UNFINISHED):
                    one.rename(hour / one.name)
            sync(hour)
            shutil.rmtree(made)
        manifest.unlink()


def _join(files: list[Path], sink: Any) -> None:
    """Write the rows of files into one, in their order."""
    schema = pq.read_schema(files[0])
    with pq.ParquetWriter(sink, schema) as writer:
        waiting: list[Any] = []
        for path in files:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    waiting.append(file.read_row_group(group).cast(schema))
                    if sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
                        writer.write_table(pa.concat_tables(waiting))
                        waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def _end(hour: Path) -> datetime | None:
    """Return when an hour ends; None for a directory that is no hour."""
    try:
        begin = datetime.strptime(f"{hour.parent.name} {hour.name}", "date=%Y-%m-%d hour=%H").replace(tzinfo=UTC)
    except ValueError:
        return None
    return begin + timedelta(hours=1)


def _made(hour: Path) -> Path:
    return hour.with_name(f"{_MADE}{hour.name}")


def _exchange(one: Path, other: Path) -> None:
    """Exchange two directories at once, durably. Raises OSError, where the file system cannot do it, too."""
    renameat2: Callable[..., int] = ctypes.CDLL(None, use_errno=True).renameat2
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        error = ctypes.get_errno()
        raise OSError(error, f"this file system does not exchange directories ({os.strerror(error)})", str(one))
    sync(one.parent)
