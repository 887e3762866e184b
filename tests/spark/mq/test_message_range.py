"""Certain messages of a queue: all that are there, in the order given, whatever else is, and whatever is not."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.mq.embedded import queue as queue_module
from bridge.mq.mqi import Connection, GetOptions
from bridge.spark.mq import browsing, message_range
from bridge.spark.mq.message_range import MessageGone, browse_messages
from bridge.spark.mq.offset import Entry, counted
from bridge.spark.mq.queue_manager import APPLICATION_NAME, QueueManagerOptions
from bridge.wire import cmqc
from tests.spark.conftest import Queues
from tests.spark.faults import fault


@pytest.fixture(scope="module")
def connection(queues: Queues) -> Iterator[Connection]:
    with QueueManagerOptions(data_directory=str(queues.directory)).connected() as connected:
        yield connected


def there(connection: Connection, queue: str) -> dict[Entry, bytes]:
    """All messages of a queue, as a batch names them, with their data."""
    handle = browsing.open_for_browse(connection, queue)
    seen = counted((one.msg_id, one.fingerprint, one.expires) for one in browsing.look(connection, handle))
    bodies = [data for _, data in browsing.browse_all(connection, handle)]
    connection.close(handle)
    return dict(zip(seen, bodies, strict=True))


def browsed(connection: Connection, queue: str, wanted: list[Entry], *, lenient: bool = False) -> list[bytes]:
    return [data for _, data in browse_messages(connection, queue, wanted, lenient=lenient)]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_what_is_there_comes_in_the_order_given(connection: Connection, queues: Queues, data: st.DataObject) -> None:
    """With others between, in front and behind, and some that are gone; mostly in the order of the queue."""
    queue = queues.queue()
    for number, priority in enumerate(data.draw(st.lists(st.sampled_from([3, 7]), min_size=1, max_size=30))):
        queues.put(queue, b"%d" % number, Priority=priority)
    before = there(connection, queue)
    few = st.sets(st.sampled_from(sorted(before)), max_size=len(before) // 2)
    others, gone = data.draw(few, label="not asked for"), data.draw(few, label="gone")
    wanted = [one for one in before if one not in others]
    if data.draw(st.sampled_from([False, False, True]), label="in any order"):
        random.Random(len(before)).shuffle(wanted)
    for priority in data.draw(st.lists(st.sampled_from([0, 3, 9]), max_size=5), label="put meanwhile"):
        queues.put(queue, b"came later", Priority=priority)
    queues.remove(queue, [one.msg_id for one in gone])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_PASSED", "_MISSED", "MESSAGES"):
            patch.setattr(message_range, name, data.draw(st.integers(1, 8), label=name))
        found = [before[one] for one in wanted if one not in gone]
        assert browsed(connection, queue, wanted, lenient=True) == found
        if gone.isdisjoint(wanted):
            assert browsed(connection, queue, wanted) == found
        else:
            with pytest.raises(MessageGone, match=f"of a batch is not on queue {queue} any more"):
                browsed(connection, queue, wanted)


def test_a_stretch_is_read_by_batches_of_browses(connection: Connection, queues: Queues) -> None:
    """One search, for the first message; what came in front since is not even seen."""
    queue = queues.queue()
    bodies = [b"%d" % number for number in range(600)]
    queues.put(queue, *bodies, Priority=3)
    wanted = list(there(connection, queue))
    queues.put(queue, b"urgent", Priority=9)
    with (
        fault(APPLICATION_NAME) as verbs,
        QueueManagerOptions(data_directory=str(queues.directory)).connected() as watched,
    ):
        assert browsed(watched, queue, wanted[300:]) == bodies[300:]
    assert verbs.count("MQGET") == 3  # the one, and batches of 250 and 49


def test_messages_that_expired_are_left_out(
    connection: Connection, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queues.queue()
    queues.put(queue, b"stays", Expiry=60_000)
    queues.put(queue, *[b"goes"] * 30, Expiry=6_000)
    queues.put(queue, b"stays too")
    wanted = list(there(connection, queue))
    assert len(wanted) == 32
    # An hour later, for the queue manager.
    monkeypatch.setattr(queue_module, "time", SimpleNamespace(**vars(time) | {"time": lambda: time.time() + 3_600}))
    assert browsed(connection, queue, wanted) == [b"stays", b"stays too"]


def test_a_message_in_a_unit_of_work_of_another_is_missed_until_it_is_backed_out(
    connection: Connection, queues: Queues
) -> None:
    queue = queues.queue()
    queues.put(queue, b"1", b"2", b"3")
    wanted = list(there(connection, queue))
    handle = queues.open(queue, cmqc.MQOO_INPUT_SHARED)
    by_id = GetOptions(Options=cmqc.MQGMO_SYNCPOINT, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=wanted[1][0])
    queues.connection.get(handle, by_id)
    with pytest.raises(MessageGone, match=wanted[1][0].hex().upper()):
        browsed(connection, queue, wanted)
    assert browsed(connection, queue, wanted, lenient=True) == [b"1", b"3"]
    queues.connection.backout()
    queues.connection.close(handle)
    assert browsed(connection, queue, wanted) == [b"1", b"2", b"3"]


def test_messages_of_one_msg_id_are_told_apart(connection: Connection, queues: Queues) -> None:
    """Whichever of them are asked for, in whichever order they stand."""
    queue = queues.queue()
    for number, priority in enumerate((5, 5, 9, 0, 5)):
        queues.put(queue, b"%d" % number, MsgId=b"M" * 24, Priority=priority)
    entries = {body: entry for entry, body in there(connection, queue).items()}
    for order in (b"0", b"1"), (b"3", b"2"), (b"4", b"0", b"2", b"1"):
        assert browsed(connection, queue, [entries[body] for body in order]) == list(order)
    queues.put(queue, b"later", MsgId=b"M" * 24, Priority=9)
    assert browsed(connection, queue, [entries[b"2"], entries[b"4"]]) == [b"2", b"4"]
