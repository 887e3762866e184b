"""Rows of what happened, made in the archive's thread out of what the event loop handed over."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bridge.archive.schema import Direction, Outcome, Row, payload_hash
from bridge.mapping.from_mq import HEADER_FORMATS, from_mq, publication_qos, subscription_qos
from bridge.mapping.message import AnyMessage, Message, PublicationMessage
from bridge.mq.agent import Transmission
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, MalformedHeader, decode_chain

#: Name of the message property, in the folder usr, by which a message says which replay it comes from.
REPLAYED = "replayed"


class Settled(NamedTuple):
    """A message with QoS 1 or 2 that a client has acknowledged."""

    transmission: Transmission
    message_id: int
    qos: int
    retain: bool
    #: the topic as PUBLISH carries it: two bytes of length, then UTF-8
    field: bytes
    payload: bytes
    #: microseconds since the epoch
    sent: int
    times_sent: int


class Origin(NamedTuple):
    """Where a message for a client comes from, as far as its headers tell."""

    publisher: str = ""
    message_id: int = 0
    qos: int | None = None
    replayed: str | None = None
    #: what follows the headers; None where they cannot be read
    body: bytes | None = None


def message_of(transmission: Transmission) -> AnyMessage:
    """The message as its publisher had it: one of a queue manager elsewhere was stripped of its headers."""
    whole = getattr(transmission, "undelivered", None)
    return transmission.message if whole is None else Message(*whole)


def origin_of(message: AnyMessage) -> Origin:
    """The publisher of a message: from its parts, or from the folders mqtt and usr of its RFH2."""
    if isinstance(message, PublicationMessage):
        return Origin(message.client_id, message.message_id, message.qos, None, message.payload)
    if message.md.Format not in HEADER_FORMATS:
        return Origin(body=message.data)
    try:
        chain = decode_chain(message.md.Format, message.md.Encoding, message.md.CodedCharSetId, message.data)
    except MalformedHeader:
        return Origin()
    mqtt: dict[str, object] = {}
    usr: dict[str, object] = {}
    for header in chain.headers:
        for folder in header.folders if isinstance(header, RFH2) else ():
            (mqtt if folder.name == "mqtt" else usr if folder.name == "usr" else {}).update(folder.content)
    replayed = usr.get(REPLAYED)
    return Origin(
        str(mqtt.get("clientId", "")),
        _number(mqtt.get("msgid")),
        _number(mqtt["qos"]) if "qos" in mqtt else None,
        None if replayed is None else str(replayed),
        chain.body,
    )


def _number(value: object) -> int:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def put_time(transmission: Transmission, otherwise: int) -> int:
    """When a message was put, in microseconds since the epoch: as exactly as the queue manager tells."""
    exact = getattr(transmission, "put_time", 0.0)
    if exact:
        return int(exact * 1_000_000)
    return _put_time(transmission.message.md) or otherwise


def _put_time(md: MQMD) -> int:
    """MQMD.PutDate and PutTime (UTC, hundredths of a second); 0 where they say nothing."""
    try:
        moment = time.strptime((md.PutDate + md.PutTime[:6]).decode("ascii"), "%Y%m%d%H%M%S")
        return calendar.timegm(moment) * 1_000_000 + int(md.PutTime[6:8]) * 10_000
    except ValueError:
        return 0


class Rows:
    """Makes rows, each with the next number."""

    def __init__(self, numbers: Iterator[int], *, payloads: bool) -> None:
        self._numbers = numbers
        self._payloads = payloads

    def published(
        self,
        now: int,
        client_id: str,
        user: str,
        publications: Sequence[tuple[PublicationMessage, bool]],
        refusals: Mapping[int, str],
        received: int,
    ) -> list[Row]:
        """Publications of one client whose unit of work has ended; `refusals` has the reasons by index."""
        numbers, payloads = self._numbers, self._payloads
        rows = []
        for index, (message, retain) in enumerate(publications):
            payload, message_id = message.payload, message.message_id
            reason = refusals.get(index) if refusals else None
            outcome = Outcome.PUT if reason is None else Outcome.REFUSED
            # In the order of COLUMNS. This is one of the two places that make rows by the thousand.
            rows.append(
                (
                    next(numbers), Direction.IN, outcome, reason, client_id, user, message.topic, message.qos, retain,
                    0, message_id, payload if payloads else None, len(payload), payload_hash(payload), client_id,
                    message_id, received, None, now, None, None,
                )
            )  # fmt: skip
        return rows

    def acknowledged(self, now: int, client_id: str, user: str, settled: Sequence[Settled]) -> list[Row]:
        """Messages that a client has acknowledged."""
        return [
            self._out(
                now, client_id, user, one.transmission, origin_of(message_of(one.transmission)), Outcome.ACKNOWLEDGED,
                None, one.field[2:].decode(), one.qos, one.retain, one.payload, one.message_id, one.sent, one.times_sent,
            )
            for one in settled
        ]  # fmt: skip

    def finished(
        self, now: int, client_id: str, user: str, done: Sequence[Transmission], discarded: Mapping[int, str]
    ) -> list[Row]:
        """Messages that a client does not acknowledge: written with QoS 0, or discarded for a reason, by msg_number."""
        rows = []
        for transmission in done:
            reason = discarded.get(transmission.msg_number)
            if reason is not None:
                rows.append(self._undelivered(now, client_id, user, transmission, Outcome.DISCARDED, reason))
                continue
            publication = from_mq(
                transmission.message,
                topic=transmission.topic or transmission.remote_queue,
                retained=transmission.retained,
                persistent=transmission.persistent,
                requested_qos=subscription_qos(transmission.user_data),
            )
            origin = origin_of(message_of(transmission))
            rows.append(
                self._out(
                    now, client_id, user, transmission, origin, Outcome.DELIVERED, None, publication.topic, 0,
                    publication.retain, publication.payload, 0, now, 1,
                )
            )  # fmt: skip
        return rows

    def dead_lettered(self, now: int, transmission: Transmission, reason: int) -> list[Row]:
        """A message for a client that went to the dead-letter queue."""
        why = f"{cmqc.reason_name(reason)} ({reason})"
        return [self._undelivered(now, transmission.client_id, "", transmission, Outcome.DEAD_LETTERED, why)]

    def _undelivered(
        self, now: int, client_id: str, user: str, transmission: Transmission, outcome: Outcome, reason: str
    ) -> Row:
        message = message_of(transmission)
        origin = origin_of(message)
        topic = transmission.topic or transmission.remote_queue
        payload = origin.body
        if payload is None:
            assert isinstance(message, Message)
            payload = message.data
        requested = subscription_qos(transmission.user_data)
        qos = publication_qos(
            cmqc.MQPER_PERSISTENT if transmission.persistent else cmqc.MQPER_NOT_PERSISTENT, origin.qos
        )
        return self._out(
            now, client_id, user, transmission, origin, outcome, reason, topic,
            qos if requested is None else min(qos, requested), transmission.retained, payload, 0, None, 0,
        )  # fmt: skip

    def _out(
        self, now: int, client_id: str, user: str, transmission: Transmission, origin: Origin, outcome: Outcome,
        reason: str | None, topic: str, qos: int, retain: bool, payload: bytes, message_id: int, sent: int | None,
        times_sent: int,
    ) -> Row:  # fmt: skip
        # In the order of COLUMNS.
        return (
            next(self._numbers), Direction.OUT, outcome, reason, client_id, user, topic, qos, retain, times_sent,
            message_id, payload if self._payloads else None, len(payload), payload_hash(payload), origin.publisher,
            origin.message_id, put_time(transmission, now), sent, now, None, origin.replayed,
        )  # fmt: skip
