"""Sources of mappings: order, limits, exclusive use, units of work, and changes of a topic filter."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.mq.message_consumer import OPENED_ELSEWHERE, ConsumerSource, MessageConsumer, remove_subscription
from bridge.mq.mqi import MQOD, MQError, Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_rfh2
from tests.helpers.mq_applications import Application, Connect, Workplace

MANY, LARGE, LONG = 100, 1 << 30, 60.0


def bodies(messages: Any) -> list[bytes]:
    """Return the bodies of messages, without the RFH2 of publications."""
    return [
        message.data[decode_rfh2(message.data).StrucLength :]
        if message.md.Format == cmqc.MQFMT_RF_HEADER_2
        else message.data
        for message in messages
    ]


def take(
    consumer: MessageConsumer,
    messages: Any = MANY,
    size: Any = LARGE,
    seconds: Any = LONG,
    wait: float = 0.0,
    **keywords: Any,
) -> list[bytes]:
    return bodies(consumer.take(messages, size, seconds, wait, **keywords))


def settle(app: Application, consumer: MessageConsumer) -> None:
    app.commit()
    consumer.ended()


@pytest.fixture
def consumer(app: Application, queue: str) -> MessageConsumer:
    return MessageConsumer(app.connection, ConsumerSource(mapping="m", queue=queue))


@pytest.fixture(autouse=True)
def mapping(connect: Connect) -> Iterator[str]:
    """Return an unused mapping name. Its subscriptions are deleted after all applications of the test have ended."""
    name = f"map.{uuid.uuid4().hex[:12]}"
    yield name
    connection = connect()
    remove_subscription(connection, name)
    connection.disconnect()


@pytest.mark.parametrize(
    ("messages", "size", "seconds", "expected"),
    [
        (MANY, LARGE, LONG, [b"0000", b"1111", b"2222"]),
        (2, LARGE, LONG, [b"0000", b"1111"]),
        (MANY, 4, LONG, [b"0000"]),
        (MANY, 5, LONG, [b"0000", b"1111"]),
        (MANY, 1, LONG, [b"0000"]),
        (MANY, LARGE, 0.0, [b"0000"]),
    ],
)
def test_messages_arrive_in_order_up_to_the_limits(
    app: Application, consumer: MessageConsumer, queue: str, messages: Any, size: Any, seconds: Any, expected: Any
) -> None:
    for body in (b"0000", b"1111", b"2222"):
        app.put(queue, body)
    assert take(consumer, messages, size, seconds) == expected


@pytest.mark.smoke
def test_a_queue_is_open_for_one_mapping_only(
    app: Application, other: Application, consumer: MessageConsumer, queue: str
) -> None:
    with pytest.raises(MQError) as error:
        MessageConsumer(other.connection, ConsumerSource(mapping="another", queue=queue))
    assert error.value.reason in OPENED_ELSEWHERE
    consumer.close()
    app.put(queue, b"1")
    assert take(MessageConsumer(other.connection, ConsumerSource(mapping="another", queue=queue))) == [b"1"]


@pytest.mark.smoke
def test_backed_out_messages_return_with_a_backout_count(
    app: Application, consumer: MessageConsumer, queue: str
) -> None:
    app.put(queue, b"1")
    counts = []
    for _ in range(3):
        (message,) = consumer.take(MANY, LARGE, LONG, 0.0)
        counts.append(message.md.BackoutCount)
        app.backout()
        consumer.ended()
    assert counts == [0, 1, 2]


def test_messages_arrive_complete_and_unconverted(app: Application, consumer: MessageConsumer, queue: str) -> None:
    text = "Straße".encode("cp500")
    app.put(queue, text, Format=cmqc.MQFMT_STRING, CodedCharSetId=500)
    app.put(queue, b"x" * 1_000_000)
    first, second = consumer.take(MANY, LARGE, LONG, 0.0)
    assert (first.data, first.md.CodedCharSetId, first.md.Format) == (text, 500, cmqc.MQFMT_STRING)
    assert (len(second.data), second.Reason) == (1_000_000, cmqc.MQRC_NONE)


def test_properties_arrive_in_an_rfh2(app: Application, consumer: MessageConsumer, queue: str) -> None:
    app.connection.put1(
        MQOD(ObjectName=queue), Message(MQMD(Format=cmqc.MQFMT_STRING), b"body"), 0, [Property(name="usr.n", value="v")]
    )
    (message,) = consumer.take(MANY, LARGE, LONG, 0.0)
    header = decode_rfh2(message.data)
    assert [(folder.name, folder.content) for folder in header.folders] == [("usr", {"n": "v"})]
    assert (message.data[header.StrucLength :], header.Format) == (b"body", cmqc.MQFMT_STRING)


def test_messages_are_found_by_their_identifiers(app: Application, consumer: MessageConsumer, queue: str) -> None:
    ids = [app.put(queue, body).MsgId for body in (b"1", b"2", b"3")]
    absent = b"absent".ljust(24, b"\0")
    assert bodies(consumer.take_exactly([ids[2], absent, ids[0]])) == [b"3", b"1"]
    settle(app, consumer)
    assert take(consumer) == [b"2"]


def test_an_answer_uses_its_stored_request(mq: Workplace, app: Application, other: Application, queue: str) -> None:
    requests = mq.queue()
    consumer = MessageConsumer(app.connection, ConsumerSource(mapping="m", queue=queue, requests_queue=requests))
    first, second = (other.put(requests, body).MsgId for body in (b"first", b"second"))
    answers = [MQMD(CorrelId=identifier) for identifier in (second, bytes(24), b"\1" * 24, second)]

    def requests_of_answers() -> Any:
        return [None if request is None else request.data for request in map(consumer.request_of, answers)]

    assert requests_of_answers() == [b"second", None, None, None]
    app.backout()
    assert requests_of_answers() == [b"second", None, None, None]
    app.commit()
    assert requests_of_answers() == [None] * 4
    assert consumer.request_of(MQMD(CorrelId=first)).data == b"first"
    app.commit()
    consumer.close()


def test_a_source_without_its_requests_is_not_left_open(
    mq: Workplace, app: Application, other: Application, queue: str
) -> None:
    source = ConsumerSource(mapping="m", queue=queue, requests_queue="NOT.DEFINED")
    for _ in range(2):
        with pytest.raises(MQError) as error:
            MessageConsumer(app.connection, source)
        assert error.value.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME


def test_the_depth_is_reported(app: Application, consumer: MessageConsumer, queue: str) -> None:
    for _ in range(3):
        app.put(queue)
    assert consumer.depth == 3


# Topics ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def topics(mq: Workplace) -> Any:
    """Return a topic without other publishers."""
    return mq.name("topic")


def by_topic(app: Application, mapping: str, topic_filter: Any) -> MessageConsumer:
    return MessageConsumer(app.connection, ConsumerSource(mapping=mapping, topic_filter=topic_filter))


def test_publications_wait_while_the_mapping_does_not_run(
    mq: Workplace, app: Application, other: Application, mapping: str, topics: Any
) -> None:
    consumer = by_topic(app, mapping, f"{topics}/+/t")
    app.publish(f"{topics}/1/t", b"1")
    app.publish(f"{topics}/1/u", b"other")
    assert take(consumer) == [b"1"]
    settle(app, consumer)
    app.connection.disconnect()

    other.publish(f"{topics}/2/t", b"2")
    again = by_topic(mq.application(), mapping, f"{topics}/+/t")
    assert again.depth == 1
    assert take(again) == [b"2"]


def test_a_subscription_is_open_for_one_mapping_only(
    app: Application, other: Application, mapping: str, topics: Any
) -> None:
    consumer = by_topic(app, mapping, topics)
    with pytest.raises(MQError) as error:
        by_topic(other, mapping, topics)
    assert error.value.reason in OPENED_ELSEWHERE
    consumer.close()
    app.publish(topics, b"1")
    assert take(by_topic(other, mapping, topics)) == [b"1"]


def test_a_retained_publication_arrives_first_with_the_flag(app: Application, mapping: str, topics: Any) -> None:
    app.publish(topics, b"state", options=cmqc.MQPMO_RETAIN)
    (message,) = by_topic(app, mapping, topics).take(MANY, LARGE, LONG, 0.0)
    folders = {folder.name: folder.content for folder in decode_rfh2(message.data).folders}
    assert folders["mqps"]["Top"] == topics
    assert folders["mqps"]["Ret"]


def test_after_a_filter_change_waiting_messages_arrive_first(
    mq: Workplace, app: Application, other: Application, mapping: str, topics: Any
) -> None:
    consumer = by_topic(app, mapping, f"{topics}/old/#")
    app.publish(f"{topics}/old/1", b"old 1")
    app.connection.disconnect()

    app = mq.application()
    consumer = by_topic(app, mapping, f"{topics}/new/#")
    other.publish(f"{topics}/old/2", b"old 2")
    assert take(consumer) == [b"old 1", b"old 2"]
    assert take(consumer) == []
    app.backout()
    consumer.ended()
    assert take(consumer) == [b"old 1", b"old 2"], "without a commit, the old subscription stays"
    settle(app, consumer)

    assert take(consumer) == []
    other.publish(f"{topics}/old/3", b"nobody's")
    other.publish(f"{topics}/new/1", b"new 1")
    assert take(consumer) == [b"new 1"]
    settle(app, consumer)

    app.connection.disconnect()
    app = mq.application()
    consumer = by_topic(app, mapping, f"{topics}/old/#")
    assert take(consumer) == []
    other.publish(f"{topics}/old/4", b"old 4")
    assert take(consumer) == [b"old 4"], "and back again"


def test_a_mapping_that_is_removed_leaves_no_subscription(
    app: Application, other: Application, mapping: str, topics: Any
) -> None:
    consumer = by_topic(app, mapping, topics)
    other.publish(topics, b"1")
    assert consumer.remove() == 1
    other.publish(topics, b"2")
    assert take(by_topic(app, mapping, topics)) == []


def test_browse_returns_each_message_once_and_leaves_it(app: Application, mapping: str) -> None:
    topic = f"t/{mapping}"
    consumer = MessageConsumer(app.connection, ConsumerSource(mapping=mapping, topic_filter=topic))
    for body in (b"1", b"2", b"3"):
        app.publish(topic, body)
    browsed = [consumer.browse() for _ in range(3)]
    assert bodies(browsed) == [b"1", b"2", b"3"]
    assert consumer.browse() is None
    assert consumer.depth == 3
    consumer.take_browsed()
    app.publish(topic, b"4")
    consumer.browse_from_front()
    assert bodies([consumer.browse()]) == [b"4"]
    consumer.take_browsed()
    # In any order, by their MsgTokens.
    assert bodies([consumer.browse_again(browsed[1].MsgToken)]) == [b"2"]
    consumer.take_browsed()
    assert consumer.browse_again(browsed[1].MsgToken) is None
    assert consumer.browse() is None
    app.commit()
    assert take(consumer) == [b"1"]


def test_a_message_of_higher_priority_is_browsed_from_the_front(app: Application, mapping: str) -> None:
    topic = f"t/{mapping}"
    consumer = MessageConsumer(app.connection, ConsumerSource(mapping=mapping, topic_filter=topic))
    app.publish(topic, b"low", Priority=0)
    assert bodies([consumer.browse()]) == [b"low"]
    app.publish(topic, b"high", Priority=9)
    consumer.browse_from_front()
    assert bodies([consumer.browse()]) == [b"high"]
    assert consumer.browse() is None
