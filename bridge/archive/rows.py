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


def provenance_of(message: Message, put: int) -> Provenance:
    """Return the provenance of a message. `put` is its put time in microseconds since the epoch."""
    try:
        headers = Headers(message, discard_others=True)
    except Unmappable:
        return Provenance(message.data, put)
    return Provenance(
        headers.body,
        put,
        headers.client_id,
        headers.message_id,
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


def message_of(source: events.Source | bytes) -> Message:
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

    def published(self, event: events.Published) -> list[Row]:
        """Return the rows for publications of one client."""
        numbers, payloads, refusals = self._numbers, self._payloads, event.refusals
        now, client_id, user, received = event.now, event.client_id, event.user, event.received
        rows = []
        for index, (topic, payload, qos, message_id, retain, *said) in enumerate(event.publications):
            reason = refusals.get(index) if refusals else None
            outcome = Outcome.PUT if reason is None else Outcome.REFUSED
            # In the order of COLUMNS. Optimized: rows are created here and in `_out` by the thousand.
            rows.append(
                (
                    next(numbers),
                    Direction.IN,
                    outcome,
                    reason,
                    client_id,
                    user,
                    topic,
                    qos,
                    retain,
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
                    json_of(said[0]) if said else None,
                )
            )
        return rows

    def acknowledged(self, event: events.Acknowledged) -> list[Row]:
        """Return the rows for messages that a client has acknowledged."""
        now, offset, rows = event.now, event.offset, []
        for one in event.messages:
            provenance = self._provenance(one, now)
            rows.append(
                self._out(
                    now,
                    event.client_id,
                    event.user,
                    Outcome.ACKNOWLEDGED,
                    None,
                    one.topic,
                    one.qos,
                    one.retained,
                    provenance,
                    one.message_id,
                    int((one.sent + offset) * 1_000_000),
                    one.times_sent,
                )
            )
        return rows

    def finished(self, event: events.Finished) -> list[Row]:
        """Return the rows for messages that need no acknowledgement: written with QoS 0, or discarded."""
        now, rows = event.now, []
        for one in event.messages:
            if one.reason is not None:
                rows.append(self._undelivered(now, event.client_id, event.user, one, Outcome.DISCARDED))
                continue
            provenance = self._provenance(one, now)
            rows.append(
                self._out(
                    now,
                    event.client_id,
                    event.user,
                    Outcome.DELIVERED,
                    None,
                    one.topic,
                    0,
                    one.retained or provenance.retained,
                    provenance,
                    0,
                    now,
                    1,
                )
            )
        return rows

    def dead_lettered(self, event: events.DeadLettered) -> list[Row]:
        """Return the row for a client's message that was dead-lettered."""
        return [self._undelivered(event.now, event.client_id, "", event.message, Outcome.DEAD_LETTERED)]

    def mapped(self, event: events.Mapped) -> list[Row]:
        """Return the rows for messages that a mapping took."""
        return [self._moved(event, one) for one in event.messages]

    def _moved(self, event: events.Mapped, one: events.Moved) -> Row:
        message, times_sent, retain, msg_id = one.message, 1, False, None
        if isinstance(message, events.Arrived):
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
            outcome=one.outcome,
            reason=one.reason,
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
            destination=one.destination,
            msg_id=msg_id,
            properties=json_of(provenance.properties),
        )

    def _undelivered(self, now: int, client_id: str, user: str, one: events.Delivery, outcome: Outcome) -> Row:
        provenance = self._provenance(one, now)
        requested = subscription_qos(one.user_data)
        qos = publication_qos(cmqc.MQPER_PERSISTENT if one.persistent else cmqc.MQPER_NOT_PERSISTENT, provenance.qos)
        return self._out(
            now,
            client_id,
            user,
            outcome,
            one.reason,
            one.topic,
            qos if requested is None else min(qos, requested),
            one.retained,
            provenance,
            0,
            None,
            0,
        )

    @staticmethod
    def _provenance(one: events.Delivery | events.Acknowledgement, now: int) -> Provenance:
        put = int(one.put * 1_000_000) or now
        source = one.source
        if source is None:
            return Provenance(
                one.payload, put, one.publisher, one.publisher_message_id, one.qos, properties=one.properties
            )
        message = message_of(source)
        return provenance_of(message, put if one.put else put_time(message.md) or now)

    def _out(
        self,
        now: int,
        client_id: str,
        user: str,
        outcome: Outcome,
        reason: str | None,
        topic: str,
        qos: int,
        retain: bool,
        provenance: Provenance,
        message_id: int,
        sent: int | None,
        times_sent: int,
    ) -> Row:
        payload = provenance.payload
        # In the order of COLUMNS.
        return (
            next(self._numbers),
            Direction.OUT,
            outcome,
            reason,
            client_id,
            user,
            topic,
            qos,
            retain,
            times_sent,
            message_id,
            payload if self._payloads else None,
            len(payload),
            payload_hash(payload),
            provenance.publisher,
            provenance.publisher_message_id,
            provenance.put,
            sent,
            now,
            None,
            provenance.replayed,
            None,
            None,
            json_of(provenance.properties),
        )
