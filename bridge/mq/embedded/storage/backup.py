"""Backups of a queue manager's database, taken while the queue manager runs, and data directories restored from them.

Source: SQLite documentation, "SQLite Backup API", "Write-Ahead Logging", "Isolation In SQLite".
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from bridge.files import sync
from bridge.mq.embedded.storage import layout
from bridge.mq.embedded.storage.layout import SCHEMA_VERSION, acting_as_owner, hold, is_data_directory
from bridge.mq.embedded.storage.reserve import RESERVE_BYTES
from bridge.mq.embedded.storage.salvage import DATABASE, Findings, examine
from bridge.mq.embedded.storage.store import StoreError, primary_code

#: Mode of a backup, which contains all messages.
MODE: Final = 0o600
#: Pages that are copied at a time, 8 MiB. Other processes use the disk between these steps, and a signal is handled there.
_PAGES: Final = 256
#: Starts that a restored queue manager skips: the lost one may have had so many since the backup.
_STARTS_SKIPPED: Final = 1_000


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup."""

    #: seconds since the epoch when the backup was started; it contains everything committed by then
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
    """Copy the database of a data directory to a file and check the copy. A queue manager may be using the database.

    One read transaction reads the database, so the copy has what was committed at one moment. Commits continue meanwhile and
    stay in the write-ahead log until the copy is complete. The file gets its name when it is on disk and was checked. If
    root runs the process, the file belongs to the owner of its directory. Raises StoreError, or OSError; an existing file
    is then unchanged.
    """
    source = directory / DATABASE
    if not source.is_file() or not source.stat().st_size:
        raise StoreError(f"{source}: there is no such database; name the data directory of an embedded queue manager")
    _check_replaceable(file, replace=replace)
    _check_room(source, file)
    taken = int(time.time())
    with closing(_in_transaction(source)) as database, acting_as_owner(file.absolute().parent), _new(file) as new:
        with _translated(file):
            _copy(database, new)
            with closing(sqlite3.connect(new, isolation_level=None)) as copy:
                copy.execute("PRAGMA journal_mode=DELETE")  # one file, which needs no other next to it
        contents = _checked(new, f"the copy of {source} (see `mqbridge mq verify {directory}`)")
        with _translated(file), closing(sqlite3.connect(new, isolation_level=None)) as copy:
            copy.execute("INSERT OR REPLACE INTO fact VALUES ('backup', ?)", (taken,))
        sync(new)
    return msgspec.structs.replace(contents, taken=taken)


def restore(file: Path, directory: Path, *, force: bool = False) -> tuple[Contents, Path | None]:
    """Create a data directory from a backup. Return the backup's contents, and where a previous queue manager is kept.

    `force` keeps a previous queue manager in a directory below; without it there must be none. The next start upgrades an
    older layout. If root runs the process, everything in the directory is done with the rights of the directory's owner.
    Raises StoreError, DataDirectoryInUse or OSError; the directory is then unchanged.
    """
    if not file.is_file():
        raise StoreError(f"{file}: there is no such file; name a backup")
    contents = _checked(file, str(file))
    with file.open("rb") as source, acting_as_owner(directory):
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        path = directory / DATABASE
        with closing(hold(directory)):
            there = path.exists() or layout.write_ahead_log(path).exists()
            if there and not force:
                raise StoreError(
                    f"{directory} has a queue manager already; name another directory, or --force, which keeps that one aside"
                )
            with _new(path, mode=layout.MODE) as new:
                with _translated(path), new.open("wb") as target:
                    shutil.copyfileobj(source, target, _PAGES * layout.PAGE_SIZE)
                _checked(new, f"the copy of {file}")  # before anything is written to it, which could fire a trigger
                with _translated(path), closing(layout.connect(new)) as restored:
                    _skip_starts(restored, path if path.exists() else None)
                sync(new)
                kept = _kept_aside(directory) if there else None
    return contents, kept


def _in_transaction(source: Path) -> sqlite3.Connection:
    """Open a database in a read transaction: without one, each commit of the queue manager would restart the backup."""
    try:
        database = layout.connect_read_only(source)
        database.execute("BEGIN")
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{source} cannot be read: {error}") from error
    return database


def _copy(database: sqlite3.Connection, new: Path) -> None:
    """Copy a database by SQLite's online backup, in steps. Raises sqlite3.Error."""
    with closing(sqlite3.connect(new)) as copy:
        database.backup(copy, pages=_PAGES)


