"""A watch over workers that wait for the queue manager, which neither answers nor breaks the connection."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from bridge.mq.worker import Worker

log = logging.getLogger(__name__)

#: Seconds after which the log says that the queue manager does not answer, and between looks.
ANSWER_TIMEOUT, ANSWER_LOOK = 30.0, 1.0


class AnswerWatch:
    """Looks at workers on the event loop, and says in the log which of them the queue manager keeps waiting."""

    def __init__(self, workers: Sequence[Worker[Any]], loop: asyncio.AbstractEventLoop) -> None:
        self._workers = workers
        self._loop = loop
        #: names of the workers that wait in vain
        self.silent: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the workers now, and again and again."""
        now = time.monotonic()
        for worker in self._workers:
            since = worker.busy_since
            if since and now - since > ANSWER_TIMEOUT and worker.name not in self.silent:
                self.silent.add(worker.name)
                log.error(
                    "MQB4006E %s: the queue manager has not answered for %d s; the heartbeat interval of its channel "
                    "(HBINT) decides "
                    "when the connection is given up",
                    worker.name,
                    now - since,
                )
            elif worker.name in self.silent and not (since and now - since > ANSWER_TIMEOUT):
                self.silent.discard(worker.name)
                log.warning("MQB4007W %s: the queue manager answers again", worker.name)
        self._timer = self._loop.call_later(ANSWER_LOOK, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
