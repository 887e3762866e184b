"""The backend for IBM MQ, with threads that own connections.

The event loop submits units of work to the threads, which report completions in batches. The client identifier determines the
thread for publications and for removals, which preserves the order of a client. Subscriptions go to the subscriber.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial
from typing import Any, Final, cast

import msgspec

from bridge.config.queue_manager import BridgeQueues, IbmQueueManagerConfig
from bridge.mq.backend import (
    NONE_REFUSED,
    ClientSubscription,
    Commits,
    Completion,
    Consumer,
    DividedShares,
    RecoveredState,
    SegmentJoiner,
    ShareLimit,
    Silence,
    SubscriptionRequest,
    UnitOfWork,
    reject,
    resolve,
    separate,
)
from bridge.mq.host import Events
from bridge.mq.ibm.browser import Browser
from bridge.mq.ibm.coordination import NO_REPLY, AnswerWatch, BackendEvents, BrowsePasses, SubscriptionBarrier
from bridge.mq.ibm.forwarder import Forwarder
from bridge.mq.ibm.persistent_state import Identifiers, check_owner
from bridge.mq.ibm.publisher import DividedUnit, Part, Publisher, UnitsInProgress
from bridge.mq.ibm.remover import FirstRemover, Removal, RemovalDispatch, Remover, Undeliverable
from bridge.mq.ibm.share_receiver import ReturnJob, ShareReceiver
from bridge.mq.ibm.subscriber import PASSING, Admit, InquireJob, SubscribeJob, Subscriber, UnsubscribeJob
from bridge.mq.ibm.transmission import QueuedMessage
from bridge.mq.inquiries import QueueManagerConnectionStatus
from bridge.mq.memory import MESSAGE_OVERHEAD, MemoryWatermark
from bridge.mq.mqi import Connection, Got, MQError
from bridge.mq.worker import FAILURE_KEPT, Worker
from bridge.telemetry.identity import ClientNames
from bridge.telemetry.record import VERSION, SentRecord, Side, StateKey, StateRecord
from bridge.telemetry.shard import UNDIVIDED, Shard
from bridge.telemetry.subscription import SharedSubscription, is_remote_queue_manager, shared_subscription
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Seconds between attempts to return messages to a shared subscription.
_RETURN_RETRY: Final = 2.0
_DELETED: Final = frozenset((cmqc.MQRC_NO_SUBSCRIPTION, cmqc.MQRC_UNKNOWN_OBJECT_NAME))
#: Temporary reason codes. Messages are returned after a retry.
_TEMPORARY: Final = PASSING | {cmqc.MQRC_GET_INHIBITED, cmqc.MQRC_BACKED_OUT, cmqc.MQRC_SYNCPOINT_LIMIT_REACHED}

#: Maximum number of former shared subscriptions in memory. Late messages of other subscriptions are dead-lettered.
MAX_FORMER_SHARES: Final = 10_000

Connect = Callable[[str], Connection]


class IbmBackend(BackendEvents):
    """`bridge.mq.backend.Backend` over any `Connection`. Call it on the thread of `loop`.

    It is large because it connects the threads and the event loop. Each unit of work involves publishers, removers and the
    subscriber. The report of one of them determines the next step of another (order of a client, fences around subscriptions,
    removals in progress). The work of a single thread is in `publisher`, `remover`, `browser` and `subscriber`, and rules
    without threads are in `coordination` and `remover.RemovalDispatch`.

    `connect` returns a new connection for a purpose (such as publisher or subscriptions), on the calling thread. The workers
    report their events on their own threads.
    """

    hands_over_at_once = False
    removes_at_once = False

    def __init__(
        self,
        connect: Connect,
        loop: asyncio.AbstractEventLoop,
        settings: IbmQueueManagerConfig,
        *,
        queues: BridgeQueues,
        shard: Shard = UNDIVIDED,
        first_delay: float = 0.0,
        stop_timeout: float = 30.0,
        memory: MemoryWatermark | None = None,
    ) -> None:
        self._memory = memory or MemoryWatermark(None)
        self.transmission_queue = queues.transmission
        self.shard = shard
        self.client_names = ClientNames(settings.client_identifiers == "escaped")
        self._stop_timeout = stop_timeout
        #: time.monotonic() until which a stop waits for workers, or 0.0 before a stop
        self._stop_until = 0.0
        self._loop = loop
        barrier, passes = SubscriptionBarrier(), BrowsePasses()
        #: arguments of all workers that write to the state queue
        writing: dict[str, Any] = {
            "identifiers": Identifiers(),
            "events": self,
            "dead_letter_queue": settings.dead_letter_queue,
            "queues": queues,
            "asynchronous": settings.asynchronous_puts,
        }
        self._publishers = [
            Publisher(
                f"publisher {number}",
                partial(connect, "publisher"),
                limits=settings.batch,
                barrier=barrier,
                passes=passes,
                **writing,
            )
            for number in range(1, settings.publishers + 1)
        ]
        self._ready: asyncio.Future[dict[StateKey, tuple[bytes, StateRecord]]] = loop.create_future()
        poller = partial(connect, "poller")
        self._first_remover = FirstRemover(
            "transmit-queue remover",
            poller,
            shard=shard,
            standby_delay=settings.standby_delay,
            first_delay=first_delay,
            **writing,
        )
        self._removers = [self._first_remover] + [
            Remover(f"transmit-queue remover {number}", poller, **writing) for number in range(2, settings.removers + 1)
        ]
        self._dispatch = RemovalDispatch(self._removers)
        self._first_remover.workers = len(self._publishers) + len(self._removers)
        self._caught_up: asyncio.Future[None] = loop.create_future()
        # The publishers of other shards commit during browses, like MQ applications.
        read_ahead = settings.read_ahead and settings.mode == "client" and shard.of == 1
        self._browser = Browser(
            poller, queues.transmission, self, passes=passes if read_ahead else None, is_shard=shard.of > 1
        )

        def connect_owner(purpose: str) -> Connection:
            """Connect for a thread that does not write to the state queue. Raises MQError or Fenced."""
            connection = connect(purpose)
            try:
                check_owner(connection, writing["identifiers"], queues.state)
            except BaseException:
                connection.disconnect()
                raise
            return connection

        self._subscriber = Subscriber(
            partial(connect_owner, "subscriptions"),
            barrier,
            self,
            max_connections=settings.subscription_connections,
            transmission_queue=queues.transmission if shard.of > 1 else "",
            shard=shard,
        )
        self._workers: list[Worker[Any]] = [self._browser, self._subscriber, *self._publishers, *self._removers]
        #: forwards messages of applications to all shards
        self._forwarder: Forwarder | None = None
        if shard.of > 1 and shard.number == 0:
            self._forwarder = Forwarder(
                partial(connect, "forwarder"),
                queues.common_transmission,
                shard,
                self.client_names,
                events=self,
                dead_letter_queue=settings.dead_letter_queue,
            )
            self._workers.append(self._forwarder)
        self.divided_shares: DividedShares | None = self if shard.of > 1 else None
        self.share_limit = ShareLimit(0, False)
        self.on_share_received: Callable[[str], None] = lambda _share: None
        #: moves the messages of shared subscriptions that other bridges also serve
        self._receiver: ShareReceiver | None = None
        #: shared subscriptions whose messages may still arrive although they have no members here, by remote queue manager:
        #: those that existed at the start, and former ones of this shard, the oldest first
        self._former_shares: dict[str, SharedSubscription] = {}
        if self.divided_shares is not None:
            self._receiver = ShareReceiver(
                partial(connect_owner, "shares"),
                queues.transmission,
                events=self,
                dead_letter_queue=settings.dead_letter_queue,
                limit=lambda: self.share_limit,
            )
            self._workers.append(self._receiver)
        for worker in self._workers:
            worker.probe_interval = settings.probe_interval
        self._watch = AnswerWatch(
            self._workers,
            loop,
            events=self,
            vital=(self._browser, self._first_remover),
            outage_timeout=settings.outage_timeout or None,
        )
        #: called on the event loop with client identifier, filter and reason code when a subscription is lost
        self.on_dropped: Callable[[str, str, int], None] = lambda _client_id, _filter, _reason: None
        #: called on the thread of a worker that has lost its connection, before any of them reconnects
        self.on_connection_lost: Callable[[], None] = lambda: None
        #: called on the event loop with finished units of work
        self.on_completed: Callable[[Sequence[Completion]], None] = lambda _completions: None
        #: called on the event loop
        self.events = Events(log.critical, log.critical, lambda _why: None, outage=lambda: None, active=lambda: None)
        self._consumer: Consumer | None = None
        #: clients whose session has ended while messages for it may be on the queue, and their delayed subscriptions
        self._fences: dict[str, int] = {}
        self._fenced: dict[str, list[SubscribeJob]] = {}
        #: number of pending `admit` calls, by client
        self._admitting: dict[str, int] = {}
        #: clients with a SUBSCRIBE in progress, and the units of work that must wait until it is complete
        self._subscribing: dict[str, int] = {}
        self._behind: dict[str, list[UnitOfWork]] = {}
        self._in_progress = UnitsInProgress()
        #: MsgIds that the record of a session must contain, because their removal is not committed, by client
        self._removing: dict[str, dict[bytes, None]] = {}
        self.on_limit: Callable[[str, str, int], None] = lambda _limit, _subject, _number: None
        self.on_removed: Callable[[float], None] = lambda _seconds: None
        self.reserve_dead_letter: Callable[[str, int], bool] = lambda _client_id, _length: True
        #: units of work with session records that have not ended, in their order, by client
        self._in_order: defaultdict[str, deque[DividedUnit]] = defaultdict(deque)
        #: MsgIds in the records of an earlier run
        self._acknowledged: frozenset[bytes] = frozenset()
        self._waiting_for_flush: list[asyncio.Future[None]] = []
        #: completions for the next call of `on_completed`
        self._completions: list[Completion] = []

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the event loop, from any thread."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            log.debug("the loop has ended; %s is not called", function)

    @property
    def available(self) -> bool:
        return not self._watch.silent and all(worker.connection is not None for worker in self._workers)

    @property
    def silence(self) -> Silence | None:
        """Since when and why the queue manager does not answer, or None if it answers. Also set before `open` returns."""
        silences = [worker.silence for worker in self._workers if worker.silence is not None]
        silences += [Silence(since, NO_REPLY) for since in self._watch.silent.values()]
        return min(silences, default=None)

    @property
    def depth(self) -> int:
        return self._browser.depth

    @property
    def unread(self) -> int:
        return self._browser.unread

    @property
    def outage(self) -> bool:
        return self._watch.outage

    def connections(self) -> list[QueueManagerConnectionStatus]:
        """Return the connections of all threads. Callable on any thread."""
        silent = dict(self._watch.silent)
        statuses = []
        for worker in self._workers:
            problem = NO_REPLY if worker.name in silent else "" if worker.silence is None else worker.silence.why
            connected = worker.connection is not None and worker.name not in silent
            statuses.append(QueueManagerConnectionStatus(name=worker.name, connected=connected, problem=problem))
        return statuses

    @property
    def failures(self) -> Sequence[str]:
        since = time.monotonic() - FAILURE_KEPT
        failures = [worker.failure for worker in self._workers if worker.failed_at > since]
        if self._browser.unreadable:
            failures.append(
                f"{len(self._browser.unreadable)} messages on {self.transmission_queue} cannot be read (see MQB4211E in the"
                " log; mqbridge mq remove removes such a message)"
            )
        return failures

    def count_commits(self) -> Sequence[Commits]:
        workers: list[Worker[Any]] = [*self._publishers, *self._removers]
        counted = [Commits() for _ in workers]
        for worker, commits in zip(workers, counted, strict=True):
            worker.commits = commits
        return counted

    async def open(self) -> RecoveredState:
        self._watch.start()
        self._first_remover.start()
        records = await self._ready
        self._subscriber.start()
        subscriptions: asyncio.Future[list[ClientSubscription]] = self._loop.create_future()
        self._subscriber.submit(InquireJob(lambda answer: self._call(resolve, subscriptions, answer)))
        stored = []
        for key, (msg_id, record) in records.items():
            keeper = self._first_remover if key.side is Side.SENT else self._publisher_of(key.client_id)
            keeper.current[key] = msg_id
            keeper.sequences[key] = record.sequence
            stored.append(record)
            if isinstance(record, SentRecord) and record.removing:
                self._removing[record.clientIdentifier] = dict.fromkeys(record.removing)
        self._acknowledged = frozenset(itertools.chain.from_iterable(self._removing.values()))
        others: list[Publisher | Remover] = [*self._publishers, *self._removers[1:]]
        for worker, receipt in zip(others, self._first_remover.receipts, strict=True):
            worker.take_receipt(receipt)
            worker.start()
        for optional in (self._forwarder, self._receiver):
            if optional is not None:
                optional.start()
        for client_id, removing in list(self._removing.items()):
            self._finish_removal(client_id, list(removing))
        recovered = RecoveredState(stored, [])
        for subscription in await subscriptions:
            subscription.client_id = self.client_names.client_of(subscription.client_id)
            is_share = is_remote_queue_manager(subscription.client_id)
            if subscription.client_id and (is_share or self.shard.owns(subscription.client_id)):
                recovered.subscriptions.append(subscription)
            if is_share and self.divided_shares is not None:
                self._note_former(shared_subscription(subscription.topic_filter))
        return recovered

    def name_publishers(self, is_wanted: bool) -> None:
        """Start or stop writing the users of clients into publications."""
        for publisher in self._publishers:
            publisher.names_users = is_wanted

    def _publisher_of(self, client_id: str) -> Publisher:
        return self._publishers[self.shard.part_of(client_id, len(self._publishers))]

    def _remove(self, messages: Iterable[QueuedMessage], operation: str) -> None:
        """Remove messages that no client receives, from any thread. The log describes a failure with `operation`."""
        if msg_ids := [message.msg_id for message in messages]:
            self._call(self._dispatch.remove, msg_ids, log_failure(operation))

    def _finish_removal(self, client_id: str, msg_ids: list[bytes]) -> None:
        """Remove the messages that a client acknowledged in an earlier run. After a failure, they stay in its record."""

        def done(reason: int) -> None:
            log_failure("removing acknowledged messages")(reason)
            if not reason:
                self._removed(client_id, msg_ids)

        self._dispatch.submit(client_id, Removal(msg_ids, {}, done))

    def start(self, consumer: Consumer) -> None:
        self._consumer = SegmentJoiner(consumer)
        self._browser.start()

    async def caught_up(self) -> None:
        await self._caught_up

    # Units of work ---------------------------------------------------------------------------------------------------

    def submit(self, unit: UnitOfWork) -> Mapping[int, int]:
        if unit.publications and (client_id := unit.publications[0][0].client_id) in self._subscribing:
            self._behind.setdefault(client_id, []).append(unit)
            return NONE_REFUSED
        for message, _ in unit.publications if self.client_names.escaped else ():
            if message.md.ReplyToQMgr == message.client_id.encode():
                name = self.client_names.name_of(message.client_id).encode()
                message.md = msgspec.structs.replace(message.md, ReplyToQMgr=name)
        divided = DividedUnit(unit)

        ended = partial(self._ended, divided)
        # Each record goes to the publisher of its client, which knows the MsgId of the previous record.
        parts: dict[Publisher, Part] = {}
        if unit.publications:
            publisher = self._publisher_of(unit.publications[0][0].client_id)
            # After they were browsed, messages for clients also use memory in this process.
            size = sum(len(message.payload) + MESSAGE_OVERHEAD for message, _ in unit.publications)
            accepted = self._memory.accepts(size, len(unit.publications))
            refusal = cmqc.MQRC_NONE if accepted else cmqc.MQRC_STORAGE_NOT_AVAILABLE
            divided.part = parts[publisher] = Part(unit, {}, ended, refusal)
        removals: dict[str, Removal] = {}
        for key, record in unit.records.items():
            # Records of packet identifiers do not wait for removals, because messages wait for these records.
            if key.side is Side.SENT:
                removals.setdefault(key.client_id, Removal([], {}, ended)).states[key] = record
                continue
            publisher = self._publisher_of(key.client_id)
            part = parts.get(publisher)
            if part is None:
                part = parts[publisher] = Part(UnitOfWork(), {}, ended)
            part.states[key] = part.unit.records[key] = record
        msg_ids = [message.msg_id for message in cast("list[QueuedMessage]", separate(unit.removals))]
        if len(removals) == 1:
            # A session's record and the messages that its client has acknowledged take effect together.
            ((client_id, removal),) = removals.items()
            record = next(iter(removal.states.values()))
            if record is not None and msg_ids and self._dispatch.active > 1:
                # Any remover may remove the messages in the record.
                divided.removing, msg_ids = msg_ids, []
                self._removing.setdefault(client_id, {}).update(dict.fromkeys(divided.removing))
                removal.done = partial(self._recorded, divided)
            else:
                removal.msg_ids, msg_ids = msg_ids, []
        for client_id, removal in removals.items() if self._removing else ():
            for record in removal.states.values():
                if isinstance(record, SentRecord) and client_id in self._removing:
                    record.removing, record.version = list(self._removing[client_id]), VERSION
        divided.client_ids = tuple(removals)
        if unit.released_by and unit.released_by not in removals:
            divided.client_ids += (unit.released_by,)
        for client_id in divided.client_ids:
            self._in_order[client_id].append(divided)
        divided.awaited = len(parts) + len(removals)
        self._in_progress.begin(divided)
        for publisher, part in parts.items():
            publisher.submit(part)
        for client_id, removal in removals.items():
            self._dispatch.submit(client_id, removal)
        if msg_ids:
            divided.awaited += self._dispatch.remove(msg_ids, ended)
        if not divided.awaited:
            divided.awaited = 1
            self._loop.call_soon(self._all_ended, (Removal([], {}, ended),), cmqc.MQRC_NONE)
        return NONE_REFUSED

    def ended(self, jobs: Sequence[Any], reason: int) -> None:
        self._call(self._all_ended, jobs, reason)

    def _all_ended(self, jobs: Sequence[Any], reason: int) -> None:
        if (lag := self._dispatch.ended(jobs)) is not None:
            self.on_removed(lag)
        for job in jobs:
            job.done(reason)
        completions, self._completions = self._completions, []
        if completions:
            self.on_completed(completions)
            self._flushed()

    def _recorded(self, divided: DividedUnit, reason: int) -> None:
        """Remove the messages in the record of a session, after the commit of the record."""
        if not reason:
            divided.awaited += self._dispatch.remove(divided.removing, partial(self._ended, divided))
        self._ended(divided, reason)

    def _ended(self, divided: DividedUnit, reason: int) -> None:
        divided.awaited -= 1
        divided.failure = divided.failure or reason
        if divided.awaited:
            return
        if divided.removing:
            self._removed(divided.client_ids[0], divided.removing)
        self._complete(divided)

    def _complete(self, divided: DividedUnit) -> None:
        """Report a unit of work that has ended, unless an earlier one of the client with a record or PUBREL has not.

        PUBREL follows the end of a unit of work, and must be sent in the order of PUBREC (MQTT 3.1.1, section 4.6).
        """
        ready = {divided: None}
        while ready:
            ended, _ = ready.popitem()
            orders = [self._in_order[client_id] for client_id in ended.client_ids]
            if any(order[0] is not ended for order in orders):
                continue
            for client_id, order in zip(ended.client_ids, orders, strict=True):
                order.popleft()
                if not order:
                    del self._in_order[client_id]
            ready |= {order[0]: None for order in orders if order and not order[0].awaited}
            self._in_progress.end(ended)
            part = ended.part
            refusals = NONE_REFUSED if part is None else part.refusals
            diverted = NONE_REFUSED if part is None else part.diverted
            self._completions.append(Completion(ended.unit.number, ended.failure, refusals, diverted))

    def _removed(self, client_id: str, msg_ids: Iterable[bytes]) -> None:
        """Remove messages from the records of a session."""
        removing = self._removing.get(client_id)
        if removing is not None:
            for msg_id in msg_ids:
                removing.pop(msg_id, None)
            if not removing:
                del self._removing[client_id]

    # Subscriptions ---------------------------------------------------------------------------------------------------

    def admit(self, client_id: str, user: str) -> asyncio.Future[int]:
        answer: asyncio.Future[int] = self._loop.create_future()
        if not user and client_id not in self._admitting:
            # The client acts as the bridge itself, whose authorities were checked at the start.
            answer.set_result(cmqc.MQRC_NONE)
            return answer
        self._admitting[client_id] = self._admitting.get(client_id, 0) + 1

        def answered(reason: int) -> None:
            self._admitting[client_id] -= 1
            if not self._admitting[client_id]:
                del self._admitting[client_id]
            resolve(answer, reason)

        name = self.client_names.name_of(client_id)
        self._subscriber.submit(Admit(name, user, lambda reason: self._call(answered, reason)))
        return answer

    def subscribe(
        self, client_id: str, requests: Sequence[SubscriptionRequest], *, durable: bool, user: str, member: str = ""
    ) -> asyncio.Future[list[int]]:
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        asking = member or client_id
        self._hold_publications(asking)

        def answered(reasons: list[int]) -> None:
            resolve(answer, reasons)
            self._release_publications(asking)

        name = self.client_names.name_of(client_id)
        request = SubscribeJob(name, requests, durable, user, lambda reasons: self._call(answered, reasons))
        if client_id in self._fences:
            self._fenced.setdefault(client_id, []).append(request)
        else:
            self._subscriber.submit(request)
        return answer

    @property
    def subscriptions(self) -> Sized:
        return ()

    def weight(self, topic: str) -> int:
        return 1  # the queue manager delivers

    def _hold_publications(self, client_id: str) -> None:
        """Delay a client's publications until its subscriptions are changed, on another thread."""
        self._subscribing[client_id] = self._subscribing.get(client_id, 0) + 1

    def _release_publications(self, client_id: str) -> None:
        self._subscribing[client_id] -= 1
        if not self._subscribing[client_id]:
            del self._subscribing[client_id]
            for unit in self._behind.pop(client_id, []):
                self.submit(unit)

    def authorize(
        self, client_id: str, requests: Sequence[SubscriptionRequest], *, user: str, changed: bool, member: str = ""
    ) -> asyncio.Future[list[int]]:
        # MQSUB checks authority, so an altered subscription is an authorized one. An unchanged user was checked before.
        if changed and user:
            return self.subscribe(client_id, requests, durable=True, user=user, member=member)
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        answer.set_result([cmqc.MQRC_NONE] * len(requests))
        return answer

    def refuse(self, client_id: str, refused: bool) -> None:
        raise AssertionError("the configuration accepts limits.waiting_full: refuse on the embedded queue manager only")

    def unsubscribe(
        self, client_id: str, filters: Sequence[str], *, ended: bool = False, handed_over: bool = False
    ) -> asyncio.Future[list[int]]:
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        name = self.client_names.name_of(client_id)
        if not ended:
            # MQTT-3.10.4-2: publications that the client sent after UNSUBSCRIBE follow it.
            self._hold_publications(client_id)

            def unsubscribed(reasons: list[int]) -> None:
                resolve(answer, reasons)
                self._release_publications(client_id)

            def wait_for_messages(reasons: list[int]) -> None:
                # The queue manager puts no further messages for these subscriptions. Wait for the browser to see all of them.
                then = partial(self._call, unsubscribed, reasons)
                self._in_progress.when_published(partial(self._browser.when_passed, then))

            after = wait_for_messages if handed_over else unsubscribed
            self._subscriber.submit(UnsubscribeJob(name, filters, partial(self._call, after)))
            return answer
        self._fences[client_id] = self._fences.get(client_id, 0) + 1
        # Discard delayed subscriptions of a session that has ended before they were created.
        for request in self._fenced.pop(client_id, []):
            request.done([cmqc.MQRC_NO_SUBSCRIPTION] * len(request.requests))

        def removed(reasons: list[int]) -> None:
            self._lift_later(client_id)
            resolve(answer, reasons)

        self._subscriber.submit(UnsubscribeJob(name, filters, partial(self._call, removed), ended=True))
        return answer

    def _lift_later(self, client_id: str) -> None:
        """Remove a fence after the last messages for the subscriptions, which the queue manager has removed.

        Wait until previous publications are committed, and then for a pass of the browser.
        """
        lift = partial(self._call, self._lift, client_id)
        self._in_progress.when_published(lambda: self._browser.when_passed(lift))

    def _lift(self, client_id: str) -> None:
        """Remove a fence: the queue contains no more messages for the subscriptions of an ended session."""
        self._fences[client_id] -= 1
        if self._fences[client_id]:
            return
        del self._fences[client_id]
        for request in self._fenced.pop(client_id, []):
            self._subscriber.submit(request)

    # Shared subscriptions that other bridges also serve --------------------------------------------------------------

    def request_share(self, share: SharedSubscription, messages: int) -> None:
        assert self._receiver is not None
        self._receiver.request(share, messages)

    def return_to_share(
        self, share: SharedSubscription, waiting: Sequence[Transmission]
    ) -> asyncio.Future[Sequence[Transmission]]:
        answer: asyncio.Future[Sequence[Transmission]] = self._loop.create_future()
        self._return(share, waiting, lambda _reason, rest: self._call(resolve, answer, rest))
        return answer

    def _return(
        self,
        share: SharedSubscription,
        waiting: Sequence[Transmission],
        on_end: Callable[[int, Sequence[Transmission]], None],
        *,
        leaves: bool = False,
    ) -> None:
        """Return messages. Call `on_end`, on another thread, with a reason code and the messages that stayed."""
        assert self._receiver is not None
        messages = [
            [message.msg_id for message in cast("list[QueuedMessage]", separate([transmission]))]
            for transmission in waiting
        ]
        job = ReturnJob(share, messages, lambda reason, moved: on_end(reason, waiting[moved:]), leaves)
        self._receiver.submit(job)

    def leave_share(self, share: SharedSubscription, waiting: Sequence[Transmission]) -> asyncio.Future[list[int]]:
        assert self._receiver is not None
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        name = share.remote_queue_manager
        self._fences[name] = self._fences.get(name, 0) + 1
        self._note_former(share)
        self._receiver.forget(share)

        def closed(_reason: int, _rest: Sequence[Transmission]) -> None:
            client_id = self.client_names.name_of(name)
            self._subscriber.submit(UnsubscribeJob(client_id, [share.written], partial(self._call, left), ended=True))

        def left(reasons: list[int]) -> None:
            # If no other shard has members, the subscription and its messages are gone. Return messages only now, because
            # its queue may be full, and the last shard no longer removes messages from it.
            self.return_at_last(share, waiting, partial(attempted, reasons))

        def attempted(reasons: list[int]) -> None:
            # Clients do not wait for further attempts.
            self._lift_later(name)
            resolve(answer, reasons)

        self._return(share, [], closed, leaves=True)
        return answer

    def return_at_last(
        self,
        share: SharedSubscription,
        waiting: Sequence[Transmission],
        attempted: Callable[[], None] = lambda: None,
    ) -> None:
        """Return messages of a shared subscription that has no members here. Retry until the messages are returned.

        Another bridge, even a killed one, may have the subscription open, and its queue may be full. Messages of a
        subscription that no longer exists are removed. They are dead-lettered after a permanent failure, such as
        MQRC_NOT_AUTHORIZED. `attempted` is called after the first attempt.
        """

        def returned(reason: int, rest: Sequence[Transmission]) -> None:
            if reason in _DELETED:
                messages = cast("list[QueuedMessage]", separate(rest))
                self._remove(messages, "removing messages of a shared subscription")
            elif reason in _TEMPORARY:
                self._loop.call_later(_RETURN_RETRY, self.return_at_last, share, rest)
            elif reason:
                for transmission in rest:
                    self.dead_letter(transmission, reason)
            attempted()

        self._return(share, waiting, partial(self._call, returned), leaves=True)

    def _note_former(self, share: SharedSubscription) -> None:
        name = share.remote_queue_manager
        self._former_shares.pop(name, None)
        if len(self._former_shares) >= MAX_FORMER_SHARES:
            del self._former_shares[next(iter(self._former_shares))]
        self._former_shares[name] = share

    def return_unclaimed(self, name: str, waiting: Sequence[Transmission]) -> None:
        share = self._former_shares.get(name)
        if share is not None:
            self.return_at_last(share, waiting)
            return
        for transmission in waiting:
            self.dead_letter(transmission, cmqc.MQRC_NO_SUBSCRIPTION)

    def received_share(self, share: str) -> None:
        self._browser.when_passed(partial(self._call, self._share_received, share))

    def _share_received(self, share: str) -> None:
        assert self._receiver is not None
        self.on_share_received(share)
        self._receiver.arrived(share)

    def limited_share(self, share: str, number: int) -> None:
        self._call(self.on_limit, "waiting_bytes", share, number)

    # Dead letters and the end ----------------------------------------------------------------------------------------

    def dead_letter(
        self, transmission: Transmission, reason: int, on_moved: Callable[[bool], None] = lambda _moved: None
    ) -> None:
        # Move segments separately, because the joined message may be too long for the dead-letter queue.
        queued = cast("list[QueuedMessage]", separate([transmission]))
        letters = [
            Undeliverable(message.got, *message.undelivered, message.remote_queue, message.queue_manager, reason)
            for message in queued
        ]

        def ended(failure: int) -> None:
            log_failure("dead-lettering a message")(failure)
            on_moved(not failure)

        self._dispatch.submit(transmission.client_id, Removal([], {}, ended, letters))

    def flush(self) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = self._loop.create_future()
        self._waiting_for_flush.append(answer)
        self._flushed()
        return answer

    def _flushed(self) -> None:
        if self._waiting_for_flush and not self._in_progress and not self._behind:
            waiting, self._waiting_for_flush = self._waiting_for_flush, []
            for answer in waiting:
                resolve(answer, None)

    def stop(self) -> asyncio.Future[None]:
        stopped: asyncio.Future[None] = self._loop.create_future()
        # Stop the subscriber first: its last results release publications that wait for a SUBSCRIBE.
        self._end(
            (self._subscriber,),
            Worker.stop,
            lambda: self._end(self._workers, Worker.stop, partial(resolve, stopped, None)),
        )
        return stopped

    def abandon(self) -> asyncio.Future[None]:
        """Stop immediately, because another bridge has taken over. Waiting work is discarded and not reported."""
        abandoned: asyncio.Future[None] = self._loop.create_future()
        self._consumer = None
        self._end(self._workers, Worker.abandon, partial(resolve, abandoned, None))
        return abandoned

    def _end(
        self, workers: Sequence[Worker[Any]], how: Callable[[Worker[Any]], None], on_end: Callable[[], None]
    ) -> None:
        """End workers within the stop timeout, and then call `on_end` on the event loop, after all their reports."""
        self._watch.stop()
        if not self._stop_until:
            self._stop_until = time.monotonic() + self._stop_timeout

        def end() -> None:
            for worker in workers:
                how(worker)
            for worker in workers:
                if not worker.join(max(0.0, self._stop_until - time.monotonic())):
                    log.warning("MQB4008W %s did not end in time: the queue manager does not answer", worker.name)
                elif isinstance(worker, Publisher):
                    log.info("MQB4009I %s: %s", worker.name, worker.summary())
            self._call(on_end)

        threading.Thread(target=end, name="end of the workers", daemon=True).start()

    # Events of the workers, on their threads --------------------------------------------------------------------------

    def connection_lost(self, worker: Worker[Any]) -> None:
        self.on_connection_lost()
        for other in self._workers:
            if other is not worker:
                other.request_probe()

    def connected(self, worker: Worker[Any]) -> None:
        for other in self._workers:
            if other is not worker:
                other.request_reconnect()

    def crashed(self, why: str) -> None:
        self._call(self.events.failed, why)

    def fenced(self, why: str) -> None:
        self._call(self.events.fenced, why)

    def standing_by(self, why: str) -> None:
        self._call(self.events.standing_by, why)

    def took_over(self, records: dict[StateKey, tuple[bytes, StateRecord]]) -> None:
        self._call(self.events.active)
        self._call(resolve, self._ready, records)

    def refused(self, error: MQError) -> None:
        self._call(reject, self._ready, error)

    def browsed(self, batch: Sequence[QueuedMessage]) -> None:
        if self._acknowledged:
            batch = [message for message in batch if message.msg_id not in self._acknowledged]
        if any(message.replay for message in batch):
            # The subscription that requested retained publications again also got new publications, as duplicates.
            self._remove(
                [message for message in batch if message.replay and not message.retained],
                "removing duplicates of a replay",
            )
            batch = [message for message in batch if message.retained or not message.replay]
        for message in batch if self.client_names.escaped else ():
            message.client_id = self.client_names.client_of(message.client_id)
        fences = self._fences
        if fences:
            late = {
                message.msg_id: message
                for message in batch
                if message.user_data is not None and message.client_id in fences
            }
            self._discard_late(late.values())
            batch = [message for message in batch if message.msg_id not in late]
        if self._consumer is not None and batch:
            self._call(self._consumer, batch)

    def _discard_late(self, late: Iterable[QueuedMessage]) -> None:
        """Remove messages of sessions that have ended. Messages of a shared subscription go to members at other bridges."""
        own: list[QueuedMessage] = []
        of_shares: dict[str, list[QueuedMessage]] = {}
        for message in late:
            is_shared = self.divided_shares is not None and is_remote_queue_manager(message.client_id)
            (of_shares.setdefault(message.client_id, []) if is_shared else own).append(message)
        for name, messages in of_shares.items():
            self._call(self.return_unclaimed, name, messages)
        self._remove(own, "removing messages of a session that has ended")

    def may_dead_letter(self, client_id: str, length: int) -> bool:
        return self.reserve_dead_letter(client_id, length)

    def malformed(self, message: Got, reason: int) -> None:
        letter = Undeliverable(message, message.md, message.data, "", "", reason)
        self._first_remover.submit(Removal([], {}, log_failure("dead-lettering a message"), [letter]))

    def has_caught_up(self) -> None:
        self._call(resolve, self._caught_up, None)

    def removed(self, msg_ids: Sequence[bytes]) -> None:
        self._browser.forget(msg_ids)

    def dropped(self, client: str, topic_filter: str, reason: int) -> None:
        self._call(self.on_dropped, self.client_names.client_of(client), topic_filter, reason)

    def unreachable(self) -> None:
        self.events.outage()


def log_failure(operation: str) -> Callable[[int], None]:
    def done(reason: int) -> None:
        if reason:
            log.error(
                "MQB4010E %s failed, the message was not moved: %s (%d)", operation, cmqc.reason_name(reason), reason
            )

    return done
