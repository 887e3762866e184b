"""Rows are put exactly once, whatever ends when, and what is kept for that: `put_all`, and a write of Spark."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.spark.columns import TEXT_MAP
from bridge.spark.mapping import KEPT_REQUEST_TYPE
from bridge.spark.mq import writer
from bridge.spark.mq import writer_state as markers
from bridge.spark.mq.queue_manager import APPLICATION_NAME, QueueManagerOptions
from bridge.spark.mq.writer import SinkOptions
from bridge.spark.mq.writer_state import WriterState
from bridge.spark.schema import REFUSAL_TYPE
from bridge.spark.task import Identity
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.spark.conftest import Queues
from tests.spark.faults import Fault, fault, is_marker, kill

ROWS = [b"%d" % number for number in range(4)]


@pytest.fixture
def options(queues: Queues) -> SinkOptions:
    return SinkOptions(queue_manager=QueueManagerOptions(data_directory=str(queues.directory)), queue=queues.queue())


def batches(bodies: Iterable[bytes]) -> list[Any]:
    return [pa.record_batch({"body": pa.array(list(bodies), pa.binary())})]


def bodies_of(options: SinkOptions, queues: Queues) -> list[bytes]:
    assert options.queue is not None
    return queues.bodies(options.queue)


def test_a_batch_that_is_put_again_puts_nothing(options: SinkOptions, queues: Queues) -> None:
    identity = Identity("again", 0, 0)
    assert writer.put_all(options, identity, batches(ROWS)).messages == 4
    assert writer.put_all(options, identity, batches(ROWS)).messages == 0
    assert bodies_of(options, queues) == ROWS


def test_messages_are_persistent_unless_somebody_says_otherwise(options: SinkOptions, queues: Queues) -> None:
    said = pa.StructArray.from_arrays([pa.array([None, 0, 1, 2], pa.int32())], ["Persistence"])
    rows = pa.record_batch({"body": pa.array(ROWS, pa.binary()), "md": said})
    writer.put_all(options, Identity("persistence", 0, 0), [rows, *batches(ROWS[:1])])
    as_queue = msgspec.structs.replace(options, persistence=cmqc.MQPER_PERSISTENCE_AS_Q_DEF)
    writer.put_all(as_queue, Identity("persistence", 1, 0), batches(ROWS[:1]))
    assert options.queue is not None
    # 2 is MQPER_PERSISTENCE_AS_Q_DEF, and DEFPSIST of the queue is NO.
    assert [one.md.Persistence for one in queues.take(options.queue)] == [1, 0, 1, 0, 1, 0]


def test_batches_and_partitions_are_told_apart(options: SinkOptions, queues: Queues) -> None:
    for partition in range(2):
        for batch in range(3):
            assert writer.put_all(options, Identity("apart", partition, batch), batches(ROWS)).messages == 4
    assert writer.put_all(options, Identity("apart", 1, 1), batches(ROWS)).messages == 0
    assert len(bodies_of(options, queues)) == 24


def test_of_a_query_two_messages_for_each_partition_stay(options: SinkOptions, queues: Queues) -> None:
    before = queues.depth(MAPPING_STATE_QUEUE)
    for batch in range(4):
        writer.put_all(options, Identity("few", 0, batch), batches(ROWS))
    assert queues.depth(MAPPING_STATE_QUEUE) == before + 2


@pytest.mark.parametrize("rows", [1, 3, 100], ids=["a unit for each row", "units of three", "one unit"])
def test_a_connection_lost_at_any_verb(
    rows: int, options: SinkOptions, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is put again after each fault, its rows in another order than before. (The last verb is MQDISC.)"""
    monkeypatch.setattr(writer, "UNIT_ROWS", rows)
    with fault(APPLICATION_NAME) as verbs:
        writer.put_all(options, Identity(f"counted {rows}", 0, 0), batches(ROWS))
    assert bodies_of(options, queues) == ROWS
    for after in (False, True):
        for number in range(1, len(verbs)):
            identity = Identity(f"lost {rows} {after} {number}", 0, 0)
            with (
                fault(APPLICATION_NAME, Fault(lambda verb, request: True, number, after=after)),
                pytest.raises(MQError) as lost,
            ):
                writer.put_all(options, identity, batches(ROWS))
            assert lost.value.reason == cmqc.MQRC_CONNECTION_BROKEN
            writer.put_all(options, identity, batches(reversed(ROWS)))
            found = bodies_of(options, queues)
            assert Counter(found) == Counter(ROWS), f"verb {number} of {verbs}, {after=}"


