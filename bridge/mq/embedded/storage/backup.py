"""A copy of the database of a queue manager, taken while it runs, and a data directory made of such a copy.

Source: SQLite documentation, "SQLite Backup API", "Write-Ahead Logging", "Isolation In SQLite".
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from bridge.mq.embedded.storage import layout
from bridge.mq.embedded.storage.data_directory import hold, is_data_directory
from bridge.mq.embedded.storage.reserve import RESERVE_BYTES
from bridge.mq.embedded.storage.salvage import DATABASE, Findings, examine
from bridge.mq.embedded.storage.store import SCHEMA_VERSION, StoreError, primary_code

#: Mode of a backup: whoever reads it reads all messages.
MODE: Final = 0o600
#: Pages that are copied at a time, 8 MiB: between two such steps others have the disk, and it can be interrupted.
_PAGES: Final = 256
#: Starts that a restored queue manager skips, for those that the lost one may have had since the backup.
_STARTS_SKIPPED: Final = 1_000


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds."""

    #: seconds since the epoch when it was begun: all that had been committed by then is in it
    taken: int
    #: layout of the database, and its size in bytes
    version: int
    size: int
    queues: int
    #: durable ones: of MQTT sessions, mappings and applications
    subscriptions: int
    #: other definitions: topics, records of authorities, channel authentication …
    definitions: int
    #: persistent messages, retained publications and records of sessions among them
    messages: int


def backup(directory: Path, file: Path, *, replace: bool = False) -> Contents:
    """Copy the database of a data directory to a file, whole and checked, while a queue manager may be at work on it.

    It is read by one read transaction: what is in the copy is what was committed at one moment. Commits go on meanwhile,
    and stay in the write-ahead log until the copy is made. The file appears under its name when it is on disk and found
    whole. Raises StoreError, or OSError; a file of that name is then as it was.
    """
    source = directory / DATABASE
    if not source.is_file() or not source.stat().st_size:
        raise StoreError(f"{source}: there is no such database; name the data directory of an embedded queue manager")
    _check_replaceable(file, replace=replace)
    _check_room(source, file)
    with _new(file) as new:
        taken = int(time.time())
        with _translated(file):
            _copy(source, new)
            with closing(sqlite3.connect(new, isolation_level=None)) as copy:
                copy.execute("PRAGMA journal_mode=DELETE")  # one file, which needs no other beside it
                copy.execute("INSERT OR REPLACE INTO fact VALUES ('backup', ?)", (taken,))
        layout.sync(new)
        return _checked(new, f"the copy of {source} (see `mqbridge mq verify {directory}`)")


def restore(file: Path, directory: Path, *, force: bool = False) -> tuple[Contents, Path | None]:
    """Make a data directory of a backup; return what it holds, and where the queue manager is kept that was there before.

    `force` keeps one aside; without it there must be none. An older layout is brought up at the next start. Raises
    StoreError, DataDirectoryInUse or OSError; the directory is then as it was.
    """
    if not file.is_file():
        raise StoreError(f"{file}: there is no such file; name a backup")
    contents = _checked(file, str(file))
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    path = directory / DATABASE
    with closing(hold(directory)):
        there = path.exists() or layout.write_ahead_log(path).exists()
        if there and not force:
            raise StoreError(
                f"{directory} has a queue manager already; name another directory, or --force, which keeps that one aside"
            )
        with _new(path, mode=layout.MODE) as new:
            with _translated(path), file.open("rb") as source, new.open("wb") as target:
                shutil.copyfileobj(source, target, _PAGES * layout.PAGE_SIZE)
            if os.geteuid() == 0:  # the bridge, which has to write it, is not run by root
                owner = directory.stat()
                os.chown(new, owner.st_uid, owner.st_gid)
            with _translated(path), closing(sqlite3.connect(new, isolation_level=None)) as made:
                _skip_starts(made, path if path.exists() else None)
            layout.sync(new)
            _checked(new, f"the copy of {file}")
            kept = _kept_aside(directory) if there else None
    return contents, kept


def _copy(source: Path, new: Path) -> None:
    """Copy a database by SQLite's online backup, in steps. Raises sqlite3.Error."""
    with closing(_read_only(source)) as database, closing(sqlite3.connect(new)) as copy:
        # Without a transaction, each commit of the queue manager would have the backup begin anew.
        database.execute("BEGIN")
        database.execute("SELECT count(*) FROM fact").fetchone()
        database.backup(copy, pages=_PAGES)


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _checked(path: Path, name: str) -> Contents:
    """Return what a backup holds. Raises StoreError where it is damaged, of a newer layout, or none at all."""
    try:
        with closing(_read_only(path)) as database:
            facts = {str(fact): int(value) for fact, value in database.execute("SELECT name, value FROM fact")}
    except (sqlite3.DatabaseError, ValueError) as error:
        raise StoreError(f"{name} is no backup of a queue manager, or damaged: {error}") from error
    version = facts.get("schema", 0)
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{name} was written by a newer bridge (layout {version}, this one reads {SCHEMA_VERSION}); use that one"
        )
    if not version:
        raise StoreError(f"{name} is no database of a queue manager")
    findings = examine(path)
    if findings.damage:
        more = f"; and {len(findings.damage) - 1} more" if len(findings.damage) > 1 else ""
        raise StoreError(f"{name} is damaged: {findings.damage[0]}{more}")
    return _contents(findings, facts, path.stat().st_size)


