"""Failing disks, and rows of the log: work that could not be written has no effect."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.storage import recovery_log as recovery_log_module
from bridge.mq.mqi import MQOD, MQSD, GetOptions, MQError
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE
from tests.helpers.storage_applications import define, drained, opened, publish, put

SYNC = cmqc.MQPMO_SYNCPOINT


# A disk that fails ----------------------------------------------------------------------------------------------------


class Disk:
    """A queue manager whose disk can be told to fail."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manager = QueueManager("MQB1", directory)
        self.connection = EmbeddedConnection(self.manager)

    def restart(self) -> None:
        self.manager.close()
        self.__init__(self.directory)  # type: ignore[misc]

    @contextmanager
    def failing(self, error: Exception | None = None) -> Iterator[None]:
        """Make all writes in this block fail before anything is written."""
        store = self.manager.recovery_log._store
        real = store.write

        def write(*_arguments: Any) -> None:
            raise error or sqlite3.OperationalError("database or disk is full")

        store.write = write  # type: ignore[assignment]
        try:
            yield
        finally:
            store.write = real

    @contextmanager
    def refused(self, reason: int = cmqc.MQRC_RESOURCE_PROBLEM, error: Exception | None = None) -> Iterator[None]:
        with self.failing(error), pytest.raises(MQError) as raised:
            yield
        assert raised.value.reason == reason

    def depth(self, queue: str) -> int:
        return self.manager.objects.queues[queue].depth


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    define(disk.connection, "DEFINE QLOCAL(Q)")
    define(disk.connection, "DEFINE QLOCAL(P)")
    yield disk
    disk.manager.close()


def test_a_put_that_cannot_be_written_has_no_effect(disk: Disk) -> None:
    with disk.refused():
        put(disk.connection, "Q", b"lost")
    assert (drained(disk.connection, "Q"), disk.depth("Q")) == ([], 0)
    put(disk.connection, "Q", b"kept")
    disk.restart()
    assert drained(disk.connection, "Q") == ["kept"]


def test_a_unit_of_work_that_cannot_be_written_is_backed_out_completely(disk: Disk) -> None:
    put(disk.connection, "Q", b"first")
    put(disk.connection, "Q", b"second")
    handle = disk.connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    assert disk.connection.get(handle, GetOptions(Options=cmqc.MQGMO_SYNCPOINT)).data == b"first"
    put(disk.connection, "P", b"new", SYNC)
    put(disk.connection, "P", b"new, not persistent", SYNC, MQMD(Persistence=0))
    publish(disk.connection, "t", b"state", SYNC | cmqc.MQPMO_RETAIN)
    with disk.refused():
        disk.connection.commit()
    assert drained(disk.connection, "Q") == ["first", "second"]
    assert (drained(disk.connection, "P"), disk.depth("P"), disk.depth("Q")) == ([], 0, 2)
    assert disk.manager.retained == {}
    assert disk.connection.get(handle, GetOptions()).data == b"first"
    disk.restart()
    assert drained(disk.connection, "Q") == ["second"]


def test_a_get_that_cannot_be_written_leaves_the_message(disk: Disk) -> None:
    put(disk.connection, "Q", b"m")
    handle = disk.connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    with disk.refused():
        disk.connection.get(handle, GetOptions())
    message = disk.connection.get(handle, GetOptions())
    assert message.data == b"m"


def test_operations_without_disk_writes_continue(disk: Disk) -> None:
    with disk.failing():
        put(disk.connection, "Q", b"soft", md=MQMD(Persistence=0))
    assert drained(disk.connection, "Q") == ["soft"]


@pytest.mark.parametrize("replacement", [b"new", None])
def test_a_retained_publication_stays_if_its_successor_cannot_be_written(disk: Disk, replacement: bytes | None) -> None:
    publish(disk.connection, "t", b"old", cmqc.MQPMO_RETAIN)
    with disk.refused():
        if replacement is None:
            disk.connection.command("CLEAR TOPICSTR('t') CLRTYPE(RETAINED)")
        else:
            publish(disk.connection, "t", replacement, cmqc.MQPMO_RETAIN)
    assert disk.manager.retained["t"].message.data == b"old"
    disk.restart()
    assert disk.manager.retained["t"].message.data == b"old"
    publish(disk.connection, "t", b"newer", cmqc.MQPMO_RETAIN)
    disk.restart()
    assert disk.manager.retained["t"].message.data == b"newer"