def test_equal_rows_count_as_often_as_they_are_there(
    options: SinkOptions, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "UNIT_ROWS", 2)
    identity = Identity("equal", 0, 0)
    commits = Fault(lambda verb, request: verb == "MQCMIT", 2, after=True)
    with fault(APPLICATION_NAME, commits), pytest.raises(MQError):
        writer.put_all(options, identity, batches([b"same"] * 7))
    writer.put_all(options, identity, batches([b"same"] * 7))
    assert bodies_of(options, queues) == [b"same"] * 7


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "is backed out"])
def test_an_attempt_waits_for_one_that_is_still_at_it(
    commits: bool, options: SinkOptions, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt was given up by Spark, but goes on for a while: the second puts only what it leaves."""
    monkeypatch.setattr(writer, "_REQUEST_ROWS", 3)
    identity = Identity(f"zombie {commits}", 0, 0)
    connection = options.queue_manager.connect()
    state = WriterState(connection, identity)
    assert state.take() == Counter()
    unit = writer.Unit(connection, options)
    for row in writer._messages(options, identity, batches(ROWS)):
        unit.put(row)
    unit.settle()
    state.leave(None)
    second = threading.Thread(target=writer.put_all, args=(options, identity, batches(ROWS)))
    with fault(APPLICATION_NAME) as verbs:
        second.start()
        while verbs.count("MQGET") < 2:  # that of the anchor, and the one that waits
            second.join(0.01)
            assert second.is_alive()
        unit.commit() if commits else connection.backout()
        second.join(30)
    assert not second.is_alive()
    connection.disconnect()
    assert bodies_of(options, queues) == ROWS


def test_no_queue_for_the_state(options: SinkOptions, queues: Queues) -> None:
    queues.mqsc(f"DELETE QLOCAL('{MAPPING_STATE_QUEUE}') PURGE")
    try:
        with pytest.raises(MQError, match=r"no queue SYSTEM\.MQTT\.MAPPING\.STATE, .*bridge\.mqsc defines it"):
            writer.put_all(options, Identity("none", 0, 0), batches(ROWS))
    finally:
        queues.define_state_queue()


def test_a_destination_that_refuses_is_named(options: SinkOptions, queues: Queues) -> None:
    full = queues.queue("MAXMSGL(3)")
    with pytest.raises(MQError, match=f"MQRC_MSG_TOO_BIG_FOR_Q.*{full}"):
        to = SinkOptions(queue_manager=options.queue_manager, queue=full)
        writer.put_all(to, Identity("full", 0, 0), batches([b"1", b"long"]))
    assert queues.depth(full) == 0


def test_topics_and_retained_publications(options: SinkOptions, queues: Queues) -> None:
    publisher = SinkOptions(queue_manager=options.queue_manager, topic="pipeline/retained", retain=True)
    writer.put_all(publisher, Identity("retained", 0, 0), batches([b"kept"]))
    queue = queues.queue()
    handle = queues.connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    queues.subscribe("pipeline/retained", handle)
    queues.connection.close(handle)
    assert [got.data[-4:] for got in queues.take(queue)] == [b"kept"]


# Rows of a mapping (what is put of them: tests/spark/test_mapping_written.py) ------------------------------------------


def mapped(queue: str, kept: str) -> list[Any]:
    """A message alone, one with properties, a request, one for another queue, and a row that was refused."""
    rows: list[dict[str, Any]] = [
        {"body": b"0"},
        {"body": b"1", "properties": [("usr.site", "Ulm"), ("mqtt.qos", "1")]},
        {"body": b"2", "kept_request": {"queue": kept, "data": b"asked"}},
        {"body": b"3", "retain": True},
        {"body": b"4", "refusal": {"reason": 2152, "sentence": "no name", "source": "plant/4"}},
        {"body": b"5"},
    ]
    schema = {
        "queue": pa.string(),
        "body": pa.binary(),
        "properties": TEXT_MAP,
        "retain": pa.bool_(),
        "kept_request": KEPT_REQUEST_TYPE,
        "refusal": REFUSAL_TYPE,
    }
    whole = [{"queue": None if "refusal" in row else queue, **row} for row in rows]
    return [pa.RecordBatch.from_pylist(whole, schema=pa.schema(schema))]


@pytest.mark.parametrize("rows", [1, 100], ids=["a unit for each row", "one unit"])
def test_rows_of_a_mapping_and_a_connection_lost_at_any_verb(
    rows: int, options: SinkOptions, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests and what is kept of them, and refusals, are of the same unit of work."""
    monkeypatch.setattr(writer, "UNIT_ROWS", rows)
    refused, kept, queue = queues.queue(), queues.queue(), queues.queue()
    to = SinkOptions(queue_manager=options.queue_manager, refused=refused, mapped=True)
    with fault(APPLICATION_NAME) as verbs:
        writer.put_all(to, Identity(f"mapped {rows}", 0, 0), mapped(queue, kept))
    for number in range(len(verbs)):
        if number:
            identity = Identity(f"mapped {rows} {number}", 0, 0)
            with fault(APPLICATION_NAME, Fault(lambda verb, request: True, number)), pytest.raises(MQError):
                writer.put_all(to, identity, mapped(queue, kept))
            writer.put_all(to, identity, mapped(queue, kept))
        taken = queues.take(queue)
        found = {got.data[-1:]: got for got in taken}
        assert sorted(got.data[-1:] for got in taken) == [b"0", b"1", b"2", b"3", b"5"], number
        (asked,) = queues.take(kept)
        assert (asked.data, asked.md.MsgId) == (b"asked", found[b"2"].md.MsgId)
        (letter,) = queues.take(refused)
        header = decode_mqdlh(letter.data)
        assert (header.Reason, header.DestQName.rstrip(b" \0"), letter.data[-1:]) == (2152, b"plant/4", b"4")


def test_a_refused_row_without_a_place_for_it_ends_the_write(options: SinkOptions, queues: Queues) -> None:
    queue = queues.queue()
    to = SinkOptions(queue_manager=options.queue_manager, mapped=True)
    said = (
        r"row 5 of partition 3 cannot be put: its mapping refuses it from 'plant/4': no name"
        r" \(MQRC_OBJECT_NAME_ERROR, 2152\); hint: filter out such rows \(where refusal IS NULL\), or name a queue"
    )
    with pytest.raises(writer.RowRefused, match=said):
        writer.put_all(to, Identity("refused", 3, 0), mapped(queue, queues.queue()))
    assert queues.depth(queue) == 0


@pytest.mark.parametrize("value", ["one", "2147483648"])
def test_a_message_property_that_is_no_number(value: str, options: SinkOptions) -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"body": b"", "properties": [("mqtt.qos", value)]}],
        schema=pa.schema({"body": pa.binary(), "properties": TEXT_MAP}),
    )
    with pytest.raises(ValueError, match=f"property mqtt.qos: expected a signed 32-bit integer, found '{value}'"):
        writer.put_all(options, Identity("number", 0, 0), [batch])


