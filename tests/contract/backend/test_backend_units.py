"""Units of work, for all backends: `Backend.submit`, `flush`, `stop`, and completions."""

from __future__ import annotations

import asyncio

import pytest

from bridge.telemetry.record import ReceivedRecord, SentRecord
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.helpers.backend_places import DEAD_LETTER_QUEUE, TRANSMISSION_QUEUE
from tests.helpers.backend_user import Bridge, payload, publication, received, sent, unit
from tests.helpers.patience import PATIENCE
from tests.helpers.units import requests

TOO_LONG = "x" * 10_241


@pytest.mark.smoke
async def test_a_unit_takes_effect_together(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("#"), qos=2)
    await bridge.run_accepted(unit(publication(bridge.topic("a"), b"first")))
    (first,) = await bridge.arrived(1)
    records = [ReceivedRecord("c1", [1]), SentRecord("c1", sent=[first.msg_number])]
    await bridge.run_accepted(unit(publication(bridge.topic("a"), b"second"), removals=[first], records=records))
    recovered = await bridge.restart()
    assert sorted((record.key, record.sequence) for record in recovered.records) == [
        (received("c1"), 1),
        (sent("c1"), 1),
    ]
    assert await bridge.payloads() == [b"second"]


@pytest.mark.smoke
async def test_an_empty_unit_completes(bridge: Bridge) -> None:
    await bridge.run_accepted(unit(), unit())


async def test_each_completion_is_reported_once_with_its_numbers(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("#"))
    units = [
        unit(publication(bridge.topic("a"), client_id=client_id, qos=number % 3, packet_id=number + 1))
        for number in range(20)
        for client_id in ("dev", "other")
    ]
    await bridge.run(*units)
    await bridge.flush()
    assert sorted(completion.number for completion in bridge.completions) == [work.number for work in units]


async def test_publications_of_one_client_are_completed_in_order(bridge: Bridge) -> None:
    """With every QoS, with and without records, and for a session that ends and begins again."""
    await bridge.subscribed("c1", bridge.topic("#"), qos=2)
    units = [
        unit(
            publication(bridge.topic("a"), b"%d" % number, qos=number % 3, packet_id=number + 1),
            records=[ReceivedRecord("dev", [number])] if number % 4 == 1 else [],
            ended=[received("dev")] if number % 4 == 2 else [],
        )
        for number in range(30)
    ]
    await bridge.run_accepted(*units)
    assert [completion.number for completion in bridge.completions] == [work.number for work in units]
    assert await bridge.payloads() == [b"%d" % number for number in range(30)]


async def test_removals_are_completed_in_order_and_may_be_repeated(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("#"))
    await bridge.run_accepted(unit(*(publication(bridge.topic("a"), b"%d" % number) for number in range(5))))
    there = list(await bridge.arrived(5))
    units = [unit(removals=there[1:2]), unit(removals=there[2:4]), unit(removals=there[1:4])]
    bridge.completions.clear()
    await bridge.run_accepted(*units)
    assert [completion.number for completion in bridge.completions] == [work.number for work in units]
    assert await bridge.place.depth(TRANSMISSION_QUEUE) == 2
    await bridge.restart()
    assert await bridge.payloads() == [b"0", b"4"]


@pytest.mark.parametrize("number", [1, 3])
async def test_rejections_name_the_publication_and_the_reason(bridge: Bridge, number: int) -> None:
    """Other publications are not affected, and the record does not contain the rejected publication as received."""
    await bridge.place.topic_object(bridge.topic("shut"), "PUB(DISABLED)")
    await bridge.subscribed("c1", bridge.topic("#"), qos=2)
    mixed = [
        unit(
            publication(bridge.topic("open"), b"first", qos=2, packet_id=1, client_id=client_id),
            publication(bridge.topic("shut"), qos=2, packet_id=2, client_id=client_id),
            publication(TOO_LONG, qos=2, packet_id=3, client_id=client_id),
            publication(bridge.topic("open"), b"last", qos=2, packet_id=4, client_id=client_id),
            records=[ReceivedRecord(client_id, [1, 2, 3, 4, 5])],
        )
        for client_id in ("dev", "other", "third")[:number]
    ]
    for completion in await bridge.run(*mixed):
        assert completion.failure == cmqc.MQRC_NONE
        assert completion.refusals == {1: cmqc.MQRC_PUT_INHIBITED, 2: cmqc.MQRC_TOPIC_STRING_ERROR}
        assert completion.diverted == {}
    payloads = await bridge.payloads()
    assert (payloads.count(b"first"), payloads.count(b"last"), len(payloads)) == (number, number, 2 * number)
    recovered = await bridge.restart(start=False)
    assert [record.received for record in recovered.records if isinstance(record, ReceivedRecord)] == [
        [1, 4, 5]
    ] * number


