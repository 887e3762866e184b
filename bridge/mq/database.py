"""Backup, restore, verification and salvage of the database of an embedded queue manager.

Source: SQLite documentation, "SQLite Backup API", "Write-Ahead Logging", "Isolation In SQLite".
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from bridge.config.queue_manager import STATE_QUEUE
from bridge.files import sync
from bridge.mq.data_directory import DATABASE, StoreError, acting_as_owner, hold, is_data_directory
from bridge.mq.embedded.attributes import defaults
from bridge.mq.embedded.storage import layout
from bridge.mq.embedded.storage.batch import DIGEST_MASK, LoggedBatch, decode, digest_of, encode
from bridge.mq.embedded.storage.completeness import EPOCH, IDENTITY, End, new_identity, witness_path
from bridge.mq.embedded.storage.layout import SCHEMA_VERSION, batch_checksum, object_checksum
from bridge.mq.embedded.storage.recovery_log import RESERVE_BYTES
from bridge.mq.embedded.storage.store import primary_code
from bridge.telemetry import record
from bridge.telemetry.message import Message
from bridge.witness import WitnessPosition, create


@dataclass
class DatabaseFindings:
    """The damage and the undamaged contents of a database."""

    #: a sentence for each damaged place
    damage: list[str] = field(default_factory=list)
    #: a sentence about acknowledged commits that are missing, or blank
    missing: str = ""
    #: (kind, name, attributes as JSON) of undamaged definitions
    objects: list[tuple[str, str, str]] = field(default_factory=list)
    batches: int = 0
    #: messages put by undamaged batches, and the number of these that no undamaged batch removes
    messages: int = 0
    left: int = 0


def verify(directory: Path) -> DatabaseFindings:
    """Examine the database of a data directory, which a running bridge may have open. Raises StoreError."""
    return examine(directory / DATABASE)


def examine(path: Path, *, immutable: bool = False) -> DatabaseFindings:
    """Examine a database file. Raises StoreError.

    For `immutable`, see `layout.connect_read_only`.
    """
    findings = DatabaseFindings()
    end = None if immutable else End.of(path)
    with closing(_opened(path, immutable=immutable)) as database:
        for _ in _undamaged(database, findings):
            pass
        if end is not None:
            findings.missing = _missing(end, database, path)
    return findings


def _missing(end: End, database: sqlite3.Connection, path: Path) -> str:
    try:
        # Reading a view may never end. If a table is missing, that is reported as damage.
        return end.missing(database, path) if layout.readable_tables(database) >= {"fact", "batch"} else ""
    except (sqlite3.DatabaseError, TypeError) as error:
        return f"commits may be missing: {error}"


def salvage(directory: Path, new: Path, *, accept_loss: bool = False) -> DatabaseFindings:
    """Create a data directory from the undamaged contents of another, which does not change.

    With `accept_loss`, continue if commits at the end of the log are missing. No queue manager may use the other directory.
    If root runs the process, the new directory belongs to the owner of its parent. Raises StoreError, DataDirectoryInUse or
    OSError.
    """
    with closing(hold(directory)):
        return _salvage(directory, new, accept_loss=accept_loss)


def _salvage(directory: Path, new: Path, *, accept_loss: bool) -> DatabaseFindings:
    if (new / DATABASE).exists():
        raise StoreError(f"{new / DATABASE} already exists; hint: specify another directory")
    findings = DatabaseFindings()
    end = End.of(directory / DATABASE)
    with closing(_opened(directory / DATABASE)) as database:
        findings.missing = _missing(end, database, directory / DATABASE)
        if findings.missing and not accept_loss:
            raise StoreError(
                f"{directory / DATABASE}: {findings.missing}; hint: restore a backup, or continue without these commits "
                "with --accept-loss"
            )
        batches: dict[int, LoggedBatch] = {}
        for row_id, batch in _undamaged(database, findings):
            # A file with pages of different ages may contain a row twice.
            if (other := batches.get(row_id)) is not None:
                findings.damage.append(f"batch {row_id} of the log exists twice: the one with more messages is kept")
                batch = max(batch, other, key=lambda unit: len(unit.puts))
            batches[row_id] = batch
        facts = _facts(database)
    queue_names = {name for kind, name, _ in findings.objects if kind == "QLOCAL"}
    for batch in batches.values():
        for lane in batch.lanes:
            if lane.queue not in queue_names:
                queue_names.add(lane.queue)
                usage = {"USAGE": "XMITQ"} if lane.client_id and lane.remote_queue else {}
                attributes = msgspec.json.encode(defaults("QLOCAL") | usage).decode()
                findings.objects.append(("QLOCAL", lane.queue, attributes))
                findings.damage.append(
                    f"the definition of queue {lane.queue} is missing: it gets the attributes of a new queue"
                )
    with acting_as_owner(new):
        new.mkdir(mode=0o750, parents=True, exist_ok=True)
        path = new / DATABASE
        with _translated(path):
            with _new(path, mode=layout.MODE) as target:
                position = _write(target, facts, findings.objects, batches)
                sync(target)
            # A database without its witness does not start. So a salvage that is interrupted here has to be repeated.
            create(witness_path(path), position, layout.MODE)
    return findings


def _write(
    path: Path, facts: dict[str, int], objects: list[tuple[str, str, str]], batches: dict[int, LoggedBatch]
) -> WitnessPosition:
    """Create a database with these contents. Return the position for its witness. Raises sqlite3.Error or OSError."""
    layout.create(path)
    with closing(layout.connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        for name, value in facts.items():
            database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))
        database.execute("INSERT OR REPLACE INTO fact VALUES ('schema', ?)", (SCHEMA_VERSION,))
        position = _new_identity(database)
        for kind, name, attributes in objects:
            checksum = object_checksum(kind, name, attributes)
            database.execute("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?)", (kind, name, attributes, checksum))
        if received := _received_records(batches.values()):
            batches[max(batches) + 1] = LoggedBatch([], received)
        for row_id, batch in batches.items():
            batch.rows = batch.definitions = -1  # the former values count the old rows, some of which may be missing
            body = encode(batch)
            database.execute("INSERT INTO batch VALUES (?, ?, ?)", (row_id, body, batch_checksum(row_id, body)))
        database.execute("COMMIT")
    return position._replace(number=max(batches, default=0))


def _received_records(batches: Iterable[LoggedBatch]) -> list[int]:
    """Return the numbers of the messages with packet identifiers that clients have sent with QoS 2 and not released.

    In an older copy of a database, these identifiers are wrong: the client may have released them since. The bridge would
    take its next publication with such an identifier for a repetition and discard it.
    """
    msg_numbers: set[int] = set()
    for batch in batches:
        for record_put in batch.puts:
            numbers = [
                delivery.msg_number
                for delivery in record_put.deliveries
                if batch.lanes[delivery.lane].queue == STATE_QUEUE
            ]
            if not numbers or not isinstance(record_put.message, Message):
                continue
            with contextlib.suppress(record.UnknownRecord):
                if isinstance(record.decode(bytes(record_put.message.data)), record.ReceivedRecord):
                    msg_numbers.update(numbers)
        msg_numbers.difference_update(batch.removed)
    return sorted(msg_numbers)


def _forget_received(database: sqlite3.Connection) -> None:
    """Append a row to the log that removes the records of `_received_records`. Raises sqlite3.Error."""
    numbers = _received_records(decode(body) for (body,) in database.execute("SELECT body FROM batch ORDER BY id"))
    if not numbers:
        return
    last_id, body = database.execute("SELECT id, body FROM batch ORDER BY id DESC LIMIT 1").fetchone()
    last = decode(body)
    row_id = last_id + 1
    batch = msgspec.structs.replace(last, puts=[], removed=numbers, lanes=[], committed=time.time())
    if last.rows >= 0:
        batch.rows, batch.digest = last.rows + 1, (last.digest + digest_of(row_id)) & DIGEST_MASK
    body = encode(batch)
    database.execute("INSERT INTO batch (id, body) VALUES (?, ?)", (row_id, body))
    if _fact(database, "schema") >= SCHEMA_VERSION:
        database.execute("UPDATE batch SET checksum = ? WHERE id = ?", (batch_checksum(row_id, body), row_id))


def messages_on(queue: str, path: Path) -> list[Message]:
    """Return the persistent messages on a queue of a backup, or of a database that no process uses.

    Messages of damaged batches are left out. Raises StoreError.
    """
    alive: dict[int, Message] = {}
    with closing(_opened(path, immutable=True)) as database:
        for _, batch in _undamaged(database, DatabaseFindings()):
            for record_put in batch.puts:
                for delivery in record_put.deliveries:
                    if batch.lanes[delivery.lane].queue == queue and isinstance(record_put.message, Message):
                        alive[delivery.msg_number] = record_put.message
            for number in batch.removed:
                alive.pop(number, None)
    return list(alive.values())


def _new_identity(database: sqlite3.Connection) -> WitnessPosition:
    """Give a restored or salvaged database a new identity. Return the position for its witness. Raises sqlite3.Error."""
    identity = new_identity()
    for name in (IDENTITY, EPOCH):
        database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, identity))
    (last,) = database.execute("SELECT coalesce(max(id), 0) FROM batch").fetchone()
    return WitnessPosition(identity, _fact(database, "starts"), last, time.time())


def _opened(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    if not path.is_file():
        raise StoreError(
            f"{path} does not exist; hint: specify the data directory of an embedded queue manager, or a backup"
        )
    if not path.stat().st_size:
        raise StoreError(f"{path} is empty, nothing can be recovered")
    try:
        database = layout.connect_read_only(path, immutable=immutable)
        database.execute("BEGIN")  # a consistent view of log and definitions
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    return database


def _facts(database: sqlite3.Connection) -> dict[str, int]:
    """Return the readable facts. If none is readable, return a high number of starts, because it makes MsgIds unique."""
    facts: dict[str, int] = {}
    try:
        facts = {name: int(value) for name, value in database.execute("SELECT name, value FROM fact")}
    except (sqlite3.DatabaseError, ValueError, TypeError):
        # Numbers of messages begin with the number of starts. A number that was never reached is safe.
        facts["starts"] = 1 << 20
    return facts


def _undamaged(database: sqlite3.Connection, findings: DatabaseFindings) -> Iterator[tuple[int, LoggedBatch]]:
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
    last = LoggedBatch([], [])
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
        last = msgspec.structs.replace(batch, puts=[], removed=[])
        findings.batches += 1
        for record_put in batch.puts:
            numbers = [delivery.msg_number for delivery in record_put.deliveries]
            findings.messages += len(set(numbers) - alive)
            alive.update(numbers)
        alive.difference_update(batch.removed)
        yield row_id, batch
    if last.rows >= 0 and (last.rows, last.digest) != (rows, digest):
        damage.append(f"the log has {rows} undamaged batches of {last.rows}")
    definitions = sum(digest_of(object_checksum(*texts)) for texts in findings.objects) & DIGEST_MASK
    if last.definitions >= 0 and last.definitions != definitions:
        damage.append("definitions are not as they were at the last commit")
    findings.left = len(alive)


def _read_objects(database: sqlite3.Connection, findings: DatabaseFindings, *, summed: bool) -> None:
    checksum_column = "checksum" if summed else "NULL"
    # Read blobs: text that is not UTF-8 would end the query, and the definitions after it would be lost too.
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
                label = b" ".join(part for part in (kind, name) if isinstance(part, bytes)).decode("utf-8", "replace")
                findings.damage.append(f"the definition of {label} is not as it was written")
    except sqlite3.DatabaseError as error:
        findings.damage.append(f"definitions cannot be read: {error}")


def _rows(database: sqlite3.Connection, damage: list[str], *, summed: bool) -> Iterator[tuple[int, bytes, int | None]]:
    """Yield the rows of the log in order. After an unreadable row, search for the next readable one by its id."""
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


#: Mode of a backup, which contains all messages.
MODE: Final = 0o600
#: Pages that are copied at a time, 8 MiB. Between these steps, other processes use the disk, and signals are handled.
_PAGES: Final = 256
#: Starts that a restored queue manager skips. The lost queue manager may have started so often since the backup.
_STARTS_SKIPPED: Final = 1_000


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup."""

    #: start of the backup, in seconds since the epoch. It contains everything committed by then
    taken: int
    #: layout of the database, and its size in bytes
    version: int
    size: int
    queues: int
    #: durable subscriptions of MQTT sessions, mappings and applications
    subscriptions: int
    #: other definitions: topics, authority records, channel authentication records …
    definitions: int
    #: persistent messages, including retained publications and records of sessions
    messages: int


