"""`put_batch`: batches are put exactly once, whenever a process ends, and however they are staged the next time."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.mq.state import StateQueue
from bridge.spark import staging
from bridge.spark.columns import TEXT_MAP
from bridge.spark.mapping import KEPT_REQUEST_TYPE
from bridge.spark.mq import writer, writer_state
from bridge.spark.mq.queue_manager import APPLICATION_NAME, QueueManagerOptions
from bridge.spark.mq.writer import MqSinkOptions, put_batch
from bridge.spark.mq.writer_state import BatchUnfinished, WriterState
from bridge.spark.schema import REFUSAL_TYPE
from bridge.spark.staging import Staged, StageDamaged, StagedBatch, StageMissing, discard
from bridge.spark.task import BatchIdentity
from bridge.telemetry.headers import rfh2_of
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.helpers.staging import stage_partitions
from tests.spark.conftest import Queues
from tests.spark.faults import Fault, fault

ROWS = [b"%d" % number for number in range(4)]


@pytest.fixture
def options(queues: Queues, tmp_path: Path) -> MqSinkOptions:
    (tmp_path / "stage").mkdir()
    manager = QueueManagerOptions(data_directory=str(queues.directory))
    return MqSinkOptions(queue_manager=manager, queue=queues.queue(), stage=str(tmp_path / "stage"))


Stage = Callable[..., list[Staged]]


@pytest.fixture
def stage(options: MqSinkOptions) -> Stage:
    """`stage(identity, [record batch, ...], ...)` returns the commit messages of tasks, one for each partition."""

    def staged(identity: BatchIdentity, *partitions: list[Any]) -> list[Staged]:
        return stage_partitions(options.stage, identity, *partitions)

    return staged


def batches(bodies: Iterable[bytes]) -> list[Any]:
    return [pa.record_batch({"body": pa.array(list(bodies), pa.binary())})]


def put(options: MqSinkOptions, messages: list[Staged], **named: bool) -> None:
    put_batch(options, StagedBatch(options.stage, messages), **named)


def bodies_of(options: MqSinkOptions, queues: Queues) -> list[bytes]:
    assert options.queue is not None
    return queues.bodies(options.queue)


def files(options: MqSinkOptions) -> list[Path]:
    return [path for path in Path(options.stage).rglob("*") if path.is_file()]


@pytest.mark.parametrize("rows", [1, 100], ids=["a unit for each row", "one unit"])
def test_a_repeated_batch_puts_nothing(
    rows: int, options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "UNIT_ROWS", rows)
    identity = BatchIdentity(f"again {rows}", 0)
    for _ in range(2):
        put(options, stage(identity, batches(ROWS[:2]), batches(ROWS[2:])))
    put(options, stage(identity, batches(ROWS)))
    assert bodies_of(options, queues) == ROWS
    assert files(options) == []


def test_messages_are_persistent_by_default(options: MqSinkOptions, queues: Queues, stage: Stage) -> None:
    md = pa.StructArray.from_arrays([pa.array([None, 0, 1, 2], pa.int32())], ["Persistence"])
    rows = pa.record_batch({"body": pa.array(ROWS, pa.binary()), "md": md})
    put(options, stage(BatchIdentity("persistence", 0), [rows], batches(ROWS[:1])))
    as_queue = msgspec.structs.replace(options, persistence=cmqc.MQPER_PERSISTENCE_AS_Q_DEF)
    put(as_queue, stage(BatchIdentity("persistence", 1), batches(ROWS[:1])))
    assert options.queue is not None
    # 2 is MQPER_PERSISTENCE_AS_Q_DEF, and DEFPSIST of the queue is NO.
    assert [message.md.Persistence for message in queues.take(options.queue)] == [1, 0, 1, 0, 1, 0]


def test_two_messages_of_a_query_stay(
    options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = queues.depth(MAPPING_STATE_QUEUE)
    for batch in range(4):
        monkeypatch.setattr(writer, "UNIT_ROWS", batch + 2)
        put(options, stage(BatchIdentity("few", batch), batches(ROWS), batches(ROWS)))
    put(options, stage(BatchIdentity("few", 1), batches(ROWS)))  # of a checkpoint that was restored
    assert queues.depth(MAPPING_STATE_QUEUE) == before + 2
    assert bodies_of(options, queues) == ROWS * 8


@pytest.mark.parametrize(
    ("rows", "in_files"),
    [(1, False), (3, True), (100, False)],
    ids=["a unit for each row", "units of three, files", "one unit"],
)
def test_a_connection_lost_at_any_verb(
    rows: int, in_files: bool, options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each fault, the batch runs again with other values and other partitions. (The last verb is MQDISC.)"""
    monkeypatch.setattr(writer, "UNIT_ROWS", rows)
    monkeypatch.setattr(staging, "MESSAGE_BYTES", 0 if in_files else 2**20)
    others = [b"other %d" % number for number in range(3)]
    queues.take(MAPPING_STATE_QUEUE)
    with fault(APPLICATION_NAME) as verbs:
        put(options, stage(BatchIdentity(f"counted {rows} {in_files}", 0), batches(ROWS[:3]), batches(ROWS[3:])))
    assert bodies_of(options, queues) == ROWS
    lost = [(number, False) for number in range(1, len(verbs))]
    lost += [(number, True) for number, verb in enumerate(verbs, 1) if verb == "MQCMIT"]
    for number, after in lost:
        identity = BatchIdentity(f"lost {rows} {number} {after}", 0)
        messages = stage(identity, batches(ROWS[:3]), batches(ROWS[3:]))
        with (
            fault(APPLICATION_NAME, Fault(lambda verb, request: True, number, after=after)),
            pytest.raises(MQError) as raised,
        ):
            put(options, messages)
        assert raised.value.reason == cmqc.MQRC_CONNECTION_BROKEN
        discard(options.stage, messages)  # as Spark does
        put(options, stage(identity, batches(others)))
        assert bodies_of(options, queues) in (ROWS, others), f"verb {number} of {verbs}, {after=}"
        assert files(options) == []
        queues.take(MAPPING_STATE_QUEUE)  # which each new query reads