async def test_a_rejection_does_not_affect_other_records(bridge: Bridge) -> None:
    """Records of other sessions are written. With QoS 1, so is that of the same session: its id may belong to an earlier QoS
    2 publication.
    """
    await bridge.run(
        unit(
            publication(TOO_LONG, qos=2, packet_id=7),
            records=[ReceivedRecord("dev", [7]), ReceivedRecord("other", [7])],
        ),
        unit(publication(TOO_LONG, qos=1, packet_id=7, client_id="third"), records=[ReceivedRecord("third", [7])]),
    )
    recovered = await bridge.restart(start=False)
    remaining = {
        record.clientIdentifier: record.received for record in recovered.records if isinstance(record, ReceivedRecord)
    }
    assert remaining == {"dev": [], "other": [7], "third": [7]}


async def test_refused_to_dead_letters_dead_letters_rejected_publications(bridge: Bridge) -> None:
    await bridge.place.topic_object(bridge.topic("shut"), "PUB(DISABLED)")
    await bridge.subscribed("c1", bridge.topic("#"))
    mixed = unit(
        publication(bridge.topic("shut"), b"letter", qos=2, packet_id=1),
        publication(TOO_LONG, qos=2, packet_id=2),
        publication(bridge.topic("open"), b"open", qos=2, packet_id=3),
        records=[ReceivedRecord("dev", [1, 2, 3])],
        dead_letters=[cmqc.MQRC_PUT_INHIBITED],
    )
    (completion,) = await bridge.run(mixed)
    assert completion.failure == cmqc.MQRC_NONE
    assert completion.diverted == {0: cmqc.MQRC_PUT_INHIBITED}
    assert completion.refusals == {1: cmqc.MQRC_TOPIC_STRING_ERROR}
    assert await bridge.payloads() == [b"open"]
    message = await bridge.place.take(DEAD_LETTER_QUEUE)
    header = decode_mqdlh(message.data)
    assert (header.Reason, header.DestQName) == (cmqc.MQRC_PUT_INHIBITED, bridge.topic("shut").encode())
    assert message.data.endswith(b"letter")
    # A dead-lettered publication counts as received and is acknowledged.
    (record,) = (await bridge.restart(start=False)).records
    assert isinstance(record, ReceivedRecord) and record.received == [1, 3]


async def test_forbidden_publications_have_reasons_and_may_be_dead_lettered(bridge: Bridge) -> None:
    """The backend rejects them with a reason in the completion, or puts them to the dead-letter queue in the same unit of
    work.
    """
    await bridge.subscribed("c1", bridge.topic("#"), qos=2)
    mixed = unit(
        *(publication(bridge.topic("t"), b"%d" % index, qos=2, packet_id=index + 1) for index in range(4)),
        records=[ReceivedRecord("dev", [1, 2, 3, 4])],
    )
    mixed.forbidden = {
        0: cmqc.MQRC_NOT_AUTHORIZED,
        1: cmqc.MQRC_FORMAT_ERROR,
        2: cmqc.MQRC_FORMAT_ERROR,
    }
    mixed.unreportable = frozenset({2})
    (completion,) = await bridge.run(mixed)
    assert completion.failure == cmqc.MQRC_NONE
    assert completion.refusals == {0: cmqc.MQRC_NOT_AUTHORIZED, 1: cmqc.MQRC_FORMAT_ERROR}
    assert completion.diverted == {2: cmqc.MQRC_FORMAT_ERROR}
    assert await bridge.payloads() == [b"3"]
    message = await bridge.place.take(DEAD_LETTER_QUEUE)
    assert decode_mqdlh(message.data).Reason == cmqc.MQRC_FORMAT_ERROR and message.data.endswith(b"2")
    (record,) = (await bridge.restart(start=False)).records
    assert isinstance(record, ReceivedRecord) and record.received == [3, 4]


