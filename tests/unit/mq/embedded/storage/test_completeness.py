"""The witness file: a database without all acknowledged commits does not start, whatever happened to its files."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from bridge.cli.program import program
from bridge.mq.data_directory import StoreError
from bridge.mq.database import backup, restore, salvage, verify
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.storage import layout
from bridge.mq.embedded.storage.batch import DIGEST_MASK, digest_of
from bridge.mq.embedded.storage.layout import PAGE_SIZE, batch_checksum
from bridge.witness import SIZE, read
from tests.helpers.damage import DAMAGE
from tests.helpers.damaged_database import BODIES, bodies, put, started
from tests.helpers.faulty_disk import compiled
from tests.helpers.killed_queue_manager import Child
from tests.helpers.storage_applications import define

#: Messages of several sizes are put and got, queues, subscriptions and retained publications are created and deleted.
LOAD = """
recovery_log.COMPACTION_FLOOR, recovery_log.DEAD_ROWS = 0, 16
manager = QueueManager("MQB1", directory)
for name in ("IN", "OUT"):
    EmbeddedConnection(manager).command(f"DEFINE QLOCAL({name}) REPLACE MAXDEPTH(99999)")

def work(n):
    connection = EmbeddedConnection(manager)
    handle = connection.open(MQOD(ObjectName="IN"), cmqc.MQOO_INPUT_SHARED)
    for number in itertools.count():
        put(connection, "IN", f"{run}.{n}.{number} " + "x" * (number * 7919 % 30_000))
        put(connection, "OUT", f"{run}.{n}.{number}")
        if number % 3:
            connection.get(handle, GetOptions())
        if number % 5 == 0:
            connection.command(f"DEFINE SUB('S{n}.{number}') REPLACE TOPICSTR('t/{number % 10}') DEST(OUT)")
        if number % 10 == 5:
            connection.command(f"DELETE SUB('S{n}.{number - 5}')")
        publish(connection, f"t/{number % 10}", f"retained {n}.{number}", RETAIN)
        say("done", f"{run}.{n}.{number}")

every_thread(work, 3)
"""
EXAMPLES = int(os.environ.get("MQBRIDGE_TEST_EXAMPLES") or 40)
#: Files without important content: they may be lost, changed and truncated.
WITHOUT_CONTENT = ("queuemanager.db-shm", "lock")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a queue manager that was killed under load, but not between a commit and its record.

    Such a commit was not acknowledged, so its loss is not an error.
    """
    while True:
        directory = tmp_path_factory.mktemp("killed") / "data"
        child = Child(LOAD, directory)
        child.read(150)
        child.kill()
        position = read(directory / "queuemanager.witness")
        database = layout.connect_read_only(directory / "queuemanager.db")
        last = database.execute("SELECT max(id) FROM batch").fetchone()[0]
        database.close()
        if position is not None and position.number == last:
            return directory


def contents(manager: QueueManager) -> Any:
    """Return everything that deliveries depend on."""
    return (
        {
            name: [(stored.msg_number, stored.message.data) for stored in queue.messages()]
            for name, queue in manager.objects.queues.items()
        },
        {topic: stored.message.data for topic, stored in manager.retained.items()},
        {name: subscription.row for name, subscription in manager.objects.topics.subscriptions.items()},
    )


