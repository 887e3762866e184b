"""The witness file: a database without all acknowledged commits does not start, whatever happened to its files."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from bridge.cli.program import program
from bridge.mq.data_directory import StoreError
from bridge.mq.database import backup, restore, salvage, verify
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.storage.batch import DIGEST_MASK, digest_of
from bridge.mq.embedded.storage.layout import PAGE_SIZE, batch_checksum
from bridge.witness import SIZE, read
from tests.helpers.damaged_database import BODIES, bodies, put, started
from tests.helpers.storage_applications import define


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
