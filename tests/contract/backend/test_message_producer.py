"""Puts of mappings: destinations, identity, identifiers, properties, retained publications, and errors."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bridge.mq.message_producer import MessageProducer
from bridge.mq.mqi import GetOptions, MQError
from bridge.telemetry.message import Destination, KeptRequest, MappedMessage, Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_rfh2
from tests.helpers.mq_applications import Application, Workplace, refused

RFH2 = GetOptions(Options=cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)


def mapped(
    name: str, body: bytes = b"", *, topic: bool = False, properties: Any = None, retain: bool = False, **md: Any
) -> MappedMessage:
    return MappedMessage(
        destination=Destination(name, topic),
        message=Message(MQMD(**md), body),
        properties=properties or {},
        retain=retain,
    )


@pytest.fixture
def producer(app: Application) -> MessageProducer:
    return MessageProducer(app.connection)


@pytest.mark.smoke
def test_messages_wait_for_the_commit_and_keep_their_order(
    mq: Workplace, app: Application, other: Application, producer: MessageProducer
) -> None:
    queues = [mq.queue(), mq.queue()]
    for number in range(4):
        producer.put(mapped(queues[number % 2], b"%d" % number))
    assert other.all(queues[0]) == []
    app.commit()
    producer.committed()
    assert [other.all(queue) for queue in queues] == [[b"0", b"2"], [b"1", b"3"]]


def test_few_handles_reach_many_destinations(mq: Workplace, app: Application, other: Application) -> None:
    queues = [mq.queue() for _ in range(5)]
    producer = MessageProducer(app.connection, handles=2)
    for _ in range(2):
        for queue in queues:
            producer.put(mapped(queue, b"x"))
    app.commit()
    assert [other.all(queue) for queue in queues] == [[b"x", b"x"]] * 5


@pytest.mark.parametrize(("msg_id", "is_preserved"), [(b"", False), (b"mine".ljust(24, b"\0"), True)])
def test_the_message_identifier_is_new_unless_it_is_given(
    queue: str, app: Application, producer: MessageProducer, msg_id: Any, is_preserved: bool
) -> None:
    producer.put(mapped(queue, **({"MsgId": msg_id} if msg_id else {})))
    app.commit()
    put_msg_id = app.take(queue).md.MsgId
    assert put_msg_id != cmqc.MQMI_NONE
    assert (put_msg_id == msg_id) is is_preserved


def test_a_given_user_identifier_is_set(queue: str, app: Application, producer: MessageProducer) -> None:
    producer.put(mapped(queue, UserIdentifier=b"sensor"))
    producer.put(mapped(queue))
    app.commit()
    users = [app.take(queue).md.UserIdentifier.rstrip(b" \0") for _ in range(2)]
    assert users[0] == b"sensor"
    assert users[1] != b"sensor"


def test_properties_are_separate_from_the_message(queue: str, app: Application, producer: MessageProducer) -> None:
    properties = {"mqtt.clientId": "c", "mqtt.qos": 1, "site": "Köln", "usr.big": 1 << 40, "usr.late": True}
    producer.put(mapped(queue, b"body", properties=properties, Format=cmqc.MQFMT_STRING))
    app.commit()
    message = app.get(app.open_queue(queue), RFH2)
    header = decode_rfh2(message.data)
    folders = {folder.name: folder.content for folder in header.folders}
    assert (message.data[header.StrucLength :], header.Format) == (b"body", cmqc.MQFMT_STRING)
    assert folders["mqtt"] == {"clientId": "c", "qos": 1}
    assert folders["usr"] == {"site": "Köln", "big": 1 << 40, "late": True}


def test_publications_to_topics_are_retained_as_specified(
    mq: Workplace, app: Application, other: Application, producer: MessageProducer
) -> None:
    topic = mq.name("topic")
    _, queue = other.subscribe(topic)
    producer.put(mapped(topic, b"1", topic=True, retain=True))
    producer.put(mapped(topic, b"2", topic=True))
    app.commit()
    assert other.drain(queue, cmqc.MQGMO_NO_PROPERTIES) == [b"1", b"2"]
    _, late = other.subscribe(topic)
    assert other.drain(late, cmqc.MQGMO_NO_PROPERTIES) == [b"1"]


@pytest.mark.parametrize(
    ("attributes", "body", "reason"),
    [
        ("MAXDEPTH(0)", b"", cmqc.MQRC_Q_FULL),
        ("PUT(DISABLED)", b"", cmqc.MQRC_PUT_INHIBITED),
        ("MAXMSGL(2)", b"123", cmqc.MQRC_MSG_TOO_BIG_FOR_Q),
    ],
)
def test_errors_name_the_destination_that_rejected_a_message(
    mq: Workplace, app: Application, producer: MessageProducer, attributes: str, body: bytes, reason: int
) -> None:
    queue = mq.queue(attributes)
    with pytest.raises(MQError, match=queue) as error:
        producer.put(mapped(queue, body))
    assert error.value.reason == reason


def test_an_undefined_queue_is_reported_and_found_once_defined(
    mq: Workplace, app: Application, other: Application, producer: MessageProducer
) -> None:
    name = mq.name("LATER")
    with pytest.raises(MQError, match=name) as error:
        producer.put(mapped(name))
    assert error.value.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    mq.queue(name=name)
    producer.put(mapped(name, b"1"))
    app.commit()
    assert other.all(name) == [b"1"]


def test_a_stored_request_has_the_msgid_of_the_request(
    mq: Workplace, app: Application, other: Application, producer: MessageProducer
) -> None:
    queue, request_queue = mq.queue(), mq.queue()
    request = mapped(queue, b"question")
    request.kept = KeptRequest(request_queue, Message(MQMD(), b"way back"))
    producer.put(request)
    producer.put(request)
    app.commit()
    messages = [(app.take(request_queue), app.take(queue)) for _ in range(2)]
    assert [(record.data, question.data) for record, question in messages] == [(b"way back", b"question")] * 2
    assert all(record.md.MsgId == question.md.MsgId != cmqc.MQMI_NONE for record, question in messages)
    assert messages[0][0].md.MsgId != messages[1][0].md.MsgId


def test_no_request_is_stored_if_its_destination_does_not_exist(
    mq: Workplace, app: Application, other: Application, producer: MessageProducer
) -> None:
    request_queue = mq.queue()
    for destination, keeper, named in (
        ("NOT.DEFINED", request_queue, "queue NOT.DEFINED"),
        (mq.queue(), "NO.KEEPER", "NO.KEEPER"),
    ):
        request = mapped(destination, b"question")
        request.kept = KeptRequest(keeper, Message(MQMD(), b"way back"))
        with pytest.raises(MQError, match=named) as error:
            producer.put(request)
        assert error.value.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    app.commit()
    assert other.all(request_queue) == []


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_the_authority_of_the_publisher(mq: Workplace, queue: str, app: Application, kind: str) -> None:
    """The destination is opened for each user. The message has its own user, not that of the authority check."""
    user = os.environ.get("MQBRIDGE_TEST_ALTERNATE_USER", "app")
    topic = mq.name()
    node = mq.topic_object(topic)
    producer = MessageProducer(app.connection)
    message = mapped(queue if kind == "queue" else topic, topic=kind == "topic", UserIdentifier=b"sensor")
    producer.put(message)  # with the authority of the connection
    app.commit()
    message.authority = user
    with refused(cmqc.MQRC_NOT_AUTHORIZED):
        producer.put(message)
    whose = f"PROFILE('{queue if kind == 'queue' else node}') OBJTYPE({kind.upper()}) PRINCIPAL('{user}')"
    mq.command(f"SET AUTHREC {whose} AUTHADD({'PUT' if kind == 'queue' else 'PUB'})")
    mq.at_end(f"DELETE AUTHREC {whose}")
    producer.put(message)
    app.commit()
    if kind == "queue":
        assert [app.take(queue).md.UserIdentifier.rstrip(b" \0") for _ in range(2)] == [b"sensor", b"sensor"]
