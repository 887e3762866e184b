"""Reader and writer by way of IBM's packages (on the stand-in for IBM's client library), with asynchronous puts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from bridge.mq.mqi import Connection, MQError
from bridge.spark.mq import browsing
from bridge.spark.mq.backlog import backlog
from bridge.spark.mq.lease import Lease
from bridge.spark.mq.message_range import browse_messages
from bridge.spark.mq.offset import counted
from bridge.spark.mq.queue_manager import QueueManagerOptions
from bridge.spark.mq.sink_options import SinkOptions
from bridge.spark.mq.writer import put_all
from bridge.spark.task import Identity
from testing.ibm_standin import frames
from tests.helpers.client_packages import connecting
from tests.spark.conftest import Queues


class IbmOptions(QueueManagerOptions, frozen=True):
    """A queue manager of IBM MQ, as far as reader and writer are concerned."""

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


def batches(*bodies: bytes) -> list[Any]:
    return [pa.record_batch({"body": pa.array(list(bodies), pa.binary())})]


def test_rows_are_put_once(queue_manager: QueueManagerOptions, queues: Queues, request: pytest.FixtureRequest) -> None:
    options = SinkOptions(queue_manager=queue_manager, queue=queues.queue())
    identity = Identity(request.node.name, 0, 0)
    assert put_all(options, identity, batches(b"1", b"2")).messages == 2
    assert put_all(options, identity, batches(b"1", b"2")).messages == 0
    assert queues.bodies(options.queue or "") == [b"1", b"2"]


def test_a_put_that_is_refused_without_an_answer_fails_the_batch(
    queue_manager: QueueManagerOptions, queues: Queues, request: pytest.FixtureRequest
) -> None:
    options = SinkOptions(queue_manager=queue_manager, queue=queues.queue("MAXMSGL(3)"))
    with pytest.raises(MQError, match="MQRC_MSG_TOO_BIG_FOR_Q"):
        put_all(options, Identity(request.node.name, 0, 0), batches(b"1", b"long"))
    assert queues.depth(options.queue or "") == 0


def test_messages_are_seen_browsed_and_removed(queue_manager: QueueManagerOptions, queues: Queues) -> None:
    """Known by more than their MsgIds, which is one for all here; those that are equal in all are counted."""
    queue = queues.queue()
    queues.put(queue, b"0", b"1", MsgId=b"M" * 24, Expiry=6000, Priority=3)
    queues.put(queue, b"2", MsgId=b"M" * 24, CorrelId=b"C" * 24, Priority=3)
    queues.put_all_context(queue, b"3", b"4", b"5", MsgId=b"M" * 24, PutDate=b"20260101", PutTime=b"12000000", Priority=3)
    with queue_manager.connected() as connection:
        handle = browsing.open_for_browse(connection, queue)
        assert browsing.depth(connection, handle) == 6
        seen = list(browsing.look(connection, handle))
        assert [(one.expires, one.length) for one in seen] == [(True, 1)] * 2 + [(False, 1)] * 4
        behind = backlog(connection, handle, seen[:3], 3, seen[3])
        assert behind == {"messages": 3, "bytes": 3, "waiting": 3, "oldest": None}  # another one has its MsgId
        entries = counted((one.msg_id, one.fingerprint, one.expires) for one in seen)
        assert [one.occurrence for one in entries[3:]] == [0, 1, 2]
        queues.put(queue, b"urgent", MsgId=b"M" * 24, Priority=9)
        for wanted in (entries[2:], entries[4:], [entries[5], entries[2]]):
            found = [data for _, data in browse_messages(connection, queue, wanted, lenient=False)]
            assert found == [b"%d" % entries.index(one) for one in wanted]
        lease = Lease(connection, queue)
        lease.remove("reader", 1, entries[2:5], planned_here=True)
    assert queues.bodies(queue) == [b"urgent", b"0", b"1", b"5"]


def test_the_queue_of_a_subscription(
    queue_manager: QueueManagerOptions, queues: Queues, request: pytest.FixtureRequest
) -> None:
    with queue_manager.connected() as connection:
        made = browsing.managed_queue(connection, request.node.name, "pipeline/ibm")
        queues.publish("pipeline/ibm", b"x")
        assert browsing.managed_queue(connection, request.node.name, None) == made
        with pytest.raises(MQError, match="MQRC_NO_SUBSCRIPTION"):
            browsing.managed_queue(connection, "no such subscription", None)
        handle = browsing.open_for_browse(connection, made)
        ((_, data),) = list(browsing.browse_all(connection, handle))
        assert data.endswith(b"x")
