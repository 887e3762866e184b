"""The durable subscriptions of mappings on the embedded queue manager: restarts, retained publications, and clean-up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bridge.mq.backend import UnitOfWork
from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.message_consumer import ConsumerSource, MessageConsumer, mapping_subscriptions, remove_subscription
from bridge.mq.message_producer import MessageProducer
from bridge.mq.mqi import MQOD, MQSD, GetOptions
from bridge.telemetry.message import Destination, MappedMessage, Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_rfh2
from tests.helpers.embedded_manager import Manager
from tests.helpers.patience import PATIENCE

MANAGED = cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED


def received(messages: Any) -> list[tuple[bytes, bool]]:
    """Return bodies, and whether they are marked as retained."""
    publications = []
    for message in messages:
        header = decode_rfh2(message.data)
        mqps = next(folder.content for folder in header.folders if folder.name == "mqps")
        publications.append((message.data[header.StrucLength :], bool(mqps.get("Ret"))))
    return publications


def take(consumer: MessageConsumer) -> list[tuple[bytes, bool]]:
    return received(consumer.take(100, 1 << 30, 60.0, 0.0))


def consumer_of(connection: EmbeddedConnection, mapping: str = "m", topic_filter: str = "t/#") -> MessageConsumer:
    return MessageConsumer(connection, ConsumerSource(mapping=mapping, topic_filter=topic_filter))


def managed_queues(manager: Manager) -> list[str]:
    return [name for name in manager.itself.objects.queues if name.startswith("SYSTEM.MANAGED.")]


def test_subscription_queue_and_messages_survive_a_restart_and_are_deleted_together(manager: Manager) -> None:
    consumer_of(manager.connection)
    (queue,) = managed_queues(manager)
    manager.publish("t/1", b"1", retain=True)
    manager.publish("t/2", b"2")
    manager.restart()

    assert managed_queues(manager) == [queue]
    manager.publish("t/3", b"3", retain=True)
    consumer = consumer_of(manager.connection)
    assert consumer.depth == 3
    assert take(consumer) == [(b"1", True), (b"2", False), (b"3", True)]
    manager.connection.backout()
    consumer.ended()
    assert consumer.remove() == 3
    manager.restart()

    assert managed_queues(manager) == []
    assert not manager.itself.objects.topics.subscriptions


def test_live_publications_have_the_retained_mark_for_mappings_only(manager: Manager) -> None:
    _, plain = manager.connection.subscribe(MQSD(Options=MANAGED, ObjectString="t/#"))
    _, selective = manager.connection.subscribe(
        MQSD(Options=MANAGED, ObjectString="t/#", SubExpiry=36_000, RetainAsPublished=True)
    )
    manager.publish("t/1", b"1", retain=True)
    manager.publish("t/1", b"2")
    assert take(consumer_of(manager.connection)) == [(b"1", True)], "a later subscription gets the retained publication"
    for queue, marks in ((plain, [False, False]), (selective, [True, False])):
        options = GetOptions(Options=cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
        messages = [manager.connection.get(queue, options) for _ in range(2)]
        assert received(messages) == [(b"1", marks[0]), (b"2", marks[1])]


def test_the_subscription_keeps_the_mark_when_it_is_altered(manager: Manager) -> None:
    consumer_of(manager.connection)
    manager.ok("ALTER SUB('mqbridge mapping m') USERDATA('x')")
    manager.restart()
    manager.publish("t/1", b"1", retain=True)
    assert take(consumer_of(manager.connection)) == [(b"1", True)]


async def test_mappings_receive_the_clearing_of_a_retained_publication(manager: Manager) -> None:
    """MQTT-3.3.1-10: an empty payload with RETAIN is published, and not retained."""
    consumer = consumer_of(manager.connection)
    backend = EmbeddedBackend(manager.itself, "NONE", asyncio.get_running_loop())
    completed = asyncio.Event()
    backend.on_completed = lambda _completions: completed.set()
    unit = UnitOfWork()
    for payload in (b"state", b""):
        unit.publications.append((PublicationMessage(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), "c", "t/1", payload), True))
    assert not backend.submit(unit)
    await completed.wait()
    assert take(consumer) == [(b"state", True), (b"", True)]
    assert not manager.itself.retained


# Retained publications that are cleared --------------------------------------------------------------------------------


def mapped(body: bytes, *, retain: bool = False, clear: bool = False) -> MappedMessage:
    return MappedMessage(
        destination=Destination("t/1", True), message=Message(MQMD(), body), retain=retain, clear=clear
    )


@pytest.mark.parametrize(
    ("first", "second", "retained"),
    [
        ([mapped(b"1", retain=True)], [mapped(b"", clear=True)], None),
        ([], [mapped(b"1", retain=True), mapped(b"", clear=True)], None),
        ([mapped(b"1", retain=True)], [mapped(b"", clear=True), mapped(b"2", retain=True)], b"2"),
        ([], [mapped(b"", clear=True)], None),
    ],
)
def test_a_retained_publication_is_cleared_by_the_commit(
    manager: Manager, first: Any, second: Any, retained: bytes | None
) -> None:
    connection = EmbeddedConnection(manager.itself)
    producer = MessageProducer(connection)
    consumer = consumer_of(manager.connection)
    for unit in (first, second):
        for message in unit:
            producer.put(message)
        connection.commit()
        producer.committed()
    publication = manager.itself.retained.get("t/1")
    assert (publication and publication.message.data) == retained
    assert take(consumer) == [(publication.message.data, True) for publication in first + second], (
        "existing subscriptions get all publications"
    )


def test_a_backed_out_publication_clears_nothing(manager: Manager) -> None:
    manager.publish("t/1", b"1", retain=True)
    connection = EmbeddedConnection(manager.itself)
    producer = MessageProducer(connection)
    producer.put(mapped(b"", clear=True))
    connection.backout()
    producer.backed_out()
    producer.put(mapped(b"2"))
    connection.commit()
    producer.committed()
    assert manager.itself.retained["t/1"].message.data == b"1"


def test_removed_mappings_are_recognized_by_their_subscriptions(manager: Manager) -> None:
    connection = EmbeddedConnection(manager.itself)
    for mapping, topic_filter in (("a", "t/a"), ("a.b", "t/b"), ("a.b", "t/c")):
        consumer = consumer_of(connection, mapping, topic_filter)
        consumer.take(1, 1, 0.0, 0.0)
        consumer.close()
    manager.ok("DEFINE SUB('mqbridge') TOPICSTR('t/a') DESTCLAS(MANAGED)")
    manager.publish("t/c")
    assert mapping_subscriptions(connection) == {"a", "a.b"}
    assert remove_subscription(connection, "a.b") == 1
    assert remove_subscription(connection, "a.b") == 0
    assert mapping_subscriptions(connection) == {"a"}


# A change of the topic filter, under load -----------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [("t/+", "t/#"), ("t/#", "t/1"), ("t/1", "+/1")])
def test_no_message_is_lost_or_duplicated_when_the_filter_changes_under_load(
    manager: Manager, before: str, after: str
) -> None:
    """All publications match both filters, so each arrives exactly once, in order."""
    consumer_of(manager.connection, topic_filter=before).close()
    connection = EmbeddedConnection(manager.itself)
    consumer = consumer_of(connection, topic_filter=after)
    ended = threading.Event()
    room = threading.Semaphore(20)  # limits the backlog, so that the queue is sometimes empty
    published = 0

    def publish() -> None:
        nonlocal published
        publisher = EmbeddedConnection(manager.itself)
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="t/1")
        while room.acquire() and not ended.is_set():
            published += 1
            publisher.put1(od, Message(MQMD(), b"%d" % (published // 2)))
        publisher.disconnect()

    thread = threading.Thread(target=publish)
    thread.start()
    received_numbers: list[int] = []

    def move() -> int:
        """Run a unit of work. Every third one is backed out first."""
        messages = take(consumer)
        if len(received_numbers) % 3 == 0:
            connection.backout()
            consumer.ended()
            messages = take(consumer)
        connection.commit()
        consumer.ended()
        received_numbers.extend(int(body) for body, _ in messages)
        room.release(max(1, len(messages)))
        return len(messages)

    try:
        while {subscription.topic_filter for subscription in manager.itself.objects.topics.subscriptions.values()} != {
            after
        }:
            move()
    finally:
        ended.set()
        room.release()
        thread.join(PATIENCE)
    while move():
        pass
    assert received_numbers == [number // 2 for number in range(1, published + 1)]
