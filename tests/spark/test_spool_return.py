"""Messages in a spool that is no longer read: an error, listed, and put back once, with each queue manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.mq.mqi import Connection, MQError
from bridge.mq.remote import RemoteConnection
from bridge.mq.state import MappingState
from bridge.spark.columns import MQ_ARROW_SCHEMA, subset
from bridge.spark.mq import queue_reader
from bridge.spark.mq.queue_manager import QueueManagerOptions
from bridge.spark.mq.queue_reader import QueueReader
from bridge.spark.segment import SpoolDamaged
from bridge.spark.spool import Spool, StreamOptions
from bridge.spark.spool_inventory import Positions, inventory
from bridge.spark.spool_return import RECORD, NotReturned, put_back
from bridge.wire import cmqc
from bridge.wire.mq import RFH2, Folder, encode_chain
from tests.helpers.client_packages import connecting
from tests.helpers.patience import until
from tests.ibm_standin import frames
from tests.spark.conftest import Queues
from tests.spark.faults import Fault, fault

NONE = Positions()
APPLICATION = "return"


@contextmanager
def connected(queues: Queues, package: str = "embedded") -> Iterator[Connection]:
    if package == "embedded":
        connection: Connection = RemoteConnection(queues.directory, application=APPLICATION)
        yield connection
        connection.disconnect()
        return
    with connecting(package, f"unix:{queues.directory / frames.SOCKET_NAME}") as connects:
        connection = connects()
        yield connection
        connection.disconnect()


def is_record(request: list[Any]) -> bool:
    """Return whether an MQPUT belongs to the record of the return."""
    return bool(request[1][1].get("CorrelId", b"").strip(b"\0"))


def in_progress(connection: Connection, spool: str) -> bool:
    """Replace the record of a return in a unit of work, if the one of another connection has ended."""
    record = MappingState(connection, spool, kind=RECORD)
    try:
        record.load(create=False)
    except MQError as error:
        assert error.reason == cmqc.MQRC_UOW_IN_PROGRESS
        return False
    record.save(b"2")
    return True


def take(queues: Queues, queue: str, below: Path, schema: Any = MQ_ARROW_SCHEMA, rows: int = 2) -> None:
    """Move the messages of a queue to a spool, in segments of this number of rows."""
    stream = StreamOptions(max_messages=rows)
    options = QueueManagerOptions(data_directory=str(queues.directory))
    reader = QueueReader(options, queue, Spool(str(below), queue), schema, stream)
    reader.start()
    reader.finish()
    until(lambda: reader.finished)
    reader.stop()
    reader.spool.close()


@pytest.mark.parametrize("package", ["embedded", "pymqi", "ibmmq"])
def test_messages_are_put_back_byte_for_byte(package: str, queues: Queues, tmp_path: Path) -> None:
    queue = queues.queue()
    header = RFH2(Format=cmqc.MQFMT_STRING, folders=(Folder.build("usr", {"a": 1, "b": "é"}),))
    chain = encode_chain([header], b"\x00body\xff")
    described = {"Format": chain.Format, "Encoding": chain.Encoding, "CodedCharSetId": chain.CodedCharSetId}
    queues.put(queue, chain.data, CorrelId=b"c" * 24, Priority=7, ReplyToQ=b"R", **described)
    queues.put(queue, b"plain", b"last", Persistence=cmqc.MQPER_PERSISTENT, GroupId=b"g" * 24, Version=2, MsgFlags=8)
    before = queues.take(queue)
    for message in before:
        fields = {
            name: getattr(message.md, name) for name in ("CorrelId", "Priority", "ReplyToQ", "Format", "Encoding")
        }
        more = {
            name: getattr(message.md, name)
            for name in ("CodedCharSetId", "Persistence", "GroupId", "Version", "MsgFlags")
        }
        queues.put(queue, message.data, MsgId=message.md.MsgId, **fields, **more)
    take(queues, queue, tmp_path)
    assert [(entry.source, entry.messages, entry.planned) for entry in inventory(str(tmp_path), NONE)] == [
        (queue, 3, 0)
    ]
    with connected(queues, package) as connection:
        assert put_back(connection, str(tmp_path), queue, NONE) == 3
    after = queues.take(queue)
    assert [message.data for message in after] == [message.data for message in before]
    same = (
        "MsgId",
        "CorrelId",
        "Priority",
        "ReplyToQ",
        "Format",
        "Persistence",
        "GroupId",
        "MsgFlags",
        "UserIdentifier",
    )
    for left, right in zip(before, after, strict=True):
        assert {name: getattr(right.md, name) for name in same} == {name: getattr(left.md, name) for name in same}
    assert [entry.messages for entry in inventory(str(tmp_path), NONE)] == [0]


def test_a_queue_that_is_read_again_after_its_messages_were_put_back(queues: Queues, tmp_path: Path) -> None:
    """Its spool continues, because the checkpoint has a position in it."""
    queue = queues.queue()
    queues.put(queue, b"1", b"2", b"3", Priority=0)
    take(queues, queue, tmp_path)
    with connected(queues) as connection:
        put_back(connection, str(tmp_path), queue, NONE)
        assert put_back(connection, str(tmp_path), queue, NONE) == 0
    take(queues, queue, tmp_path)
    spool = Spool(str(tmp_path), queue)
    assert (spool.returned, queues.depth(queue)) == (2, 0)
    assert [entry.messages for entry in inventory(str(tmp_path), Positions({spool.id: 1}))] == [3]
    spool.close()


@pytest.mark.parametrize("verb, count, after", [("MQPUT", 4, False), ("MQCMIT", 3, False), ("MQCMIT", 3, True)])
def test_an_interrupted_return_is_continued(verb: str, count: int, after: bool, queues: Queues, tmp_path: Path) -> None:
    queue = queues.queue()
    bodies = [b"%d" % number for number in range(6)]
    queues.put(queue, *bodies)
    take(queues, queue, tmp_path)
    broken = Fault(
        lambda called, request: called == verb and (verb != "MQPUT" or not is_record(request)), count, after=after
    )
    with fault(APPLICATION, broken), pytest.raises(MQError), connected(queues) as connection:
        put_back(connection, str(tmp_path), queue, NONE)
    assert broken.happened and 2 <= queues.depth(queue) < 6
    with pytest.raises(SpoolDamaged, match=f"cut off .* `mqbridge pipeline spool return {queue}` again"):
        Spool(str(tmp_path), queue)
    with connected(queues) as connection:
        put_back(connection, str(tmp_path), queue, NONE)
    assert queues.bodies(queue) == bodies


def test_a_return_waits_for_the_unit_of_work_of_a_lost_connection(
    queues: Queues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the second segment is in progress, so whether its messages were put back is not known yet."""
    queue = queues.queue()
    bodies = [b"%d" % number for number in range(6)]
    queues.put(queue, *bodies)
    take(queues, queue, tmp_path)
    broken = Fault(lambda verb, _: verb == "MQCMIT", 3)
    with fault(APPLICATION, broken), pytest.raises(MQError), connected(queues) as connection:
        put_back(connection, str(tmp_path), queue, NONE)
    monkeypatch.setattr(queue_reader, "TAKEOVER_WAIT", 0.0)
    with connected(queues) as lost, connected(queues) as connection:
        spool = Spool(str(tmp_path), queue, returning=True)
        spool.close()
        until(lambda: in_progress(lost, spool.id))
        with pytest.raises(MQError, match="has not ended yet"):
            put_back(connection, str(tmp_path), queue, NONE)
        lost.backout()
        assert put_back(connection, str(tmp_path), queue, NONE) == 4
    assert queues.bodies(queue) == bodies


