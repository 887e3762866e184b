"""What new subscriptions of clients begin with: the retained publications that their filters name (MQTT 3.1.1 section 3.8.4).

Clients take turns, and one turn of the event loop looks at a bounded number of levels of the topic tree, whatever filters
there are and however much is retained.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.unit import Unit, whole

log = logging.getLogger(__name__)

#: Looks at levels of the topic tree in one turn of the event loop, and those of one client before the next has its turn.
LOOKS_AT_A_TURN, LOOKS_OF_A_CLIENT = 10_000, 2_000

#: A subscription, and what is left of the walk along the retained publications that it names.
Waiting: TypeAlias = tuple[Subscription, Iterator[str | None]]


class Beginnings:
    """The new subscriptions of clients for which not all retained publications are put yet; all on one event loop."""

    def __init__(self, queue_manager: QueueManager, loop: asyncio.AbstractEventLoop) -> None:
        self._queue_manager = queue_manager
        self._loop = loop
        self._waiting: dict[str, deque[Waiting]] = {}
        #: of this turn of the event loop
        self._looks: float = LOOKS_AT_A_TURN
        self._scheduled = False

    def put(self, work: Unit, subscription: Subscription) -> list[Waiting]:
        """Put retained publications in the unit of work that makes a subscription, as many as this turn allows.

        Returns what is to be added when the subscription is made, if there may be more.
        """
        topics = self._queue_manager.retained.named_by(subscription)
        if self._looks:
            self._looks = self._queue_manager.put_retained(work, subscription, topics, self._looks)
            self._schedule()
        return [] if self._looks else [(subscription, topics)]

    def add(self, client_id: str, waiting: list[Waiting]) -> None:
        """Put the rest for new subscriptions of a client in turns to come."""
        if waiting:
            self._waiting.setdefault(client_id, deque()).extend(waiting)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._looks = LOOKS_AT_A_TURN
        if not self._waiting:
            return
        work = Unit()
        with self._queue_manager.lock:
            while self._waiting and self._looks:
                client_id = next(iter(self._waiting))
                mine = self._waiting.pop(client_id)
                allowed = min(self._looks, LOOKS_OF_A_CLIENT)
                left = self._put(work, *mine[0], allowed)
                self._looks -= allowed - left
                if left:
                    mine.popleft()
                if mine:
                    self._waiting[client_id] = mine  # behind the others
            if work.empty:
                self._schedule()
            else:
                # The next turn waits for the disk, so that what is put does not pile up before it.
                self._scheduled = True
                work.done = self._go_on
                self._queue_manager.recovery_log.submit(work)

    def _go_on(self, _reason: int) -> None:
        self._loop.call_soon(self._turn)

    def _put(self, work: Unit, subscription: Subscription, topics: Iterator[str | None], looks: float) -> float:
        """Return the looks that are left; more than 0 when the subscription has all it begins with."""
        if self._queue_manager.topics.subscriptions.get(subscription.name) is not subscription:
            return looks  # it has ended meanwhile, or was made anew
        try:
            with whole(work):
                return self._queue_manager.put_retained(work, subscription, topics, looks)
        except Exception:
            log.exception("MQB3209E retained publications for subscription %s cannot be put", subscription.name)
            return looks
