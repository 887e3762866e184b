"""The layout of the database of an embedded queue manager: create, open, check and upgrade a database.

It is SQLite in WAL mode with synchronous=FULL. Source: SQLite documentation, "Write-Ahead Logging", "WAL-mode File Format".
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import sys
from functools import cache
from pathlib import Path
from zlib import crc32

from bridge.files import sync

log = logging.getLogger(__name__)

#: Version of the layout of the database and so of the data directory. A newer layout is rejected. An older one is copied,
#: then upgraded.
SCHEMA_VERSION = 2

SCHEMA = """
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS object (
    kind TEXT NOT NULL, name TEXT NOT NULL, attributes TEXT NOT NULL, checksum INTEGER, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER);
"""
_SCHEMA_1 = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE object (
    kind TEXT NOT NULL, name TEXT NOT NULL, attributes TEXT NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE batch (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""
_UPGRADE_1 = """
ALTER TABLE object ADD COLUMN checksum INTEGER;
ALTER TABLE batch ADD COLUMN checksum INTEGER;
"""

#: Mode of the database: only the service and its group may read messages. SQLite creates -wal and -shm with the same mode.
MODE = 0o640
PAGE_SIZE = 32_768
#: Size of the write-ahead log, in bytes, at which SQLite starts a checkpoint.
LOG_BYTES = 4 * 1024 * 1024
_WAL_HEADER, _FRAME_HEADER = 32, 24


def batch_checksum(row_id: int, body: bytes) -> int:
    """Return the checksum of a row of the log. It includes the row's id, so exchanged rows are detected."""
    return crc32(body, crc32(row_id.to_bytes(8, "big")))


def object_checksum(kind: str, name: str, attributes: str) -> int:
    """Return the checksum of a definition."""
    return crc32("\0".join((kind, name, attributes)).encode())


def connect(path: Path) -> sqlite3.Connection:
    """Open a database as the queue manager uses it. Raises sqlite3.Error."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute(f"PRAGMA page_size={PAGE_SIZE}")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute(f"PRAGMA wal_autocheckpoint={LOG_BYTES // PAGE_SIZE}")
    database.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
    # Debian's SQLite overwrites deleted content with zeros, which would write each message once more.
    database.execute("PRAGMA secure_delete=FAST")
    return database


def connect_read_only(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """Open a database for reading. Raises sqlite3.Error.

    With `immutable`, no other process may be using the file. Only the file is read, without a write-ahead log or journal.
    """
    query = "?mode=ro&immutable=1" if immutable else "?mode=ro"
    database = sqlite3.connect(f"{path.absolute().as_uri()}{query}", uri=True, isolation_level=None)
    database.execute("PRAGMA trusted_schema=OFF")
    return database


def create(path: Path) -> None:
    """Create a new database. It gets its name when it is complete, so this function never leaves an empty file.

    Raises OSError or sqlite3.Error.
    """
    new = path.with_name(path.name + ".new")
    _remove(new)
    try:
        os.close(os.open(new, os.O_RDWR | os.O_CREAT, MODE))
        # The last connection merges the log into the file and removes it.
        with contextlib.closing(connect(new)) as database:
            database.executescript(SCHEMA)
            database.execute("INSERT INTO fact VALUES ('schema', ?)", (SCHEMA_VERSION,))
        sync(new)
        new.rename(path)
    except BaseException:
        _remove(new)
        raise
    sync(path.parent)


def _remove(path: Path) -> None:
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        file.unlink(missing_ok=True)


def damage(database: sqlite3.Connection) -> str:
    """Return the structural damage that SQLite finds in a database, or ""."""
    reports = [str(row[0]) for row in database.execute("PRAGMA quick_check(3)")]
    return "" if reports == ["ok"] else "; ".join(reports)


def differences(database: sqlite3.Connection) -> list[str]:
    """Return the differences between the schema of a database and the schema that the bridge creates, one sentence each.

    A trigger could remove messages while the queue manager uses the database, and reading a view may never end. So check the
    schema before anything else is read or written. A newer layout is not compared, because its version is reported instead.
    Raises sqlite3.Error.
    """
    entries = _schema_of(database)
    entries_of_versions = [_expected(script) for script in (SCHEMA, _SCHEMA_1, _SCHEMA_1 + _UPGRADE_1)]
    if entries in entries_of_versions:
        return []
    tables = {entry for schema in entries_of_versions for entry in schema}
    if any(entry in tables for entry in entries if entry[1] == "fact"):
        (newest,) = database.execute("SELECT max(value) FROM fact WHERE name = 'schema'").fetchone()
        if isinstance(newest, int) and newest > SCHEMA_VERSION:
            return []
    names = {name for _, name, _ in tables}
    sentences = [
        f"table {name} has an unexpected definition"
        if kind == "table" and name in names
        else f"unexpected {kind} {name!r}"
        for kind, name, sql in entries
        if (kind, name, sql) not in tables
    ]
    sentences += [f"table {name} is missing" for name in sorted(names - {name for _, name, _ in entries})]
    return sentences or ["the tables belong to different layouts"]


def readable_tables(database: sqlite3.Connection) -> set[str]:
    """Return the names of the ordinary tables of a database. Reading them always ends. Raises sqlite3.Error."""
    return {
        str(name)
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
    }


def _schema_of(database: sqlite3.Connection) -> list[tuple[str, str, str]]:
    rows = database.execute("SELECT type, name, sql FROM sqlite_master")
    return sorted((str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in rows)


@cache
def _expected(script: str) -> list[tuple[str, str, str]]:
    """Return the schema that a script creates, as SQLite stores it."""
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(script)
        return _schema_of(database)
    finally:
        database.close()


def upgrade(database: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy a database of an older layout, then upgrade it. Raises OSError or sqlite3.Error, having changed nothing."""
    former = path.with_name(f"{path.name}.layout-{version}")
    if not former.exists():
        unfinished = former.with_name(former.name + ".new")
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT, MODE))
        copy = sqlite3.connect(unfinished)
        try:
            database.backup(copy)
        finally:
            copy.close()
        sync(unfinished)
        unfinished.rename(former)
        sync(path.parent)
    database.create_function("batch_checksum", 2, batch_checksum, deterministic=True)
    database.create_function("object_checksum", 3, object_checksum, deterministic=True)
    database.execute("BEGIN IMMEDIATE")
    try:
        if version < 2:
            for statement in _UPGRADE_1.split(";"):
                database.execute(statement)
            database.execute("UPDATE object SET checksum = object_checksum(kind, name, attributes)")
            database.execute("UPDATE batch SET checksum = batch_checksum(id, body)")
        database.execute("UPDATE fact SET value = ? WHERE name = 'schema'", (SCHEMA_VERSION,))
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise
    log.warning(
        "MQB3010W %s: converted from layout %d to %d; the original was saved as %s",
        path,
        version,
        SCHEMA_VERSION,
        former,
    )


