"""Coordination of the workers: their order after a loss and between browse passes, and detection of missing replies."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bridge.mq.ibm.transmission import QueuedMessage
from bridge.mq.mqi import Got, MQError
from bridge.mq.worker import Worker, WorkerEvents
from bridge.telemetry.record import StateKey, StateRecord

log = logging.getLogger(__name__)


class BackendEvents(WorkerEvents):
    """Events of the workers of `IbmBackend`, reported on their threads."""

    def standing_by(self, why: str) -> None:
        """Handle the detection of another active bridge."""

    def took_over(self, records: dict[StateKey, tuple[bytes, StateRecord]]) -> None:
        """Take the records, with the MsgIds of their messages, when this bridge has become active."""

    def refused(self, error: MQError) -> None:
        """Handle a permanent error that prevents the bridge from becoming active."""

    def may_dead_letter(self, client_id: str, length: int) -> bool:
        """Return whether a rejected publication may be dead-lettered. If so, count it."""
        return True

    def browsed(self, batch: Sequence[QueuedMessage]) -> None:
        """Deliver browsed messages. Each message is reported once."""

    def malformed(self, message: Got, reason: int) -> None:
        """Dead-letter a browsed message without valid headers."""

    def has_caught_up(self) -> None:
        """Note that all messages that were on the transmission queue at the start have been browsed."""

    def ended(self, jobs: Sequence[Any], reason: int) -> None:
        """Report that jobs of a publisher or remover have ended, with MQRC_NONE or the reason code of their failure."""
        for job in jobs:
            job.done(reason)

    def removed(self, msg_ids: Sequence[bytes]) -> None:
        """Forget messages whose removal from the transmission queue is committed."""

    def dropped(self, client: str, topic_filter: str, reason: int) -> None:
        """Handle the loss of a subscription of a client, given by its queue manager name."""

    def received_share(self, share: str) -> None:
        """Note that messages of a shared subscription were moved to the transmission queue, as requested."""

    def limited_share(self, share: str, number: int) -> None:
        """Note that messages of a shared subscription were removed, because too many were waiting."""

    def unreachable(self) -> None:
        """Handle an outage of the queue manager. Called on the event loop."""


#: Maximum time for which publishers and the browser wait for each other, in seconds. A pass takes so long only if the
#: transmission queue fills faster than the bridge reads it, and a commit only if the queue manager hangs.
WAIT_TIMEOUT = 60.0
#: Seconds after the last commit of a publisher until the browser waits in MQGET. Until then, it polls.
QUIET = 1.0
#: Seconds between the passes of a browser that polls.
MIN_PAUSE, POLL_INTERVAL = 0.001, 0.005


class SubscriptionBarrier:
    """Delays publishers after a lost connection until the subscriptions exist again. Callable on any thread.

    The subscriptions of clean sessions end with the connection that created them. After an outage of the queue manager, a
    publisher that reconnected first would publish messages that no connected client receives.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._losses = 0
        self._assured = 0

    @property
    def losses(self) -> int:
        """The number of losses so far. Read it before the check whose success is reported with `assure`."""
        with self._changed:
            return self._losses

    def lost(self) -> int:
        """Count a loss and return its number."""
        with self._changed:
            self._losses += 1
            return self._losses

    def assure(self, number: int) -> None:
        """Report that the subscriptions were restored after the loss with this number."""
        with self._changed:
            self._assured = max(self._assured, number)
            self._changed.notify_all()

    def wait(self, number: int, is_given_up: Callable[[], bool]) -> bool:
        """Wait until the subscriptions exist again after a loss. Return False if `is_given_up` returns True."""
        with self._changed:
            while self._assured < number:
                if is_given_up():
                    return False
                self._changed.wait(0.25)
            return True


