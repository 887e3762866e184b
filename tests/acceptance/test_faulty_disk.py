"""A disk that fails at one call, or is full for a few calls, followed by kill -9: acknowledged work is not lost.

Each result that a client or an application received is checked: PUBACK and PUBREC (the message exists), QoS 2 (it exists
once), MQCMIT (the whole unit of work exists), MQRC_BACKED_OUT or another rejection (nothing of it exists), a broken
connection (all or nothing). A failing test prints its seed. MQBRIDGE_TEST_SEED=n repeats it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.mq.embedded.storage.recovery_log import RESERVE_BYTES
from bridge.mq.mqi import MQOD, MQError
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Publish, Pubrec
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.bridge_process import BridgeFailed, BridgeProcess
from tests.helpers.crash_checks import verify
from tests.helpers.exactly_once import DurableSubscriber, Publisher
from tests.helpers.faulty_disk import compiled
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.patience import PATIENCE, eventually, until
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.scrape import admin_url, ask

# The disk of IBM MQ does not belong to the bridge.
pytestmark = pytest.mark.queue_managers("embedded")

#: Messages of the publisher, and how many are in flight at once.
COUNT, WINDOW = 100, 4
#: Attempts to connect until the disk works: each is a failing call.
ATTEMPTS = 200
#: A failing call is among this number of first calls of a process, by kind.
FIRST_CALLS = {"full": 80, "torn": 80, "fsync": 40}
#: Bytes of a disk that is filled.
DISK_SIZE = 24 * 1024 * 1024
#: How often other processes open the database, one after the other.
ROUNDS = 20
#: Number of runs for each change, and in make test-slow.
RUNS, MANY_RUNS = 1, 120


class Units:
    """Units of work of an MQ application, with two messages each, and their outcomes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._connection: RemoteConnection | None = None
        self._next = 0
        self.committed: set[int] = set()
        self.refused: set[int] = set()

    def step(self) -> None:
        """Run another unit of work, if the queue manager is available."""
        number, self._next = self._next, self._next + 1
        try:
            if self._connection is None:
                self._connection = RemoteConnection(self._directory, application="units")
            for half in (0, 1):
                message = Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), b"%d.%d" % (number, half))
                self._connection.put1(MQOD(ObjectName="UNITS"), message, cmqc.MQPMO_SYNCPOINT)
            self._connection.commit()
            self.committed.add(number)
        except MQError as error:
            if error.reason not in (cmqc.MQRC_CONNECTION_BROKEN, cmqc.MQRC_HCONN_ERROR):
                self.refused.add(number)
            self._connection = None

    def verify(self, bodies: list[str]) -> None:
        """Compare the outcomes with the contents of the queue."""
        halves_of: dict[int, list[str]] = {}
        for body in bodies:
            halves_of.setdefault(int(body.partition(".")[0]), []).append(body)
        for number in range(self._next):
            halves = halves_of.get(number, [])
            assert halves in ([], [f"{number}.0", f"{number}.1"]), f"unit of work {number} exists in part: {halves}"
            assert halves or number not in self.committed, f"unit of work {number} was committed and does not exist"
            assert not halves or number not in self.refused, f"unit of work {number} was rejected and exists"


class Site:
    """A bridge whose disk fails once, and its clients, which continue."""

    def __init__(self, bridge: BridgeProcess, library: Path, qos: int) -> None:
        self.bridge = bridge
        self.library = library
        #: a file with a line for each call that failed
        self.fault_log = bridge.data_directory.with_suffix(".faults")
        self.publisher = Publisher("sender", ["t/0", "t/1"], COUNT, qos, WINDOW)
        self.subscriber = DurableSubscriber("keeper", "t/#", qos)
        self.units = Units(bridge.data_directory)

    def start(self, fault: str = "") -> None:
        """Start the bridge. If its disk fails at once, it reports that and is started again with a working disk."""
        self.bridge.env |= {
            "LD_PRELOAD": str(self.library),
            "FAULTY_DISK_AT": fault,
            "FAULTY_DISK_TOLD": str(self.fault_log),
        }
        try:
            self.bridge.start()
        except BridgeFailed:
            assert fault
            self.bridge.ended()
            self.start()

    def connect(self, client: Publisher | DurableSubscriber) -> None:
        """Connect, with retries: the bridge rejects connections, or ends, while its disk fails."""
        for _ in range(ATTEMPTS):
            if not self.bridge.running:
                self.bridge.ended()
                self.start()
            try:
                client.connect(self.bridge.port)
                return
            except ConnectionRefusedError:
                self.bridge.ended()  # the bridge is ending
            except (ConnectionClosed, ConnectionError):
                client.close()
        raise AssertionError(f"it never connected:\n{self.bridge.log}")

    def step(self, client: Publisher | DurableSubscriber, timeout: float = 0.02) -> None:
        try:
            client.step(timeout)
        except TimeoutError:
            pass
        except (ConnectionClosed, ConnectionError):
            client.close()
            self.connect(client)

    def run(self, fault: str, kill_at: int) -> None:
        self.start()
        self.bridge.mqsc("DEFINE QLOCAL(UNITS) DEFPSIST(YES)")
        self.connect(self.subscriber)
        assert self.bridge.stop() == 0
        self.start(fault)
        for client in (self.subscriber, self.publisher):
            client.close()
            self.connect(client)
        killed = False
        while not self.publisher.finished or len(self.subscriber.numbers) < COUNT:
            self.units.step()
            if not self.publisher.finished:
                self.step(self.publisher)
            self.step(self.subscriber)
            if not killed and len(self.publisher.acknowledged) >= kill_at:
                killed = True
                if self.bridge.running:
                    self.bridge.kill()
        if self.bridge.running:
            self.bridge.kill()
        self.start()
        verify(self.subscriber.received, self.publisher, self.publisher.qos)
        assert not self.subscriber.undeclared, f"sent again without DUP (MQTT-3.3.1-1): {self.subscriber.undeclared}"
        self.units.verify([str(message["body"]) for message in self.bridge.messages("UNITS")])
        assert self.bridge.stop() == 0, self.bridge.log


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("faulty"))