def backup(directory: Path, file: Path, *, replace: bool = False) -> Contents:
    """Copy the database of a data directory to a file and check the copy. A queue manager may be using the database.

    One read transaction reads the database, so the copy is consistent. Commits continue meanwhile and stay in the
    write-ahead log until the copy is complete. The file gets its name after it was synchronized to disk and checked. If
    root runs the process, the file belongs to the owner of its directory. Raises StoreError or OSError. An existing file
    is then unchanged.
    """
    source = directory / DATABASE
    if not source.is_file() or not source.stat().st_size:
        raise StoreError(f"{source} does not exist; hint: specify the data directory of an embedded queue manager")
    _check_replaceable(file, replace=replace)
    _check_room(source, file)
    now = int(time.time())
    end = End.of(source)
    with closing(_in_transaction(source)) as database, acting_as_owner(file.absolute().parent), _new(file) as new:
        with _translated(file):
            _copy(database, new)
            with closing(sqlite3.connect(new, isolation_level=None)) as copy:
                copy.execute("PRAGMA journal_mode=DELETE")  # a single file, without a write-ahead log
        contents = _checked(new, f"the copy of {source} (see `mqbridge data verify {directory}`)", backup=False)
        with _translated(file), closing(layout.connect_read_only(new, immutable=True)) as copy:
            missing = end.missing(copy, source)
        if missing:
            raise StoreError(f"{source} was not backed up: {missing}; hint: run `mqbridge data verify {directory}`")
        with _translated(file), closing(sqlite3.connect(new, isolation_level=None)) as copy:
            copy.execute("INSERT OR REPLACE INTO fact VALUES ('backup', ?)", (now,))
        sync(new)
    return msgspec.structs.replace(contents, taken=now)


