"""Reader and writer with IBM's packages (on the stand-in for IBM's client library), with asynchronous puts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from bridge.mq.mqi import Connection, MQError
from bridge.spark.mq import source, writer
from bridge.spark.mq.queue_manager import QueueManagerOptions
from bridge.spark.mq.queue_reader import QueueReader, managed_queue
from bridge.spark.mq.writer import MqSinkOptions, put_batch
from bridge.spark.mq.writer_state import WriterState
from bridge.spark.spool import Spool, StreamOptions, read_segments
from bridge.spark.task import BatchIdentity
from tests.helpers.client_packages import connecting
from tests.helpers.patience import until
from tests.helpers.staging import staged_batch
from tests.ibm_standin import frames
from tests.spark.conftest import Queues


class IbmOptions(QueueManagerOptions, frozen=True):
    """A queue manager of IBM MQ for reader and writer."""

    connects: ClassVar[Callable[[], Connection]]

    @property
    def asynchronous_puts(self) -> bool:
        return True

    def connect(self) -> Connection:
        return type(self).connects()


@pytest.fixture(params=["pymqi", "ibmmq"])
def queue_manager(request: pytest.FixtureRequest, queues: Queues) -> Iterator[QueueManagerOptions]:
    with connecting(request.param, f"unix:{queues.directory / frames.SOCKET_NAME}") as connects:
        IbmOptions.connects = staticmethod(connects)
        yield IbmOptions()


BODY = pa.schema([pa.field("body", pa.binary())])


def batches(*bodies: bytes) -> list[Any]:
    return [pa.record_batch({"body": pa.array(list(bodies), pa.binary())})]


@pytest.mark.parametrize("rows", [1, 2], ids=["a unit for each row", "one unit"])
def test_a_batch_is_put_once(
    rows: int,
    queue_manager: QueueManagerOptions,
    queues: Queues,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "UNIT_ROWS", rows)
    options = MqSinkOptions(queue_manager=queue_manager, queue=queues.queue(), stage=str(tmp_path))
    identity = BatchIdentity(request.node.name, 0)
    for _ in range(2):
        put_batch(options, staged_batch(identity, batches(b"1", b"2"), stage=options.stage))
    assert queues.bodies(options.queue or "") == [b"1", b"2"]
    with queue_manager.connected() as connection:
        state = WriterState(connection, identity.query)
        assert state.has_begun(0) and not state.has_begun(1)


def test_a_rejected_asynchronous_put_fails_the_batch(
    queue_manager: QueueManagerOptions, queues: Queues, request: pytest.FixtureRequest
) -> None:
    options = MqSinkOptions(queue_manager=queue_manager, queue=queues.queue("MAXMSGL(3)"))
    with pytest.raises(MQError, match="MQRC_MSG_TOO_BIG_FOR_Q"):
        put_batch(options, staged_batch(BatchIdentity(request.node.name, 0), batches(b"1", b"long")))
    assert queues.depth(options.queue or "") == 0


def test_a_reader_moves_messages_to_the_spool(
    queue_manager: QueueManagerOptions, queues: Queues, tmp_path: Path
) -> None:
    queue = queues.queue()
    queues.put(queue, b"0", b"1", b"2", MsgId=b"M" * 24)
    spool = Spool(str(tmp_path), queue)
    reader = QueueReader(queue_manager, queue, spool, BODY, StreamOptions(spool_limit=1_000))
    reader.start()
    reader.finish()
    until(lambda: reader.finished)
    reader.stop()
    names = [segment.name for segment in spool.between(0, spool.last)]
    rows = [row["body"] for batch in read_segments(spool.place.path, names, BODY) for row in batch.to_pylist()]
    assert rows == [b"0", b"1", b"2"]
    assert queues.depth(queue) == 0


def test_the_queue_of_a_subscription(
    queue_manager: QueueManagerOptions, queues: Queues, request: pytest.FixtureRequest
) -> None:
    with queue_manager.connected() as connection:
        queue_name = managed_queue(connection, request.node.name, "pipeline/ibm")
        queues.publish("pipeline/ibm", b"x")
        assert managed_queue(connection, request.node.name, None) == queue_name
        with pytest.raises(MQError, match="MQRC_NO_SUBSCRIPTION"):
            managed_queue(connection, "no such subscription", None)
        handle = source.open_for_browse(connection, queue_name)
        (((_, data),),) = source.browse_all(connection, handle)
        assert data.endswith(b"x")
