"""Units of work of the telemetry service, from what a client has sent to what it is told.

Each is given to the backend with a number; what is to follow its completion is remembered here. A client is answered, and
what it acknowledged is forgotten, only when the unit that holds it is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bridge.archive.events import now_us
from bridge.config import LimitsConfig
from bridge.mq.backend import NONE_FORBIDDEN, Backend, Completion, UnitOfWork
from bridge.mqtt.connection import Answer, Reason
from bridge.mqtt.packets import LEVEL_MQTT_5, PacketType
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.service.client import REQUEST_WEIGHT, Client
from bridge.service.events import Acknowledged, DeadLettered, EventBus, Finished, PublicationRejected, Published
from bridge.service.shares import Share, Shares
from bridge.service.tracing.tracing import PublicationTraces
from bridge.service.turns import Turns
from bridge.telemetry.conversion import reason_code_of
from bridge.telemetry.outbox import FULL, Backlog, BacklogTotal, Outgoing, Refusal, SendEffects
from bridge.telemetry.session import ReceiveEffects, Session
from bridge.telemetry.transmission import PublicationMessage, Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)

Ended = Callable[[Completion], None]


class Units:
    """The units of work that are under way."""

    def __init__(
        self,
        backend: Backend,
        events: EventBus,
        clock: Callable[[], float],
        clients: Mapping[str, Client],
        limits: LimitsConfig,
        turns: Turns | None = None,
    ) -> None:
        self.backend = backend
        self.events = events
        self.clock = clock
        #: by client identifier
        self._clients = clients
        self.shares = Shares(self.new_backlog)
        #: gives out what waits in shares; `bridge.service.delivery.Delivery` does
        self.give_out: Callable[[Sequence[Share]], None] = lambda _shares: None
        #: traces publications, where there are traces
        self.traces: PublicationTraces | None = None
        self.backlog_total = BacklogTotal()
        #: the backlogs for which publications are rejected
        self._refusing: set[Backlog] = set()
        self.use_limits(limits)
        #: deliveries, and what follows them, that wait for later turns of the event loop
        self.turns = turns or Turns()
        self._number = 0
        #: number of a unit -> what follows its completion
        self._under_way: dict[int, Ended] = {}

    def attached(self, session: Session) -> Client | None:
        """Return the client that has a session now; None while it is away."""
        client = self._clients.get(session.client_id)
        return client if client is not None and client.session is session else None

    def submit(self, unit: UnitOfWork, ended: Ended | None = None) -> Mapping[int, int]:
        """Give a unit to the backend; return the publications that are known at once to be refused."""
        self._number = unit.number = self._number + 1
        if ended is not None:
            self._under_way[unit.number] = ended
        return self.backend.submit(unit)

    @property
    def under_way(self) -> int:
        """Return how many units of work have not ended that something is to follow."""
        return len(self._under_way)

    def completed(self, completions: Sequence[Completion]) -> None:
        """Have follow what is to follow units that have ended."""
        for completion in completions:
            ended = self._under_way.pop(completion.number, None)
            if ended is None:
                continue
            try:
                ended(completion)
            except Exception:
                # One client's fault stays its own.
                log.exception("MQB2303E a unit of work ended, but what follows it failed")

    def take_back(self, session: Session, *, sent: bool) -> None:
        """Have other members get what a session was given for shares, and not sent, or with `sent`, not acknowledged."""
        shares = self.shares.take_back(session, sent=sent)
        if shares:
            # Not at once: a batch may be on its way to the members.
            asyncio.get_running_loop().call_soon(self.give_out, shares)

    # What clients have sent ------------------------------------------------------------------------------------------

    def commit(self, session: Session, client: Client, effects: ReceiveEffects) -> None:
        """Send what the window now allows, commit the effects of packets, and answer the client after that."""
        outbox = session.outbox
        if outbox.backlog.messages and outbox.open:
            sent = outbox.pump(self.clock(), client.protocol)
            client.transport.flush()
            effects.removals += sent.finished
            self.sent(session, client, sent)
            self.review(outbox.backlog)
        if session.shares and (waiting := self.shares.waiting_for(session)):
            self.give_out(waiting)
        recorded = session.unsaved
        if effects.empty and not recorded:
            if effects.answers:
                reasons = _unknown(effects) if client.protocol.level == LEVEL_MQTT_5 else None
                client.protocol.answer(effects.answers, reasons)
                client.transport.flush()
            return
        forbidden = forbidden_of(session, effects.publications)
        unit = UnitOfWork(effects.publications, effects.removals, client.dead_letters, forbidden)
        if recorded:
            effects.recording = session.take_records(unit.records)
        effects.received_at = now_us()
        if effects.publications:
            effects.weight += REQUEST_WEIGHT * len(effects.publications)
            client.hold(effects.weight)
            session.messages_received += len(effects.publications)
            session.last_received_at = effects.received_at
        ended: Ended = partial(self._committed, session, client, effects)
        if self.traces is not None and effects.publications:
            ended = self.traces.following(session, effects.publications, effects.received_at, ended)
        refused = self.submit(unit, ended)
        if refused:
            session.refuse(effects, refused)

    def pump(self, session: Session, client: Client) -> None:
        """Send waiting messages as far as the window allows."""
        self.commit(session, client, ReceiveEffects())

    def sent(self, session: Session, client: Client | None, effects: SendEffects) -> None:
        """Report what an outbox has finished, dead-letter what it refused, and continue in the next turn."""
        if effects.more and client is not None:
            client.transport.send_more_soon()
        if effects.finished:
            discarded = effects.discarded
            self.events.publish(Finished(session, effects.finished, discarded))
            if discarded and (dropped := sum(why is FULL for why in discarded.values())):
                log.warning(
                    "MQB2401W dropped the %d oldest messages for client %r: %s, %d bytes (limits.waiting_bytes)",
                    dropped, session.client_id, FULL, session.outbox.backlog.limit,
                )  # fmt: skip
        for refusal in effects.refusals:
            self.reject(session.client_id, refusal)

    def use_limits(self, limits: LimitsConfig) -> None:
        """Apply limits to backlogs that begin from now on, and the total at once."""
        self.limits = limits
        if self.backend.refuses_for_clients:
            self.backlog_total.limit = limits.waiting_total

    def new_backlog(self, owner: str) -> Backlog:
        """Return the backlog of a new session or share."""
        return Backlog(owner, self.limits.waiting_bytes, self.limits.waiting_full, self.backlog_total)

    def review(self, backlog: Backlog) -> None:
        """Reject publications that would be added to a full backlog, or accept them again."""
        total = backlog.total
        if backlog.bytes <= backlog.limit and total.bytes <= total.limit and not self._refusing:
            return
        if backlog.must_refuse is not backlog.refuses:
            self._refuse(backlog, not backlog.refuses)
        if self._refusing and total.bytes <= total.limit:
            for other in [one for one in self._refusing if not one.must_refuse]:
                self._refuse(other, False)

    def _refuse(self, backlog: Backlog, refuses: bool) -> None:
        backlog.refuses = refuses
        self.backend.refuse(backlog.owner, refuses)
        if refuses:
            self._refusing.add(backlog)
            log.warning(
                "MQB2403W publications for client %r are rejected: %d bytes wait for it (limits.waiting_bytes is %d), and "
                "%d bytes for all clients (limits.waiting_total is %d)",
                backlog.owner, backlog.bytes, backlog.limit, backlog.total.bytes, backlog.total.limit,
            )  # fmt: skip
        else:
            self._refusing.discard(backlog)
            log.info("MQB2404I publications for client %r are accepted again", backlog.owner)

    def end(self, backlog: Backlog) -> None:
        """Release the backlog of a session or share that has ended."""
        backlog.clear()
        self.review(backlog)
        # Messages of units of work that fail later return to it: they do not count any more.
        backlog.total = BacklogTotal()

    def reject(self, recipient: str, refusal: Refusal) -> None:
        """Move a message that its client cannot take to the dead-letter queue, with its reason."""
        log.warning("MQB2402W a message for client %r cannot be delivered: %s", recipient, refusal.why)
        self.dead_letter(refusal.transmission, refusal.reason)

    def dead_letter(self, transmission: Transmission, reason: int) -> None:
        """Move a message that no client can take to the dead-letter queue."""
        try:
            if not self.backend.dead_letter(transmission, reason):
                return
        except Exception:
            log.exception(
                "MQB2405E a message for client %r stays on %s: it cannot be dead-lettered",
                transmission.client_id,
                self.backend.transmission_queue,
            )
            return
        self.events.publish(DeadLettered(transmission, reason))

    def _committed(self, session: Session, client: Client, effects: ReceiveEffects, completion: Completion) -> None:
        """Answer the client of a session whose unit of work has ended."""
        if effects.publications:
            if self.turns.waiting:
                # Publishers are no faster than the deliveries that they cause.
                self.turns.run(partial(client.release, effects.weight))
            else:
                client.release(effects.weight)
            self.events.publish(Published(session, effects.publications, completion, effects.received_at))
        if completion.failure:
            session.failed(effects)
            if not session.connected:
                self.take_back(session, sent=True)
            self._close(
                session,
                client,
                f"its messages cannot be committed: {cmqc.reason_name(completion.failure)} ({completion.failure}); "
                "nothing was acknowledged",
                reason_code_of(completion.failure, PacketType.DISCONNECT),
            )
            return
        if effects.acknowledged or effects.released:
            self.events.publish(Acknowledged(session, effects))
        present = client if client.session is session else self.attached(session)
        refusals = completion.refusals
        # A look at the clock costs as much as the rest: it is for messages that are released.
        now = self.clock() if effects.released else 0.0
        reasons: dict[Answer, Reason] | None = None
        if (refusals or completion.unmatched or effects.unknown) and client.protocol.level == LEVEL_MQTT_5:
            reasons = _reasons(effects, completion)
        answers = session.committed(
            effects, refusals, now, answerable=present is client, answer_refused=reasons is not None
        )
        if answers and present is not None:
            present.protocol.answer(answers, reasons)
            present.transport.flush()
        if effects.recording is not None:
            self.recorded(session, effects.recording)
        if refusals:
            self._refused(session, client, effects, refusals)

    def _refused(self, session: Session, client: Client, effects: ReceiveEffects, refusals: Mapping[int, int]) -> None:
        """See to it that MQ refuses publications.

        A client of MQTT 5 was told so in PUBACK or PUBREC, and sends them no more. Before, there is no negative PUBACK: they
        stay unacknowledged, and the connection is closed.
        """
        index, reason = next(iter(refusals.items()))
        message = effects.publications[index][0]
        self.save(session)
        user = session.identity.user.decode("utf-8", "replace")
        what = f"publication to {message.topic[:200]!r} as user {user!r} is refused: {cmqc.reason_name(reason)} ({reason})"
        audit_log.note("publication refused", client.peer, channel=client.channel.name, topic=message.topic, reason=reason)
        if all(effects.publications[index][0].qos == 0 for index in refusals):
            log.warning("MQB2301W client %s: %s; it had QoS 0 and is gone", client.peer, what)
            return
        self.events.publish(PublicationRejected(session, message, reason))
        if client.protocol.level == LEVEL_MQTT_5:
            log.warning("MQB2302W client %s: %s; it was told so", client.peer, what)
        else:
            self._close(session, client, f"{what}; it is not acknowledged", reason_code_of(reason, PacketType.DISCONNECT))

    def _close(self, session: Session, client: Client, why: str, reason_code: ReasonCode) -> None:
        """Close the connection that packets came over, and the one over which the client has sent them again since."""
        client.close(why, reason_code)
        present = self.attached(session)
        if present is not None:
            present.close(why, reason_code)

    # Records of sessions ---------------------------------------------------------------------------------------------

    def save(self, session: Session) -> None:
        """Have changes of the session committed that belong to no message."""
        unit = UnitOfWork()
        recording = [(session, session.take_records(unit.records))]
        if unit.records:
            self.submit(unit, partial(self.saved, recording))

    def saved(self, recording: Sequence[tuple[Session, Outgoing | None]], completion: Completion) -> None:
        """Finish a unit of work with records of sessions, but no packets to answer."""
        for session, outgoing in recording:
            if completion.failure:
                session.save_again()
            elif outgoing is not None:
                self.recorded(session, outgoing)

    def recorded(self, session: Session, recording: Outgoing) -> None:
        """Send the message that waited for the record of its unusual message id, which is committed, and those behind."""
        client = self.attached(session)
        if session.outbox.recording is not recording:
            return
        session.outbox.recorded(None if client is None else client.protocol, self.clock())
        if client is not None:
            client.transport.flush()
            self.pump(session, client)


def forbidden_of(session: Session, publications: Sequence[tuple[PublicationMessage, bool]]) -> frozenset[int]:
    """Return the publications, by index, that the channel of a session does not let its client make."""
    topics = session.topics
    if topics is None:
        return NONE_FORBIDDEN
    return frozenset([index for index, (message, _) in enumerate(publications) if not topics.may_publish(message.topic)])


def _unknown(effects: ReceiveEffects) -> dict[Answer, Reason]:
    """Return the reason code of MQTT 5 for message ids that nothing is known of (sections 3.6.2.1 and 3.7.2.1)."""
    return dict.fromkeys(effects.unknown, (ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, ""))


def _reasons(effects: ReceiveEffects, completion: Completion) -> dict[Answer, Reason]:
    """Return the reason codes of MQTT 5 for what was refused, what nobody has subscribed to, and what is not known."""
    found = _unknown(effects)
    for index in completion.unmatched:
        found[effects.answer_to(index)] = ReasonCode.NO_MATCHING_SUBSCRIBERS, ""
    for index, reason in completion.refusals.items():
        answer = effects.answer_to(index)
        found[answer] = reason_code_of(reason, answer[0]), f"{cmqc.reason_name(reason)} ({reason})"
    return found
