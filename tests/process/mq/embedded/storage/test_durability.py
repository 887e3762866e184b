"""Durability with real processes: kill -9 at any moment, and two processes on one directory.

A child process works on the queue manager and prints committed actions. The test kills it and opens the
directory. Everything printed must exist once, and everything uncommitted must be missing.
"""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from bridge.mq.data_directory import DataDirectoryInUse
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, MQSD, GetOptions, MQError
from bridge.mq.remote import RemoteConnection
from bridge.wire import cmqc
from tests.helpers.killed_queue_manager import Child
from tests.helpers.storage_applications import define, drained, opened, publish, put

# kill -9 --------------------------------------------------------------------------------------------------------------


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


def test_committed_messages_exist_once_after_each_of_several_kills(tmp_path: Path) -> None:
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
            taken_names, other = drained(connection, "TAKEN"), drained(connection, "OTHER")
            assert len(taken_names) == len(set(taken_names))
            assert sorted(taken_names) == sorted(other), "both puts of a unit of work, or none"
            assert promised <= set(taken_names)
            assert not [pair for pair in taken_names if pair.endswith(("open", "soft"))]
            assert not [pair for pair in taken_names if int(pair.split(".")[2]) % 7 == 3], "backed out"
            # Commits in progress when the process was killed: at most one unit per thread.
            assert len(set(taken_names) - promised) <= 6 * (run + 1)
            for thread in range(6):
                numbers = [int(pair.split(".")[2]) for pair in taken_names if pair.startswith(f"{run}.{thread}.")]
                assert numbers == sorted(numbers), "in the order of the puts"
            promised = set(taken_names)


REMOVING = """
recovery_log.COMPACTION_FLOOR, recovery_log.DEAD_ROWS = 0, 4
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


def test_removed_messages_do_not_return_while_rows_are_deleted_and_moved(tmp_path: Path) -> None:
    """Each message is removed in a unit of work that retains it, so it is on the queue or it was the state, never both."""
    with opened(tmp_path) as queue_manager:
        define(EmbeddedConnection(queue_manager), "DEFINE QLOCAL(IN) MAXDEPTH(99999999)")
    put_names: set[str] = set()
    taken_names: set[str] = set()
    perhaps: set[str] = set()
    for run in range(4):
        child = Child(REMOVING, tmp_path, str(run))
        child.read(1500)
        child.kill()
        put_names |= {line[1] for line in child.lines if line[0] == "put"}
        taken_names |= {line[1] for line in child.lines if line[0] == "taken"}
        perhaps |= {line[1] for line in child.lines if line[0] == "taking"}
        rows = sqlite3.connect(tmp_path / "queuemanager.db").execute("SELECT count(*) FROM batch").fetchone()[0]
        with opened(tmp_path) as queue_manager:
            names = drained(EmbeddedConnection(queue_manager), "IN")
            assert len(names) == len(set(names))
            assert not taken_names & set(names), "came back"
            assert put_names - perhaps <= set(names), "lost"
            # Each commit creates a row. On a slow machine, rows contain fewer messages, so the number of removed messages
            # counts.
            assert rows < len(put_names) // 2 + 100, "rows are deleted as their messages go"
            for stored in queue_manager.retained.values():
                assert stored.message.data.decode() not in names
                assert stored.message.data.decode() in perhaps
            taken_names |= put_names - set(names)


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


def test_definitions_durable_subscriptions_and_retained_publications_survive(tmp_path: Path) -> None:
    child = Child(DEFINING, tmp_path)
    child.read(40)
    child.kill()
    numbers = {int(number) for word, number in (line for line in child.lines if len(line) == 2) if word == "made"}
    deleted_numbers = {
        int(number) for word, number in (line for line in child.lines if len(line) == 2) if word == "gone"
    }
    assert len(numbers) > 20
    with opened(tmp_path) as queue_manager:
        connection = EmbeddedConnection(queue_manager)
        for number in sorted(numbers):
            (row,) = connection.command(f"DISPLAY QLOCAL(Q{number}) ALL")[0].objects
            assert (row["DEFPRTY"], row["MAXDEPTH"]) == (7, number + 10)
            (row,) = connection.command(f"DISPLAY TOPIC(T{number}) ALL")[0].objects
            assert (row["TOPICSTR"], row["DEFPSIST"]) == (f"t/{number}", "YES")
            assert f"soft/{number}" not in queue_manager.retained
            # The publication for a durable subscription of an application waits, and the subscription can be resumed.
            resume = MQSD(Options=cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED, SubName=f"mine{number}")
            _, handle = connection.subscribe(resume)
            assert connection.get(handle, GetOptions()).data == f"p{number}".encode()
            if number in deleted_numbers:
                assert f"S{number}" not in queue_manager.objects.topics.subscriptions
                assert f"s/{number}" not in queue_manager.retained
            elif number != max(numbers):  # the last one may have been in progress
                assert queue_manager.objects.topics.subscriptions[f"S{number}"].user_data == f"u{number}"
                assert queue_manager.retained[f"s/{number}"].message.data == f"p{number}".encode()
            publish(connection, f"s/{number}", b"after")
            assert connection.get(handle, GetOptions()).data == b"after"
            if number in deleted_numbers or number != max(
                numbers
            ):  # the DELETE of the last one may be committed but not reported
                assert drained(connection, f"A{number}")[-1] == (
                    "after" if number not in deleted_numbers else f"p{number}"
                )


# Two processes --------------------------------------------------------------------------------------------------------


HOLDING = """
manager = QueueManager("MQB1", directory)
say("open")
threading.Event().wait()
"""


SERVING = """
import asyncio
from bridge.mq.embedded.server import ApplicationServer

async def serve():
    manager = QueueManager("MQB1", directory)
    manager.recovery_log.dispatch = asyncio.get_running_loop().call_soon_threadsafe
    await ApplicationServer(manager).listen()
    say("listening")
    await asyncio.Event().wait()

asyncio.run(serve())
"""


APPLYING = """
from bridge.mq.remote import RemoteConnection
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


def test_a_second_process_on_the_same_directory_is_rejected(tmp_path: Path) -> None:
    child = Child(HOLDING, tmp_path)
    try:
        child.read(1)
        with pytest.raises(DataDirectoryInUse):
            QueueManager("MQB1", tmp_path)
    finally:
        child.kill()
    with opened(tmp_path):
        pass


def test_a_killed_application_is_backed_out(tmp_path: Path) -> None:
    """Its unit of work, handles and subscriptions end, and a waiting application gets its message."""
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
        message = connection.get(browse, options)
        assert (message.data, message.md.BackoutCount) == (b"old", 1)
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


def test_applications_notice_the_death_of_the_queue_manager(tmp_path: Path) -> None:
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
    with opened(tmp_path):  # the old socket is not an obstacle
        pass
