"""Backups of a queue manager: consistent, complete, or rejected. Restores of backups."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bridge.cli.program import program
from bridge.mq import database as module
from bridge.mq.data_directory import DataDirectoryInUse, StoreError, acting_as_owner, hold
from bridge.mq.database import backup, restore, verify
from bridge.mq.embedded.storage.layout import SCHEMA_VERSION
from tests.helpers.damaged_database import BODIES, FOREIGN_SCHEMA, QUEUE, bodies, put, started, tamper

OLD = Path(__file__).parent / "data"


@pytest.fixture
def file(written: Path, tmp_path: Path) -> Path:
    """A backup of the data directory."""
    backup_file = tmp_path / "backup.db"
    backup(written, backup_file)
    return backup_file


def mqbridge(*words: object) -> Result:
    return CliRunner().invoke(program, [str(word) for word in words])


def test_a_stopped_queue_manager_is_restored_unchanged(written: Path, file: Path, tmp_path: Path) -> None:
    contents, former_directory = restore(file, tmp_path / "new" / "place")
    assert (contents.messages, contents.version, former_directory) == (len(BODIES), SCHEMA_VERSION, None)
    manager = started(tmp_path / "new" / "place")
    assert bodies(manager) == BODIES
    manager.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


def test_a_backup_is_consistent_while_messages_are_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It contains the messages of an application up to some point that is later than the start of the backup."""
    monkeypatch.setattr(module, "_PAGES", 1)
    manager = started(tmp_path / "data")
    acknowledged = 0
    ended = threading.Event()
    loading = threading.Event()

    def load() -> None:
        nonlocal acknowledged
        while not ended.is_set():
            put(manager, b"%08d" % acknowledged + bytes(20_000))
            acknowledged += 1
            if acknowledged == 50:
                loading.set()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        loading.wait()
        for number in range(5):
            before = acknowledged
            backup(tmp_path / "data", tmp_path / f"{number}.db")
            after = acknowledged
            restore(tmp_path / f"{number}.db", tmp_path / str(number))
            other = started(tmp_path / str(number))
            numbers = [int(body[:8]) for body in bodies(other)]
            other.close()
            assert numbers == list(range(len(numbers)))
            assert before <= len(numbers) <= after + 1
    finally:
        ended.set()
        thread.join()
        manager.close()
    assert not verify(tmp_path / "data").damage


def test_a_backup_contains_the_write_ahead_log(tmp_path: Path) -> None:
    manager = started(tmp_path / "data")
    put(manager, *BODIES[:3])
    assert (tmp_path / "data" / "queuemanager.db-wal").stat().st_size
    assert backup(tmp_path / "data", tmp_path / "b.db").messages == 3
    manager.close()


def test_message_identifiers_are_not_reused_after_a_restore(written: Path, file: Path, tmp_path: Path) -> None:
    """A restored queue manager generates no MsgId that the lost one generated after the backup."""
    for _ in range(3):
        lost = started(written)
        numbers = {lost.next_number() for _ in range(10)}
        lost.close()
    restore(file, tmp_path / "new")
    manager = started(tmp_path / "new")
    assert min(manager.next_number() for _ in range(10)) > max(numbers)
    manager.close()


