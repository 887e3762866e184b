"""Messages for clients, for all backends: `Backend.start`, `dead_letter`, direct messages."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, Connection, GetOptions, Got
from bridge.telemetry.conversion import from_mq
from bridge.telemetry.subscription import PUBLICATION_QUEUE
from bridge.wire import cmqc
from bridge.wire.mq import RFH2, Folder, Typed, decode_mqdlh, decode_mqxqh, encode_chain
from tests.helpers.backend_places import DEAD_LETTER_QUEUE, TRANSMISSION_QUEUE, drain
from tests.helpers.backend_user import Bridge, payload, publication, unit


@pytest.mark.smoke
async def test_existing_messages_are_delivered_in_order_before_new_ones(bridge: Bridge) -> None:
    topic = bridge.topic("a")
    await bridge.subscribed("c1", topic, qos=2)
    await bridge.run_accepted(
        *(unit(publication(topic, b"%d" % number, client_id=f"p{number % 3}")) for number in range(9))
    )
    before = [payload(transmission) for transmission in await bridge.arrived(9)]
    await bridge.restart(start=False)
    assert bridge.transmissions == []
    await bridge.start()
    assert [payload(transmission) for transmission in bridge.transmissions] == before, (
        "handed over when it is said to be caught up"
    )
    await bridge.run_accepted(*(unit(publication(topic, b"%d" % number, qos=number % 3)) for number in range(9, 20)))
    assert (await bridge.payloads())[9:] == [b"%d" % number for number in range(9, 20)]


@pytest.mark.smoke
async def test_many_messages_are_each_handed_over_once(bridge: Bridge) -> None:
    topic = bridge.topic("a")
    await bridge.subscribed("c1", topic)
    await bridge.run_accepted(
        *(unit(*(publication(topic, b"%d" % (10 * u + n)) for n in range(10))) for u in range(120))
    )
    assert await bridge.payloads() == [b"%d" % number for number in range(1200)]
    numbers = [transmission.msg_number for transmission in bridge.transmissions]
    assert len({*numbers}) == 1200 and numbers == sorted(numbers)
    keys = [transmission.key for transmission in bridge.transmissions]
    await bridge.restart()
    assert await bridge.payloads() == [b"%d" % number for number in range(1200)]
    assert [transmission.key for transmission in bridge.transmissions] == keys, "records name them by these"


async def test_a_message_for_a_subscription(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("#"), qos=1)
    await bridge.run_accepted(unit(publication(bridge.topic("a"), qos=0), publication(bridge.topic("a"), qos=2)))
    soft, hard = await bridge.settled()
    assert soft.remote_queue == hard.remote_queue == PUBLICATION_QUEUE
    assert (soft.persistent, hard.persistent) == (False, True)


@pytest.mark.parametrize("persistence", [cmqc.MQPER_NOT_PERSISTENT, cmqc.MQPER_PERSISTENT])
async def test_a_direct_message_of_an_application(bridge: Bridge, persistence: int) -> None:
    await bridge.place.put("alarms/7", b"direct", manager="c7", Persistence=persistence, Format=b"MQSTR")
    (transmission,) = await bridge.arrived(1)
    assert (transmission.client_id, transmission.remote_queue, transmission.topic, transmission.user_data) == (
        "c7",
        "alarms/7",
        None,
        None,
    )
    assert (transmission.retained, transmission.persistent) == (False, bool(persistence))
    assert payload(transmission) == b"direct"


def forwarded(*folders: Folder) -> tuple[bytes, dict[str, Any]]:
    """Return the data and MQMD fields of a publication as an application receives it, with all folders."""
    chain = encode_chain([RFH2(Format=b"MQSTR", CodedCharSetId=1208, folders=folders)], b"forwarded")
    return chain.data, {"Format": chain.Format, "Encoding": chain.Encoding, "CodedCharSetId": chain.CodedCharSetId}


PUBLISHED = (
    Folder.build("mqtt", {"clientId": "publisher", "qos": Typed(1, "i4")}),
    Folder.build("mqps", {"Top": "original/topic", "Sud": "0"}),
)


@pytest.mark.parametrize("folders", [PUBLISHED, PUBLISHED[:1]], ids=["mqtt and mqps", "mqtt only"])
async def test_a_publication_forwarded_to_a_client_is_a_direct_message(
    bridge: Bridge, folders: tuple[Folder, ...]
) -> None:
    data, md = forwarded(*folders)
    await bridge.place.put("commands", data, manager="dev1", Persistence=1, **md)
    (transmission,) = await bridge.arrived(1)
    assert (transmission.client_id, transmission.remote_queue, transmission.topic, transmission.user_data) == (
        "dev1",
        "commands",
        None,
        None,
    )
    publication = from_mq(transmission.message, topic=transmission.topic or transmission.remote_queue)
    assert (publication.topic, publication.payload, publication.qos) == ("commands", b"forwarded", 2)


async def test_a_publication_put_to_the_queue_of_subscriptions_keeps_its_topic(bridge: Bridge) -> None:
    """The same applies to dead letters that were publications for a subscription."""
    data, md = forwarded(*PUBLISHED)
    await bridge.place.put(PUBLICATION_QUEUE, data, manager="dev1", Persistence=1, **md)
    (transmission,) = await bridge.arrived(1)
    assert (transmission.remote_queue, transmission.topic, transmission.user_data) == (
        PUBLICATION_QUEUE,
        "original/topic",
        "0",
    )
    assert from_mq(transmission.message).payload == b"forwarded"
    await bridge.restart()
    (again,) = await bridge.arrived(1)
    assert (again.topic, again.user_data) == ("original/topic", "0")


async def test_a_subscription_to_another_queue_name_of_a_client_sends_direct_messages(bridge: Bridge) -> None:
    name, topic = f"{bridge.place.root}:sub", bridge.topic("a")
    await bridge.place.command(
        f"DEFINE SUB('{name}') TOPICSTR('{topic}') DEST('alarms') DESTQMGR('dev1') USERDATA('0')"
    )
    bridge.place.at_end.append(f"DELETE SUB('{name}')")
    await bridge.run_accepted(unit(publication(topic, b"news")))
    (transmission,) = await bridge.arrived(1)
    assert (transmission.client_id, transmission.remote_queue, transmission.topic, transmission.user_data) == (
        "dev1",
        "alarms",
        None,
        None,
    )
    assert from_mq(transmission.message).payload == b"news"


def segment(number: int, last: int, **md: Any) -> dict[str, Any]:
    """Return the MQMD fields of a segment of at most 100 bytes, in a group."""
    flags = cmqc.MQMF_LAST_SEGMENT if number == last else cmqc.MQMF_SEGMENT
    return dict(Version=2, GroupId=b"\7" * 24, MsgSeqNumber=1, Offset=100 * number, MsgFlags=flags, Persistence=1, **md)


PARTS = [b"%d" % number * 100 for number in range(3)]


async def test_segments_are_handed_over_as_one_message_when_complete(bridge: Bridge) -> None:
    for number in (2, 0):
        await bridge.place.put("c7", PARTS[number], manager="dev1", **segment(number, 2, Format=b"MQSTR"))
    await bridge.place.put("c7", b"complete", manager="dev1")
    assert [payload(transmission) for transmission in await bridge.settled()] == [b"complete"], (
        "segments wait for the rest"
    )
    await bridge.place.put("c7", PARTS[1], manager="dev1", **segment(1, 2, Format=b"MQSTR"))
    _, joined = await bridge.arrived(2)
    assert payload(joined) == b"".join(PARTS)
    assert (joined.client_id, joined.remote_queue, joined.persistent) == ("dev1", "c7", True)
    await bridge.restart()
    again = next(transmission for transmission in await bridge.settled() if transmission.persistent)
    assert (again.key, payload(again)) == (joined.key, b"".join(PARTS)), "records name it by its key"
    await bridge.run_accepted(unit(removals=[again]))
    await bridge.stop()
    remaining = await bridge.place.application(lambda connection: drain(connection, TRANSMISSION_QUEUE))
    assert [message for message in remaining if message.data[-100:] in PARTS] == [], "all segments are removed"


async def test_headers_before_the_first_segment_belong_to_the_whole_message(bridge: Bridge) -> None:
    chain = encode_chain([RFH2(Format=b"MQSTR", CodedCharSetId=1208, folders=PUBLISHED)], b"first ")
    rest = len(chain.data)
    first = segment(0, 1, Format=chain.Format, Encoding=chain.Encoding, CodedCharSetId=1208)
    await bridge.place.put("commands", chain.data, manager="dev1", **first)
    await bridge.place.put("commands", b"second", manager="dev1", **segment(1, 1) | {"Offset": rest})
    (joined,) = await bridge.arrived(1)
    assert from_mq(joined.message, topic="commands").payload == b"first second"


async def test_each_segment_of_a_message_without_recipient_is_dead_lettered(bridge: Bridge) -> None:
    for number in range(2):
        await bridge.place.put("c7", PARTS[number], manager="nobody", **segment(number, 1))
    (joined,) = await bridge.arrived(1)
    bridge.backend.dead_letter(joined, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
    letters = [await bridge.place.take(DEAD_LETTER_QUEUE) for _ in range(2)]
    assert [message.data[-100:] for message in letters] == PARTS[:2]
    await bridge.stop()
    assert await bridge.place.depth(TRANSMISSION_QUEUE) == 0


async def test_a_message_taken_off_the_transmission_queue_confirms_no_delivery(bridge: Bridge) -> None:
    """The queue manager clears MQRO_COA and MQRO_COD in the MQMD in front of an MQXQH ("Overview for MQXQH")."""
    replies = await bridge.place.queue("REPLIES")
    report = cmqc.MQRO_COA | cmqc.MQRO_COD
    await bridge.place.put("commands", b"x", manager="dev1", Report=report, ReplyToQ=replies.encode(), MsgType=8)
    (transmission,) = await bridge.arrived(1)
    await bridge.run_accepted(unit(removals=[transmission]))
    await bridge.stop()
    assert (await bridge.place.depth(TRANSMISSION_QUEUE), await bridge.place.depth(replies)) == (0, 0)


async def test_an_ims_header_is_not_part_of_the_payload(bridge: Bridge) -> None:
    header = b"IIH " + struct.pack("<4i", 1, 84, 0, 0) + b"MQHRF2  " + bytes(56)
    chain = encode_chain([RFH2(Format=b"MQSTR", CodedCharSetId=1208, folders=PUBLISHED)], b"payload")
    await bridge.place.put("commands", header + chain.data, manager="dev1", Format=cmqc.MQFMT_IMS, CodedCharSetId=1208)
    (transmission,) = await bridge.arrived(1)
    assert from_mq(transmission.message, topic="commands").payload == b"payload"


async def test_a_dead_letter(bridge: Bridge) -> None:
    """Repeating it is not an error."""
    await bridge.place.put("alarms/7", b"direct", manager="nobody", Persistence=1, Format=b"MQSTR")
    (transmission,) = await bridge.arrived(1)
    bridge.backend.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
    bridge.backend.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
    message = await bridge.place.take(DEAD_LETTER_QUEUE)
    header = decode_mqdlh(message.data)
    assert header.Reason == cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR
    assert (header.DestQName, header.DestQMgrName, header.Format) == (b"alarms/7", b"nobody", b"MQSTR")
    assert (message.md.Format, message.data[172:]) == (cmqc.MQFMT_DEAD_LETTER_HEADER, b"direct")
    await bridge.stop()
    assert await bridge.place.depth(DEAD_LETTER_QUEUE) == 0
    assert await bridge.place.depth(TRANSMISSION_QUEUE) == 0


async def test_a_publication_as_a_dead_letter(bridge: Bridge) -> None:
    """The dead letter has the properties of the publication."""
    await bridge.subscribed("c1", bridge.topic("a"))
    await bridge.run_accepted(unit(publication(bridge.topic("a"), b"letter", client_id="publisher")))
    (transmission,) = await bridge.arrived(1)
    bridge.backend.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
    message = await bridge.place.take(DEAD_LETTER_QUEUE)
    header = decode_mqdlh(message.data)
    assert (header.DestQName, header.DestQMgrName) == (PUBLICATION_QUEUE.encode(), b"c1")
    assert header.Format == cmqc.MQFMT_RF_HEADER_2
    assert b"publisher" in message.data and message.data.endswith(b"letter")
    await bridge.restart()
    assert await bridge.settled() == []


async def test_a_dead_letter_that_cannot_be_put_stays_on_its_queue(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("a"))
    await bridge.run_accepted(unit(publication(bridge.topic("a"), b"stays")))
    (transmission,) = await bridge.arrived(1)
    await bridge.place.command(f"ALTER QLOCAL('{DEAD_LETTER_QUEUE}') PUT(DISABLED)")
    bridge.place.at_end.append(f"ALTER QLOCAL('{DEAD_LETTER_QUEUE}') PUT(ENABLED)")
    bridge.backend.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
    await bridge.restart()
    assert await bridge.payloads() == [b"stays"]
    assert await bridge.place.depth(DEAD_LETTER_QUEUE) == 0


async def test_messages_on_the_transmission_queue_have_an_mqxqh(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("a"))
    await bridge.run_accepted(unit(publication(bridge.topic("a"), b"data")))
    (transmission,) = await bridge.arrived(1)

    def look(connection: Connection) -> Got:
        handle = connection.open(MQOD(ObjectName=TRANSMISSION_QUEUE), cmqc.MQOO_BROWSE)
        return connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))

    message = await bridge.place.application(look)
    assert decode_mqxqh(message.data).RemoteQMgrName == b"c1"
    assert transmission.key in (message.md.MsgId, int.from_bytes(message.md.MsgId[-8:], "big"))
    assert transmission.msg_number & 0xFFFF == int.from_bytes(message.md.MsgId[-2:], "big"), (
        "the usual packet identifier"
    )