def test_a_batch_with_a_manifest_is_finished_before_the_next_one(
    options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of foreachBatch may hide the error, so that Spark continues."""
    begin_batch(options, stage, BatchIdentity("hidden", 0), monkeypatch)
    put(options, stage(BatchIdentity("hidden", 1), batches([b"next"])))
    assert bodies_of(options, queues) == [*ROWS, b"next"]
    assert files(options) == []


def begin_batch(options: MqSinkOptions, stage: Stage, identity: BatchIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put two of four rows, each in a separate unit of work."""
    monkeypatch.setattr(writer, "UNIT_ROWS", 1)
    monkeypatch.setattr(staging, "MESSAGE_BYTES", 0)
    commits = Fault(lambda verb, request: verb == "MQCMIT", 5)  # those of the first states, the manifest, and two rows
    messages = stage(identity, batches(ROWS[:3]), batches(ROWS[3:]))
    with fault(APPLICATION_NAME, commits), pytest.raises(MQError):
        put(options, messages)
    discard(options.stage, messages)


def test_a_staging_directory_that_was_changed_meanwhile(
    options: MqSinkOptions, queues: Queues, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest on the state queue determines the location of its files."""
    identity = BatchIdentity("elsewhere", 0)
    begin_batch(options, stage, identity, monkeypatch)
    (tmp_path / "new").mkdir()
    elsewhere = msgspec.structs.replace(options, stage=str(tmp_path / "new"))
    put(elsewhere, stage_partitions(elsewhere.stage, identity, batches([b"other"])))
    assert bodies_of(options, queues) == ROWS
    assert files(options) == files(elsewhere) == []


@pytest.mark.parametrize("damage", ["missing", "is damaged"])
def test_a_lost_staged_file_stops_the_query(
    damage: str, options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = BatchIdentity(f"file {damage}", 7)
    begin_batch(options, stage, identity, monkeypatch)
    last = max(path for path in files(options) if path.suffix == ".arrow")
    content = last.read_bytes()
    last.unlink() if damage == "missing" else last.write_bytes(content[:-1] + b"x")
    why = "cannot be read" if damage == "missing" else damage
    words = f"{last.name} of batch 7 of file {damage} {why}.*Of the 4 rows of the batch, 2 were written before"
    for _ in range(2):
        with pytest.raises(StageDamaged, match=words):
            put(options, stage(identity, batches(ROWS)))
    last.write_bytes(content)
    put(options, stage(identity, batches(ROWS)))
    assert bodies_of(options, queues) == ROWS


def test_a_file_damaged_before_the_batch_starts_has_no_effect(
    options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "UNIT_ROWS", 1)
    monkeypatch.setattr(staging, "MESSAGE_BYTES", 0)
    identity = BatchIdentity("early", 0)
    messages = stage(identity, batches(ROWS))
    (file,) = files(options)
    file.write_bytes(b"")
    with pytest.raises(StageDamaged, match=r"\.arrow of batch 0 of early is damaged"):
        put(options, messages)
    put(options, stage(identity, batches(ROWS)))
    assert bodies_of(options, queues) == ROWS


def test_an_invalid_row_is_found_before_any_row_is_put(
    options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a corrected SELECT would not help, because the manifest applies."""
    monkeypatch.setattr(writer, "UNIT_ROWS", 1)
    identity = BatchIdentity("row", 0)
    for held in (0, 100):
        monkeypatch.setattr(writer, "_HELD_ROWS", held)
        bad = pa.record_batch({"body": pa.array(ROWS[2:]), "ccsid": pa.array([1208, 99_999], pa.int32())})
        bad = bad.set_column(0, "body", pa.array(["2", "3"]))
        messages = stage(identity, batches(ROWS[:2]), [bad])
        with pytest.raises(writer.RowRefused, match="CCSID 99999"):
            put(options, messages)
        discard(options.stage, messages)
    put(options, stage(identity, batches(ROWS)))
    assert bodies_of(options, queues) == ROWS


def test_a_batch_that_needs_a_staging_directory(
    options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "UNIT_ROWS", 3)
    without = msgspec.structs.replace(options, stage="")
    words = "batch 0 of large has 4 rows .*no staging directory.*set the option stage to .*or lower maxRowsPerTrigger"
    with pytest.raises(StageMissing, match=words):
        put(without, stage_partitions("", BatchIdentity("large", 0), batches(ROWS)))
    monkeypatch.setattr(staging, "MAX_MESSAGE_BYTES", 3)
    with pytest.raises(StageMissing, match=r"partition 0 of batch 0 of large has more than .*set the option stage"):
        stage_partitions("", BatchIdentity("large", 0), batches(ROWS))
    monkeypatch.setattr(staging, "MESSAGE_BYTES", 3)
    with pytest.raises(StageMissing, match=r"staging directory /nowhere does not exist on .*all workers reach"):
        stage_partitions("/nowhere", BatchIdentity("large", 0), batches(ROWS))
    assert queues.depth(str(options.queue)) == 0


def test_a_full_staging_disk(options: MqSinkOptions, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staging, "MESSAGE_BYTES", 0)
    monkeypatch.setattr("bridge.files.os.fsync", full)
    with pytest.raises(
        OSError, match=r"staging directory .* cannot be written: the disk is full; hint: free disk space"
    ):
        stage(BatchIdentity("full", 0), batches(ROWS))
    assert files(options) == []


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "is backed out"])
def test_an_attempt_waits_for_a_running_one(
    commits: bool, options: MqSinkOptions, queues: Queues, stage: Stage
) -> None:
    """Spark has given up the first attempt, which still runs for a while."""
    identity = BatchIdentity(f"zombie {commits}", 0)
    connection = options.queue_manager.connect()
    state = WriterState(connection, identity.query)
    state.take(identity, {0})
    unit = writer.WriterUnit(connection, options)
    for row in writer._messages(options, [(0, batch) for batch in batches(ROWS)]):
        unit.put(row)
    unit.settle()
    state.leave(0, 4, complete=True)
    second = threading.Thread(target=put, args=(options, stage(identity, batches(ROWS))))
    with fault(APPLICATION_NAME) as verbs:
        second.start()
        while verbs.count("MQGET") < 4:  # it has looked twice, and found one state
            second.join(0.01)
            assert second.is_alive()
        unit.commit() if commits else connection.backout()
        second.join(30)
    assert not second.is_alive()
    connection.disconnect()
    assert bodies_of(options, queues) == ROWS


