"""Durability with real processes: kill -9 at any moment, two processes on one directory, a disk that fails.

A child process works on the queue manager and prints what it knows to be committed; the test kills it and opens the
directory itself. What was printed is there; what was not committed is not; nothing is there twice.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.mapping.message import Message
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.client import RemoteConnection
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.embedded.storage import journal as journal_module
from bridge.mq.embedded.storage.data_directory import DataDirectoryInUse
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, MQSD, GetOptions
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.support.patience import PATIENCE

PERSISTENT = MQMD(Persistence=1)
SYNC = cmqc.MQPMO_SYNCPOINT

#: What every child begins with.
PREFACE = """
import itertools, os, sys, threading
from pathlib import Path
from bridge.mapping.message import Message
from bridge.mq.mqi import MQOD, MQSD, GetOptions
from bridge.mq.embedded.storage import journal
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

SYNC, GET_SYNC, RETAIN = cmqc.MQPMO_SYNCPOINT, cmqc.MQGMO_SYNCPOINT, cmqc.MQPMO_RETAIN

def say(*words):
    os.write(1, (" ".join(words) + "\\n").encode())

def put(connection, queue, data, options=0, persistence=1):
    connection.put1(MQOD(ObjectName=queue), Message(MQMD(Persistence=persistence), data.encode()), options)

def publish(connection, topic, data, options=0, persistence=1):
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
    connection.put1(od, Message(MQMD(Persistence=persistence), data.encode()), options)

def every_thread(work, count):
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

directory, run = Path(sys.argv[1]), sys.argv[2]
"""


class Child:
    """A process that can be killed, and the words of each line it has written."""

    def __init__(self, script: str, directory: Path, run: str = "0") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PREFACE + textwrap.dedent(script), str(directory), run],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[4],
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.lines: list[list[str]] = []

    def read(self, count: int) -> None:
        """Read until `count` lines are there."""
        while len(self.lines) < count:
            line = self._output.readline()
            assert line, "the child ended by itself"
            self.lines.append(line.split())

    def kill(self) -> None:
        """kill -9; what it had written before counts."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)
        # A line without its end was not written in full.
        self.lines += [line.split() for line in self._output if line.endswith("\n")]
        self._output.close()


@contextmanager
def opened(directory: Path) -> Iterator[QueueManager]:
    queue_manager = QueueManager("MQB1", directory)
    try:
        yield queue_manager
    finally:
        queue_manager.close()


def drained(connection: EmbeddedConnection, queue: str) -> list[str]:
    """The data of the messages on a queue; they stay."""
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_BROWSE)
    found = []
    try:
        while True:
            found.append(connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT)).data.decode())
    except MQError as error:
        assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
    connection.close(handle)
    return found


def put(connection, queue: str, data: bytes, options: int = 0, md: MQMD = PERSISTENT) -> None:
    connection.put1(MQOD(ObjectName=queue), Message(md, data), options)


def publish(connection, topic: str, data: bytes, options: int = 0, md: MQMD = PERSISTENT) -> None:
    connection.put1(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic), Message(md, data), options)


def define(connection, text: str) -> None:
    for response in connection.command(text):
        assert response.ok, response.message


# kill -9 -------------------------------------------------------------------------------------------------------------

PUTTING = """
manager = QueueManager("MQB1", directory)

def work(n):
    connection = EmbeddedConnection(manager)
    for number in itertools.count():
        pair = f"{run}.{n}.{number}"
        put(connection, "TAKEN", pair, SYNC)
        put(connection, "OTHER", pair, SYNC)
        if number % 7 == 3:
            connection.backout()
            continue
        connection.commit()
        say("put", pair)
        put(connection, "TAKEN", pair + ".open", SYNC)      # backed out by the kill, or by the next line
        put(connection, "OTHER", pair + ".soft", persistence=0)
        connection.backout()

every_thread(work, 6)
"""


