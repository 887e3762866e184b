"""A pre-allocated file, deleted when the disk fills up, so that removals can still be written.

Clients that drain the queues are served from its space. Persistent messages are rejected until the disk has room for the
file again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from pathlib import Path

from bridge.mq.embedded.storage.layout import LOG_BYTES
from bridge.mq.embedded.storage.store import Store, primary_code

log = logging.getLogger(__name__)

#: Size in bytes: the database must have room for the write-ahead log, which is copied into it, and for the log itself.
RESERVE_BYTES = 2 * LOG_BYTES
#: Size in bytes that suffices if the database has so many bytes in free pages that a checkpoint does not extend it.
MIN_RESERVE_BYTES = RESERVE_BYTES * 3 // 4
#: Seconds between attempts to allocate the reserve again.
LOOK_INTERVAL = 5.0


class Reserve:
    """The file, and whether the disk is full. Only the recovery log's thread uses it once that runs.

    A bridge that stops leaves the file. The next start deletes it before it writes, so it starts on a full disk, too.
    """

    def __init__(self, store: Store, path: Path) -> None:
        self._store = store
        self._path = path
        self._kept = False
        self._look = 0.0
        #: the disk is full and the reserve deleted: persistent messages are rejected
        self.full = False

    def keep(self) -> None:
        """Allocate the reserve. From now on, delete it when the disk is full."""
        self._kept = True
        if not self._take():
            self.give_up()

    def empty_log(self) -> None:
        """Restart the write-ahead log from its beginning if the database has room for its contents."""
        with contextlib.suppress(sqlite3.Error):
            self._store.checkpoint("PASSIVE")

    def give_up(self) -> None:
        """Record that the disk is full, and use the reserve to copy the write-ahead log into the database."""
        if not self._kept or self.full:
            return
        self._path.unlink(missing_ok=True)
        self.full, self._look = True, time.monotonic() + LOOK_INTERVAL
        log.critical(
            "MQB3002S %s: the disk is full; what is waiting is delivered, and no persistent message is taken until "
            "there is room",
            self._store.path,
        )
        self.empty_log()

    def until_look(self) -> float:
        """Return the seconds until the next call of `look`."""
        return max(self._look - time.monotonic(), 0.0) if self.full else LOOK_INTERVAL

    def look(self) -> None:
        """If the disk is full and LOOK_INTERVAL has passed, try to allocate the reserve again."""
        if not self.full or self.until_look():
            return
        if self._take():
            self.full = False
            log.info("MQB3011I %s: the disk has room again; persistent messages are accepted", self._store.path)
        self._look = time.monotonic() + LOOK_INTERVAL

    def check_log(self) -> None:
        """Delete the reserve if the disk has no room for a checkpoint.

        SQLite checkpoints by itself, and does not report that the disk is full.
        """
        try:
            if self._store.log_bytes() >= LOG_BYTES * 3 // 2:
                self._store.checkpoint("PASSIVE")
        except (sqlite3.Error, OSError) as error:
            if primary_code(error) == sqlite3.SQLITE_FULL:
                self.give_up()
            else:
                log.error("MQB3004E %s: the database does not take what is in its log: %s", self._store.path, error)

    def leave(self) -> None:
        """Leave as much of a reserve for the next start as there is room for. The store is closed, and its log deleted."""
        if self._kept and self.full:
            allocate_most(self._path)

    def _take(self) -> bool:
        """Allocate the reserve, and return whether there was room for it."""
        try:
            disk = os.statvfs(self._path.parent)
            if disk.f_bavail * disk.f_frsize + self._store.log_bytes() < MIN_RESERVE_BYTES:
                return False
            self._store.checkpoint("TRUNCATE")
            size = MIN_RESERVE_BYTES if self._store.spare_bytes() >= RESERVE_BYTES else RESERVE_BYTES
        except (OSError, sqlite3.Error):
            return False
        return _allocate(self._path, size)


def reserve_path(data_directory: Path) -> Path:
    """Return the path of a data directory's reserve."""
    return data_directory / "queuemanager.reserve"


def allocate_most(path: Path) -> None:
    """Allocate a reserve that is as large as the disk permits, within a factor of two."""
    size = RESERVE_BYTES
    while size >= RESERVE_BYTES // 128 and not _allocate(path, size):
        size //= 2


def _allocate(path: Path, size: int) -> bool:
    """Create a file whose blocks are allocated, and return whether there was room for it."""
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return False
    return True
