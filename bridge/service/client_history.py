"""The history of clients on disk: a bounded number of events for each client and in total, in an SQLite file.

The audit log and the archive contain every event of every client, in the order of time. The history answers one question
quickly, even after the client has left: what happened to this client? One thread writes the events once a second. If it
cannot keep up, or the disk is full, events are lost and counted. Messages are never delayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.administration.answers import ClientEvent, ClientEventKind
from bridge.config.operations import ClientHistoryConfig

log = logging.getLogger(__name__)

#: Seconds between writes, and maximum number of events that wait for the next one.
INTERVAL: Final = 1.0
MAX_WAITING: Final = 10_000
#: Maximum number of rejections that wait. Anyone can cause rejections, under any client identifier.
MAX_REJECTIONS: Final = 200
#: Seconds for which further events of a repeated kind are counted instead of written, and maximum number of such counts.
PERIOD: Final = 60.0
MAX_COUNTS: Final = 10_000
#: Seconds between deletions of events that are too old.
RETENTION_INTERVAL: Final = 600.0
#: Maximum length of a client identifier and of a text, in characters. Only rejected clients have longer identifiers.
_NAME: Final = 100
_TEXT: Final = 300
#: Kinds of events that a message causes. There may be thousands per second.
_REPEATED: Final = frozenset({"publication_rejected", "dead_lettered", "dropped"})
_TABLES: Final = ("event", "rejection")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS {0} (
    number INTEGER PRIMARY KEY AUTOINCREMENT, client TEXT NOT NULL, time REAL NOT NULL, kind TEXT NOT NULL,
    text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS {0}_client ON {0} (client, number);
"""

Row = tuple[str, float, str, str]


class HistoryUnavailable(Exception):
    """The history cannot be opened or read."""


class HistoryDiskFull(HistoryUnavailable):
    """The history cannot be opened until there is space on the disk."""


class HistoryLoss(msgspec.Struct):
    """Events that are missing from the history."""

    events: int = 0
    #: the time of the first and the last failed write, in seconds since the epoch, or 0.0 for never, and the reason
    first: float = 0.0
    last: float = 0.0
    why: str = ""

    def failed(self, events: int, why: str) -> None:
        """Count events that could not be written."""
        self.last = time.time()
        self.first = self.first or self.last
        self.events += events
        self.why = why


class _Count:
    """Events of a repeated kind that are counted until the end of a period."""

    __slots__ = ("due", "number", "text")

    def __init__(self, due: float) -> None:
        self.due = due
        self.number = 0
        self.text = ""