def test_a_definition_that_cannot_be_written_has_no_effect(disk: Disk) -> None:
    with disk.refused():
        disk.connection.command("DEFINE QLOCAL(NEW)")
    with disk.refused():
        disk.connection.command("ALTER QLOCAL(Q) MAXDEPTH(7)")
    assert "NEW" not in disk.manager.objects.queues
    assert disk.manager.objects.queues["Q"].max_depth != 7
    define(disk.connection, "DEFINE QLOCAL(NEW)")


def test_a_subscription_that_cannot_be_written_has_no_effect(disk: Disk) -> None:
    durable = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED, ObjectString="t", SubName="S")
    queues = set(disk.manager.objects.queues)
    with disk.refused():
        disk.connection.subscribe(durable)
    assert "S" not in disk.manager.objects.topics.subscriptions
    assert set(disk.manager.objects.queues) == queues
    handle, _ = disk.connection.subscribe(durable)
    publish(disk.connection, "t", b"1")
    with disk.refused():
        disk.connection.close(handle, cmqc.MQCO_REMOVE_SUB)
    publish(disk.connection, "t", b"2")
    queue = disk.manager.objects.topics.subscriptions["S"].queue.name
    assert drained(disk.connection, queue) == ["1", "2"]
    disk.restart()
    assert drained(disk.connection, queue) == ["1", "2"]


def test_an_unexpected_error_does_not_end_the_recovery_log(disk: Disk) -> None:
    with disk.refused(cmqc.MQRC_UNEXPECTED_ERROR, RuntimeError("surprise")):
        put(disk.connection, "Q", b"lost")
    put(disk.connection, "Q", b"kept")
    assert drained(disk.connection, "Q") == ["kept"]


def test_commits_after_the_end_are_rejected(tmp_path: Path) -> None:
    with opened(tmp_path) as queue_manager:
        connection = EmbeddedConnection(queue_manager)
        define(connection, "DEFINE QLOCAL(Q)")
    with pytest.raises(MQError) as error:
        put(connection, "Q", b"late")
    assert error.value.reason == cmqc.MQRC_Q_MGR_STOPPING


def test_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    """SQLite's own error in the middle of a commit: the database must not grow."""
    store = disk.manager.recovery_log._store
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages + 20}")
    committed = []
    with pytest.raises(MQError) as error:
        for number in range(1000):
            put(disk.connection, "Q", str(number).encode() + bytes(5000))
            committed.append(str(number))
    assert error.value.reason == cmqc.MQRC_RESOURCE_PROBLEM
    assert committed
    store._database.execute("PRAGMA max_page_count = 1000000")
    put(disk.connection, "Q", b"after")
    disk.restart()
    assert [body.rstrip("\0") for body in drained(disk.connection, "Q")] == [*committed, "after"]


# Locks of SQLite -------------------------------------------------------------------------------------------------------


def locked_bytes(file: Path) -> set[int]:
    """The first bytes of the POSIX locks that this process holds on a file."""
    inode = file.stat().st_ino
    fields = [line.split()[1:] for line in Path("/proc/locks").read_text().splitlines()]
    held = [rest for rest in fields if rest[0] == "POSIX" and rest[3] == str(os.getpid())]
    return {int(rest[5]) for rest in held if rest[4].rpartition(":")[2] == str(inode)}


def test_a_failed_commit_keeps_the_locks_of_sqlite(disk: Disk, tmp_path: Path) -> None:
    """Without them, the next process that opens the database truncates the index that this one has mapped."""
    shared_index, shared_database = 128, 0x40000002
    index, database = tmp_path / "queuemanager.db-shm", tmp_path / "queuemanager.db"

    def assert_locked() -> None:
        assert shared_index in locked_bytes(index)
        assert shared_database in locked_bytes(database)

    assert_locked()
    store = disk.manager.recovery_log._store
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(MQError) as error:
        for _ in range(1000):
            put(disk.connection, "Q", bytes(50_000))
    assert error.value.reason == cmqc.MQRC_RESOURCE_PROBLEM
    assert_locked()


def test_a_replaced_write_ahead_log_is_not_truncated(disk: Disk, tmp_path: Path) -> None:
    """It is not the file that SQLite writes to: a commit that failed cannot be removed from there."""
    put(disk.connection, "Q", b"a message")
    log = tmp_path / "queuemanager.db-wal"
    log.rename(tmp_path / "moved")
    log.write_bytes(bytes(1_000_000))
    with pytest.raises(OSError, match="was replaced"):
        disk.manager.recovery_log._store._open_log.cut()
    assert log.stat().st_size == 1_000_000
    (tmp_path / "moved").rename(log)