def test_a_full_disk_is_drained(new_bridge: Callable[..., BridgeProcess], library: Path, tmp_path: Path) -> None:
    """Waiting messages are delivered and removed, and no persistent message is accepted until the disk has space. Then
    everything continues.
    """
    bridge, fault = new_bridge(config="admin: {port: 0}\n"), tmp_path / "fault"
    bridge.env |= {"LD_PRELOAD": str(library), "FAULTY_DISK": str(fault)}
    bridge.start()
    reserve = bridge.data_directory / "queuemanager.reserve"
    assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES
    subscriber = DurableSubscriber("keeper", "t/#", 1)
    subscriber.connect(bridge.port)
    subscriber.close()
    with RawClient.connected(bridge.port, "sender") as sender:
        for number in range(COUNT):
            sender.publish("t/0", b"%d" % number, 1)
        fault.write_text(f"full while {reserve}")
        sender.publish("t/0", b"%d" % COUNT, 1)  # finds the disk full, and uses the reserve
        assert not reserve.exists()
        assert ask(f"{admin_url(bridge.announced)}/readyz")[0] == 503
        with pytest.raises(ConnectionClosed), RawClient.connected(bridge.port, "other") as other:
            other.publish("t/0", b"%d" % (COUNT + 1), 1)
        subscriber.connect(bridge.port)
        while len(subscriber.numbers) < COUNT + 1:
            subscriber.step()
        bridge.wait_for_depth("SYSTEM.MQTT.TRANSMIT.QUEUE", 0)
        refused = bridge.run_mq("put", "SYSTEM.DEAD.LETTER.QUEUE", "x", "--persistent")
        assert b"MQRC_RESOURCE_PROBLEM" in refused.stderr
        fault.unlink()
        eventually(lambda: ask(f"{admin_url(bridge.announced)}/readyz"), (200, "ok\n"))  # without traffic
        assert "MQB3011I" in bridge.log
        with RawClient.connected(bridge.port, "again") as again:
            again.publish("t/0", b"%d" % (COUNT + 2), 1)
        while COUNT + 2 not in subscriber.numbers:
            subscriber.step()
        sender.publish("t/0", b"0", 1)
    assert reserve.exists()
    assert subscriber.numbers == {*range(COUNT + 1), COUNT + 2}, "a rejected message was delivered"
    subscriber.close()
    assert bridge.stop() == 0
    assert reserve.exists()  # the next start may need it