def test_two_attempts_that_start_at_the_same_time(options: MqSinkOptions, queues: Queues, stage: Stage) -> None:
    """Each puts its first states before it sees those of the other."""
    before = queues.depth(MAPPING_STATE_QUEUE)
    identity = BatchIdentity("two", 0)
    both = threading.Barrier(2, timeout=30)
    original = WriterState._founded

    def founded(state: WriterState, *batch: Any) -> str:
        decision = original(state, *batch)
        if not both.broken and not first.is_set():
            both.wait()
            first.set()
        return decision

    first = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriterState, "_founded", founded)
        attempts = [threading.Thread(target=put, args=(options, stage(identity, batches(ROWS)))) for _ in range(2)]
        for attempt in attempts:
            attempt.start()
        for attempt in attempts:
            attempt.join(60)
    assert bodies_of(options, queues) == ROWS
    assert queues.depth(MAPPING_STATE_QUEUE) == before + 2


def test_a_missing_state_queue(options: MqSinkOptions, queues: Queues, stage: Stage) -> None:
    queues.mqsc(f"DELETE QLOCAL('{MAPPING_STATE_QUEUE}') PURGE")
    try:
        with pytest.raises(MQError, match=r"SYSTEM\.MQTT\.MAPPING\.STATE is missing; hint: .*bridge\.mqsc defines it"):
            put(options, stage(BatchIdentity("none", 0), batches(ROWS)))
    finally:
        queues.define_state_queue()


