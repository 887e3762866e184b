"""When the bridge reports that the queue manager moves messages for clients to its dead-letter queue."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bridge.mq.dead_letter import OriginContext, dead_letter
from bridge.mq.host import QueueManagerStatus, QueueStatus
from bridge.service.diverted_messages import CALM, DivertedMessages
from bridge.wire.mq import MQMD


class Inspections:
    """Inspections of a transmission queue X with MAXDEPTH 10 and a dead-letter queue D, a second apart."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.diverted = DivertedMessages()
        self._caplog = caplog
        self._now = 0.0

    def find(self, depth: int = 0, dead: int = 0, *, after: float = 1.0, **transmission: Any) -> list[str]:
        """Return the identifiers of the lines that findings are logged with."""
        self._now += after
        self._caplog.clear()
        common: dict[str, Any] = {"oldest_message_age": None, "input_handles": 0, "output_handles": 0}
        queues = [
            QueueStatus(name="X", transmission=True, depth=depth, max_depth=10, **common, **transmission),
            QueueStatus(name="D", transmission=False, depth=dead, max_depth=10_000, **common),
        ]
        self.diverted.review(QueueManagerStatus(queues=queues, dead_letter_queue="D"), "X", self._now)
        return [record.getMessage().split()[0] for record in self._caplog.records]


@pytest.fixture
def inspections(caplog: pytest.LogCaptureFixture) -> Inspections:
    return Inspections(caplog)


def test_a_full_transmission_queue_is_a_problem_until_it_has_room(inspections: Inspections) -> None:
    assert inspections.find(9) == []
    assert inspections.find(10) == ["MQB9104E"]
    assert inspections.find(9) == [], "it would be full again at once"
    assert inspections.diverted.problems == [
        "transmission queue X takes no messages: it is full, MAXDEPTH(10); publications for clients go to the dead-letter "
        "queue"
    ]
    assert inspections.find(8) == ["MQB9105I"]
    assert inspections.diverted.problems == []


def test_an_inhibited_transmission_queue_is_a_problem(inspections: Inspections) -> None:
    assert inspections.find(put_inhibited=True) == ["MQB9104E"]
    assert "PUT(DISABLED)" in inspections.diverted.problems[0]
    assert inspections.find(10) == ["MQB9104E"], "now for another reason"
    assert inspections.find(0) == ["MQB9105I"]


def test_messages_that_the_queue_manager_dead_letters_are_a_problem_for_a_while(inspections: Inspections) -> None:
    assert inspections.find(dead=5) == [], "those were there before"
    assert inspections.find(dead=7) == ["MQB9106E"]
    assert inspections.find(dead=10) == []
    assert inspections.diverted.problems == ["dead-letter queue D grows: 5 messages are not from this bridge"]
    assert inspections.find(dead=10, after=CALM - 1) == []
    assert inspections.find(dead=3, after=1) == ["MQB9107I"]
    assert inspections.diverted.problems == []
    assert inspections.find(dead=4) == ["MQB9106E"]


def test_dead_letters_of_the_bridge_itself_are_no_growth(inspections: Inspections) -> None:
    inspections.find()
    for _ in range(3):
        dead_letter(MQMD(), b"", 2053, "Q", "", OriginContext.now("mqbridge"))
    assert inspections.find(dead=1) == []
    assert inspections.find(dead=3) == [], "two were committed after the inspection"
    dead_letter(MQMD(), b"", 2053, "Q", "", OriginContext.now("mqbridge"))
    assert inspections.find(dead=4) == []
    assert inspections.find(dead=5) == ["MQB9106E"], "each of its own counts once"