def test_dup_is_set_after_a_failed_commit_and_a_restart(
    new_bridge: Callable[..., BridgeProcess], library: Path, tmp_path: Path
) -> None:
    """MQTT-3.3.1-1: the client has the messages, and the PUBRECs for them were not committed.

    A failed start leaves the reserve for the next one.
    """
    bridge, fault = new_bridge(), tmp_path / "fault"
    bridge.env |= {"LD_PRELOAD": str(library), "FAULTY_DISK": str(fault)}
    bridge.start()
    subscriber = DurableSubscriber("keeper", "t/#", 2)
    subscriber.connect(bridge.port)
    subscriber.close()
    with RawClient.connected(bridge.port, "sender") as sender:
        for number in range(WINDOW):
            sender.publish("t/0", b"%d" % number, 2)
    with RawClient(bridge.port, "keeper", clean=False) as client:
        assert client.connect().session_present
        sent = [client.wait_for(Publish) for _ in range(WINDOW)]
        fault.write_text("fsync once")
        client.send(*[Pubrec(message.packet_id) for message in sent])
        with pytest.raises(ConnectionClosed):
            client.fill()
    assert bridge.stop() == 0
    bridge.env["FAULTY_DISK_AT"] = "fsync:1:100"
    with pytest.raises(BridgeFailed):
        bridge.start()
    bridge.ended()
    assert (bridge.data_directory / "queuemanager.reserve").stat().st_blocks * 512 >= RESERVE_BYTES
    del bridge.env["FAULTY_DISK_AT"]
    bridge.start()
    with RawClient(bridge.port, "keeper", clean=False) as client:
        assert client.connect().session_present
        again = [client.wait_for(Publish) for _ in range(WINDOW)]
    assert [(message.packet_id, message.payload, message.dup) for message in again] == [
        (message.packet_id, message.payload, True) for message in sent
    ]
    assert bridge.stop() == 0


def fill(bridge: BridgeProcess, numbers: Iterator[int], size: int) -> list[int]:
    """Publish messages of this size until the bridge rejects one. Return the numbers of the accepted ones."""
    acknowledged = []
    with RawClient.connected(bridge.port, "sender") as sender, contextlib.suppress(ConnectionClosed, ConnectionError):
        for number in numbers:
            sender.publish("t/0", b"%d.%s" % (number, b"0" * size), 1)
            acknowledged.append(number)
    return acknowledged


def used(directory: Path) -> int:
    """Return the bytes that a queue manager uses on its disk."""
    return sum(file.stat().st_size for file in directory.glob("queuemanager.*"))


def test_a_bridge_starts_on_a_full_disk(new_bridge: Callable[..., BridgeProcess], library: Path) -> None:
    """Other programs have filled the disk, before a start and after a kill. The bridge delivers, and rejects messages that do
    not fit.
    """
    bridge, numbers = new_bridge(), itertools.count()
    bridge.env |= {"LD_PRELOAD": str(library), "FAULTY_DISK_SIZE": str(DISK_SIZE)}
    bridge.start()
    subscribers = [DurableSubscriber(f"keeper{number}", "t/#", 1) for number in range(2)]
    for subscriber in subscribers:
        subscriber.connect(bridge.port)
        subscriber.close()
    acknowledged = set(fill(bridge, itertools.islice(numbers, COUNT), 1_000))
    for subscriber, killed in zip(subscribers, (False, True), strict=True):
        if killed:
            bridge.kill()
        else:
            assert bridge.stop() == 0, bridge.log
        bridge.env["FAULTY_DISK_SIZE"] = str(used(bridge.data_directory))
        bridge.start()
        more = fill(bridge, itertools.islice(numbers, 1_000), 50_000)
        assert len(more) < 1_000, "the disk is not full"
        acknowledged.update(more)
        subscriber.connect(bridge.port)
        while len(subscriber.numbers) < len(acknowledged):
            subscriber.step()
        subscriber.close()
        assert subscriber.numbers == acknowledged
        print(f"{len(more)} messages taken on a full disk of {bridge.env['FAULTY_DISK_SIZE']} bytes")
    bridge.env["FAULTY_DISK_SIZE"] = str(10 * DISK_SIZE)
    bridge.restart()
    assert fill(bridge, itertools.islice(numbers, 1), 1_000)
    assert bridge.stop() == 0


@pytest.mark.parametrize(
    ("size", "rounds"),
    [
        (100_000, (False, True)),
        pytest.param(100_000, (False, True) * 2, marks=pytest.mark.slow),
        pytest.param(2_000_000, (False, True) * 2, marks=pytest.mark.slow),
    ],
    ids=["100 kB", "100 kB, 4 rounds", "2 MB, 4 rounds"],
)
def test_a_disk_filled_by_the_database_can_be_used_again(
    new_bridge: Callable[..., BridgeProcess], library: Path, size: int, rounds: tuple[bool, ...]
) -> None:
    """The database has filled the disk and keeps its size. After messages are removed, new ones fit again."""
    bridge, numbers = new_bridge(), itertools.count()
    bridge.env |= {"LD_PRELOAD": str(library), "FAULTY_DISK_SIZE": str(DISK_SIZE)}
    bridge.start()
    subscriber = DurableSubscriber("keeper", "t/#", 1)
    subscriber.connect(bridge.port)
    subscriber.close()
    acknowledged: set[int] = set()
    for killed in rounds:
        before = len(acknowledged)

        def is_used(before: int = before) -> bool:
            acknowledged.update(fill(bridge, numbers, size))
            return len(acknowledged) > before

        until(is_used)
        if killed:
            bridge.kill()
            bridge.start()
        subscriber.connect(bridge.port)
        while len(subscriber.numbers) < len(acknowledged):
            subscriber.step()
        bridge.wait_for_depth("SYSTEM.MQTT.TRANSMIT.QUEUE", 0)
        subscriber.close()
        print(f"{len(acknowledged) - before} messages of {size} bytes on a disk of {DISK_SIZE}")
    assert subscriber.numbers == acknowledged
    assert bridge.stop() == 0