def test_an_existing_queue_manager_is_not_overwritten_or_is_kept(written: Path, file: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    manager = started(place)
    put(manager, b"of the old one")
    with pytest.raises(DataDirectoryInUse):
        held = hold(place)  # as for a bridge
        try:
            restore(file, place, force=True)
        finally:
            held.close()
    manager.close()
    with pytest.raises(StoreError, match="--force"):
        restore(file, place)
    _, former_directory = restore(file, place, force=True)
    assert former_directory is not None
    for directory, expected in ((place, BODIES), (former_directory, [b"of the old one"])):
        manager = started(directory)
        assert bodies(manager) == expected
        manager.close()


def test_the_log_of_a_killed_queue_manager_is_not_applied_to_the_restored_one(file: Path, tmp_path: Path) -> None:
    place, killed = tmp_path / "place", tmp_path / "killed"
    manager = started(place)
    put(manager, b"in the write-ahead log")
    shutil.copytree(place, killed)
    manager.close()
    assert (killed / "queuemanager.db-wal").stat().st_size
    _, former_directory = restore(file, killed, force=True)
    assert former_directory is not None
    for directory, expected in ((killed, BODIES), (former_directory, [b"in the write-ahead log"])):
        manager = started(directory)
        assert bodies(manager) == expected
        manager.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_backup_is_rejected_or_the_damage_is_harmless(file: Path, tmp_path: Path, seed: int) -> None:
    content = bytearray(file.read_bytes())
    at = random.Random(seed).randrange(len(content))
    content[at] ^= 1 << seed % 8
    file.write_bytes(content)
    try:
        restore(file, tmp_path / "new")
    except StoreError:
        assert not (tmp_path / "new" / "queuemanager.db").exists()
        return
    manager = started(tmp_path / "new")
    assert bodies(manager) == BODIES
    manager.close()


@pytest.mark.parametrize("content", [b"", b"no database", bytes(100_000)])
def test_files_that_are_not_backups_are_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(StoreError):
        restore(tmp_path / "file", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("schema", ["CREATE TABLE fact (name TEXT, value INTEGER)", "CREATE TABLE x (y INTEGER)"])
def test_a_database_of_another_program_is_rejected(tmp_path: Path, schema: str) -> None:
    database = sqlite3.connect(tmp_path / "file")
    database.execute(schema)
    database.close()
    with pytest.raises(StoreError):
        restore(tmp_path / "file", tmp_path / "new")


@pytest.mark.parametrize(("script", "named"), FOREIGN_SCHEMA.values(), ids=FOREIGN_SCHEMA)
def test_a_backup_with_another_schema_is_rejected(file: Path, tmp_path: Path, script: str, named: str) -> None:
    tamper(file, script)
    result = mqbridge("data", "restore", file, "--data-dir", tmp_path / "new")
    assert result.exit_code == 1 and named in result.stderr, result.output
    assert not (tmp_path / "new").exists()


def test_a_tampered_queue_manager_is_not_backed_up(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "data")
    tamper(tmp_path / "data" / "queuemanager.db", FOREIGN_SCHEMA["trigger"][0])
    with pytest.raises(StoreError, match="unexpected trigger 't'"):
        backup(tmp_path / "data", tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


def test_a_backup_of_a_newer_bridge_is_rejected(file: Path, tmp_path: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("UPDATE fact SET value = ? WHERE name = 'schema'", (SCHEMA_VERSION + 1,))
    database.close()
    with pytest.raises(StoreError, match="newer bridge"):
        restore(file, tmp_path / "new")


def test_a_damaged_queue_manager_does_not_replace_a_backup(written: Path, file: Path, tmp_path: Path) -> None:
    good = file.read_bytes()
    shutil.copytree(written, tmp_path / "damaged")
    with sqlite3.connect(tmp_path / "damaged" / "queuemanager.db") as database:
        database.execute("UPDATE batch SET checksum = checksum + 1 WHERE id = (SELECT max(id) FROM batch)")
    database.close()
    result = mqbridge("data", "backup", file, "--force", "--data-dir", tmp_path / "damaged")
    assert result.exit_code == 1 and "damaged" in result.stderr
    assert file.read_bytes() == good
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "damaged"]


def test_a_full_disk_leaves_no_incomplete_backup(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up during the backup. The error reports it, and an earlier backup is unchanged."""
    (tmp_path / "b.db").write_bytes(b"the one before")
    copy = module._copy

    def full(source: Path, new: Path) -> None:
        copy(source, new)
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(module, "_copy", full)
    with pytest.raises(StoreError, match="the disk is full"):
        backup(written, tmp_path / "b.db", replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b.db"]
    assert (tmp_path / "b.db").read_bytes() == b"the one before"


def test_a_backup_does_not_fill_the_disk_of_the_queue_manager(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(written, tmp_path / "data")
    disk = os.statvfs(tmp_path)
    room = (tmp_path / "data" / "queuemanager.db").stat().st_size + 1_000_000
    fields = list(disk)
    fields[1], fields[4] = 1, room
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(fields))
    with pytest.raises(StoreError, match="no room"):
        backup(tmp_path / "data", tmp_path / "b.db")


@pytest.mark.parametrize("name", ["queuemanager.db", "queuemanager.db-wal", "lock", "new.db", "link.db"])
def test_a_restore_replaces_no_file_in_a_data_directory(written: Path, tmp_path: Path, name: str) -> None:
    """Otherwise a queue manager would continue with a deleted file, and all later messages would be lost."""
    (tmp_path / "link").symlink_to(written, target_is_directory=True)
    before = {path.name: path.stat().st_ino for path in written.iterdir()}
    for file in (written / name, tmp_path / "link" / name):
        result = mqbridge("data", "backup", file, "--force", "--data-dir", written)
        assert result.exit_code == 1
        assert "is in the data directory of a queue manager" in result.stderr
    assert {path.name: path.stat().st_ino for path in written.iterdir()} == before


def test_a_backup_replaces_only_regular_files(written: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = mqbridge("data", "backup", tmp_path / "pipe", "--force", "--data-dir", written)
    assert result.exit_code == 1
    assert "is a device, a pipe or a socket" in result.stderr
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_restore_reports_a_full_disk(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(StoreError, match="No space left on device"):
        restore(file, tmp_path / "new")
    assert not (tmp_path / "new" / "queuemanager.db").exists()


def test_the_commands_describe_the_contents(written: Path, tmp_path: Path) -> None:
    file, new = tmp_path / "b.db", tmp_path / "new"
    assert mqbridge("data", "backup", file, "--data-dir", written).exit_code == 0
    assert mqbridge("data", "backup", file, "--data-dir", written).exit_code == 1
    result = mqbridge("data", "backup", file, "--force", "--json", "--data-dir", written)
    report = json.loads(result.stdout)
    assert (report["messages"], report["version"]) == (len(BODIES), SCHEMA_VERSION)
    result = mqbridge("data", "restore", file, "--data-dir", new)
    assert result.exit_code == 0, result.stderr
    assert f"{len(BODIES)} persistent messages" in result.stdout and "are delivered again" in result.stdout
    result = mqbridge("data", "restore", file, "--data-dir", new)
    assert result.exit_code == 1 and "--force" in result.stderr
    assert mqbridge("data", "restore", tmp_path / "none", "--data-dir", new).exit_code == 1
    assert QUEUE in {queue.name for queue in _queues(new)}


def _queues(directory: Path) -> list[Any]:
    manager = started(directory)
    queues = list(manager.objects.queues.values())
    manager.close()
    return queues


def test_a_backup_of_an_older_layout_is_upgraded_at_the_next_start(tmp_path: Path) -> None:
    file = shutil.copy(OLD / "layout-1.db", tmp_path)
    contents, _ = restore(Path(file), tmp_path / "new")
    assert contents.version == 1 and contents.messages
    started(tmp_path / "new").close()
    assert not verify(tmp_path / "new").damage
    assert (tmp_path / "new" / "queuemanager.db.layout-1").exists()


# As root ---------------------------------------------------------------------------------------------------------------

#: A user who owns the data directory, without an account on this machine.
SERVICE = 54_321

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Path]:
    """An empty directory of the service's user, below directories that this user may enter."""
    opened = [
        directory
        for directory in tmp_path.parents
        if directory.stat().st_uid == 0 and not directory.stat().st_mode & 0o001
    ]
    opened.append(tmp_path)
    modes = [directory.stat().st_mode for directory in opened]
    for opened_directory in opened:
        opened_directory.chmod(0o711)
    directory = tmp_path / "owned"
    directory.mkdir(mode=0o750)
    os.chown(directory, SERVICE, SERVICE)
    yield directory
    for opened_directory, mode in zip(opened, modes, strict=True):
        opened_directory.chmod(mode)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that only root can change."""
    file = tmp_path / "victim"
    file.write_text("of root")
    file.chmod(0o600)
    return file


def assert_untouched(victim: Path) -> None:
    status = victim.stat()
    assert (victim.read_text(), status.st_uid, stat.S_IMODE(status.st_mode)) == ("of root", 0, 0o600)


@as_root
@pytest.mark.parametrize("below", ["", "new"])
def test_everything_that_root_restores_belongs_to_the_owner_of_the_directory(
    file: Path, owned: Path, below: str
) -> None:
    place = owned / below
    restore(file, place)
    restore(file, place, force=True)
    for path in (place, *place.rglob("*")):
        assert (path.stat().st_uid, path.stat().st_gid) == (SERVICE, SERVICE), path
    assert os.geteuid() == 0
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(SERVICE)
    os.seteuid(SERVICE)
    try:
        for name in ("lock", "queuemanager.db"):
            (place / name).open("r+b").close()
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@as_root
@pytest.mark.parametrize("force", [False, True])
def test_root_does_not_follow_a_link_in_place_of_the_lock(file: Path, owned: Path, victim: Path, force: bool) -> None:
    (owned / "lock").symlink_to(victim)
    with pytest.raises(OSError, match="is a symbolic link"):
        restore(file, owned, force=force)
    assert_untouched(victim)
    assert [path.name for path in owned.iterdir()] == ["lock"]


@as_root
def test_root_does_not_write_to_a_file_that_the_owner_replaces_meanwhile(
    file: Path, owned: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner replaces the copy by a link while root writes it."""
    copyfileobj = shutil.copyfileobj

    def exchange(*arguments: Any) -> None:
        copyfileobj(*arguments)
        (new,) = owned.glob(".*.new")
        new.unlink()
        new.symlink_to(victim)

    monkeypatch.setattr(shutil, "copyfileobj", exchange)
    with pytest.raises(StoreError):
        restore(file, owned)
    assert_untouched(victim)


@as_root
def test_root_does_not_follow_a_link_of_another_user_in_place_of_the_directory(file: Path, owned: Path) -> None:
    elsewhere = owned.parent / "of root"
    elsewhere.mkdir()
    (owned / "data").symlink_to(elsewhere)
    os.chown(owned / "data", SERVICE, SERVICE, follow_symlinks=False)
    with pytest.raises(OSError):
        restore(file, owned / "data")
    assert list(elsewhere.iterdir()) == []


@as_root
def test_root_does_not_follow_a_link_of_the_owner_during_a_backup(
    written: Path, owned: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = module._copy

    def exchange(database: sqlite3.Connection, new: Path) -> None:
        new.unlink()
        new.symlink_to(victim)
        copy(database, new)

    victim.write_bytes(b"")  # SQLite would write to an empty file
    monkeypatch.setattr(module, "_copy", exchange)
    with pytest.raises(StoreError):
        backup(written, owned / "b.db")
    assert victim.read_bytes() == b""


@as_root
@pytest.mark.parametrize("words", [["data", "backup", "b.db", "--data-dir", "data"], ["data", "verify", "data"]])
def test_a_database_that_the_user_cannot_read_is_reported(owned: Path, written: Path, words: list[str]) -> None:
    shutil.copytree(written, owned / "data")
    for path in (owned / "data", owned / "data" / "queuemanager.witness"):
        os.chown(path, SERVICE, SERVICE)
    (owned / "data" / "queuemanager.db").chmod(0o600)
    # In this order: the owner may be unable to return to a working directory below /root.
    with contextlib.chdir(owned), acting_as_owner(owned):
        result = mqbridge(*words)
    assert result.exit_code == 1 and "unable to open database file" in result.stderr, result.output


@as_root
def test_everything_that_root_salvages_belongs_to_the_owner_of_the_directory(
    written: Path, owned: Path, victim: Path
) -> None:
    shutil.copytree(written, owned / "data")
    for path in (owned / "data", *(owned / "data").iterdir()):
        os.chown(path, SERVICE, SERVICE)
    (owned / "data" / "lock").unlink()
    result = mqbridge("data", "salvage", owned / "data", owned / "new")
    assert result.exit_code == 0, result.output
    for path in (owned / "data" / "lock", owned / "new", owned / "new" / "queuemanager.db"):
        assert path.stat().st_uid == SERVICE, path
    (owned / "data" / "lock").unlink()
    (owned / "data" / "lock").symlink_to(victim)
    assert mqbridge("data", "salvage", owned / "data", owned / "again").exit_code == 1
    assert_untouched(victim)


@as_root
def test_root_reports_a_missing_capability_to_act_as_the_owner(
    file: Path, owned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose capabilities were dropped."""

    def seteuid(user: int) -> None:
        if user:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    groups = os.getgroups()
    monkeypatch.setattr(os, "seteuid", seteuid)
    result = mqbridge("data", "restore", file, "--data-dir", owned)
    assert result.exit_code == 1 and f"cannot act as user {SERVICE}" in result.stderr, result.output
    assert list(owned.iterdir()) == []
    assert (os.getegid(), os.getgroups()) == (0, groups)