async def test_publications_without_room_on_the_dead_letter_queue_are_rejected(bridge: Bridge) -> None:
    await bridge.place.topic_object(bridge.topic("shut"), "PUB(DISABLED)")
    refused: list[tuple[str, int]] = []

    def reserve(client_id: str, size: int) -> bool:
        refused.append((client_id, size))
        return len(refused) == 1

    bridge.backend.reserve_dead_letter = reserve
    shut = [publication(bridge.topic("shut"), body) for body in (b"letter", b"rejected")]
    (completion,) = await bridge.run(unit(*shut, dead_letters=[cmqc.MQRC_PUT_INHIBITED]))
    assert completion.diverted == {0: cmqc.MQRC_PUT_INHIBITED}
    assert completion.refusals == {1: cmqc.MQRC_PUT_INHIBITED}
    assert refused == [("dev", len(bridge.topic("shut")) + size) for size in (6, 8)]
    assert (await bridge.place.take(DEAD_LETTER_QUEUE)).data.endswith(b"letter")


async def test_flush_completes_all_submitted_work(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("#"))
    units = [unit(publication(bridge.topic("a"), client_id=f"c{number}")) for number in range(10)]
    units.append(unit(records=[SentRecord("dev"), ReceivedRecord("dev")]))
    called: list[str] = []
    bridge.submit(*units[:5])
    bridge.backend.flush().add_done_callback(lambda _: called.append("first"))
    bridge.submit(*units[5:])
    bridge.backend.flush().add_done_callback(lambda _: called.append("second"))
    await bridge.flush()
    assert called == ["first", "second"]
    assert len(bridge.completions) == len(units)
    await bridge.flush()


async def test_flush_waits_for_completions_held_behind_a_subscribe(bridge: Bridge) -> None:
    """The embedded queue manager reports them in the event loop iteration after the answer to SUBSCRIBE."""
    subscribing = bridge.backend.subscribe("dev", requests((bridge.topic("a"), 1)), durable=False, user="")
    bridge.submit(unit(publication(bridge.topic("a"))))
    flushed = bridge.backend.flush()
    await bridge.until(lambda: flushed.done() or bool(bridge.completions))
    assert bridge.completions, "flush ended before the completion was reported"
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(flushed, subscribing)


async def test_flush_completes_publications_after_a_subscribe(bridge: Bridge) -> None:
    subscribing = bridge.backend.subscribe("dev", requests((bridge.topic("a"), 1)), durable=False, user="")
    bridge.submit(unit(publication(bridge.topic("a"))))
    await bridge.flush()
    assert (subscribing.result(), len(bridge.completions)) == ([0], 1)
    assert await bridge.payloads() == [b"x"], "a client gets publications that it sends after its SUBSCRIBE"


async def test_stop_completes_all_submitted_work(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("#"))
    units = [unit(publication(bridge.topic("a"), b"%d" % n), records=[SentRecord("dev", sent=[n])]) for n in range(10)]
    bridge.submit(*units)
    await bridge.stop()
    assert [(completion.number, completion.failure) for completion in bridge.completions] == [
        (work.number, 0) for work in units
    ]
    (record,) = (await bridge.restart()).records
    assert isinstance(record, SentRecord) and record.sent == [9]
    assert await bridge.payloads() == [b"%d" % number for number in range(10)]


async def test_stop_completes_publications_after_a_subscribe(bridge: Bridge) -> None:
    topic = bridge.topic("a")
    bridge.place.at_end.append(f"DELETE SUB('dev:{topic}')")
    subscribing = bridge.backend.subscribe("dev", requests((topic, 1)), durable=True, user="")
    bridge.submit(unit(publication(topic)))
    await bridge.stop()
    assert (subscribing.result(), [completion.failure for completion in bridge.completions]) == ([0], [0])
    await bridge.restart()
    assert [payload(transmission) for transmission in await bridge.settled()] == [b"x"]


async def test_after_stop_another_bridge_can_open_the_queue(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("#"))
    await bridge.stop()
    heard = len(bridge.transmissions)
    second = Bridge(bridge.place)
    await second.begin()
    await second.run_accepted(unit(publication(bridge.topic("a"))))
    assert await second.payloads() == [b"x"]
    assert len(bridge.transmissions) == heard
    await second.stop()
