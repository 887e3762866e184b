"""The backend of the embedded queue manager: units of work of the telemetry service, on the event loop.

It contains clients' publications and subscriptions, records of sessions, retained publications for new subscriptions,
and expiry.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias, TypeVar, cast

from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.backend import (
    ClientSubscription,
    Commits,
    Completion,
    Consumer,
    DividedShares,
    RecoveredState,
    SegmentJoiner,
    SubscriptionRequest,
    UnitOfWork,
    resolve,
    separate,
    unreadable,
)
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager, dead_letter
from bridge.mq.embedded.retained import owner_of, size_of
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import check_topic_string
from bridge.mq.embedded.unit import Unit, undo, whole
from bridge.mq.mqi import MQError
from bridge.security.privileged import NOBODY
from bridge.telemetry.identity import AS_IS
from bridge.telemetry.message import Message
from bridge.telemetry.record import MARKS, StateKey, StateRecord, UnknownRecord, decode, encode
from bridge.telemetry.shard import UNDIVIDED
from bridge.telemetry.subscription import (
    PUBLICATION_QUEUE,
    is_remote_queue_manager,
    share_of_subscription,
    subscription_name,
    topic_string,
)
from bridge.telemetry.transmission import PublicationMessage, Transmission
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


def expire(queue_manager: QueueManager) -> None:
    """Remove expired messages, retained publications and subscriptions, including those that no application accesses."""
    now = time.time()
    with queue_manager.lock:
        unit = Unit()
        for name, subscription in list(queue_manager.objects.topics.subscriptions.items()):
            if subscription.expires_at and subscription.expires_at <= now:
                queue_manager.remove_subscription(unit, name)
        if not unit.empty:
            queue_manager.recovery_log.submit(unit)
        for queue in list(queue_manager.objects.queues.values()):
            if not queue.expiring:
                continue
            queue.expiring = False
            for stored in queue.messages():
                if stored.expired:
                    queue_manager.discard(stored)
                elif stored.expires_at:
                    queue.expiring = True


log = logging.getLogger(__name__)

#: The maximum number of visited topic levels in one iteration of the event loop, and for one client before the next client.
VISITS_PER_TURN, VISITS_PER_CLIENT = 10_000, 2_000

#: A subscription, and the iterator over its remaining retained publications.
Waiting: TypeAlias = tuple[Subscription, Iterator[str | None]]


class Beginnings:
    """Replay of retained messages to clients' new subscriptions, in slices on the event loop."""

    def __init__(self, queue_manager: QueueManager, loop: asyncio.AbstractEventLoop) -> None:
        self._queue_manager = queue_manager
        self._loop = loop
        self._waiting: dict[str, deque[Waiting]] = {}
        #: remaining visits in this iteration of the event loop
        self._visits = float(VISITS_PER_TURN)
        self._scheduled = False

    def put(self, work: Unit, subscription: Subscription) -> list[Waiting]:
        """Put retained publications in the unit of work that creates a subscription, as many as this iteration allows.

        If there may be more, return the argument of `add`, which must be called when the subscription exists.
        """
        topics = self._queue_manager.retained.named_by(subscription)
        if self._visits:
            self._visits = self._queue_manager.put_retained(work, subscription, topics, self._visits)
            self._schedule()
        return [] if self._visits else [(subscription, topics)]

    def add(self, client_id: str, waiting: list[Waiting]) -> None:
        """Put the remaining retained publications for a client's new subscriptions in later iterations."""
        if waiting:
            self._waiting.setdefault(client_id, deque()).extend(waiting)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._visits = float(VISITS_PER_TURN)
        if not self._waiting:
            return
        work = Unit()
        with self._queue_manager.lock:
            while self._waiting and self._visits:
                client_id = next(iter(self._waiting))
                mine = self._waiting.pop(client_id)
                allowed = min(self._visits, VISITS_PER_CLIENT)
                remaining = self._put(work, *mine[0], allowed)
                self._visits -= allowed - remaining
                if remaining:
                    mine.popleft()
                if mine:
                    self._waiting[client_id] = mine  # at the end
            if work.empty:
                self._schedule()
            else:
                # Continue after the commit, so that puts do not accumulate.
                self._scheduled = True
                work.done = self._go_on
                self._queue_manager.recovery_log.submit(work)

    def _go_on(self, _reason: int) -> None:
        self._loop.call_soon(self._turn)

    def _put(self, work: Unit, subscription: Subscription, topics: Iterator[str | None], visits: float) -> float:
        """Return the remaining visits. More than 0 means that the replay for the subscription is complete."""
        if self._queue_manager.objects.topics.subscriptions.get(subscription.name) is not subscription:
            return visits  # the subscription was removed or replaced
        try:
            with whole(work):
                return self._queue_manager.put_retained(work, subscription, topics, visits)
        except Exception:
            log.exception("MQB3209E putting retained publications for subscription %s failed", subscription.name)
            return visits