def restore(file: Path, directory: Path, *, force: bool = False) -> tuple[Contents, Path | None]:
    """Create a data directory from a backup. Return the backup's contents, and the directory of a previous queue manager.

    With `force`, a previous queue manager is moved to a subdirectory. Without `force`, the directory must not contain one.
    The next start upgrades an older layout. If root runs the process, it works in the directory with the rights of the
    directory's owner. Raises StoreError, DataDirectoryInUse or OSError. The directory is then unchanged.
    """
    if not file.is_file():
        raise StoreError(f"{file} does not exist; hint: specify a backup")
    contents = _checked(file, str(file))
    with file.open("rb") as source, acting_as_owner(directory):
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        path = directory / DATABASE
        with closing(hold(directory)):
            there = any(file.exists() for file in (path, layout.write_ahead_log(path), witness_path(path)))
            if there and not force:
                raise StoreError(
                    f"{directory} already contains a queue manager; hint: specify another directory, or --force, which keeps "
                    "that queue manager aside"
                )
            with _new(path, mode=layout.MODE) as new:
                with _translated(path), new.open("wb") as target:
                    shutil.copyfileobj(source, target, _PAGES * layout.PAGE_SIZE)
                _checked(new, f"the copy of {file}")  # before the first write, which could fire a trigger
                with _translated(path), closing(layout.connect(new)) as restored:
                    _skip_starts(restored, path if path.exists() else None)
                    _forget_received(restored)
                    position = _new_identity(restored)
                sync(new)
                former = _kept_aside(directory) if there else None
            # A database without its witness does not start. So a restore that is interrupted here has to be repeated.
            create(witness_path(path), position, layout.MODE)
    return contents, former


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
    """Copy a database with SQLite's online backup, in steps. Raises sqlite3.Error."""
    with closing(sqlite3.connect(new)) as copy:
        database.backup(copy, pages=_PAGES)