def test_the_error_names_a_destination_that_rejects_messages(
    options: MqSinkOptions, queues: Queues, stage: Stage
) -> None:
    full = queues.queue("MAXMSGL(3)")
    with pytest.raises(MQError, match=f"MQRC_MSG_TOO_BIG_FOR_Q.*{full}"):
        to = msgspec.structs.replace(options, queue=full)
        put(to, stage(BatchIdentity("full", 0), batches([b"1", b"long"])))
    assert queues.depth(full) == 0


def test_topics_and_retained_publications(options: MqSinkOptions, queues: Queues, stage: Stage) -> None:
    publisher = msgspec.structs.replace(options, queue=None, topic="pipeline/retained", retain=True)
    put(publisher, stage(BatchIdentity("retained", 0), batches([b"kept"])))
    _, handle = queues.subscribe("pipeline/retained")
    assert [message.data[-4:] for message in queues.take_from(handle)] == [b"kept"]


# Rows of a mapping (tests/spark/test_mapping_written.py checks the messages) -------------------------------------------


def mapped(queue: str, request_queue: str) -> list[Any]:
    """A message without headers, one with properties, a request, one for another queue, and a rejected row."""
    rows: list[dict[str, Any]] = [
        {"body": b"0"},
        {"body": b"1", "properties": [("usr.site", "Ulm"), ("mqtt.qos", "1")]},
        {"body": b"2", "kept_request": {"queue": request_queue, "data": b"asked"}},
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
    rows: int, options: MqSinkOptions, queues: Queues, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests, their stored data, and rejections are in the same unit of work."""
    monkeypatch.setattr(writer, "UNIT_ROWS", rows)
    refused, request_queue, queue = queues.queue(), queues.queue(), queues.queue()
    to = msgspec.structs.replace(options, queue=None, refused=refused, mapped=True)
    queues.take(MAPPING_STATE_QUEUE)
    with fault(APPLICATION_NAME) as verbs:
        put(to, stage(BatchIdentity(f"mapped {rows}", 0), mapped(queue, request_queue)))
    for number in range(len(verbs)):
        if number:
            identity = BatchIdentity(f"mapped {rows} {number}", 0)
            with fault(APPLICATION_NAME, Fault(lambda verb, request: True, number)), pytest.raises(MQError):
                put(to, stage(identity, mapped(queue, request_queue)))
            put(to, stage(identity, mapped(queue, request_queue)))
        queue_messages = queues.take(queue)
        messages = {message.data[-1:]: message for message in queue_messages}
        assert sorted(message.data[-1:] for message in queue_messages) == [b"0", b"1", b"2", b"3", b"5"], number
        (stored_request,) = queues.take(request_queue)
        assert (stored_request.data, stored_request.md.MsgId) == (b"asked", messages[b"2"].md.MsgId)
        (letter,) = queues.take(refused)
        header = decode_mqdlh(letter.data)
        assert (header.Reason, header.DestQName.rstrip(b" \0"), letter.data[-1:]) == (2152, b"plant/4", b"4")
        queues.take(MAPPING_STATE_QUEUE)  # which each new query reads


def test_the_log_names_the_publisher_of_a_dead_letter(
    options: MqSinkOptions, queues: Queues, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Client and topic if the headers of the message contain them, otherwise the topic or queue that it was read from."""
    md = {"Format": "MQHRF2"}
    refusal = {"reason": 2110, "sentence": "no JSON", "source": "PLANT.IN"}
    rows = [
        {"md": md, "headers": rfh2_of("pump-7", 1, 1, None), "body": b"1", "refusal": refusal},
        {"md": {}, "headers": b"", "body": b"2", "refusal": refusal},
    ]
    schema = pa.schema(
        {"md": pa.struct({"Format": pa.string()}), "headers": pa.binary(), "body": pa.binary(), "refusal": REFUSAL_TYPE}
    )
    to = msgspec.structs.replace(options, refused=queues.queue())
    put(to, stage(BatchIdentity("dead letters", 0), [pa.RecordBatch.from_pylist(rows, schema=schema)]))
    end = f" to queue {to.refused}: no JSON: MQRC_FORMAT_ERROR (2110)"
    start = "MQB5101W mapping mqbridge spark: dead-lettered a message of "
    lines = [line for line in caplog.messages if line.startswith("MQB")]
    assert lines == [f"{start}client 'pump-7'{end}", f"{start}PLANT.IN{end}"]


def test_a_rejected_row_without_a_destination_ends_the_write(
    options: MqSinkOptions, queues: Queues, stage: Stage
) -> None:
    queue = queues.queue()
    to = msgspec.structs.replace(options, queue=None, mapped=True)
    reason = (
        r"row 5 of partition 1 cannot be put: it is rejected from 'plant/4': no name"
        r" \(MQRC_OBJECT_NAME_ERROR, 2152\); hint: filter out such rows \(where refusal IS NULL\), or name a queue"
    )
    with pytest.raises(writer.RowRefused, match=reason):
        put(to, stage(BatchIdentity("refused", 0), batches([]), mapped(queue, queues.queue())))
    assert queues.depth(queue) == 0


@pytest.mark.parametrize("value", ["one", "2147483648"])
def test_an_invalid_number_in_a_message_property(value: str, options: MqSinkOptions, stage: Stage) -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"body": b"", "properties": [("mqtt.qos", value)]}],
        schema=pa.schema({"body": pa.binary(), "properties": TEXT_MAP}),
    )
    with pytest.raises(ValueError, match=f"property mqtt.qos: expected a signed 32-bit integer, found '{value}'"):
        put(options, stage(BatchIdentity("number", 0), [batch]))


