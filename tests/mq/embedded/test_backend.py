"""The backend of the embedded queue manager: whole units of work for the telemetry service, on the event loop."""

from __future__ import annotations

import asyncio

import pytest

from bridge.mapping.message import Message
from bridge.mapping.telemetry.session_record import ReceivedRecord, decode
from bridge.mq.embedded.backend import PUBLICATION_QUEUE, EmbeddedBackend
from bridge.mq.embedded.mqsc.script import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, GetOptions
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqdlh, decode_mqxqh
from tests.mq.embedded.service import TRANSMISSION_QUEUE, publication, unit

DEAD_LETTER_QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"


async def test_a_publication_reaches_the_client_that_subscribed(started):
    async with started() as service:
        assert await service.subscribe("c1", ("a/+", 2)) == [cmqc.MQRC_NONE]
        await service.execute(unit(publication("a/b", b"data"), publication("b", b"nobody's")))
        (found,) = service.transmissions
        assert (found.client_id, found.remote_queue, found.topic) == ("c1", PUBLICATION_QUEUE, "a/b")
        assert (found.user_data, found.retained, found.persistent, found.expired) == ("2", False, True, False)
        assert found.message.payload == b"data"
        assert found.msg_number & 0xFFFF


async def test_units_end_in_the_order_given_with_and_without_the_disk(started):
    async with started() as service:
        await service.subscribe("c1", ("#", 2), durable=True)
        units = [unit(publication(f"t/{number}", qos=number % 3)) for number in range(30)]
        await service.execute(*units)
        assert [one.topic for one in service.transmissions] == [f"t/{number}" for number in range(30)]


async def test_a_message_is_handed_on_only_when_its_unit_is_on_disk(started):
    async with started() as service:
        await service.subscribe("c1", ("#", 1), durable=True)
        with service.failing_disk():
            failing = unit(publication("t", b"never"))
            await service.execute(failing)
        assert failing.failure == cmqc.MQRC_RESOURCE_PROBLEM
        assert service.transmissions == []
        await service.execute(unit(publication("t", b"kept")))
        assert [one.message.payload for one in service.transmissions] == [b"kept"]


async def test_removed_transmissions_are_gone_and_others_wait_for_the_next_start(started):
    async with started() as service:
        await service.subscribe("c1", ("#", 1), durable=True)
        await service.execute(unit(*(publication("t", bytes([n])) for n in range(5))))
        await service.execute(unit(removals=service.transmissions[1:4]))
        await service.execute(unit(removals=service.transmissions[1:4]))  # once more is no error
        assert service.queue_manager.queues[TRANSMISSION_QUEUE].depth == 2
    async with started() as service:
        assert [one.message.payload for one in service.transmissions] == [b"\0", b"\4"]


async def test_a_failed_removal_leaves_the_message_on_the_queue(started):
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
        assert service.queue_manager.queues[TRANSMISSION_QUEUE].depth == 0


async def test_a_failed_unit_gives_back_its_own_retained_publication_not_a_transmission(started):
    """Both have the topic string of the publication in the same unit of work."""
    async with started() as service:
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t", b"state"), retain=True))
        with service.failing_disk():
            await service.execute(
                unit(publication("t", b"a"), retain=True, removals=service.transmissions),
                unit(publication("t", b"b"), retain=True),
            )
        kept = service.queue_manager.retained["t"]
        assert (kept.queue.name, kept.message.payload) == ("SYSTEM.RETAINED.PUB.QUEUE", b"state")
        await service.execute(unit(publication("t", b"next"), retain=True))
        assert service.queue_manager.queues["SYSTEM.RETAINED.PUB.QUEUE"].depth == 1


async def test_refusals_name_the_publication_and_the_reason(started):
    async with started(script="DEFINE TOPIC(CLOSED) TOPICSTR('closed') PUB(DISABLED)") as service:
        await service.subscribe("c1", ("#", 1))
        mixed = unit(
            publication("open/1", qos=2, message_id=1),
            publication("closed/1", qos=2, message_id=2),
            publication("x" * 10_241, qos=2, message_id=3),
            publication("open/2", qos=2, message_id=4),
            records=[ReceivedRecord("dev", [1, 2, 3, 4, 5])],
        )
        await service.execute(mixed)
        assert mixed.refusals == {1: cmqc.MQRC_PUT_INHIBITED, 2: cmqc.MQRC_TOPIC_STRING_ERROR}
        assert mixed.failure == cmqc.MQRC_NONE
        assert [one.topic for one in service.transmissions] == ["open/1", "open/2"]
        # The record does not say that what was refused was received.
        assert decode(service.queue_manager.states["received:dev"].message.data) == ReceivedRecord("dev", [1, 4, 5])


