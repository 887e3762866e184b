"""The thread that creates and removes clients' subscriptions (`ClientIdentifier:Topic name`) and shared subscriptions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from bridge.mq.backend import ClientSubscription, SubscriptionRequest
from bridge.mq.ibm.coordination import BackendEvents, SubscriptionBarrier
from bridge.mq.ibm.share_members import remove_share, share_members
from bridge.mq.ibm.transmission import REPLAY, subscription_destination
from bridge.mq.message_consumer import OPENED_ELSEWHERE
from bridge.mq.mqi import MQOD, MQSD, Connection, MQError, inquire
from bridge.mq.worker import Stopped, Worker, probe, raise_if_lost
from bridge.mqtt.topics import topic_string_error
from bridge.telemetry.shard import UNDIVIDED, Shard
from bridge.telemetry.subscription import (
    is_remote_queue_manager,
    shared_subscription,
    subscriber_of,
    subscription_name,
    topic_string,
)
from bridge.wire import cmqc


class SubscribeJob(msgspec.Struct, eq=False):
    """Create or alter subscriptions of one client. `done` gets a reason code for each, on the subscriber's thread."""

    client_id: str
    requests: Sequence[SubscriptionRequest]
    durable: bool
    user: str
    done: Callable[[list[int]], None]


class UnsubscribeJob(msgspec.Struct, eq=False):
    """Remove subscriptions of one client. `done` gets a reason code for each, on the subscriber's thread.

    If the session has `ended`, a failed removal is retried later.
    """

    client_id: str
    filters: Sequence[str]
    done: Callable[[list[int]], None]
    ended: bool = False


class Admit(msgspec.Struct, eq=False):
    """Check whether a user may put messages to a client. `done` gets the reason code, on the subscriber's thread."""

    client_id: str
    user: str
    done: Callable[[int], None]


class InquireJob(msgspec.Struct, eq=False):
    """List the subscriptions of MQTT clients, and remove subscriptions of clean sessions of a bridge that died."""

    done: Callable[[list[ClientSubscription]], None]


Request = Admit | SubscribeJob | UnsubscribeJob | InquireJob


log = logging.getLogger(__name__)

#: Handles of a connection (MAXHANDS) that are reserved for other purposes than non-durable subscriptions.
OTHER_HANDLES = 56
#: Temporary reason codes of creating a subscription again after a reconnect, in addition to those of rejected connections.
PASSING = frozenset(
    (
        cmqc.MQRC_HANDLE_NOT_AVAILABLE,
        cmqc.MQRC_SUB_ALREADY_EXISTS,
        cmqc.MQRC_SUBSCRIPTION_IN_USE,
        cmqc.MQRC_OBJECT_IN_USE,
        cmqc.MQRC_PUT_INHIBITED,
        cmqc.MQRC_Q_FULL,
        cmqc.MQRC_Q_SPACE_NOT_AVAILABLE,
        cmqc.MQRC_STORAGE_NOT_AVAILABLE,
        cmqc.MQRC_RESOURCE_PROBLEM,
    )
)
#: Interval between retries in seconds, and the maximum number of attempts to list the subscriptions.
MAKE_INTERVAL, MAX_INQUIRIES = 1.0, 30
#: The maximum delay of publications while subscriptions cannot be created again, in seconds. The queue manager detects the
#: lost connection earlier, after twice the HBINT(10) of deploy/mq/bridge.mqsc.
MAX_PUBLICATION_DELAY = 30.0
#: Time for which the result of an authority check is cached, in seconds.
ANSWER_KEPT = 1.0
#: Seconds between attempts to make another connection after a rejected attempt.
CONNECTION_RETRY = 1.0
#: Seconds between attempts to change a shared subscription that another shard is changing.
SHARE_RETRY = 0.05


class ShareInUse(Exception):
    """Another shard is changing a shared subscription."""


