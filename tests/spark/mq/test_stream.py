"""The reader of streams, asked as Spark asks it: with a checkpoint that an older release has written."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from bridge.spark.mq import browsing
from bridge.spark.mq.offset import Offset
from bridge.spark.mq.queue_manager import APPLICATION_NAME
from bridge.spark.mq.source import MqDataSource
from bridge.spark.mq.stream import MqStreamReader
from bridge.spark.schema import MQ_SCHEMA
from tests.spark.conftest import Queues
from tests.spark.faults import Fault, fault

LIMIT = ReadMaxRows(10)


def reader_of(queues: Queues, queue: str) -> MqStreamReader:
    reader = MqDataSource({**queues.options, "queue": queue}).streamReader(MQ_SCHEMA)
    assert isinstance(reader, MqStreamReader)
    return reader


def version_1(queue: str, msg_ids: list[bytes]) -> dict[str, Any]:
    """A batch in an offset of version 1, as release 0.1 wrote it."""
    columns = b"".join(map(bytes, zip(*[msg_id + b"\0" for msg_id in msg_ids], strict=True)))
    return {"number": 1, "partitions": 1, "messages": {queue: base64.b64encode(zlib.compress(columns)).decode()}}


@pytest.mark.parametrize("available_now", [False, True])
def test_a_batch_of_version_1_is_read_again_and_removed(queues: Queues, available_now: bool) -> None:
    """Once, also where the older release was killed while it removed it; the next batch is what is behind it."""
    queue = queues.queue()
    bodies = [b"1", b"2", b"3", b"4", b"5"]
    queues.put(queue, *bodies)
    reader = reader_of(queues, queue)
    handle = browsing.open_for_browse(queues.connection, queue)
    msg_ids = [seen.msg_id for seen in browsing.look(queues.connection, handle)]
    queues.connection.close(handle)
    batch = version_1(queue, msg_ids[:3])
    (partition,) = reader.partitions(Offset().json(), batch)
    assert [body.as_py() for part in reader.read(partition) for body in part.column("body")] == bodies[:3]
    queues.remove(queue, msg_ids[:2])
    searched: list[bytes] = []
    watch = Fault(lambda verb, request: bool(verb == "MQGET" and searched.append(request[1].get("MsgId"))), 1)
    with fault(APPLICATION_NAME, watch):
        if available_now:
            reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(batch, LIMIT)
        assert reader.latestOffset(end, LIMIT) == end
    reader.stop()
    assert [entry.msg_id for entry in Offset.of(end).messages[queue]] == msg_ids[3:]
    # What is gone is not searched for: of a batch of thousands on a long queue that takes minutes.
    assert [one for one in searched if one in msg_ids] == msg_ids[2:]
    assert queues.bodies(queue) == []
