"""The backend of the embedded queue manager: records of sessions, and starts with such that it cannot read."""

from __future__ import annotations

import asyncio

import pytest

from bridge.config.queues import STATE_QUEUE
from bridge.mapping.message import Message
from bridge.mapping.telemetry.session_record import ReceivedRecord, SentRecord, Side, StateKey, decode
from bridge.mq.embedded import backend as backend_module
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.mq.embedded.service import Service, unit


def received(client_id: str) -> StateKey:
    return StateKey(Side.RECEIVED, client_id)


async def test_the_latest_state_wins_and_none_removes(started):
    async with started() as service:
        await service.execute(
            unit(records=[ReceivedRecord("a", [1]), ReceivedRecord("b", [1])]),
            unit(records=[ReceivedRecord("a", [2]), SentRecord("a", sent=[7])]),
            unit(records=[ReceivedRecord("a", [3])], ended=[received("b"), received("c")]),
        )
    async with started() as service:
        assert sorted(service.recovered.records, key=repr) == [ReceivedRecord("a", [3]), SentRecord("a", sent=[7])]
        await service.execute(unit(records=[ReceivedRecord("a", [4])]), unit(ended=[received("a")]))
    async with started() as service:
        assert service.recovered.records == [SentRecord("a", sent=[7])]
        assert service.queue_manager.queues["SYSTEM.MQTT.PERSISTENT.STATE"].depth == 1


async def test_a_state_stays_when_its_successors_cannot_be_written(started):
    async with started() as service:
        await service.execute(unit(records=[ReceivedRecord("a", [9])]))
        with service.failing_disk():
            await service.execute(*(unit(records=[ReceivedRecord("a", [n])]) for n in range(4)))
        assert decode(service.queue_manager.states["received:a"].message.data) == ReceivedRecord("a", [9])
    async with started() as service:
        assert service.recovered.records == [ReceivedRecord("a", [9])]


# Records of sessions --------------------------------------------------------------------------------------------------


def put_state(service: Service, data: bytes) -> None:
    connection = EmbeddedConnection(service.queue_manager)
    connection.put1(MQOD(ObjectName=STATE_QUEUE), Message(MQMD(), data), cmqc.MQPMO_NONE)
    connection.disconnect()


async def test_a_message_that_is_no_record_ends_the_start_in_words(started):
    async with started() as service:
        await asyncio.to_thread(put_state, service, b"MQXR")
    with pytest.raises(MQError, match="MQXR uses a queue of that name") as end:
        await started().__aenter__()
    assert end.value.reason == cmqc.MQRC_FORMAT_ERROR


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (b'{"side":"received","clientIdentifier":"a","version":3}', "a newer bridge has written it"),
        (b"rubbish", "it holds no record of a session"),
    ],
)
async def test_a_record_that_cannot_be_read_ends_the_start_in_words(started, monkeypatch, written, why):
    async with started() as service:
        monkeypatch.setattr(backend_module, "encode", lambda record: written)
        await service.execute(unit(records=[ReceivedRecord("a", [1])]))
    with pytest.raises(MQError, match=why):
        await started().__aenter__()


async def test_records_of_version_1_are_read(started, monkeypatch):
    async with started() as service:
        monkeypatch.setattr(
            backend_module,
            "encode",
            lambda record: b'{"clientIdentifier":"a","received":[5]}'
            if isinstance(record, ReceivedRecord)
            else b'{"clientIdentifier":"a","sent":[6],"connected":true}',
        )
        await service.execute(unit(records=[ReceivedRecord("a", [1]), SentRecord("a")]))
    async with started() as service:
        assert sorted(service.recovered.records, key=repr) == [
            ReceivedRecord("a", [5]),
            SentRecord("a", sent=[6], connected=True),
        ]