# What is kept ---------------------------------------------------------------------------------------------------------


def passing(name: str) -> Identity:
    """Of a batch write without a name."""
    return Identity(name, 0, 0, passing=True)


def discard(options: SinkOptions, identity: Identity) -> None:
    with options.queue_manager.connected() as connection:
        WriterState(connection, identity).discard()
        connection.commit()


def test_what_is_founded_is_whole_or_nothing(options: SinkOptions, queues: Queues) -> None:
    before = queues.depth(MAPPING_STATE_QUEUE)
    for verb in range(1, 4):
        puts = Fault(lambda verb, request: verb in ("MQPUT", "MQCMIT"), verb)
        with fault(APPLICATION_NAME, puts), pytest.raises(MQError):
            writer.put_all(options, passing(f"founded {verb}"), batches(ROWS))
        assert queues.depth(MAPPING_STATE_QUEUE) == before


def test_what_two_attempts_founded_at_the_same_time_goes(
    options: SinkOptions, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = queues.depth(MAPPING_STATE_QUEUE)
    writer.put_all(options, passing("two"), batches(ROWS))
    anchor: Callable[..., bytes | None] = WriterState._anchor
    looks = iter([True, False])
    monkeypatch.setattr(WriterState, "_anchor", lambda state, *how: None if next(looks, False) else anchor(state, *how))
    assert writer.put_all(options, passing("two"), batches(ROWS)).messages == 0
    assert queues.depth(MAPPING_STATE_QUEUE) == before + 4
    discard(options, passing("two"))
    assert queues.depth(MAPPING_STATE_QUEUE) == before


def test_a_task_that_outlives_its_write_leaves_nothing_behind(options: SinkOptions, queues: Queues) -> None:
    """It has the state in a unit of work, which the queue manager backs out when the task is killed."""
    before = queues.depth(MAPPING_STATE_QUEUE)
    connection = options.queue_manager.connect()
    WriterState(connection, passing("outlives")).take()
    ends = threading.Thread(target=discard, args=(options, passing("outlives")))
    with fault(APPLICATION_NAME) as verbs:
        ends.start()
        while (
            verbs.count("MQGET") < 3
        ):  # that which looks for the anchor, the one that takes it, and the one that waits
            ends.join(0.01)
            assert ends.is_alive()
        connection.backout()
        ends.join(30)
    assert not ends.is_alive()
    connection.disconnect()
    assert queues.depth(MAPPING_STATE_QUEUE) == before


@pytest.mark.parametrize("identity", [passing("expires"), Identity("stays", 0, 0)], ids=lambda one: one.query)
def test_what_nobody_takes_away_expires(identity: Identity, options: SinkOptions, queues: Queues) -> None:
    before = queues.depth(MAPPING_STATE_QUEUE)
    writer.put_all(options, identity, batches(ROWS))
    handle = queues.connection.open(MQOD(ObjectName=MAPPING_STATE_QUEUE), cmqc.MQOO_BROWSE)
    browse = GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT, MatchOptions=cmqc.MQMO_NONE)
    expiries = [queues.connection.get(handle, browse).md.Expiry for _ in range(before + 2)][before:]
    queues.connection.close(handle)
    if identity.passing:
        assert all(markers.EXPIRY - 6000 < expiry <= markers.EXPIRY for expiry in expiries)
        discard(options, identity)
    else:
        assert expiries == [cmqc.MQEI_UNLIMITED] * 2


@pytest.mark.slow
def test_a_batch_write_whose_worker_is_killed_leaves_nothing_behind(
    spark: SparkSession, options: SinkOptions, queues: Queues
) -> None:
    """In the middle of its rows; the local Spark of the tests runs no task again."""
    before, queue = queues.depth(MAPPING_STATE_QUEUE), str(options.queue)
    rows = spark.range(2_000).selectExpr("CAST(id AS STRING) AS body").repartition(2)
    puts = Fault(lambda verb, request: verb == "MQPUT" and not is_marker(request), 600, action=kill(signal.SIGKILL))
    with fault(APPLICATION_NAME, puts), pytest.raises(Py4JJavaError, match="Python worker exited unexpectedly"):
        rows.write.format("mq").options(**queues.options, queue=queue).mode("append").save()
    assert puts.happened
    assert queues.depth(MAPPING_STATE_QUEUE) == before