def write_ahead_log(path: Path) -> Path:
    """Return the path of a database's write-ahead log."""
    return Path(f"{path}-wal")


class OpenLog:
    """Descriptors of the write-ahead log and of its index, open for as long as a connection to the database.

    POSIX locks belong to the process. Closing any descriptor of a file drops all of the process's locks on the file,
    including those of SQLite's own descriptor. Other processes would then regard the database as unused and truncate the
    index, which SQLite has mapped into memory. So these two descriptors are opened once, after the connection, and closed
    only after it. Source: SQLite documentation, "How To Corrupt An SQLite Database File", section 2.2.

    SQLite deletes or replaces these files only when the last connection to the database closes. So both descriptors refer to
    the files that SQLite uses.
    """

    def __init__(self, path: Path) -> None:
        """Open both files of a database that is open in WAL mode and has been read. Raises OSError."""
        self._paths = (write_ahead_log(path), Path(f"{path}-shm"))
        self._log = os.open(self._paths[0], os.O_RDWR | os.O_CLOEXEC)
        try:
            self._index = os.open(self._paths[1], os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._log)  # SQLite has no locks on this file
            raise

    def cut(self) -> None:
        """Truncate the write-ahead log after its last committed transaction. Raises OSError.

        The index contains the number of valid frames (mxFrame), which SQLite advances when a commit has been synced.
        """
        for path, descriptor in zip(self._paths, (self._log, self._index), strict=True):
            if not os.path.samestat(path.stat(), os.fstat(descriptor)):
                raise OSError(f"{path} was replaced while the queue manager was running")
        header = os.pread(self._index, 48, 0)
        page_size = int.from_bytes(header[14:16], sys.byteorder)
        page_size = 65_536 if page_size == 1 else page_size
        frames = int.from_bytes(header[16:20], sys.byteorder)
        committed = _WAL_HEADER + frames * (_FRAME_HEADER + page_size)
        if os.fstat(self._log).st_size > committed:
            os.ftruncate(self._log, committed)
            os.fsync(self._log)

    def close(self) -> None:
        """Close both files, after the connection was closed."""
        os.close(self._log)
        os.close(self._index)
