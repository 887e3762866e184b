"""Verification of a queue manager's database, and salvage of its undamaged contents into a new database.

Each row of the log and each definition has a checksum. Salvage keeps those that match and reports the others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bridge.mq.embedded.attributes import defaults
from bridge.mq.embedded.storage import layout
from bridge.mq.embedded.storage.layout import SCHEMA_VERSION, acting_as_owner, batch_checksum, object_checksum
from bridge.mq.embedded.storage.store import DIGEST_MASK, Batch, StoreError, decode, digest_of, encode

DATABASE = "queuemanager.db"


@dataclass
class Findings:
    """The damage and the undamaged contents of a database."""

    #: a sentence for each damaged place
    damage: list[str] = field(default_factory=list)
    #: (kind, name, attributes as JSON) of undamaged definitions
    objects: list[tuple[str, str, str]] = field(default_factory=list)
    batches: int = 0
    #: messages put by undamaged batches, and the number of these that no undamaged batch removes
    messages: int = 0
    left: int = 0


def verify(directory: Path) -> Findings:
    """Examine the database of a data directory, which a running bridge may have open. Raises StoreError."""
    return examine(directory / DATABASE)


def examine(path: Path, *, immutable: bool = False) -> Findings:
    """Examine a database file. Raises StoreError.

    For `immutable`, see `layout.connect_read_only`.
    """
    findings = Findings()
    with closing(_opened(path, immutable=immutable)) as database:
        for _ in _undamaged(database, findings):
            pass
    return findings


def salvage(directory: Path, new: Path) -> Findings:
    """Create a data directory from the undamaged contents of another, which stays as it is.

    If root runs the process, the new directory belongs to the owner of its parent. Raises StoreError or OSError.
    """
    if (new / DATABASE).exists():
        raise StoreError(f"{new / DATABASE}: there is one already; name a directory without")
    findings = Findings()
    with closing(_opened(directory / DATABASE)) as database:
        batches: dict[int, Batch] = {}
        for row_id, batch in _undamaged(database, findings):
            # A file with pages of two moments may contain a row twice.
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
                findings.damage.append(
                    f"queue {lane.queue} has lost its definition: it has the attributes of a new one"
                )
    with acting_as_owner(new):
        new.mkdir(mode=0o750, parents=True, exist_ok=True)
        _write(new / DATABASE, facts, findings.objects, batches)
    return findings


def _write(path: Path, facts: dict[str, int], objects: list[tuple[str, str, str]], batches: dict[int, Batch]) -> None:
    """Create a database with these contents. Raises StoreError or OSError."""
    layout.create(path)
    database = layout.connect(path)
    try:
        database.execute("BEGIN IMMEDIATE")
        for name, value in facts.items():
            database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))
        database.execute("INSERT OR REPLACE INTO fact VALUES ('schema', ?)", (SCHEMA_VERSION,))
        for kind, name, attributes in objects:
            checksum = object_checksum(kind, name, attributes)
            database.execute("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?)", (kind, name, attributes, checksum))
        for row_id, batch in batches.items():
            batch.rows, batch.digest = -1, 0  # they counted the old rows, some of which may be missing
            body = encode(batch)
            database.execute("INSERT INTO batch VALUES (?, ?, ?)", (row_id, body, batch_checksum(row_id, body)))
        database.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
    finally:
        database.close()


def _opened(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    if not path.is_file():
        raise StoreError(f"{path}: there is no such file; name the data directory of an embedded queue manager")
    if not path.stat().st_size:
        raise StoreError(f"{path}: the file is empty, nothing of it is left")
    try:
        return layout.connect_read_only(path, immutable=immutable)
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error


def _facts(database: sqlite3.Connection) -> dict[str, int]:
    """Return the facts that can be read. If none can, the number of starts is high, because it makes MsgIds unique."""
    facts: dict[str, int] = {}
    try:
        facts = {name: int(value) for name, value in database.execute("SELECT name, value FROM fact")}
    except (sqlite3.DatabaseError, ValueError):
        # Numbers of messages begin with the number of starts: one that was never reached is safe.
        facts["starts"] = 1 << 20
    return facts


def _undamaged(database: sqlite3.Connection, findings: Findings) -> Iterator[tuple[int, Batch]]:
    """Yield the undamaged batches, and fill in `findings`. Only ordinary tables are read: reading a view may never end."""
    damage = findings.damage
    version, tables = SCHEMA_VERSION, {"fact", "object", "batch"}
    try:
        damage += layout.differences(database)
        tables = layout.readable_tables(database)
        structure = layout.damage(database)
        if "fact" in tables:
            version = _facts(database).get("schema", SCHEMA_VERSION)
    except sqlite3.DatabaseError as error:
        structure = str(error)
    if structure:
        damage.append(f"the structure of the file: {structure}")
    summed = version >= SCHEMA_VERSION
    if "object" in tables:
        _read_objects(database, findings, summed=summed)
    if "batch" not in tables:
        return
    alive: set[int] = set()
    said: tuple[int, int] | None = None
    rows = digest = 0
    for row_id, body, checksum in _rows(database, damage, summed=summed):
        if not isinstance(body, bytes) or (summed and checksum != batch_checksum(row_id, body)):
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
    # As blobs: text that is not UTF-8 would end the query, and the definitions after it would be lost too.
    columns = f"CAST(kind AS BLOB), CAST(name AS BLOB), CAST(attributes AS BLOB), {checksum_column}"
    try:
        for kind, name, attributes, checksum in database.execute(f"SELECT {columns} FROM object"):
            try:
                texts = kind.decode(), name.decode(), attributes.decode()
                whole = not summed or checksum == object_checksum(*texts)
            except (UnicodeError, AttributeError, TypeError):
                whole = False
            if whole:
                findings.objects.append(texts)
            else:
                shown = b" ".join(one for one in (kind, name) if isinstance(one, bytes)).decode("utf-8", "replace")
                findings.damage.append(f"the definition of {shown} is not as it was written")
    except sqlite3.DatabaseError as error:
        findings.damage.append(f"definitions cannot be read: {error}")


def _rows(database: sqlite3.Connection, damage: list[str], *, summed: bool) -> Iterator[tuple[int, bytes, int | None]]:
    """Yield the rows of the log in order. After a row that cannot be read, look for the next readable one by its id."""
    columns = f"id, body, {'checksum' if summed else 'NULL'}"
    last = 0
    try:
        for row in database.execute(f"SELECT {columns} FROM batch ORDER BY id"):
            yield row
            last = row[0]
        return
    except sqlite3.DatabaseError as error:
        damage.append(f"the log cannot be read after batch {last}: {error}")
    for _ in range(_MAX_FAILURES):
        # Ids are read without the bodies, so this skips gaps of any length. A damaged page may return any id.
        try:
            for (row_id,) in database.execute("SELECT id FROM batch WHERE id > ? ORDER BY id", (last,)):
                if row_id <= last:
                    break
                last = row_id
                try:
                    row = database.execute(f"SELECT {columns} FROM batch WHERE id = ?", (row_id,)).fetchone()
                except sqlite3.DatabaseError:
                    damage.append(f"batch {row_id} of the log cannot be read")
                    continue
                if row is not None:
                    yield row
            else:
                return
        except sqlite3.DatabaseError:
            pass
        last += 1
    damage.append(f"the log was not searched for rows after batch {last}")


#: The maximum number of attempts to continue after unreadable rows.
_MAX_FAILURES = 100_000