_DESCRIPTOR = MQMD(Persistence=cmqc.MQPER_PERSISTENT)


class SessionRecords:
    """Session records of the telemetry service."""

    def __init__(self, queue_manager: QueueManager, application_name: str) -> None:
        self._queue_manager = queue_manager
        self._application_name = application_name
        #: number of writes, by record name
        self._sequences: dict[str, int] = {}

    def load(self) -> list[StateRecord]:
        """Return the records of all sessions. Raises MQError if a record cannot be read.

        Messages that applications have put on the queue are dead-lettered, because they would prevent every start. Messages
        of another bridge that uses this queue manager remotely are ignored.
        """
        queue_manager = self._queue_manager
        states = queue_manager.states
        with queue_manager.lock:
            records = []
            for stored in states.values():
                try:
                    records.append(decode(stored.message.data))
                except UnknownRecord as error:
                    raise unreadable(queue_manager.appearance.msg_id(stored), str(error)) from error
            self._sequences = {_name(record.key): record.sequence for record in records}
            for stored in list(queue_manager.objects.queues[STATE_QUEUE].messages()):
                own = states.get(stored.client_id) is stored or stored.message.md.CorrelId in MARKS
                if not own and not stored.expired:
                    self._dead_letter(stored)
        return records

    def _dead_letter(self, stored: StoredMessage) -> None:
        """Move a message that is not a current record to the dead-letter queue, if possible, and log it."""
        queue_manager, work = self._queue_manager, Unit()
        msg_id, name = queue_manager.appearance.msg_id(stored), queue_manager.objects.attributes["DEADQ"]

        def ended(reason: int) -> None:
            log.error(
                "MQB3105E %s %s (MsgId %s) %s; continuing",
                # Salvage may have lost the row of the log that removed a record.
                "a replaced record on" if stored.client_id else "a message that an application has put on",
                STATE_QUEUE,
                msg_id.hex().upper(),
                "stays there, because dead-lettering failed" if reason else f"was moved to dead-letter queue {name}",
            )

        if not dead_letter(queue_manager, work, stored, cmqc.MQRC_FORMAT_ERROR, STATE_QUEUE):
            ended(cmqc.MQRC_FORMAT_ERROR)
            return
        stored.queue.take(stored)
        work.gets.append(stored)
        work.done = ended
        queue_manager.recovery_log.submit(work)

    def save(self, work: Unit, key: StateKey, record: StateRecord | None) -> None:
        """Replace a record in a unit of work. None removes it."""
        queue_manager, name = self._queue_manager, _name(key)
        if record is None:
            self._sequences.pop(name, None)
            work.changes.latest.append((queue_manager.states, name, None))
            return
        queue = queue_manager.objects.queues[STATE_QUEUE]
        # Insert the entry again, so that its key is the same object as in the message.
        sequence = self._sequences[name] = self._sequences.pop(name, 0) + 1
        stored = StoredMessage(
            queue=queue,
            msg_number=queue_manager.next_number(),
            message=Message(_DESCRIPTOR, encode(record, sequence)),
            persistent=True,
            priority=0,
            put_time=time.time(),
            client_id=name,
            durable=True,
            put_application=self._application_name,
        )
        queue.expect()
        work.puts.append(stored)
        work.changes.latest.append((queue_manager.states, name, stored))


