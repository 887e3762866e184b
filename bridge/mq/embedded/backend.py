"""The backend of the embedded queue manager: units of work run on the event loop itself, commits gather for the disk."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

from bridge.config.queues import STATE_QUEUE
from bridge.mq.backend import Consumer, Recovered, SubscriptionRequest
from bridge.mq.commits import Commits
from bridge.mq.embedded.beginnings import Beginnings, Waiting
from bridge.mq.embedded.client_publications import APPLICATION_NAME, divert, put_answer, unretainable
from bridge.mq.embedded.client_subscriptions import client_subscriptions, refusal_to_receive, subscribe, unsubscribe
from bridge.mq.embedded.dead_letter import dead_letter
from bridge.mq.embedded.expiry import expire
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.retained import size_of
from bridge.mq.embedded.session_records import SessionRecords
from bridge.mq.embedded.unit import Unit, undo, whole
from bridge.mq.errors import MQError
from bridge.mq.segments import SegmentJoiner, separate
from bridge.mq.unit_of_work import Completion, UnitOfWork
from bridge.security.privileged import NOBODY
from bridge.telemetry.identity import AS_IS
from bridge.telemetry.subscription import topic_string
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)

#: Seconds between looks for messages and subscriptions that have expired (IBM MQ: EXPRYINT).
EXPIRY_INTERVAL = 10.0
#: Subscriptions of a resumed session that are authorized in one turn of the event loop. Each takes about 35 microseconds.
CHECKS_PER_TURN = 100

_STATE_DESCRIPTOR = MQMD(Persistence=cmqc.MQPER_PERSISTENT)


class EmbeddedBackend:
    """`bridge.mq.backend.Backend` on an embedded queue manager; call it on the thread of `loop`."""

    hands_over_at_once = True
    outage = False
    refuses_for_clients = True

    def __init__(
        self,
        queue_manager: QueueManager,
        transmission_queue: str,
        loop: asyncio.AbstractEventLoop,
        *,
        retained_bytes: int = 64 * 1024 * 1024,
        retained_total: int = 512 * 1024 * 1024,
    ) -> None:
        self.on_dropped: Callable[[str, str, int], None] = lambda _client_id, _filter, _reason: None
        self.on_completed: Callable[[Sequence[Completion]], None] = lambda _completions: None
        #: bytes that the retained publications of one user, and of all clients, may take
        self.retained_bytes, self.retained_total = retained_bytes, retained_total
        self._queue_manager = queue_manager
        self.transmission_queue = transmission_queue
        self.client_names = AS_IS
        self._loop = loop
        self._loop_thread = threading.get_ident()
        #: one thread, so that answers come in the order asked; it asks the operating system for the groups of users
        self._asker = ThreadPoolExecutor(1, "groups")
        #: clients that wait for that
        self._asking = 0
        self._consumer: Consumer = lambda _batch: None
        #: clients whose session has ended while messages for it may be on their way to the disk: the number that the
        #: messages of the next session come behind
        self._fences: dict[str, int] = {}
        #: the transmission queue, while it is open
        self._taken: Queue | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._records = SessionRecords(queue_manager, APPLICATION_NAME)
        self._beginnings = Beginnings(queue_manager, loop)
        queue_manager.recovery_log.dispatch = loop.call_soon_threadsafe

    @property
    def available(self) -> bool:
        return not self._queue_manager.recovery_log.reserve.full

    @property
    def failures(self) -> Sequence[str]:
        return ()  # it is not there to fail while the bridge is

    def count_commits(self) -> Sequence[Commits]:
        commits = self._queue_manager.recovery_log.commits = Commits()
        return (commits,)

    async def open(self) -> Recovered:
        queue = self._queue()
        if queue.inputs:
            raise MQError(cmqc.MQRC_OBJECT_IN_USE, f"queue {queue.name} is open for input elsewhere")
        if STATE_QUEUE not in self._queue_manager.queues:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no queue {STATE_QUEUE}; deploy/mq/bridge.mqsc defines it")
        recovered = Recovered(self._records.load(), client_subscriptions(self._queue_manager))
        queue.inputs += 1
        queue.exclusive = True
        self._taken = queue
        return recovered

    def start(self, consumer: Consumer) -> None:
        queue = self._queue()
        self._consumer = SegmentJoiner(consumer)
        queue.consumer = self._hand_over
        self._expire()
        waiting = list(queue.messages())
        if waiting:
            self._consumer(waiting)

    @property
    def subscriptions(self) -> Sized:
        return self._queue_manager.topics.subscriptions

    def weight(self, topic: str) -> int:
        try:
            return self._queue_manager.topics.route(topic).weight
        except MQError:
            return 1  # it is rejected when it is published

    def _hand_over(self, batch: Sequence[StoredMessage]) -> None:
        if threading.get_ident() != self._loop_thread:
            # A unit of work of a mapping's thread that needed no write to disk.
            self._loop.call_soon_threadsafe(self._hand_over, batch)
            return
        if self._fences:
            wanted: list[StoredMessage] = []
            late: list[StoredMessage] = []
            for one in batch:
                behind = one.user_data is None or one.msg_number > self._fences.get(one.client_id, 0)
                (wanted if behind else late).append(one)
            if late:
                self._remove(late)
            batch = wanted
        if batch:
            self._consumer(batch)

    def _remove(self, late: Sequence[StoredMessage]) -> None:
        """Remove messages of a session that has ended."""
        with self._queue_manager.lock:
            work = Unit()
            for stored in late:
                if stored.linked:
                    stored.queue.take(stored)
                    work.gets.append(stored)
            self._queue_manager.recovery_log.submit(work)

    async def caught_up(self) -> None:
        return

    def _expire(self) -> None:
        expire(self._queue_manager)
        self._timer = self._loop.call_later(EXPIRY_INTERVAL, self._expire)

    def _queue(self) -> Queue:
        queue = self._queue_manager.queues.get(self.transmission_queue)
        if queue is None:
            raise MQError(
                cmqc.MQRC_UNKNOWN_OBJECT_NAME,
                f"no transmission queue {self.transmission_queue}: a script of queue_manager.scripts can define it, "
                f"DEFINE QLOCAL('{self.transmission_queue}') USAGE(XMITQ)",
            )
        if not queue.is_transmission:
            raise MQError(cmqc.MQRC_XMIT_Q_USAGE_ERROR, f"queue {queue.name} has USAGE(NORMAL)")
        return queue

    def submit(self, unit: UnitOfWork) -> Mapping[int, int]:
        work = Unit()
        refusals: dict[int, int] = {}
        diverted: dict[int, int] = {}
        unmatched: list[int] = []
        with self._queue_manager.lock:
            try:
                self._do(unit, work, refusals, diverted, unmatched)
            except Exception:
                # Whatever it is, it is this unit's alone: undone whole, its owner told, everything else goes on.
                log.exception("MQB3206E a unit of work of the telemetry service fails")
                undo(work)
                work, refusals = Unit(), {}
                work.done = partial(self._fail, unit.number)
            else:
                work.done = partial(self._end, unit.number, refusals, diverted, unmatched)
            work.barrier = not unit.publications and not unit.removals
            self._queue_manager.recovery_log.submit(work)
        return refusals

    def _fail(self, number: int, _reason: int) -> None:
        self.on_completed((Completion(number, cmqc.MQRC_UNEXPECTED_ERROR),))

    def _end(
        self,
        number: int,
        refusals: Mapping[int, int],
        diverted: Mapping[int, int],
        unmatched: Sequence[int],
        reason: int,
    ) -> None:
        self.on_completed((Completion(number, reason, refusals, diverted, unmatched),))

    def _do(
        self,
        unit: UnitOfWork,
        work: Unit,
        refusals: dict[int, int],
        diverted: dict[int, int],
        unmatched: list[int],
    ) -> None:
        """Do in `work` what a unit of work asks; publications that are refused are left out and told by `refusals`."""
        queue_manager = self._queue_manager
        if unit.publications:
            now = time.time()
            publish, route_of = queue_manager.publish, queue_manager.topics.route
            authorization, forbidden = queue_manager.authorization, unit.forbidden
            asked = 0
            for index, (message, retain) in enumerate(unit.publications):
                try:
                    if index in forbidden:
                        refusals[index] = cmqc.MQRC_NOT_AUTHORIZED
                        continue
                    if message.reply_to is not None:
                        put_answer(queue_manager, work, message, message.reply_to)
                        continue
                    if authorization is not None and not authorization.may_publish(
                        message.md.UserIdentifier, message.topic
                    ):
                        refusals[index] = cmqc.MQRC_NOT_AUTHORIZED
                        continue
                    route = route_of(message.topic)
                    if not route.subscriptions and not route.selective:
                        unmatched.append(index)
                    if not retain:
                        reason = publish(work, route, message, now, application=APPLICATION_NAME)
                    else:
                        # MQTT-3.3.1-10: an empty retained publication removes the one before, and is not kept.
                        empty = not message.payload
                        reason = unretainable(
                            queue_manager, message, asked, self.retained_bytes, self.retained_total
                        ) or publish(
                            work,
                            route,
                            message,
                            now,
                            retain=not empty,
                            clear_retained=empty,
                            application=APPLICATION_NAME,
                        )
                        if not reason:
                            asked += size_of(message)
                except MQError as error:
                    reason = error.reason
                except Exception:
                    log.exception(
                        "MQB3207E publication of client %r to %r fails", message.client_id, message.topic[:200]
                    )
                    reason = cmqc.MQRC_UNEXPECTED_ERROR
                if reason:
                    refusals[index] = reason
            if refusals and unit.dead_letters:
                divert(queue_manager, self._queue(), unit, work, refusals, diverted)
        gets = work.gets
        for transmission in cast("list[StoredMessage]", separate(unit.removals)):  # what it handed over itself
            if transmission.linked:
                transmission.queue.take(transmission)
                gets.append(transmission)
        if unit.records:
            for key, record in unit.records_without(refusals).items():
                self._records.save(work, key, record)

    def admit(self, client_id: str, user: str, done: Callable[[int], None]) -> None:
        def ask(_known: object = None) -> None:
            done(refusal_to_receive(self._queue_manager, self.transmission_queue, user))

        authorization, asked = self._queue_manager.authorization, user or NOBODY
        if authorization is None or (authorization.knows(asked) and not self._asking):
            ask()
            return

        def known(_groups: object) -> None:
            self._asking -= 1
            ask()

        self._asking += 1
        self._loop.run_in_executor(self._asker, authorization.groups, asked).add_done_callback(known)

    def subscribe(
        self,
        client_id: str,
        requests: Sequence[SubscriptionRequest],
        done: Callable[[list[int]], None],
        *,
        durable: bool,
        user: str,
        member: str = "",
    ) -> None:
        work = Unit()
        reasons: list[int] = []
        waiting: list[Waiting] = []
        with self._queue_manager.lock:
            for request in requests:
                try:
                    with whole(work):
                        made = subscribe(
                            self._queue_manager, work, self._queue(), client_id, request, durable=durable, user=user
                        )
                        # With the subscription as long as they are not many: it is on disk with what it begins with.
                        if request.retained:
                            waiting += self._beginnings.put(work, made)
                    reasons.append(cmqc.MQRC_NONE)
                except MQError as error:
                    reasons.append(error.reason)
                except Exception:
                    log.exception(
                        "MQB3208E subscription of client %r to %r fails", client_id, request.topic_filter[:200]
                    )
                    reasons.append(cmqc.MQRC_UNEXPECTED_ERROR)

            def ended(reason: int) -> None:
                done([reason] * len(reasons) if reason else reasons)
                if not reason:
                    self._beginnings.add(client_id, waiting)

            work.done = ended
            self._queue_manager.recovery_log.submit(work)

    def authorize(
        self,
        client_id: str,
        requests: Sequence[SubscriptionRequest],
        done: Callable[[list[int]], None],
        *,
        user: str,
        changed: bool,
        member: str = "",
    ) -> None:
        reasons: list[int] = []
        if self._queue_manager.authorization is None:
            done([cmqc.MQRC_NONE] * len(requests))
            return

        def check() -> None:
            for request in requests[len(reasons) : len(reasons) + CHECKS_PER_TURN]:
                topic = topic_string(client_id, request.topic_filter)
                reasons.append(refusal_to_receive(self._queue_manager, self.transmission_queue, user, topic))
            if len(reasons) < len(requests):
                self._loop.call_soon(check)
            else:
                done(reasons)

        check()

    def refuse(self, client_id: str, refused: bool) -> None:
        with self._queue_manager.lock:
            self._queue_manager.topics.refuse(client_id, refused)

    def unsubscribe(
        self,
        client_id: str,
        filters: Sequence[str],
        done: Callable[[list[int]], None],
        *,
        ended: bool = False,
        handed_over: bool = False,
    ) -> None:
        queue_manager = self._queue_manager
        work = Unit()
        with queue_manager.lock:
            for topic_filter in filters:
                unsubscribe(queue_manager, work, client_id, topic_filter)
            work.done = lambda reason: done([reason] * len(filters))
            work.barrier = handed_over
            if ended:
                fence = self._fences[client_id] = queue_manager.next_number()
                work.barrier = True
                work.done = lambda reason: self._unsubscribed(client_id, fence, partial(done, [reason] * len(filters)))
            queue_manager.recovery_log.submit(work)

    def _unsubscribed(self, client_id: str, fence: int, done: Callable[[], None]) -> None:
        """Lift a fence: what was on its way when the session ended has come."""
        if self._fences.get(client_id) == fence:
            del self._fences[client_id]
        done()

    def dead_letter(self, transmission: Transmission, reason: int) -> bool:
        queue_manager = self._queue_manager
        with queue_manager.lock:
            work = Unit()
            # Each segment of its own, as they lie here: all of them together may be too long for the dead-letter queue.
            for stored in cast("list[StoredMessage]", separate([transmission])):
                if not stored.linked or not dead_letter(
                    queue_manager, work, stored, reason, stored.remote_queue, stored.client_id, replacing=True
                ):
                    queue_manager.back_out(work)
                    return False
                stored.queue.take(stored)
                work.gets.append(stored)
            queue_manager.recovery_log.submit(work)
        return True

    def flush(self, done: Callable[[], None]) -> None:
        with self._queue_manager.lock:
            last = Unit()
            last.done = lambda _reason: done()
            self._queue_manager.recovery_log.submit(last)

    def stop(self, done: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._asker.shutdown(wait=False)
        with self._queue_manager.lock:
            queue, self._taken = self._taken, None
            if queue is not None:
                queue.consumer = None
                queue.inputs -= 1
                queue.exclusive = False
            self.flush(done)
