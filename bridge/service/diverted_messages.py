"""Detection of client messages that the queue manager itself moves to its dead-letter queue, and since when.

IBM MQ does so if a subscription's destination takes no messages (USEDLQ(YES)). The publisher is not notified. Source: IBM MQ
documentation, "USEDLQ" of DEFINE TOPIC, "Dead-letter queues".
"""

from __future__ import annotations

import logging
from typing import Final

from bridge.mq.dead_letter import dead_letters_made
from bridge.mq.host import QueueManagerStatus, QueueStatus

log = logging.getLogger(__name__)

#: A transmission queue that was full counts as full until its depth falls below this fraction of MAXDEPTH.
_ROOM: Final = 0.9
#: Seconds without growth after which the dead-letter queue is no longer reported.
CALM: Final = 60.0


class DivertedMessages:
    """Compares one inspection of the queues with the one before, and logs when a problem begins and ends."""

    def __init__(self) -> None:
        self._refusal = ""
        self._depth: int | None = None
        self._made = dead_letters_made()
        #: this process's dead-lettered messages that may be committed after the last inspection
        self._own = 0
        self._grown_by = 0
        self._grown_at = 0.0
        self._names = "", ""

    @property
    def problems(self) -> list[str]:
        """The problems found by the last inspection, for display."""
        transmission_queue, dead_letter_queue = self._names
        found = []
        if self._refusal:
            found.append(
                f"transmission queue {transmission_queue} takes no messages: {self._refusal}; publications for clients go to "
                "the dead-letter queue"
            )
        if self._grown_by:
            found.append(f"dead-letter queue {dead_letter_queue} grows: {self._grown_by} messages are not from this bridge")
        return found

    def review(self, found: QueueManagerStatus, transmission_queue: str, now: float) -> None:
        """Compare an inspection with the previous one; `now` is monotonic time in seconds."""
        self._names = transmission_queue, found.dead_letter_queue
        queues = {one.name: one for one in found.queues}
        if (queue := queues.get(transmission_queue)) is not None:
            self._review_transmission_queue(queue)
        if found.diverts_silently:
            self._review_dead_letter_queue(queues.get(found.dead_letter_queue), now)

    def _review_transmission_queue(self, queue: QueueStatus) -> None:
        refusal = ""
        if queue.put_inhibited:
            refusal = "PUT(DISABLED)"
        elif queue.depth >= queue.max_depth * (_ROOM if self._refusal else 1):
            refusal = f"it is full, MAXDEPTH({queue.max_depth})"
        if refusal and refusal != self._refusal:
            log.error(
                "MQB9104E transmission queue %s takes no messages: %s; publications for clients go to the dead-letter queue",
                queue.name,
                refusal,
            )
        elif self._refusal and not refusal:
            log.info("MQB9105I transmission queue %s takes messages again", queue.name)
        self._refusal = refusal

    def _review_dead_letter_queue(self, queue: QueueStatus | None, now: float) -> None:
        before, self._depth = self._depth, None if queue is None else queue.depth
        made_before, self._made = self._made, dead_letters_made()
        if queue is None or before is None:
            return
        made, growth = self._made - made_before, queue.depth - before
        own = self._own + made
        # The unit of work of a dead-lettered message may end after this inspection.
        self._own = min(made, max(own - max(growth, 0), 0))
        grown = growth - own
        if grown > 0:
            if not self._grown_by:
                log.error(
                    "MQB9106E dead-letter queue %s has grown by %d messages that are not from this bridge", queue.name, grown
                )
            self._grown_by += grown
            self._grown_at = now
        elif self._grown_by and now - self._grown_at >= CALM:
            log.info("MQB9107I dead-letter queue %s no longer grows", queue.name)
            self._grown_by = 0