def _checked(path: Path, name: str) -> Contents:
    """Return the contents of a backup. Raises StoreError if the file is no backup, damaged, or of a newer layout."""
    try:
        # Nothing next to the file belongs to a backup.
        with closing(layout.connect_read_only(path, immutable=True)) as database:
            strange = layout.differences(database)
            if strange:
                raise StoreError(f"{name} is not a backup that the bridge has made: {'; '.join(strange)}")
            facts = {str(fact): int(value) for fact, value in database.execute("SELECT name, value FROM fact")}
            version = facts.get("schema", 0)
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{name} was written by a newer bridge (layout {version}, this one reads {SCHEMA_VERSION}); use that one"
                )
            if not version:
                raise StoreError(f"{name} is no database of a queue manager")
            structure = layout.damage(database)
    except (sqlite3.DatabaseError, ValueError) as error:
        raise StoreError(f"{name} is no backup of a queue manager, or damaged: {error}") from error
    if structure:
        raise StoreError(f"{name} is damaged: {structure}")
    findings = examine(path, immutable=True)
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
    """Raise the number of starts above any that the queue manager may have reached since the backup.

    Message identifiers begin with this number, and the restored queue manager must not reuse those assigned since.
    """
    starts, taken = (_fact(made, name) for name in ("starts", "backup"))
    minutes = max(0, int(time.time()) - taken) // 60 if taken else 0
    reached = 0
    if before is not None:
        with contextlib.suppress(sqlite3.Error), closing(layout.connect_read_only(before)) as database:
            reached = _fact(database, "starts")
    starts = max(starts + minutes, reached) + _STARTS_SKIPPED
    made.execute("INSERT OR REPLACE INTO fact VALUES ('starts', ?)", (starts,))
    made.execute("DELETE FROM fact WHERE name = 'backup'")


def _fact(database: sqlite3.Connection, name: str) -> int:
    row = database.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row is not None else 0


def _kept_aside(directory: Path) -> Path:
    """Link the database of a directory, which no process uses, into a new directory below; return the new directory.

    The write-ahead log is removed after a checkpoint, because SQLite would apply it to the restored database.
    """
    path = directory / DATABASE
    kept = directory / time.strftime("before-restore-%Y%m%dT%H%M%S", time.gmtime())
    kept.mkdir(mode=0o750)
    if path.exists():
        # If the checkpoint fails, the database is damaged, and kept as it is.
        with contextlib.suppress(sqlite3.Error), closing(layout.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    beside = [one for suffix in ("-wal", "-shm") if (one := Path(f"{path}{suffix}")).exists()]
    for one in [path, *beside] if path.exists() else beside:
        os.link(one, kept / one.name)
    sync(kept)
    sync(directory)
    for one in beside:
        one.unlink()
    sync(directory)
    return kept


def _check_replaceable(file: Path, *, replace: bool) -> None:
    """Raise StoreError if a backup must not replace a file."""
    if file.is_dir():
        raise StoreError(f"{file} is a directory; name a file in it")
    # A running queue manager would continue to write to the file that was replaced, and lose everything in it.
    if is_data_directory(file.resolve().parent):
        raise StoreError(f"{file} is in the data directory of a queue manager; name a file elsewhere")
    if not file.exists():
        return
    if not file.is_file():
        raise StoreError(f"{file} is a device, a pipe or a socket; name a file")
    if not replace:
        raise StoreError(f"{file} is there already; --force replaces it")


def _check_room(source: Path, file: Path) -> None:
    """Raise StoreError if a backup would fill the disk."""
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
    """Yield a new file, which is renamed to `path` at the end of the block, or removed if the block raises."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield new
        new.rename(path)
    except BaseException:
        for one in (new, *(Path(f"{new}{suffix}") for suffix in ("-wal", "-shm", "-journal"))):
            one.unlink(missing_ok=True)
        raise
    sync(path.absolute().parent)


@contextlib.contextmanager
def _translated(file: Path) -> Iterator[None]:
    """Raise StoreError for errors of SQLite and of the operating system in the block."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{file} is not written: {error.strerror or error}") from error
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_FULL:
            raise StoreError(f"{file} is not written: the disk is full") from error
        raise StoreError(f"{file} is not written: {error}") from error
