"""Detection of client messages that the queue manager itself moves to its dead-letter queue.

IBM MQ does so if a subscription's destination accepts no messages (USEDLQ(YES)). The publisher is not notified. Source: IBM
MQ documentation, "USEDLQ" of DEFINE TOPIC, "Dead-letter queues".
"""

from __future__ import annotations

from typing import Final

from bridge.mq.dead_letter import dead_letters_made
from bridge.mq.host import QueueManagerStatus

#: Seconds without growth after which the dead-letter queue is no longer reported.
CALM: Final = 60.0


class DivertedMessages:
    """Counts messages on the dead-letter queue that this bridge did not put, by comparing inspections of the queue."""

    def __init__(self) -> None:
        #: messages put by others, or 0 again after a minute without growth
        self.number = 0
        self._grown_at = 0.0
        self._depth: int | None = None
        self._made = dead_letters_made()
        #: this process's dead-lettered messages that may be committed after the last inspection
        self._own = 0

    def review(self, status: QueueManagerStatus, now: float) -> None:
        """Compare an inspection with the previous one; `now` is monotonic time in seconds."""
        if not status.diverts_silently:
            return
        queue = next((one for one in status.queues if one.name == status.dead_letter_queue), None)
        before, self._depth = self._depth, None if queue is None else queue.depth
        made_before, self._made = self._made, dead_letters_made()
        if queue is None or before is None:
            return
        made, growth = self._made - made_before, queue.depth - before
        own = self._own + made
        # The unit of work of a dead-lettered message may end after this inspection.
        self._own = min(made, max(own - max(growth, 0), 0))
        by_others = growth - own
        if by_others > 0:
            self.number += by_others
            self._grown_at = now
        elif self.number and now - self._grown_at >= CALM:
            self.number = 0
