"""The limits for backlogs of mappings that read topics: rejected publishers, and counted messages."""

from __future__ import annotations

from typing import Final

import pytest

from bridge.mq.embedded.mapping_backlog import MappingBacklog, MappingBacklogLimits
from bridge.mq.memory import MESSAGE_OVERHEAD
from bridge.mq.message_consumer import ConsumerSource, MessageConsumer
from bridge.mq.mqi import MQError
from bridge.wire import cmqc
from tests.helpers.embedded_manager import Manager

#: The length of the messages, and the bytes that each counts.
LENGTH: Final = 88
SIZE: Final = LENGTH + MESSAGE_OVERHEAD
LIMIT: Final = 100 * SIZE


def limits(*, total: int = 100 * LIMIT) -> MappingBacklogLimits:
    limits_of_mappings = MappingBacklogLimits()
    limits_of_mappings.owner_bytes, limits_of_mappings.total_bytes = LIMIT, total
    return limits_of_mappings


def publish(backlog: MappingBacklog, publisher: str, number: int = 1) -> int:
    """Publish messages. Return how many the backlog has accepted."""
    accepted = 0
    for _ in range(number):
        if not backlog.is_large or backlog.accepts(publisher, LENGTH):
            backlog.add(LENGTH)
            accepted += 1
    return accepted


def consume(backlog: MappingBacklog, number: int) -> None:
    for _ in range(number):
        backlog.remove(LENGTH)


def test_one_publisher_is_accepted_up_to_the_limit() -> None:
    backlog = MappingBacklog("m", limits())
    assert publish(backlog, "a", 1_000) == 100
    consume(backlog, 10)
    assert publish(backlog, "a", 1_000) == 10


def test_a_fast_publisher_does_not_stop_slow_ones() -> None:
    """It publishes a thousand times as much, and the mapping processes a message for each of the slow ones."""
    backlog = MappingBacklog("m", limits())
    publish(backlog, "fast", 1_000)
    for _ in range(1_000):
        publish(backlog, "fast", 100)
        assert publish(backlog, "slow") == 1
        consume(backlog, 1)


def test_several_equal_publishers_are_limited_together() -> None:
    backlog = MappingBacklog("m", limits())
    accepted = sum(publish(backlog, f"p{number % 7}") for number in range(10_000))
    assert 100 <= accepted <= 126


def test_former_publishers_do_not_count() -> None:
    backlog = MappingBacklog("m", limits())
    publish(backlog, "former", 1_000)
    consume(backlog, 100)
    assert publish(backlog, "a", 90) + publish(backlog, "b", 5) == 95
    assert publish(backlog, "a", 100) == 5
    assert publish(backlog, "b") == 1


def test_the_number_of_counted_publishers_is_limited() -> None:
    backlog = MappingBacklog("m", limits())
    for number in range(20_000):
        publish(backlog, f"p{number}")
    assert len(backlog._publishers) <= 200


def test_the_total_of_all_mappings_affects_the_largest() -> None:
    shared = limits(total=LIMIT)
    large, small = MappingBacklog("large", shared), MappingBacklog("small", shared)
    assert publish(large, "a", 1_000) == 100
    assert publish(small, "b", 1_000) == 50
    large.end()
    assert publish(small, "b", 1_000) == 50


def test_each_publication_beyond_the_limit_is_reported() -> None:
    reported: list[str] = []
    shared = limits()
    shared.on_excess = reported.append
    publish(MappingBacklog("m", shared), "a", 103)
    assert reported == ["m", "m", "m"]


# On the queue manager --------------------------------------------------------------------------------------------------


def topics_of(manager: Manager) -> MappingBacklogLimits:
    return manager.itself.objects.topics.mapping_limits


def limit(manager: Manager, messages: int) -> None:
    topics = topics_of(manager)
    topics.owner_bytes = topics.total_bytes = messages * SIZE


def consumer(manager: Manager, topic_filter: str = "t/#") -> MessageConsumer:
    return MessageConsumer(manager.connection, ConsumerSource(mapping="m", topic_filter=topic_filter))


def put(manager: Manager, number: int, *, persistent: bool = True) -> int:
    """Publish messages of an application in separate units of work. Return how many were accepted."""
    accepted = 0
    for _ in range(number):
        try:
            manager.publish("t/1", bytes(LENGTH), persistent=persistent)
        except MQError as error:
            assert error.reason == cmqc.MQRC_Q_SPACE_NOT_AVAILABLE
            continue
        accepted += 1
    return accepted


def depth(manager: Manager) -> int:
    (queue,) = (queue for name, queue in manager.itself.objects.queues.items() if name.startswith("SYSTEM.MANAGED."))
    return queue.depth


@pytest.mark.parametrize("persistent", [True, False])
def test_publications_beyond_the_limit(manager: Manager, persistent: bool) -> None:
    """Persistent ones are rejected. Others are accepted, and reach other subscribers only."""
    manager.ok("DEFINE QLOCAL(OTHER)")
    manager.ok("DEFINE SUB(other) TOPICSTR('t/#') DEST(OTHER)")
    consumer(manager)
    limit(manager, 10)
    assert put(manager, 15, persistent=persistent) == (10 if persistent else 15)
    assert depth(manager) == 10
    assert len(manager.get_all("OTHER")) == (10 if persistent else 15)


def test_counted_messages(manager: Manager) -> None:
    """Messages on the queue count, except those that were got or backed out. After a restart, the recovered
    messages count.
    """
    mapping = consumer(manager)
    limit(manager, 10)
    assert put(manager, 15) == 10
    assert len(mapping.take(4, 1 << 30, 60.0, 0.0)) == 4
    manager.connection.backout()
    mapping.ended()
    assert put(manager, 5) == 0
    assert len(mapping.take(4, 1 << 30, 60.0, 0.0)) == 4
    manager.connection.commit()
    mapping.ended()
    assert put(manager, 2) == 2
    manager.restart()
    assert topics_of(manager).bytes == 8 * SIZE
    limit(manager, 10)
    assert put(manager, 5) == 2


def test_a_lower_limit_removes_nothing(manager: Manager) -> None:
    consumer(manager)
    assert put(manager, 20) == 20
    limit(manager, 10)
    assert put(manager, 5) == 0
    assert depth(manager) == 20


def test_a_removed_mapping_does_not_count(manager: Manager) -> None:
    mapping = consumer(manager)
    limit(manager, 10)
    assert put(manager, 15) == 10
    assert mapping.remove() == 10
    assert (topics_of(manager).bytes, topics_of(manager).number) == (0, 0)
    assert put(manager, 15) == 15


def test_subscriptions_of_others_have_no_such_limit(manager: Manager) -> None:
    manager.ok("DEFINE SUB(other) TOPICSTR('t/#') DESTCLAS(MANAGED)")
    limit(manager, 10)
    assert put(manager, 15) == 15