class Load(threading.Thread):
    """A publisher that reconnects whenever the bridge ends its connection after a failed commit."""

    def __init__(self, publisher: Publisher, bridge: BridgeProcess) -> None:
        super().__init__(daemon=True)
        self.publisher, self._bridge = publisher, bridge
        self.ending = threading.Event()
        publisher.connect(bridge.port)

    def run(self) -> None:
        while not self.ending.is_set() and self._bridge.running:
            try:
                self.publisher.step(1)
            except TimeoutError:
                pass
            except (ConnectionClosed, ConnectionError):
                self.publisher.close()
                with contextlib.suppress(ConnectionClosed, ConnectionError):
                    self.publisher.connect(self._bridge.port)
        self.publisher.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", ["full every 101", "fsync every 51"])
def test_other_processes_open_the_database_while_commits_fail(
    new_bridge: Callable[..., BridgeProcess], library: Path, tmp_path: Path, fault: str
) -> None:
    """A disk that syncs in 5 ms and fails sometimes. The bridge survives, and no acknowledged message is lost."""
    # On a slow machine, more than 64 MiB wait.
    config = "limits: {waiting_bytes: 8 GiB, waiting_total: 8 GiB}"
    bridge, fault_log, failing = new_bridge(config=config), tmp_path / "faults", tmp_path / "fault"
    disk = {"FAULTY_DISK": failing, "FAULTY_DISK_DELAY": 5, "FAULTY_DISK_TOLD": fault_log, "LD_PRELOAD": library}
    bridge.env |= {name: str(value) for name, value in disk.items()}
    bridge.start()
    subscriber = DurableSubscriber("keeper", "t/#", 1)
    subscriber.connect(bridge.port)
    subscriber.close()
    load = Load(Publisher("sender", ["t/0", "t/1"], 10_000_000, 1, WINDOW), bridge)
    load.start()
    failing.write_text(fault)
    until(lambda: fault_log.exists() or not bridge.running)
    look = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM batch').fetchone())"
    commands: list[list[str | Path]] = [
        [MQBRIDGE, "data", "backup", "--force", tmp_path / "backup.db", "--data-dir", bridge.data_directory],
        [MQBRIDGE, "data", "verify", bridge.data_directory],
        [sys.executable, "-c", look, bridge.data_directory / "queuemanager.db"],
    ]
    rounds = 0
    while bridge.running and rounds < ROUNDS:
        for command in commands:
            process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            assert process.returncode == 0 or not bridge.running, process
        rounds += 1
    assert bridge.running, f"ended in round {rounds}: {bridge.ended()}\n{bridge.log}"
    failing.unlink()
    load.ending.set()
    load.join(PATIENCE)
    bridge.kill()
    del bridge.env["LD_PRELOAD"]
    bridge.start()
    subscriber.connect(bridge.port)
    acknowledged = load.publisher.acknowledged
    while not acknowledged <= subscriber.numbers:
        subscriber.step()
    print(
        f"{rounds} rounds, {fault_log.read_text().count('fault')} calls failed, {len(acknowledged)} messages acknowledged"
    )
    subscriber.close()
    assert bridge.stop() == 0


def campaign(new_bridge: Callable[..., BridgeProcess], library: Path, runs: int) -> None:
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    for number in range(seed, seed + runs):
        chance = random.Random(number)
        kind = chance.choice(["full", "full", "fsync", "torn"])
        length = chance.choice([1, 1, 2, 5, 20]) if kind != "torn" else 1
        fault = f"{kind}:{chance.randint(1, FIRST_CALLS[kind])}:{length}"
        qos, kill_at = chance.choice([1, 2]), chance.randint(COUNT // 3, COUNT)
        print(f"MQBRIDGE_TEST_SEED={number}: {fault}, QoS {qos}, killed at {kill_at}", end="", flush=True)
        site = Site(new_bridge(f"data{number}"), library, qos)
        site.run(fault, kill_at)
        print(f", {site.fault_log.read_text().count('fault') if site.fault_log.exists() else 0} calls failed")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_acknowledged_messages_survive_many_crashes(new_bridge: Callable[..., BridgeProcess], library: Path) -> None:
    campaign(new_bridge, library, MANY_RUNS)


def test_acknowledged_messages_survive_a_crash(new_bridge: Callable[..., BridgeProcess], library: Path) -> None:
    campaign(new_bridge, library, RUNS)