def _name(key: StateKey) -> str:
    """Return the name of a record in the queue manager's map of records."""
    return f"{key.side}:{key.queue}{':' if key.queue else ''}{key.client_id}"


def refusal_to_receive(
    queue_manager: QueueManager, transmission_queue: str, user: str, topic_filter: str | None = None
) -> int:
    """Return MQRC_NONE if messages may be put on the transmission queue for a client, otherwise the reason code.

    `topic_filter` also checks a subscription to it. The authorization service logs the details.
    """
    if queue_manager.authorization is None:
        return cmqc.MQRC_NONE
    principal = user or NOBODY
    with queue_manager.lock:
        try:
            if topic_filter is None:
                queue_manager.authorization.check(principal, cmqc.MQOT_Q, transmission_queue, "PUT")
            else:
                queue_manager.authorization.subscribing(principal, None, topic_filter, "SUB", transmission_queue)
        except MQError as error:
            return error.reason
    return cmqc.MQRC_NONE


def subscribe(
    queue_manager: QueueManager,
    work: Unit,
    transmission_queue: Queue,
    client_id: str,
    request: SubscriptionRequest,
    *,
    durable: bool,
    user: str,
) -> Subscription:
    """Create or alter a subscription in a unit of work. Raises MQError."""
    name = subscription_name(client_id, request.topic_filter)
    topic_filter = topic_string(client_id, request.topic_filter)
    check_topic_string(topic_filter)
    former = queue_manager.objects.topics.subscriptions.get(name)
    if former is not None and (former.client_id, former.topic_filter) != (client_id, topic_filter):
        # Client `a` with filter `b:c` and client `a:b` with filter `c` have the same name.
        raise MQError(cmqc.MQRC_SUB_ALREADY_EXISTS, name)
    if refused := refusal_to_receive(queue_manager, transmission_queue.name, user, topic_filter):
        raise MQError(refused, name)
    attributes = queue_manager.objects.topics.attributes(topic_filter)
    if attributes["SUB"] != "ENABLED":
        raise MQError(cmqc.MQRC_SUB_INHIBITED, name)
    if durable and attributes["DURSUB"] != "YES":
        raise MQError(cmqc.MQRC_DURABILITY_NOT_ALLOWED, name)
    subscription = Subscription(
        name=name,
        topic_filter=topic_filter,
        queue=transmission_queue,
        destination=PUBLICATION_QUEUE,
        destination_manager=client_id,
        remote_queue=PUBLICATION_QUEUE,
        client_id=client_id,
        user_data=request.data.user_data,
        retain_as_published=request.data.retain_as_published,
        durable=durable,
        user=user,
        ephemeral=not durable,
    )
    queue_manager.add_subscription(work, subscription, at_once=True)
    return subscription


def unsubscribe(queue_manager: QueueManager, work: Unit, client_id: str, topic_filter: str) -> None:
    """Remove a subscription in a unit of work, if the client has it."""
    name = subscription_name(client_id, topic_filter)
    subscription = queue_manager.objects.topics.subscriptions.get(name)
    if subscription is not None and subscription.client_id == client_id:
        queue_manager.remove_subscription(work, name)


def client_subscriptions(queue_manager: QueueManager) -> list[ClientSubscription]:
    """Return the subscriptions of all clients. The client identifier of shared ones is their remote queue manager."""
    subscriptions = []
    with queue_manager.lock:
        for subscription in queue_manager.objects.topics.subscriptions.values():
            client_id, topic_filter = subscription.client_id, subscription.topic_filter
            share = share_of_subscription(subscription.name, topic_filter)
            if share is not None and share.remote_queue_manager == client_id:
                topic_filter = share.written
            elif is_remote_queue_manager(client_id):
                continue
            if client_id and subscription.name == subscription_name(client_id, topic_filter):
                subscriptions.append(
                    ClientSubscription(client_id, topic_filter, subscription.user_data or "", subscription.durable)
                )
    return subscriptions


APPLICATION_NAME: Final = "mqbridge"

T = TypeVar("T")


