"""Delivery: messages that lie on the transmission queue, to the sessions of the clients that their MQXQHs name."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from bridge.mq.backend import UnitOfWork
from bridge.service.events import MessagesAbandoned, Unclaimed
from bridge.service.shares import Share
from bridge.service.units import Units
from bridge.telemetry.outbox import Outgoing, too_many
from bridge.telemetry.record import StateKey, StateRecord
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import FOREIGN, subscription_data
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Messages, about, that are sent to clients at a time. More wait for later turns of the event loop.
SENT_AT_ONCE = 500


class Delivery:
    """What the transmit-queue poller hands its messages to."""

    def __init__(self, units: Units, sessions: Mapping[str, Session]) -> None:
        self._units = units
        self._turns = units.turns
        #: by client identifier
        self._sessions = sessions
        #: the sessions are another bridge's: nothing is done for them any more
        self.retired = False
        units.give_out = self.give_out

    def deliver(self, batch: Sequence[Transmission]) -> None:
        """Hand each message that the transmit-queue poller found to its session."""
        if self.retired:
            return
        sessions, shares = self._sessions, self._units.shares
        grouped: dict[Session, list[Transmission]] = {}
        removals: list[Transmission] = []
        filled: dict[str, Share] = {}
        for transmission in batch:
            session = sessions.get(transmission.client_id)
            if session is None or not session.begun:
                share = shares.get(transmission.client_id)
                if share is None or transmission.user_data is None:
                    self._unclaimed(session, transmission, removals)
                else:
                    share.waiting.append(transmission)
                    filled[transmission.client_id] = share
                continue
            waiting = grouped.get(session)
            if waiting is None:
                grouped[session] = [transmission]
            else:
                waiting.append(transmission)
        for share in filled.values():
            while share.give_out(grouped):
                pass
            self._make_room(share, removals)
        if len(batch) <= SENT_AT_ONCE and not self._turns.waiting:
            self._send(grouped, removals)
        else:
            self._send_in_turns(grouped, removals)

    def _make_room(self, share: Share, removals: list[Transmission]) -> None:
        """Keep the backlog of a share within limits.waiting_bytes."""
        units, backlog = self._units, share.waiting
        if backlog.full:
            dropped, dead = backlog.make_room(())
            for transmission in dropped:
                units.events.publish(Unclaimed(transmission))
            removals += dropped
            for transmission in dead:
                units.reject(backlog.owner, too_many(transmission, backlog.limit))
        units.review(backlog)

    def give_out(self, shares: Sequence[Share]) -> None:
        """Hand what waits in shares to their members, as far as they can take it."""
        if self.retired:
            return
        grouped: dict[Session, list[Transmission]] = {}
        left = list(shares)
        while left:
            left = [share for share in left if share.give_out(grouped)]
        if grouped:
            self._send_in_turns(grouped, [])
        for share in shares:
            self._units.review(share.waiting)

    def _send_in_turns(self, grouped: dict[Session, list[Transmission]], removals: list[Transmission]) -> None:
        """Send messages, a few sessions at a time. `removals` are finished already."""
        part: dict[Session, list[Transmission]] = {}
        count = 0
        for session, messages in grouped.items():
            part[session] = messages
            count += len(messages)
            if count >= SENT_AT_ONCE:
                self._turns.run(partial(self._send_later, part, removals))
                part, removals, count = {}, [], 0
        self._turns.run(partial(self._send_later, part, removals))

    def _send_later(self, grouped: dict[Session, list[Transmission]], removals: list[Transmission]) -> None:
        """Send messages that waited for a turn of the event loop: sessions may have ended since."""
        if self.retired:
            return
        for session in [one for one in grouped if self._sessions.get(one.client_id) is not one]:
            self._return(session, grouped.pop(session), removals)
        self._send(grouped, removals)

    def _send(self, grouped: Mapping[Session, list[Transmission]], removals: list[Transmission]) -> None:
        """Send messages as far as the windows of sessions allow; the others wait."""
        units = self._units
        now = units.clock()
        records: dict[StateKey, StateRecord | None] = {}
        recording: list[tuple[Session, Outgoing | None]] = []
        for session, waiting in grouped.items():
            client = units.attached(session)
            outbox = session.outbox
            try:
                effects = outbox.deliver(waiting, now, None if client is None else client.protocol)
                removals += effects.finished
                if client is not None:
                    client.transport.flush()
                if effects.finished or effects.refusals or effects.more:
                    units.sent(session, client, effects)
                if outbox.backlog.messages:
                    units.review(outbox.backlog)
                if session.unsaved:
                    recording.append((session, session.take_records(records)))
            except Exception:
                # One client's fault stays its own; what it was to get lies on the transmission queue.
                log.exception("MQB2406E messages for client %r cannot be sent; it is disconnected", session.client_id)
                if client is not None:
                    client.transport.abort()
        if removals or records:
            unit = UnitOfWork(removals=removals)
            unit.records = records
            units.submit(unit, partial(units.saved, recording))

    def _return(self, session: Session, waiting: list[Transmission], removals: list[Transmission]) -> None:
        """Handle messages for a session that ended before they were sent: those of shares go to other members."""
        shares = self._units.shares
        own = [one for one in waiting if one.client_id not in shares]
        if own:
            removals += own
            self._units.events.publish(MessagesAbandoned(session, own))
        for name in {one.client_id for one in waiting} & shares.keys():
            shares[name].take_back(session, [one for one in waiting if one.client_id == name], set())
            self._turns.run(partial(self.give_out, [shares[name]]))

    def _unclaimed(self, session: Session | None, transmission: Transmission, removals: list[Transmission]) -> None:
        """Handle a message for a client that has no session, or one that has only just begun."""
        user_data = transmission.user_data
        if user_data is not None and (session is not None or subscription_data(user_data) is not FOREIGN):
            # It came for a subscription of a session that has ended: it ended with it. What somebody else's subscription
            # has sent, such as one of MQXR, is nobody's to throw away.
            removals.append(transmission)
            self._units.events.publish(Unclaimed(transmission))
        elif session is not None:
            session.outbox.backlog.append(transmission)
        else:
            self._units.dead_letter(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