# State ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expires", [True, False])
def test_the_state_of_a_batch_write_expires(
    expires: bool, options: MqSinkOptions, queues: Queues, stage: Stage
) -> None:
    before = queues.depth(MAPPING_STATE_QUEUE)
    put(options, stage(BatchIdentity(f"expires {expires}", 0), batches(ROWS)), expires=expires)
    handle = queues.connection.open(MQOD(ObjectName=MAPPING_STATE_QUEUE), cmqc.MQOO_BROWSE)
    browse = GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT, MatchOptions=cmqc.MQMO_NONE)
    expiries = [queues.connection.get(handle, browse).md.Expiry for _ in range(before + 2)][before:]
    queues.connection.close(handle)
    if expires:
        assert all(writer_state.EXPIRY - 6000 < expiry <= writer_state.EXPIRY for expiry in expiries)
    else:
        assert expiries == [cmqc.MQEI_UNLIMITED] * 2


#: A batch, the states of partitions from 0.2.0 (number of the last batch, complete, units of work), and whether the batch is
#: put. None: it is an error.
FORMER: dict[str, tuple[int, dict[int, tuple[int, bool, int]], bool | None]] = {
    "the batch before": (5, {0: (4, True, 0), 1: (3, True, 0)}, True),
    "all partitions of the batch": (5, {0: (5, True, 0), 1: (5, True, 0)}, False),
    "one partition of two": (5, {0: (5, True, 0), 1: (4, True, 0)}, None),
    "a part of a partition": (5, {0: (5, False, 2)}, None),
    "fewer partitions than now": (5, {0: (5, True, 0)}, None),
    "the first batch before": (1, {0: (0, True, 0), 1: (0, True, 0)}, True),
    "nothing of the first batch": (0, {0: (-1, True, 0)}, True),
    "a part of the first batch": (0, {0: (0, False, 2)}, None),
    "maybe all of the first batch": (0, {0: (0, True, 0), 1: (0, True, 0)}, None),
}


