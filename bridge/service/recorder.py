"""The recorder of the telemetry service for the archive. Each call encodes a batch, queues it and returns immediately."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from bridge.archive.event_queue import ArchiveLoss, EventProducer, EventQueue
from bridge.archive.events import (
    AcknowledgedMessage,
    ArchiveEvent,
    ArrivedMessage,
    DeliveredMessage,
    EncodedMessage,
    Incoming,
    MappedEvent,
    OutgoingMessage,
    PublishedEvent,
    SessionEvent,
    SettledEvent,
    TakenMessage,
    UndeliveredMessage,
    encode,
)
from bridge.archive.schema import SESSION_ENDED
from bridge.clock import now_us
from bridge.config.operations import ArchiveConfig
from bridge.mq.mqi import Got
from bridge.service.events import (
    Acknowledged,
    ClientConnected,
    ClientDisconnected,
    DeadLettered,
    Fate,
    Finished,
    MessagesAbandoned,
    Published,
    Recovered,
    SessionEnded,
    Subscribed,
    Unclaimed,
    Unsubscribed,
)
from bridge.telemetry.message import NO_PROPERTIES, Received
from bridge.telemetry.outbox import Outgoing
from bridge.telemetry.outcome import Outcome
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import subscription_data
from bridge.telemetry.transmission import PublicationMessage, Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class Recorder:
    """The archive of a telemetry service. Methods are called on its event loop. `clock` is that of the service.

    Raises ArchiveError if pyarrow is not installed or the directory is not writable.
    """

    def __init__(self, config: ArchiveConfig, clock: Callable[[], float]) -> None:
        self._archive = EventQueue(config)
        self._producer = self._archive.producer()
        self._mappings: dict[str, MappingRecorder] = {}
        self._clock = clock
        # decoded user names: there are few, and each batch needs one
        self._users: dict[bytes, str] = {}

    def _recovered(self, event: Recovered) -> None:
        """Start the archive with the existing subscriptions."""
        now = now_us()
        self._producer.keep(ArchiveEvent(now, Outcome.STARTED))
        for subscription in event.subscriptions:
            if subscription.durable:
                topics = [(subscription.topic_filter, subscription_data(subscription.user_data).qos)]
                self._producer.keep(
                    SessionEvent(now, Outcome.SUBSCRIBED, subscription.client_id, "", True, topics, now)
                )
        self._archive.start()

    def mapping(self, name: str) -> MappingRecorder:
        """Return the recorder for a mapping's thread. Restarts of the mapping use the same recorder."""
        if name not in self._mappings:
            self._mappings[name] = MappingRecorder(name, self._archive.producer())
        return self._mappings[name]

    @property
    def loss(self) -> ArchiveLoss:
        """The rows and files that are missing from the archive."""
        return self._archive.loss

    def close(self, timeout: float) -> None:
        """Write the remaining events, for at most `timeout` seconds. Blocks: call it on a separate thread."""
        if not self._archive.close(timeout):
            log.warning(
                "MQB7011W archive: not all rows were written within %g s; rows that the writer process does not have yet "
                "are missing",
                timeout,
            )

    def _user(self, session: Session) -> str:
        user = session.identity.user
        text = self._users.get(user)
        if text is None:
            if len(self._users) > 10_000:
                self._users.clear()
            text = self._users[user] = user.decode("utf-8", "replace")
        return text

    # Publications ----------------------------------------------------------------------------------------------------

    def published(self, event: Published) -> None:
        """Record a client's publications after the end of their unit of work."""
        session, publications, completion = event.session, event.publications, event.completion
        refusals: dict[int, str] = {}
        if completion.failure:
            refusals = dict.fromkeys(range(len(publications)), _reason(completion.failure))
        elif completion.refusals or completion.diverted:
            reasons = {**completion.refusals, **completion.diverted}
            refusals = {index: _reason(reason, event.invalid.get(index)) for index, reason in reasons.items()}
        now = now_us()
        messages = [
            Incoming(message.topic, message.payload, message.qos, message.packet_id, retain, message.properties)
            for message, retain in publications
        ]
        archived = PublishedEvent(now, session.client_id, self._user(session), event.received_at, refusals, messages)
        self._producer.add(now, encode(archived), len(messages))

    # Deliveries ------------------------------------------------------------------------------------------------------

    def acknowledged(self, event: Acknowledged) -> None:
        """Record acknowledgements of a client."""
        session, acknowledged, released = event.session, event.effects.acknowledged, event.effects.released
        in_flight = session.outbox.in_flight.deliveries
        # All messages of a queue manager arrive in the same form.
        parts = (acknowledged[0][1] if acknowledged else released[0][2]).raw is None
        settled = _acknowledged if parts else _acknowledged_source
        messages: list[OutgoingMessage] = [
            settled(packet_id, in_flight[packet_id], transmission) for packet_id, transmission in acknowledged
        ]
        if released:
            messages += [settled(*delivery) for delivery in released]
        self._settled(session.client_id, self._user(session), messages, time.time() - self._clock())

    def finished(self, event: Finished) -> None:
        """Record messages that need no acknowledgement: written with QoS 0, or discarded."""
        session, transmissions, discarded = event.session, event.transmissions, event.discarded
        messages: list[OutgoingMessage]
        if discarded or transmissions[0].raw is not None:
            messages = [
                outgoing_message(transmission, discarded.get(transmission.msg_number)) for transmission in transmissions
            ]
        else:
            messages = [
                DeliveredMessage(
                    message.topic,
                    message.payload,
                    transmission.retained,
                    transmission.put_time,
                    message.client_id,
                    message.packet_id,
                    message.properties,
                    None,
                )
                if type(message := transmission.message) is PublicationMessage
                else outgoing_message(transmission, None)
                for transmission in transmissions
            ]
        self._settled(session.client_id, self._user(session), messages)

    def _abandoned(self, event: MessagesAbandoned) -> None:
        discarded = {transmission.msg_number: SESSION_ENDED for transmission in event.transmissions}
        self.finished(Finished(event.session, event.transmissions, discarded))

    def _unclaimed(self, event: Unclaimed) -> None:
        message = outgoing_message(event.transmission, event.reason or SESSION_ENDED)
        self._settled(event.transmission.client_id, "", [message])

    def _dead_lettered(self, event: DeadLettered) -> None:
        message = outgoing_message(event.transmission, _reason(event.reason), Outcome.DEAD_LETTERED)
        self._settled(event.transmission.client_id, "", [message])

    def _settled(self, client_id: str, user: str, messages: list[OutgoingMessage], offset: float = 0.0) -> None:
        now = now_us()
        self._producer.add(now, encode(SettledEvent(now, client_id, user, offset, messages)), len(messages))

    # Sessions --------------------------------------------------------------------------------------------------------

    def _connected(self, event: ClientConnected) -> None:
        self._changed(Outcome.CONNECTED, event.session)

    def _disconnected(self, event: ClientDisconnected) -> None:
        self._changed(Outcome.DISCONNECTED, event.session)

    def _subscribed(self, event: Subscribed) -> None:
        self._changed(Outcome.SUBSCRIBED, event.session, list(event.granted), event.received_at)

    def _unsubscribed(self, event: Unsubscribed) -> None:
        topics = [(topic_filter, 0) for topic_filter in event.filters]
        self._changed(Outcome.UNSUBSCRIBED, event.session, topics, event.received_at)

    def _ended(self, event: SessionEnded) -> None:
        self._changed(Outcome.ENDED, event.session)

    def _changed(
        self, outcome: Outcome, session: Session, topics: Sequence[tuple[str, int]] = (), received: int = 0
    ) -> None:
        user = self._user(session)
        self._producer.keep(
            SessionEvent(now_us(), outcome, session.client_id, user, session.durable, list(topics), received)
        )


