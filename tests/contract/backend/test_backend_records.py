"""Records of sessions on SYSTEM.MQTT.PERSISTENT.STATE, for all backends."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.backend import RecoveredState
from bridge.mq.mqi import MQOD, Connection, GetOptions, MQError
from bridge.telemetry.record import ReceivedRecord, SentRecord, StateRecord
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.helpers.backend_places import DEAD_LETTER_QUEUE, Embedded
from tests.helpers.backend_user import Bridge, publication, received, sent, unit

#: With two publishers, each of the records belongs to another one.
ONE, OTHER = "dev", "other"


def contents(recovered: RecoveredState) -> dict[tuple[str, str], list[Any]]:
    """Return the contents of the records, by side and client."""
    return {
        (record.key.side.value, record.clientIdentifier): record.received
        if isinstance(record, ReceivedRecord)
        else record.sent
        for record in recovered.records
    }


@pytest.mark.smoke
async def test_the_latest_record_wins_and_an_empty_one_removes(bridge: Bridge) -> None:
    await bridge.run_accepted(
        unit(records=[ReceivedRecord("a", [1]), ReceivedRecord("b", [1])]),
        unit(records=[ReceivedRecord("a", [2]), SentRecord("a", sent=[7])]),
        unit(records=[ReceivedRecord("a", [3])], ended=[received("b"), received("c")]),
    )
    assert contents(await bridge.restart()) == {("received", "a"): [3], ("sent", "a"): [7]}
    await bridge.run_accepted(unit(records=[ReceivedRecord("a", [4])]), unit(ended=[received("a")]))
    assert contents(await bridge.restart()) == {("sent", "a"): [7]}
    await bridge.run_accepted(unit(ended=[sent("a")]))
    assert contents(await bridge.restart()) == {}


@pytest.mark.smoke
async def test_the_sequence_of_a_record_grows(bridge: Bridge) -> None:
    sequences: list[dict[str, int]] = []
    for number in range(3):
        records: list[StateRecord] = [ReceivedRecord(ONE, [number]), SentRecord(ONE, sent=[number])]
        await bridge.run_accepted(unit(records=records), unit(records=[ReceivedRecord(ONE, [10 + number])]))
        recovered = await bridge.restart()
        sequences.append({record.key.side.value: record.sequence for record in recovered.records})
    assert sequences[0].keys() == {"received", "sent"}
    for before, after in itertools.pairwise(sequences):
        assert all(after[side] > before[side] for side in before)


async def test_records_of_two_sessions_in_one_unit(bridge: Bridge) -> None:
    """Each replaces the previous record of its session, also together with publications."""
    for number in range(3):
        await bridge.run_accepted(unit(records=[ReceivedRecord(OTHER, [number])]))
    await bridge.run_accepted(
        unit(records=[ReceivedRecord(ONE, [7]), ReceivedRecord(OTHER, [7]), SentRecord(ONE, sent=[7])])
    )
    both = {("received", ONE): [7], ("received", OTHER): [7], ("sent", ONE): [7]}
    assert contents(await bridge.restart()) == both
    for client_id, packet_id in ((ONE, 8), (OTHER, 9)):
        await bridge.run_accepted(
            unit(
                publication(bridge.topic("a"), qos=2, packet_id=packet_id, client_id=client_id),
                records=[ReceivedRecord(ONE, [packet_id]), ReceivedRecord(OTHER, [packet_id])],
            )
        )
        assert contents(await bridge.restart()) == {
            ("received", ONE): [packet_id],
            ("received", OTHER): [packet_id],
            ("sent", ONE): [7],
        }


async def test_a_session_that_ends_and_begins_again(bridge: Bridge) -> None:
    await bridge.run_accepted(
        unit(records=[ReceivedRecord(ONE, [1]), SentRecord(ONE, sent=[1])]),
        unit(ended=[received(ONE), sent(ONE)]),
        unit(records=[ReceivedRecord(ONE, [2])]),
    )
    assert contents(await bridge.restart()) == {("received", ONE): [2]}


# What cannot be read -------------------------------------------------------------------------------------------------


async def refused(bridge: Bridge) -> str:
    """Return the text of the error that ends a start."""
    with pytest.raises(MQError) as end:
        await bridge.open()
    assert end.value.reason == cmqc.MQRC_FORMAT_ERROR
    words = str(end.value)
    assert STATE_QUEUE in words and "MQXR also uses a queue of that name" in words
    return words


def take(connection: Connection, msg_id: bytes) -> None:
    """Take a message off the queue of records."""
    connection.get(connection.open(MQOD(ObjectName=STATE_QUEUE), cmqc.MQOO_INPUT_SHARED), GetOptions(MsgId=msg_id))


async def test_a_message_of_another_application(stopped: Bridge) -> None:
    """It prevents a start while it is on the queue. Only the start can empty the queue of the embedded queue manager."""
    place = stopped.place
    await stopped.begin()
    await stopped.run_accepted(unit(records=[ReceivedRecord("a", [1])]))
    await stopped.stop()
    put = await place.put(STATE_QUEUE, b"MQXR", Persistence=cmqc.MQPER_PERSISTENT)
    if isinstance(place, Embedded):
        for _ in range(2):
            assert contents(await stopped.restart()) == {("received", "a"): [1]}
            await stopped.flush()
            assert (await place.depth(STATE_QUEUE), await place.depth(DEAD_LETTER_QUEUE)) == (1, 1)
        letter = await place.take(DEAD_LETTER_QUEUE)
        header = decode_mqdlh(letter.data)
        assert (letter.md.Format, letter.md.MsgId) == (cmqc.MQFMT_DEAD_LETTER_HEADER, put.MsgId)
        assert (header.Reason, header.DestQName.decode()) == (cmqc.MQRC_FORMAT_ERROR, STATE_QUEUE)
        assert letter.data.endswith(b"MQXR")
        return
    for _ in range(2):
        await refused(stopped)
    await place.application(lambda connection: take(connection, put.MsgId))
    assert contents(await stopped.begin()) == {("received", "a"): [1]}


async def test_a_record_of_a_newer_bridge_prevents_the_start(stopped: Bridge) -> None:
    newer = b'{"side":"received","clientIdentifier":"a","version":99}'
    await stopped.place.write_records((received("a"), newer))
    assert "version 99" in await refused(stopped)


async def test_an_invalid_record_prevents_the_start(stopped: Bridge) -> None:
    await stopped.place.write_records((sent("a"), b"rubbish"))
    assert "it is not a session record" in await refused(stopped)


async def test_records_of_version_1_are_read_and_replaced(stopped: Bridge) -> None:
    place = stopped.place
    await place.write_records(
        (received("a"), place.as_version_1(received("a"), 5, b'{"clientIdentifier":"a","received":[5]}')),
        (sent("a"), place.as_version_1(sent("a"), 6, b'{"clientIdentifier":"a","sent":[6],"connected":true}')),
    )
    recovered = await stopped.begin()
    assert contents(recovered) == {("received", "a"): [5], ("sent", "a"): [6]}
    assert [record.connected for record in recovered.records if isinstance(record, SentRecord)] == [True]
    before = {record.key: record.sequence for record in recovered.records}
    await stopped.run_accepted(unit(records=[ReceivedRecord("a", [7]), SentRecord("a", sent=[8])]))
    after = await stopped.restart()
    assert contents(after) == {("received", "a"): [7], ("sent", "a"): [8]}
    assert {record.key: record.sequence for record in after.records} == {
        key: number + 1 for key, number in before.items()
    }
