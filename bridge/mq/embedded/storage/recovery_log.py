"""Group commit: one write and one fsync for all queued units of work.

While the recovery log's thread syncs one group, the next group accumulates, without a fixed delay. All units, including those
without disk writes, end in the order of their submission, so publications are not reordered.

The reserve is a pre-allocated file. The bridge deletes it when the disk fills up, so that removals can still be written.
Persistent messages are rejected until the disk has room for the file again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bridge.mq.backend import Commits
from bridge.mq.embedded.queue import LogRow, Queue, StoredMessage
from bridge.mq.embedded.storage.batch import Lane, LoggedBatch, LoggedDelivery, Put, encode
from bridge.mq.embedded.storage.layout import LOG_BYTES
from bridge.mq.embedded.storage.store import COMPACTION_FLOOR, DEAD_BYTES, DEAD_ROWS, Store, primary_code
from bridge.mq.embedded.topics import shared_text
from bridge.mq.embedded.unit import Unit, take_back, undo
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)


#: Size of the reserve in bytes: room for the write-ahead log, and for its copy in the database.
RESERVE_BYTES = 2 * LOG_BYTES
#: Sufficient size in bytes if the database has enough free pages, so that a checkpoint does not extend it.
MIN_RESERVE_BYTES = RESERVE_BYTES * 3 // 4
#: Free space, as a fraction of the file system and with a maximum in bytes, that is required in addition to the reserve
#: before messages are accepted again. Otherwise the next messages would fill the disk again.
FREE_FRACTION, MAX_FREE_BYTES = 0.05, 64 * 2**20
#: Seconds between attempts to allocate the reserve again.
RETRY_INTERVAL = 5.0


class Reserve:
    """The reserve file, and whether the disk is full. After the start, only the recovery log's thread uses it.

    A bridge that stops leaves the file. The next start deletes it before the first write, so it succeeds on a full disk.
    """

    def __init__(self, store: Store, path: Path) -> None:
        self._store = store
        self._path = path
        self._kept = False
        self._retry_at = 0.0
        #: the disk is full and the reserve is deleted, so persistent messages are rejected
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
        self.full, self._retry_at = True, time.monotonic() + RETRY_INTERVAL
        log.critical(
            "MQB3002S %s: the disk is full; delivery continues, persistent messages are rejected until space is available",
            self._store.path,
        )
        self.empty_log()

    def until_retry(self) -> float:
        """Return the seconds until the next call of `retry`."""
        return max(self._retry_at - time.monotonic(), 0.0) if self.full else RETRY_INTERVAL

    def retry(self) -> None:
        """If the disk is full and RETRY_INTERVAL has passed, try to allocate the reserve again."""
        if not self.full or self.until_retry():
            return
        if self._take():
            self.full = False
            log.info("MQB3011I %s: disk space is available again; persistent messages are accepted", self._store.path)
        self._retry_at = time.monotonic() + RETRY_INTERVAL

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
                log.error("MQB3004E %s: WAL checkpoint failed: %s", self._store.path, error)

    def leave(self) -> None:
        """Allocate as much of a reserve for the next start as possible. The store is closed, and its log deleted."""
        if self._kept and self.full:
            allocate_available(self._path)

    def _take(self) -> bool:
        """Allocate the reserve. Return False if the disk has no room for it."""
        try:
            disk = os.statvfs(self._path.parent)
            free = disk.f_bavail * disk.f_frsize + self._store.log_bytes()
            if free < MIN_RESERVE_BYTES:
                return False
            self._store.checkpoint("TRUNCATE")
            spare = self._store.spare_bytes()
            size = MIN_RESERVE_BYTES if spare >= RESERVE_BYTES else RESERVE_BYTES
            beside = min(FREE_FRACTION * disk.f_blocks * disk.f_frsize, MAX_FREE_BYTES)
            if self.full and free + spare < size + beside:
                return False
        except (OSError, sqlite3.Error):
            return False
        return _allocate(self._path, size)


def reserve_path(data_directory: Path) -> Path:
    """Return the path of a data directory's reserve."""
    return data_directory / "queuemanager.reserve"


def allocate_available(path: Path) -> None:
    """Allocate a reserve that is as large as the disk permits, within a factor of two."""
    size = RESERVE_BYTES
    while size >= RESERVE_BYTES // 128 and not _allocate(path, size):
        size //= 2


