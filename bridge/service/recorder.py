"""The recorder of the telemetry service for the archive. Each call encodes a batch, queues it and returns immediately."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from bridge.archive import events as archived
from bridge.archive.event_queue import ArchiveLoss, EventProducer, EventQueue
from bridge.archive.events import Arrived, Mapped, Taken, encode
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
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import subscription_data
from bridge.telemetry.transmission import PublicationMessage, Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)

_PUBLISHED, _ACKNOWLEDGED, _FINISHED, _DEAD_LETTERED = (
    kind.__struct_config__.tag
    for kind in (archived.Published, archived.Acknowledged, archived.Finished, archived.DeadLettered)
)


class Recorder:
    """The archive of a telemetry service. Methods are called on its event loop; `clock` is the service's clock.

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
        self._producer.keep(archived.Started(now))
        for one in event.subscriptions:
            if one.durable:
                qos = subscription_data(one.user_data).qos
                self._producer.keep(archived.Subscribed(now, one.client_id, "", True, [(one.topic_filter, qos)], now))
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
        refusals: Mapping[int, str] = {}
        if completion.failure:
            refusals = dict.fromkeys(range(len(publications)), _reason(completion.failure))
        elif completion.refusals or completion.diverted:
            reasons = {**completion.refusals, **completion.diverted}
            refusals = {index: _reason(reason) for index, reason in reasons.items()}
        now = now_us()
        row = (
            _PUBLISHED,
            now,
            session.client_id,
            self._user(session),
            event.received_at,
            refusals,
            [(one.topic, one.payload, one.qos, one.message_id, retain, one.properties) for one, retain in publications],
        )
        self._producer.add(now, encode(row), len(publications))

    # Deliveries ------------------------------------------------------------------------------------------------------

    def acknowledged(self, event: Acknowledged) -> None:
        """Record acknowledgements of a client."""
        session, effects = event.session, event.effects
        in_flight = session.outbox.in_flight.deliveries
        taken = [
            (message_id, in_flight[message_id], one) for message_id, one in effects.acknowledged
        ] + effects.released
        # All messages of one queue manager are of one kind.
        parts = taken[0][2].raw is None
        messages: list[tuple[Any, ...]] = []
        for message_id, outgoing, one in taken:
            message = one.message
            if parts and type(message) is PublicationMessage:
                messages.append(
                    (
                        message.topic,
                        outgoing.payload,
                        outgoing.retain,
                        one.put_time,
                        message.client_id,
                        message.message_id,
                        outgoing.qos,
                        message_id,
                        outgoing.sent_at,
                        outgoing.times_sent,
                        None,
                        message.properties,
                    )
                )
                continue
            messages.append(
                (
                    outgoing.field[2:].decode(),
                    b"",
                    outgoing.retain,
                    one.put_time,
                    "",
                    0,
                    outgoing.qos,
                    message_id,
                    outgoing.sent_at,
                    outgoing.times_sent,
                    _source(one),
                )
            )
        offset = time.time() - self._clock()
        now = now_us()
        row = (_ACKNOWLEDGED, now, session.client_id, self._user(session), offset, messages)
        self._producer.add(now, encode(row), len(messages))

    def finished(self, event: Finished) -> None:
        """Record messages that need no acknowledgement: written with QoS 0, or discarded."""
        session, done, discarded = event.session, event.transmissions, event.discarded
        if discarded or done[0].raw is not None:
            messages = [delivery_of(one, discarded.get(one.msg_number)) for one in done]
        else:
            messages = [
                (
                    message.topic,
                    message.payload,
                    one.retained,
                    one.put_time,
                    message.client_id,
                    message.message_id,
                    None,
                    None,
                    False,
                    None,
                    None,
                    message.properties,
                )
                if type(message := one.message) is PublicationMessage
                else delivery_of(one, None)
                for one in done
            ]
        now = now_us()
        row = (_FINISHED, now, session.client_id, self._user(session), messages)
        self._producer.add(now, encode(row), len(messages))

    def _abandoned(self, event: MessagesAbandoned) -> None:
        discarded = {one.msg_number: SESSION_ENDED for one in event.transmissions}
        self.finished(Finished(event.session, event.transmissions, discarded))

    def _unclaimed(self, event: Unclaimed) -> None:
        transmission = event.transmission
        now = now_us()
        row = (_FINISHED, now, transmission.client_id, "", [delivery_of(transmission, event.reason or SESSION_ENDED)])
        self._producer.add(now, encode(row), 1)

    def _dead_lettered(self, event: DeadLettered) -> None:
        transmission = event.transmission
        now = now_us()
        row = (_DEAD_LETTERED, now, transmission.client_id, delivery_of(transmission, _reason(event.reason)))
        self._producer.add(now, encode(row), 1)

    # Sessions --------------------------------------------------------------------------------------------------------

    def _connected(self, event: ClientConnected) -> None:
        session = event.session
        self._producer.keep(archived.Connected(now_us(), session.client_id, self._user(session), session.durable))

    def _disconnected(self, event: ClientDisconnected) -> None:
        self._producer.keep(archived.Disconnected(now_us(), event.session.client_id))

    def _subscribed(self, event: Subscribed) -> None:
        session = event.session
        user = self._user(session)
        self._producer.keep(
            archived.Subscribed(
                now_us(), session.client_id, user, session.durable, list(event.granted), event.received_at
            )
        )

    def _unsubscribed(self, event: Unsubscribed) -> None:
        row = archived.Unsubscribed(now_us(), event.session.client_id, list(event.filters), event.received_at)
        self._producer.keep(row)

    def _ended(self, event: SessionEnded) -> None:
        self._producer.keep(archived.Ended(now_us(), event.session.client_id))