def _checked(path: Path, name: str, *, backup: bool = True) -> Contents:
    """Return the contents of a backup. Raises StoreError if the file is not a backup, is damaged, or has a newer layout.

    `backup` means that the function `backup` has completed the file. Otherwise it is a copy in progress.
    """
    try:
        # A backup does not include a write-ahead log next to the file.
        with closing(layout.connect_read_only(path, immutable=True)) as database:
            strange = layout.differences(database)
            if strange:
                raise StoreError(f"{name} was not made by `mqbridge data backup`: {', '.join(strange)}")
            facts = {str(fact): int(value) for fact, value in database.execute("SELECT name, value FROM fact")}
            version = facts.get("schema", 0)
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{name} was written by a newer bridge (layout {version}, this one reads {SCHEMA_VERSION}); hint: use "
                    "the newer bridge"
                )
            if not version:
                raise StoreError(f"{name} is not a database of a queue manager")
            structure = layout.damage(database)
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        raise StoreError(f"{name} is damaged or not a backup of a queue manager: {error}") from error
    if structure:
        raise StoreError(f"{name} is damaged: {structure}")
    if backup and IDENTITY in facts and "backup" not in facts:
        raise StoreError(
            f"{name} is a copy of queuemanager.db alone, which may lack commits of its write-ahead log; hint: name a file "
            "made by `mqbridge data backup`, or copy all files of the data directory and start the bridge there"
        )
    findings = examine(path, immutable=True)
    if findings.damage:
        more = f", and {len(findings.damage) - 1} more" if len(findings.damage) > 1 else ""
        raise StoreError(f"{name} is damaged: {findings.damage[0]}{more}")
    return _contents(findings, facts, path.stat().st_size)