def _allocate(path: Path, size: int) -> bool:
    """Create a file with allocated blocks. Return False if the disk has no room for it."""
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return False
    return True


def batch_of(messages: list[StoredMessage], removals: list[int]) -> LoggedBatch:
    """Create a row of the log. Adjacent deliveries of one publication share its message."""
    records: list[Put] = []
    lanes: dict[Lane, int] = {}
    last: Put | None = None
    lane, place = None, 0
    for stored in messages:
        if (
            lane is None
            or lane.correl_id is not stored.correl_id
            or lane.client_id != stored.client_id
            or lane.queue != stored.queue.name
            or lane.user_data != stored.user_data
            or lane.remote_queue != stored.remote_queue
        ):
            lane = Lane(stored.queue.name, stored.client_id, stored.remote_queue, stored.user_data, stored.correl_id)
            place = lanes.setdefault(lane, len(lanes))
        delivery = LoggedDelivery(stored.msg_number, place, stored.retained)
        message = stored.message
        topic = None if type(message) is PublicationMessage else stored.topic
        if last is not None and last.message is message and last.topic == topic and last.msg_id == stored.msg_id:
            last.deliveries.append(delivery)
            continue
        last = Put(
            message,
            [delivery],
            stored.priority,
            stored.put_time,
            topic,
            stored.expires_at,
            stored.msg_id,
            stored.put_application,
        )
        records.append(last)
    return LoggedBatch(records, removals, list(lanes))


def is_writable(unit: Unit) -> bool:
    """Return whether a unit of work can be encoded. Used to find the faulty unit of a group."""
    try:
        encode(batch_of([stored for stored in unit.puts if stored.durable], []))
        for kind, name, attributes in unit.changes.definitions:
            f"{kind}{name}{attributes}".encode()
    except Exception:
        return False
    return True


class _MessageRestorer:
    """Restores messages from the recovery log.

    Messages share equal parts, as before the restart. Otherwise a backlog of small messages would need a quarter more memory
    after a restart.
    """

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        #: the MQMD of each client's last publication, by client identifier
        self._descriptors: dict[str, MQMD] = {}
        self._message: Message | PublicationMessage | None = None

    def restored(self, record: Put, delivery: LoggedDelivery, lane: Lane) -> StoredMessage | None:
        """Return a message of the recovery log, or None if its queue no longer exists."""
        queue = self._queues.get(lane.queue)
        if queue is None:
            return None
        message, share = record.message, shared_text
        topic = record.topic
        if isinstance(message, PublicationMessage):
            if message is not self._message:
                self._message = message
                client_id = message.client_id = share(message.client_id)
                message.topic = share(message.topic)
                before = self._descriptors.get(client_id)
                if before == message.md:
                    message.md = before
                else:
                    self._descriptors[client_id] = message.md
            topic = message.topic
        return StoredMessage(
            queue=queue,
            msg_number=delivery.msg_number,
            message=message,
            persistent=True,
            priority=record.priority,
            put_time=record.put_time,
            client_id=share(lane.client_id),
            remote_queue=share(lane.remote_queue),
            topic=topic,
            user_data=None if lane.user_data is None else share(lane.user_data),
            retained=delivery.retained,
            correl_id=lane.correl_id,
            msg_id=record.msg_id,
            expires_at=record.expires_at,
            durable=True,
            put_application=None if record.put_application is None else share(record.put_application),
        )


