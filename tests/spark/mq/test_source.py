"""The data source `mq` in Spark: batch and streaming reads of queues and subscriptions, and writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery  # type: ignore[attr-defined]

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, GetOptions, Property
from bridge.spark.mq.queue_manager import APPLICATION_NAME
from bridge.spark.schema import MQ_SCHEMA
from bridge.spark.segment import state_mark
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, decode_mqdlh, encode_chain
from bridge.wire.mq.ccsid import character_set
from tests.helpers.patience import PATIENCE, until
from tests.spark.conftest import Queues, column
from tests.spark.faults import Fault, fault, is_marker, is_state, is_taken

Read = Callable[..., DataFrame]


def put(frame: DataFrame, queues: Queues, **options: Any) -> None:
    frame.write.format("mq").options(**queues.options).options(**options).mode("append").save()


def start(frame: DataFrame, queues: Queues, checkpoint: Path, **options: Any) -> StreamingQuery:
    writer = frame.drop("queue", "topic").writeStream.format("mq").options(**queues.options).options(**options)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def run(frame: DataFrame, queues: Queues, checkpoint: Path, **options: Any) -> StreamingQuery:
    """Run a query to its end."""
    query = start(frame, queues, checkpoint, **options)
    assert query.awaitTermination(PATIENCE)
    return query


# Batch ---------------------------------------------------------------------------------------------------------------


def test_a_batch_read_removes_no_message(read: Read, queues: Queues) -> None:
    queue = queues.queue()
    queues.put(queue, b"one", b"two", ReplyToQ=b"ANSWERS", Format=cmqc.MQFMT_STRING)
    frame = read(queue=queue)
    assert frame.schema.names == MQ_SCHEMA.names
    rows = frame.orderBy("body").collect()
    assert [(row.queue, bytes(row.body), row.format, row.md.ReplyToQ) for row in rows] == [
        (queue, b"one", "MQSTR", "ANSWERS"),
        (queue, b"two", "MQSTR", "ANSWERS"),
    ]
    assert all(row.put_time is not None and len(row.md.MsgId) == 24 for row in rows)
    assert queues.depth(queue) == 2


def test_several_queues(read: Read, queues: Queues) -> None:
    first, other, empty = queues.queue(), queues.queue(), queues.queue()
    bodies = [b"%03d" % number for number in range(50)]
    queues.put(first, *bodies)
    queues.put(other, b"x")
    frame = read(queue=f"{first},{other},{empty}")
    assert frame.rdd.getNumPartitions() == 3
    assert Counter(map(bytes, column(frame, "body"))) == Counter([*bodies, b"x"])


def test_selected_columns(read: Read, spark: SparkSession, queues: Queues, tmp_path: Path) -> None:
    """By the option, which may also name fields, and by a schema."""
    queue, target = queues.queue(), queues.queue()
    queues.put(queue, b"x", CorrelId=b"c" * 24, Format=cmqc.MQFMT_STRING)
    frame = read(queue=queue, columns="text, md.CorrelId,md.Priority")
    assert frame.schema.simpleString() == "struct<text:string,md:struct<CorrelId:binary,Priority:int>>"
    assert [(row.text, bytes(row.md.CorrelId), row.md.Priority) for row in frame.collect()] == [("x", b"c" * 24, 0)]
    named = (
        spark.read.format("mq").options(**queues.options, queue=queue).schema("md struct<Priority: int>, body binary")
    )
    assert [(row.md.Priority, bytes(row.body)) for row in named.load().collect()] == [(0, b"x")]
    # The spool of a stream has these columns only.
    body = read(queue=queue, columns="body", stream=True)
    broken = Fault(lambda verb, request: verb == "MQPUT" and not is_marker(request))
    with fault(APPLICATION_NAME, broken), pytest.raises(StreamingQueryException):
        run(body, queues, tmp_path, queue=target)
    with pytest.raises(StreamingQueryException, match=r"was written without the column md"):
        run(read(queue=queue, columns="body,md.MsgId", stream=True), queues, tmp_path, queue=target)
    run(body, queues, tmp_path, queue=target)
    assert queues.bodies(target) == [b"x"]


def test_messages_go_from_queue_to_queue_byte_for_byte(read: Read, queues: Queues) -> None:
    source, target = queues.queue(), queues.queue()
    header = RFH2(Format=cmqc.MQFMT_STRING, folders=(Folder.build("usr", {"a": 1, "b": "é"}),))
    chain = encode_chain([header], b"\x00body\xff")
    described = {"Format": chain.Format, "Encoding": chain.Encoding, "CodedCharSetId": chain.CodedCharSetId}
    queues.put(source, chain.data, CorrelId=b"c" * 24, Priority=7, Expiry=5000, ReplyToQ=b"R", **described)
    queues.put(source, b"plain", Persistence=cmqc.MQPER_PERSISTENT, GroupId=b"g" * 24, Version=2, MsgFlags=8)
    put(read(queue=source).drop("queue", "topic"), queues, queue=target, context="all")
    before, after = queues.take(source), queues.take(target)
    assert [message.data for message in after] == [message.data for message in before]
    for left, right in zip(before, after, strict=True):
        # The Expiry of a message counts down.
        assert right.md.Expiry == left.md.Expiry == cmqc.MQEI_UNLIMITED or 0 < right.md.Expiry <= 5000
        md_fields = {name: getattr(right.md, name) for name in right.md.__struct_fields__ if name != "Expiry"}
        assert md_fields == {name: getattr(left.md, name) for name in md_fields}


def test_text_that_its_ccsid_cannot_encode(spark: SparkSession, queues: Queues) -> None:
    """The error names row, queue, CCSID and character. With `refused`, the text is a dead letter, in UTF-8."""
    queue, refused = queues.queue(), queues.queue()
    rows = spark.createDataFrame([("plain", 273), ("5 €", 273), ("5 €", 1141)], "body string, ccsid int").coalesce(1)
    rows = rows.selectExpr("body", "ccsid", "'MQSTR' AS format")
    reason = (
        rf"row 2 of partition 0 cannot be put: its text cannot be put to queue {queue}: CCSID 273 has no '€', which is"
    )
    with pytest.raises(
        PySparkException, match=reason + r" character 3 of the text \(MQRC_NOT_CONVERTED, 2119\); hint: name"
    ):
        put(rows, queues, queue=queue)
    assert queues.depth(queue) == 0
    put(rows, queues, queue=queue, refused=refused)
    assert queues.bodies(queue) == [character_set(273).encode("plain"), character_set(1141).encode("5 €")]
    (letter,) = queues.take(refused)
    header = decode_mqdlh(letter.data)
    assert (header.Reason, header.DestQName.strip(), header.CodedCharSetId) == (2119, queue.encode(), 1208)
    assert letter.data.endswith("5 €".encode())


def test_rows_contain_their_queue(spark: SparkSession, queues: Queues) -> None:
    first, other = queues.queue(), queues.queue()
    put(spark.createDataFrame([(first, "1"), (other, "2"), (first, "3")], "queue string, body string"), queues)
    assert (Counter(queues.bodies(first)), queues.bodies(other)) == (Counter([b"1", b"3"]), [b"2"])


def test_a_named_write_is_executed_once(spark: SparkSession, queues: Queues) -> None:
    queue = queues.queue()
    before = queues.depth(MAPPING_STATE_QUEUE)
    for write_id in ("first", "first", None, None):
        named = {} if write_id is None else {"writeId": write_id}
        put(spark.createDataFrame([("x",)], "body string").coalesce(1), queues, queue=queue, **named)
    assert queues.bodies(queue) == [b"x"] * 3
    # The temporary data of a write without a name is deleted at its end.
    assert queues.depth(MAPPING_STATE_QUEUE) == before + 2


def test_a_failed_write_reports_the_place_and_leaves_nothing_behind(spark: SparkSession, queues: Queues) -> None:
    queue, before = queues.queue("MAXMSGL(3)"), queues.depth(MAPPING_STATE_QUEUE)
    rows = spark.createDataFrame([("long",), ("1",)], "body string").repartition(2)
    with pytest.raises(PySparkException, match=f"MQRC_MSG_TOO_BIG_FOR_Q .*{queue}"):
        put(rows, queues, queue=queue)
    assert queues.depth(MAPPING_STATE_QUEUE) == before


@pytest.mark.parametrize(
    "options, ddl, reason",
    [
        ({"quee": "Q"}, "body string", r"the data source mq knows no option quee \(did you mean queue\?\)"),
        ({}, "body string", r"option queue: expected .* \(or set the option topic\), because there is no column"),
        ({"queue": "Q"}, "payload string", r"unknown column payload .*; column body is missing"),
        ({"queue": "Q", "context": "some"}, "body string", r"option context: expected one of default, identity, all"),
    ],
)
def test_invalid_writes_are_rejected(
    spark: SparkSession, queues: Queues, options: dict[str, str], ddl: str, reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        put(spark.createDataFrame([], ddl), queues, **options)


def test_invalid_reads_are_rejected(read: Read, spark: SparkSession, queues: Queues, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match=r"knows no option quee \(did you mean queue\?\)"):
        read(quee="Q")  # load() reports it
    with pytest.raises(AnalysisException, match=r"has no option (?i:startingOffsets): a queue has no offsets"):
        read(queue="Q", stream=True, startingOffsets="earliest")
    with pytest.raises(AnalysisException, match=r"column body: expected binary, found string"):
        spark.read.schema("body string").format("mq").options(**queues.options, queue="Q").load().collect()
    with pytest.raises(AnalysisException, match=r"unknown column md.Nothing: md has no field Nothing"):
        read(queue="Q", columns="body,md.Nothing")
    with pytest.raises(StreamingQueryException, match=r"option spool: required for streaming reads"):
        run(spark.readStream.format("mq").options(**queues.options, queue="Q").load(), queues, tmp_path, queue="Q")
    with pytest.raises(AnalysisException, match=r"MQRC_UNKNOWN_OBJECT_NAME"):
        read(queue="NO.SUCH.QUEUE").collect()


# Streams -------------------------------------------------------------------------------------------------------------


def test_an_available_now_run_leaves_the_queue_empty(read: Read, queues: Queues, tmp_path: Path) -> None:
    source, target = queues.queue(), queues.queue()
    bodies = [b"%03d" % number for number in range(25)]
    queues.put(source, *bodies)
    frame = read(queue=source, stream=True, maxMessagesPerTrigger=10)
    query = run(frame, queues, tmp_path, queue=target)
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [batch["numInputRows"] for batch in batches] == [10, 10, 5]
    # Each reports its contents, and the age of the backlog.
    backlogs = [json.loads(batch.sources[0].latestOffset)[source] for batch in batches]
    assert [(backlog["messages"], backlog["bytes"], backlog["waiting"]) for backlog in backlogs] == [
        (10, 30, 15),
        (10, 30, 5),
        (5, 15, 0),
    ]
    assert backlogs[2]["oldest"] is None
    for backlog in backlogs[:2]:  # known for messages in the spool
        assert backlog["oldest"] is None or datetime.fromisoformat(backlog["oldest"]) <= datetime.now(UTC)
    assert (queues.bodies(target), queues.depth(source)) == (bodies, 0)
    queues.put(source, b"later")
    run(frame, queues, tmp_path, queue=target)
    assert (queues.bodies(target), queues.depth(source)) == ([b"later"], 0)


def test_batches_by_size_and_partitions_of_several_queues(read: Read, queues: Queues, tmp_path: Path) -> None:
    first, other, target = queues.queue(), queues.queue(), queues.queue()
    bodies = [b"%03d" % number + b"." * 997 for number in range(12)]
    queues.put(first, *bodies)
    queues.put(other, b"x")
    frame = read(queue=f"{first},{other}", stream=True, maxBytesPerTrigger="6 KB", partitions=2)
    query = run(frame, queues, tmp_path, queue=target)
    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sum(counts) == 13 and max(counts) <= 6
    assert Counter(queues.bodies(target)) == Counter([*bodies, b"x"])
    assert (queues.depth(first), queues.depth(other)) == (0, 0)


def test_a_durable_subscription_keeps_publications_between_runs(read: Read, queues: Queues, tmp_path: Path) -> None:
    target = queues.queue()
    frame = read(topic="plant/+/t", subscription="pipeline-test", stream=True).selectExpr(
        "concat(topic, ' ', cast(body AS STRING)) AS body"
    )
    run(frame, queues, tmp_path, queue=target)  # creates the subscription
    queues.publish("plant/1/t", b"20")
    queues.publish("plant/1/other", b"0")
    run(frame, queues, tmp_path, queue=target)
    queues.publish("plant/2/t", b"21")
    run(frame, queues, tmp_path, queue=target)
    assert queues.bodies(target) == [b"plant/1/t 20", b"plant/2/t 21"]


def test_a_selector_determines_the_messages_that_are_read(read: Read, queues: Queues, tmp_path: Path) -> None:
    source, target = queues.queue(), queues.queue()
    for number in range(6):
        queues.put(source, b"%d" % number, Priority=number)
    assert sorted(column(read(queue=source, selector="Root.MQMD.Priority > 3"), "body")) == [b"4", b"5"]
    run(read(queue=source, selector="Root.MQMD.Priority > 1", stream=True), queues, tmp_path, queue=target)
    assert (sorted(queues.bodies(target)), queues.depth(source)) == ([b"2", b"3", b"4", b"5"], 2)


def test_message_properties_are_read_written_and_selected_by_name(
    read: Read, spark: SparkSession, queues: Queues
) -> None:
    queue, target = queues.queue(), queues.queue()
    site = Property(name="site", value="north")
    temp = Property(name="temp", type=cmqc.MQTYPE_INT32, value=21)
    deep = Property(name="plant.line", value="7")
    for properties in ([site, temp, deep], []):
        queues.connection.put1(MQOD(ObjectName=queue), Message(MQMD(CorrelId=b"c" * 24), b"x"), properties=properties)
    columns = "rfh2.usr.site", "rfh2.usr.temp::int", "rfh2.usr.temp + 1", "rfh2.plant.line", "rfh2.usr.no", "rfh2.no.no"
    rows = [tuple(row) for row in read(queue=queue).selectExpr(*columns).collect()]
    assert rows == [("north", 21, 22, "7", None, None), (None,) * 6]
    # Properties of a row that is read and put keep their types. New ones in rfh2 are text.
    put(read(queue=queue, selector="site = 'north' AND temp > 20").drop("queue"), queues, queue=target)
    south = spark.sql("SELECT map('usr', map('site', 'south'), 'mqps', map('Top', 't')) AS rfh2, 'y' AS body")
    put(south, queues, queue=target)
    for selector, body in (
        ("temp = 21", b"x"),
        (f'Root.MQMD.CorrelId = "0x{"63" * 24}"', b"x"),
        ("site = 'south'", b"y"),
        ("site LIKE '%th' AND mqps.Top = 't'", b"y"),
    ):
        assert column(read(queue=target, selector=selector), "body") == [body]


def test_async_progress_tracking_is_rejected(read: Read, queues: Queues, tmp_path: Path) -> None:
    """Spark rejects it for the sink. The source rejects it when it would delete messages too early."""
    queue, options = queues.queue(), {"asyncProgressTrackingEnabled": "true"}
    frame = read(stream=True, queue=queue, columns="body", maxMessagesPerTrigger=1)
    sink = frame.writeStream.format("mq").options(**queues.options, queue=queues.queue(), **options)
    with pytest.raises(PySparkException, match="Sink mq does not support async progress tracking"):
        sink.option("checkpointLocation", str(tmp_path / "sink")).start()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "source"))
    for number in range(2):  # each message is in a segment of its own
        queues.put(queue, b"%d" % number)
        if number == 0:
            assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)
    with pytest.raises(PySparkException, match="the query has the option asyncProgressTrackingEnabled"):
        query = writer.trigger(processingTime="0 seconds").options(**options).start()
        query.processAllAvailable()
        queues.put(queue, b"2")
        query.awaitTermination(PATIENCE)


@pytest.mark.slow
def test_a_second_stream_reports_the_reader_of_the_queue(read: Read, queues: Queues, tmp_path: Path) -> None:
    source, target = queues.queue(), queues.queue()
    first = read(queue=source, stream=True).drop("queue", "topic").writeStream.format("mq").options(**queues.options)
    query = first.option("queue", target).option("checkpointLocation", str(tmp_path / "1")).start()
    try:
        queues.put(source, b"1")
        until(lambda: queues.depth(target) == 1)
        other = read(queue=source, stream=True, spool=str(tmp_path / "other"))
        with pytest.raises(StreamingQueryException, match="open for input elsewhere; last streaming reader: process"):
            run(other, queues, tmp_path / "2", queue=target)
    finally:
        query.stop()


def test_a_spool_of_another_query(read: Read, queues: Queues, tmp_path: Path) -> None:
    """It is rejected while that query runs, and later if it has messages of a queue that is not read."""
    source, other, target = queues.queue(), queues.queue(), queues.queue()
    frame = read(queue=source, stream=True).drop("queue", "topic").select("body")
    writer = frame.writeStream.format("mq").options(**queues.options).option("queue", target)
    query = writer.option("checkpointLocation", str(tmp_path / "1")).start()
    try:
        queues.put(source, b"1")
        until(lambda: queues.depth(target) == 1)
        with pytest.raises(StreamingQueryException, match=r"in use by process .* hint: give each streaming query"):
            run(read(queue=source, stream=True), queues, tmp_path / "2", queue=target)
    finally:
        query.stop()
    queues.put(source, b"2")
    lost = Fault(lambda verb, request: verb == "MQPUT" and is_state(request), 1)
    with fault(APPLICATION_NAME, lost), pytest.raises(StreamingQueryException):
        run(frame, queues, tmp_path / "1", queue=target)  # its batch stays in the spool
    with pytest.raises(StreamingQueryException, match=f"has 1 messages? of {source}, which is no longer read"):
        run(read(queue=other, stream=True), queues, tmp_path / "2", queue=target)
    run(frame, queues, tmp_path / "1", queue=target)
    assert queues.bodies(target) == [b"1", b"2"]


#: Steps of a batch at which the connection ends, and whether the query fails: its reader reconnects.
STEPS: dict[str, tuple[Callable[[], Fault], bool]] = {
    "taking": (lambda: Fault(lambda verb, request: verb == "MQGET" and is_taken(request), 1), False),
    "after the state": (
        lambda: Fault(lambda verb, request: verb == "MQPUT" and is_marker(request), 1, after=True),
        False,
    ),
    "before the commit": (lambda: Fault(lambda verb, request: verb == "MQCMIT", 2), False),
    "after the commit": (lambda: Fault(lambda verb, request: verb == "MQCMIT", 2, after=True), False),
    "putting": (lambda: Fault(lambda verb, request: verb == "MQPUT" and not is_marker(request), 2), True),
    "after the commit of the puts": (lambda: Fault(lambda verb, request: verb == "MQCMIT", 3, after=True), True),
}


def test_a_stream_continues_after_a_fault_at_each_step(read: Read, queues: Queues, tmp_path: Path) -> None:
    """A query, broken at each step and restarted from its checkpoint: each message arrives once, in order."""
    source, target = queues.queue(), queues.queue()
    frame = read(queue=source, stream=True)
    expected = []
    for step, (make, fails) in STEPS.items():
        broken = make()
        bodies = [f"{step} {number}".encode() for number in range(3)]
        expected += bodies
        queues.put(source, *bodies)
        with fault(APPLICATION_NAME, broken):
            if fails:
                with pytest.raises(StreamingQueryException):
                    run(frame, queues, tmp_path, queue=target)
            else:
                run(frame, queues, tmp_path, queue=target)
        assert broken.happened, step
        if fails:
            run(frame, queues, tmp_path, queue=target)
        assert queues.depth(source) == 0, step
    assert queues.bodies(target) == expected


def test_a_spool_without_its_state_message(read: Read, queues: Queues, tmp_path: Path) -> None:
    source, target = queues.queue(), queues.queue()
    queues.put(source, b"x")
    frame = read(queue=source, stream=True)
    broken = Fault(lambda verb, request: verb == "MQPUT" and not is_marker(request))
    with fault(APPLICATION_NAME, broken), pytest.raises(StreamingQueryException):
        run(frame, queues, tmp_path, queue=target)
    state = queues.open(MAPPING_STATE_QUEUE, cmqc.MQOO_INPUT_SHARED)
    (identity,) = (tmp_path / "spool").glob("*/spool.json")
    spool = json.loads(identity.read_text())["id"]
    queues.connection.get(state, GetOptions(MatchOptions=cmqc.MQMO_MATCH_CORREL_ID, CorrelId=state_mark(spool)))
    queues.connection.close(state)
    with pytest.raises(StreamingQueryException, match=r"the state message of spool .* is missing"):
        run(frame, queues, tmp_path, queue=target)
