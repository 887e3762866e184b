"""The database file of the embedded queue manager: how it is made, opened, checked, and brought up from an older layout.

SQLite in WAL mode with synchronous=FULL. Source: SQLite documentation, "Write-Ahead Logging", "WAL-mode File Format".
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from pathlib import Path
from zlib import crc32

log = logging.getLogger(__name__)

#: Mode of the database: its messages are nobody's business but the service's and its group's; -wal and -shm take it over.
MODE = 0o640
PAGE_SIZE = 32_768
#: Bytes of the write-ahead log that SQLite lets gather before it brings them into the database.
LOG_BYTES = 4 * 1024 * 1024
_WAL_HEADER, _FRAME_HEADER = 32, 24


def batch_checksum(row_id: int, body: bytes) -> int:
    """Return the checksum of a row of the log: its id counts, so that no row passes for another."""
    return crc32(body, crc32(row_id.to_bytes(8, "big")))


def object_checksum(kind: str, name: str, attributes: str) -> int:
    """Return the checksum of a definition."""
    return crc32("\0".join((kind, name, attributes)).encode())


def connect(path: Path) -> sqlite3.Connection:
    """Open a database as the queue manager uses it. Raises sqlite3.Error."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute(f"PRAGMA page_size={PAGE_SIZE}")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute(f"PRAGMA wal_autocheckpoint={LOG_BYTES // PAGE_SIZE}")
    database.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
    # Debian's SQLite writes zeros over all that is deleted: what was put would be written once more.
    database.execute("PRAGMA secure_delete=FAST")
    return database


def create(path: Path, schema: str, version: int) -> None:
    """Make a new database. It appears under its name when it is whole: a file of 0 bytes was never made here.

    Raises OSError or sqlite3.Error.
    """
    new = path.with_name(path.name + ".new")
    for left in (new, Path(f"{new}-wal"), Path(f"{new}-shm")):
        left.unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT, MODE))
    database = connect(new)
    try:
        database.executescript(schema)
        database.execute("INSERT INTO fact VALUES ('schema', ?)", (version,))
    finally:
        database.close()  # the last connection: the log is merged into the file and removed
    sync(new)
    new.rename(path)
    sync(path.parent)


def damage(database: sqlite3.Connection) -> str:
    """Return what SQLite finds wrong with the structure of a database; blank for nothing."""
    found = [str(row[0]) for row in database.execute("PRAGMA quick_check(3)")]
    return "" if found == ["ok"] else "; ".join(found)


def upgrade(database: sqlite3.Connection, path: Path, version: int, wanted: int) -> None:
    """Bring a database of an older layout up, after a copy of it. Raises OSError or sqlite3.Error, having changed nothing."""
    kept = path.with_name(f"{path.name}.layout-{version}")
    if not kept.exists():
        unfinished = kept.with_name(kept.name + ".new")
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT, MODE))
        copy = sqlite3.connect(unfinished)
        try:
            database.backup(copy)
        finally:
            copy.close()
        sync(unfinished)
        unfinished.rename(kept)
        sync(path.parent)
    database.create_function("batch_checksum", 2, batch_checksum, deterministic=True)
    database.create_function("object_checksum", 3, object_checksum, deterministic=True)
    database.execute("BEGIN IMMEDIATE")
    try:
        if version < 2:
            database.execute("ALTER TABLE object ADD COLUMN checksum INTEGER")
            database.execute("ALTER TABLE batch ADD COLUMN checksum INTEGER")
            database.execute("UPDATE object SET checksum = object_checksum(kind, name, attributes)")
            database.execute("UPDATE batch SET checksum = batch_checksum(id, body)")
        database.execute("UPDATE fact SET value = ? WHERE name = 'schema'", (wanted,))
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise
    log.warning("MQB3010W %s: brought up from layout %d to %d; a copy as it was is %s", path, version, wanted, kept)


def write_ahead_log(path: Path) -> Path:
    """Return the file of a database's write-ahead log."""
    return Path(f"{path}-wal")


def cut_log(path: Path) -> None:
    """Cut the write-ahead log of a database behind its last committed transaction. Raises OSError.

    Which one that is stands in the wal-index (mxFrame), which SQLite advances when a commit has been synced.
    """
    log_path = write_ahead_log(path)
    try:
        header = Path(f"{path}-shm").read_bytes()[:48]
    except FileNotFoundError:
        return
    page_size = int.from_bytes(header[14:16], sys.byteorder)
    page_size = 65_536 if page_size == 1 else page_size
    frames = int.from_bytes(header[16:20], sys.byteorder)
    committed = _WAL_HEADER + frames * (_FRAME_HEADER + page_size)
    if log_path.exists() and log_path.stat().st_size > committed:
        os.truncate(log_path, committed)
        sync(log_path)


def sync(path: Path) -> None:
    """Have what a file or directory holds on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
