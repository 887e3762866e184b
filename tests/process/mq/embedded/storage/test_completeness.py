"""Power failures: the database contains all acknowledged commits."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.mq.data_directory import StoreError
from bridge.mq.database import verify
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.storage import layout
from bridge.witness import read
from tests.helpers.damage import DAMAGE
from tests.helpers.damaged_database import started
from tests.helpers.faulty_disk import compiled
from tests.helpers.killed_queue_manager import Child

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