def test_what_was_committed_is_there_once_after_each_of_several_kills(tmp_path):
    with opened(tmp_path) as queue_manager:
        define(EmbeddedConnection(queue_manager), "DEFINE QLOCAL(TAKEN) MAXDEPTH(99999999)")
        define(EmbeddedConnection(queue_manager), "DEFINE QLOCAL(OTHER) MAXDEPTH(99999999)")
    promised: set[str] = set()
    dice = random.Random(7)
    for run in range(4):
        child = Child(PUTTING, tmp_path, str(run))
        child.read(dice.randrange(1, 400))
        child.kill()
        promised |= {pair for _, pair in child.lines}
        with opened(tmp_path) as queue_manager:
            connection = EmbeddedConnection(queue_manager)
            taken, other = drained(connection, "TAKEN"), drained(connection, "OTHER")
            assert len(taken) == len(set(taken))
            assert sorted(taken) == sorted(other), "both puts of a unit of work, or none"
            assert promised <= set(taken)
            assert not [pair for pair in taken if pair.endswith(("open", "soft"))]
            assert not [pair for pair in taken if int(pair.split(".")[2]) % 7 == 3], "backed out"
            # What nobody was told of was on its way when the process was killed: one unit of each thread.
            assert len(set(taken) - promised) <= 6 * (run + 1)
            for thread in range(6):
                numbers = [int(pair.split(".")[2]) for pair in taken if pair.startswith(f"{run}.{thread}.")]
                assert numbers == sorted(numbers), "in the order of the puts"
            promised = set(taken)


REMOVING = """
journal.COMPACTION_FLOOR, journal.DEAD_ROWS = 0, 4
manager = QueueManager("MQB1", directory)
say("start")

def work(n):
    connection = EmbeddedConnection(manager)
    handle = connection.open(MQOD(ObjectName="IN"), cmqc.MQOO_INPUT_SHARED)
    for number in itertools.count():
        name = f"{run}.{n}.{number}"
        put(connection, "IN", name)
        say("put", name)
        if number % 10 == 9:        # leave one of ten
            continue
        got = connection.get(handle, GetOptions(Options=GET_SYNC)).data.decode()
        publish(connection, f"state/{n}", got, SYNC | RETAIN)
        say("taking", got)
        connection.commit()
        say("taken", got)

every_thread(work, 4)
"""


def test_messages_removed_do_not_come_back_while_rows_are_deleted_and_moved(tmp_path):
    """Each message is removed in the unit of work that retains it: it is on the queue or it was the state, never both."""
    with opened(tmp_path) as queue_manager:
        define(EmbeddedConnection(queue_manager), "DEFINE QLOCAL(IN) MAXDEPTH(99999999)")
    put_names: set[str] = set()
    taken: set[str] = set()
    perhaps: set[str] = set()
    for run in range(4):
        child = Child(REMOVING, tmp_path, str(run))
        child.read(1500)
        child.kill()
        put_names |= {line[1] for line in child.lines if line[0] == "put"}
        taken |= {line[1] for line in child.lines if line[0] == "taken"}
        perhaps |= {line[1] for line in child.lines if line[0] == "taking"}
        rows = sqlite3.connect(tmp_path / "queuemanager.db").execute("SELECT count(*) FROM batch").fetchone()[0]
        with opened(tmp_path) as queue_manager:
            found = drained(EmbeddedConnection(queue_manager), "IN")
            assert len(found) == len(set(found))
            assert not taken & set(found), "came back"
            assert put_names - perhaps <= set(found), "lost"
            # Each commit makes a row. A slow machine kills late, and has the fewer to a row: what counts is how many went.
            assert rows < len(put_names) // 2 + 100, "rows are deleted as their messages go"
            for stored in queue_manager.retained.values():
                assert stored.message.data.decode() not in found
                assert stored.message.data.decode() in perhaps
            taken |= put_names - set(found)


DEFINING = """
manager = QueueManager("MQB1", directory)
connection = EmbeddedConnection(manager)
say("start")
for number in itertools.count():
    for text in (
        f"DEFINE QLOCAL(Q{number}) DEFPRTY(7)",
        f"DEFINE QALIAS(A{number}) TARGET(Q{number})",
        f"DEFINE TOPIC(T{number}) TOPICSTR('t/{number}') DEFPSIST(YES)",
        f"DEFINE SUB('S{number}') TOPICSTR('s/{number}') DEST(Q{number}) USERDATA('u{number}')",
        f"ALTER QLOCAL(Q{number}) MAXDEPTH({number + 10})",
    ):
        assert connection.command(text)[0].ok
    name = f"mine{number}"
    options = cmqc.MQSO_CREATE | cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED
    connection.subscribe(MQSD(Options=options, ObjectString=f"s/{number}", SubName=name))
    publish(connection, f"s/{number}", f"p{number}", RETAIN)
    publish(connection, f"soft/{number}", "soft", RETAIN, 0)
    say("made", str(number))
    if number % 3 == 2:
        assert connection.command(f"DELETE SUB('S{number}')")[0].ok
        assert connection.command(f"CLEAR TOPICSTR('s/{number}') CLRTYPE(RETAINED)")[0].ok
        say("gone", str(number))
"""


