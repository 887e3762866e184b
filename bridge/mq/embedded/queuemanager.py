"""The embedded queue manager: its objects, its name resolution, and how messages get onto queues.

It lives in one process and is reached by verbs (`connection`), by whole units of work (`backend`) and by MQSC commands
(`commands`); all of them work on what is here, under one lock. Semantics follow IBM MQ's documentation; what it does not
do is refused with IBM's reason code, not done differently.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec

from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.embedded.attributes import Value, defaults
from bridge.mq.embedded.dead_letter import undelivered
from bridge.mq.embedded.delivery import delivery
from bridge.mq.embedded.messages import COUNTED_BYTES, Messages
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.report import report
from bridge.mq.embedded.restoration import RETAINED_QUEUE, SYSTEM_MAX_DEPTH, MessageRestorer, restore_objects
from bridge.mq.embedded.retained import PUT_LOOKS, RetainedPublications
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.storage.layout import hold
from bridge.mq.embedded.storage.recovery_log import RecoveryLog
from bridge.mq.embedded.storage.reserve import allocate_most, reserve_path
from bridge.mq.embedded.storage.store import Store, StoreError
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import Route
from bridge.mq.embedded.unit import Unit, undo
from bridge.mq.memory import MemoryWatermark
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class QueueManager(Messages):
    """A queue manager with its data in one directory.

    Raises DataDirectoryInUse when another process has it, StoreError when its database cannot be used.
    """

    def __init__(
        self,
        name: str,
        data_directory: Path,
        *,
        max_message_length: int = 4_194_304,
        memory: MemoryWatermark | None = None,
    ) -> None:
        super().__init__(name)
        if memory is not None:
            self.memory = memory
        self.data_directory = data_directory
        data_directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._held = hold(data_directory)
        self.lock = threading.RLock()
        self.attributes["MAXMSGL"] = max_message_length
        #: what ALTER QMGR has set, as kept on disk; it wins over the defaults and over `max_message_length`
        self.altered: dict[str, Value] = {}
        #: retained publications in force, by topic string
        self.retained = RetainedPublications()
        #: records of MQTT sessions, by client identifier
        self.states: dict[str, StoredMessage] = {}
        store = self._open_store()
        self._starts = store.starts
        #: seconds since the epoch
        self.created = store.created
        self.started = time.time()
        #: next number for a message: the start count makes it unique over restarts
        self._next = (store.starts << 40) + 1
        self.recovery_log = RecoveryLog(store, self.lock)
        self.recovery_log.queues = self.queues.values
        #: what is connected (`bridge.mq.embedded.verbs.hconn.Hconn`)
        self.applications: WeakSet[Any] = WeakSet()
        #: it is about to end: no new connections, and calls that ask to fail then do
        self.quiescing = False
        self._connections = itertools.count(1)
        #: callables that run when the queue manager ends
        self.on_close: list[Callable[[], None]] = []
        self._load(store)

    def _open_store(self) -> Store:
        """Open the database, with the reserve's space if the disk is full."""
        reserve = reserve_path(self.data_directory)
        reserved = reserve.exists()
        reserve.unlink(missing_ok=True)
        try:
            return Store(self.data_directory / "queuemanager.db")
        except StoreError:
            if reserved:
                allocate_most(reserve)  # other programs would use the space before the next attempt
            raise

    def _load(self, store: Store) -> None:
        self.altered.update(restore_objects(self, store))
        for stored in self.recovery_log.replay(MessageRestorer(self.queues).restored):
            stored.queue.append(stored)
            stored.queue.depth += 1
            if stored.queue.name == RETAINED_QUEUE and stored.topic is not None:
                self.retained[stored.topic] = stored
            elif stored.queue.name == STATE_QUEUE and stored.client_id:
                self.states[stored.client_id] = stored
        for queue in self.queues.values():
            queue.reset_statistics()

    def close(self) -> None:
        """End in order: every commit asked for is done, then the data directory is free. Idempotent."""
        if self._held.closed:
            return
        for call in self.on_close:
            call()
        self.recovery_log.close()
        self._held.close()

    def connection_id(self) -> bytes:
        """Return an identifier for a connection: unique, as MsgIds are, over restarts."""
        number = (self._starts << 40) + next(self._connections)
        return b"AMQC" + self.name.encode()[:12].ljust(12) + number.to_bytes(8, "big")

    # Messages --------------------------------------------------------------------------------------------------------

    def publish(
        self,
        unit: Unit,
        route: Route,
        message: AnyMessage,
        now: float,
        *,
        retain: bool = False,
        clear_retained: bool = False,
        application: str | None = "",
    ) -> int:
        """Publish a message in a unit of work; returns MQRC_NONE or the reason for which it is refused.

        MQRC_NO_SUBS_MATCHED is no refusal and not reported. A destination that cannot take its copy costs only that copy,
        unless the topic's PMSGDLV or NPMSGDLV says otherwise; the copy then goes to the dead-letter queue. Whatever is
        raised, nothing of the publication stays in the unit of work.
        """
        topics = self.topics
        if route.reviewed != topics.full_version:
            route.review(topics.full, topics.full_version)
        if route.refusal:
            return route.refusal
        md = message.md
        persistent = md.Persistence == 1 or (md.Persistence != 0 and route.default_persistent)
        length = message.length
        size = length + route.memory
        accepted = self._accepted + size
        if accepted < COUNTED_BYTES and not (self.memory.above or self.recovery_log.reserve.full):
            self._accepted = accepted
        else:
            # A publication that clears a retained one frees memory.
            clears = clear_retained and route.topic in self.retained
            reason = self.shortage(0 if clears else size, persistent or retain)
            if reason:
                return reason
        priority = md.Priority if md.Priority >= 0 else route.priority
        expires_at = now + md.Expiry / 10 if md.Expiry > 0 else 0.0
        marked = retain or clear_retained
        puts = unit.puts
        first = len(puts)
        try:
            for subscription in route.subscriptions:
                queue = subscription.queue
                if queue.depth >= queue.max_depth or length > queue.max_length or not queue.put_enabled:
                    reason = undelivered(self, unit, route, subscription, message, persistent, now)
                    if reason:
                        _withdraw(puts, first)
                        return reason
                    continue
                number = self._next
                self._next = number + 1 if (number + 1) & 0xFFFF else number + 2
                queue.depth += 1
                puts.append(
                    StoredMessage(
                        queue,
                        number,
                        message,
                        persistent,
                        priority,
                        now,
                        subscription.client_id,
                        subscription.remote_queue,
                        route.topic,
                        subscription.user_data,
                        marked and subscription.retain_as_published,
                        subscription.correl_id,
                        None,
                        expires_at,
                        persistent and not subscription.ephemeral,
                        put_application=application,
                    )
                )
            if route.selective:
                kept = StoredMessage(
                    self.queues[RETAINED_QUEUE],
                    0,
                    message,
                    persistent,
                    priority,
                    now,
                    topic=route.topic,
                    expires_at=expires_at,
                    put_application=application,
                )
                for subscription in route.selective:
                    stored = delivery(self.next_number(), subscription, kept)
                    if stored is None:
                        continue
                    stored.retained = marked and subscription.retain_as_published
                    if stored.queue.refusal(length):
                        reason = undelivered(self, unit, route, subscription, message, persistent, now)
                        if reason:
                            _withdraw(puts, first)
                            return reason
                        continue
                    stored.queue.depth += 1
                    puts.append(stored)
            if clear_retained:
                unit.changes.latest.append((self.retained, route.topic, None))
            elif retain:
                queue = self.queues[RETAINED_QUEUE]
                queue.depth += 1
                kept = StoredMessage(
                    queue,
                    self.next_number(),
                    message,
                    persistent,
                    priority,
                    now,
                    topic=route.topic,
                    retained=True,
                    expires_at=expires_at,
                    durable=persistent,
                    put_application=application,
                )
                puts.append(kept)
                unit.changes.latest.append((self.retained, route.topic, kept))
            return cmqc.MQRC_NONE
        except BaseException:
            _withdraw(puts, first)
            raise

    def put_retained(
        self, unit: Unit, subscription: Subscription, topics: Iterator[str | None] | None = None, looks: float = math.inf
    ) -> float:
        """Put the retained publications that a new subscription names to its destination.

        `topics` are what is left of `RetainedPublications.named_by`. Returns the looks that are left of `looks`; 0 says
        that there may be more to put. One that is put counts for `PUT_LOOKS`.
        """
        for topic in self.retained.named_by(subscription) if topics is None else topics:
            looks -= 1 if topic is None else PUT_LOOKS
            kept = None if topic is None else self.retained.get(topic)
            if kept is not None and not kept.expired and not subscription.queue.refusal(kept.message.length):
                stored = delivery(self.next_number(), subscription, kept)
                if stored is not None:
                    stored.retained = True
                    stored.queue.depth += 1
                    unit.puts.append(stored)
            if looks <= 0:
                return 0
        return looks

    def discard(self, stored: StoredMessage) -> None:
        """Remove a message that has expired."""
        stored.queue.take(stored)
        unit = Unit()
        unit.gets.append(stored)
        if stored.message.md.Report:
            report(self, unit, stored, cmqc.MQFB_EXPIRATION)
        if self.retained.get(stored.topic or "") is stored:
            del self.retained[stored.topic or ""]
        self.recovery_log.submit(unit)

    def back_out(self, unit: Unit) -> None:
        """Undo a unit of work that was not submitted."""
        undo(unit)

    # Subscriptions -------------------------------------------------------------------------------------------------

    def add_subscription(self, unit: Unit, subscription: Subscription, *, at_once: bool = False) -> None:
        """Let a subscription, new or altered, take part when the unit of work ends; on disk then when it is durable.

        At once: what its client publishes next is routed to it, though this unit of work may not have ended; what is put for
        it ends behind it. Raises MQError.
        """
        if subscription.selector and subscription.selection is None:
            subscription.selection = selection_of(self.appearance, subscription.selector)
        before = self.topics.subscriptions.get(subscription.name)
        if subscription.durable:
            unit.changes.definitions.append(self.subscription_row(subscription))
        elif before is not None and before.durable:
            unit.changes.definitions.append(("SUB", subscription.name, None))
        if not at_once:
            unit.changes.effects.append(lambda: self.topics.add(subscription))
            return
        self.topics.add(subscription)
        unit.changes.undone.append(lambda: self.topics.replace(subscription.name, before))

    def remove_subscription(self, unit: Unit, name: str) -> Subscription | None:
        """End a subscription at once; None when there is none of that name."""
        subscription = self.topics.remove(name)
        if subscription is not None:
            unit.changes.undone.append(partial(self.topics.add, subscription))
        if subscription is not None and subscription.durable:
            unit.changes.definitions.append(("SUB", name, None))
        if subscription is not None and subscription.managed:
            queue = subscription.queue
            for stored in list(queue.messages()):
                queue.take(stored)
                unit.gets.append(stored)
            if not queue.temporary:
                unit.changes.definitions.append(("QLOCAL", queue.name, None))
            unit.changes.effects.append(lambda: self._forget(queue))
        return subscription

    def _forget(self, queue: Queue) -> None:
        self.queues.pop(queue.name, None)

    def managed_queue(self, unit: Unit, *, durable: bool) -> Queue:
        """Make a queue for a managed subscription."""
        kind = "DURABLE" if durable else "NDURABLE"
        name = f"SYSTEM.MANAGED.{kind}.{self.next_number():016X}"
        queue = Queue(name, defaults("QLOCAL") | {"MAXDEPTH": SYSTEM_MAX_DEPTH, "MAXMSGL": 104_857_600})
        queue.temporary = not durable
        self.queues[name] = queue
        unit.changes.undone.append(partial(self._forget, queue))
        if durable:
            unit.changes.definitions.append(("QLOCAL", name, msgspec.json.encode(queue.attributes).decode()))
        return queue


def _withdraw(puts: list[StoredMessage], first: int) -> None:
    """Take back what was put of a publication that is refused."""
    for stored in puts[first:]:
        stored.queue.depth -= 1
    del puts[first:]
