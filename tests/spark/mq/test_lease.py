"""The lease of a queue: one reader, who is known; what it removes, removed once, and a restart that searches for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.mq.batch import Seen
from bridge.mq.mqi import Connection, MQError
from bridge.spark.mq import browsing
from bridge.spark.mq import lease as lease_module
from bridge.spark.mq.lease import REMOVED_AT_ONCE, Lease
from bridge.spark.mq.offset import Entry, counted
from bridge.spark.mq.queue_manager import APPLICATION_NAME, QueueManagerOptions
from bridge.wire import cmqc
from tests.spark.conftest import Queues
from tests.spark.faults import Fault, fault, is_removal

READER = "a" * 16


@pytest.fixture
def options(queues: Queues) -> QueueManagerOptions:
    return QueueManagerOptions(data_directory=str(queues.directory))


@pytest.fixture
def connection(options: QueueManagerOptions) -> Iterator[Connection]:
    with options.connected() as connected:
        yield connected


def entries_of(seen: Iterator[Seen]) -> list[Entry]:
    return counted((one.msg_id, one.fingerprint, one.expires) for one in seen)


def there(connection: Connection, lease: Lease) -> list[Entry]:
    return entries_of(browsing.look(connection, lease.handle))


def test_a_second_reader_is_told_who_has_the_queue(
    options: QueueManagerOptions, connection: Connection, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "LEASE_WAIT", 0.0)
    queue = queues.queue()
    queues.put(queue, b"1")
    with options.connected() as before:
        Lease(before, queue, on_behalf="who had it before")
    lease = Lease(connection, queue, on_behalf="the pipeline of /here")
    lease.remove(READER, 1, there(connection, lease), planned_here=True)
    last = r"the last streaming read of it: the pipeline of /here, process \d+ on .*, since 20"
    words = f"queue {queue} is open for input elsewhere; {last}"
    with options.connected() as second, pytest.raises(MQError, match=words) as refused:
        Lease(second, queue)
    assert refused.value.reason == cmqc.MQRC_OBJECT_IN_USE


def test_a_lease_ends_with_its_connection(options: QueueManagerOptions, queues: Queues) -> None:
    queue = queues.queue()
    first = options.connect()
    Lease(first, queue)
    first.disconnect()
    with options.connected() as second:
        Lease(second, queue)


def test_a_reader_waits_for_the_one_before(
    options: QueueManagerOptions, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queues.queue()
    first = options.connect()
    Lease(first, queue)
    monkeypatch.setattr(lease_module.time, "sleep", lambda seconds: first.disconnect())
    with options.connected() as second:
        Lease(second, queue)


def test_what_is_removed_is_what_was_read(connection: Connection, queues: Queues) -> None:
    """And neither a message of the same MsgId that came in front, nor one that came behind."""
    queue = queues.queue()
    queues.put(queue, b"read", b"read too", MsgId=b"M" * 24, Priority=5)
    lease = Lease(connection, queue)
    batch = there(connection, lease)
    queues.put(queue, b"urgent", MsgId=b"M" * 24, Priority=9)
    queues.put(queue, b"later", MsgId=b"M" * 24, Priority=5)
    lease.remove(READER, 1, batch, planned_here=True)
    connection.close(lease.handle)
    assert queues.bodies(queue) == [b"urgent", b"later"]


def test_a_batch_is_removed_once(options: QueueManagerOptions, queues: Queues) -> None:
    """Of what was put since under the same MsgIds nothing is lost, whoever comes back."""
    queue = queues.queue()
    queues.put(queue, b"first", MsgId=b"M" * 24)
    with options.connected() as connection:
        lease = Lease(connection, queue)
        batch = there(connection, lease)
        lease.remove(READER, 1, batch, planned_here=True)
    queues.put(queue, b"second", MsgId=b"M" * 24)
    with options.connected() as connection:
        Lease(connection, queue).remove(READER, 1, batch, planned_here=False)
    assert queues.bodies(queue) == [b"second"]


@pytest.mark.parametrize("commit", [2, 3, 4])
@pytest.mark.parametrize("after", [False, True])
def test_a_removal_goes_on_where_it_was(
    options: QueueManagerOptions, queues: Queues, commit: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three units of work, the connection lost at the commit of each: the next process takes what is left, and no more."""
    monkeypatch.setattr(lease_module, "REMOVED_AT_ONCE", 10)
    queue = queues.queue()
    bodies = [b"%d" % number for number in range(30)]
    queues.put(queue, *bodies, MsgId=b"M" * 24)
    commits = Fault(lambda verb, request: verb == "MQCMIT", commit, after=after)
    with fault(APPLICATION_NAME, commits):
        connection = options.connect()
        lease = Lease(connection, queue)  # a commit of its own
        batch = there(connection, lease)
        with pytest.raises(MQError):
            lease.remove(READER, 1, batch, planned_here=True)
    queues.put(queue, b"came since", MsgId=b"M" * 24)
    taken: list[bytes] = []
    watch = Fault(lambda verb, request: bool(verb == "MQGET" and is_removal(request) and taken.append(b"")), 1)
    with options.connected() as connection, fault(APPLICATION_NAME, watch):
        lease = Lease(connection, queue)
        taken.clear()
        lease.remove(READER, 1, batch, planned_here=False)
    assert queues.bodies(queue) == [b"came since"]
    units = 3 - (commit - 2 + after)
    # For each message, and of each unit of work the record that is replaced, until there is none.
    assert len(taken) == units * (10 + 2)


def test_the_record_of_another_query_says_nothing(options: QueueManagerOptions, queues: Queues) -> None:
    """Who finds it takes of a batch what is there, and nothing else."""
    queue = queues.queue()
    queues.put(queue, b"1", b"2")
    with options.connected() as connection:
        lease = Lease(connection, queue)
        batch = there(connection, lease)
        lease.remove("b" * 16, 7, batch[:1], planned_here=True)
    queues.put(queue, b"3", MsgId=batch[0].msg_id)
    with options.connected() as connection:
        Lease(connection, queue).remove(READER, 3, batch, planned_here=False)
    assert queues.bodies(queue) == [b"3"]


def test_units_of_work_fit_maxumsgs(connection: Connection, queues: Queues) -> None:
    queue = queues.queue()
    queues.put(queue, *[b"x"] * 50)
    lease = Lease(connection, queue)
    batch = there(connection, lease)
    queues.mqsc("ALTER QMGR MAXUMSGS(20)")
    try:
        lease.remove(READER, 1, batch, planned_here=True)
    finally:
        queues.mqsc("ALTER QMGR MAXUMSGS(10000)")
    assert queues.depth(queue) == 0
    assert REMOVED_AT_ONCE > 20


def test_without_the_state_queue_a_reader_says_what_defines_it(connection: Connection, queues: Queues) -> None:
    """On IBM MQ an administrator may have defined it not."""
    queue = queues.queue()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease_module, "MAPPING_STATE_QUEUE", "NO.SUCH.QUEUE")
        with pytest.raises(MQError, match=r"no queue NO\.SUCH\.QUEUE, .*bridge\.mqsc defines it"):
            Lease(connection, queue)