def test_messages_of_a_batch_are_not_put_back(queues: Queues, tmp_path: Path) -> None:
    """Those of a finished batch are processed, those of a planned one will be."""
    queue = queues.queue()
    queues.put(queue, *(b"%d" % number for number in range(6)))
    take(queues, queue, tmp_path)
    spool = Spool(str(tmp_path), queue)
    spool.close()
    with connected(queues) as connection:
        with pytest.raises(
            NotReturned, match=f"a batch that is not finished has messages of {queue}; hint: run the query"
        ):
            put_back(connection, str(tmp_path), queue, Positions({spool.id: 1}, {spool.id: 2}))
        assert put_back(connection, str(tmp_path), queue, Positions({spool.id: 2}, {spool.id: 2})) == 2
    assert queues.bodies(queue) == [b"4", b"5"]


def test_messages_that_cannot_be_put_back(queues: Queues, tmp_path: Path) -> None:
    queue, other = queues.queue(), queues.queue()
    queues.put(queue, b"1")
    take(queues, queue, tmp_path, subset(MQ_ARROW_SCHEMA, ["body", "md.MsgId"]))
    with (
        connected(queues) as connection,
        pytest.raises(NotReturned, match="without headers and md, because the option"),
    ):
        put_back(connection, str(tmp_path), queue, NONE)
    queues.put(other, b"2")
    take(queues, other, tmp_path)
    with connected(queues) as connection:
        with pytest.raises(NotReturned, match=r"MQRC_UNKNOWN_OBJECT_NAME.*hint: name an existing queue with --to"):
            put_back(connection, str(tmp_path), other, NONE, to="NO.SUCH.QUEUE")
        assert put_back(connection, str(tmp_path), other, NONE, to=queue) == 1
    assert queues.bodies(queue) == [b"2"]


def test_positions_of_a_checkpoint(tmp_path: Path) -> None:
    """Batch 3 is finished, batch 4 is planned. Other sources and other files are ignored."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    head = 'v1\n{"batchWatermarkMs":0}\n'
    for number in (2, 3, 4):
        spools = {"Q": ["0123456789ab", number * 10], "R": ["ba9876543210", 7]}
        text = head + msgspec.json.encode({"version": 3, "spools": spools}).decode() + '\n{"logOffset":1}\n'
        (tmp_path / "offsets" / str(number)).write_text(text)
    for name in ("2", "3", ".3.crc", "3.tmp"):
        (tmp_path / "commits" / name).touch()
    positions = Positions.of(tmp_path)
    assert positions.finished == {"0123456789ab": 30, "ba9876543210": 7}
    assert positions.planned == {"0123456789ab": 40, "ba9876543210": 7}
    assert Positions.of(tmp_path / "none") == Positions.of(None) == NONE


def test_a_damaged_segment_is_not_put_back(queues: Queues, tmp_path: Path) -> None:
    queue = queues.queue()
    queues.put(queue, b"1", b"2")
    take(queues, queue, tmp_path)
    (file,) = tmp_path.glob("*/*.arrow")
    file.write_bytes(file.read_bytes()[:-1])
    with connected(queues) as connection, pytest.raises(SpoolDamaged, match=rf"It has 2 messages of {queue} \(2 bytes"):
        put_back(connection, str(tmp_path), queue, NONE)
    assert queues.depth(queue) == 0 and file.exists()