def test_definitions_durable_subscriptions_and_retained_publications_survive(tmp_path):
    child = Child(DEFINING, tmp_path)
    child.read(40)
    child.kill()
    made = {int(number) for word, number in (line for line in child.lines if len(line) == 2) if word == "made"}
    gone = {int(number) for word, number in (line for line in child.lines if len(line) == 2) if word == "gone"}
    assert len(made) > 20
    with opened(tmp_path) as queue_manager:
        connection = EmbeddedConnection(queue_manager)
        for number in sorted(made):
            (shown,) = connection.command(f"DISPLAY QLOCAL(Q{number}) ALL")[0].objects
            assert (shown["DEFPRTY"], shown["MAXDEPTH"]) == (7, number + 10)
            (shown,) = connection.command(f"DISPLAY TOPIC(T{number}) ALL")[0].objects
            assert (shown["TOPICSTR"], shown["DEFPSIST"]) == (f"t/{number}", "YES")
            assert f"soft/{number}" not in queue_manager.retained
            # A durable subscription of an application: its publication waited, and it can be resumed.
            resume = MQSD(Options=cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED, SubName=f"mine{number}")
            _, handle = connection.subscribe(resume)
            assert connection.get(handle, GetOptions()).data == f"p{number}".encode()
            if number in gone:
                assert f"S{number}" not in queue_manager.topics.subscriptions
                assert f"s/{number}" not in queue_manager.retained
            elif number != max(made):  # the last one may have been on its way
                assert queue_manager.topics.subscriptions[f"S{number}"].user_data == f"u{number}"
                assert queue_manager.retained[f"s/{number}"].message.data == f"p{number}".encode()
            publish(connection, f"s/{number}", b"after")
            assert connection.get(handle, GetOptions()).data == b"after"
            if number in gone or number != max(made):  # the DELETE of the last one may be committed, but not told
                assert drained(connection, f"A{number}")[-1] == ("after" if number not in gone else f"p{number}")


# Two processes -------------------------------------------------------------------------------------------------------

HOLDING = """
manager = QueueManager("MQB1", directory)
say("open")
threading.Event().wait()
"""

SERVING = """
import asyncio
from bridge.mq.embedded.server.server import ApplicationServer

async def serve():
    manager = QueueManager("MQB1", directory)
    manager.journal.dispatch = asyncio.get_running_loop().call_soon_threadsafe
    await ApplicationServer(manager).listen()
    say("listening")
    await asyncio.Event().wait()

asyncio.run(serve())
"""

APPLYING = """
from bridge.mq.embedded.server.client import RemoteConnection
connection = RemoteConnection(directory)
handle = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_EXCLUSIVE)
for number in range(3):
    put(connection, "Q", f"new{number}", SYNC)
got = connection.get(handle, GetOptions(Options=GET_SYNC)).data.decode()
topic = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED, ObjectString="t", SubName="OFMINE")
connection.subscribe(topic)
say("got", got)
threading.Event().wait()
"""


def test_a_second_process_on_the_same_directory_is_refused(tmp_path):
    child = Child(HOLDING, tmp_path)
    try:
        child.read(1)
        with pytest.raises(DataDirectoryInUse):
            QueueManager("MQB1", tmp_path)
    finally:
        child.kill()
    with opened(tmp_path):
        pass


