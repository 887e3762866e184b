"""Handles the packets of clients: between network connections and the telemetry service.

Messages become units of work here. Acknowledgements are sent to the client, and its own acknowledgements take effect, only
after the unit of work is committed. Sequences answer CONNECT, AUTH, SUBSCRIBE and UNSUBSCRIBE.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from bridge.clock import now_us
from bridge.config.channel import ChannelConfig
from bridge.mq.backend import NONE_REFUSED, Completion, UnitOfWork, resolve
from bridge.mqtt.connection import Answer, ConnectionState, Reason, ServerProtocol
from bridge.mqtt.packets import (
    LEVEL_MQTT_5,
    Auth,
    Connect,
    Disconnect,
    Disconnected,
    Event,
    MessagePacket,
    Messages,
    PacketType,
    Publish,
    Subscribe,
    Unsubscribe,
)
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.service.client import REQUEST_WEIGHT, Client, Ended, forbidden_of, granted_expiry
from bridge.service.connecting import authenticate_again, connect
from bridge.service.events import Acknowledged, PublicationRejected, Published
from bridge.service.subscriptions import subscribe, unsubscribe
from bridge.service.telemetry import TelemetryService
from bridge.service.turns import Sequences
from bridge.telemetry.conversion import reason_code_of
from bridge.telemetry.session import ReceiveEffects, Session
from bridge.transport.stream import MakesOwner, Rate, StreamConnection
from bridge.wire import cmqc

log = logging.getLogger(__name__)

_DISCONNECTING: Final = ConnectionState.DISCONNECTING
#: Bytes that each delivery of a publication counts for in flow control.
DELIVERY_WEIGHT: Final = 256
#: Approximate number of deliveries caused by one client's publications per turn. A single publication may exceed it.
DELIVERIES_AT_A_TURN: Final = 20_000


def handlers_of(service: TelemetryService) -> MakesOwner:
    """Return the function that creates the handlers of new connections."""
    return partial(ClientHandler, service, Sequences())


class ClientHandler:
    """Handles the events of one connection: `bridge.transport.stream.ConnectionOwner`."""

    __slots__ = ("_client", "_deliveries", "_rate", "_sequences", "_service")

    def __init__(
        self,
        service: TelemetryService,
        sequences: Sequences,
        transport: StreamConnection,
        protocol: ServerProtocol,
        channel: ChannelConfig,
    ) -> None:
        self._service = service
        self._sequences = sequences
        self._client = Client(transport, protocol, channel, service.limits.pending_publication_bytes)
        #: approximate number of deliveries caused by this turn's publications, or 0 if they are few
        self._deliveries = 0
        protocol.recipients, protocol.portion = service.subscriptions, self._portion
        #: rate limit in publications per second; None: unlimited
        self._rate = None if channel.publish_rate is None else Rate(channel.publish_rate, time.monotonic())

    def received(self, events: Sequence[Event]) -> None:
        """Process events from the client in order."""
        client = self._client
        for event in events:
            if isinstance(event, Messages):
                session = client.session
                assert session is not None
                effects = session.receive(event.packets)
                if self._deliveries:
                    effects.weight += DELIVERY_WEIGHT * self._deliveries
                    self._deliveries = 0
                if self._rate is not None and effects.publications:
                    client.transport.slow_down(self._rate.spend(len(effects.publications), time.monotonic()))
                self._commit(session, effects)
                if effects.violation:
                    if effects.violation_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED:
                        self._service.limit_hits.note("unreleased", session.client_id)
                    client.close(effects.violation, effects.violation_code)
                requests = session.outbox.requests
                if requests is not None and requests.evicted:
                    self._service.limit_hits.note("request_bytes", session.client_id, requests.evicted)
                    requests.evicted = 0
            elif isinstance(event, Disconnected):
                if event.packet is None:
                    if event.reason_code == ReasonCode.PACKET_TOO_LARGE:
                        self._note_packet(client)
                    client.close(event.why, event.reason_code)
                else:
                    self._disconnected(event.packet)
            else:
                self._control(event)
            if client.protocol.state >= _DISCONNECTING:
                return

    def _note_packet(self, client: Client) -> None:
        """Count a packet that is too large. Before CONNECT, the client is unknown."""
        limit, who = "max_packet_size", client.peer.client_id
        if client.session is None:
            limit, who = "max_connect_size", client.transport.address or "a Unix socket"
        self._service.limit_hits.note(limit, who, 1, client.channel.name)

    def _portion(self, packets: Sequence[MessagePacket]) -> int:
        """Return the number of packets to process in one turn, and estimate the deliveries that their publications cause."""
        weight = self._service.backend.weight
        self._deliveries = 0
        for index, packet in enumerate(packets):
            if type(packet) is Publish:
                self._deliveries += weight(packet.topic)
                if self._deliveries >= DELIVERIES_AT_A_TURN:
                    return index + 1
        return len(packets)

    def _control(self, event: Connect | Auth | Subscribe | Unsubscribe) -> None:
        """Start the sequence that answers CONNECT, AUTH, SUBSCRIBE or UNSUBSCRIBE."""
        service, client = self._service, self._client
        if isinstance(event, Connect):
            client.sequence = self._sequences.start(client, connect(service, client, event))
            return
        if isinstance(event, Auth):
            if event.reason_code == ReasonCode.RE_AUTHENTICATE:
                client.sequence = self._sequences.start(client, authenticate_again(service, client, event))
            else:
                assert client.response is not None and event.properties is not None
                resolve(client.response, event.properties.authentication_data)
            return
        session = client.session
        assert session is not None
        if isinstance(event, Subscribe):
            self._sequences.start(client, subscribe(service, client, session, event))
        else:
            self._sequences.start(client, unsubscribe(service, client, session, event))

    def _disconnected(self, packet: Disconnect) -> None:
        """Process DISCONNECT. MQTT 5 clients may request their will, or another Session Expiry Interval."""
        client = self._client
        log.info("MQB2002I channel %s: client %s disconnected", client.channel.name, client.peer)
        expiry_interval = packet.properties.session_expiry_interval if packet.properties is not None else None
        if expiry_interval is not None and client.session is not None:
            if expiry_interval and not client.session.expiry_interval:
                why = "MQTT 5 section 3.14.2.2.2: Session Expiry Interval was 0 in CONNECT, but is not 0 in DISCONNECT"
                client.close(why, ReasonCode.PROTOCOL_ERROR)
                return
            client.session.expiry_interval = granted_expiry(expiry_interval, client.channel)
        if packet.reason_code == ReasonCode.SUCCESS:
            client.will = None  # MQTT-3.14.4-3; any other reason publishes it (MQTT-3.1.2-8)
        client.close()

    # Messages --------------------------------------------------------------------------------------------------------

    def _commit(self, session: Session, effects: ReceiveEffects) -> None:
        """Send as many messages as the window allows, commit the effects of packets, and answer after the commit."""
        service, client = self._service, self._client
        if session.outbox.backlog.messages or session.shares:
            finished = service.delivery.send_waiting(session, client)
            effects.finishing = len(finished)
            effects.removals += finished
        recorded = session.unsaved
        if effects.empty and not recorded:
            if effects.answers:
                reasons = _unknown(effects) if client.protocol.level == LEVEL_MQTT_5 else None
                client.protocol.answer(effects.answers, reasons)
                client.transport.flush()
            return
        units = service.units
        forbidden = NONE_REFUSED if session.topics is None else forbidden_of(session, effects.publications)
        unit = UnitOfWork(effects.publications, effects.removals, client.dead_letters, forbidden)
        if service.payload_schemas.active and effects.publications:
            effects.invalid = service.payload_schemas.refuse(unit, session)
        if effects.released:
            unit.released_by = session.client_id
        if recorded:
            effects.recording = session.take_records(unit.records)
            effects.records = unit.records
        effects.received_at = now_us()
        if effects.publications:
            effects.weight += REQUEST_WEIGHT * len(effects.publications)
            client.hold(effects.weight)
            session.messages_received += len(effects.publications)
            session.last_received_at = effects.received_at
        ended: Ended = partial(self._committed, session, effects)
        if units.traces is not None and effects.publications:
            ended = units.traces.following(session, effects.publications, effects.received_at, ended)
        refused = units.submit(unit, ended)
        if refused:
            session.refuse(effects, refused)

    def _committed(self, session: Session, effects: ReceiveEffects, completion: Completion) -> None:
        """Answer the client after the end of a unit of work."""
        service, client = self._service, self._client
        session.outbox.finishing -= effects.finishing
        if effects.publications:
            if service.turns.waiting or service.delivery.delays_publishers:
                # Limit publishers to the speed of the deliveries that they cause.
                release = partial(client.release, effects.weight)
                service.turns.run(partial(service.delivery.when_caught_up, release))
            else:
                client.release(effects.weight)
            client.last_topic, client.published_at = effects.publications[-1][0].topic, effects.received_at
            service.events.publish(
                Published(session, effects.publications, completion, effects.received_at, effects.invalid)
            )
        if completion.failure:
            session.failed(effects)
            if not session.connected:
                service.delivery.take_back(session, include_sent=True)
            self._close(
                session,
                f"its messages cannot be committed: {cmqc.reason_name(completion.failure)} ({completion.failure}); "
                "nothing was acknowledged",
                reason_code_of(completion.failure, PacketType.DISCONNECT),
            )
            return
        if effects.acknowledged or effects.released:
            service.events.publish(Acknowledged(session, effects))
        present = client if client.session is session else service.delivery.attached(session)
        refusals = completion.refusals
        # Reading the clock is as expensive as the rest. Only released messages need it.
        now = service.clock() if effects.released else 0.0
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
            service.delivery.recorded(session, effects.recording)
        if effects.invalid and completion.diverted:
            self._diverted(session, effects, completion.diverted)
        if refusals:
            self._refused(session, effects, refusals)
        if session.outbox.held:
            service.delivery.resume(session)
        if session.ending:
            service.endings.review(session)

    def _diverted(self, session: Session, effects: ReceiveEffects, diverted: Mapping[int, int]) -> None:
        """Log publications that were dead-lettered because they violate a schema of the channel."""
        invalid = [index for index in effects.invalid if index in diverted]
        if not invalid:
            return
        client, why = self._client, effects.invalid[invalid[0]]
        topic, others = effects.publications[invalid[0]][0].topic, len(invalid) - 1
        log.warning(
            "MQB2304W client %s: dead-lettered publication to %r%s: %s",
            client.peer,
            topic[:200],
            f" and {others} more" if others else "",
            why,
        )
        audit_log.note(
            "publication dead-lettered", client.peer, channel=session.channel, topic=topic, why=why, others=others
        )

    def _refused(self, session: Session, effects: ReceiveEffects, refusals: Mapping[int, int]) -> None:
        """Handle publications that the queue manager or a schema rejected.

        An MQTT 5 client received the reason in PUBACK or PUBREC. Earlier versions have no negative PUBACK: the publications
        stay unacknowledged, and the connection is closed.
        """
        client = self._client
        index, reason = next(iter(refusals.items()))
        message = effects.publications[index][0]
        self._service.delivery.save(session)
        user = session.identity.user.decode("utf-8", "replace")
        description = (
            f"rejected publication to {message.topic[:200]!r} as user {user!r}: {cmqc.reason_name(reason)} ({reason})"
        )
        facts = {}
        if violation := effects.invalid.get(index):
            description, facts = f"{description}: {violation}", {"why": violation}
        audit_log.note(
            "publication refused", client.peer, channel=client.channel.name, topic=message.topic, reason=reason, **facts
        )
        if all(effects.publications[index][0].qos == 0 for index in refusals):
            log.warning("MQB2301W client %s: %s; lost, because it had QoS 0", client.peer, description)
            return
        self._service.events.publish(PublicationRejected(session, message, reason))
        if client.protocol.level == LEVEL_MQTT_5:
            log.warning("MQB2302W client %s: %s; reported to the client", client.peer, description)
        else:
            self._close(
                session, f"{description}; it is not acknowledged", reason_code_of(reason, PacketType.DISCONNECT)
            )

    def _close(self, session: Session, why: str, reason_code: ReasonCode) -> None:
        """Close the connection of the packets, and the connection to which the client has moved since."""
        self._client.close(why, reason_code)
        present = self._service.delivery.attached(session)
        if present is not None:
            present.close(why, reason_code)

    # The connection --------------------------------------------------------------------------------------------------

    def send_more(self) -> None:
        """Continue sending after the limit of one turn was reached."""
        client = self._client
        if client.session is not None:
            self._service.delivery.pump(client.session, client)

    def pause_writing(self) -> None:
        """Pause sending: the client does not read. Other members of its shares get the unsent messages."""
        session = self._client.session
        if session is not None:
            session.outbox.pause()
            if session.shares:
                self._service.delivery.take_back(session, include_sent=False)

    def resume_writing(self) -> None:
        """Resume sending: the client has read the pending output."""
        session = self._client.session
        if session is not None:
            self._client.report_dropped(session)
            session.outbox.resume()
            self.send_more()

    def expire(self) -> None:
        """Close the connection if the client's credentials have expired."""
        self._client.expire()

    def sweep(self, now: float) -> None:
        """Retransmit unacknowledged messages to MQTT 3.1 clients (section 4.2)."""
        client, service = self._client, self._service
        session = client.session
        if client.protocol.level != 3 or session is None or not session.outbox.open:
            return
        session.outbox.send_again(client.protocol, service.clock(), service.limits.retry_interval)
        client.transport.flush()

    def lost(self) -> None:
        """Handle the loss of the connection. After mass disconnects, this takes several turns of the event loop."""
        client = self._client
        if client.sequence is not None and not client.committing:
            client.sequence.cancel()
        if client.session is not None:
            client.session.outbox.pause()
            client.report_dropped(client.session)
        self._service.turns.run(partial(self._service.lost, client))


def _unknown(effects: ReceiveEffects) -> dict[Answer, Reason]:
    """Return the MQTT 5 reason code for unknown packet identifiers (sections 3.6.2.1 and 3.7.2.1)."""
    return dict.fromkeys(effects.unknown, (ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, ""))


def _reasons(effects: ReceiveEffects, completion: Completion) -> dict[Answer, Reason]:
    """Return the MQTT 5 reason codes for rejected publications, publications without subscribers and unknown identifiers."""
    reasons = _unknown(effects)
    for index in completion.unmatched:
        reasons[effects.answer_to(index)] = ReasonCode.NO_MATCHING_SUBSCRIBERS, ""
    for index, reason in completion.refusals.items():
        answer = effects.answer_to(index)
        words = effects.invalid.get(index) or f"{cmqc.reason_name(reason)} ({reason})"
        reasons[answer] = reason_code_of(reason, answer[0]), words
    return reasons
