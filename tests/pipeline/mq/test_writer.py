"""Rows are put exactly once, whatever ends when: `put_all` on a queue manager, without Spark."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from bridge.mq.errors import MQError
from bridge.mq.interface import MQOD
from bridge.mq.progress import MAPPING_STATE_QUEUE
from bridge.pipeline.mq import writer
from bridge.pipeline.mq.marker import Identity, Marker
from bridge.pipeline.mq.place import APPLICATION_NAME, Place
from bridge.pipeline.mq.target import Target
from bridge.wire import cmqc
from tests.pipeline.conftest import Queues
from tests.pipeline.faults import Fault, fault

ROWS = [b"%d" % number for number in range(4)]


@pytest.fixture
def target(queues: Queues) -> Target:
    return Target(place=Place(data_directory=str(queues.directory)), queue=queues.queue())


def batches(bodies: Iterable[bytes]) -> list[Any]:
    return [pa.record_batch({"body": pa.array(list(bodies), pa.binary())})]


def bodies_of(target: Target, queues: Queues) -> list[bytes]:
    assert target.queue is not None
    return queues.bodies(target.queue)


def test_a_batch_that_is_put_again_puts_nothing(target: Target, queues: Queues) -> None:
    identity = Identity("again", 0, 0)
    assert writer.put_all(target, identity, batches(ROWS)).messages == 4
    assert writer.put_all(target, identity, batches(ROWS)).messages == 0
    assert bodies_of(target, queues) == ROWS


def test_batches_and_partitions_are_told_apart(target: Target, queues: Queues) -> None:
    for partition in range(2):
        for batch in range(3):
            assert writer.put_all(target, Identity("apart", partition, batch), batches(ROWS)).messages == 4
    assert writer.put_all(target, Identity("apart", 1, 1), batches(ROWS)).messages == 0
    assert len(bodies_of(target, queues)) == 24


def test_of_a_query_two_messages_for_each_partition_stay(target: Target, queues: Queues) -> None:
    before = queues.depth(MAPPING_STATE_QUEUE)
    for batch in range(4):
        writer.put_all(target, Identity("few", 0, batch), batches(ROWS))
    assert queues.depth(MAPPING_STATE_QUEUE) == before + 2


@pytest.mark.parametrize("rows", [1, 3, 100], ids=["a unit for each row", "units of three", "one unit"])
def test_a_connection_lost_at_any_verb(
    rows: int, target: Target, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is put again after each fault, its rows in another order than before. (The last verb is MQDISC.)"""
    monkeypatch.setattr(writer, "UNIT_ROWS", rows)
    with fault(APPLICATION_NAME) as verbs:
        writer.put_all(target, Identity(f"counted {rows}", 0, 0), batches(ROWS))
    assert bodies_of(target, queues) == ROWS
    for after in (False, True):
        for number in range(1, len(verbs)):
            identity = Identity(f"lost {rows} {after} {number}", 0, 0)
            with (
                fault(APPLICATION_NAME, Fault(lambda verb, request: True, number, after=after)),
                pytest.raises(MQError) as lost,
            ):
                writer.put_all(target, identity, batches(ROWS))
            assert lost.value.reason == cmqc.MQRC_CONNECTION_BROKEN
            writer.put_all(target, identity, batches(reversed(ROWS)))
            found = bodies_of(target, queues)
            assert Counter(found) == Counter(ROWS), f"verb {number} of {verbs}, {after=}"


def test_equal_rows_count_as_often_as_they_are_there(
    target: Target, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "UNIT_ROWS", 2)
    identity = Identity("equal", 0, 0)
    commits = Fault(lambda verb, request: verb == "MQCMIT", 2, after=True)
    with fault(APPLICATION_NAME, commits), pytest.raises(MQError):
        writer.put_all(target, identity, batches([b"same"] * 7))
    writer.put_all(target, identity, batches([b"same"] * 7))
    assert bodies_of(target, queues) == [b"same"] * 7


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "is backed out"])
def test_an_attempt_waits_for_one_that_is_still_at_it(
    commits: bool, target: Target, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt was given up by Spark, but goes on for a while: the second puts only what it leaves."""
    monkeypatch.setattr(writer, "MESSAGES", 3)
    identity = Identity(f"zombie {commits}", 0, 0)
    connection = target.place.connect()
    marker = Marker(connection, identity)
    assert marker.take() == Counter()
    unit = writer.Unit(connection, target)
    for row in writer._messages(target, identity, batches(ROWS)):
        unit.put(row)
    marker.leave(None)
    second = threading.Thread(target=writer.put_all, args=(target, identity, batches(ROWS)))
    with fault(APPLICATION_NAME) as verbs:
        second.start()
        while verbs.count("MQGET") < 2:  # that of the anchor, and the one that waits
            second.join(0.01)
            assert second.is_alive()
        unit.commit() if commits else connection.backout()
        second.join(30)
    assert not second.is_alive()
    connection.disconnect()
    assert bodies_of(target, queues) == ROWS


def test_no_queue_for_the_state(target: Target, queues: Queues) -> None:
    queues.mqsc(f"DELETE QLOCAL('{MAPPING_STATE_QUEUE}') PURGE")
    try:
        with pytest.raises(MQError, match=r"no queue SYSTEM\.MQTT\.MAPPING\.STATE, .*bridge\.mqsc defines it"):
            writer.put_all(target, Identity("none", 0, 0), batches(ROWS))
    finally:
        queues.define_state_queue()


def test_a_destination_that_refuses_is_named(target: Target, queues: Queues) -> None:
    full = queues.queue("MAXMSGL(3)")
    with pytest.raises(MQError, match=f"MQRC_MSG_TOO_BIG_FOR_Q.*{full}"):
        writer.put_all(Target(place=target.place, queue=full), Identity("full", 0, 0), batches([b"1", b"long"]))
    assert queues.depth(full) == 0


def test_topics_and_retained_publications(target: Target, queues: Queues) -> None:
    publisher = Target(place=target.place, topic="pipeline/retained", retain=True)
    writer.put_all(publisher, Identity("retained", 0, 0), batches([b"kept"]))
    queue = queues.queue()
    handle = queues.connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    queues.subscribe("pipeline/retained", handle)
    queues.connection.close(handle)
    assert [got.data[-4:] for got in queues.take(queue)] == [b"kept"]
