"""The telemetry service: MQTT clients as publish/subscribe applications of a queue manager.

It owns the sessions and their assignment to clients, from the beginning to the end of a session. `bridge.service.delivery`
passes messages from the transmission queue to sessions, `bridge.service.gateway` passes packets from clients.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sized
from functools import partial
from types import MappingProxyType

from bridge.config import LimitsConfig
from bridge.mq.backend import Backend, ClientSubscription, UnitOfWork, resolve
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticators import ChannelAuthentication
from bridge.security.channel_authentication import ChannelAuthenticationRegister
from bridge.security.failed_connects import FailedConnects
from bridge.security.privileged import PrivilegedUsers
from bridge.service.client import Client
from bridge.service.client_journal import ClientJournal
from bridge.service.delivery import Delivery
from bridge.service.events import ClientDisconnected, EventBus, MessagesAbandoned, Recovered, SessionEnded, Unclaimed
from bridge.service.locked_out import LockedOut
from bridge.service.quotas import Quotas
from bridge.service.sequences import Turns
from bridge.service.shares import Share
from bridge.service.units import Units
from bridge.service.will import Timers, Wills
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.outbox import SENT_AT_A_TURN
from bridge.telemetry.record import ReplyKeyRecord, Side, StateKey, StateRecord, WillRecord
from bridge.telemetry.request import KEY_LENGTH, ReplyAddresses
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import DEFAULT_QOS_TOPIC, is_remote_queue_manager, subscription_data
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Number of messages of an ended session removed per unit of work.
REMOVED_AT_ONCE = 1_000


class TelemetryService:
    """Sessions between telemetry channels and a backend. Methods are called on one event loop."""

    def __init__(
        self,
        backend: Backend,
        limits: LimitsConfig,
        clock: Callable[[], float],
        *,
        queue_manager_name: str,
        authentication: Mapping[str, ChannelAuthentication] = MappingProxyType({}),
        channel_authentication: ChannelAuthenticationRegister | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.clock = clock
        self.queue_manager_name = queue_manager_name
        #: by channel name; channels that are not listed require no authentication
        self.authentication = authentication
        self.failed_connects = FailedConnects(clock)
        self.channel_authentication = channel_authentication or ChannelAuthenticationRegister(PrivilegedUsers().include)
        self.events = EventBus()
        LockedOut().listen(self.events)
        self.journal = ClientJournal(self.events)
        self.sessions: dict[str, Session] = {}
        #: client identifier -> client whose CONNECT is being committed or was accepted
        self.clients: dict[str, Client] = {}
        self.units = Units(backend)
        #: for deliveries, disconnected clients, and the messages of ended sessions
        self.turns = turns or Turns()
        self.delivery = Delivery(
            backend, self.units, self.turns, self.events, clock, self.sessions, self.clients, limits
        )
        #: client identifier -> futures waiting for the removal of an ended session's messages
        self._purging: dict[str, list[asyncio.Future[None]]] = {}
        #: sessions whose subscriptions are being authorized again for a resuming client
        self.resuming: dict[Session, asyncio.Future[None]] = {}
        self.quotas = Quotas(limits)
        #: expiry timers of disconnected clients' sessions, by client identifier
        self.timers = Timers()
        self.subscriptions: Sized = backend.subscriptions
        self.wills = Wills(self.units, self.events)
        self.replies = ReplyAddresses(secrets.token_bytes(KEY_LENGTH), self._record_reply_key)

    # Start and end ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the transmission queue, recover durable sessions and start delivery. Raises MQError."""
        self.backend.on_dropped = self._dropped
        self.backend.on_completed = self.units.completed
        recovered = await self.backend.open()
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
        subscriptions = [one for one in recovered.subscriptions if one.client_id not in shared]
        self.events.publish(Recovered(subscriptions + self._rejoined()))
        self.backend.start(self.delivery.deliver)
        if not self.backend.hands_over_at_once:
            await self.backend.caught_up()
        for share in list(self.delivery.shares.values()):
            share.uncertain()
            self.end_share(share)
        # New messages have not been sent to any client before.
        for session in self.sessions.values():
            session.outbox.uncertain = False
        for session in list(self.sessions.values()):
            self.quotas.update(session)
            self._expire_later(session)

    def _rejoined(self) -> list[ClientSubscription]:
        """Restore the memberships of durable sessions in shares; return the corresponding subscriptions."""
        shares, found = self.delivery.shares, []
        for session in self.sessions.values():
            for name, (topic_filter, user_data) in list(session.shares.items()):
                share = shares.get(name)
                if share is None:
                    # An administrator has deleted the subscription.
                    del session.shares[name]
                    continue
                share.add(session, user_data)
                found.append(ClientSubscription(session.client_id, topic_filter, user_data, True))
        return found

    def _record_reply_key(self, key: bytes) -> None:
        """Record the key of reply addresses. Not immediately, because messages are being sent now."""
        record = ReplyKeyRecord(key)
        unit = UnitOfWork(records={record.key: record})
        asyncio.get_running_loop().call_soon(self.units.submit, unit)

    def use_limits(self, limits: LimitsConfig) -> None:
        """Apply per-client limits to new clients and sessions, and total limits immediately."""
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
            session.begun = True
        return session

    def new_session(self, identity: ClientIdentity, *, durable: bool) -> Session:
        """Create a session for a client that has none."""
        session = self.sessions[identity.client_id] = self._session(identity, durable=durable)
        return session

    def _session(self, identity: ClientIdentity, *, durable: bool) -> Session:
        return Session(
            identity,
            durable=durable,
            window=self.limits.in_flight,
            unreleased=self.limits.unreleased,
            turn_bytes=min(SENT_AT_A_TURN, self.limits.pending_bytes),
            request_bytes=self.limits.request_bytes,
            backlog=self.delivery.new_backlog(identity.client_id),
        )

    # Clients ---------------------------------------------------------------------------------------------------------

    def _dropped(self, client_id: str, topic_filter: str, reason: int) -> None:
        """Disconnect a client that has permanently lost a subscription.

        A connected client that silently receives nothing would be the worst outcome.
        """
        client = self.clients.get(client_id)
        if client is not None and client.session is not None and topic_filter in client.session.filters:
            why = f"its subscription to {topic_filter!r} is lost: {cmqc.reason_name(reason)} ({reason})"
            client.close(why, ReasonCode.ADMINISTRATIVE_ACTION)

    async def settled(self) -> None:
        """Wait until the sessions of all disconnected clients are recorded or removed."""
        await self.turns.finish()

    def lost(self, client: Client) -> None:
        """Handle a lost connection: publish the will unless the client sent DISCONNECT, and record or end the session."""
        session, client.session = client.session, None
        if session is None or self.delivery.retired:
            return
        if self.clients.get(session.client_id) is client:
            del self.clients[session.client_id]
        audit_log.note("disconnected", client.peer, channel=client.channel.name)
        session.detach(time.time())
        self.delivery.take_back(session, sent=True)
        self.events.publish(ClientDisconnected(session, client.transport.end_reason))
        try:
            if client.will is not None:
                self.wills.leave(client, session)
        except Exception:
            log.exception("MQB2104E client %s: its will fails", client.peer)
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
        if self.delivery.retired or session.connected or self.sessions.get(session.client_id) is not session:
            return
        log.info("MQB2101I the session of client %r has expired after %d s", session.client_id, session.expiry_interval)
        self.purge(session)

    def purge(self, session: Session) -> None:
        """End a session and remove its subscriptions, messages and record, as PURGE CHANNEL does."""
        client_id = session.client_id
        if self.sessions.get(client_id) is session:
            del self.sessions[client_id]
        self.timers.cancel(client_id)
        self.wills.publish_now(client_id)
        self._leave_all(session)
        if session.filters:
            self.backend.unsubscribe(client_id, list(session.filters), ended=True)
        records: dict[StateKey, StateRecord | None] = {}
        if session.durable:
            records = {StateKey(side, client_id): None for side in (Side.RECEIVED, Side.SENT)}
            records.update(session.requests.removal())
        pending = session.outbox.pending()
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
        """Return a future of the removal of an ended session's messages; None if there are none."""
        waiting = self._purging.get(client_id)
        if waiting is None:
            return None
        removed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(removed)
        return removed

    # Shares ----------------------------------------------------------------------------------------------------------

    def leave_share(self, session: Session, share: Share) -> None:
        """Remove a session from a share. Its unsent messages go to other members (MQTT-3.10.4-3)."""
        share.remove(session)
        self.delivery.take_back(session, sent=False)
        session.shares.pop(share.subscription.remote_queue_manager, None)
        self.quotas.update_subscriptions(session)

    def _leave_all(self, session: Session) -> None:
        """Remove an ending session from its shares. Its unacknowledged messages go to other members."""
        self.delivery.take_back(session, sent=True)
        for share in self.delivery.shares.of(session):
            share.remove(session)
            self.end_share(share)
        session.shares.clear()

    def end_share(self, share: Share) -> asyncio.Future[list[int]] | None:
        """Remove the subscription of a share without members, and its messages; None if it has members."""
        if not self.delivery.shares.drop(share):
            return None
        name, written = share.subscription.remote_queue_manager, share.subscription.written
        answer = self.backend.unsubscribe(name, [written], ended=True)
        removals = list(share.waiting)
        self.delivery.end(share.waiting)
        for transmission in removals:
            self.events.publish(Unclaimed(transmission))
        if removals:
            self.units.submit(UnitOfWork(removals=removals))
        return answer