@pytest.fixture(scope="module")
def expected(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    copy = tmp_path_factory.mktemp("expected") / "data"
    shutil.copytree(killed, copy)
    manager = QueueManager("MQB1", copy)
    try:
        return contents(manager)
    finally:
        manager.close()


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["queuemanager.db", "queuemanager.db-wal", "queuemanager.witness", *WITHOUT_CONTENT])
def test_no_acknowledged_message_is_lost_silently(
    killed: Path, expected: Any, tmp_path: Path, name: str, damage: str
) -> None:
    """Identical contents, or an error at the start and by `data verify`."""
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    change, rounds = DAMAGE[damage]
    for number in range(seed, seed + max(rounds * EXAMPLES // 40, 1)):
        directory = tmp_path / str(number)
        shutil.copytree(killed, directory)
        if not (directory / name).exists() or not (directory / name).stat().st_size:
            return
        label = f"MQBRIDGE_TEST_SEED={number}: {name} {change(directory / name, random.Random(number))}"
        try:
            findings = verify(directory)
            verified = bool(findings.damage or findings.missing)
        except StoreError:
            verified = True
        try:
            manager = QueueManager("MQB1", directory)
        except StoreError as error:
            assert verified, f"{label}: verify does not find {error}"
            assert name not in WITHOUT_CONTENT, f"{label}: {error}"
        else:
            assert contents(manager) == expected, label
            manager.close()
        shutil.rmtree(directory)


def power_failure(directory: Path, library: Path, run: str, lines: int, unsynced: Callable[[str], bool]) -> set[str]:
    """Put messages, then simulate a power failure. Return the messages that were committed.

    The writes since the last fsync of each file are lost, unless they are `unsynced` writes that reached the disk by chance.
    """
    synced = directory.with_name("synced")
    shutil.copytree(directory, synced)
    child = Child(LOAD, directory, run, LD_PRELOAD=str(library), FAULTY_DISK_SYNCED=str(synced))
    child.read(lines)
    child.kill()
    # It is written after the log, without an fsync.
    before, after = (read(place / "queuemanager.witness") for place in (directory, synced))
    assert before is not None and after is not None and after.number < before.number
    for name in ("queuemanager.db", "queuemanager.db-wal", "queuemanager.witness"):
        if unsynced(name):
            shutil.copy(directory / name, synced)
    shutil.rmtree(directory)
    synced.rename(directory)
    return {line[1] for line in child.lines}


def out(directory: Path) -> set[str]:
    """Return the messages that a start finds on queue OUT."""
    assert not verify(directory).missing
    manager = QueueManager("MQB1", directory)
    bodies_out = {stored.message.data.decode() for stored in manager.objects.queues["OUT"].messages()}
    manager.close()
    return bodies_out


def test_a_start_after_a_power_failure_succeeds(tmp_path: Path) -> None:
    started(tmp_path / "data").close()
    committed = power_failure(tmp_path / "data", compiled(tmp_path), "0", 200, lambda name: False)
    assert committed <= out(tmp_path / "data")


# 100 power failures.
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_starts_after_many_power_failures(tmp_path: Path) -> None:
    """Five power failures of each queue manager at random moments. Any unsynced writes of a file may be on the disk."""
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    library, failures, committed_in_all = compiled(tmp_path), 0, 0
    for number in range(seed, seed + 20):
        print(f"MQBRIDGE_TEST_SEED={number}", flush=True)
        chance, directory, committed = random.Random(number), tmp_path / str(number) / "data", set[str]()
        started(directory).close()
        for run in range(5):
            lines = chance.randint(1, 200)
            committed |= power_failure(directory, library, str(run), lines, lambda name: chance.random() < 0.5)  # noqa: B023
            failures += 1
            assert committed <= out(directory)
        committed_in_all += len(committed)
        shutil.rmtree(directory)
    print(f"{failures} power failures, {committed_in_all} messages committed")


def mqbridge(*words: object) -> Result:
    return CliRunner().invoke(program, [str(word) for word in words])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The data directory of a queue manager that was killed after BODIES[:100] had been put."""
    running, copy = tmp_path / "running", tmp_path / "data"
    manager = started(running)
    put(manager, *BODIES[:100])
    shutil.copytree(running, copy)
    manager.close()
    return copy


def lose_the_end(directory: Path) -> int:
    """Flip a bit of the sixth page in the write-ahead log. Return the number of the last commit."""
    log = directory / "queuemanager.db-wal"
    content = bytearray(log.read_bytes())
    content[32 + 5 * (24 + PAGE_SIZE) + 100] ^= 1
    log.write_bytes(content)
    position = read(directory / "queuemanager.witness")
    assert position is not None
    return position.number


def test_the_start_reports_the_missing_commits_and_the_remedy(directory: Path) -> None:
    last = lose_the_end(directory)
    files = {file: file.read_bytes() for file in directory.iterdir() if not file.name.endswith(("-shm", "lock"))}
    with pytest.raises(StoreError, match=rf"commits \d+ to {last} are missing: commit \d+ of 20.* UTC") as error:
        QueueManager("MQB1", directory)
    assert "mqbridge data restore" in str(error.value) and "--accept-loss" in str(error.value)
    result = mqbridge("data", "verify", directory)
    assert result.exit_code == 1 and f"to {last} are missing" in result.output and "--accept-loss" in result.output
    assert {file: file.read_bytes() for file in files} == files, "something was changed"


def test_salvage_accepts_the_loss_only_with_an_option(directory: Path, tmp_path: Path) -> None:
    last = lose_the_end(directory)
    result = mqbridge("data", "salvage", directory, tmp_path / "new")
    assert result.exit_code == 1 and f"to {last} are missing" in result.output and not (tmp_path / "new").exists()
    result = mqbridge("data", "salvage", directory, tmp_path / "new", "--accept-loss")
    assert result.exit_code == 0, result.output
    assert not verify(tmp_path / "new").missing
    manager = started(tmp_path / "new")
    bodies_left = bodies(manager)
    manager.close()
    assert bodies_left == BODIES[: len(bodies_left)] and 0 < len(bodies_left) < 100


def test_a_deleted_database_is_not_created_again(directory: Path) -> None:
    (directory / "queuemanager.db").unlink()
    with pytest.raises(StoreError, match="is missing"):
        QueueManager("MQB1", directory)
    assert not (directory / "queuemanager.db").exists()


def test_the_witness_of_another_database_is_rejected(directory: Path, tmp_path: Path) -> None:
    started(tmp_path / "other").close()
    shutil.copy(tmp_path / "other" / "queuemanager.witness", directory)
    with pytest.raises(StoreError, match="belongs to another database"):
        QueueManager("MQB1", directory)


def test_a_copy_of_the_database_alone_is_neither_started_nor_restored(directory: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(directory / "queuemanager.db", alone)
    with pytest.raises(StoreError, match=r"queuemanager\.witness is missing"):
        QueueManager("MQB1", alone)
    with pytest.raises(StoreError, match="lack commits of its write-ahead log"):
        restore(alone / "queuemanager.db", tmp_path / "new")


def test_a_truncated_backup_is_rejected(directory: Path, tmp_path: Path) -> None:
    lose_the_end(directory)
    with pytest.raises(StoreError, match="are missing"):
        backup(directory, tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()


def test_an_older_database_in_place_of_a_restored_one_is_noticed(tmp_path: Path) -> None:
    manager = started(tmp_path / "data")
    put(manager, *BODIES[:3])
    backup(tmp_path / "data", tmp_path / "backup.db")
    put(manager, *BODIES[3:6])
    manager.close()
    restore(tmp_path / "backup.db", tmp_path / "new")
    shutil.copy(tmp_path / "data" / "queuemanager.db", tmp_path / "new")
    with pytest.raises(StoreError, match="belongs to another database"):
        QueueManager("MQB1", tmp_path / "new")


def test_a_restore_begins_a_new_epoch(tmp_path: Path) -> None:
    """A start does not. Packet identifiers that mappings recorded in another epoch are forgotten."""
    epochs = []
    for _ in range(2):
        manager = started(tmp_path / "data")
        epochs.append(manager.epoch)
        manager.close()
    assert epochs[0] == epochs[1]
    backup(tmp_path / "data", tmp_path / "backup.db")
    restore(tmp_path / "backup.db", tmp_path / "restored")
    salvage(tmp_path / "data", tmp_path / "salvaged")
    for directory in ("restored", "salvaged"):
        manager = started(tmp_path / directory)
        epochs.append(manager.epoch)
        manager.close()
    assert len(set(epochs)) == 3


def test_definitions_count_as_commits(tmp_path: Path) -> None:
    """An acknowledged subscription is not lost silently, even if no message was put after it."""
    manager = started(tmp_path / "running")
    for number in range(20):
        define(EmbeddedConnection(manager), f"DEFINE SUB(S{number}) TOPICSTR('t') DEST(KEPT)")
    shutil.copytree(tmp_path / "running", tmp_path / "data")
    manager.close()
    lose_the_end(tmp_path / "data")
    with pytest.raises(StoreError, match="missing"):
        QueueManager("MQB1", tmp_path / "data")


def test_a_missing_definition_is_noticed(directory: Path) -> None:
    """As with a database file and a log from different times."""
    started(directory).close()
    with sqlite3.connect(directory / "queuemanager.db") as database:
        database.execute("DELETE FROM object WHERE name = 'KEPT'")
    database.close()
    assert "definitions are not as they were at the last commit" in verify(directory).damage
    with pytest.raises(StoreError, match="definitions are not as they were"):
        QueueManager("MQB1", directory)


def test_an_older_witness_is_not_an_error(directory: Path) -> None:
    """After a power failure: the log was synced, the witness was not."""
    manager = started(directory)
    older = (directory / "queuemanager.witness").read_bytes()
    put(manager, b"more")
    manager.close()
    (directory / "queuemanager.witness").write_bytes(older)
    assert not verify(directory).missing
    manager = started(directory)
    assert bodies(manager)[-1] == b"more"
    manager.close()


def test_the_witness_is_written_before_a_commit_ends(directory: Path) -> None:
    manager = started(directory)
    for number in range(3):
        put(manager, b"%d" % number)
        position = read(directory / "queuemanager.witness")
        assert position is not None and position.number == manager.recovery_log._store._last_row
    manager.close()
    assert (directory / "queuemanager.witness").stat().st_size == SIZE


def test_a_witness_that_cannot_be_written_is_reported(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Commits continue, and are recorded again as soon as that is possible."""
    manager = started(directory)

    def failing(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("bridge.witness.os.pwrite", failing)
        put(manager, b"first", b"second")
        assert manager.recovery_log.witness_failing
    assert caplog.text.count("MQB3012E") == 1
    put(manager, b"third")
    assert not manager.recovery_log.witness_failing
    manager.close()
    manager = started(directory)
    assert bodies(manager)[-3:] == [b"first", b"second", b"third"]
    manager.close()


def test_a_directory_of_release_0_2_0_gets_a_witness_and_can_be_downgraded(tmp_path: Path) -> None:
    """Written at commit cd5efb97: 20 messages put, 5 taken, a subscription, a retained publication."""
    database = tmp_path / "queuemanager.db"
    shutil.copy(Path(__file__).parent / "data" / "release-0.2.0.db", database)
    assert not verify(tmp_path).missing
    manager = started(tmp_path)
    put(manager, b"new")
    assert [*bodies(manager)[:15], bodies(manager)[-1]] == [
        *(b"message %d" % number for number in range(5, 20)),
        b"new",
    ]
    manager.close()
    # The older release ignores the witness and the additional columns.
    with sqlite3.connect(database) as connection:
        (row_id, body) = connection.execute("SELECT id, body FROM batch ORDER BY id DESC LIMIT 1").fetchone()
        _, _, lanes, rows, digest, *_ = msgspec.msgpack.decode(body)
        older = msgspec.msgpack.encode([[], [], lanes, rows + 1, (digest + digest_of(row_id + 1)) & DIGEST_MASK])
        connection.execute("INSERT INTO batch VALUES (?, ?, ?)", (row_id + 1, older, batch_checksum(row_id + 1, older)))
    connection.close()
    assert not verify(tmp_path).missing and not verify(tmp_path).damage
    started(tmp_path).close()
    (tmp_path / "queuemanager.witness").unlink()
    with pytest.raises(StoreError, match=r"queuemanager\.witness is missing"):
        QueueManager("MQB1", tmp_path)
