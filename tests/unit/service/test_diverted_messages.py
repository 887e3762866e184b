"""The number of messages that the queue manager or applications put to the dead-letter queue."""

from __future__ import annotations

import pytest

from bridge.mq.dead_letter import OriginContext, dead_letter
from bridge.mq.host import QueueManagerStatus, QueueStatus
from bridge.service.queue_manager_watch import QUIET_PERIOD, DivertedMessages
from bridge.wire.mq import MQMD


class Inspections:
    """Inspections of a dead-letter queue, one per second."""

    def __init__(self) -> None:
        self._diverted = DivertedMessages()
        self._now = 0.0

    def find(self, depth: int = 0, *, after: float = 1.0) -> int:
        """Return the number of diverted messages after an inspection."""
        self._now += after
        queue = QueueStatus(
            name="D",
            transmission=False,
            depth=depth,
            max_depth=10_000,
            oldest_message_age=None,
            input_handles=0,
            output_handles=0,
        )
        self._diverted.review(QueueManagerStatus(queues=[queue], dead_letter_queue="D"), self._now)
        return self._diverted.number


@pytest.fixture
def inspections() -> Inspections:
    return Inspections()


def test_messages_that_the_queue_manager_dead_letters_are_counted_until_a_minute_without_growth(
    inspections: Inspections,
) -> None:
    assert inspections.find(5) == 0, "messages from before the first inspection do not count"
    assert inspections.find(7) == 2
    assert inspections.find(10) == 5
    assert inspections.find(10, after=QUIET_PERIOD - 1) == 5
    assert inspections.find(3) == 0
    assert inspections.find(4) == 1


def test_dead_letters_of_the_bridge_itself_are_not_counted(inspections: Inspections) -> None:
    inspections.find()
    for _ in range(3):
        dead_letter(MQMD(), b"", 2053, "Q", "", OriginContext.now("mqbridge"))
    assert inspections.find(1) == 0
    assert inspections.find(3) == 0, "two were committed after the inspection"
    dead_letter(MQMD(), b"", 2053, "Q", "", OriginContext.now("mqbridge"))
    assert inspections.find(4) == 0
    assert inspections.find(5) == 1, "each of its own counts once"