def _acknowledged(packet_id: int, outgoing: Outgoing, transmission: Transmission) -> AcknowledgedMessage:
    """Return a message that a client has acknowledged."""
    message = transmission.message
    if type(message) is not PublicationMessage:
        return _acknowledged_source(packet_id, outgoing, transmission)
    # Positional: keywords cost more.
    return AcknowledgedMessage(
        message.topic,
        outgoing.payload,
        outgoing.retain,
        transmission.put_time,
        message.client_id,
        message.packet_id,
        message.properties,
        None,
        outgoing.qos,
        packet_id,
        outgoing.sent_at,
        outgoing.times_sent,
    )


def _acknowledged_source(packet_id: int, outgoing: Outgoing, transmission: Transmission) -> AcknowledgedMessage:
    """Return a message that a client has acknowledged. The archive process reads its headers."""
    topic, source = outgoing.field[2:].decode(), _source(transmission)
    return AcknowledgedMessage(
        topic,
        b"",
        outgoing.retain,
        transmission.put_time,
        "",
        0,
        None,
        source,
        outgoing.qos,
        packet_id,
        outgoing.sent_at,
        outgoing.times_sent,
    )


def outgoing_message(
    transmission: Transmission, reason: str | None, outcome: Outcome = Outcome.DISCARDED
) -> DeliveredMessage | UndeliveredMessage:
    """Return a message for a client that was written with QoS 0 or, if there is a reason, had another outcome."""
    message, retain, put_time = transmission.message, transmission.retained, transmission.put_time
    source: EncodedMessage | bytes | None
    if isinstance(message, PublicationMessage) and transmission.raw is None:
        topic, payload, qos, publisher, number = (
            message.topic,
            message.payload,
            message.qos,
            message.client_id,
            message.packet_id,
        )
        properties, source = message.properties, None
    else:
        topic, payload, qos, publisher, number = transmission.topic or transmission.remote_queue, b"", None, "", 0
        properties, source = None, _source(transmission)
    if reason is None:
        return DeliveredMessage(topic, payload, retain, put_time, publisher, number, properties, source)
    return UndeliveredMessage(
        topic,
        payload,
        retain,
        put_time,
        publisher,
        number,
        properties,
        source,
        outcome,
        reason,
        qos,
        transmission.persistent,
        transmission.user_data,
    )