def test_an_application_that_dies_is_backed_out(tmp_path):
    """Its unit of work, its handles and its subscriptions end with it; what waits for its message gets it."""
    server = Child(SERVING, tmp_path)
    try:
        server.read(1)
        connection = RemoteConnection(tmp_path)
        define(connection, "DEFINE QLOCAL(Q)")
        put(connection, "Q", b"old")
        application = Child(APPLYING, tmp_path)
        application.read(1)
        assert application.lines == [["got", "old"]]
        assert connection.command("DISPLAY QLOCAL(Q) CURDEPTH")[0].objects[0]["CURDEPTH"] == 4
        browse = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_BROWSE)
        application.kill()
        options = GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_WAIT, WaitInterval=20_000)
        got = connection.get(browse, options)
        assert (got.data, got.md.BackoutCount) == (b"old", 1)
        handle = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_EXCLUSIVE)
        assert connection.get(handle, GetOptions()).data == b"old"
        with pytest.raises(MQError) as error:
            connection.get(handle, GetOptions())
        assert error.value.reason == cmqc.MQRC_NO_MSG_AVAILABLE
        with pytest.raises(MQError) as error:
            connection.subscribe(MQSD(Options=cmqc.MQSO_RESUME | cmqc.MQSO_MANAGED, SubName="OFMINE"))
        assert error.value.reason == cmqc.MQRC_NO_SUBSCRIPTION
    finally:
        server.kill()


def test_applications_learn_that_the_queue_manager_died(tmp_path):
    server = Child(SERVING, tmp_path)
    server.read(1)
    connection = RemoteConnection(tmp_path)
    server.kill()
    with pytest.raises(MQError) as error:
        connection.commit()
    assert error.value.reason == cmqc.MQRC_CONNECTION_BROKEN
    with pytest.raises(MQError) as error:
        RemoteConnection(tmp_path)
    assert error.value.reason == cmqc.MQRC_Q_MGR_NOT_AVAILABLE
    with opened(tmp_path):  # the socket that was left is no hindrance
        pass


# A disk that fails ---------------------------------------------------------------------------------------------------


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
        """Every write in this block fails, before anything is written."""
        store = self.manager.journal._store
        real = store.write

        def write(*_arguments):
            raise error or sqlite3.OperationalError("database or disk is full")

        store.write = write
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
        return self.manager.queues[queue].depth


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path)
    define(disk.connection, "DEFINE QLOCAL(Q)")
    define(disk.connection, "DEFINE QLOCAL(P)")
    yield disk
    disk.manager.close()


def test_a_put_that_cannot_be_written_never_was(disk):
    with disk.refused():
        put(disk.connection, "Q", b"lost")
    assert (drained(disk.connection, "Q"), disk.depth("Q")) == ([], 0)
    put(disk.connection, "Q", b"kept")
    disk.restart()
    assert drained(disk.connection, "Q") == ["kept"]


def test_a_unit_of_work_that_cannot_be_written_is_backed_out_whole(disk):
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


def test_a_get_that_cannot_be_written_leaves_the_message(disk):
    put(disk.connection, "Q", b"m")
    handle = disk.connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    with disk.refused():
        disk.connection.get(handle, GetOptions())
    got = disk.connection.get(handle, GetOptions())
    assert got.data == b"m"


def test_what_needs_no_disk_goes_on(disk):
    with disk.failing():
        put(disk.connection, "Q", b"soft", md=MQMD(Persistence=0))
    assert drained(disk.connection, "Q") == ["soft"]


@pytest.mark.parametrize("replacement", [b"new", None])
def test_a_retained_publication_stays_when_its_successor_cannot_be_written(disk, replacement):
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


def test_a_definition_that_cannot_be_written_never_was(disk):
    with disk.refused():
        disk.connection.command("DEFINE QLOCAL(NEW)")
    with disk.refused():
        disk.connection.command("ALTER QLOCAL(Q) MAXDEPTH(7)")
    assert "NEW" not in disk.manager.queues
    assert disk.manager.queues["Q"].max_depth != 7
    define(disk.connection, "DEFINE QLOCAL(NEW)")


def test_a_subscription_that_cannot_be_written_never_was(disk):
    durable = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED, ObjectString="t", SubName="S")
    queues = set(disk.manager.queues)
    with disk.refused():
        disk.connection.subscribe(durable)
    assert "S" not in disk.manager.topics.subscriptions
    assert set(disk.manager.queues) == queues
    handle, _ = disk.connection.subscribe(durable)
    publish(disk.connection, "t", b"1")
    with disk.refused():
        disk.connection.close(handle, cmqc.MQCO_REMOVE_SUB)
    publish(disk.connection, "t", b"2")
    queue = disk.manager.topics.subscriptions["S"].queue.name
    assert drained(disk.connection, queue) == ["1", "2"]
    disk.restart()
    assert drained(disk.connection, queue) == ["1", "2"]