def _contents(findings: Findings, facts: dict[str, int], size: int) -> Contents:
    kinds = [kind for kind, _, _ in findings.objects]
    queues, subscriptions = kinds.count("QLOCAL"), kinds.count("SUB")
    return Contents(
        taken=facts.get("backup", 0),
        version=facts["schema"],
        size=size,
        queues=queues,
        subscriptions=subscriptions,
        definitions=len(kinds) - queues - subscriptions,
        messages=findings.left,
    )


def _skip_starts(made: sqlite3.Connection, before: Path | None) -> None:
    """Raise the number of starts above any that the queue manager has had since the backup.

    Identifiers of messages begin with it, and none may be given twice: the restored one knows nothing of those given since.
    """
    starts, taken = (_fact(made, name) for name in ("starts", "backup"))
    minutes = max(0, int(time.time()) - taken) // 60 if taken else 0
    reached = 0
    if before is not None:
        with contextlib.suppress(sqlite3.Error), closing(_read_only(before)) as database:
            reached = _fact(database, "starts")
    starts = max(starts + minutes, reached) + _STARTS_SKIPPED
    made.execute("INSERT OR REPLACE INTO fact VALUES ('starts', ?)", (starts,))
    made.execute("DELETE FROM fact WHERE name = 'backup'")


def _fact(database: sqlite3.Connection, name: str) -> int:
    row = database.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row is not None else 0


def _kept_aside(directory: Path) -> Path:
    """Keep the database of a directory, which nobody uses, in another below it as well; return that.

    Its write-ahead log is brought in before: left behind, it would be taken for that of the database that comes.
    """
    path = directory / DATABASE
    kept = directory / time.strftime("before-restore-%Y%m%dT%H%M%S", time.gmtime())
    kept.mkdir(mode=0o750)
    if path.exists():
        # Where this is not possible it is damaged, and kept as it is.
        with contextlib.suppress(sqlite3.Error), closing(layout.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    beside = [one for suffix in ("-wal", "-shm") if (one := Path(f"{path}{suffix}")).exists()]
    for one in [path, *beside] if path.exists() else beside:
        os.link(one, kept / one.name)
    layout.sync(kept)
    layout.sync(directory)
    for one in beside:
        one.unlink()
    layout.sync(directory)
    return kept


def _check_replaceable(file: Path, *, replace: bool) -> None:
    """Raise StoreError where a file is not one that a backup may take the place of."""
    if file.is_dir():
        raise StoreError(f"{file} is a directory; name a file in it")
    # A queue manager has its files open: it would go on with what has no name any more, and all that would be lost.
    if is_data_directory(file.resolve().parent):
        raise StoreError(f"{file} is in the data directory of a queue manager; name a file elsewhere")
    if not file.exists():
        return
    if not file.is_file():
        raise StoreError(f"{file} is a device, a pipe or a socket; name a file")
    if not replace:
        raise StoreError(f"{file} is there already; --force replaces it")


def _check_room(source: Path, file: Path) -> None:
    """Raise StoreError where a backup would fill the disk: that of the queue manager is not to be filled for it."""
    size = sum(one.stat().st_size for one in (source, layout.write_ahead_log(source)) if one.exists())
    parent = file.absolute().parent
    if not parent.is_dir():
        raise StoreError(f"{parent}: there is no such directory")
    disk = os.statvfs(parent)
    spare = RESERVE_BYTES if parent.stat().st_dev == source.stat().st_dev else 0
    if disk.f_bavail * disk.f_frsize < size + spare:
        raise StoreError(f"{parent}: the disk has no room for {size} bytes; name a file on another one")


@contextlib.contextmanager
def _new(path: Path, *, mode: int = MODE) -> Iterator[Path]:
    """Yield a new file, which takes the name `path` when it is on disk; after an error it is gone."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield new
        new.rename(path)
    except BaseException:
        for one in (new, *(Path(f"{new}{suffix}") for suffix in ("-wal", "-shm", "-journal"))):
            one.unlink(missing_ok=True)
        raise
    layout.sync(path.absolute().parent)


@contextlib.contextmanager
def _translated(file: Path) -> Iterator[None]:
    """Raise StoreError, in words, for what SQLite or the system raises."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{file} is not written: {error.strerror or error}") from error
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_FULL:
            raise StoreError(f"{file} is not written: the disk is full") from error
        raise StoreError(f"{file} is not written: {error}") from error

