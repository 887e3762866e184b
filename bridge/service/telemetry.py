"""The telemetry service: MQTT clients as publish/subscribe applications of a queue manager.

It owns the sessions, turns their work into units of work for the queue manager's backend, and hands the messages that the
transmit-queue poller brings to the sessions they are for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from bridge.archive.recorder import Recorder, now_us
from bridge.config import LimitsConfig
from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mapping.telemetry.qos import DEFAULT_QOS_TOPIC
from bridge.mq.backend import Backend, Side, StateKey, UnitOfWork
from bridge.mq.backend import Transmission as QueuedTransmission
from bridge.mqtt.channel import Connection
from bridge.mqtt.outbox import SENT_AT_A_TURN, Outgoing, Refusal
from bridge.mqtt.session import Session, Work, without
from bridge.service.connecting import connect
from bridge.service.locked_out import LockedOut
from bridge.service.subscriptions import subscribe, unsubscribe
from bridge.service.will import publish_will
from bridge.wire import cmqc
from bridge.wire.mqtt import Connect, Disconnect, Packet, Subscribe, Unsubscribe

log = logging.getLogger(__name__)

#: Packets of one client that are worked on in one turn of the event loop, and those that a topic filter counts for.
PACKETS_AT_A_TURN, FILTER_PACKETS = 1_000, 20


class TelemetryService:
    """Sessions between telemetry channels and a backend; everything on one event loop."""

    def __init__(
        self,
        backend: Backend,
        limits: LimitsConfig,
        clock: Callable[[], float],
        *,
        queue_manager_name: str,
        archive: Recorder | None = None,
    ) -> None:
        self.backend = backend
        #: what is told of each batch that passes; None: nobody
        self.archive = archive
        self.limits = limits
        self.clock = clock
        self.queue_manager_name = queue_manager_name
        self.sessions: dict[str, Session] = {}
        self.locked_out = LockedOut()
        #: the sessions are another bridge's: nothing is done for them any more
        self.retired = False

    # Start and end ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take over the transmission queue, take up the durable sessions, then begin to deliver. Raises MQError."""
        self.backend.on_dropped = self._dropped
        recovered = await self.backend.open()
        if self.archive is not None:
            self.archive.begin(recovered.subscriptions)
        for subscription in recovered.subscriptions:
            if not subscription.durable:
                continue
            session = self._recovered(subscription.client_id)
            session.filters.add(subscription.topic_filter)
            if subscription.topic_filter == DEFAULT_QOS_TOPIC and subscription.user_data in ("0", "1", "2"):
                session.outbox.direct_qos = int(subscription.user_data)
        for key, data in recovered.states.items():
            session = self._recovered(key.client_id)
            try:
                if key.side is Side.RECEIVED:
                    session.restore_received(data)
                else:
                    session.restore_sent(data)
            except msgspec.DecodeError as error:
                log.error("the record of session %s cannot be read and is ignored: %s", key.client_id, error)
        self.backend.start(cast("Callable[[Sequence[QueuedTransmission]], None]", self.deliver))
        if not self.backend.hands_over_at_once:
            await self.backend.caught_up()
        # What comes from now on was never sent to anybody.
        for session in self.sessions.values():
            session.outbox.uncertain = False

    def _recovered(self, client_id: str) -> Session:
        session = self.sessions.get(client_id)
        if session is None:
            session = self.new_session(ClientIdentity(client_id, b""), durable=True)
            session.begun = True
        return session

    def new_session(self, identity: ClientIdentity, *, durable: bool) -> Session:
        """Make a session for a client that has none, from now on."""
        session = Session(
            identity,
            durable=durable,
            window=self.limits.in_flight,
            unreleased=self.limits.unreleased,
            turn_bytes=min(SENT_AT_A_TURN, self.limits.pending_bytes),
        )
        self.sessions[identity.client_id] = session
        return session

    def connect(self, connection: Connection, packet: Connect) -> None:
        """Take CONNECT, the first packet of a connection."""
        connect(self, connection, packet)

    # Packets ---------------------------------------------------------------------------------------------------------

    def received(self, connection: Connection, packets: Sequence[Packet]) -> None:
        """Work on packets of a connected client, in the order they came."""
        session = connection.session
        assert session is not None
        index, count, left = 0, len(packets), PACKETS_AT_A_TURN
        while True:
            work = Work(connection)
            stop = count if count - index <= left else index + left
            begun, index = index, session.receive(packets, index, work, stop)
            self._submit(session, work)
            if work.violation:
                connection.close(work.violation)
            if index >= count or connection.closing:
                return
            left -= index - begun
            if left > 0:
                left -= self._control(connection, session, packets[index])
                index += 1
            if connection.closing or index >= count:
                return
            if left <= 0:
                connection.put_off(list(packets[index:]))
                return

    def _submit(self, session: Session, work: Work) -> None:
        """Send what the window now allows, and have the work committed."""
        outbox = session.outbox
        connection: Connection = work.connection
        if outbox.backlog and outbox.open:
            out: list[bytes] = []
            acknowledged = len(work.removals)
            refusals = outbox.pump(self.clock(), out, work.removals)
            if out:
                connection.write(b"".join(out))
            if outbox.more:
                self._go_on_later(session)
            if self.archive is not None and len(work.removals) > acknowledged:
                self.archive.finished(session, cast("list[QueuedTransmission]", work.removals[acknowledged:]))
            if refusals:
                self._dead_letter(session, refusals)
        if work.empty and not outbox.record and not session.record:
            if work.replies:
                connection.write(b"".join(work.replies))
            return
        unit = UnitOfWork(self._committed, (session, work))
        unit.publications = work.publications
        unit.removals = cast("list[QueuedTransmission]", work.removals)
        work.recording = self.keep(session, unit)
        unit.amend = self._amend
        unit.refused = self._note_refusals
        unit.dead_letters = connection.channel.dead_letters
        if self.archive is not None:
            work.received_at = now_us()
        if work.publications:
            connection.hold(len(work.publications))
        self.backend.execute(unit)

    def _go_on_later(self, session: Session) -> None:
        """Send the rest in the client's next turn: a turn's bytes were not enough."""
        session.outbox.more = False
        session.connection.channel.loop.call_soon(self._go_on, session)

    def _go_on(self, session: Session) -> None:
        if session.connection is not None:
            self.pump(session)

    @staticmethod
    def _amend(unit: UnitOfWork, refusals: Mapping[int, int]) -> dict[StateKey, bytes | None]:
        """Return the records of a unit whose publications are refused: they must not say that these were received."""
        session, work = cast("tuple[Session, Work]", unit.owner)
        key = StateKey(Side.RECEIVED, session.client_id)
        record = unit.states.get(key)
        return unit.states if record is None else unit.states | {key: without(record, work.qos_2(refusals))}

    @staticmethod
    def _note_refusals(unit: UnitOfWork) -> None:
        """Note that publications are refused before the unit is committed: units given from now on know of it."""
        session, work = cast("tuple[Session, Work]", unit.owner)
        session.refuse(work, unit.refusals)

    def _committed(self, unit: UnitOfWork) -> None:
        """Answer the client of a session whose unit of work has ended."""
        session, work = cast("tuple[Session, Work]", unit.owner)
        connection: Connection = work.connection
        if work.publications:
            connection.release(len(work.publications))
        if self.archive is not None:
            self.archive.committed(session, work, unit)
        if unit.failure:
            session.failed(work)
            self._close(
                session,
                connection,
                f"its messages cannot be committed: {cmqc.reason_name(unit.failure)} ({unit.failure}); "
                "nothing was acknowledged",
            )
            return
        replies = session.committed(work, list(unit.refusals), self.clock())
        if replies and session.connection is not None:
            session.connection.write(b"".join(replies))
        if work.recording is not None:
            self.recorded(session, work.recording)
        if unit.refusals:
            self._refused(session, work, unit)

    def _refused(self, session: Session, work: Work, unit: UnitOfWork) -> None:
        """Close the connection where MQ refuses publications: they stay unacknowledged, MQTT 3.1.1 has no negative PUBACK."""
        index, reason = next(iter(unit.refusals.items()))
        message = work.publications[index][0]
        self._save(session)
        user = session.identity.user.decode("utf-8", "replace")
        what = f"publication to {message.topic[:200]!r} as user {user!r} is refused: {cmqc.reason_name(reason)} ({reason})"
        if all(work.publications[index][0].qos == 0 for index in unit.refusals):
            log.warning("client %s: %s; it had QoS 0 and is gone", work.connection.client, what)
            return
        self.locked_out.refused(session.client_id, message.topic, reason)
        self._close(session, work.connection, f"{what}; it is not acknowledged")

    @staticmethod
    def _close(session: Session, connection: Connection, why: str) -> None:
        """Close the connection that packets came over, and the one over which the client has sent them again since."""
        connection.close(why)
        if session.connection is not None:
            session.connection.close(why)

    def _dropped(self, client_id: str, topic_filter: str, reason: int) -> None:
        """Disconnect a client that has lost a subscription for good.

        A client that is connected and gets nothing would be the worst outcome.
        """
        session = self.sessions.get(client_id)
        if session is not None and session.connection is not None and topic_filter in session.filters:
            session.connection.close(
                f"its subscription to {topic_filter!r} is lost: {cmqc.reason_name(reason)} ({reason})"
            )

    def _save(self, session: Session) -> None:
        """Have changes of the session committed that belong to no message."""
        unit = UnitOfWork(self._sent)
        unit.owner = [(session, self.keep(session, unit))]
        if unit.states:
            self.backend.execute(unit)

    @staticmethod
    def keep(session: Session, unit: UnitOfWork) -> Outgoing | None:
        """Put what has changed of a durable session into the unit of work that it belongs to.

        Returns the message whose unusual message id is on record when the unit is committed.
        """
        if session.record:
            unit.states[StateKey(Side.RECEIVED, session.client_id)] = session.received_record()
        if not session.outbox.record:
            return None
        unit.states[StateKey(Side.SENT, session.client_id)] = session.sent_record()
        return session.outbox.recording

    def _control(self, connection: Connection, session: Session, packet: Packet) -> int:
        """Handle a packet that is not about messages; return the part of the client's turn that it takes."""
        if isinstance(packet, Subscribe):
            subscribe(self, connection, session, packet)
            return FILTER_PACKETS * len(packet.topics)
        if isinstance(packet, Unsubscribe):
            unsubscribe(self, connection, session, packet)
            return FILTER_PACKETS * len(packet.topics)
        if isinstance(packet, Disconnect):
            connection.will = None  # MQTT-3.14.4-3
            log.info("client %s disconnected", connection.client)
            connection.close("")
        else:
            # MQTT-3.1.0-2: a second CONNECT is a protocol violation.
            connection.close(f"it sent a {type(packet).__name__.upper()} where none belongs")
        return 1

    # Disconnecting ---------------------------------------------------------------------------------------------------

    def lost(self, connection: Connection) -> None:
        """Publish the will of a connection that is gone, unless it said DISCONNECT; end a clean session."""
        session = connection.session
        connection.session = None
        if self.retired:
            return  # the other bridge knows of the client when it comes there, and of its will
        if session is None or session.connection is not connection:
            return
        session.detach()
        if self.archive is not None:
            self.archive.disconnected(session)
        try:
            if connection.will is not None:
                publish_will(self, connection, session)
        except Exception:
            log.exception("client %s: its will fails", connection.client)
        self.leave(session)

    def leave(self, session: Session) -> None:
        """Put a durable session on record whose client is away; end a clean one."""
        if session.durable:
            session.outbox.record = True
            self._save(session)
        else:
            self.purge(session)

    def purge(self, session: Session) -> None:
        """End a session: its subscriptions, the messages that wait for it, its record (as PURGE CHANNEL does)."""
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
        if session.filters:
            self.backend.unsubscribe(session.client_id, list(session.filters), lambda: None, ended=True)
        unit = UnitOfWork()
        unit.removals = cast("list[QueuedTransmission]", session.outbox.pending())
        if self.archive is not None:
            self.archive.ended(session, unit.removals)
        if session.durable:
            unit.states = {StateKey(side, session.client_id): None for side in Side}
        if unit.removals or unit.states:
            self.backend.execute(unit)

    # Delivering ------------------------------------------------------------------------------------------------------

    def deliver(self, batch: Sequence[QueuedTransmission]) -> None:
        """Hand each message that the transmit-queue poller found to its session."""
        if self.retired:
            return
        sessions = self.sessions
        grouped: dict[Session, list[QueuedTransmission]] = {}
        unit = UnitOfWork()
        for transmission in batch:
            session = sessions.get(transmission.client_id)
            if session is None or not session.begun:
                self._unclaimed(session, transmission, unit)
                continue
            waiting = grouped.get(session)
            if waiting is None:
                grouped[session] = [transmission]
            else:
                waiting.append(transmission)
        now = self.clock()
        recording: list[tuple[Session, Outgoing | None]] = []
        for session, waiting in grouped.items():
            out: list[bytes] = []
            finished = len(unit.removals)
            try:
                refusals = session.outbox.deliver(waiting, now, out, unit.removals)  # type: ignore[arg-type]
                if out:
                    session.connection.write(b"".join(out))
                if session.outbox.more:
                    self._go_on_later(session)
                if self.archive is not None and len(unit.removals) > finished:
                    self.archive.finished(session, unit.removals[finished:])
                recording.append((session, self.keep(session, unit)))
                if refusals:
                    self._dead_letter(session, refusals)
            except Exception:
                # One client's fault stays its own; what it was to get lies on the transmission queue.
                log.exception("messages for client %r cannot be sent; it is disconnected", session.client_id)
                if session.connection is not None:
                    session.connection.abort()
        if unit.removals or unit.states:
            unit.done = self._sent
            unit.owner = recording
            self.backend.execute(unit)

    def _sent(self, unit: UnitOfWork) -> None:
        """Finish a unit of work with records of sessions, but no packets to answer."""
        for session, recording in cast("list[tuple[Session, Outgoing | None]]", unit.owner):
            if unit.failure:
                session.record = session.outbox.record = session.durable
            elif recording is not None:
                self.recorded(session, recording)

    def recorded(self, session: Session, recording: Outgoing) -> None:
        """Send the message that waited for the record of its unusual message id, which is committed, and those behind."""
        if session.outbox.recording is not recording:
            return
        out: list[bytes] = []
        session.outbox.recorded(out, self.clock())
        if out and session.connection is not None:
            session.connection.write(b"".join(out))
            self.pump(session)

    def _unclaimed(self, session: Session | None, transmission: QueuedTransmission, unit: UnitOfWork) -> None:
        """Handle a message for a client that has no session, or one that has only just begun."""
        if transmission.user_data is not None:
            # It came for a subscription of a session that has ended: it ended with it.
            unit.removals.append(transmission)
            if self.archive is not None:
                self.archive.unclaimed(transmission)
        elif session is not None:
            session.outbox.backlog.append(transmission)
        else:
            self._refuse(transmission, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)

    def _dead_letter(self, session: Session, refusals: Sequence[Refusal]) -> None:
        for refusal in refusals:
            log.warning("a message for client %r cannot be delivered: %s", session.client_id, refusal.why)
            self._refuse(cast(QueuedTransmission, refusal.transmission), refusal.reason)

    def _refuse(self, transmission: QueuedTransmission, reason: int) -> None:
        try:
            self.backend.dead_letter(transmission, reason)
        except Exception:
            log.exception(
                "a message for client %r stays on %s: it cannot be dead-lettered",
                transmission.client_id,
                self.backend.transmission_queue,
            )
            return
        if self.archive is not None:
            self.archive.dead_lettered(transmission, reason)

    def pump(self, session: Session) -> None:
        """Send what waits as far as the window allows."""
        work = Work(session.connection)
        self._submit(session, work)

    def writable(self, connection: Connection) -> None:
        """Go on with a slow client that has read what it was sent."""
        if connection.session is not None:
            self.pump(connection.session)

    def sweep(self, connection: Connection, now: float) -> None:
        """Send unacknowledged messages again after a time to a client of MQTT 3.1 (MQTT 3.1 section 4.2)."""
        session = connection.session
        if connection.level != 3 or session is None or not session.outbox.in_flight or not session.outbox.open:
            return
        out: list[bytes] = []
        session.outbox.retry(self.clock(), self.limits.retry_interval, out)
        if out:
            connection.write(b"".join(out))