def _contents(findings: DatabaseFindings, facts: dict[str, int], size: int) -> Contents:
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


def _skip_starts(restored: sqlite3.Connection, before: Path | None) -> None:
    """Raise the number of starts above any that the queue manager may have reached since the backup.

    Message identifiers begin with this number, and the restored queue manager must not reuse those assigned since.
    """
    starts, backup_time = (_fact(restored, name) for name in ("starts", "backup"))
    minutes = max(0, int(time.time()) - backup_time) // 60 if backup_time else 0
    reached = 0
    if before is not None:
        with contextlib.suppress(sqlite3.Error), closing(layout.connect_read_only(before)) as database:
            reached = _fact(database, "starts")
    starts = max(starts + minutes, reached) + _STARTS_SKIPPED
    restored.execute("INSERT OR REPLACE INTO fact VALUES ('starts', ?)", (starts,))
    restored.execute("DELETE FROM fact WHERE name = 'backup'")


def _fact(database: sqlite3.Connection, name: str) -> int:
    row = database.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row is not None else 0


def _kept_aside(directory: Path) -> Path:
    """Link the database of a directory, which no process uses, into a new subdirectory. Return the subdirectory.

    The write-ahead log is removed after a checkpoint, because SQLite would apply it to the restored database.
    """
    path = directory / DATABASE
    former = directory / time.strftime("before-restore-%Y%m%dT%H%M%S", time.gmtime())
    former.mkdir(mode=0o750)
    if path.exists():
        # If the checkpoint fails, the database is damaged, and is kept unchanged.
        with contextlib.suppress(sqlite3.Error), closing(layout.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    beside = [file for file in (Path(f"{path}-wal"), Path(f"{path}-shm"), witness_path(path)) if file.exists()]
    for file in [path, *beside] if path.exists() else beside:
        os.link(file, former / file.name)
    sync(former)
    sync(directory)
    for file in beside:
        file.unlink()
    sync(directory)
    return former


def _check_replaceable(file: Path, *, replace: bool) -> None:
    """Raise StoreError if a backup must not replace a file."""
    if file.is_dir():
        raise StoreError(f"{file} is a directory; hint: specify a file in it")
    # A running queue manager would continue to write to the replaced file, and these messages would be lost.
    if is_data_directory(file.resolve().parent):
        raise StoreError(f"{file} is in the data directory of a queue manager; hint: specify another directory")
    if not file.exists():
        return
    if not file.is_file():
        raise StoreError(f"{file} is a device, a pipe or a socket; hint: specify a file")
    if not replace:
        raise StoreError(f"{file} already exists; hint: --force replaces it")


def _check_room(source: Path, file: Path) -> None:
    """Raise StoreError if a backup would fill the disk."""
    size = sum(file.stat().st_size for file in (source, layout.write_ahead_log(source)) if file.exists())
    parent = file.absolute().parent
    if not parent.is_dir():
        raise StoreError(f"directory {parent} does not exist")
    disk = os.statvfs(parent)
    spare = RESERVE_BYTES if parent.stat().st_dev == source.stat().st_dev else 0
    if disk.f_bavail * disk.f_frsize < size + spare:
        raise StoreError(f"{parent}: the disk has no room for {size} bytes; hint: specify a file on another disk")


@contextlib.contextmanager
def _new(path: Path, *, mode: int = MODE) -> Iterator[Path]:
    """Yield a new file, which is renamed to `path` at the end of the block, or removed if the block raises."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield new
        new.rename(path)
    except BaseException:
        for file in (new, *(Path(f"{new}{suffix}") for suffix in ("-wal", "-shm", "-journal"))):
            file.unlink(missing_ok=True)
        raise
    sync(path.absolute().parent)


@contextlib.contextmanager
def _translated(file: Path) -> Iterator[None]:
    """Raise StoreError for errors of SQLite and of the operating system in the block."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{file} was not written: {error.strerror or error}") from error
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_FULL:
            raise StoreError(f"{file} was not written: the disk is full") from error
        raise StoreError(f"{file} was not written: {error}") from error
