"""Delivery of messages from the transmission queue to the sessions of the clients named in their MQXQH.

Also manages the backlogs, shares, records and dead-lettered messages of sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from bridge.config.models import LimitsConfig
from bridge.mq.backend import Backend, Completion, ShareLimit, UnitOfWork
from bridge.mq.dead_letter_room import CLIENT, DeadLetterRoom
from bridge.mq.host import QueueManagerStatus
from bridge.mq.memory import in_bytes
from bridge.mqtt.packets import PacketType
from bridge.security import audit_log
from bridge.service.client import Client, Units
from bridge.service.events import DeadLettered, EventBus, Finished, MessagesAbandoned, MessagesDropped, Unclaimed
from bridge.service.limit_hits import LimitHits
from bridge.service.shares import Share, ShareRequests, Shares
from bridge.service.turns import Turns
from bridge.telemetry.backlog import MESSAGE_OVERHEAD, Backlog, BacklogLimits, NotAdmitted
from bridge.telemetry.conversion import reason_code_of
from bridge.telemetry.outbox import SendEffects
from bridge.telemetry.packet_identifiers import Chunk
from bridge.telemetry.record import StateKey, StateRecord
from bridge.telemetry.removal_limit import RemovalLimit
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import FOREIGN, is_remote_queue_manager, subscription_data
from bridge.telemetry.transmission import Transmission
from bridge.telemetry.undelivered import FULL, SLOW, UNDELIVERABLE, Refusal
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Approximate number of messages sent per turn of the event loop.
SENT_AT_ONCE = 500
#: Two fractions of MAXDEPTH. Publishers wait while the depth of the transmission queue exceeds the first one, and the
#: messages that the bridge has not yet browsed, or not yet moved to the dead-letter queue, exceed the second one.
NEARLY_FULL, LAG_SHARE = 0.85, 0.02
#: Seconds between checks of this condition.
BEHIND_INTERVAL = 0.1


class DeliveryService:
    """Sends messages from the transmission queue to clients."""

    def __init__(
        self,
        backend: Backend,
        units: Units,
        turns: Turns,
        events: EventBus,
        clock: Callable[[], float],
        sessions: Mapping[str, Session],
        clients: Mapping[str, Client],
        limits: LimitsConfig,
        room: DeadLetterRoom,
    ) -> None:
        self._backend = backend
        self._units = units
        self._turns = turns
        self._events = events
        self._clock = clock
        #: sessions and clients by client identifier
        self._sessions = sessions
        self._clients = clients
        #: another bridge has taken over the sessions: do nothing
        self.retired = False
        #: messages that were accepted by an earlier run are being recovered
        self.recovering = False
        self.shares = Shares(self.new_backlog)
        divided = backend.divided_shares
        self._requests = None if divided is None else ShareRequests(divided, self.shares)
        #: during the start: sessions that left a share with unacknowledged messages, by the share's remote queue manager
        self.former: dict[str, list[Session]] = {}
        self.backlog_limits = BacklogLimits()
        self.removal_limit = RemovalLimit()
        self.limit_hits = LimitHits()
        self._room = room
        room.on_full = lambda limit, owner: self.limit_hits.note(limit, owner[1])
        self.backlog_limits.reserve_dead_letter = self.reserve_dead_letter
        #: called with the owner whose subscriptions have to end: a client identifier, or the name of a share
        self.on_excess: Callable[[str], None] = lambda _owner: None
        #: called with an ending session that has received messages
        self.on_received: Callable[[Session], None] = lambda _session: None
        #: called with a share that no longer has waiting messages
        self.on_given_out: Callable[[Share], None] = lambda _share: None
        #: number of messages beyond the limits that are on their way to the dead-letter queue
        self._moving = 0
        #: calls to make when the transmission queue is no longer about to become full
        self._delayed: list[Callable[[], None]] = []
        #: the backlogs for which publications are rejected
        self._refusing: set[Backlog] = set()
        self.use_limits(limits)

    def reserve_dead_letter(self, owner: str, size: int) -> bool:
        """Count a message of a client or share, of `size` bytes, on the dead-letter queue, if there is room."""
        return self._room.take((CLIENT, owner), size)

    def when_caught_up(self, call: Callable[[], None]) -> None:
        """Call a function at once, or later if the transmission queue is nearly full because this bridge is behind.

        Publishers wait for that: browsing and moving a message take longer than putting it. They do not wait for clients.
        """
        if not self.delays_publishers:
            call()
            return
        if not self._delayed:
            asyncio.get_running_loop().call_later(BEHIND_INTERVAL, self._call_delayed)
        self._delayed.append(call)

    @property
    def delays_publishers(self) -> bool:
        """Whether publishers wait for the transmission queue."""
        # Usually, nothing is unread or being moved, and the rest is not called.
        return bool(self._delayed) or ((self._backend.unread > 0 or self._moving > 0) and self._is_behind)

    @property
    def _is_behind(self) -> bool:
        most, unread = self.backlog_limits.max_depth, self._backend.unread
        return (
            most > 0 and unread + self._moving > most * LAG_SHARE and self._backend.depth + unread > most * NEARLY_FULL
        )

    def _call_delayed(self) -> None:
        if self._is_behind and not self.retired:
            asyncio.get_running_loop().call_later(BEHIND_INTERVAL, self._call_delayed)
            return
        delayed, self._delayed = self._delayed, []
        for call in delayed:
            self._turns.run(call)

    def attached(self, session: Session) -> Client | None:
        """Return the client connected to a session, or None if it is disconnected."""
        client = self._clients.get(session.client_id)
        return client if client is not None and client.session is session else None

    def deliver(self, batch: Sequence[Transmission]) -> None:
        """Deliver the messages found by the transmission queue poller to their sessions."""
        if self.retired:
            return
        sessions, shares = self._sessions, self.shares
        grouped: dict[Session, list[Transmission]] = {}
        removals: list[Transmission] = []
        #: shares and the messages that arrive for them
        filled: dict[Share, list[Transmission]] = {}
        self.backlog_limits.depth = self._backend.depth
        for transmission in batch:
            session = sessions.get(transmission.client_id)
            if session is not None and (waiting := grouped.get(session)) is not None:
                waiting.append(transmission)
            elif session is not None and session.begun:
                grouped[session] = [transmission]
            else:
                share = shares.get(transmission.client_id)
                if share is None and (former := self._former_of(transmission)) is not None:
                    grouped.setdefault(former, []).append(transmission)
                elif share is None or transmission.user_data is None:
                    self._unclaimed(session, transmission, removals)
                else:
                    filled.setdefault(share, []).append(transmission)
                    share.waiting.append(transmission)
        for share, arriving in filled.items():
            while share.give_out(grouped):
                pass
            self._admit(share, arriving, removals)
        if filled:
            self.review_shares(filled)
        if len(batch) <= SENT_AT_ONCE and not self._turns.waiting:
            self._send(grouped, removals, recovered=self.recovering)
        else:
            self._send_in_turns(grouped, removals)

    def _admit(self, share: Share, arriving: Sequence[Transmission], removals: list[Transmission]) -> None:
        """Apply the limits of backlogs to the messages that arrived for a share and were given to no member."""
        backlog = share.waiting
        remaining = min(len(arriving), len(backlog))
        if remaining and not self.recovering and backlog.limits.exceeded(backlog, 0, 0):
            late = [backlog.pop() for _ in range(remaining)]
            admission = backlog.admit(late[::-1], ())
            for transmission in admission.discarded + admission.dropped:
                self._events.publish(Unclaimed(transmission, FULL))
            removals += admission.discarded + admission.dropped
            self._not_admitted(backlog, admission)
        self.review(backlog)

    def _not_admitted(self, backlog: Backlog, admission: NotAdmitted) -> None:
        """Handle the messages that a backlog did not admit, apart from those to remove from the transmission queue."""
        owner = backlog.owner
        for transmission in admission.dead_letters:
            self.reject(owner, Refusal(transmission, cmqc.MQRC_Q_SPACE_NOT_AVAILABLE, FULL), backlog)
        count = len(admission.discarded) + len(admission.dropped)
        if admission.limit:
            self.limit_hits.note(admission.limit, owner, admission.beyond)
        if count:
            log.warning(
                "MQB2401W discarded %d messages for client %r (%d that had waited longest): %s, %d bytes (%s)",
                count,
                owner,
                len(admission.dropped),
                FULL,
                backlog.bytes,
                admission.limit,
            )
            self._events.publish(MessagesDropped(owner, count, f"{FULL} ({admission.limit})"))
        if admission.ends:
            self.on_excess(owner)

    def give_out(self, shares: Sequence[Share]) -> None:
        """Distribute the backlogs of shares to their members, as far as these can take more."""
        if self.retired:
            return
        grouped: dict[Session, list[Transmission]] = {}
        remaining = list(shares)
        while remaining:
            remaining = [share for share in remaining if share.give_out(grouped)]
        if grouped:
            self._send_in_turns(grouped, [])
        for share in shares:
            self.review(share.waiting)
            if not share.waiting:
                self.on_given_out(share)
        self.review_shares(shares)

    def review_shares(self, shares: Iterable[Share]) -> None:
        """Request messages for the members of shares, or return messages, if other bridges serve members, too."""
        if self._requests is not None and not self.retired and not self.recovering:
            for share in shares:
                self._requests.review(share)

    def _send_in_turns(self, grouped: dict[Session, list[Transmission]], removals: list[Transmission]) -> None:
        """Send messages to a few sessions per turn. `removals` need no sending, only the commit."""
        part: dict[Session, list[Transmission]] = {}
        count = 0
        for session, messages in grouped.items():
            part[session] = messages
            count += len(messages)
            if count >= SENT_AT_ONCE:
                self._turns.run(partial(self._send_later, part, removals, self.recovering))
                part, removals, count = {}, [], 0
        self._turns.run(partial(self._send_later, part, removals, self.recovering))

    def _send_later(
        self, grouped: dict[Session, list[Transmission]], removals: list[Transmission], recovered: bool
    ) -> None:
        """Send messages after waiting for a turn of the event loop, during which sessions may have ended."""
        if self.retired:
            return
        for session in [session for session in grouped if session.ended]:
            self._return(session, grouped.pop(session), removals)
        self._send(grouped, removals, recovered=recovered)

    def _send(
        self,
        grouped: Mapping[Session, list[Transmission]],
        removals: list[Transmission],
        *,
        recovered: bool = False,
    ) -> None:
        """Send messages as far as the sessions' windows allow. The others stay in the backlog."""
        now = self._clock()
        records: dict[StateKey, StateRecord | None] = {}
        recording: list[tuple[Session, Chunk | None]] = []
        finished: list[tuple[Session, int]] = []
        for session, waiting in grouped.items():
            client = self.attached(session)
            outbox = session.outbox
            try:
                effects = outbox.deliver(waiting, now, None if client is None else client.protocol, recovered=recovered)
                if effects.finished:
                    removals += effects.finished
                    outbox.finishing += len(effects.finished)
                    finished.append((session, len(effects.finished)))
                if client is not None:
                    client.transport.flush()
                if effects.finished or effects.refusals or effects.more or effects.admission is not None:
                    self._sent(session, client, effects)
                if outbox.backlog.messages:
                    self.review(outbox.backlog)
                if session.unsaved:
                    recording.append((session, session.take_records(records)))
            except Exception:
                # An error of one client must not affect others. The messages stay on the transmission queue.
                log.exception("MQB2406E sending messages to client %r failed; disconnecting it", session.client_id)
                if client is not None:
                    client.transport.abort()
        # Messages wait until their packet identifiers are recorded, so commit the records without waiting for removals.
        if records:
            self._units.submit(UnitOfWork(records=records), partial(self.saved, recording, records))
        if removals:
            self._units.submit(UnitOfWork(removals=removals), partial(self.saved, (), (), finished=finished))

    def _return(self, session: Session, waiting: list[Transmission], removals: list[Transmission]) -> None:
        """Handle messages for a session that ended before sending. Messages of shares go to other members."""
        shares = self.shares
        own = self.without_shared([transmission for transmission in waiting if transmission.client_id not in shares])
        if own:
            removals += own
            self._events.publish(MessagesAbandoned(session, own))
        for name in {transmission.client_id for transmission in waiting} & shares.keys():
            shares[name].take_back(
                session, [transmission for transmission in waiting if transmission.client_id == name], {}
            )
            self._turns.run(partial(self.give_out, [shares[name]]))

    def _former_of(self, transmission: Transmission) -> Session | None:
        """Return the session that left the share of a recovered message and may have received the message, or None."""
        sessions = self.former.get(transmission.client_id, ())
        for session in sessions:
            if session.outbox.may_have_sent(transmission):
                transmission.user_data = session.left[transmission.client_id]
                return session
        return None

    def give_to_former(self, waiting: Iterable[Transmission]) -> list[Transmission]:
        """Send messages of an ended share to former members that may have received them. Return the others."""
        grouped: dict[Session, list[Transmission]] = {}
        others: list[Transmission] = []
        for transmission in waiting:
            session = self._former_of(transmission)
            if session is None:
                others.append(transmission)
            else:
                grouped.setdefault(session, []).append(transmission)
        if grouped:
            self._send(grouped, [])
        return others

    def without_shared(self, waiting: Sequence[Transmission]) -> list[Transmission]:
        """Give messages of shared subscriptions without members here to members at other bridges. Return the others."""
        divided = self._backend.divided_shares
        if divided is None:
            return list(waiting)
        others: list[Transmission] = []
        of_shares: dict[str, list[Transmission]] = {}
        for transmission in waiting:
            is_shared = transmission.user_data is not None and is_remote_queue_manager(transmission.client_id)
            (of_shares.setdefault(transmission.client_id, []) if is_shared else others).append(transmission)
        for name, transmissions in of_shares.items():
            divided.return_unclaimed(name, transmissions)
        return others

    def _unclaimed(self, session: Session | None, transmission: Transmission, removals: list[Transmission]) -> None:
        """Handle a message for a client without a session, or with a session that has not begun."""
        user_data = transmission.user_data
        if not self.without_shared([transmission]):
            return
        if user_data is not None and (session is not None or subscription_data(user_data) is not FOREIGN):
            # The message belongs to a subscription of an ended session. Don't remove messages for subscriptions that the
            # bridge did not create, such as those of MQXR.
            removals.append(transmission)
            self._events.publish(Unclaimed(transmission))
        elif session is not None:
            session.outbox.backlog.append(transmission)
        else:
            self.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)

    # Outboxes of sessions ----------------------------------------------------------------------------------------------

    def resume(self, session: Session) -> None:
        """Continue sending after removals were committed (limits.removal_backlog)."""
        client = self.attached(session)
        if client is not None and not self.retired:
            self.pump(session, client)

    def pump(self, session: Session, client: Client) -> None:
        """Send from the backlog as far as the window allows, and commit the messages that are finished."""
        self.save(session, self.send_waiting(session, client))

    def send_waiting(self, session: Session, client: Client) -> list[Transmission]:
        """Send from the backlog as far as the window allows and return messages that need no acknowledgement."""
        outbox = session.outbox
        outbox.held = False
        finished: list[Transmission] = []
        if outbox.backlog.messages and outbox.open:
            effects = outbox.pump(self._clock(), client.protocol)
            client.transport.flush()
            finished = effects.finished
            self._sent(session, client, effects)
            self.review(outbox.backlog)
            outbox.finishing += len(finished)
            if outbox.recording is not None:
                self._record(session)
        if session.shares:
            if waiting := self.shares.waiting_for(session):
                self.give_out(waiting)
            self.review_shares(self.shares.of(session))
        return finished

    def _sent(self, session: Session, client: Client | None, effects: SendEffects) -> None:
        """Report finished messages, dead-letter rejected ones, and schedule the next turn if there is more to send."""
        if effects.more and client is not None:
            client.transport.send_more_soon()
        if effects.finished:
            if effects.discarded and (slow := sum(why == SLOW for why in effects.discarded.values())):
                self.limit_hits.note("pending_bytes", session.client_id, slow)
                self._events.publish(MessagesDropped(session.client_id, slow, SLOW))
            self._events.publish(Finished(session, effects.finished, effects.discarded))
        if effects.admission is not None:
            self._not_admitted(session.outbox.backlog, effects.admission)
        for refusal in effects.refusals:
            self.reject(session.client_id, refusal)

    def take_back(self, session: Session, *, include_sent: bool) -> None:
        """Redistribute a session's messages of shares that were not sent or, with `include_sent`, not acknowledged."""
        shares = self.shares.take_back(session, include_sent=include_sent)
        if self._requests is not None:
            shares = self.shares.of(session)
        if shares:
            # Not immediately: a batch may be on its way to the members.
            asyncio.get_running_loop().call_soon(self.give_out, shares)

    # Backlogs ----------------------------------------------------------------------------------------------------------

    def use_limits(self, limits: LimitsConfig) -> None:
        """Apply limits to the messages that arrive from now on."""
        self.limits = limits
        self.removal_limit.configure(limits.removal_backlog)
        backlogs = self.backlog_limits
        backlogs.owner_bytes, backlogs.when_full = limits.waiting_bytes, limits.waiting_full
        backlogs.total_bytes = in_bytes(limits.waiting_total)
        if self._backend.divided_shares is not None:
            messages = limits.waiting_bytes // MESSAGE_OVERHEAD
            self._backend.divided_shares.share_limit = ShareLimit(messages, limits.waiting_full == "dead-letter")
        for backlog in list(self._refusing):
            self.review(backlog)

    def use_status(self, status: QueueManagerStatus) -> None:
        """Take MAXDEPTH of the transmission queue from a status of the queue manager."""
        for queue in status.queues:
            if queue.name == self._backend.transmission_queue:
                self.backlog_limits.max_depth = queue.max_depth

    def note_removal_lag(self, seconds: float) -> None:
        """Adapt the limit of unremoved messages to the lag of removals."""
        self.removal_limit.note_lag(seconds, self._clock())

    @property
    def applied_removal_limit(self) -> int | None:
        """The limit of unremoved messages of a client, or None if the queue manager removes messages at once."""
        return None if self._backend.removes_at_once else self.removal_limit.value

    def limit_removals(self, session: Session) -> None:
        """Apply limits.removal_backlog to a session."""
        if not self._backend.removes_at_once:
            session.outbox.removal_limit = self.removal_limit

    def new_backlog(self, owner: str) -> Backlog:
        """Return the backlog of a new session or share."""
        return Backlog(owner, self.backlog_limits)

    def review(self, backlog: Backlog) -> None:
        """Start or stop rejecting publications, depending on whether a backlog is full."""
        if backlog.limits.when_full != "refuse" and not self._refusing:
            return
        if backlog.must_refuse is not backlog.refuses:
            self._refuse(backlog, not backlog.refuses)
        for other in [candidate for candidate in self._refusing if not candidate.must_refuse]:
            self._refuse(other, False)

    def _refuse(self, backlog: Backlog, refuses: bool) -> None:
        backlog.refuses = refuses
        self._backend.refuse(backlog.owner, refuses)
        if refuses:
            self._refusing.add(backlog)
            log.warning(
                "MQB2403W publications for client %r are rejected: %d bytes wait for it (limits.waiting_bytes is %d), and "
                "%d bytes for all clients (limits.waiting_total is %d)",
                backlog.owner,
                backlog.bytes,
                backlog.limits.owner_bytes,
                backlog.limits.bytes,
                backlog.limits.total_bytes,
            )
            self.limit_hits.note(backlog.limits.exceeded(backlog, 0, 0), backlog.owner)
        else:
            self._refusing.discard(backlog)
            log.info("MQB2404I publications for client %r are accepted again", backlog.owner)

    def end(self, backlog: Backlog) -> None:
        """Release the backlog of an ended session or share."""
        backlog.clear()
        self.review(backlog)
        # Failed units of work may still return messages to this backlog. They must not count in the total.
        backlog.limits = BacklogLimits()

    def reject(self, recipient: str, refusal: Refusal, backlog: Backlog | None = None) -> None:
        """Dead-letter a message that its client cannot take, or that its `backlog` did not admit.

        A message that its client cannot take is discarded if there is no room for it on the dead-letter queue.
        """
        transmission = refusal.transmission
        topic = transmission.topic or transmission.remote_queue
        if backlog is None and not self.reserve_dead_letter(recipient, transmission.message.size):
            log.error(
                "MQB2413E discarded a message for client %r, topic %r, which could not be delivered: %s; too many of its "
                "messages are on the dead-letter queue",
                recipient,
                topic,
                refusal.why,
            )
            audit_log.note("message discarded", session=recipient, topic=topic, why=refusal.why)
            self._events.publish(Unclaimed(transmission, UNDELIVERABLE))
            self._events.publish(MessagesDropped(recipient, 1, refusal.why))
            self._units.submit(UnitOfWork(removals=[transmission]))
            return
        log.warning(
            "MQB2402W a message for client %r, topic %r, could not be delivered: %s", recipient, topic, refusal.why
        )
        self.dead_letter(refusal.transmission, refusal.reason, backlog)

    def dead_letter(self, transmission: Transmission, reason: int, backlog: Backlog | None = None) -> None:
        """Move a message to the dead-letter queue. If that fails, return it to its backlog, if any."""
        try:
            self._moving += 1
            self._backend.dead_letter(transmission, reason, partial(self._dead_lettered, transmission, reason, backlog))
        except Exception:
            self._moving -= 1
            log.exception(
                "MQB2405E dead-lettering a message for client %r failed; it stays on %s",
                transmission.client_id,
                self._backend.transmission_queue,
            )

    def _dead_lettered(self, transmission: Transmission, reason: int, backlog: Backlog | None, moved: bool) -> None:
        """Report a dead-lettered message. If the move failed, the message returns to its backlog."""
        self._moving -= 1
        if moved:
            self._events.publish(DeadLettered(transmission, reason))
            return
        if backlog is None or self.retired:
            return
        self._room.give_back((CLIENT, backlog.owner), transmission.message.size)
        if backlog.limits is self.backlog_limits:
            backlog.insert(transmission)
            self.on_excess(backlog.owner)
        else:  # its session has ended
            self._events.publish(Unclaimed(transmission))
            self._units.submit(UnitOfWork(removals=[transmission]))

    # Records of sessions ---------------------------------------------------------------------------------------------

    def save(self, session: Session, removals: Sequence[Transmission] = ()) -> None:
        """Commit changes of a session, and the removal of its finished messages."""
        unit = UnitOfWork(removals=list(removals))
        recording = [(session, session.take_records(unit.records))]
        if unit.removals or unit.records:
            finished = ((session, len(removals)),)
            self._units.submit(unit, partial(self.saved, recording, unit.records, finished=finished))

    async def commit(self, session: Session) -> Completion:
        """Commit the records of a session that are not up to date. Return after the end of the unit of work."""
        unit = UnitOfWork()
        chunk = session.take_records(unit.records)
        completion = await self._units.committed(unit)
        self.saved([(session, chunk)], unit.records, completion)
        return completion

    def _record(self, session: Session) -> None:
        """Commit the records of packet identifiers for which messages wait, separately from removals, which take longer."""
        records: dict[StateKey, StateRecord | None] = {}
        chunk = session.take_identifiers(records)
        if records:
            self._units.submit(UnitOfWork(records=records), partial(self.saved, [(session, chunk)], records))

    def saved(
        self,
        recording: Sequence[tuple[Session, Chunk | None]],
        records: Iterable[StateKey],
        completion: Completion,
        finished: Sequence[tuple[Session, int]] = (),
    ) -> None:
        """Complete a unit of work without packets to answer: session records, and finished messages of each session."""
        for session, number in finished:
            session.outbox.finishing -= number
            if session.outbox.held:
                self.resume(session)
            if session.ending:
                self.on_received(session)
        for session, chunk in recording:
            if completion.failure:
                session.records_lost(records)
                client = self.attached(session)
                if chunk is not None and client is not None:
                    # Messages would wait for this record until the client sends something.
                    client.close(
                        "the packet identifiers of its messages cannot be recorded: "
                        f"{cmqc.reason_name(completion.failure)} ({completion.failure})",
                        reason_code_of(completion.failure, PacketType.DISCONNECT),
                    )
            elif chunk is not None:
                self.recorded(session, chunk)

    def recorded(self, session: Session, chunk: Chunk) -> None:
        """Send messages after committing the record of their packet identifiers."""
        if session.outbox.recording is not chunk:
            return
        session.outbox.recorded()
        client = self.attached(session)
        if client is not None:
            self.pump(session, client)
