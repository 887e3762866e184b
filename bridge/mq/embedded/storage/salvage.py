"""What is whole in the database of a queue manager, and a new one that keeps all of it.

Each row of the log and each definition has a checksum: what is as it was written is kept, the rest is told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bridge.mq.embedded.attributes import defaults
from bridge.mq.embedded.storage import layout
from bridge.mq.embedded.storage.batch import DIGEST_MASK, Batch, decode, digest_of, encode
from bridge.mq.embedded.storage.layout import batch_checksum, object_checksum
from bridge.mq.embedded.storage.store import SCHEMA, SCHEMA_VERSION, StoreError

DATABASE = "queuemanager.db"


@dataclass
class Findings:
    """What was found in a database."""

    #: what is wrong, a sentence each
    damage: list[str] = field(default_factory=list)
    #: (kind, name, attributes as JSON) of whole definitions
    objects: list[tuple[str, str, str]] = field(default_factory=list)
    batches: int = 0
    #: messages put by whole batches, and of these those that no whole batch says were removed
    messages: int = 0
    left: int = 0


def verify(directory: Path) -> Findings:
    """Examine the database of a data directory, which a running bridge may have open. Raises StoreError."""
    return examine(directory / DATABASE)


def examine(path: Path) -> Findings:
    """Examine a database by its file, as `verify` does. Raises StoreError."""
    findings = Findings()
    with _opened(path) as database:
        for _ in _whole(database, findings):
            pass
    return findings


def salvage(directory: Path, new: Path) -> Findings:
    """Make a data directory of all that is whole in another, which stays as it is. Raises StoreError or OSError."""
    if (new / DATABASE).exists():
        raise StoreError(f"{new / DATABASE}: there is one already; name a directory without")
    new.mkdir(mode=0o750, parents=True, exist_ok=True)
    findings = Findings()
    with _opened(directory / DATABASE) as database:
        batches: dict[int, Batch] = {}
        for row_id, batch in _whole(database, findings):
            # A file whose pages are of two moments may have a row in two places.
            if (other := batches.get(row_id)) is not None:
                findings.damage.append(f"batch {row_id} of the log is there twice: the one with more messages is kept")
                batch = max(batch, other, key=lambda one: len(one.puts))
            batches[row_id] = batch
        facts = _facts(database)
    kept = {name for kind, name, _ in findings.objects if kind == "QLOCAL"}
    for batch in batches.values():
        for lane in batch.lanes:
            if lane.queue not in kept:
                kept.add(lane.queue)
                usage = {"USAGE": "XMITQ"} if lane.client_id and lane.remote_queue else {}
                attributes = msgspec.json.encode(defaults("QLOCAL") | usage).decode()
                findings.objects.append(("QLOCAL", lane.queue, attributes))
                findings.damage.append(f"queue {lane.queue} has lost its definition: it has the attributes of a new one")
    layout.create(new / DATABASE, SCHEMA, SCHEMA_VERSION)
    made = layout.connect(new / DATABASE)
    try:
        made.execute("BEGIN IMMEDIATE")
        for name, value in facts.items():
            made.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))
        made.execute("INSERT OR REPLACE INTO fact VALUES ('schema', ?)", (SCHEMA_VERSION,))
        for kind, name, attributes in findings.objects:
            checksum = object_checksum(kind, name, attributes)
            made.execute("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?)", (kind, name, attributes, checksum))
        for row_id, batch in batches.items():
            batch.rows, batch.digest = -1, 0  # of the rows that were: some may be missing
            body = encode(batch)
            made.execute("INSERT INTO batch VALUES (?, ?, ?)", (row_id, body, batch_checksum(row_id, body)))
        made.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreError(f"{new / DATABASE} cannot be written: {error}") from error
    finally:
        made.close()
    return findings


class _opened:
    """The database in a file, opened for reading."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise StoreError(f"{path}: there is no such file; name the data directory of an embedded queue manager")
        if not path.stat().st_size:
            raise StoreError(f"{path}: the file is empty, nothing of it is left")
        self._database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)

    def __enter__(self) -> sqlite3.Connection:
        return self._database

    def __exit__(self, *_error: object) -> None:
        self._database.close()


