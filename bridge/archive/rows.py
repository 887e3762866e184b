"""Conversion of events to rows, in the archive process."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from bridge.archive import events
from bridge.archive.schema import Direction, Row, json_of, payload_hash, row
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import Message, Unmappable
from bridge.telemetry.outcome import Outcome
from bridge.telemetry.subscription import publication_qos, subscription_qos
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqxqh

#: Message property, in the usr folder, with the name of the replay that put the message.
REPLAYED = "replayed"
#: Members of enumerations that most rows have: each access to a member takes time.
_IN, _OUT = Direction.IN, Direction.OUT
_PUT, _REFUSED, _DELIVERED, _ACKNOWLEDGED = Outcome.PUT, Outcome.REFUSED, Outcome.DELIVERED, Outcome.ACKNOWLEDGED
#: Length of an MQXQH, which contains an MQMD of version 1, in bytes.
_MQXQH: Final = 428


class Provenance(NamedTuple):
    """The origin of a message: its publisher and publication, as far as the headers contain them."""

    #: the body, or all data of a message with malformed headers
    payload: bytes
    #: time of the put, in microseconds since the epoch
    put: int
    publisher: str = ""
    publisher_message_id: int = 0
    #: QoS of the publication as sent by its publisher. None: from an MQ application
    qos: int | None = None
    replayed: str | None = None
    #: whether the headers mark the message as a retained publication
    retained: bool = False
    #: properties for MQTT 5 clients
    properties: PublishProperties | None = None
    #: topic of the publication
    topic: str = ""


def provenance_of(message: Message, put_at: int) -> Provenance:
    """Return the provenance of a message. `put_at` is its put time in microseconds since the epoch."""
    try:
        headers = Headers(message, discard_others=True)
    except Unmappable:
        return Provenance(message.data, put_at)
    return Provenance(
        headers.body,
        put_at,
        headers.client_id,
        headers.packet_id,
        headers.qos,
        headers.folder("usr").get(REPLAYED),
        headers.retained,
        headers.properties,
        headers.topic,
    )


def put_time(md: MQMD) -> int:
    """Return MQMD.PutDate and PutTime in microseconds since the epoch, or 0 if they are not set.

    They are in UTC, with a resolution of hundredths of a second.
    """
    try:
        moment = time.strptime((md.PutDate + md.PutTime[:6]).decode("ascii"), "%Y%m%d%H%M%S")
        return calendar.timegm(moment) * 1_000_000 + int(md.PutTime[6:8]) * 10_000
    except ValueError:
        return 0


def message_of(source: events.EncodedMessage | bytes) -> Message:
    """Return the original message of a source. Raises MalformedHeader for transmission queue data without an MQXQH."""
    if isinstance(source, bytes):
        return Message(decode_mqxqh(source).MsgDesc, source[_MQXQH:])
    md = MQMD(Format=source.Format, Encoding=source.Encoding, CodedCharSetId=source.CodedCharSetId)
    if source.CorrelId:
        md = msgspec.structs.replace(md, CorrelId=source.CorrelId)
    return Message(md, source.data)


class Rows:
    """Creates rows with consecutive numbers."""

    def __init__(self, numbers: Iterator[int], *, payloads: bool) -> None:
        self._numbers = numbers
        self._payloads = payloads

    def published(self, event: events.PublishedEvent) -> list[Row]:
        """Return the rows for publications of one client."""
        numbers, payloads, refusals = self._numbers, self._payloads, event.refusals
        now, client_id, user, received = event.now, event.client_id, event.user, event.received
        rows = []
        for index, publication in enumerate(event.publications):
            payload, message_id = publication.payload, publication.message_id
            reason = refusals.get(index) if refusals else None
            outcome = _PUT if reason is None else _REFUSED
            # In the order of COLUMNS. Optimized: rows are created here and in `settled` by the thousand.
            rows.append(
                (
                    next(numbers),
                    _IN,
                    outcome,
                    reason,
                    client_id,
                    user,
                    publication.topic,
                    publication.qos,
                    publication.retain,
                    0,
                    message_id,
                    payload if payloads else None,
                    len(payload),
                    payload_hash(payload),
                    client_id,
                    message_id,
                    received,
                    None,
                    now,
                    None,
                    None,
                    None,
                    None,
                    json_of(publication.properties),
                )
            )
        return rows

    def settled(self, event: events.SettledEvent) -> list[Row]:
        """Return the rows for messages to one client."""
        numbers, payloads, rows = self._numbers, self._payloads, []
        now, client_id, user, offset = event.now, event.client_id, event.user, event.offset
        for message in event.messages:
            provenance = _provenance_of(message, now)
            payload, retain = provenance.payload, message.retain
            reason: str | None = None
            sent_at: int | None = now
            if isinstance(message, events.AcknowledgedMessage):
                outcome, qos = _ACKNOWLEDGED, message.qos
                times_sent, message_id = message.times_sent, message.message_id
                sent_at = int((message.sent + offset) * 1_000_000)
            elif isinstance(message, events.DeliveredMessage):
                outcome, qos, times_sent, message_id = _DELIVERED, 0, 1, 0
                retain = retain or provenance.retained
            else:
                outcome, reason, qos = message.outcome, message.reason, _qos_of(message, provenance)
                times_sent, message_id, sent_at = 0, 0, None
            # In the order of COLUMNS.
            rows.append(
                (
                    next(numbers),
                    _OUT,
                    outcome,
                    reason,
                    client_id,
                    user,
                    message.topic,
                    qos,
                    retain,
                    times_sent,
                    message_id,
                    payload if payloads else None,
                    len(payload),
                    payload_hash(payload),
                    provenance.publisher,
                    provenance.publisher_message_id,
                    provenance.put,
                    sent_at,
                    now,
                    None,
                    provenance.replayed,
                    None,
                    None,
                    json_of(provenance.properties),
                )
            )
        return rows

    def mapped(self, event: events.MappedEvent) -> list[Row]:
        """Return the rows for messages that a mapping took."""
        return [self._moved(event, message) for message in event.messages]

    def _moved(self, event: events.MappedEvent, message: events.TakenMessage | events.ArrivedMessage) -> Row:
        times_sent, msg_id = 1, None
        if isinstance(message, events.ArrivedMessage):
            provenance = Provenance(
                message.payload,
                event.received,
                message.publisher,
                message.message_id,
                message.qos,
                properties=message.properties,
            )
            topic, retain, times_sent = message.topic, message.retain, 2 if message.dup else 1
        else:
            md = MQMD(
                Format=message.Format,
                Encoding=message.Encoding,
                CodedCharSetId=message.CodedCharSetId,
                PutDate=message.PutDate,
                PutTime=message.PutTime,
                CorrelId=message.CorrelId or cmqc.MQCI_NONE,
            )
            provenance = provenance_of(Message(md, message.data), put_time(md) or event.received)
            provenance = provenance._replace(qos=publication_qos(message.Persistence, provenance.qos))
            topic, retain, msg_id = message.queue or provenance.topic, provenance.retained, message.MsgId
        return row(
            sequence=next(self._numbers),
            direction=Direction.MAPPED,
            outcome=message.outcome,
            reason=message.reason,
            client_id=event.mapping,
            topic=topic,
            qos=provenance.qos,
            retain=retain,
            times_sent=times_sent,
            message_id=provenance.publisher_message_id,
            payload=provenance.payload if self._payloads else None,
            size=len(provenance.payload),
            payload_hash=payload_hash(provenance.payload),
            publisher=provenance.publisher,
            publisher_message_id=provenance.publisher_message_id,
            received=provenance.put,
            settled=event.now,
            replayed=provenance.replayed,
            destination=message.destination,
            msg_id=msg_id,
            properties=json_of(provenance.properties),
        )


def _qos_of(message: events.UndeliveredMessage, provenance: Provenance) -> int:
    """Return the QoS with which an undelivered message would have been sent."""
    requested = subscription_qos(message.user_data)
    persistence = cmqc.MQPER_PERSISTENT if message.persistent else cmqc.MQPER_NOT_PERSISTENT
    published = message.publisher_qos if message.source is None else provenance.qos
    qos = publication_qos(persistence, published)
    return qos if requested is None else min(qos, requested)


def _provenance_of(message: events.OutgoingMessage, now: int) -> Provenance:
    put_at = int(message.put * 1_000_000) or now
    source = message.source
    if source is None:
        publisher, number = message.publisher, message.publisher_message_id
        return Provenance(message.payload, put_at, publisher, number, None, None, False, message.properties)
    original = message_of(source)
    return provenance_of(original, put_at if message.put else put_time(original.md) or now)
