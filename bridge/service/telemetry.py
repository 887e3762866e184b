"""The telemetry service: MQTT clients as publish/subscribe applications of a queue manager.

It owns the sessions and their assignment to clients, from the beginning to the end of a session. `bridge.service.delivery`
passes messages from the transmission queue to sessions, `bridge.service.client_handler` passes packets from clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sized
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from bridge.config.models import LimitsConfig
from bridge.mq.backend import Backend, ClientSubscription, RecoveredState, UnitOfWork, resolve
from bridge.mq.dead_letter_room import DeadLetterRoom
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticator import FailedConnects
from bridge.security.authenticators import ChannelAuthentication
from bridge.security.channel_authentication import ChannelAuthenticationRegister
from bridge.security.privileged import PrivilegedUsers
from bridge.service.client import Client, Units
from bridge.service.client_journal import ClientJournal, LockedOut
from bridge.service.delivery import DeliveryService
from bridge.service.events import (
    ClientDisconnected,
    EventBus,
    MessagesAbandoned,
    Recovered,
    SessionEnded,
    Unclaimed,
)
from bridge.service.payload_schemas import PayloadSchemas
from bridge.service.session_endings import SessionEndings
from bridge.service.shares import Share
from bridge.service.turns import Timers, Turns
from bridge.service.wills import Wills
from bridge.telemetry.identity import ClientIdentity, Principal
from bridge.telemetry.outbox import SENT_AT_A_TURN
from bridge.telemetry.record import ReplyKeyRecord, Side, StateKey, StateRecord, WillRecord
from bridge.telemetry.request import KEY_LENGTH, ReplyAddresses
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import DEFAULT_QOS_TOPIC, is_remote_queue_manager, subscription_data
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)


#: Average number of topic levels allowed for each subscription of limits.subscriptions.
LEVELS_PER_SUBSCRIPTION: Final = 10


class _Counted(NamedTuple):
    """The amounts that a session counts for."""

    user: str
    network: str
    subscriptions: int


class Excess(NamedTuple):
    """A limit that a session or a subscription would exceed."""

    #: the option of `limits`
    option: str
    #: the user or network that reached it; blank: the client
    owner: str
    why: str

    def __str__(self) -> str:
        return f"{self.why} (limits.{self.option})"


class Quotas:
    """Counts existing sessions and subscriptions by user and by network.

    Clients choose their client identifiers freely, so a limit per client identifier would not limit the total. Only
    authenticated user names are counted, because claimed names are chosen freely, too.

    A session counts from `update` to `end`, which is called after its messages are removed.
    """

    def __init__(self, limits: LimitsConfig) -> None:
        self.limits = limits
        self._counted: dict[Session, _Counted] = {}
        self._sessions_of_user: dict[str, int] = {}
        self._sessions_of_network: dict[str, int] = {}
        self._subscriptions_of_user: dict[str, int] = {}
        self._subscriptions = 0

    @property
    def sessions(self) -> int:
        """The number of sessions."""
        return len(self._counted)

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions of all sessions."""
        return self._subscriptions

    def update(self, session: Session) -> None:
        """Count a new session, or one whose owner or subscriptions have changed."""
        self._count(session, _Counted(_user_of(session.principal), session.network, subscriptions_of(session)))

    def update_subscriptions(self, session: Session) -> None:
        """Count the subscriptions of a session again, unless the session has ended."""
        counted = self._counted.get(session)
        if counted is not None and counted.subscriptions != subscriptions_of(session):
            self.update(session)

    def end(self, session: Session) -> None:
        """Stop counting a session."""
        self._count(session, None)

    def _count(self, session: Session, counted: _Counted | None) -> None:
        before = self._counted.pop(session, None)
        if counted is not None:
            self._counted[session] = counted
        for quota, sign in ((counted, 1), (before, -1)):
            if quota is not None:
                _add(self._sessions_of_user, quota.user, sign)
                _add(self._sessions_of_network, quota.network, sign)
                _add(self._subscriptions_of_user, quota.user, sign * quota.subscriptions)
                self._subscriptions += sign * quota.subscriptions

    def session_excess(self, principal: Principal, network: str) -> Excess | None:
        """Return the limit that another session would exceed, or None."""
        limits, user = self.limits, _user_of(principal)
        if len(self._counted) >= limits.sessions:
            return Excess("sessions", "", f"there are {len(self._counted)} sessions already")
        if (count := self._sessions_of_user.get(user, 0)) >= limits.sessions_per_user:
            return Excess("sessions_per_user", user, f"user {user!r} has {count} sessions already")
        if (count := self._sessions_of_network.get(network, 0)) >= limits.sessions_per_network:
            return Excess("sessions_per_network", network, f"network {network} has {count} sessions already")
        return None

    def subscriptions_left(self, session: Session) -> tuple[int, Excess]:
        """Return how many subscriptions a session may add, and the limit reached first."""
        limits, user = self.limits, _user_of(session.principal)
        own, most = subscriptions_of(session), limits.subscriptions
        choices = [(most - own, Excess("subscriptions", "", f"a client has at most {most} subscriptions"))]
        if user:
            of_user = self._subscriptions_of_user.get(user, 0)
            why = f"user {user!r} has {of_user} subscriptions already"
            choices.append((limits.subscriptions_per_user - of_user, Excess("subscriptions_per_user", user, why)))
        why = f"there are {self._subscriptions} subscriptions already"
        choices.append((limits.subscriptions_total - self._subscriptions, Excess("subscriptions_total", "", why)))
        return min(choices)