class ClientEventHistory:
    """The events of all clients. Methods are called on the event loop."""

    def __init__(self, config: ClientHistoryConfig, file: Path | None) -> None:
        """Open the file, or keep the events in memory if it is None. Raises HistoryUnavailable."""
        self._config = config
        self._file = file
        #: whether the file has to be opened again: it was found damaged, or the disk was full at the start
        self._is_unusable = False
        self._is_failing = False
        self.loss = HistoryLoss()
        try:
            self._database = _opened(file)
        except HistoryDiskFull as error:  # a full disk must not prevent the start
            self._database = _opened(None)
            self._is_unusable = True
            self._fail(0, str(error))
        self._identity = None if self._is_unusable else _identity_of(file)
        #: number of rows by table
        self._rows = self._counted()
        self._thread = ThreadPoolExecutor(1, "client-history")
        self._stopped = False
        self._waiting: list[Row] = []
        self._rejections: list[Row] = []
        #: (client identifier, kind) -> count
        self._counts: dict[tuple[str, str], _Count] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._retained_at = 0.0

    def add(self, client_id: str, kind: ClientEventKind, text: str, number: int = 1) -> None:
        """Add an event. Repeated events are counted, and written with the text of the last one."""
        client_id = client_id[:_NAME]
        if kind in _REPEATED:
            count = self._counts.get((client_id, kind))
            if count is None:
                if len(self._counts) >= MAX_COUNTS:
                    self.loss.events += number
                    return
                count = self._counts[client_id, kind] = _Count(0.0)
            count.number += number
            count.text = text[:_TEXT]
        else:
            rows, limit = (self._rejections, MAX_REJECTIONS) if kind == "rejected" else (self._waiting, MAX_WAITING)
            if len(rows) >= limit:
                self.loss.events += 1
                return
            rows.append((client_id, time.time(), kind, text[:_TEXT]))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._flush)

    async def events_of(self, client_id: str, rows: int) -> list[ClientEvent]:
        """Return the last events of a client, the newest first. Raises HistoryUnavailable."""
        if self._stopped:
            raise HistoryUnavailable("the bridge is stopping")
        self._flush(now=True)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, self._read, client_id[:_NAME], min(rows, self._config.events_per_client)
            )
        except sqlite3.Error as error:
            raise HistoryUnavailable(f"the history of clients cannot be read: {error}") from error

    async def reload(self, config: ClientHistoryConfig, file: Path | None) -> None:
        """Apply a changed configuration. Raises HistoryUnavailable, and then continues with the previous file."""
        if file != self._file:
            database = await asyncio.to_thread(_opened, file)
            self._flush(now=True)
            await asyncio.get_running_loop().run_in_executor(self._thread, self._replace, file, database)
        self._config = config
        self._retained_at = 0.0

    async def stop(self) -> None:
        """Write the waiting events, and close the file."""
        for count in self._counts.values():
            count.due = 0.0
        self._flush(now=True)
        if self._timer is not None:
            self._timer.cancel()
        self._stopped = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _flush(self, *, now: bool = False) -> None:
        """Start writing the waiting events, unless the thread is still writing the previous ones.

        `now`: add them to the queue of the thread even then.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped:
            return
        if self._writing is None or self._writing.done() or now:
            rows, rejections = self._waiting, self._rejections
            self._waiting, self._rejections = [], []
            rows += self._due(time.time())
            if rows or rejections:
                self._writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, rows, rejections)
        if self._waiting or self._rejections or self._counts:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._flush)

    def _due(self, now: float) -> list[Row]:
        """Return the counted events whose period has ended, and begin their next period."""
        rows = []
        for (client_id, kind), count in list(self._counts.items()):
            if now < count.due <= now + PERIOD:  # otherwise the clock was changed
                continue
            if not count.number:
                del self._counts[client_id, kind]
                continue
            more = f" (and {count.number - 1:,} more within {PERIOD:g} s)" if count.number > 1 else ""
            rows.append((client_id, now, kind, count.text + more))
            count.number, count.due = 0, now + PERIOD
        return rows

    # On the thread ---------------------------------------------------------------------------------------------------

    def _write(self, rows: list[Row], rejections: list[Row]) -> None:
        config, now = self._config, time.time()
        try:
            self._open_again()
            with self._database:
                for table, new, total in (
                    ("event", rows, config.events),
                    ("rejection", rejections, config.events // 10),
                ):
                    self._insert(table, new, total)
                if not 0 <= now - self._retained_at < RETENTION_INTERVAL:
                    for table in _TABLES:
                        self._delete(table, "time < :oldest", [{"oldest": now - config.retention}])
                    self._retained_at = now
        except (sqlite3.Error, HistoryUnavailable) as error:
            # Other errors of the database, such as a full disk, are OperationalErrors.
            self._is_unusable |= type(error) is sqlite3.DatabaseError
            with contextlib.suppress(sqlite3.Error):
                self._rows = self._counted()
            self._fail(len(rows) + len(rejections), str(error))
        else:
            if self._is_failing:
                log.info("MQB2018I writing to the history of clients %s succeeds again", self._file)
            self._is_failing = False

    def _fail(self, events: int, why: str) -> None:
        self.loss.failed(events, why)
        if not self._is_failing:
            log.warning("MQB2017W writing to the history of clients %s failed: %s", self._file, why)
        self._is_failing = True

    def _open_again(self) -> None:
        """Open a file that was removed, replaced or damaged. Raises HistoryUnavailable, and then keeps the previous one.

        SQLite would write to the removed file without an error, and all events would be lost at the end.
        """
        is_same = _identity_of(self._file) == self._identity
        if self._file is None or (is_same and not self._is_unusable):
            return
        was_open = self._identity is not None
        if was_open and not is_same:
            _remove_wal(self._file)
        self._replace(self._file, _opened(self._file))
        if was_open:
            log.warning(
                "MQB2020W the history of clients %s was removed, replaced or damaged; opened it again", self._file
            )

    def _insert(self, table: str, rows: list[Row], total: int) -> None:
        values = "(client, time, kind, text) VALUES (?, ?, ?, ?)"
        self._rows[table] += self._database.executemany(f"INSERT INTO {table} {values}", rows).rowcount if rows else 0
        # For most clients, the subquery returns no row, so nothing is deleted.
        excess = f"SELECT number FROM {table} WHERE client = :client ORDER BY number DESC LIMIT 1 OFFSET :most"
        most = self._config.events_per_client
        clients = {row[0] for row in rows}
        self._delete(
            table,
            f"client = :client AND number <= ({excess})",
            [{"client": client, "most": most} for client in clients],
        )
        if (surplus := self._rows[table] - total) > 0:
            self._delete(
                table, f"number IN (SELECT number FROM {table} ORDER BY number LIMIT :surplus)", [{"surplus": surplus}]
            )

    def _delete(self, table: str, condition: str, values: list[dict[str, Any]]) -> None:
        if values:
            self._rows[table] -= self._database.executemany(f"DELETE FROM {table} WHERE {condition}", values).rowcount

    def _counted(self) -> dict[str, int]:
        return {table: self._database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _TABLES}

    def _read(self, client_id: str, rows: int) -> list[ClientEvent]:
        both = " UNION ALL ".join(
            f"SELECT time, kind, text, number FROM {table} WHERE client = :client" for table in _TABLES
        )
        event_rows = self._database.execute(
            f"{both} ORDER BY time DESC, number DESC LIMIT :rows", {"client": client_id, "rows": rows}
        )
        return [ClientEvent(*row[:3]) for row in event_rows]

    def _replace(self, file: Path | None, database: sqlite3.Connection) -> None:
        self._close()
        self._file, self._database, self._is_unusable = file, database, False
        self._identity = _identity_of(file)
        self._rows = self._counted()

    def _close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._database.close()


def _opened(file: Path | None) -> sqlite3.Connection:
    """Open the file, and begin a new one if it is damaged. Raises HistoryUnavailable."""
    try:
        return _connected(file)
    except sqlite3.DatabaseError as error:
        # A directory that does not exist is an OperationalError. Other faults mean that the file is not a usable database.
        if file is None or isinstance(error, sqlite3.OperationalError):
            raise _unavailable(file, error) from error
        damaged = file.with_name(f"{file.name}.damaged")
        _remove_wal(file)
        try:
            file.replace(damaged)
        except OSError as fault:
            why = f"{file} is damaged and cannot be renamed to {damaged}: {fault.strerror}"
            raise HistoryUnavailable(why) from fault
        log.warning("MQB2019W the history of clients %s is damaged and begins again; renamed it to %s", file, damaged)
    try:
        return _connected(file)
    except sqlite3.DatabaseError as error:
        raise _unavailable(file, error) from error


def _unavailable(file: Path | None, error: OSError | sqlite3.Error) -> HistoryUnavailable:
    if isinstance(error, OSError):
        is_full, why = error.errno in (errno.ENOSPC, errno.EDQUOT), error.strerror
    else:
        is_full, why = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL, str(error)
    return (HistoryDiskFull if is_full else HistoryUnavailable)(f"{file} cannot be opened: {why}")


def _remove_wal(file: Path) -> None:
    """Remove the write-ahead log of a former file: SQLite would apply it to the new one. Raises HistoryUnavailable."""
    for suffix in ("-wal", "-shm"):
        path = file.with_name(f"{file.name}{suffix}")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            why = f"{file} cannot be opened: {path} cannot be removed: {error.strerror}"
            raise HistoryUnavailable(why) from error


def _identity_of(file: Path | None) -> tuple[int, int] | None:
    """Return the device and inode of a file, which differ if it is replaced, or None if there is no file."""
    try:
        status = None if file is None else file.stat()
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def _connected(file: Path | None) -> sqlite3.Connection:
    if file is not None:
        try:
            os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640))
        except OSError as error:
            raise _unavailable(file, error) from error
    database: Any = sqlite3.connect(file or ":memory:", check_same_thread=False, timeout=1.0)
    try:
        # No fsync per write: a power failure may lose the last seconds, but does not damage the file.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA journal_size_limit = 4000000")
        for table in _TABLES:
            database.executescript(_SCHEMA.format(table))
        if (fault := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(fault)
    except BaseException:
        database.close()
        raise
    return database  # type: ignore[no-any-return]
