"""Retry after each reason for dead-lettering: the message reaches its destination unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from bridge.mq.dead_letter import DeadLetterMessage, Selection
from bridge.mq.dead_letter_queue import DeadLetterQueue, Retried, RetryOutcome
from bridge.mq.mqi import Connection
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import Message, Unmappable
from bridge.telemetry.transmission import PublicationMessage, Transmission
from bridge.wire import cmqc
from tests.helpers.backend_places import DEAD_LETTER_QUEUE
from tests.helpers.backend_user import Bridge, publication, unit
from tests.helpers.patience import PATIENCE, until


def retry(connection: Connection) -> list[Retried]:
    return list(DeadLetterQueue(connection, DEAD_LETTER_QUEUE).retry(Selection(), timeout=0))


async def retried(bridge: Bridge) -> Sequence[Retried]:
    """Retry all dead letters. None is rejected."""
    retries = await bridge.place.application(retry)
    assert {letter.outcome for letter in retries} <= {RetryOutcome.DELIVERED, RetryOutcome.WAITING}
    assert await bridge.place.depth(DEAD_LETTER_QUEUE) == 0
    return retries


async def come_again(bridge: Bridge, reason: int) -> None:
    """Dead-letter the only waiting message, and retry it. The client gets the same message."""
    (before,) = await bridge.arrived(1)
    expected = content_of(before)
    bridge.transmissions.clear()
    bridge.backend.dead_letter(before, reason)
    await bridge.flush()
    await bridge.place.application(_until_there)
    await retried(bridge)
    (again,) = await bridge.arrived(1)
    assert content_of(again) == expected


def content_of(transmission: Transmission) -> tuple[Any, ...]:
    """Return the content and recipient of a message, independent of the queue manager's representation."""
    message = transmission.message
    if isinstance(message, PublicationMessage):
        message = Message(message.md, message.data_as(retained=transmission.retained, user_data=transmission.user_data))
    whose = (transmission.client_id, transmission.remote_queue, transmission.persistent)
    try:
        headers = Headers(message, discard_others=True)
    except Unmappable:
        return *whose, message.md.Format, message.data
    mqps = (
        headers.topic or transmission.topic,
        headers.user_data or transmission.user_data,
        headers.retained or transmission.retained,
    )
    return *whose, *mqps, dict(headers.folder("mqtt")), dict(headers.folder("usr")), headers.format, headers.body


REASONS = [
    cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR,  # it has no session
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE,  # waiting_bytes
    cmqc.MQRC_MSG_TOO_BIG_FOR_CHANNEL,  # Maximum Packet Size
    cmqc.MQRC_RFH_FORMAT_ERROR,
]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_publication_for_a_client_is_retried_to_the_client(bridge: Bridge, reason: int, qos: int) -> None:
    await bridge.subscribed("c1", bridge.topic("#"), qos=qos)
    topic = bridge.topic("a/" * 30 + "ä")
    properties = PublishProperties(content_type="text/plain", user_property=(("site", "north"), ("site", "south")))
    sent = msgspec.structs.replace(publication(topic, bytes(range(256)), qos=qos, client_id="p"), properties=properties)
    await bridge.run_accepted(unit(sent))
    await come_again(bridge, reason)


@pytest.mark.smoke
async def test_a_retried_retained_publication_keeps_the_flag(bridge: Bridge) -> None:
    await bridge.retain(publication(bridge.topic("a"), b"kept"))
    await bridge.subscribed("c1", bridge.topic("a"))
    assert [transmission.retained for transmission in await bridge.arrived(1)] == [True]
    await come_again(bridge, cmqc.MQRC_Q_SPACE_NOT_AVAILABLE)


DIRECT = [
    {"data": b"direct", "Format": b"MQSTR", "Persistence": 1},
    {"data": bytes(range(256)), "Format": b"", "Persistence": 0, "CorrelId": b"c" * 24},
    {"data": b"RFH \0broken", "Format": cmqc.MQFMT_RF_HEADER_2},  # an unreadable RFH2
]


@pytest.mark.parametrize("sent", DIRECT)
async def test_a_direct_message_to_a_client_is_retried_to_the_client(bridge: Bridge, sent: dict[str, Any]) -> None:
    await bridge.place.put("alarms/7", manager="c1", **sent)
    await come_again(bridge, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)