async def test_a_refused_publication_goes_to_the_dead_letter_queue_where_that_is_asked_for(started):
    async with started(script="DEFINE TOPIC(CLOSED) TOPICSTR('closed') PUB(DISABLED)") as service:
        mixed = unit(publication("closed/1"), publication("x" * 10_241), publication("open"))
        mixed.dead_letters = frozenset({cmqc.MQRC_PUT_INHIBITED})
        await service.execute(mixed)
        assert mixed.diverted == {0: cmqc.MQRC_PUT_INHIBITED}
        assert mixed.refusals == {1: cmqc.MQRC_TOPIC_STRING_ERROR}
        (stored,) = service.queue_manager.queues[DEAD_LETTER_QUEUE].messages()
        header = decode_mqdlh(stored.message.data)
        assert (header.Reason, header.DestQName) == (cmqc.MQRC_PUT_INHIBITED, b"closed/1")


async def test_a_direct_message_of_an_application_comes_as_a_transmission(started):
    async with started() as service:
        connection = EmbeddedConnection(service.queue_manager)
        od = MQOD(ObjectName="alarms/7", ObjectQMgrName="c7")
        await asyncio.to_thread(connection.put1, od, Message(MQMD(Persistence=1), b"direct"))
        await service.flush()
        (found,) = service.transmissions
        assert (found.client_id, found.remote_queue, found.topic, found.user_data) == ("c7", "alarms/7", None, None)
        assert found.message.data == b"direct"


async def test_dead_letters(started):
    async with started() as service:
        connection = EmbeddedConnection(service.queue_manager)
        od = MQOD(ObjectName="alarms/7", ObjectQMgrName="nobody")
        put = await asyncio.to_thread(connection.put1, od, Message(MQMD(Persistence=1, Format=b"MQSTR"), b"direct"))
        await service.flush()
        (found,) = service.transmissions
        service.backend.dead_letter(found, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
        service.backend.dead_letter(found, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)  # once more is no error
        await service.flush()
        assert service.queue_manager.queues[TRANSMISSION_QUEUE].depth == 0
        assert service.queue_manager.queues[DEAD_LETTER_QUEUE].depth == 1
        handle = connection.open(MQOD(ObjectName=DEAD_LETTER_QUEUE), cmqc.MQOO_INPUT_SHARED)
        got = await asyncio.to_thread(connection.get, handle, GetOptions())
        header = decode_mqdlh(got.data)
        assert header.Reason == cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR
        assert (header.DestQName, header.DestQMgrName, header.Format) == (b"alarms/7", b"nobody", b"MQSTR")
        assert got.data[172:] == b"direct"
        assert (got.md.Format, got.md.MsgId) == (cmqc.MQFMT_DEAD_LETTER_HEADER, put.MsgId)


async def test_a_dead_letter_without_a_dead_letter_queue_stays_where_it_is(started):
    async with started(script=f"ALTER QLOCAL({DEAD_LETTER_QUEUE}) PUT(DISABLED)") as service:
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t")))
        service.backend.dead_letter(service.transmissions[0], cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
        await service.flush()
        assert service.queue_manager.queues[TRANSMISSION_QUEUE].depth == 1


async def test_the_transmission_queue_is_taken_for_exclusive_input(started):
    async with started() as service:
        connection = EmbeddedConnection(service.queue_manager)
        with pytest.raises(MQError) as error:
            connection.open(MQOD(ObjectName=TRANSMISSION_QUEUE), cmqc.MQOO_INPUT_SHARED)
        assert error.value.reason == cmqc.MQRC_OBJECT_IN_USE
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t", b"data")))
        handle = connection.open(MQOD(ObjectName=TRANSMISSION_QUEUE), cmqc.MQOO_BROWSE)
        got = connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))
        assert decode_mqxqh(got.data).RemoteQMgrName == b"c1"
        assert int.from_bytes(got.md.MsgId[-8:], "big") == service.transmissions[0].msg_number


@pytest.mark.parametrize(
    ("queue", "reason"),
    [("NO.SUCH.QUEUE", cmqc.MQRC_UNKNOWN_OBJECT_NAME), (DEAD_LETTER_QUEUE, cmqc.MQRC_XMIT_Q_USAGE_ERROR)],
)
async def test_a_wrong_transmission_queue(tmp_path, queue, reason):
    queue_manager = QueueManager("MQB1", tmp_path)
    prepare(queue_manager)
    backend = EmbeddedBackend(queue_manager, queue, asyncio.get_running_loop())
    with pytest.raises(MQError) as error:
        await backend.open()
    assert error.value.reason == reason
    queue_manager.journal.dispatch = lambda call: call()
    queue_manager.close()


async def test_after_stop_another_may_have_the_queue(started):
    async with started() as service:
        await service.stop()
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t")))
        assert service.transmissions == []
        connection = EmbeddedConnection(service.queue_manager)
        connection.close(connection.open(MQOD(ObjectName=TRANSMISSION_QUEUE), cmqc.MQOO_INPUT_EXCLUSIVE))
        await service.start()
        assert [one.topic for one in service.transmissions] == ["t"]