class BrowsePasses:
    """Keeps publications in order while the browser reads from its cursor. Callable on any thread.

    A pass of the browser begins at the front of the queue (MQGMO_BROWSE_FIRST) and continues from the cursor
    (MQGMO_BROWSE_NEXT) to the end. It does not see a message that is committed behind the cursor, but the next pass does. If
    a publisher committed during a pass, messages behind the cursor would be delivered after later messages of the same
    publisher. So publishers commit between passes, and a pass waits for the commits in progress. Neither side starves.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pass_in_progress = False
        #: whether the browser waits to begin a pass
        self._waiting = False
        #: numbers of publishers that wait to commit, that commit before the next pass, and that are committing
        self._publishers, self._first, self._committing = 0, 0, 0
        #: whether a publisher has committed since the current pass began
        self._wanted = False
        #: time.monotonic() of the last commit
        self._committed = 0.0

    def begin(self) -> None:
        """Begin a pass when no commit is in progress. Called before the MQGET that begins at the front."""
        with self._changed:
            self._waiting = True
            self._changed.wait_for(lambda: not self._committing and not self._first, WAIT_TIMEOUT)
            self._waiting, self._first = False, 0
            self._pass_in_progress, self._wanted = True, False

    def end(self) -> None:
        """End a pass. The next MQGET begins another pass."""
        with self._changed:
            self._pass_in_progress = False
            self._first = self._publishers
            self._changed.notify_all()

    @property
    def quiet(self) -> bool:
        """Whether no publisher has committed recently, so that the browser waits in MQGET."""
        return time.monotonic() - self._committed >= QUIET

    def rest(self) -> None:
        """Wait until the next pass is wanted, between MIN_PAUSE and POLL_INTERVAL."""
        time.sleep(MIN_PAUSE)
        with self._changed:
            self._changed.wait_for(lambda: self._wanted, POLL_INTERVAL - MIN_PAUSE)

    @contextmanager
    def commit(self, is_given_up: Callable[[], bool]) -> Iterator[None]:
        """Commit in this block, which begins when no pass is in progress, or when `is_given_up` returns True."""
        until = time.monotonic() + WAIT_TIMEOUT
        with self._changed:
            self._publishers += 1
            while (self._pass_in_progress or (self._waiting and not self._first)) and not is_given_up():
                if time.monotonic() >= until:
                    break
                self._changed.wait(0.25)
            self._publishers -= 1
            self._first = max(self._first - 1, 0)
            self._committing += 1
        try:
            yield
        finally:
            with self._changed:
                self._committing -= 1
                self._committed = time.monotonic()
                self._wanted = True
                self._changed.notify_all()


#: Seconds without a reply after which the queue manager counts as hanging, and seconds between checks.
ANSWER_TIMEOUT, ANSWER_LOOK = 30.0, 1.0
#: The reason why a hanging queue manager does not answer.
NO_REPLY: Final = "connected, but no reply: the queue manager, its machine or the network hangs"
#: Seconds without an answer after which the connections of the other vital workers are probed.
SUSPICION = 2.0


class AnswerWatch:
    """Checks on the event loop whether the queue manager answers the workers.

    The queue manager counts as unreachable when one of the `vital` workers has received no answer for `outage_timeout`
    seconds, neither on its connection nor to attempts to reconnect, and the others have received none for half of that. One
    worker alone is not sufficient, because it may be busy with a long message.
    """

    def __init__(
        self,
        workers: Sequence[Worker[Any]],
        loop: asyncio.AbstractEventLoop,
        *,
        events: BackendEvents | None = None,
        vital: Sequence[Worker[Any]] = (),
        outage_timeout: float | None = None,
    ) -> None:
        self._workers = workers
        self._loop = loop
        self._vital = vital
        self._outage_timeout = outage_timeout
        #: the workers without a reply, and when that began, in seconds since the epoch
        self.silent: dict[str, float] = {}
        #: whether the queue manager is unreachable
        self.outage = False
        self._events = events or BackendEvents()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check the workers now, and again at intervals."""
        now = time.monotonic()
        for worker in self._workers:
            since = worker.busy_since
            if since and now - since > ANSWER_TIMEOUT:
                # The list of problems reports a hanging queue manager once for all workers.
                self.silent.setdefault(worker.name, time.time() - (now - since))
            else:
                self.silent.pop(worker.name, None)
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
                    worker.request_probe()
        # The probe of the other workers begins later than the call that caused it.
        elif not self.outage and now - min(waiting) >= timeout and now - max(waiting) >= timeout / 2:
            self.outage = True
            log.error(
                "MQB4012E the queue manager has been unreachable for %d s; closing the connections of all clients, so that "
                "they can connect to a standby",
                now - min(waiting),
            )
            self._events.unreachable()

    def stop(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
