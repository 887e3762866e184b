"""The embedded queue manager above the memory watermark: rejected and accepted operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.telemetry.record import ReceivedRecord, decode
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.embedded_manager import Manager
from tests.helpers.embedded_service import TRANSMISSION_QUEUE, Started, publication, unit

SHORT = cmqc.MQRC_STORAGE_NOT_AVAILABLE
DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"


def rise(queue_manager: QueueManager, above: bool = True) -> None:
    queue_manager.memory = MemoryWatermark(None)
    queue_manager.memory.above = above


@pytest.fixture
def above(manager: Manager) -> Manager:
    """A queue manager with two messages on Q and a retained publication. Its memory use is above the watermark."""
    manager.ok("DEFINE QLOCAL(Q)")
    manager.ok("DEFINE SUB(S) TOPICSTR('t/#') DEST(Q)")
    manager.put("Q", b"1")
    manager.put("Q", b"2")
    manager.publish("state", b"on", retain=True)
    rise(manager.itself)
    return manager


@pytest.mark.parametrize(
    "put",
    [
        lambda manager: manager.put("Q"),
        lambda manager: manager.put("Q", persistent=False),
        lambda manager: manager.publish("t/1"),
        lambda manager: manager.publish("nobody"),
        lambda manager: manager.publish("state", b"off", retain=True),
    ],
    ids=["persistent", "non-persistent", "publication", "publication-for-nobody", "retained"],
)
def test_puts_of_applications_are_rejected(above: Manager, put: Callable[[Manager], None]) -> None:
    with pytest.raises(MQError) as refused:
        put(above)
    assert refused.value.reason == SHORT
    assert above.itself.memory.rejected == 1
    assert above.get_all("Q") == [b"1", b"2"]
    assert above.itself.retained["state"].message.length == 2


def test_messages_can_be_got_and_then_puts_are_accepted(above: Manager) -> None:
    assert above.get_all("Q") == [b"1", b"2"]
    rise(above.itself, False)
    above.put("Q", b"3")
    assert above.get_all("Q") == [b"3"]


def test_commands_are_accepted(above: Manager) -> None:
    """An administrator frees memory with commands."""
    above.ok("ALTER QLOCAL(Q) DESCR('still there')")
    above.ok("CLEAR QLOCAL(Q)")


async def test_publications_of_clients_are_rejected_and_removals_and_records_continue(started: Started) -> None:
    async with started() as service:
        await service.subscribe("c1", ("#", 2), durable=True)
        await service.execute(unit(publication("t", b"before", qos=2)))
        (waiting,) = service.transmissions
        rise(service.queue_manager)
        rejected = unit(
            publication("t", b"0", qos=0),
            publication("t", b"2", qos=2, packet_id=7),
            removals=[waiting],
            records=[ReceivedRecord("dev", [7, 9])],
        )
        await service.execute(rejected)
        assert (rejected.failure, dict(rejected.refusals)) == (0, {0: SHORT, 1: SHORT})
        assert service.queue_manager.objects.queues[TRANSMISSION_QUEUE].depth == 0
        record = decode(service.queue_manager.states["received:dev"].message.data)
        assert isinstance(record, ReceivedRecord) and record.received == [9], (
            "the rejected message id must not be on record"
        )
        rise(service.queue_manager, False)
        await service.execute(unit(publication("t", b"after")))
        assert [transmission.message.payload for transmission in service.transmissions] == [b"before", b"after"]


async def test_rejected_publications_do_not_become_dead_letters(started: Started) -> None:
    """Not even those that the channel dead-letters for another reason, because they need memory, too."""
    async with started() as service:
        service.backend._queue_manager.enforce_authorities()
        rise(service.queue_manager)
        refused = unit(publication("t", b"x"))
        refused.dead_letters = frozenset((SHORT, cmqc.MQRC_NOT_AUTHORIZED))
        await service.execute(refused)
        assert list(refused.refusals.values()) == [cmqc.MQRC_NOT_AUTHORIZED]
        assert service.queue_manager.objects.queues[DEAD_LETTERS].depth == 0


async def test_an_empty_retained_publication_still_clears_the_retained_one(started: Started) -> None:
    async with started() as service:
        await service.execute(unit(publication("state", b"on"), retain=True))
        rise(service.queue_manager)
        cleared, nothing = unit(publication("state", b""), retain=True), unit(publication("other", b""), retain=True)
        await service.execute(cleared, nothing)
        assert (dict(cleared.refusals), dict(nothing.refusals)) == ({}, {0: SHORT})
        assert "state" not in service.queue_manager.retained


async def test_an_undeliverable_message_still_moves_to_the_dead_letter_queue(started: Started) -> None:
    async with started() as service:
        await service.subscribe("gone", ("t", 1), durable=True)
        await service.execute(unit(publication("t")))
        (transmission,) = service.transmissions
        rise(service.queue_manager)
        service.backend.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
        await service.flush()
        depths = {name: service.queue_manager.objects.queues[name].depth for name in (DEAD_LETTERS, TRANSMISSION_QUEUE)}
        assert depths == {DEAD_LETTERS: 1, TRANSMISSION_QUEUE: 0}


def test_a_get_still_produces_its_report(manager: Manager) -> None:
    """A confirmation of delivery replaces the message that it confirms."""
    for queue in ("Q", "REPORTS"):
        manager.ok(f"DEFINE QLOCAL({queue})")
    md = MQMD(Report=cmqc.MQRO_COD, ReplyToQ=b"REPORTS")
    manager.connection.put1(MQOD(ObjectName="Q"), Message(md, b"x"))
    rise(manager.itself)
    handle = manager.connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    assert manager.connection.get(handle, GetOptions()).data == b"x"
    assert manager.attribute("QLOCAL(REPORTS)", "CURDEPTH") == 1


def test_restored_messages_share_equal_parts(manager: Manager) -> None:
    """A backlog does not need more memory after a restart than before."""
    manager.ok("DEFINE QLOCAL(Q)")
    manager.ok("DEFINE SUB(S) TOPICSTR('plant/#') DEST(Q)")
    for payload in (b"1", b"2"):
        work = Unit()
        route = manager.itself.objects.topics.route("plant/pump")
        assert manager.itself.publish(work, route, publication("plant/pump", payload), 1.0) == cmqc.MQRC_NONE
        manager.itself.recovery_log.submit(work)
    manager.restart()
    first, second = manager.itself.objects.queues["Q"].messages()
    assert [transmission.message.payload for transmission in (first, second)] == [b"1", b"2"]
    assert first.message.md is second.message.md
    assert first.message.topic is second.message.topic is first.topic
    assert first.message.client_id is second.message.client_id


def test_a_restart_above_the_watermark_restores_all_messages(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    for number in range(3):
        manager.put("Q", b"%d" % number)
    rise(manager.itself)
    directory = manager.itself.data_directory
    manager.close()
    memory = MemoryWatermark(None)
    memory.above = True
    again = QueueManager("MQB1", directory, memory=memory)
    connection = EmbeddedConnection(again)
    handle = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    assert [connection.get(handle, GetOptions()).data for _ in range(3)] == [b"0", b"1", b"2"]
    connection.disconnect()
    again.close()
