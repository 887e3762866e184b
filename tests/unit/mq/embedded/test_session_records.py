"""Other messages than records on SYSTEM.MQTT.PERSISTENT.STATE of the embedded queue manager when the bridge starts."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.database import salvage
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.mqi import MQOD, GetOptions, Property
from bridge.telemetry.message import Message
from bridge.telemetry.record import MARKS, ReceivedRecord, SentRecord
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqdlh, decode_rfh2, encode_mqdlh
from tests.helpers.embedded_service import Service, Started, publication, unit

DEAD_LETTER_QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"


async def put(service: Service, data: bytes, *properties: Property, persistent: bool = True, **md: Any) -> None:
    od, message = MQOD(ObjectName=STATE_QUEUE), Message(MQMD(Persistence=int(persistent), **md), data)
    connection = EmbeddedConnection(service.queue_manager)
    await asyncio.to_thread(connection.put1, od, message, properties=properties)


def lying(service: Service, queue: str) -> list[StoredMessage]:
    return list(service.queue_manager.objects.queues[queue].messages())


def letters(service: Service) -> list[bytes]:
    """Return the messages on the dead-letter queue, without the headers, which are all equal."""
    bodies = []
    for stored in lying(service, DEAD_LETTER_QUEUE):
        header = decode_mqdlh(stored.message.data)
        assert (header.Reason, header.DestQName.decode()) == (cmqc.MQRC_FORMAT_ERROR, STATE_QUEUE)
        bodies.append(stored.message.data[len(encode_mqdlh(header)) :])
    return bodies


async def begin_again(service: Service) -> None:
    """Stop and start on the same queue manager, which keeps its memory."""
    await service.stop()
    await service.start()
    await service.flush()


async def test_a_message_is_moved_once_whatever_the_disk_does(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """A write fails, and the message stays. The next write succeeds, and later starts find nothing."""
    async with started() as service:
        await service.execute(unit(records=[ReceivedRecord("a", [1])]))
        await put(service, b"stray")
        with service.failing_disk():
            await begin_again(service)
        assert (len(lying(service, STATE_QUEUE)), letters(service)) == (2, [])
        assert "stays there, because dead-lettering failed; continuing" in caplog.text
    for _ in range(3):
        async with started() as service:
            await service.flush()
            assert (len(lying(service, STATE_QUEUE)), letters(service)) == (1, [b"stray"])
            assert [record.received for record in service.recovered.records] == [[1]]
    assert caplog.text.count(f"was moved to dead-letter queue {DEAD_LETTER_QUEUE}; continuing") == 1


@pytest.mark.parametrize(
    "script",
    [
        "ALTER QMGR DEADQ('NO.SUCH.QUEUE')",
        f"ALTER QLOCAL({DEAD_LETTER_QUEUE}) PUT(DISABLED)",
        f"ALTER QMGR DEADQ({STATE_QUEUE})",
    ],
    ids=["no DEADQ", "put disabled", "DEADQ is the queue itself"],
)
async def test_messages_that_cannot_be_dead_lettered_stay(
    started: Started, caplog: pytest.LogCaptureFixture, script: Any
) -> None:
    async with started(script=script) as service:
        await service.execute(unit(records=[ReceivedRecord("a", [1])]))
        await put(service, b"stray")
    for _ in range(2):
        caplog.clear()
        async with started() as service:
            await service.flush()
            assert [record.received for record in service.recovered.records] == [[1]]
            assert (len(lying(service, STATE_QUEUE)), letters(service)) == (2, [])
            msg_id = service.queue_manager.appearance.msg_id(lying(service, STATE_QUEUE)[1]).hex().upper()
            assert f"(MsgId {msg_id}) stays there, because dead-lettering failed; continuing" in caplog.text
    back = f"ALTER QMGR DEADQ({DEAD_LETTER_QUEUE})\nALTER QLOCAL({DEAD_LETTER_QUEUE}) PUT(ENABLED)"
    async with started(script=back):
        pass
    async with started() as service:
        await service.flush()
        assert (len(lying(service, STATE_QUEUE)), letters(service)) == (1, [b"stray"])


async def test_messages_of_every_kind(started: Started) -> None:
    """Non-persistent ones, with properties, and publications for a subscription whose destination is the queue."""
    script = f"DEFINE SUB(ASTRAY) TOPICSTR('astray') DEST({STATE_QUEUE})"
    async with started(script=script) as service:
        await put(service, b"gone with the queue manager", persistent=False)
        await put(service, b"with properties", Property(name="site", value="north"))
        await service.execute(unit(publication("astray", b"published")))
        await begin_again(service)
        assert [message.persistent for message in lying(service, DEAD_LETTER_QUEUE)] == [False, True, True]
        plain, *others = letters(service)
        assert plain == b"gone with the queue manager"
        headers = [decode_rfh2(body, 0) for body in others]
        assert [
            folder.content for header in headers for folder in header.folders if folder.name in ("usr", "mqps")
        ] == [
            {"site": "north"},
            {"Top": "astray"},
        ]
        assert [body[header.StrucLength :] for body, header in zip(others, headers, strict=True)] == [
            b"with properties",
            b"published",
        ]
        assert lying(service, STATE_QUEUE) == []
    async with started() as service:
        await service.flush()
        assert len(letters(service)) == 2


async def test_messages_of_an_open_unit_of_work_or_another_bridge_are_not_moved(started: Started) -> None:
    """The next start finds messages that return or arrive later."""
    async with started() as service:
        await put(service, b"got")
        connection = EmbeddedConnection(service.queue_manager)
        handle = connection.open(MQOD(ObjectName=STATE_QUEUE), cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_OUTPUT)
        connection.get(handle, GetOptions(Options=cmqc.MQGMO_SYNCPOINT))
        connection.put(handle, Message(MQMD(Persistence=1), b"put"), cmqc.MQPMO_SYNCPOINT)
        for mark in MARKS:
            await put(service, b"another bridge's", CorrelId=mark)
        await put(service, b"expired", Expiry=1)
        lying(service, STATE_QUEUE)[-1].expires_at = 1.0
        await begin_again(service)
        assert letters(service) == []
        assert {stored.message.data for stored in lying(service, STATE_QUEUE)} == {b"another bridge's"}
        connection.backout()
        await put(service, b"put")
        await begin_again(service)
        assert letters(service) == [b"got", b"put"]
        assert len(lying(service, STATE_QUEUE)) == service.queue_manager.objects.queues[STATE_QUEUE].depth == len(MARKS)


def _replace_database(directory: Path) -> None:
    for file in directory.glob("queuemanager.*"):
        file.unlink()
    for file in (directory / "salvaged").glob("queuemanager.*"):
        file.rename(directory / file.name)


async def test_a_replaced_record_returns_in_a_salvaged_database(
    started: Started, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The row that removed it is lost. The later record applies."""
    async with started() as service:
        for number in range(3):
            await service.execute(unit(records=[SentRecord("a", sent=[number])]))
    with sqlite3.connect(tmp_path / "queuemanager.db") as database:
        (second,) = database.execute("SELECT id FROM batch ORDER BY id DESC LIMIT 1 OFFSET 1").fetchone()
        database.execute("DELETE FROM batch WHERE id = ?", (second,))
    database.close()
    salvage(tmp_path, tmp_path / "salvaged")
    _replace_database(tmp_path)
    for _ in range(2):
        async with started() as service:
            await service.flush()
            assert [record.sent for record in service.recovered.records] == [[2]]
            assert len(lying(service, STATE_QUEUE)) == 1
    assert f"a replaced record on {STATE_QUEUE}" in caplog.text