# Rows of the log ------------------------------------------------------------------------------------------------------


def test_a_message_logged_twice_does_not_return(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row of a message may be deleted later than the row to which the message was moved and the row that removed
    it.

    A message of OLD keeps the second row, which records a removal from the first row. A message of KEPT keeps the first row.
    """
    monkeypatch.setattr(recovery_log_module, "DEAD_ROWS", 1)
    connection = disk.connection
    define(connection, "DEFINE QLOCAL(KEPT)")

    def unit(queue: str, *bodies: bytes, take: int = 0) -> None:
        handle = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
        for _ in range(take):
            connection.get(handle, GetOptions(Options=cmqc.MQGMO_SYNCPOINT))
        for body in bodies:
            put(connection, queue, body, SYNC)
        connection.commit()
        connection.close(handle)

    # Row 1: two messages that stay, one to be removed. It is never sparse enough to be rewritten.
    put(connection, "KEPT", b"k1", SYNC)
    put(connection, "KEPT", b"k2", SYNC)
    put(connection, "Q", b"x", SYNC)
    connection.commit()
    # Row 2 removes x and logs eight messages. Seven of them are removed, so the eighth is moved.
    unit("Q", *(str(number).encode() for number in range(8)), take=1)
    unit("Q", take=7)
    assert drained(connection, "Q") == ["7"]
    monkeypatch.setattr(recovery_log_module, "COMPACTION_FLOOR", 0)
    first = next(disk.manager.objects.queues["Q"].messages()).row
    commits = 0
    while next(disk.manager.objects.queues["Q"].messages()).row is first:
        unit("P", *[b"p"] * 8)
        handle = connection.open(MQOD(ObjectName="P"), cmqc.MQOO_INPUT_SHARED)
        for _ in range(8):
            connection.get(handle, GetOptions(Options=cmqc.MQGMO_SYNCPOINT))
        connection.commit()
        connection.close(handle)
        commits += 1
        assert commits < 50, "never written again"
    monkeypatch.setattr(recovery_log_module, "COMPACTION_FLOOR", 1 << 60)
    unit("Q", take=1)
    for number in range(5):  # rows that count as obsolete are deleted now
        put(connection, "KEPT", str(number).encode())
    disk.restart()
    assert drained(disk.connection, "Q") == []
    assert drained(disk.connection, "KEPT") == ["k1", "k2", "0", "1", "2", "3", "4"]


def test_messages_of_a_deleted_queue_do_not_return_with_its_name(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_log_module, "DEAD_ROWS", 1)
    put(disk.connection, "Q", b"deleted", SYNC)
    put(disk.connection, "P", b"keeps the row", SYNC)
    disk.connection.commit()
    define(disk.connection, "DELETE QLOCAL(Q) PURGE")
    disk.restart()
    put(disk.connection, "P", b"m")
    put(disk.connection, "P", b"m")
    define(disk.connection, "DEFINE QLOCAL(Q)")
    disk.restart()
    assert drained(disk.connection, "Q") == []


def test_a_commit_is_synced(disk: Disk) -> None:
    """A test cannot cut the power. SQLite syncs at each commit in WAL mode with synchronous=FULL."""
    database = disk.manager.recovery_log._store._database
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)


def test_many_threads_share_few_writes(disk: Disk) -> None:
    """Group commit: all units that wait during a sync are part of the next write."""
    store = disk.manager.recovery_log._store
    real, writes = store.write, []
    first, release = threading.Event(), threading.Event()

    def write(*arguments: Any) -> Any:
        writes.append(arguments)
        first.set()
        assert release.wait(PATIENCE)
        return real(*arguments)

    store.write = write  # type: ignore[assignment]
    threads = [
        threading.Thread(target=put, args=(EmbeddedConnection(disk.manager), "Q", str(number).encode()))
        for number in range(20)
    ]
    threads[0].start()
    assert first.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    while True:
        with disk.manager.lock:
            if len(disk.manager.recovery_log._waiting) == 19:
                break
    assert drained(EmbeddedConnection(disk.manager), "Q") == [], "nothing is visible before it is on disk"
    release.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(writes) == 2
    assert len(drained(disk.connection, "Q")) == 20