@pytest.mark.parametrize("name", FORMER)
def test_state_of_version_0_2_0(name: str, options: MqSinkOptions, queues: Queues, stage: Stage) -> None:
    number, states, puts = FORMER[name]
    before = queues.depth(MAPPING_STATE_QUEUE)
    query = f"former {name}"
    with options.queue_manager.connected() as connection:
        queue = StateQueue(connection, MAPPING_STATE_QUEUE)
        for partition, (batch, complete, parts) in states.items():
            key = query.encode().ljust(19)[:19] + b"%d" % partition
            state = msgspec.msgpack.encode((batch, complete, parts, query, partition))
            queue.put(b"SPKS" + key, state)
            queue.put(b"SPKQ" + key, b"", msg_id=b"SPKA" + key)
            for _ in range(parts):
                queue.put(b"SPKT" + key, b"digests")
    messages = stage(BatchIdentity(query, number), batches(ROWS[:2]), batches(ROWS[2:]))
    state_depth = queues.depth(MAPPING_STATE_QUEUE)
    if puts is None:
        words = (
            rf"0\.2\.0 has put a part of batch {number} of former .*partition 0: .*let 0\.2\.0 finish the batch"
            r".*new checkpoint.*puts all rows of the batch again"
        )
        for _ in range(2):
            with pytest.raises(BatchUnfinished, match=words):
                put(options, messages)
        with pytest.raises(BatchUnfinished, match=r"let 0\.2\.0 repeat the write with this writeId\. Or "):
            put(options, messages, expires=True)
        assert queues.depth(MAPPING_STATE_QUEUE) == state_depth
    else:
        put(options, messages)
        assert queues.depth(MAPPING_STATE_QUEUE) == before + 2
    assert bodies_of(options, queues) == (ROWS if puts else [])
