"""Room on the disk for what makes room: a file that is given up when the disk is full.

What then is got, acknowledged and removed can be written, so clients that drain the queues are served; what would be put is
refused until the disk has room for the file again.
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

#: Bytes: the write-ahead log must fit into the database, and into itself while that is done.
RESERVE_BYTES = 2 * LOG_BYTES
#: Bytes that do where the database has that much room in itself: it takes what is in the log without growing.
LEAST_RESERVE_BYTES = RESERVE_BYTES * 3 // 4
#: Seconds between looks whether a disk that was full has room.
LOOK_INTERVAL = 5.0


def reserve_path(data_directory: Path) -> Path:
    """Return the file of a data directory's reserve. One that a killed bridge has left is only in the way of the next."""
    return data_directory / "queuemanager.reserve"


class Reserve:
    """The file, and whether the disk is full; used on the recovery log's thread once that runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._path = reserve_path(store.path.parent)
        self._kept = False
        self._look = 0.0
        #: the disk is full, and the reserve given up: nothing more is to be put
        self.full = False

    def keep(self) -> None:
        """Take room for the reserve now, and give it up when the disk is full."""
        self._kept = True
        if not self._take():
            self.give_up()

    def empty_log(self) -> None:
        """Have the write-ahead log written anew from its beginning, if the database has room for what is in it."""
        with contextlib.suppress(sqlite3.Error):
            self._store.checkpoint("PASSIVE")

    def give_up(self) -> None:
        """Note that the disk is full, and use the reserve to bring what is in the write-ahead log into the database."""
        if not self._kept or self.full:
            return
        self.release()
        self.full, self._look = True, time.monotonic() + LOOK_INTERVAL
        log.critical(
            "MQB3002S %s: the disk is full; what is waiting is delivered, and no persistent message is taken until "
            "there is room",
            self._store.path,
        )
        self.empty_log()

    def is_look_due(self) -> bool:
        """Return whether it is time to look if a full disk has room again, once in LOOK_INTERVAL."""
        due = time.monotonic() > self._look
        if due:
            self._look = time.monotonic() + LOOK_INTERVAL
        return due

    def look(self) -> None:
        """Take the reserve again if there is room for it: the disk is not full any more."""
        if self._take():
            self.full = False
            log.warning("MQB3003W %s: the disk has room again, and persistent messages are taken", self._store.path)

    def check_log(self) -> None:
        """Give the reserve up where the database cannot take what is in its write-ahead log.

        SQLite brings that over by itself when there is enough of it, and says nothing when the disk has no room.
        """
        try:
            if self._store.log_bytes() >= LOG_BYTES * 3 // 2:
                self._store.checkpoint("PASSIVE")
        except (sqlite3.Error, OSError) as error:
            if primary_code(error) == sqlite3.SQLITE_FULL:
                self.give_up()
            else:
                log.error("MQB3004E %s: the database does not take what is in its log: %s", self._store.path, error)

    def _take(self) -> bool:
        try:
            self._store.checkpoint("TRUNCATE")
            spare = self._store.spare_bytes()
            with self._path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, LEAST_RESERVE_BYTES if spare >= RESERVE_BYTES else RESERVE_BYTES)
        except (OSError, sqlite3.Error):
            self.release()
            return False
        return True

    def release(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
