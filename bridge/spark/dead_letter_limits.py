"""The limits of a pipeline's dead letters on a queue (`limits.dead_letter_bytes`, `limits.dead_letter_total`).

The dead letters of a batch count together. They are put if the limits are not reached before it. So a batch that is larger
than the limits does not wait forever.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from bridge.config.mapping import DeadLettersFull
from bridge.mq.dead_letter_room import DeadLetterRoom, owner_of_pipeline
from bridge.mq.mqi import MQOD, Connection, inquire
from bridge.spark import MqDataSource
from bridge.spark.environment import LetterCounts
from bridge.spark.failures import DeadLettersRejected
from bridge.spark.mq.queue_manager import queue_manager_options_of
from bridge.spark.mq.writer import WRITE_OPTIONS
from bridge.telemetry.identity import AS_IS
from bridge.wire import cmqc

#: Seconds after which the messages on the queue are counted again. They are also counted again if the depth has fallen.
_INTERVAL: Final = 15.0


class DeadLetterLimits:
    """Decides whether the dead letters of a batch are put on the queue. Only one thread uses it."""

    def __init__(
        self, pipeline: str, queue: str, queue_manager: Mapping[str, str], counts: LetterCounts, full: DeadLettersFull
    ) -> None:
        """`queue_manager` contains the options of the sink `mq`."""
        self._pipeline = pipeline
        self._queue = queue
        self._options = {**queue_manager, "queue": queue}
        self._counts = counts
        self._full = full
        self._owner = owner_of_pipeline(pipeline)
        self._room = DeadLetterRoom(counts.limits)
        self._depth = 0
        self._counted_at: float | None = None
        #: dead letters of the current batch that were discarded
        self.discarded = 0

    def admit(self, messages: int, size: int) -> bool:
        """Count dead letters with `size` bytes of data. Return False if they are discarded.

        Raises DeadLettersRejected if the pipeline pauses, and MQError.
        """
        self._count()
        limit = self._room.reached(self._owner)
        if not limit:
            self._room.add(self._owner, messages, size)
            return True
        if self._full == "pause":
            raise DeadLettersRejected(
                f"too many dead letters of the pipeline are on queue {self._queue} (limits.{limit}), and the batch has"
                f" {messages} more"
            )
        self.discarded += messages
        return False

    def _count(self) -> None:
        """Count the messages on the queue, if the pipeline's user may do that."""
        options = queue_manager_options_of(MqDataSource(self._options).write_options(WRITE_OPTIONS))
        with options.connected() as connection:
            self._room.try_scan(partial(self._scan, connection))

    def _scan(self, connection: Connection) -> None:
        (depth,), _ = inquire(connection, MQOD(ObjectName=self._queue), (cmqc.MQIA_CURRENT_Q_DEPTH,))
        before, self._depth = self._depth, depth
        now = time.monotonic()
        if self._counted_at is None or depth < before or now - self._counted_at >= _INTERVAL:
            self._counted_at = now
            self._room.scan(connection, self._queue, self._counts.application, self._counts.mappings, AS_IS)
