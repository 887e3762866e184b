"""Damaged databases and temporary disk failures: no message is lost or duplicated silently."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.mq import database as salvage
from bridge.mq.data_directory import StoreError
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.mqsc.commands import run_script
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.storage.layout import SCHEMA_VERSION
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.damaged_database import BODIES, FOREIGN_SCHEMA, QUEUE, bodies, put, started, tamper
from tests.helpers.patience import PATIENCE


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "copy"
    shutil.copytree(written, directory)
    return directory


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_byte_is_detected_or_harmless(copy: Path, seed: int) -> None:
    database = copy / "queuemanager.db"
    content = bytearray(database.read_bytes())
    at = random.Random(seed).randrange(len(content))
    content[at] ^= 1 << seed % 8
    database.write_bytes(content)
    try:
        manager = QueueManager("MQB1", copy)
    except StoreError as error:
        assert str(database) in str(error)
        assert "mqbridge data salvage" in str(error) or "newer bridge" in str(error)
        return
    try:
        assert bodies(manager) == BODIES
    finally:
        manager.close()


def test_a_missing_batch_is_noticed(copy: Path) -> None:
    with sqlite3.connect(copy / "queuemanager.db") as database:
        database.execute("DELETE FROM batch WHERE id = (SELECT id FROM batch ORDER BY id LIMIT 1 OFFSET 17)")
    database.close()
    with pytest.raises(StoreError, match="batches where it had"):
        QueueManager("MQB1", copy)


@pytest.mark.parametrize(("script", "named"), FOREIGN_SCHEMA.values(), ids=FOREIGN_SCHEMA)
def test_a_database_with_another_schema_is_rejected(copy: Path, script: str, named: str) -> None:
    """Neither the start nor verify changes it, and both report an error."""
    tamper(copy / "queuemanager.db", script)
    before = sqlite3.connect(copy / "queuemanager.db")
    dump = list(before.iterdump())
    result = CliRunner().invoke(program, ["data", "verify", str(copy)])
    assert result.exit_code == 1 and named in result.stdout, result.output
    with pytest.raises(StoreError, match="mqbridge data salvage") as error:
        QueueManager("MQB1", copy)
    assert named in str(error.value)
    assert list(before.iterdump()) == dump
    before.close()


def test_salvage_ignores_a_foreign_trigger(copy: Path, tmp_path: Path) -> None:
    tamper(copy / "queuemanager.db", FOREIGN_SCHEMA["trigger"][0])
    findings = salvage.salvage(copy, tmp_path / "new")
    assert findings.damage == ["unexpected trigger 't'"]
    manager = started(tmp_path / "new")
    assert bodies(manager) == BODIES
    manager.close()


def test_salvage_does_not_read_views(copy: Path, tmp_path: Path) -> None:
    tamper(copy / "queuemanager.db", FOREIGN_SCHEMA["endless log"][0])
    findings = salvage.salvage(copy, tmp_path / "new")
    assert "unexpected view 'batch'" in findings.damage
    assert {name for _, name, _ in findings.objects} >= {QUEUE}


def test_verify_ends_even_with_an_enormous_batch_number(copy: Path) -> None:
    """After an unreadable row, verify searches the following rows by number, across gaps."""
    database = sqlite3.connect(copy / "queuemanager.db")
    ids = [row_id for (row_id,) in database.execute("SELECT id FROM batch ORDER BY id")]
    database.execute("INSERT INTO batch VALUES (?, ?, 0)", (1 << 62, bytes(300_000)))
    database.execute("INSERT INTO batch VALUES (?, ?, 0)", ((1 << 62) + 1, b"\x01"))
    database.commit()
    pages = database.execute("SELECT pageno FROM dbstat WHERE name = 'batch' AND pagetype = 'overflow'").fetchall()
    size = database.execute("PRAGMA page_size").fetchone()[0]
    database.close()
    with (copy / "queuemanager.db").open("r+b") as file:
        for (page,) in pages:
            file.seek((page - 1) * size)
            file.write(b"\xff" * 4)  # the number of the next overflow page
    findings = salvage.verify(copy)
    assert f"batch {1 << 62} of the log cannot be read" in findings.damage
    assert f"batch {(1 << 62) + 1} of the log is not as it was written" in findings.damage
    assert findings.batches == len(ids)


def test_an_empty_file_is_not_treated_as_a_new_queue_manager(copy: Path) -> None:
    (copy / "queuemanager.db").write_bytes(b"")
    with pytest.raises(StoreError, match="the file is empty"):
        QueueManager("MQB1", copy)
    assert (copy / "queuemanager.db").stat().st_size == 0


def test_a_newer_layout_is_rejected(copy: Path) -> None:
    with sqlite3.connect(copy / "queuemanager.db") as database:
        database.execute("UPDATE fact SET value = ? WHERE name = 'schema'", (SCHEMA_VERSION + 1,))
    database.close()
    with pytest.raises(StoreError, match="newer bridge"):
        QueueManager("MQB1", copy)


def test_a_directory_of_layout_1_is_upgraded(tmp_path: Path) -> None:
    """Written by the bridge at commit a300485: 20 messages put, 5 taken, a subscription, a retained publication."""
    original = Path(__file__).parent / "data" / "layout-1.db"
    shutil.copy(original, tmp_path / "queuemanager.db")
    for _ in range(2):
        manager = QueueManager("MQB1", tmp_path)
        try:
            expected = [b"message %d" % number for number in range(5, 20)]
            assert bodies(manager)[:15] == expected
            assert manager.objects.queues[QUEUE].max_depth == 777
            assert "plant events" in manager.objects.topics.subscriptions
            assert list(manager.retained) == ["plant/line1"]
        finally:
            manager.close()
    copy = tmp_path / "queuemanager.db.layout-1"
    with sqlite3.connect(copy) as database:
        assert database.execute("SELECT value FROM fact WHERE name = 'schema'").fetchone() == (1,)
    database.close()


def test_a_row_in_two_places_is_kept_once(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens in a file whose pages are from different times."""
    rows = salvage._rows

    def twice(*arguments: Any, **options: Any) -> Iterator[tuple[int, bytes, int | None]]:
        for row in rows(*arguments, **options):
            yield row
            yield row

    monkeypatch.setattr(salvage, "_rows", twice)
    findings = salvage.salvage(copy, tmp_path / "new")
    assert any("exists twice" in finding for finding in findings.damage)
    manager = started(tmp_path / "new")
    assert bodies(manager) == BODIES
    manager.close()


