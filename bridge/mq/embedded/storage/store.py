"""The store of the embedded queue manager: a SQLite database (WAL, synchronous=FULL).

Object definitions and durable subscriptions are rows of ordinary tables. Persistent messages are in a log. Each group of
units of work adds one row, with a batch of the messages that were put and the numbers of the messages that were
removed. Rows without remaining messages are deleted, and rows with few remaining messages are rewritten. A commit is
therefore one INSERT and one fsync, regardless of the number of messages.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from bridge.mq.data_directory import StoreError
from bridge.mq.embedded.queue import LogRow
from bridge.mq.embedded.storage import layout
from bridge.mq.embedded.storage.batch import DIGEST_MASK, LoggedBatch, decode, digest_of, encode
from bridge.mq.embedded.storage.completeness import EPOCH, IDENTITY, End, new_identity, witness_path
from bridge.mq.embedded.storage.layout import SCHEMA_VERSION, batch_checksum, object_checksum
from bridge.witness import Witness, WitnessPosition, create

log = logging.getLogger(__name__)

#: Empty rows are deleted with the next commit when they reach this number or this size in bytes.
DEAD_ROWS = 64
DEAD_BYTES = layout.LOG_BYTES // 4
#: The minimum size of all rows in bytes for rewriting rows.
COMPACTION_FLOOR = 16 * 1024 * 1024
#: The minimum size of a row in bytes for checking the disk space first. Smaller rows fit into the reserve.
LARGE_BATCH = layout.LOG_BYTES // 4
#: Seconds between attempts to roll back a failed commit.
RETRY_INTERVAL = 0.5


class OutOfRoom(sqlite3.OperationalError):
    """The disk has no room for a large row, but smaller ones can still be written."""


def _check(path: Path) -> None:
    """Check the schema, version, structure and completeness of an existing database without writing.

    Raises StoreError, OSError or sqlite3.Error.
    """
    if not path.stat().st_size:
        raise StoreError(
            f"{path}: the file is empty and the messages of its queue manager are lost; hint: put a copy of the "
            "file in its place, or move the data directory away to begin with a new queue manager"
        )
    end = End.of(path)
    # When it is closed, a writable connection would copy an incomplete log into the database and delete the log.
    with contextlib.closing(layout.connect_read_only(path)) as database:
        if strange := layout.differences(database):
            raise StoreError(damaged(path, "; ".join(strange)))
        row = database.execute("SELECT value FROM fact WHERE name = 'schema'").fetchone()
        if row is not None and int(row[0]) > SCHEMA_VERSION:
            raise StoreError(
                f"{path} was written by a newer bridge (layout {row[0]}, this one reads {SCHEMA_VERSION}); hint: start "
                "the newer bridge"
            )
        if damage := layout.damage(database):
            raise StoreError(damaged(path, damage))
        if missing := end.missing(database, path):
            raise StoreError(incomplete(path, missing))


class Store:
    """The database of one queue manager. `write` runs on the recovery log's thread, all else before that thread starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.exists():
                _check(path)
            elif witness_path(path).exists():
                raise StoreError(
                    f"{path} is missing, and the messages of its queue manager are lost; hint: put a copy of the file "
                    "in its place, restore a backup with `mqbridge data restore --force`, or move the data directory away"
                )
            else:
                layout.create(path)
            self._database = layout.connect(path)
            # On a full disk, the log can be written only from its beginning, where its blocks are already allocated.
            with contextlib.suppress(sqlite3.Error):
                self.checkpoint("PASSIVE")
            version = self._fact("schema", SCHEMA_VERSION)
            if version < SCHEMA_VERSION:
                layout.upgrade(self._database, path, version)
            #: number of starts of this queue manager, including this start
            self.starts = self._fact("starts", 0) + 1
            self._set_fact("starts", self.starts)
            #: when the database was created, in seconds since the epoch
            self.created = self._fact("created", int(time.time()))
            row = self._database.execute("SELECT coalesce(max(id), 0) FROM batch").fetchone()
            self._last_row = int(row[0])
            self._open_log = layout.OpenLog(path)
            self._witness = self._opened_witness()
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise StoreError(unusable(path, error)) from error
        except OSError as error:
            raise StoreError(f"{path}: {error}; hint: is it writable for the user that runs the bridge?") from error
        #: whether recording the last commit in the witness failed
        self.witness_failing = False
        #: rows of the log, and the sum of their digests
        self._rows = self._digest = 0
        #: sum of the digests of all definitions
        self._definitions = 0

    def _opened_witness(self) -> Witness:
        """Open the witness. Create it for a new database and for a database of an older release."""
        identity = self._fact(IDENTITY, 0)
        if not identity:
            identity = new_identity()
            create(
                witness_path(self.path),
                WitnessPosition(identity, self.starts, self._last_row, time.time()),
                layout.MODE,
            )
            self._set_fact(IDENTITY, identity)
        #: the identity since the last restore or salvage, or 0 if the database was never restored
        self.epoch = self._known_fact(EPOCH) or 0
        witness = Witness(witness_path(self.path), identity, self.starts)
        witness.record(self._last_row)
        return witness

    def _fact(self, name: str, otherwise: int) -> int:
        if (value := self._known_fact(name)) is None:
            self._set_fact(name, otherwise)
            return otherwise
        return value

    def _known_fact(self, name: str) -> int | None:
        row = self._database.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return None if row is None else int(row[0])

    def _set_fact(self, name: str, value: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def objects(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield definitions of objects: (kind, name, attributes). Raises StoreError."""
        return self._read_definitions("kind <> 'SUB'")

    def subscriptions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield durable subscriptions: (name, attributes). Raises StoreError."""
        return ((name, attributes) for _, name, attributes in self._read_definitions("kind = 'SUB'"))

    def _read_definitions(self, condition: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        try:
            rows = self._database.execute(
                f"SELECT kind, name, attributes, checksum FROM object WHERE {condition} ORDER BY kind, name"
            )
            for kind, name, attributes, checksum in rows:
                if checksum != object_checksum(kind, name, attributes):
                    raise StoreError(damaged(self.path, f"the definition of {kind} {name} is not as it was written"))
                yield kind, name, msgspec.json.decode(attributes)
        except (sqlite3.DatabaseError, msgspec.DecodeError, UnicodeError, TypeError) as error:
            raise StoreError(unusable(self.path, error)) from error

    def batches(self) -> Iterator[tuple[LogRow, LoggedBatch]]:
        """Yield the rows of the log in order. Raises StoreError if a row or a definition is damaged or missing."""
        last = LoggedBatch([], [])
        try:
            for (checksum,) in self._database.execute("SELECT checksum FROM object"):
                self._definitions = (self._definitions + digest_of(checksum)) & DIGEST_MASK
            for row_id, body, checksum in self._database.execute("SELECT id, body, checksum FROM batch ORDER BY id"):
                if checksum != batch_checksum(row_id, body):
                    raise StoreError(damaged(self.path, f"batch {row_id} of the log is not as it was written"))
                last = batch = decode(body)
                self._rows += 1
                self._digest = (self._digest + digest_of(row_id)) & DIGEST_MASK
                yield LogRow(row_id, len(body)), batch
        except (sqlite3.DatabaseError, msgspec.DecodeError, TypeError) as error:
            raise StoreError(damaged(self.path, f"the log cannot be read: {error}")) from error
        if last.rows >= 0 and (last.rows, last.digest) != (self._rows, self._digest):
            raise StoreError(damaged(self.path, f"the log has {self._rows} batches where it had {last.rows}"))
        if last.definitions >= 0 and last.definitions != self._definitions:
            raise StoreError(damaged(self.path, "definitions are not as they were at the last commit"))

    def write(
        self, batch: LoggedBatch, definitions: Sequence[tuple[str, str, str | None]], dead_rows: Sequence[LogRow]
    ) -> tuple[int, int]:
        """Commit to disk: a batch of the log, definitions (kind, name, JSON or None to delete), rows to delete.

        Return (row id, size in bytes) of the batch, after syncing. If this raises, nothing was written, not even after a
        crash.
        """
        row_id = self._last_row + 1
        latest = {(kind, name): attributes for kind, name, attributes in definitions}
        checksums = {
            (kind, name): object_checksum(kind, name, attributes)
            for (kind, name), attributes in latest.items()
            if attributes is not None
        }
        batch.rows = self._rows + 1 - len(dead_rows)
        digest = sum(digest_of(row.id) for row in dead_rows)
        batch.digest = (self._digest + digest_of(row_id) - digest) & DIGEST_MASK
        changed = sum(map(digest_of, checksums.values())) - sum(map(digest_of, self._checksums(latest)))
        batch.definitions = (self._definitions + changed) & DIGEST_MASK
        batch.committed = time.time()
        body = encode(batch)
        if len(body) >= LARGE_BATCH:
            self._check_room(len(body), sum(row.size for row in dead_rows))
        database = self._database
        try:
            if latest or dead_rows:
                database.execute("BEGIN IMMEDIATE")
            for (kind, name), attributes in latest.items():
                if attributes is None:
                    database.execute("DELETE FROM object WHERE kind = ? AND name = ?", (kind, name))
                else:
                    database.execute(
                        "INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?)",
                        (kind, name, attributes, checksums[kind, name]),
                    )
            if dead_rows:
                numbers = msgspec.json.encode([row.id for row in dead_rows]).decode()
                database.execute("DELETE FROM batch WHERE id IN (SELECT value FROM json_each(?))", (numbers,))
            database.execute("INSERT INTO batch VALUES (?, ?, ?)", (row_id, body, batch_checksum(row_id, body)))
            if database.in_transaction:
                database.execute("COMMIT")
        except BaseException:
            self._back_out()
            raise
        self._last_row, self._rows, self._digest = row_id, batch.rows, batch.digest
        self._definitions = batch.definitions
        self._update_witness()
        return row_id, len(body)

    def _checksums(self, keys: Iterable[tuple[str, str]]) -> Iterator[int]:
        """Yield the checksums of the definitions with these kinds and names that exist. Raises sqlite3.Error."""
        for key in keys:
            row = self._database.execute("SELECT checksum FROM object WHERE kind = ? AND name = ?", key).fetchone()
            if row is not None:
                yield row[0]

    def _update_witness(self) -> None:
        """Record the last commit in the witness, before the commit is acknowledged."""
        try:
            self._witness.record(self._last_row)
        except OSError as error:
            if not self.witness_failing:
                log.error("MQB3012E %s: recording a commit failed: %s", witness_path(self.path), error)
            self.witness_failing = True
        else:
            self.witness_failing = False

    def _back_out(self) -> None:
        """Roll back a failed transaction and remove it from the write-ahead log.

        A transaction whose fsync failed is complete in the log. After a crash, SQLite would regard it as committed, although
        a backout was reported. So the log is truncated after the last committed transaction before the outcome is reported.
        """
        is_reported = False
        while True:
            try:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                self._open_log.cut()
            except (sqlite3.Error, OSError) as error:
                if not is_reported:
                    log.critical("MQB3001S %s: a commit and its rollback failed: %s; retrying", self.path, error)
                    is_reported = True
                time.sleep(RETRY_INTERVAL)
                continue
            return

    def checkpoint(self, mode: Literal["PASSIVE", "TRUNCATE"]) -> None:
        """Copy the write-ahead log into the database. TRUNCATE also truncates the log, and waits for readers.

        Raises sqlite3.Error. Source: SQLite documentation, "PRAGMA wal_checkpoint".
        """
        self._database.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log in bytes."""
        return layout.write_ahead_log(self.path).stat().st_size

    def spare_bytes(self) -> int:
        """Return the size of the database's free pages in bytes. Raises sqlite3.Error."""
        (pages,) = self._database.execute("PRAGMA freelist_count").fetchone()
        return int(pages) * layout.PAGE_SIZE

    def _check_room(self, size: int, freed: int) -> None:
        """Raise OutOfRoom if the disk has no room for a row in the write-ahead log and then in the database."""
        disk = os.statvfs(self.path.parent)
        if disk.f_bavail * disk.f_frsize < size + max(size - freed - self.spare_bytes(), 0):
            raise OutOfRoom(
                f"a unit of work of {size} bytes needs {2 * size} bytes on the disk until the next checkpoint"
            )

    def close(self) -> None:
        """Close the database. Each commit has synced the log."""
        self._database.close()
        self._open_log.close()
        self._witness.close()


def primary_code(error: Exception) -> int:
    """Return the primary SQLite result code of an error, or SQLITE_OK if it is not an SQLite error."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF


#: SQLite errors of the disk, which do not indicate a damaged database.
_OF_THE_DISK = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
)


def unusable(path: Path, error: Exception) -> str:
    """Return the error text for a database that cannot be opened, because it is damaged or the disk fails."""
    if primary_code(error) in _OF_THE_DISK:
        return (
            f"{path} cannot be used: {error}. Nothing was changed; hint: check that the disk has room, is writable and has "
            "no errors, and start again"
        )
    return damaged(path, str(error))


def damaged(path: Path, damage: str) -> str:
    """Return the error text for a damaged database."""
    return (
        f"{path} is damaged: {damage}. Nothing was changed; hint: `mqbridge data verify {path.parent}` lists the damage, "
        f"`mqbridge data salvage {path.parent} NEW-DIRECTORY` saves the undamaged contents"
    )


def incomplete(path: Path, missing: str) -> str:
    """Return the error text for a database that lacks commits."""
    return (
        f"{path}: {missing}. Nothing was changed; hint: copy the directory, then restore a backup with `mqbridge data "
        f"restore --force FILE`, or accept the loss with `mqbridge data salvage --accept-loss {path.parent} NEW-DIRECTORY`"
    )
