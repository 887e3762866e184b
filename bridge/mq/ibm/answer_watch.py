"""A watch over the workers: which of them wait for the queue manager in vain, and whether it is unreachable."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from bridge.mq.worker import Worker

log = logging.getLogger(__name__)

#: Seconds after which the log reports that the queue manager does not answer, and between looks.
ANSWER_TIMEOUT, ANSWER_LOOK = 30.0, 1.0
#: Seconds without an answer after which the connections of the other vital workers are probed.
SUSPICION = 2.0


class AnswerWatch:
    """Looks at the workers on the event loop.

    The queue manager is unreachable when one of the `vital` workers has had no answer for `outage_timeout` seconds, neither
    over the connection that it had nor by connecting again, and the others have had none for half of that. One worker alone
    proves nothing, because it may be busy with a long message.
    """

    def __init__(
        self,
        workers: Sequence[Worker[Any]],
        loop: asyncio.AbstractEventLoop,
        *,
        vital: Sequence[Worker[Any]] = (),
        outage_timeout: float | None = None,
    ) -> None:
        self._workers = workers
        self._loop = loop
        self._vital = vital
        self._outage_timeout = outage_timeout
        #: Names of the workers that wait in vain.
        self.silent: set[str] = set()
        #: Whether the queue manager is unreachable.
        self.outage = False
        #: Called on the loop when an outage begins.
        self.on_outage: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the workers now, and again at intervals."""
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
                log.info("MQB4007I %s: the queue manager answers again", worker.name)
        if self._outage_timeout is not None and self._vital:
            self._look_for_outage(now, self._outage_timeout)
        self._timer = self._loop.call_later(ANSWER_LOOK, self.start)

    def _look_for_outage(self, now: float, timeout: float) -> None:
        unanswered = [worker.unanswered_since for worker in self._vital]
        waiting = [since for since in unanswered if since and now - since >= min(SUSPICION, timeout)]
        if not waiting:
            if self.outage:
                self.outage = False
                log.info("MQB4013I the queue manager is reachable again; clients can connect")
            return
        if len(waiting) < len(self._vital):
            for worker, since in zip(self._vital, unanswered, strict=True):
                if not since:
                    worker.look()
        # The probe of the others begins later than the call that made them suspect.
        elif not self.outage and now - min(waiting) >= timeout and now - max(waiting) >= timeout / 2:
            self.outage = True
            log.error(
                "MQB4012E the queue manager has been unreachable for %d s; closing the connections of all clients, so that "
                "they can connect to a standby",
                now - min(waiting),
            )
            self.on_outage()

    def stop(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