def test_verify_and_salvage_keep_intact_messages(copy: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(program, ["data", "verify", str(copy)]).exit_code == 0
    with sqlite3.connect(copy / "queuemanager.db") as database:
        (row_id,) = database.execute("SELECT id FROM batch WHERE instr(body, 'message 30 ')").fetchone()
        altered = "CAST(replace(body, 'message 30 ', 'massage 30 ') AS BLOB)"
        database.execute(f"UPDATE batch SET body = {altered} WHERE id = ?", (row_id,))
    database.close()
    verification = runner.invoke(program, ["data", "verify", str(copy)])
    assert verification.exit_code == 1
    assert f"batch {row_id} of the log is not as it was written" in verification.output
    before = (copy / "queuemanager.db").read_bytes()
    result = runner.invoke(program, ["data", "salvage", str(copy), str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert (copy / "queuemanager.db").read_bytes() == before
    manager = QueueManager("MQB1", tmp_path / "new")
    try:
        assert bodies(manager) == BODIES[:30] + BODIES[31:]
    finally:
        manager.close()


def test_one_damaged_definition_does_not_affect_others(copy: Path, tmp_path: Path) -> None:
    """Even if it is not valid text."""
    manager = started(copy)
    defines = "DEFINE QLOCAL(AAA) DESCR('marker')\nDEFINE QLOCAL(ZZZ)\nDEFINE SUB(KEEP) TOPICSTR('t') DEST(ZZZ)"
    run_script(manager, defines, "test")
    manager.close()
    with sqlite3.connect(copy / "queuemanager.db") as database:
        altered = "CAST(replace(CAST(attributes AS BLOB), CAST('marker' AS BLOB), x'ed61726b6572') AS TEXT)"
        changed = database.execute(f"UPDATE object SET attributes = {altered} WHERE name = 'AAA'")
        assert changed.rowcount == 1
    database.close()
    runner = CliRunner()
    for command in (["data", "verify", str(copy)], ["data", "salvage", str(copy), str(tmp_path / "new")]):
        assert "the definition of QLOCAL AAA is not as it was written" in runner.invoke(program, command).output
    manager = QueueManager("MQB1", tmp_path / "new")
    try:
        assert "ZZZ" in manager.objects.queues and "KEEP" in manager.objects.topics.subscriptions
    finally:
        manager.close()


# A disk that fails for a moment ----------------------------------------------------------------------------------------


def test_units_after_a_failed_unit_fail_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit submitted before the failure was known may depend on it: its record of received message ids includes those of
    the failed unit.
    """
    manager = started(tmp_path)
    try:
        store = manager.recovery_log._store
        write = store.write
        from threading import Event

        writing, let = Event(), Event()

        def failing(*args: object) -> tuple[int, int]:
            writing.set()
            let.wait(PATIENCE)
            monkeypatch.setattr(store, "write", write)
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(store, "write", failing)
        reasons: list[int] = []
        first, second = Ended(manager, reasons.append), Ended(manager, reasons.append)
        first.put(b"first")
        assert writing.wait(PATIENCE)
        second.put(b"second")
        let.set()
        first.wait(), second.wait()
        assert reasons == [cmqc.MQRC_RESOURCE_PROBLEM] * 2
        put(manager, b"third")
        assert bodies(manager) == [b"third"]
    finally:
        manager.close()


class Ended:
    """A unit of work with one message, submitted without waiting for its end."""

    def __init__(self, manager: QueueManager, callback: Callable[[int], None]) -> None:
        from threading import Event

        self._manager, self._told, self._ended = manager, callback, Event()

    def put(self, body: bytes) -> None:
        from bridge.mq.embedded.unit import Unit

        unit = Unit()

        def completed(reason: int) -> None:
            self._told(reason)
            self._ended.set()

        unit.done = completed
        with self._manager.lock:
            message = Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), body)
            self._manager.put(unit, self._manager.objects.resolve(QUEUE), message)
            self._manager.recovery_log.submit(unit)

    def wait(self) -> None:
        assert self._ended.wait(PATIENCE)


def test_one_unit_that_cannot_be_written_is_backed_out_alone(tmp_path: Path) -> None:
    """A definition that is not UTF-8 is part of a group commit. The other units of the group are committed."""
    from bridge.mq.embedded.unit import Unit

    manager = started(tmp_path)
    try:
        reasons: list[int] = []
        good = Ended(manager, reasons.append)
        bad = Unit()
        bad.changes.definitions.append(("SUB", "\udcff", "{}"))
        bad.done = reasons.append
        with manager.lock:
            manager.recovery_log.submit(Unit())
            good.put(b"good")
            manager.recovery_log.submit(bad)
        good.wait()
        put(manager, b"later")
        assert sorted(reasons) == [cmqc.MQRC_NONE, cmqc.MQRC_UNEXPECTED_ERROR]
        assert bodies(manager) == [b"good", b"later"]
        for _ in range(70):  # the deleted rows are between them
            connection = EmbeddedConnection(manager)
            handle = connection.open(MQOD(ObjectName=QUEUE), cmqc.MQOO_INPUT_SHARED)
            put(manager, b"x")
            connection.get(handle, GetOptions())
            connection.disconnect()
    finally:
        manager.close()


def test_only_the_owner_can_read_the_data_directory(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        started(tmp_path / "data").close()
    finally:
        os.umask(before)
    assert (tmp_path / "data").stat().st_mode & 0o007 == 0


def test_a_rejected_definition_leaves_no_row(tmp_path: Path) -> None:
    manager = started(tmp_path)
    try:
        connection = EmbeddedConnection(manager)
        with pytest.raises(MQError):
            connection.open(MQOD(ObjectName="NO.SUCH"), cmqc.MQOO_OUTPUT)
        connection.disconnect()
    finally:
        manager.close()