async def test_a_message_for_a_returning_client_keeps_the_time_of_its_first_dead_lettering(
    bridge: Bridge,
) -> None:
    def listed(connection: Connection) -> list[DeadLetterMessage]:
        return list(DeadLetterQueue(connection, DEAD_LETTER_QUEUE).browse(Selection()))

    def retry_and_follow(connection: Connection) -> list[Retried]:
        return list(DeadLetterQueue(connection, DEAD_LETTER_QUEUE).retry(Selection(), timeout=PATIENCE))

    await bridge.place.put("alarms/7", manager="c1", data=b"direct")
    bridge.backend.dead_letter((await bridge.arrived(1))[0], cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
    await bridge.place.application(_until_there)
    (first,) = await bridge.place.application(listed)
    bridge.transmissions.clear()
    await asyncio.sleep(0.05)  # PutTime has hundredths of a second
    retrying = asyncio.create_task(bridge.place.application(retry_and_follow))
    bridge.backend.dead_letter((await bridge.arrived(1))[0], cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
    (retried_letter,) = await retrying
    assert retried_letter.outcome is RetryOutcome.RETURNED
    (again,) = await bridge.place.application(listed)
    assert (again.name, again.dead_lettered, again.put_time) == (first.name, first.dead_lettered, first.put_time)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("levels", [1, 40])
async def test_a_rejected_publication_is_published_on_retry(bridge: Bridge, retain: bool, levels: int) -> None:
    topic = bridge.topic("/".join(["shut"] * levels) + "ä" * levels)
    properties = PublishProperties(user_property=(("site", "north"),))
    name = await bridge.place.topic_object(topic, "PUB(DISABLED)")
    await bridge.subscribed("c1", topic)
    sent = msgspec.structs.replace(publication(topic, b"letter", qos=2), properties=properties)
    (completion,) = await bridge.run(unit(sent, retain=retain, dead_letters=[cmqc.MQRC_PUT_INHIBITED]))
    assert completion.diverted == {0: cmqc.MQRC_PUT_INHIBITED}
    (still,) = await bridge.place.application(retry)
    assert "MQRC_PUT_INHIBITED" in still.failure
    await bridge.place.command(f"ALTER TOPIC('{name}') PUB(ENABLED)")
    if retain:
        bridge.place.at_end.append(f"CLEAR TOPICSTR('{topic}') CLRTYPE(RETAINED)")
    (retried_letter,) = await retried(bridge)
    assert retried_letter.place == f"topic {topic!r}"
    (transmission,) = await bridge.arrived(1)
    assert (transmission.client_id, transmission.topic, content_of(transmission)[-1]) == ("c1", topic, b"letter")
    assert ("site", "north") in content_of(transmission)[7].items()
    bridge.transmissions.clear()
    await bridge.subscribed("late", topic)
    assert [content_of(transmission)[-1] for transmission in await bridge.settled()] == ([b"letter"] if retain else [])


@pytest.mark.smoke
async def test_a_rejected_answer_is_retried_to_its_queue(bridge: Bridge) -> None:
    await bridge.place.command("DEFINE QLOCAL(ANSWERS) REPLACE PUT(DISABLED)")
    bridge.place.at_end.append("DELETE QLOCAL(ANSWERS) PURGE")
    answer = msgspec.structs.replace(publication(bridge.topic("answer"), b"42"), reply_to=("ANSWERS", ""))
    (completion,) = await bridge.run(unit(answer, dead_letters=[cmqc.MQRC_PUT_INHIBITED]))
    assert completion.diverted == {0: cmqc.MQRC_PUT_INHIBITED}
    await bridge.place.command("ALTER QLOCAL(ANSWERS) PUT(ENABLED)")
    await retried(bridge)
    assert (await bridge.place.take("ANSWERS")).data.endswith(b"42")


def _until_there(connection: Connection) -> None:
    """Wait for a message on the dead-letter queue."""
    until(lambda: list(DeadLetterQueue(connection, DEAD_LETTER_QUEUE).browse(Selection())))