class RecoveryLog:
    """Commits units of work: writes them to disk if necessary, and then makes them visible.

    `lock` is the queue manager's lock. `dispatch` runs a function on the queue manager's thread: the event loop of the
    bridge or, without an event loop, the recovery log's thread.
    """

    def __init__(self, store: Store, lock: threading.RLock) -> None:
        self._store = store
        self._lock = lock
        self.dispatch: Callable[[Callable[[], None]], Any] = lambda call: call()
        #: queues to search for live messages when a row is rewritten
        self.queues: Mapping[str, Queue] = {}
        #: space for removals on a full disk
        self.reserve = Reserve(store, reserve_path(store.path.parent))
        #: counters of group commits, or None
        self.commits: Commits | None = None
        self._waiting: list[Unit] = []
        self._busy = False
        self._ending = False
        self._closed = False
        self._rows: dict[int, LogRow] = {}
        self._dead: list[LogRow] = []
        self._logged = 0
        self._live = 0
        self._size = 0
        self._commits = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._run, name="recovery log", daemon=True)
        self._writer.start()

    @property
    def witness_failing(self) -> bool:
        """Whether the last commit could not be recorded in the witness."""
        return self._store.witness_failing

    def _run(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=self.reserve.until_retry())
            except queue.Empty:
                pass
            else:
                if work is None:
                    return
                work()
                del work  # otherwise its units would keep their messages in memory until the next commit
            self.reserve.retry()

    def close(self) -> None:
        """Wait until all submitted units have ended, stop the thread, and close the store."""
        idle = threading.Event()
        with self._lock:
            last = Unit()
            last.done = lambda _reason: idle.set()
            self.submit(last)
            self._closed = True
        if self._writer is not threading.current_thread():
            idle.wait(30)
            self._work.put(None)
            self._writer.join(30)
        self._store.close()
        self.reserve.leave()

    def commit(self, unit: Unit) -> int:
        """Submit a unit of work and wait for its end. Return MQRC_NONE, or the reason code if it was backed out."""
        ended = threading.Event()
        reasons: list[int] = []

        def done(reason: int) -> None:
            reasons.append(reason)
            ended.set()

        unit.done = done
        with self._lock:
            self.submit(unit)
        ended.wait()
        return reasons[0]

    def submit(self, unit: Unit) -> None:
        """Commit a unit of work. If nothing has to be written to disk, `done` may be called before this returns."""
        if self._closed:
            self._end([unit], cmqc.MQRC_Q_MGR_STOPPING)
            return
        self._waiting.append(unit)
        if not self._busy and not self._ending:
            self._advance()

    def _advance(self) -> None:
        while self._waiting and not self._busy:
            units, self._waiting = self._waiting, []
            batch, definitions, logged, moved = self._record(units)
            if batch is None:
                self._end(units, cmqc.MQRC_NONE)
                continue
            # Delete rows together with a new row that contains the number of rows, so that missing rows are detected.
            dead = self._dead.copy() if self._is_deletion_due() else []
            self._busy = True
            self._work.put(partial(self._commit, units, batch, definitions, logged, moved, dead))

    def _commit(
        self,
        units: list[Unit],
        batch: LoggedBatch,
        definitions: list[tuple[str, str, str | None]],
        logged: list[StoredMessage],
        moved: list[StoredMessage],
        dead: list[LogRow],
    ) -> None:
        """Write a group of units to disk, and schedule their end. Runs on the recovery log's thread."""
        row, reason = None, cmqc.MQRC_NONE
        commits = self.commits
        start = 0.0 if commits is None else time.perf_counter()
        try:
            row_id, size = self._write(batch, definitions, dead)
            row = LogRow(row_id, size)
            if commits is not None:
                commits.count(len(units), size, time.perf_counter() - start)
        except sqlite3.Error as error:
            log.error("MQB3005E writing %s failed: %s; units of work were backed out", self._store.path, error)
            reason = cmqc.MQRC_RESOURCE_PROBLEM
        except Exception:
            log.exception("MQB3006E writing %s failed; units of work were backed out", self._store.path)
            reason = cmqc.MQRC_UNEXPECTED_ERROR
        if commits is not None and reason:
            commits.fail()
        self.dispatch(partial(self._written, units, logged, moved, dead, row, reason))
        self.reserve.check_log()

    def _write(
        self, batch: LoggedBatch, definitions: list[tuple[str, str, str | None]], dead: list[LogRow]
    ) -> tuple[int, int]:
        """Write to disk like `Store.write`. If the disk is full, delete the reserve and try again."""
        for make_room in (self.reserve.empty_log, self.reserve.give_up):
            try:
                return self._store.write(batch, definitions, dead)
            except sqlite3.Error as error:
                if primary_code(error) != sqlite3.SQLITE_FULL:
                    raise
                make_room()
        return self._store.write(batch, definitions, dead)

    def _record(
        self, units: list[Unit]
    ) -> tuple[LoggedBatch | None, list[tuple[str, str, str | None]], list[StoredMessage], list[StoredMessage]]:
        """Return the writes of a group of units: the batch, definitions, new messages, and messages to log again.

        The batch is None if nothing has to be written. A commit of definitions only has an empty batch, whose number counts
        the commit.
        """
        for unit in units:
            changed = unit.changed
            if changed is None:
                continue
            for table, key, replacement in changed.latest:
                old = table.pop(key, None)
                if replacement is not None:
                    table[key] = replacement
                if old is None:
                    continue
                if old.linked:
                    old.queue.take(old)
                    unit.gets.append(old)
                    changed.displaced.append((table, key, old))
                else:
                    old.superseded = True
            changed.applied += changed.latest
            changed.latest = []
        self._commits += 1
        moved = [] if self._commits % DEAD_ROWS else self._to_move()
        logged: list[StoredMessage] = []
        removals: list[int] = []
        definitions: list[tuple[str, str, str | None]] = []
        for unit in units:
            for stored in unit.puts:
                if stored.durable and not stored.superseded:
                    logged.append(stored)
            for stored in unit.gets:
                if stored.row is not None:
                    removals.append(stored.msg_number)
            if unit.changed is not None:
                definitions += unit.changed.definitions
        if not logged and not removals and not moved and not definitions:
            return None, definitions, logged, moved
        return batch_of(moved + logged, removals), definitions, logged, moved

    def _to_move(self) -> list[StoredMessage]:
        """Return the messages of rows with few remaining messages. Logging these again allows the rows to be deleted.

        Recent rows usually become empty without that, so only older ones are considered, and only occasionally, because every
        queue is searched for their messages.
        """
        if self._size < COMPACTION_FLOOR or self._logged < 4 * self._live:
            return []
        settled = sorted(self._rows)[:-DEAD_ROWS]
        rows = [self._rows[row_id] for row_id in settled]
        chosen = {row for row in rows if row.live and row.live * 4 <= row.logged}
        if not chosen:
            return []
        return [stored for queue in self.queues.values() for stored in queue.messages() if stored.row in chosen]

    def _written(
        self,
        units: list[Unit],
        logged: list[StoredMessage],
        moved: list[StoredMessage],
        deleted: list[LogRow],
        row: LogRow | None,
        reason: int,
    ) -> None:
        with self._lock:
            if reason == cmqc.MQRC_NONE:
                self._delete(deleted)
                if row is not None:
                    self._account(row, logged, moved, [stored for unit in units for stored in unit.gets])
            elif reason == cmqc.MQRC_UNEXPECTED_ERROR:
                # A unit cannot be encoded. Write the other units.
                good = [unit for unit in units if is_writable(unit)]
                if len(good) < len(units):
                    units = [unit for unit in units if not is_writable(unit)]
                    self._waiting[:0] = good
            else:
                # Units submitted after a failed unit may depend on it. For example, a received record contains the message
                # ids of the previous unit.
                units += [unit for unit in self._waiting if unit.is_written]
                self._waiting = [unit for unit in self._waiting if not unit.is_written]
            self._end(units, reason)
            self._busy = False
            self._advance()

    def _account(
        self, row: LogRow, logged: list[StoredMessage], moved: list[StoredMessage], removals: list[StoredMessage]
    ) -> None:
        self._rows[row.id] = row
        self._size += row.size
        row.live = row.logged = len(logged) + len(moved)
        self._logged += row.logged
        self._live += len(logged)
        for stored in moved:
            old = stored.row
            stored.row = row
            if old is not None:
                self._succeed(old, row)
        for stored in logged:
            stored.row = row
        for stored in removals:
            self.account_removal(stored, row)
        if not row.live and not row.tombstones:
            self._dead.append(row)

    def account_removal(self, stored: StoredMessage, remover: LogRow) -> None:
        """Record that row `remover` contains the removal of a message."""
        row = stored.row
        if row is None:
            return
        stored.row = None
        self._live -= 1
        self._succeed(row, remover)

    def _succeed(self, row: LogRow, later: LogRow) -> None:
        """Record that `later` removes or replaces a message of `row`, so that `later` must not be deleted before `row`."""
        if row is not later:
            row.removed_by[later] = row.removed_by.get(later, 0) + 1
            later.tombstones += 1
        self._lose(row)

    def _lose(self, row: LogRow) -> None:
        row.live -= 1
        if not row.live and not row.tombstones and row.id in self._rows:
            self._dead.append(row)

    def _is_deletion_due(self) -> bool:
        return len(self._dead) >= DEAD_ROWS or sum(row.size for row in self._dead) >= DEAD_BYTES

    def _delete(self, deleted: list[LogRow]) -> None:
        if not deleted:
            return
        deleted_ids = set(deleted)
        self._dead = [row for row in self._dead if row not in deleted_ids]
        for row in deleted:
            del self._rows[row.id]
            self._size -= row.size
            self._logged -= row.logged
            for remover, count in row.removed_by.items():
                remover.tombstones -= count
                if not remover.tombstones and not remover.live and remover.id in self._rows:
                    self._dead.append(remover)

    def _end(self, units: list[Unit], reason: int) -> None:
        """Apply units or back them out, call their callbacks, and then announce their messages."""
        self._ending = True
        arrived: dict[Queue, list[StoredMessage]] = {}
        if reason != cmqc.MQRC_NONE:
            take_back(units)
            for unit in reversed(units):
                undo(unit)
        for unit in units:
            if unit.barrier and arrived:
                _announce(arrived)
                arrived = {}
            if reason == cmqc.MQRC_NONE:
                if unit.gets:
                    Queue.got(unit.gets)
                if unit.changed is not None:
                    for effect in unit.changed.effects:
                        effect()
                for stored in unit.puts:
                    target = stored.queue
                    if stored.superseded:
                        target.forget()
                        continue
                    target.append(stored)
                    batch = arrived.get(target)
                    if batch is None:
                        arrived[target] = [stored]
                    else:
                        batch.append(stored)
            if unit.done is not None:
                try:
                    unit.done(reason)
                except Exception:
                    log.exception("MQB3009E completing a unit of work failed")
        if arrived:
            _announce(arrived)
        self._ending = False

    def replay(self, queues: Mapping[str, Queue]) -> list[StoredMessage]:
        """Read the log, and return the messages that are still on `queues`, in order. Call it once, before anything else.

        Messages of deleted queues are dropped.
        """
        self.queues = queues
        restorer = _MessageRestorer(queues)
        messages: dict[int, StoredMessage] = {}
        orphans: dict[int, tuple[str, LogRow]] = {}
        for row, batch in self._store.batches():
            self._rows[row.id] = row
            self._size += row.size
            for record_put in batch.puts:
                for delivery in record_put.deliveries:
                    row.live += 1
                    row.logged += 1
                    self._logged += 1
                    self._live += 1
                    lane = batch.lanes[delivery.lane]
                    stored = restorer.restored(record_put, delivery, lane)
                    if stored is None:
                        _, before = orphans.pop(delivery.msg_number, ("", None))
                        orphans[delivery.msg_number] = (lane.queue, row)
                    else:
                        again = messages.pop(delivery.msg_number, None)
                        before = None if again is None else again.row
                        stored.row = row
                        messages[delivery.msg_number] = stored
                    if before is not None:
                        self._live -= 1
                        self._succeed(before, row)
            for number in batch.removed:
                if number in orphans:
                    self._live -= 1
                    self._succeed(orphans.pop(number)[1], row)
                stored = messages.pop(number, None)
                if stored is not None:
                    self.account_removal(stored, row)
            if not row.live and not row.tombstones:
                self._dead.append(row)
        if orphans:
            self._drop(orphans)
        self._dead = list(dict.fromkeys(self._dead))
        return [messages[number] for number in sorted(messages)]

    def _drop(self, orphans: dict[int, tuple[str, LogRow]]) -> None:
        """Remove messages of undefined queues, which would reappear on a new queue with the same name."""
        for name in sorted({name for name, _ in orphans.values()}):
            log.error("MQB3007E dropped the messages of queue %s: the queue does not exist", name)
        remover = LogRow(*self._store.write(LoggedBatch([], list(orphans)), [], []))
        self._rows[remover.id] = remover
        self._size += remover.size
        for _, row in orphans.values():
            self._live -= 1
            self._succeed(row, remover)


def _announce(arrived: dict[Queue, list[StoredMessage]]) -> None:
    """Pass messages to the consumers of their queues, or wake waiting gets."""
    for target, messages in arrived.items():
        if target.consumer is not None:
            try:
                target.consumer(messages)
            except Exception:
                log.exception("MQB3008E processing new messages on queue %s failed; they stay there", target.name)
        if target.waiters:
            target.announce()
