"""What the embedded queue manager keeps on disk: a SQLite database (WAL, synchronous=FULL).

Object definitions and durable subscriptions are rows of ordinary tables. Persistent messages are a log: each group of
units of work that commits together adds one row, a batch of the messages put and the numbers of the messages removed.
A row whose messages are all gone is deleted; rows that are mostly gone are written anew. So a commit is one INSERT and one
fsync however many messages it holds, which is what lets the bridge acknowledge thousands a second from Python.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bridge.mapping.message import Message, PublicationMessage

#: Layout of the database; a newer one is refused rather than misread.
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS object (
    kind TEXT NOT NULL, name TEXT NOT NULL, attributes TEXT NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""

#: Rows found empty that are deleted together with the next commit once there are so many.
DEAD_ROWS = 64
#: Bytes of rows on disk below which rewriting is not worth it.
COMPACTION_FLOOR = 16 * 1024 * 1024


class Lane(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Where messages of a batch lie, and what they owe to the subscription they came for. Fields as in StoredMessage."""

    queue: str
    client_id: str = ""
    remote_queue: str = ""
    user_data: str | None = None
    correl_id: bytes | None = None


class Delivery(msgspec.Struct, array_like=True, gc=False):
    """One queue that a logged message lies on."""

    msg_number: int
    #: index among the lanes of the batch
    lane: int
    retained: bool = False


class Put(msgspec.Struct, array_like=True, gc=False):
    """A persistent message in the log, with every queue it was put to."""

    message: Message | PublicationMessage
    deliveries: list[Delivery]
    priority: int
    put_time: float
    #: topic string published with, where the message itself does not tell it
    topic: str | None = None
    expires_at: float = 0.0
    msg_id: bytes | None = None
    put_application: str | None = ""


class Batch(msgspec.Struct, array_like=True, gc=False):
    """A row of the log: messages put, and numbers of messages removed, by one group of units of work."""

    puts: list[Put]
    removed: list[int]
    lanes: list[Lane] = []


class Row:
    """What is still wanted of a row of the log."""

    __slots__ = ("id", "live", "logged", "removed_by", "size", "tombstones")

    def __init__(self, row_id: int, size: int) -> None:
        self.id = row_id
        self.size = size
        #: messages put by this row
        self.logged = 0
        #: those of them that are still on a queue
        self.live = 0
        #: removals in this row of messages whose own rows still exist
        self.tombstones = 0
        #: rows that remove messages of this one, and how many each
        self.removed_by: dict[Row, int] = {}


class StoreError(Exception):
    """The database cannot be used; the message says why and what to do."""


class Store:
    """The database of one queue manager. `write` runs on the journal's thread, everything else before it starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Messages are nobody's business but the service's and its group's; -wal and -shm take over this mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o640))
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA page_size=32768")
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute("PRAGMA wal_autocheckpoint=1024")
            self._database.execute("PRAGMA journal_size_limit=67108864")
            self._database.executescript(_SCHEMA)
            version = self._fact("schema", SCHEMA_VERSION)
            #: times this queue manager has started, this one included
            self.starts = self._fact("starts", 0) + 1
            self._set_fact("starts", self.starts)
            #: when the database was made, in seconds since the epoch
            self.created = self._fact("created", int(time.time()))
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path}: {error}; is it a database of this bridge, and writable?") from error
        if version > SCHEMA_VERSION:
            raise StoreError(f"{path}: written by a newer bridge (layout {version}, this one reads {SCHEMA_VERSION})")
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Batch)
        row = self._database.execute("SELECT coalesce(max(id), 0) FROM batch").fetchone()
        self._last_row = int(row[0])

    def _fact(self, name: str, otherwise: int) -> int:
        row = self._database.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        if row is None:
            self._set_fact(name, otherwise)
            return otherwise
        return int(row[0])

    def _set_fact(self, name: str, value: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def objects(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Definitions of objects and durable subscriptions: (kind, name, attributes)."""
        rows = self._database.execute("SELECT kind, name, attributes FROM object ORDER BY kind, name")
        return [(kind, name, msgspec.json.decode(attributes)) for kind, name, attributes in rows]

    def batches(self) -> Iterable[tuple[Row, Batch]]:
        """The log in the order written."""
        for row_id, body in self._database.execute("SELECT id, body FROM batch ORDER BY id"):
            try:
                yield Row(row_id, len(body)), self._decoder.decode(body)
            except msgspec.DecodeError as error:
                raise StoreError(f"{self.path}: batch {row_id} cannot be read: {error}") from error

    def write(
        self, batch: Batch | None, definitions: Sequence[tuple[str, str, str | None]], dead_rows: Sequence[int]
    ) -> tuple[int, int]:
        """Commit to disk: a batch of the log, definitions (kind, name, JSON or None to delete), rows to delete.

        Returns (row id, size in bytes) of the batch. On return the data has been synced; sqlite3.Error means that
        nothing of it was written.
        """
        body = b"" if batch is None else self._encoder.encode(batch)
        row_id = self._last_row + 1
        database = self._database
        if definitions or dead_rows:
            database.execute("BEGIN IMMEDIATE")
        try:
            for kind, name, attributes in definitions:
                if attributes is None:
                    database.execute("DELETE FROM object WHERE kind = ? AND name = ?", (kind, name))
                else:
                    database.execute("INSERT OR REPLACE INTO object VALUES (?, ?, ?)", (kind, name, attributes))
            if dead_rows:
                numbers = msgspec.json.encode(list(dead_rows)).decode()
                database.execute("DELETE FROM batch WHERE id IN (SELECT value FROM json_each(?))", (numbers,))
            if batch is not None:
                database.execute("INSERT INTO batch VALUES (?, ?)", (row_id, body))
            if database.in_transaction:
                database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        if batch is not None:
            self._last_row = row_id
        return row_id, len(body)

    def close(self) -> None:
        """Close the database; the log was synced at every commit."""
        self._database.close()