def put_answer(queue_manager: QueueManager, work: Unit, message: PublicationMessage, reply_to: tuple[str, str]) -> None:
    """Put a client's reply to a request. Raises MQError."""
    destination = queue_manager.objects.resolve(*reply_to)
    if destination.queue is None:
        raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"{reply_to[0]} is an alias of a topic")
    if queue_manager.authorization is not None:
        name = destination.queue.name if destination.client_id else reply_to[0]
        queue_manager.authorization.check_putting(message.md.UserIdentifier, name)
    queue_manager.put(work, destination, Message(message.md, message.put_data), application=APPLICATION_NAME)


def unretainable(
    queue_manager: QueueManager,
    message: PublicationMessage,
    requested_bytes: int,
    most_of_user: int,
    most_in_total: int,
) -> str:
    """Return the option of `limits` that prevents a client's publication from being retained, or "".

    `requested_bytes` is the size of the preceding retained publications in the same unit of work. A publication is always
    accepted if it is not larger than the publication that it replaces.
    """
    if not message.payload:
        return ""
    retained, owner, size = queue_manager.retained, owner_of(message), size_of(message)
    former = retained.get(message.topic)
    replaced = former.message if former is not None else None
    freed = size_of(replaced) if isinstance(replaced, PublicationMessage) else 0
    freed_of_user = freed if isinstance(replaced, PublicationMessage) and owner_of(replaced) == owner else 0
    of_user = retained.bytes_of.get(owner, 0) + requested_bytes + size - freed_of_user
    in_total = retained.total_bytes + requested_bytes + size - freed
    if of_user > most_of_user and size > freed_of_user:
        return "retained_bytes"
    return "retained_total" if in_total > most_in_total and size > freed else ""


def _user_of(message: PublicationMessage) -> str:
    """Return the owner of the quota for a retained publication, an MQ user or client identifier, for display."""
    owner = owner_of(message)
    return owner if isinstance(owner, str) else owner.decode(errors="replace")


def divert(
    queue_manager: QueueManager,
    transmission_queue: Queue,
    unit: UnitOfWork,
    work: Unit,
    refusals: dict[int, int],
    diverted: dict[int, int],
    reserve: Callable[[str, int], bool],
) -> None:
    """Dead-letter refused publications (`UnitOfWork.dead_letters_publication`), if `reserve` allows it."""
    for index, reason in list(refusals.items()):
        if not unit.dead_letters_publication(index, reason):
            continue
        message, retain = unit.publications[index]
        if not reserve(message.client_id, message.size):
            continue
        name, manager = message.reply_to or ("", "")
        stored = queue_manager.undeliverable(
            transmission_queue,
            Message(message.md, message.put_data) if name else message,
            persistent=message.md.Persistence == cmqc.MQPER_PERSISTENT,
            topic=None if name else message.topic,
            retained=retain,
            put_application=APPLICATION_NAME,
        )
        if dead_letter(queue_manager, work, stored, reason, name or message.topic, manager):
            del refusals[index]
            diverted[index] = reason


#: Interval between scans for expired messages and subscriptions, in seconds (IBM MQ: EXPRYINT).
EXPIRY_INTERVAL = 10.0
#: Subscriptions of a resumed session to authorize in one iteration of the event loop. Each takes about 35 microseconds.
CHECKS_PER_TURN = 100