def levels_left(session: Session, limits: LimitsConfig) -> int:
    """Return how many topic levels may be added to a session's topic filters.

    A publication may have to be compared with every level of every filter. So this limits many filters and deep filters
    together.
    """
    filters = (*session.filters, *(topic_filter for topic_filter, _ in session.shares.values()))
    return LEVELS_PER_SUBSCRIPTION * limits.subscriptions - sum(topic_filter.count("/") + 1 for topic_filter in filters)


def subscriptions_of(session: Session) -> int:
    """Return the number of a session's subscriptions. A shared subscription counts once per member."""
    return len(session.filters) + len(session.shares)


def _user_of(principal: Principal | None) -> str:
    """Return the user whose quota applies, or ""."""
    return principal.user if principal is not None and principal.authenticated else ""


def _add(counts: dict[str, int], key: str, number: int) -> None:
    """Add to a count. Blank keys are not counted, and counts of 0 are removed."""
    if not key:
        return
    count = counts.get(key, 0) + number
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)


#: Seconds that a failed start waits for the end of its connections to the queue manager.
ABANDON_TIMEOUT = 2.0
#: Number of messages of an ended session removed per unit of work.
REMOVED_AT_ONCE = 1_000


class TelemetryService:
    """The sessions of clients, from the first CONNECT or a restart to their end. Methods are called on one event loop.

    Messages pass `DeliveryService` and `ClientHandler`. Separate classes implement quotas, wills, shares, and the end of
    sessions whose backlog exceeds the limits. This class creates them, and calls them when a session begins, is left and
    ends.
    """

    def __init__(
        self,
        backend: Backend,
        limits: LimitsConfig,
        clock: Callable[[], float],
        *,
        queue_manager_name: str,
        epoch: str = "",
        authentication: Mapping[str, ChannelAuthentication] = MappingProxyType({}),
        channel_authentication: ChannelAuthenticationRegister | None = None,
        turns: Turns | None = None,
        room: DeadLetterRoom | None = None,
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.clock = clock
        self.queue_manager_name = queue_manager_name
        #: `Host.epoch`
        self.epoch = epoch
        #: by channel name; channels that are not listed require no authentication
        self.authentication = authentication
        self.failed_connects = FailedConnects(clock)
        self.channel_authentication = channel_authentication or ChannelAuthenticationRegister(PrivilegedUsers().include)
        self.events = EventBus()
        self.events.attach(LockedOut())
        self.journal = ClientJournal(self.events)
        self.sessions: dict[str, Session] = {}
        #: client identifier -> client whose CONNECT is being committed or was accepted
        self.clients: dict[str, Client] = {}
        self.units = Units(backend)
        #: for deliveries, disconnected clients, and the messages of ended sessions
        self.turns = turns or Turns()
        self.delivery = DeliveryService(
            backend,
            self.units,
            self.turns,
            self.events,
            clock,
            self.sessions,
            self.clients,
            limits,
            DeadLetterRoom(limits) if room is None else room,
        )
        self.limit_hits = self.delivery.limit_hits
        backend.on_limit = self.limit_hits.note
        backend.on_removed = self.delivery.note_removal_lag
        backend.reserve_dead_letter = self.delivery.reserve_dead_letter
        #: client identifier -> futures waiting for the removal of an ended session's messages
        self._purging: dict[str, list[asyncio.Future[None]]] = {}
        #: sessions whose subscriptions are being authorized again for a resuming client
        self.resuming: dict[Session, asyncio.Future[None]] = {}
        self.quotas = Quotas(limits)
        #: expiry timers of disconnected clients' sessions, by client identifier
        self.timers = Timers()
        self.subscriptions: Sized = backend.subscriptions
        self.endings = SessionEndings(
            backend,
            self.turns,
            self.delivery,
            self.sessions,
            purge=self.purge,
            leave_share=self.leave_share,
            subscriptions_changed=self.quotas.update_subscriptions,
        )
        #: the schemas of channels
        self.payload_schemas = PayloadSchemas()
        self.wills = Wills(self.units, self.events, self.payload_schemas)
        self.replies = ReplyAddresses(secrets.token_bytes(KEY_LENGTH), self._record_reply_key)

    # Start and end ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the transmission queue, recover durable sessions and start delivery. Raises MQError."""
        self.backend.on_dropped = self._dropped
        self.backend.on_completed = self.units.completed
        try:
            await self._recover(await self.backend.open())
        except BaseException:
            # If the queue manager does not answer, the end of the process closes the remaining connections.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ABANDON_TIMEOUT):
                    await self.backend.abandon()
            raise

    async def flush(self) -> None:
        """Wait until the units of work submitted so far have ended and their answers are written."""
        try:
            async with asyncio.timeout(self.limits.shutdown_timeout):
                await self.backend.flush()
        except TimeoutError:
            log.warning("MQB0004W units of work were not completed within shutdown_timeout and are not acknowledged")

    async def stop(self) -> None:
        """Record or end the sessions of disconnected clients, and close the transmission queue. No client is connected."""
        self.hold_wills()
        await self.settled()
        self.wills.publish_all()
        await self.backend.stop()

    async def settled(self) -> None:
        """Wait until the sessions of all disconnected clients are recorded or removed."""
        await self.turns.finish()

    def hold_wills(self) -> None:
        """Record wills from now on if clients may return after a restart (`limits.will_grace`)."""
        if self.limits.will_grace:
            self.wills.hold()

    async def _recover(self, recovered: RecoveredState) -> None:
        """Recover durable sessions, and start delivery."""
        shared: set[str] = set()
        for subscription in recovered.subscriptions:
            if not subscription.durable:
                continue
            if is_remote_queue_manager(subscription.client_id):
                shared.add(subscription.client_id)
                self.delivery.shares.share(subscription.topic_filter)
                continue
            session = self._recovered(subscription.client_id)
            session.filters[subscription.topic_filter] = subscription.user_data
            if subscription.topic_filter == DEFAULT_QOS_TOPIC:
                session.outbox.direct_qos = subscription_data(subscription.user_data).qos
        for record in recovered.records:
            if isinstance(record, ReplyKeyRecord):
                self.replies.restore(record.replyKey)
            elif isinstance(record, WillRecord):
                identity = ClientIdentity(record.clientIdentifier, record.mqUser, self.replies)
                self.wills.restore(record.will, self._session(identity, durable=False), self.limits.will_grace)
            else:
                self._recovered(record.clientIdentifier).restore(record, time.time())
        for session in self.sessions.values():
            for name in session.left:
                self.delivery.former.setdefault(name, []).append(session)
        subscriptions = [
            subscription for subscription in recovered.subscriptions if subscription.client_id not in shared
        ]
        self.events.publish(Recovered(subscriptions + self._rejoined()))
        self.delivery.recovering = True
        self.backend.start(self.delivery.deliver)
        if not self.backend.hands_over_at_once:
            await self.backend.caught_up()
        self.delivery.recovering = False
        for share in list(self.delivery.shares.values()):
            share.uncertain()
            self.end_share(share)
        self.delivery.review_shares(list(self.delivery.shares.values()))
        # New messages have not been sent to any client before.
        self.delivery.former = {}
        for session in self.sessions.values():
            session.caught_up(renumbered=not self.backend.hands_over_at_once)
        for session in list(self.sessions.values()):
            self.quotas.update(session)
            self._expire_later(session)
        self.endings.restore()

    def _rejoined(self) -> list[ClientSubscription]:
        """Restore the memberships of durable sessions in shares and return the corresponding subscriptions."""
        shares, subscriptions = self.delivery.shares, []
        for session in self.sessions.values():
            for name, (topic_filter, user_data) in list(session.shares.items()):
                share = shares.share(topic_filter) if session.ending else shares.get(name)
                if share is None:
                    # An administrator has deleted the subscription.
                    del session.shares[name]
                    continue
                share.add(session, user_data)
                subscriptions.append(ClientSubscription(session.client_id, topic_filter, user_data, True))
        return subscriptions

    def _record_reply_key(self, key: bytes) -> None:
        """Record the key of reply addresses. Not immediately, because messages are being sent now."""
        record = ReplyKeyRecord(key)
        unit = UnitOfWork(records={record.key: record})
        asyncio.get_running_loop().call_soon(self.units.submit, unit)

    def use_limits(self, limits: LimitsConfig) -> None:
        """Apply per-client limits to new clients and sessions, and total limits and backlog limits immediately."""
        self.limits = self.quotas.limits = limits
        self.delivery.use_limits(limits)

    def disconnect_all(self, why: str, reason_code: ReasonCode) -> None:
        """Close the connections of all clients, a few in each turn of the event loop."""
        for client in list(self.clients.values()):
            self.turns.run(partial(client.close, why, reason_code))

    def retire(self) -> None:
        """Stop processing sessions and wills: another bridge has taken over."""
        self.delivery.retired = True

    def _recovered(self, client_id: str) -> Session:
        session = self.sessions.get(client_id)
        if session is None:
            session = self.new_session(ClientIdentity(client_id, b"", self.replies), durable=True)
            session.recover()
        return session

    def new_session(self, identity: ClientIdentity, *, durable: bool) -> Session:
        """Create a session for a client that has none."""
        session = self.sessions[identity.client_id] = self._session(identity, durable=durable)
        return session

    def _session(self, identity: ClientIdentity, *, durable: bool) -> Session:
        session = Session(
            identity,
            durable=durable,
            window=self.limits.in_flight,
            unreleased=self.limits.unreleased,
            turn_bytes=min(SENT_AT_A_TURN, self.limits.pending_bytes),
            request_bytes=self.limits.request_bytes,
            backlog=self.delivery.new_backlog(identity.client_id),
            epoch=self.epoch,
        )
        self.delivery.limit_removals(session)
        return session

    # Clients ---------------------------------------------------------------------------------------------------------

    def _dropped(self, client_id: str, topic_filter: str, reason: int) -> None:
        """Disconnect a client that has permanently lost a subscription.

        A connected client that silently receives nothing would be the worst outcome.
        """
        client = self.clients.get(client_id)
        if client is not None and client.session is not None and topic_filter in client.session.filters:
            why = f"its subscription to {topic_filter!r} is lost: {cmqc.reason_name(reason)} ({reason})"
            client.close(why, ReasonCode.ADMINISTRATIVE_ACTION)

    def lost(self, client: Client) -> None:
        """Handle a lost connection: publish the will unless the client sent DISCONNECT, and record or end the session."""
        session, client.session = client.session, None
        if session is None or self.delivery.retired:
            return
        if self.clients.get(session.client_id) is client:
            del self.clients[session.client_id]
        audit_log.note("disconnected", client.peer, channel=client.channel.name)
        session.detach(time.time())
        self.delivery.take_back(session, include_sent=True)
        transport = client.transport
        ended = ClientDisconnected(session, transport.end_reason, client.peer.address, transport.end_text)
        self.events.publish(ended)
        try:
            if client.will is not None:
                self.wills.leave(client, session)
        except Exception:
            log.exception("MQB2104E client %s: publishing the will failed", client.peer)
        self.leave(session)

    def leave(self, session: Session) -> None:
        """Record the durable session of a disconnected client, or end a clean one."""
        if session.expiry_interval:
            session.save_sent()
            self.delivery.save(session)
            self._expire_later(session)
        else:
            self.purge(session)

    def _expire_later(self, session: Session) -> None:
        if session.expires_at:
            self.timers.set(session.client_id, session.expires_at - time.time(), partial(self._expire, session))

    def _expire(self, session: Session) -> None:
        """End a session whose Session Expiry Interval has passed (MQTT 5 section 3.1.2.11.2)."""
        if self.delivery.retired or session.connected or session.ended:
            return
        log.info("MQB2101I the session of client %r has expired after %d s", session.client_id, session.expiry_interval)
        self.purge(session)

    def purge(self, session: Session) -> None:
        """End a session and remove its subscriptions, messages and record, as PURGE CHANNEL does."""
        client_id = session.client_id
        if self.sessions.get(client_id) is session:
            del self.sessions[client_id]
        session.end()
        self.timers.cancel(client_id)
        self.endings.sessions.discard(session)
        self.wills.publish_now(client_id)
        self._leave_all(session)
        if session.filters:
            self.backend.unsubscribe(client_id, list(session.filters), ended=True)
        records: dict[StateKey, StateRecord | None] = {}
        if session.durable:
            records = {StateKey(side, client_id): None for side in (Side.RECEIVED, Side.SENT)}
            if session.outbox.requests is not None:
                records.update(session.outbox.requests.removal())
            if session.outbox.identifiers is not None:
                records.update(session.outbox.identifiers.removal())
        # A former member of a shared subscription may have left without acknowledging its messages.
        pending = self.delivery.without_shared(session.outbox.pending())
        self.delivery.end(session.outbox.backlog)
        self._purging.setdefault(client_id, [])
        # Remove the records first: after a crash, the next start removes messages for clients without a session.
        self.turns.run(partial(self._remove, session, records, pending, 0))

    def _remove(
        self, session: Session, records: dict[StateKey, StateRecord | None], pending: list[Transmission], begin: int
    ) -> None:
        """Remove the records of an ended session and a slice of its messages, beginning with `begin`."""
        end = begin + REMOVED_AT_ONCE
        unit = UnitOfWork(removals=pending[begin:end])
        unit.records = records
        if unit.removals:
            self.events.publish(MessagesAbandoned(session, unit.removals))
        if unit.removals or records:
            self.units.submit(unit)
        if end < len(pending) and not self.delivery.retired:
            self.turns.run(partial(self._remove, session, {}, pending, end))
            return
        self.events.publish(SessionEnded(session))
        # A client that is waiting to create the session again takes its place.
        self.quotas.end(session)
        for waiting in self._purging.pop(session.client_id, ()):
            resolve(waiting, None)

    def purging(self, client_id: str) -> asyncio.Future[None] | None:
        """Return a future of the removal of an ended session's messages, or None if none are being removed."""
        waiting = self._purging.get(client_id)
        if waiting is None:
            return None
        removal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(removal)
        return removal

    # Shares ----------------------------------------------------------------------------------------------------------

    def leave_share(self, session: Session, share: Share) -> None:
        """Remove a session from a share. Its unsent messages go to other members (MQTT-3.10.4-3)."""
        share.remove(session)
        self.delivery.take_back(session, include_sent=False)
        name = share.subscription.remote_queue_manager
        _, user_data = session.shares.pop(name, ("", ""))
        # The session completes the delivery of its sent messages (MQTT-3.10.4-3), even after a restart.
        session.left = {**session.left, name: user_data}
        self.quotas.update_subscriptions(session)

    def _leave_all(self, session: Session) -> None:
        """Remove an ending session from its shares. Its unacknowledged messages go to other members."""
        self.delivery.take_back(session, include_sent=True)
        for share in self.delivery.shares.of(session):
            share.remove(session)
            self.end_share(share)
        session.shares.clear()

    def end_share(self, share: Share) -> asyncio.Future[list[int]] | None:
        """Remove the subscription of a share without members, and its messages. Return None if it has members."""
        if not self.delivery.shares.drop(share):
            return None
        name, topic_filter = share.subscription.remote_queue_manager, share.subscription.written
        removals = self.delivery.give_to_former(list(share.waiting))
        self.delivery.end(share.waiting)
        if self.backend.divided_shares is not None:
            return self.backend.divided_shares.leave_share(share.subscription, removals)
        answer = self.backend.unsubscribe(name, [topic_filter], ended=True)
        for transmission in removals:
            self.events.publish(Unclaimed(transmission))
        if removals:
            self.units.submit(UnitOfWork(removals=removals))
        return answer
