"""A look at the embedded queue manager: all its queues that somebody has defined, without a walk over messages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.storage.layout import write_ahead_log
from bridge.mq.queue_manager_status import QueueManagerStatus, QueueStatus

#: Queues that are told of, at most.
MOST_QUEUES: Final = 500


class EmbeddedInquiry:
    """`bridge.mq.queue_manager_status.QueueManagerInquiry`, from any thread."""

    interval = 0.0

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager

    def look(self, queues: Sequence[str], *, ages: bool = True) -> QueueManagerStatus:
        queue_manager = self._queue_manager
        # Names of dynamic queues are made up: each would be another one.
        defined = {name: one for name, one in list(queue_manager.queues.items()) if "DEFTYPE" not in one.attributes}
        names = dict.fromkeys([*(name for name in queues if name in defined), *sorted(defined)])
        shown = list(names)[:MOST_QUEUES]
        now = time.time()
        database = queue_manager.data_directory / "queuemanager.db"
        sizes = {}
        for what, path in (("database", database), ("write_ahead_log", write_ahead_log(database))):
            if path.exists():
                sizes[what] = path.stat().st_size
        return QueueManagerStatus(
            queues=[_status(defined[name], now) for name in shown],
            left_out=len(defined) - len(shown),
            retained=len(queue_manager.retained),
            file_sizes=sizes,
            dead_letter_queue=str(queue_manager.attributes["DEADQ"]),
            diverts_silently=False,
            disk_full=queue_manager.recovery_log.reserve.full,
        )

    def close(self) -> None:
        return


def _status(queue: Queue, now: float) -> QueueStatus:
    # Each of the chains may change meanwhile: its first message is looked at once.
    firsts = [first.put_time for chain in list(queue.chains.values()) if (first := chain.first) is not None]
    return QueueStatus(
        name=queue.name,
        transmission=queue.is_transmission,
        depth=queue.depth,
        max_depth=queue.max_depth,
        oldest_message_age=max(now - min(firsts), 0.0) if firsts else None,
        input_handles=queue.inputs,
        output_handles=queue.outputs,
        put_inhibited=not queue.put_enabled,
    )