def delivery_of(transmission: Transmission, reason: str | None) -> tuple[Any, ...]:
    """Return the fields of `bridge.archive.events.Delivery` for a message to a client."""
    message = transmission.message
    put = transmission.put_time
    rest = (reason, transmission.persistent, transmission.user_data)
    if isinstance(message, PublicationMessage) and transmission.raw is None:
        return (
            message.topic,
            message.payload,
            transmission.retained,
            put,
            message.client_id,
            message.message_id,
            message.qos,
            *rest,
            None,
            message.properties,
        )
    topic = transmission.topic or transmission.remote_queue
    return (topic, b"", transmission.retained, put, "", 0, None, *rest, _source(transmission))


def _source(transmission: Transmission) -> tuple[Any, ...] | bytes:
    """Return a message that arrived as bytes. For remote queue managers, as stored on the transmission queue."""
    raw = transmission.raw
    if raw is not None:
        return raw
    message = transmission.message
    md = message.md
    return md.Format, md.Encoding, md.CodedCharSetId, message.data, md.CorrelId


def _reason(reason: int) -> str:
    return f"{cmqc.reason_name(reason)} ({reason})"


_MAPPED, _TAKEN, _ARRIVED = (kind.__struct_config__.tag for kind in (Mapped, Taken, Arrived))


class MappingRecorder:
    """Writes the messages of one mapping to the archive."""

    def __init__(self, mapping: str, producer: EventProducer) -> None:
        self._mapping = mapping
        self._producer = producer

    def settled(self, fates: list[Fate], began: int, queue: str) -> None:
        """Record the messages of a committed unit of work.

        `began` is in microseconds since the epoch. `queue` is empty if the source is a topic or link.
        """
        if not fates:
            return
        now = now_us()
        messages = [
            (outcome, reason, destination, _taken(item, queue) if isinstance(item, Got) else _arrived(item))
            for item, outcome, reason, destination in fates
        ]
        self._producer.add(now, encode((_MAPPED, now, self._mapping, began, messages)), len(messages))


def _taken(got: Got, queue: str) -> tuple[Any, ...]:
    md = got.md
    return (
        _TAKEN,
        md.Format,
        md.Encoding,
        md.CodedCharSetId,
        md.Persistence,
        md.MsgId,
        md.PutDate,
        md.PutTime,
        got.data,
        queue,
        md.CorrelId,
    )


def _arrived(received: Received) -> tuple[Any, ...]:
    one = received.publication
    return (
        _ARRIVED,
        one.topic,
        one.payload,
        one.qos,
        one.retain,
        one.client_id,
        one.message_id,
        received.dup,
        None if one.properties == NO_PROPERTIES else one.properties,
    )