def test_an_error_nobody_foresaw_does_not_end_the_journal(disk):
    with disk.refused(cmqc.MQRC_UNEXPECTED_ERROR, RuntimeError("surprise")):
        put(disk.connection, "Q", b"lost")
    put(disk.connection, "Q", b"kept")
    assert drained(disk.connection, "Q") == ["kept"]


def test_commits_after_the_end_are_refused(tmp_path):
    with opened(tmp_path) as queue_manager:
        connection = EmbeddedConnection(queue_manager)
        define(connection, "DEFINE QLOCAL(Q)")
    with pytest.raises(MQError) as error:
        put(connection, "Q", b"late")
    assert error.value.reason == cmqc.MQRC_Q_MGR_STOPPING


def test_a_full_disk(disk, tmp_path):
    """SQLite's own error, in the middle of a commit: the database may not grow."""
    store = disk.manager.journal._store
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
    assert [data.rstrip("\0") for data in drained(disk.connection, "Q")] == [*committed, "after"]


# Rows of the log -----------------------------------------------------------------------------------------------------


def test_a_message_logged_again_does_not_come_back(disk, monkeypatch):
    """The first row of a message may outlive the row that it was moved to and the one that removed it.

    A message of OLD keeps the second row: it records a removal from the first, which a message of KEPT keeps.
    """
    monkeypatch.setattr(journal_module, "DEAD_ROWS", 1)
    connection = disk.connection
    define(connection, "DEFINE QLOCAL(KEPT)")

    def unit(queue: str, *data: bytes, take: int = 0) -> None:
        handle = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
        for _ in range(take):
            connection.get(handle, GetOptions(Options=cmqc.MQGMO_SYNCPOINT))
        for one in data:
            put(connection, queue, one, SYNC)
        connection.commit()
        connection.close(handle)

    # Row 1: two that stay, one to be removed. It is never sparse enough to be written again.
    put(connection, "KEPT", b"k1", SYNC)
    put(connection, "KEPT", b"k2", SYNC)
    put(connection, "Q", b"x", SYNC)
    connection.commit()
    # Row 2 removes x, and logs eight; seven of them go, so that the eighth is moved.
    unit("Q", *(str(number).encode() for number in range(8)), take=1)
    unit("Q", take=7)
    assert drained(connection, "Q") == ["7"]
    monkeypatch.setattr(journal_module, "COMPACTION_FLOOR", 0)
    first = next(disk.manager.queues["Q"].messages()).row
    commits = 0
    while next(disk.manager.queues["Q"].messages()).row is first:
        unit("P", *[b"p"] * 8)
        handle = connection.open(MQOD(ObjectName="P"), cmqc.MQOO_INPUT_SHARED)
        for _ in range(8):
            connection.get(handle, GetOptions(Options=cmqc.MQGMO_SYNCPOINT))
        connection.commit()
        connection.close(handle)
        commits += 1
        assert commits < 50, "never written again"
    monkeypatch.setattr(journal_module, "COMPACTION_FLOOR", 1 << 60)
    unit("Q", take=1)
    for number in range(5):  # rows that count as dead are deleted now
        put(connection, "KEPT", str(number).encode())
    disk.restart()
    assert drained(disk.connection, "Q") == []
    assert drained(disk.connection, "KEPT") == ["k1", "k2", "0", "1", "2", "3", "4"]


def test_messages_of_a_deleted_queue_do_not_come_back_with_its_name(disk, monkeypatch):
    monkeypatch.setattr(journal_module, "DEAD_ROWS", 1)
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


def test_a_commit_is_synced(disk):
    """No test can pull the plug; SQLite's promise is what counts: WAL with synchronous=FULL syncs at each commit."""
    database = disk.manager.journal._store._database
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)


def test_many_threads_share_few_writes(disk):
    """Group commit: what waits while the disk syncs goes with the next write."""
    store = disk.manager.journal._store
    real, writes = store.write, []
    first, release = threading.Event(), threading.Event()

    def write(*arguments):
        writes.append(arguments)
        first.set()
        assert release.wait(PATIENCE)
        return real(*arguments)

    store.write = write
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
            if len(disk.manager.journal._waiting) == 19:
                break
    assert drained(EmbeddedConnection(disk.manager), "Q") == [], "nothing is visible before it is on disk"
    release.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(writes) == 2
    assert len(drained(disk.connection, "Q")) == 20