class HeldSubscription(msgspec.Struct, eq=False):
    """A non-durable subscription, which exists while its handle is open."""

    request: SubscribeJob
    wanted: SubscriptionRequest
    connection: Connection
    handle: int


class Subscriber(Worker[Request]):
    """Runs subscription requests one by one, and creates subscriptions of clean sessions again after a reconnect."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        barrier: SubscriptionBarrier,
        events: BackendEvents,
        *,
        max_connections: int = 50,
        transmission_queue: str = "",
        shard: Shard = UNDIVIDED,
    ) -> None:
        """`transmission_queue` is the queue of a shard, or blank if the clients are not divided."""
        super().__init__("subscriptions", connect, events=events)
        self._transmission_queue = transmission_queue
        self._shard = shard
        #: requests for shared subscriptions that wait for a change by another shard, in order
        self._waiting_for_share: list[SubscribeJob | UnsubscribeJob] = []
        #: time.monotonic() of the next attempt of these requests
        self._share_at = 0.0
        self._events = events
        self._max_connections = max_connections
        self._assurance = barrier
        #: time.monotonic() of the next attempt to create the subscriptions in `_to_make`
        self._make_at = 0.0
        #: time.monotonic() since when `_to_make` is not empty, or 0.0 if it is empty
        self._unmade_since = 0.0
        self._inquiries = 0
        self._open_connection = connect
        self._held: dict[str, HeldSubscription] = {}
        #: subscriptions of a lost connection, until they are created again
        self._to_make: dict[str, HeldSubscription] = {}
        self._connections: list[Connection] = []
        #: number of non-durable subscriptions by index of their connection, and the maximum number for each connection
        self._load: dict[int, int] = {}
        self._capacity = 0
        #: why another connection is not possible, and when (time.monotonic()) to try again
        self._full: MQError | None = None
        self._connect_at = 0.0
        #: subscriptions of ended sessions that could not be removed yet: name -> (client identifier, filter)
        self._leftover: dict[str, tuple[str, str]] = {}
        self._request: Request | None = None
        #: reason codes by user, cached since `_asked` (time.monotonic())
        self._answers: dict[str, int] = {}
        self._asked = 0.0

    def opened(self, connection: Connection) -> None:
        losses = self._assurance.losses
        for other in self._connections[1:]:
            self._leave(other)  # from an attempt that failed
        self._connections = [connection]
        self._load = {0: 0}
        self._capacity = self._handles(connection) - OTHER_HANDLES
        self._to_make |= self._held
        self._held = {}
        self._make()
        self._assure(losses)

    def _assure(self, losses: int) -> None:
        """Release the barrier for publishers when all subscriptions exist again, or after MAX_PUBLICATION_DELAY seconds."""
        now = time.monotonic()
        if not self._to_make:
            self._unmade_since = 0.0
        elif not self._unmade_since:
            self._unmade_since = now
            problem = (
                f"{len(self._to_make)} subscriptions were not restored yet, for example {next(iter(self._to_make))}"
            )
            log.warning(
                "MQB4301W %s: %s; publications wait for at most %g s", self.name, problem, MAX_PUBLICATION_DELAY
            )
        if not self._to_make or now - self._unmade_since >= MAX_PUBLICATION_DELAY:
            self._assurance.assure(losses)

    def _make_again(self) -> None:
        """Retry creating the subscriptions of a lost connection, if the next attempt is due."""
        if self._to_make and time.monotonic() >= self._make_at:
            losses = self._assurance.losses
            self._make()
            self._assure(losses)

    def _make(self) -> None:
        """Create the subscriptions of a lost connection again. After a temporary failure, they stay in `_to_make`."""
        for name, subscription in list(self._to_make.items()):
            if self._ending:
                raise Stopped
            reason = self._subscribe_one(subscription.request, subscription.wanted)
            if self._is_passing(reason):
                # 2432: the queue manager has not detected the loss of the old connection, which still owns the subscription.
                continue
            del self._to_make[name]
            if reason:
                log.error(
                    "MQB4302E restoring subscription %s after the reconnect failed, disconnecting its client: %s (%d)",
                    name,
                    cmqc.reason_name(reason),
                    reason,
                )
                self._events.dropped(subscription.request.client_id, subscription.wanted.topic_filter, reason)
        if self._to_make:
            self._make_at = time.monotonic() + MAKE_INTERVAL

    def probe(self, connection: Connection) -> None:
        """Check all connections that have subscriptions."""
        losses = self._assurance.losses
        for subscribed in self._connections:
            probe(subscribed)
        self._assure(losses)
        for name, (client_id, topic_filter) in list(self._leftover.items()):
            try:
                reason = self._unsubscribe_one(connection, client_id, topic_filter)
            except ShareInUse:
                continue
            if not reason:
                del self._leftover[name]
                log.info("MQB4308I removed subscription %s after an earlier failure", name)

    def lost(self) -> None:
        for connection in self._connections[1:]:
            self._leave(connection)
        self._connections = []
        if self._request is not None:
            self.give_back([self._request])
            self._request = None
        self._resume_waiting()

    def failed(self, error: MQError) -> None:
        log.error("MQB4303E %s: %s", self.name, error)
        request, self._request = self._request, None
        if isinstance(request, SubscribeJob):
            request.done([error.reason] * len(request.requests))
        elif isinstance(request, Admit):
            request.done(error.reason)
        elif isinstance(request, UnsubscribeJob):
            request.done([error.reason] * len(request.filters))
        elif request is not None:
            # Retry, because messages for unknown sessions would be treated as undeliverable.
            self._inquiries += 1
            if self._inquiries >= MAX_INQUIRIES:
                self._events.crashed(f"the queue manager does not list its subscriptions: {error}")
                raise Stopped
            self.give_back([request])
            with self._changed:
                self._changed.wait_for(lambda: self._ending, MAKE_INTERVAL)

    def _resume_waiting(self) -> None:
        """Submit the requests that wait for another shard again, before all other requests."""
        waiting, self._waiting_for_share = self._waiting_for_share, []
        self.give_back(list(waiting))

    @property
    def ending(self) -> bool:
        return super().ending and not self._waiting_for_share

    def abandon(self) -> None:
        self._waiting_for_share = []
        super().abandon()

    def serve(self, connection: Connection) -> None:
        self._make_again()
        if self._waiting_for_share and (self._ending or time.monotonic() >= self._share_at):
            self._resume_waiting()
        timeout = MAKE_INTERVAL if self._to_make else self.probe_interval
        if not self.wait_for_jobs(SHARE_RETRY if self._waiting_for_share else timeout):
            return
        request = self._request = self.next_job()
        try:
            if self._waits_for_share(request):
                raise ShareInUse
            self._execute(connection, request)
        except ShareInUse:
            assert isinstance(request, SubscribeJob | UnsubscribeJob)
            self._request = None
            if self._ending:
                request.done([cmqc.MQRC_OBJECT_IN_USE])
                return
            # The requests of other clients continue.
            self._waiting_for_share.append(request)
            self._share_at = time.monotonic() + SHARE_RETRY

    def _waits_for_share(self, request: Request | None) -> bool:
        """Return whether an earlier request for the same shared subscription waits."""
        return isinstance(request, SubscribeJob | UnsubscribeJob) and any(
            request.client_id == waiting.client_id for waiting in self._waiting_for_share
        )

    def _is_divided_share(self, client_id: str) -> bool:
        """Return whether this is a shared subscription whose members several bridges serve."""
        return self._shard.of > 1 and is_remote_queue_manager(client_id)

    def _execute(self, connection: Connection, request: Request | None) -> None:
        match request:
            case SubscribeJob():
                reasons = [self._subscribe(request, subscription) for subscription in request.requests]
                self._request = None
                request.done(reasons)
            case Admit():
                reason = self._admit(connection, request)
                self._request = None
                request.done(reason)
            case UnsubscribeJob():
                reasons = [
                    self._unsubscribe_one(connection, request.client_id, topic_filter)
                    for topic_filter in request.filters
                ]
                if request.ended:
                    self._leftover |= {
                        subscription_name(request.client_id, topic_filter): (request.client_id, topic_filter)
                        for topic_filter, reason in zip(request.filters, reasons, strict=True)
                        if reason
                    }
                self._request = None
                request.done(reasons)
            case InquireJob():
                subscriptions = self._inquire(connection)
                self._request = None
                request.done(subscriptions)

    @staticmethod
    def _handles(connection: Connection) -> int:
        """Return the maximum number of handles of a connection (MAXHANDS)."""
        options = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
        od = MQOD(ObjectType=cmqc.MQOT_Q_MGR)
        return inquire(connection, od, (cmqc.MQIA_MAX_HANDLES,), options)[0][0]

    def _roomy(self) -> int:
        """Return the index of a connection with room for one more subscription.

        Raises MQError if all are full, and the queue manager or `max_connections` does not allow another connection.
        """
        for index in range(len(self._connections)):
            if self._load.get(index, 0) < self._capacity:
                return index
        if self._full is not None and time.monotonic() < self._connect_at:
            raise self._full
        try:
            if len(self._connections) >= self._max_connections:
                limit = f"queue_manager.subscription_connections ({self._max_connections})"
                problem = f"{limit} is reached; hint: raise it or MAXHANDS"
                raise MQError(cmqc.MQRC_MAX_CONNS_LIMIT_REACHED, problem)
            connection = self._open_connection()
        except MQError as error:
            if self._full is None:
                log.error(
                    "MQB4309E no connection is available for subscriptions of clean sessions; rejecting new ones: %s",
                    error,
                )
            self._full, self._connect_at = error, time.monotonic() + CONNECTION_RETRY
            raise
        if self._full is not None:
            self._full = None
            log.info("MQB4310I a connection for subscriptions of clean sessions is available again")
        self._connections.append(connection)
        self._load[len(self._connections) - 1] = 0
        return len(self._connections) - 1

    def _is_passing(self, reason: int) -> bool:
        """Return whether a subscription failed for a temporary reason, such as a refused connection."""
        return reason in PASSING or (self._full is not None and self._full.reason == reason)

    def _destination(self, connection: Connection, client_id: str, user: str) -> int:
        """Open the destination of a client's subscriptions as a user. Blank is the bridge itself."""
        od = subscription_destination(client_id, self._transmission_queue, user)
        options = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
        return connection.open(od, options | (cmqc.MQOO_ALTERNATE_USER_AUTHORITY if user else 0))

    def _admit(self, connection: Connection, request: Admit) -> int:
        """Return the reason code of a user's authority check, which is cached briefly.

        Many clients of one user may connect at the same time. The authority is required for the transmission queue, so it
        does not depend on the client.
        """
        now = time.monotonic()
        if now - self._asked > ANSWER_KEPT:
            self._answers.clear()
            self._asked = now
        reason = self._answers.get(request.user)
        if reason is None:
            reason = self._ask(connection, request)
            if reason in (cmqc.MQRC_NONE, cmqc.MQRC_NOT_AUTHORIZED):
                self._answers[request.user] = reason
        return reason

    def _ask(self, connection: Connection, request: Admit) -> int:
        try:
            connection.close(self._destination(connection, request.client_id, request.user))
        except MQError as error:
            raise_if_lost(error)
            log.warning("MQB4304W rejected client %r as user %r: %s", request.client_id, request.user, error)
            return error.reason
        return cmqc.MQRC_NONE

    def _subscribe(self, request: SubscribeJob, subscription: SubscriptionRequest) -> int:
        """Create or alter a client's subscription. A subscription in `_to_make` stays there with the new request."""
        name = subscription_name(request.client_id, subscription.topic_filter)
        reason = self._subscribe_one(request, subscription)
        waiting = self._to_make.pop(name, None)
        if waiting is None or not self._is_passing(reason):
            return reason
        self._to_make[name] = HeldSubscription(request, subscription, waiting.connection, waiting.handle)
        return cmqc.MQRC_NONE

    def _subscribe_one(self, request: SubscribeJob, subscription: SubscriptionRequest) -> int:
        if topic_string_error(subscription.topic_filter) is not None:
            return cmqc.MQRC_TOPIC_STRING_ERROR
        name = subscription_name(request.client_id, subscription.topic_filter)
        self._leftover.pop(name, None)
        former = self._held.get(name)
        if former is not None and former.request.client_id != request.client_id:
            return cmqc.MQRC_SUB_ALREADY_EXISTS
        if not request.durable and former is not None:
            self._close_held(self._held.pop(name))
        try:
            index = 0 if request.durable else self._roomy()
        except MQError as error:
            # A rejected connection has many reason codes, including those of a lost queue manager. Probe the first one.
            probe(self._connections[0])
            return error.reason  # keep the existing connections, and report the reason code to the client
        connection = self._connections[index]
        try:
            if self._is_divided_share(request.client_id):
                self._join(connection, request, subscription)
                return cmqc.MQRC_NONE
            destination = self._destination(connection, request.client_id, request.user)
            try:
                handle, _ = self._create(connection, request, subscription, destination)
            finally:
                connection.close(destination)
        except MQError as error:
            raise_if_lost(error)
            log.warning("MQB4305W rejected subscription %s as user %r: %s", name, request.user, error)
            return error.reason
        if request.durable:
            connection.close(handle)
        else:
            self._held[name] = HeldSubscription(request, subscription, connection, handle)
            self._load[index] = self._load.get(index, 0) + 1
        return cmqc.MQRC_NONE

    def _join(self, connection: Connection, request: SubscribeJob, subscription: SubscriptionRequest) -> None:
        """Record that this shard has members of a shared subscription. Raises MQError or ShareInUse."""
        try:
            with share_members(connection, self._shard.number) as members:
                handle, queue = self._create(connection, request, subscription, None)
                connection.close(handle)
                connection.close(queue)
                members.add(shared_subscription(subscription.topic_filter))
        except MQError as error:
            if error.reason in OPENED_ELSEWHERE:
                raise ShareInUse from error
            raise

    def _leave_share(self, connection: Connection, topic_filter: str) -> None:
        """Remove a shared subscription if no other shard has members. Raises MQError or ShareInUse."""
        share = shared_subscription(topic_filter)
        try:
            with share_members(connection, self._shard.number) as members:
                if not members.remove(share):
                    remove_share(connection, share)
        except MQError as error:
            if error.reason in OPENED_ELSEWHERE:
                raise ShareInUse from error
            raise

    def _create(
        self, connection: Connection, request: SubscribeJob, subscription: SubscriptionRequest, destination: int | None
    ) -> tuple[int, int]:
        """Alter the subscription if it exists, otherwise create it. Return the handles of subscription and destination.

        Without a destination, the queue manager creates a queue for the subscription.
        """

        def descriptor(options: int) -> MQSD:
            options |= cmqc.MQSO_WILDCARD_TOPIC | cmqc.MQSO_FAIL_IF_QUIESCING | cmqc.MQSO_ANY_USERID
            options |= cmqc.MQSO_SET_CORREL_ID  # zeros: messages keep the CorrelId of the publication
            if destination is None:
                options |= cmqc.MQSO_MANAGED
            if request.user:
                options |= cmqc.MQSO_ALTERNATE_USER_AUTHORITY
            if not subscription.retained and options & cmqc.MQSO_CREATE:
                options |= cmqc.MQSO_NEW_PUBLICATIONS_ONLY
            return MQSD(
                Options=options,
                ObjectString=topic_string(request.client_id, subscription.topic_filter),
                SubName=subscription_name(request.client_id, subscription.topic_filter),
                SubUserData=subscription.data.user_data,
                SubLevel=1,
                AlternateUserId=request.user,
            )

        if not request.durable:
            return connection.subscribe(descriptor(cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE), destination)
        try:
            handles = connection.subscribe(descriptor(cmqc.MQSO_ALTER | cmqc.MQSO_DURABLE), destination)
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_SUBSCRIPTION:
                raise
            return connection.subscribe(descriptor(cmqc.MQSO_CREATE | cmqc.MQSO_DURABLE), destination)
        if subscription.retained and destination is not None:
            replay = descriptor(cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE)
            replay.SubName, replay.SubUserData = "", subscription.data.user_data + REPLAY
            self._replay_retained(connection, replay, destination)
        return handles

    @staticmethod
    def _replay_retained(connection: Connection, replay: MQSD, destination: int) -> None:
        """Send the retained publications again to an altered subscription, via a temporary subscription.

        MQTT-3.8.4-3 requires them when a client subscribes again, but MQSO_ALTER does not send them. MQSUBRQ is not an
        alternative, because IBM MQ allows it only for subscriptions with MQSO_PUBLICATIONS_ON_REQUEST.
        """
        try:
            connection.close(connection.subscribe(replay, destination)[0])
        except MQError as error:
            raise_if_lost(error)
            log.warning("MQB4306W requesting retained publications for an altered subscription failed: %s", error)

    def _close_held(self, subscription: HeldSubscription) -> None:
        subscription.connection.close(subscription.handle)
        if subscription.connection in self._connections:
            self._load[self._connections.index(subscription.connection)] -= 1

    def _unsubscribe_one(self, connection: Connection, client_id: str, topic_filter: str) -> int:
        """Remove a subscription. Return MQRC_NONE if it is gone, otherwise the reason code."""
        name = subscription_name(client_id, topic_filter)
        subscription = self._held.pop(name, None)
        self._to_make.pop(name, None)
        try:
            if subscription is not None:
                self._close_held(subscription)
            elif self._is_divided_share(client_id):
                self._leave_share(connection, topic_filter)
            else:
                self._remove(connection, client_id, topic_filter)
        except MQError as error:
            raise_if_lost(error)
            if error.reason != cmqc.MQRC_NO_SUBSCRIPTION:
                log.error("MQB4307E removing subscription %s failed: %s", name, error)
                self.failure, self.failed_at = f"removing subscription {name} failed: {error}", time.monotonic()
                return error.reason
        return cmqc.MQRC_NONE

    def _remove(self, connection: Connection, client_id: str, topic_filter: str) -> None:
        """Resume a durable subscription and remove it.

        It is resumed with its destination open for output. Otherwise, the queue manager would open the destination for input.
        That would fail, because the destination is the transmission queue, which is already open for exclusive input.
        """
        options = cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE | cmqc.MQSO_WILDCARD_TOPIC | cmqc.MQSO_FAIL_IF_QUIESCING
        name = subscription_name(client_id, topic_filter)
        object_string = topic_string(client_id, topic_filter)
        sd = MQSD(Options=options | cmqc.MQSO_ANY_USERID, ObjectString=object_string, SubName=name)
        destination = self._destination(connection, client_id, "")
        try:
            handle, _ = connection.subscribe(sd, destination)
            connection.close(handle, cmqc.MQCO_REMOVE_SUB)
        finally:
            connection.close(destination)

    @staticmethod
    def _inquire(connection: Connection) -> list[ClientSubscription]:
        return [
            ClientSubscription(*subscriber, entry.user_data, entry.durable)
            for entry in connection.subscriptions()
            if (subscriber := subscriber_of(entry.name, entry.topic_string, entry.user_data)) is not None
        ]
