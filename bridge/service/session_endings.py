"""The end of sessions whose backlog exceeds the limits (`limits.waiting_full`).

The subscriptions end at once. The client still receives every message that waits for it. Then its connection is closed
(DISCONNECT 0x97 in MQTT 5), and its session ends, so that its next CONNACK has Session Present 0. The members of a shared
subscription that exceeds the limits are treated alike. `SentRecord.ending` makes the end survive a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from bridge.mq.backend import Backend
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.service.delivery import DeliveryService
from bridge.service.shares import Share
from bridge.service.turns import Turns
from bridge.telemetry.session import Session

log = logging.getLogger(__name__)

#: Seconds between attempts to record an end, and to remove subscriptions.
RETRY_INTERVAL: Final = 1.0
_WHY: Final = "its backlog exceeded the limits (limits.waiting_full)"


class SessionEndings:
    """Ends sessions whose backlog exceeds the limits. Methods are called on the event loop."""

    def __init__(
        self,
        backend: Backend,
        turns: Turns,
        delivery: DeliveryService,
        sessions: Mapping[str, Session],
        *,
        purge: Callable[[Session], None],
        leave_share: Callable[[Session, Share], None],
        subscriptions_changed: Callable[[Session], None],
    ) -> None:
        """`purge`, `leave_share` and `subscriptions_changed` are the functions of the service for a session."""
        self._backend = backend
        self._turns = turns
        self._delivery = delivery
        #: sessions by client identifier
        self._sessions = sessions
        self._purge = purge
        self._leave_share = leave_share
        self._subscriptions_changed = subscriptions_changed
        delivery.on_excess = self.end
        delivery.on_received = self.review
        delivery.on_given_out = self.review_members
        #: the ending sessions
        self.sessions: set[Session] = set()
        #: sessions and shares whose subscriptions are being removed
        self._removing: dict[Session | Share, asyncio.Task[None]] = {}

    def end(self, owner: str) -> None:
        """End the subscriptions of an owner: a client identifier, or the name of a share."""
        share = self._delivery.shares.get(owner)
        if share is not None:
            if share not in self._removing:
                log.warning(
                    "MQB2411W ending shared subscription %s and the sessions of its %d members: its backlog exceeds the "
                    "limits, %d bytes; members still receive the waiting messages",
                    share.subscription.written,
                    len(share.members),
                    share.waiting.bytes,
                )
                self._start(share)
            return
        session = self._sessions.get(owner)
        if session is not None:
            if session not in self.sessions:
                log.warning(
                    "MQB2410W ending the session of client %r: its backlog exceeds the limits, %d bytes; the client still "
                    "receives the waiting messages",
                    owner,
                    session.outbox.backlog.bytes,
                )
            self._begin(session)

    def restore(self) -> None:
        """Continue to end the sessions that an earlier run of the bridge began to end."""
        for session in list(self._sessions.values()):
            if session.ending:
                self._begin(session)

    def _begin(self, session: Session) -> None:
        """Begin the end of a session, or remove subscriptions that it has again."""
        if session not in self.sessions:
            self.sessions.add(session)
            session.ending = True
            audit_log.note("session ends", session=session.client_id, why=_WHY, waiting=session.outbox.backlog.bytes)
        elif not session.filters:
            return
        if session not in self._removing:
            self._start(session)

    def _start(self, owner: Session | Share) -> None:
        remove = self._remove_share(owner) if isinstance(owner, Share) else self._remove(owner)
        task = self._removing[owner] = asyncio.get_running_loop().create_task(remove)
        task.add_done_callback(lambda _task: self._removed(owner))

    def _removed(self, owner: Session | Share) -> None:
        del self._removing[owner]
        for session in [owner] if isinstance(owner, Session) else _members(owner):
            self.review(session)

    async def _remove(self, session: Session) -> None:
        """Record the end of a session, then remove its subscriptions. A killed bridge continues from the record."""
        await self._record(session)
        for share in self._delivery.shares.of(session):
            if _all_end(share) and share not in self._removing:
                self._start(share)
        while self._exists(session) and session.filters:
            filters = list(session.filters)
            reasons = await self._backend.unsubscribe(session.client_id, filters, handed_over=True)
            for topic_filter, reason in zip(filters, reasons, strict=True):
                if not reason:
                    session.filters.pop(topic_filter, None)
            self._subscriptions_changed(session)
            if any(reasons):
                await asyncio.sleep(RETRY_INTERVAL)
        # Messages that arrived before the end of the subscriptions wait for their turn.
        await self._turns.turn()

    async def _remove_share(self, share: Share) -> None:
        """End the members of a share, and remove its subscription."""
        name = share.subscription.remote_queue_manager
        members = _members(share)
        for session in members:
            self._begin(session)
        await asyncio.gather(*[self._record(session) for session in members])
        while self._delivery.shares.get(name) is share and not self._delivery.retired:
            if not any(await self._backend.unsubscribe(name, [share.subscription.written], handed_over=True)):
                break
            await asyncio.sleep(RETRY_INTERVAL)
        await self._turns.turn()

    async def _record(self, session: Session) -> None:
        """Record that a durable session is ending."""
        while session.durable and self._exists(session):
            session.save_sent()
            if not (await self._delivery.commit(session)).failure:
                return
            await asyncio.sleep(RETRY_INTERVAL)

    def _exists(self, session: Session) -> bool:
        return not (session.ended or self._delivery.retired)

    def review(self, session: Session) -> None:
        """End a session whose client has received all messages."""
        if session not in self.sessions or session in self._removing:
            return
        if not self._exists(session):
            self.sessions.discard(session)
            return
        outbox = session.outbox
        shares = self._delivery.shares.of(session)
        for share in shares:
            if not _all_end(share):
                self._leave_share(session, share)  # other members receive its messages
        if outbox.backlog or outbox.in_flight.deliveries or outbox.finishing:
            return
        if any(share in self._removing or share.waiting for share in self._delivery.shares.of(session)):
            return
        client = self._delivery.attached(session)
        if client is None and session.connected:
            return  # its CONNECT is being committed
        self.sessions.discard(session)
        log.info("MQB2412I the session of client %r has ended: %s", session.client_id, _WHY)
        if client is None:
            self._purge(session)
        else:
            session.expiry_interval = 0  # the session ends with its connection
            client.close(_WHY, ReasonCode.QUOTA_EXCEEDED)
        for share in shares:
            self.review_members(share)

    def review_members(self, share: Share) -> None:
        """End the members of a share that have received all messages."""
        if self.sessions:
            for session in _members(share):
                self.review(session)


def _members(share: Share) -> list[Session]:
    return [member.session for member in share.members.values()]


def _all_end(share: Share) -> bool:
    """Return whether all members of a share end, so that they have to receive its waiting messages."""
    return all(session.ending for session in _members(share))