class EmbeddedBackend:
    """`bridge.mq.backend.Backend` on an embedded queue manager. Call it on the thread of `loop`."""

    hands_over_at_once = True
    outage = False
    unread = 0
    removes_at_once = True
    divided_shares: DividedShares | None = None

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
        self.on_limit: Callable[[str, str, int], None] = lambda _limit, _subject, _number: None
        self.on_removed: Callable[[float], None] = lambda _seconds: None
        self.reserve_dead_letter: Callable[[str, int], bool] = lambda _client_id, _length: True
        #: limits for the retained publications of one user, and of all clients, in bytes
        self.retained_bytes, self.retained_total = retained_bytes, retained_total
        mappings = queue_manager.objects.topics.mapping_limits
        mappings.on_excess = lambda mapping: self.on_limit("mapping_backlog", mapping, 1)
        self._queue_manager = queue_manager
        self.transmission_queue = transmission_queue
        self.shard = UNDIVIDED
        self.client_names = AS_IS
        self._loop = loop
        #: the thread of the loop, after `open`
        self._loop_thread = 0
        #: looks up the groups of users in the operating system. One thread, so that results arrive in order
        self._asker = ThreadPoolExecutor(1, "groups")
        #: number of clients that wait for `_asker`
        self._asking = 0
        self._consumer: Consumer = lambda _batch: None
        #: lower bound for message numbers of the next session, by client whose session ended while commits may contain
        #: messages for it
        self._fences: dict[str, int] = {}
        #: reports to make after the tasks that await results have run, or None without such tasks
        self._after_answers: list[Callable[[], None]] | None = None
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
    def depth(self) -> int:
        return 0 if self._taken is None else self._taken.depth

    @property
    def failures(self) -> Sequence[str]:
        return ()  # an embedded queue manager cannot fail separately

    def count_commits(self) -> Sequence[Commits]:
        commits = self._queue_manager.recovery_log.commits = Commits()
        return (commits,)

    async def open(self) -> RecoveredState:
        self._loop_thread = threading.get_ident()
        if STATE_QUEUE not in self._queue_manager.objects.queues:
            raise MQError(
                cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"queue {STATE_QUEUE} is missing; hint: deploy/mq/bridge.mqsc defines it"
            )
        queue = self._queue()
        queue.open(cmqc.MQOO_INPUT_EXCLUSIVE)
        self._taken = queue
        return RecoveredState(self._records.load(), client_subscriptions(self._queue_manager))

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
        return self._queue_manager.objects.topics.subscriptions

    def weight(self, topic: str) -> int:
        try:
            return self._queue_manager.objects.topics.route(topic).weight
        except MQError:
            return 1  # the publication will be rejected

    def _hand_over(self, batch: Sequence[StoredMessage]) -> None:
        if threading.get_ident() != self._loop_thread:
            # A unit of work of a mapping's thread ended without a write to disk.
            self._loop.call_soon_threadsafe(self._hand_over, batch)
            return
        if self._fences:
            deliverable: list[StoredMessage] = []
            late: list[StoredMessage] = []
            for message in batch:
                behind = message.user_data is None or message.msg_number > self._fences.get(message.client_id, 0)
                (deliverable if behind else late).append(message)
            if late:
                self._remove(late)
            batch = deliverable
        if not batch:
            return
        if self._after_answers is None:  # nearly always: saves a call for each message
            self._consumer(batch)
        else:
            self._report(self._consumer, batch)

    def _answer(self, future: asyncio.Future[T], result: T) -> None:
        """Resolve a future. Its awaiters run before messages and completions are reported, so SUBACK is sent first."""
        resolve(future, result)
        if self._after_answers is None:
            self._after_answers = []
            self._loop.call_soon(self._answers_given)

    def _report(self, report: Callable[..., None], *arguments: object) -> None:
        """Report messages or completions, after the awaiters of resolved answers have run."""
        if self._after_answers is None:
            report(*arguments)
        else:
            self._after_answers.append(partial(report, *arguments))

    def _answers_given(self) -> None:
        reports, self._after_answers = self._after_answers or [], None
        for report in reports:
            try:
                report()
            except Exception:
                log.exception("MQB3211E reporting messages or completions failed; messages stay on their queue")

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
        queue = self._queue_manager.objects.queues.get(self.transmission_queue)
        if queue is None:
            raise MQError(
                cmqc.MQRC_UNKNOWN_OBJECT_NAME,
                f"transmission queue {self.transmission_queue} is missing; hint: define it in a script of "
                f"queue_manager.scripts: DEFINE QLOCAL('{self.transmission_queue}') USAGE(XMITQ)",
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
                # The error affects only this unit: roll it back, report it to its owner, and continue.
                log.exception("MQB3206E a unit of work of the telemetry service failed")
                undo(work)
                work, refusals = Unit(), {}
                work.done = partial(self._fail, unit.number)
            else:
                work.done = partial(self._end, unit.number, refusals, diverted, unmatched)
            work.barrier = not unit.publications and not unit.removals
            self._queue_manager.recovery_log.submit(work)
        return refusals

    def _fail(self, number: int, _reason: int) -> None:
        self._complete(Completion(number, cmqc.MQRC_UNEXPECTED_ERROR))

    def _end(
        self,
        number: int,
        refusals: Mapping[int, int],
        diverted: Mapping[int, int],
        unmatched: Sequence[int],
        reason: int,
    ) -> None:
        self._complete(Completion(number, reason, refusals, diverted, unmatched))

    def _complete(self, completion: Completion) -> None:
        if self._after_answers is None:
            self.on_completed((completion,))
        else:
            self._report(self.on_completed, (completion,))

    def _do(
        self, unit: UnitOfWork, work: Unit, refusals: dict[int, int], diverted: dict[int, int], unmatched: list[int]
    ) -> None:
        """Execute a unit of the service in `work`. Refused publications are skipped and added to `refusals`."""
        queue_manager = self._queue_manager
        if unit.publications:
            now = time.time()
            publish, route_of = queue_manager.publish, queue_manager.objects.topics.route
            authorization, forbidden = queue_manager.authorization, unit.forbidden
            requested_bytes = 0
            for index, (message, retain) in enumerate(unit.publications):
                try:
                    if index in forbidden:
                        refusals[index] = forbidden[index]
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
                        # MQTT-3.3.1-10: an empty retained publication removes the previous one, and is not retained.
                        empty = not message.payload
                        limit = unretainable(
                            queue_manager, message, requested_bytes, self.retained_bytes, self.retained_total
                        )
                        if limit:
                            self.on_limit(limit, _user_of(message), 1)
                            refusals[index] = cmqc.MQRC_Q_SPACE_NOT_AVAILABLE
                            continue
                        reason = publish(
                            work,
                            route,
                            message,
                            now,
                            retain=not empty,
                            clear_retained=empty,
                            application=APPLICATION_NAME,
                        )
                        if not reason:
                            requested_bytes += size_of(message)
                except MQError as error:
                    reason = error.reason
                except Exception:
                    log.exception(
                        "MQB3207E publication of client %r to %r failed", message.client_id, message.topic[:200]
                    )
                    reason = cmqc.MQRC_UNEXPECTED_ERROR
                if reason:
                    refusals[index] = reason
            if refusals and (unit.dead_letters or unit.unreportable):
                divert(queue_manager, self._queue(), unit, work, refusals, diverted, self.reserve_dead_letter)
        if unit.removals:
            gets = work.gets
            stored: StoredMessage  # delivered by this backend
            for stored in separate(unit.removals):
                if stored.linked:
                    stored.queue.take(stored)
                    gets.append(stored)
        if unit.records:
            for key, record in unit.records_without(refusals).items():
                self._records.save(work, key, record)

    def admit(self, client_id: str, user: str) -> asyncio.Future[int]:
        answer: asyncio.Future[int] = self._loop.create_future()

        def ask(_known: object = None) -> None:
            resolve(answer, refusal_to_receive(self._queue_manager, self.transmission_queue, user))

        authorization, principal = self._queue_manager.authorization, user or NOBODY
        if authorization is None or (authorization.knows(principal) and not self._asking):
            ask()
            return answer

        def known(_groups: object) -> None:
            self._asking -= 1
            ask()

        self._asking += 1
        self._loop.run_in_executor(self._asker, authorization.groups, principal).add_done_callback(known)
        return answer

    def subscribe(
        self, client_id: str, requests: Sequence[SubscriptionRequest], *, durable: bool, user: str, member: str = ""
    ) -> asyncio.Future[list[int]]:
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        work = Unit()
        reasons: list[int] = []
        waiting: list[Waiting] = []
        with self._queue_manager.lock:
            for request in requests:
                try:
                    with whole(work):
                        subscription = subscribe(
                            self._queue_manager, work, self._queue(), client_id, request, durable=durable, user=user
                        )
                        # In the same unit of work unless they are many, so both are committed together.
                        if request.retained:
                            waiting += self._beginnings.put(work, subscription)
                    reasons.append(cmqc.MQRC_NONE)
                except MQError as error:
                    reasons.append(error.reason)
                except Exception:
                    log.exception(
                        "MQB3208E subscription of client %r to %r failed", client_id, request.topic_filter[:200]
                    )
                    reasons.append(cmqc.MQRC_UNEXPECTED_ERROR)

            def ended(reason: int) -> None:
                self._answer(answer, [reason] * len(reasons) if reason else reasons)
                if not reason:
                    self._beginnings.add(client_id, waiting)

            work.done = ended
            self._queue_manager.recovery_log.submit(work)
        return answer

    def authorize(
        self, client_id: str, requests: Sequence[SubscriptionRequest], *, user: str, changed: bool, member: str = ""
    ) -> asyncio.Future[list[int]]:
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        reasons: list[int] = []
        if self._queue_manager.authorization is None:
            answer.set_result([cmqc.MQRC_NONE] * len(requests))
            return answer

        def check() -> None:
            for request in requests[len(reasons) : len(reasons) + CHECKS_PER_TURN]:
                topic = topic_string(client_id, request.topic_filter)
                reasons.append(refusal_to_receive(self._queue_manager, self.transmission_queue, user, topic))
            if len(reasons) < len(requests):
                self._loop.call_soon(check)
            else:
                resolve(answer, reasons)

        check()
        return answer

    def refuse(self, client_id: str, refused: bool) -> None:
        with self._queue_manager.lock:
            self._queue_manager.objects.topics.refuse(client_id, refused)

    def unsubscribe(
        self, client_id: str, filters: Sequence[str], *, ended: bool = False, handed_over: bool = False
    ) -> asyncio.Future[list[int]]:
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        queue_manager = self._queue_manager
        work = Unit()
        with queue_manager.lock:
            for topic_filter in filters:
                unsubscribe(queue_manager, work, client_id, topic_filter)
            fence = queue_manager.next_number() if ended else 0
            if ended:
                self._fences[client_id] = fence
            work.barrier = handed_over or ended

            def removed(reason: int) -> None:
                # All messages that were in transit when the session ended have arrived.
                if ended and self._fences.get(client_id) == fence:
                    del self._fences[client_id]
                self._answer(answer, [reason] * len(filters))

            work.done = removed
            queue_manager.recovery_log.submit(work)
        return answer

    def dead_letter(
        self, transmission: Transmission, reason: int, on_moved: Callable[[bool], None] = lambda _moved: None
    ) -> None:
        queue_manager = self._queue_manager
        with queue_manager.lock:
            work = Unit()
            # Move segments separately, because the joined message may be too long for the dead-letter queue.
            parts = cast("list[StoredMessage]", separate([transmission]))
            if not all(stored.linked for stored in parts):
                on_moved(True)  # an administrator has removed it, or it has expired
                return
            for stored in parts:
                if not dead_letter(
                    queue_manager, work, stored, reason, stored.remote_queue, stored.client_id, replacing=True
                ):
                    undo(work)
                    on_moved(False)
                    return
                stored.queue.take(stored)
                work.gets.append(stored)
            work.done = lambda failure: self._report(on_moved, not failure)
            queue_manager.recovery_log.submit(work)

    def flush(self) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = self._loop.create_future()
        with self._queue_manager.lock:
            last = Unit()
            # Completions of earlier units may still be waiting behind an answer.
            last.done = lambda _reason: self._report(resolve, answer, None)
            self._queue_manager.recovery_log.submit(last)
        return answer

    def stop(self) -> asyncio.Future[None]:
        if self._timer is not None:
            self._timer.cancel()
        self._asker.shutdown(wait=False)
        with self._queue_manager.lock:
            queue, self._taken = self._taken, None
            if queue is not None:
                queue.consumer = None
                queue.close(cmqc.MQOO_INPUT_EXCLUSIVE, exclusive=True)
            return self.flush()

    def abandon(self) -> asyncio.Future[None]:
        return self.stop()
