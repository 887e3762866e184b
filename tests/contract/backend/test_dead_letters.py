"""Dead letters of mappings: the MQDLH, followed by the unchanged message."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.dead_letter import DeadLetterRefused, DeadLetters
from bridge.mq.message_consumer import ConsumerSource, MessageConsumer
from bridge.telemetry.message import Destination
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.helpers.mq_applications import Application, Workplace

BODY = bytes(range(256))
LENGTH = 172


@pytest.fixture
def source(mq: Workplace) -> str:
    return mq.queue()


@pytest.fixture
def letters(mq: Workplace) -> str:
    return mq.queue()


@pytest.fixture
def received_message(app: Application, other: Application, source: str) -> Any:
    """Return a message that a mapping has received."""
    other.put(
        source,
        BODY,
        Format=b"MYFMT",
        CodedCharSetId=500,
        Encoding=cmqc.MQENC_NATIVE,
        CorrelId=b"c" * 24,
        MsgId=b"m" * 24,
        Persistence=1,
        Priority=3,
        ReplyToQ=b"ANSWERS",
    )
    (message,) = MessageConsumer(app.connection, ConsumerSource(mapping="m", queue=source)).take(1, 1, 1.0, 0.0)
    return message


@pytest.mark.parametrize(
    ("destination", "queue", "manager"),
    [
        (None, None, ""),
        (Destination("SOME.QUEUE"), "SOME.QUEUE", ""),
        (Destination("SOME.QUEUE", queue_manager="FAR"), "SOME.QUEUE", "FAR"),
        (Destination("t" * 47 + "ä", True), "t" * 47, ""),
    ],
)
def test_the_complete_message_follows_the_mqdlh(
    mq: Workplace,
    app: Application,
    other: Application,
    source: str,
    letters: str,
    received_message: Any,
    destination: Any,
    queue: str,
    manager: str,
) -> None:
    reason = cmqc.MQRC_Q_FULL
    DeadLetters(app.connection, letters, "prices", source).put(
        received_message.md, received_message.data, reason, "full", destination
    )
    assert other.all(letters) == []
    app.commit()

    letter = other.take(letters)
    header = decode_mqdlh(letter.data)
    assert letter.data[LENGTH:] == BODY
    assert (letter.md.Format, header.Format) == (cmqc.MQFMT_DEAD_LETTER_HEADER, b"MYFMT")
    assert (header.CodedCharSetId, header.Encoding, header.Reason) == (500, cmqc.MQENC_NATIVE, reason)
    assert header.DestQName.decode() == (source if queue is None else queue)
    assert header.DestQMgrName.decode() == (manager or mq.manager)
    assert (header.PutApplName, len(header.PutDate), len(header.PutTime)) == (b"prices", 8, 8)
    fields = ("MsgId", "CorrelId", "Persistence", "Priority", "ReplyToQ", "UserIdentifier", "PutDate", "PutTime")
    assert [getattr(letter.md, field) for field in fields] == [getattr(received_message.md, field) for field in fields]


@pytest.mark.smoke
def test_the_default_dead_letter_queue_is_that_of_the_queue_manager(
    mq: Workplace, app: Application, other: Application, letters: str, received_message: Any
) -> None:
    mq.alter(DEADQ=letters)
    DeadLetters(app.connection, "", "prices").put(received_message.md, received_message.data, cmqc.MQRC_Q_FULL, "full")
    app.commit()
    assert other.take(letters).data[LENGTH:] == BODY


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("MAXDEPTH(0)", cmqc.MQRC_Q_FULL),
        ("PUT(DISABLED)", cmqc.MQRC_PUT_INHIBITED),
        (None, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    ],
)
def test_a_message_is_not_lost_if_the_dead_letter_queue_rejects_it(
    mq: Workplace,
    app: Application,
    other: Application,
    source: str,
    received_message: Any,
    attributes: str | None,
    reason: int,
) -> None:
    queue = mq.name("NONE") if attributes is None else mq.queue(attributes)
    with pytest.raises(DeadLetterRefused, match=f"dead-letter queue {queue}") as error:
        DeadLetters(app.connection, queue, "prices").put(
            received_message.md, received_message.data, cmqc.MQRC_Q_FULL, "full"
        )
    assert error.value.reason == reason
    app.backout()
    app.connection.disconnect()
    assert other.all(source) == [BODY]


@pytest.mark.smoke
def test_a_message_too_long_for_the_dead_letter_queue_stays_on_its_queue(
    mq: Workplace, app: Application, other: Application, source: str, received_message: Any
) -> None:
    letters = mq.queue(f"MAXMSGL({LENGTH + 1})")
    with pytest.raises(DeadLetterRefused, match="raise MAXMSGL of the dead-letter queue") as error:
        DeadLetters(app.connection, letters, "prices", source).put(
            received_message.md, received_message.data, cmqc.MQRC_Q_FULL, "full"
        )
    assert error.value.reason == cmqc.MQRC_MSG_TOO_BIG_FOR_Q
    app.backout()
    app.connection.disconnect()
    assert (other.all(letters), other.all(source)) == ([], [BODY])