def _source(transmission: Transmission) -> EncodedMessage | bytes:
    """Return a message that arrived as bytes. For remote queue managers, as stored on the transmission queue."""
    raw = transmission.raw
    if raw is not None:
        return raw
    message = transmission.message
    md = message.md
    return EncodedMessage(md.Format, md.Encoding, md.CodedCharSetId, message.data, md.CorrelId)


def _reason(reason: int, why: str | None = None) -> str:
    return f"{cmqc.reason_name(reason)} ({reason})" + (f": {why}" if why else "")


class MappingRecorder:
    """Writes the messages of one mapping to the archive."""

    def __init__(self, mapping: str, producer: EventProducer) -> None:
        self._mapping = mapping
        self._producer = producer

    def settled(self, fates: list[Fate], start: int, queue: str) -> None:
        """Record the messages of a committed unit of work.

        `start` is in microseconds since the epoch. `queue` is empty if the source is a topic or link.
        """
        if not fates:
            return
        now = now_us()
        messages = [
            _taken(message, outcome, reason, destination, queue)
            if isinstance(message, Got)
            else _arrived(message, outcome, reason, destination)
            for message, outcome, reason, destination in fates
        ]
        self._producer.add(now, encode(MappedEvent(now, self._mapping, start, messages)), len(messages))


def _taken(message: Got, outcome: Outcome, reason: str | None, destination: str | None, queue: str) -> TakenMessage:
    md = message.md
    return TakenMessage(
        outcome,
        reason,
        destination,
        queue,
        md.Format,
        md.Encoding,
        md.CodedCharSetId,
        md.Persistence,
        md.MsgId,
        md.PutDate,
        md.PutTime,
        md.CorrelId,
        message.data,
    )


def _arrived(received: Received, outcome: Outcome, reason: str | None, destination: str | None) -> ArrivedMessage:
    publication = received.publication
    return ArrivedMessage(
        outcome,
        reason,
        destination,
        publication.topic,
        publication.payload,
        publication.qos,
        publication.retain,
        publication.client_id,
        publication.packet_id,
        received.dup,
        None if publication.properties == NO_PROPERTIES else publication.properties,
    )