def _facts(database: sqlite3.Connection) -> dict[str, int]:
    """Return the facts that can be read; the number of starts is raised, for it makes MsgIds unique."""
    facts: dict[str, int] = {}
    try:
        facts = {name: int(value) for name, value in database.execute("SELECT name, value FROM fact")}
    except (sqlite3.DatabaseError, ValueError):
        # Numbers of messages begin with the number of starts: one that was never reached is safe.
        facts["starts"] = 1 << 20
    return facts


def _whole(database: sqlite3.Connection, findings: Findings) -> Iterator[tuple[int, Batch]]:
    """Yield the batches that are as they were written; `findings` is filled in."""
    damage = findings.damage
    try:
        structure = layout.damage(database)
        version = _facts(database).get("schema", SCHEMA_VERSION)
    except sqlite3.DatabaseError as error:
        structure, version = str(error), SCHEMA_VERSION
    if structure:
        damage.append(f"the structure of the file: {structure}")
    _read_objects(database, findings, summed=version >= SCHEMA_VERSION)
    alive: set[int] = set()
    said: tuple[int, int] | None = None
    rows = digest = 0
    for row_id, body, checksum in _rows(database, damage, summed=version >= SCHEMA_VERSION):
        if checksum is not None and checksum != batch_checksum(row_id, body):
            damage.append(f"batch {row_id} of the log is not as it was written")
            continue
        try:
            batch = decode(body)
        except msgspec.DecodeError as error:
            damage.append(f"batch {row_id} of the log cannot be read: {error}")
            continue
        rows += 1
        digest = (digest + digest_of(row_id)) & DIGEST_MASK
        said = (batch.rows, batch.digest) if batch.rows >= 0 else None
        findings.batches += 1
        for put in batch.puts:
            numbers = [delivery.msg_number for delivery in put.deliveries]
            findings.messages += len(set(numbers) - alive)
            alive.update(numbers)
        alive.difference_update(batch.removed)
        yield row_id, batch
    if said is not None and said != (rows, digest):
        damage.append(f"the log has {rows} whole batches where it had {said[0]}")
    findings.left = len(alive)


def _read_objects(database: sqlite3.Connection, findings: Findings, *, summed: bool) -> None:
    checksum_column = "checksum" if summed else "NULL"
    # As blobs: text that is not UTF-8 any more would end the reading, and those behind it would be lost too.
    columns = f"CAST(kind AS BLOB), CAST(name AS BLOB), CAST(attributes AS BLOB), {checksum_column}"
    try:
        for kind, name, attributes, checksum in database.execute(f"SELECT {columns} FROM object"):
            try:
                texts = kind.decode(), name.decode(), attributes.decode()
                whole = checksum is None or checksum == object_checksum(*texts)
            except (UnicodeError, AttributeError, TypeError):
                whole = False
            if whole:
                findings.objects.append(texts)
            else:
                shown = b" ".join(one for one in (kind, name) if isinstance(one, bytes)).decode("utf-8", "replace")
                findings.damage.append(f"the definition of {shown} is not as it was written")
    except sqlite3.DatabaseError as error:
        findings.damage.append(f"definitions cannot be read: {error}")


def _rows(
    database: sqlite3.Connection, damage: list[str], *, summed: bool
) -> Iterator[tuple[int, bytes, int | None]]:
    """Yield the rows of the log in order; behind one that cannot be read they are looked up one by one."""
    columns = f"id, body, {'checksum' if summed else 'NULL'}"
    last = 0
    try:
        for row in database.execute(f"SELECT {columns} FROM batch ORDER BY id"):
            yield row
            last = row[0]
        return
    except sqlite3.DatabaseError as error:
        damage.append(f"the log cannot be read behind batch {last}: {error}")
    try:
        (highest,) = database.execute("SELECT max(id) FROM batch").fetchone()
    except sqlite3.DatabaseError:
        highest = last + _SEARCHED
    for row_id in range(last + 1, (highest or last) + 1):
        try:
            row = database.execute(f"SELECT {columns} FROM batch WHERE id = ?", (row_id,)).fetchone()
        except sqlite3.DatabaseError:
            damage.append(f"batch {row_id} of the log cannot be read")
            continue
        if row is not None:
            yield row


#: Numbers of rows that are tried where the highest is not known.
_SEARCHED = 100_000
