"""Handles of frequently used topics, and publications that wait for the queue manager's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import pytest

from bridge.mq.ibm.topics import COUNTED, MIN_USES, PROBATION, TOPIC_HANDLES, Suspects, TopicHandles
from bridge.mq.mqi import MQOD, Connection


class Opened:
    """Count MQOPEN and MQCLOSE."""

    def __init__(self) -> None:
        self.open_handles: set[int] = set()
        self.calls: Counter[str] = Counter()

    def open(self, od: MQOD, _options: int) -> int:
        self.calls["open"] += 1
        self.open_handles.add(self.calls["open"])
        assert len(self.open_handles) <= TOPIC_HANDLES
        return self.calls["open"]

    def close(self, handle: int) -> None:
        self.calls["close"] += 1
        self.open_handles.remove(handle)


def publish(topics: TopicHandles, connection: Opened, names: Iterable[Any], user: str = "") -> list[int | None]:
    return [topics.handle(cast(Connection, connection), str(name), user) for name in names]


@pytest.mark.parametrize(
    ("number", "publications", "opened"),
    [
        pytest.param(1, MIN_USES - 1, 0, id="a topic with few publications"),
        pytest.param(20, 4_000, 20, id="few topics"),
        pytest.param(10_000, 30_000, 0, id="a topic for each device"),
        pytest.param(240, 40_000, TOPIC_HANDLES, id="more hot topics than handles"),
    ],
)
def test_frequently_used_topics_get_handles(number: int, publications: int, opened: int) -> None:
    connection = Opened()
    handles = publish(TopicHandles(), connection, (turn % number for turn in range(publications)))
    assert connection.calls == Counter(open=opened) - Counter()
    assert handles.count(None) >= number * min(opened, MIN_USES - 1) or not opened


def test_an_unused_handle_is_replaced_by_that_of_a_frequently_used_topic() -> None:
    connection, topics = Opened(), TopicHandles()
    publish(topics, connection, [turn % TOPIC_HANDLES for turn in range(COUNTED)])
    assert publish(topics, connection, ["new"] * MIN_USES)[-1] is None, "the others are in use"
    assert publish(topics, connection, ["new"] * 2 * COUNTED)[-1] is not None
    assert connection.calls["close"] == 1


def test_each_user_has_separate_handles() -> None:
    connection, topics = Opened(), TopicHandles()
    first = publish(topics, connection, ["t"] * MIN_USES, user="a")
    second = publish(topics, connection, ["t"] * MIN_USES, user="b")
    assert first[-1] != second[-1]
    assert first[0] is second[0] is None


def test_publications_wait_for_their_answer_after_a_rejection() -> None:
    suspects = Suspects()
    suspects.refused("dev", "t/wrong", "user")
    assert suspects.includes("dev", "t/other", "user"), "the client"
    assert suspects.includes("other", "t/wrong", "user"), "the topic, with the same user"
    assert not suspects.includes("other", "t/wrong", "admin")
    assert not suspects.includes("other", "t/other", "user")
    suspects.accepted("other", "t/wrong", "user")
    assert not suspects.includes("other", "t/wrong", "user")
    for _ in range(PROBATION):
        assert suspects.includes("dev", "t/other", "user")
        suspects.accepted("dev", "t/other", "user")
    assert not suspects.includes("dev", "t/other", "user")
