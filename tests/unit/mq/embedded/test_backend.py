"""The backend of the embedded queue manager: units of work for the telemetry service, on the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.telemetry.message import Message
from bridge.telemetry.record import ReceivedRecord, StateRecord, decode
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqdlh, encode_mqmd
from tests.helpers.embedded_service import TRANSMISSION_QUEUE, Started, publication, unit

DEAD_LETTER_QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"


async def test_units_complete_in_order_with_and_without_disk_writes(started: Started) -> None:
    async with started() as service:
        await service.subscribe("c1", ("#", 2), durable=True)
        units = [unit(publication(f"t/{number}", qos=number % 3)) for number in range(30)]
        await service.execute(*units)
        assert [transmission.topic for transmission in service.transmissions] == [f"t/{number}" for number in range(30)]


async def test_a_message_is_handed_over_after_its_unit_is_on_disk(started: Started) -> None:
    async with started() as service:
        await service.subscribe("c1", ("#", 1), durable=True)
        with service.failing_disk():
            failing = unit(publication("t", b"never"))
            await service.execute(failing)
        assert failing.failure == cmqc.MQRC_RESOURCE_PROBLEM
        assert service.transmissions == []
        await service.execute(unit(publication("t", b"kept")))
        assert [transmission.message.payload for transmission in service.transmissions] == [b"kept"]


async def test_a_failed_removal_leaves_the_message_on_the_queue(started: Started) -> None:
    async with started() as service:
        await service.subscribe("c1", ("#", 1), durable=True)
        await service.execute(unit(publication("t")))
        with service.failing_disk():
            failing = unit(removals=service.transmissions)
            await service.execute(failing)
        assert failing.failure
        again = unit(removals=service.transmissions)
        await service.execute(again)
        assert not again.failure
        assert service.queue_manager.objects.queues[TRANSMISSION_QUEUE].depth == 0


async def test_a_failed_unit_restores_its_own_retained_publication_not_a_transmission(started: Started) -> None:
    """Both have the topic string of the publication in the same unit of work."""
    async with started() as service:
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t", b"state"), retain=True))
        with service.failing_disk():
            await service.execute(
                unit(publication("t", b"a"), retain=True, removals=service.transmissions),
                unit(publication("t", b"b"), retain=True),
            )
        retained_publication = service.queue_manager.retained["t"]
        assert (retained_publication.queue.name, retained_publication.message.payload) == (
            "SYSTEM.RETAINED.PUB.QUEUE",
            b"state",
        )
        await service.execute(unit(publication("t", b"next"), retain=True))
        assert service.queue_manager.objects.queues["SYSTEM.RETAINED.PUB.QUEUE"].depth == 1


@pytest.mark.parametrize(
    ("queue", "reason"),
    [("NO.SUCH.QUEUE", cmqc.MQRC_UNKNOWN_OBJECT_NAME), (DEAD_LETTER_QUEUE, cmqc.MQRC_XMIT_Q_USAGE_ERROR)],
)
async def test_an_invalid_transmission_queue(tmp_path: Path, queue: Any, reason: int) -> None:
    queue_manager = QueueManager("MQB1", tmp_path)
    prepare(queue_manager)
    backend = EmbeddedBackend(queue_manager, queue, asyncio.get_running_loop())
    with pytest.raises(MQError) as error:
        await backend.open()
    assert error.value.reason == reason
    queue_manager.recovery_log.dispatch = lambda call: call()
    queue_manager.close()


async def test_a_message_without_recipient_stays_if_the_transmission_queue_is_the_dead_letter_queue(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would return again and again, each time with another MQDLH."""
    async with started(script=f"ALTER QMGR DEADQ({TRANSMISSION_QUEUE})") as service:
        await service.subscribe("gone", ("t", 1), durable=True)
        await service.execute(unit(publication("t")))
        (transmission,) = service.transmissions
        moved: list[bool] = []
        service.backend.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR, moved.append)
        assert moved == [False]
        await service.flush()
        queue = service.queue_manager.objects.queues[TRANSMISSION_QUEUE]
        assert list(queue.messages()) == service.transmissions == [transmission]
        assert f"DEADQ({TRANSMISSION_QUEUE}) already contains it" in caplog.text


OLD = {"MsgId": b"m" * 24, "Version": 2}


@pytest.mark.parametrize(
    ("fields", "md_fields"),
    [
        ({"Format": b"F" * 5000}, {"Format": b"F" * 8}),
        ({"ReplyToQ": b"q" * 5000, "PutApplName": b"p" * 29}, {"ReplyToQ": b"q" * 48}),
        ({"GroupId": b"g" * 25, "MsgFlags": cmqc.MQMF_MSG_IN_GROUP}, {"GroupId": b"g" * 24}),
        ({"AccountingToken": b"a"}, {"AccountingToken": b"a".ljust(32, b"\0")}),
        ({"CorrelId": b"c" * 5000}, {"CorrelId": b"c" * 24}),
    ],
)
@pytest.mark.parametrize("topic", [None, "t"])
async def test_a_message_of_an_older_release_with_too_long_fields_is_dead_lettered(
    started: Started, caplog: pytest.LogCaptureFixture, topic: str | None, fields: Any, md_fields: Any
) -> None:
    """It leaves the transmission queue, before and after a restart."""
    async with started() as service:
        manager = service.queue_manager
        manager.objects.attributes["DEFXMITQ"] = TRANSMISSION_QUEUE
        # As stored by an older release: no verb checks these fields.
        work = Unit()
        message = Message(MQMD(Persistence=1, **OLD | fields), b"body")
        manager.put(work, manager.objects.resolve("command", "gone"), message, application=None).topic = topic
        manager.recovery_log.submit(work)
        await service.flush()
    async with started() as service:
        (transmission,) = service.transmissions
        moved: list[bool] = []
        service.backend.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR, moved.append)
        await service.flush()
        assert not service.queue_manager.objects.queues[TRANSMISSION_QUEUE].depth
        (letter,) = service.queue_manager.objects.queues[DEAD_LETTER_QUEUE].messages()
        md, data = service.queue_manager.appearance.seen(letter)
        encode_mqmd(md)
        header = decode_mqdlh(data)
        original = msgspec.structs.replace(md, Format=header.Format if topic is None else md_fields.get("Format", b""))
        assert header.DestQName == b"command"
        assert {name: getattr(original, name) for name in md_fields} == md_fields
        assert data.endswith(b"body")
    assert "Traceback" not in caplog.text


async def test_a_record_stays_if_its_successors_cannot_be_written(started: Started) -> None:
    async with started() as service:
        await service.execute(unit(records=[ReceivedRecord("a", [9])]))
        with service.failing_disk():
            await service.execute(*(unit(records=[ReceivedRecord("a", [n])]) for n in range(4)))
        assert _received(decode(service.queue_manager.states["received:a"].message.data)) == [9]
    async with started() as service:
        (record,) = service.recovered.records
        assert _received(record) == [9]


def _received(record: StateRecord) -> list[int]:
    assert isinstance(record, ReceivedRecord)
    return record.received
