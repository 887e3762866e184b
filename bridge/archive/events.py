"""Events that the service sends to the archive process, encoded as msgpack.

Fields have the names of the columns that they become (`bridge.archive.schema`). The archive process derives as much of the
rows as possible, to relieve the service. Times are microseconds since the epoch, unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bridge.archive.schema import Direction, Row, row
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.outcome import Outcome

# Publications of clients ----------------------------------------------------------------------------------------------


class Incoming(msgspec.Struct, array_like=True, gc=False):
    """A publication of a client."""

    topic: str
    payload: bytes
    qos: int
    message_id: int
    retain: bool
    properties: PublishProperties | None = None


class PublishedEvent(msgspec.Struct, tag=1, array_like=True, gc=False):
    """Publications of a client in a unit of work that has ended. `refusals` contains reasons by index."""

    now: int
    client_id: str
    user: str
    received: int
    refusals: dict[int, str]
    publications: list[Incoming]


# Messages for clients -------------------------------------------------------------------------------------------------


class EncodedMessage(msgspec.Struct, array_like=True, gc=False):
    """A message in encoded form: its data, and the MQMD fields that describe them."""

    Format: bytes
    Encoding: int
    CodedCharSetId: int
    data: bytes
    CorrelId: bytes = b""


class _Outgoing(msgspec.Struct, array_like=True, gc=False):
    topic: str
    #: empty if `source` is present, whose end it is
    payload: bytes
    retain: bool
    #: time of the put in seconds since the epoch. 0: use the MQMD
    put: float
    publisher: str
    publisher_message_id: int
    #: MQTT 5 properties of the publisher, if `source` does not contain them
    properties: PublishProperties | None
    #: the whole message, if its parts are not known. Bytes are data of a transmission queue, starting with the MQXQH
    source: EncodedMessage | bytes | None


class DeliveredMessage(_Outgoing, tag=1, array_like=True, gc=False):
    """A message that was written with QoS 0."""


class AcknowledgedMessage(_Outgoing, tag=2, array_like=True, gc=False):
    """A message with QoS 1 or 2 that a client has acknowledged."""

    #: QoS of the PUBLISH to the client
    qos: int
    message_id: int
    #: in seconds, on the clock of the service
    sent: float
    times_sent: int


class UndeliveredMessage(_Outgoing, tag=3, array_like=True, gc=False):
    """A message that was discarded or dead-lettered."""

    outcome: Outcome
    reason: str
    #: QoS of the publication as sent by its publisher
    publisher_qos: int | None
    persistent: bool
    #: user data of the matching subscription
    user_data: str | None


#: A message for a client whose outcome is known.
OutgoingMessage = DeliveredMessage | AcknowledgedMessage | UndeliveredMessage


class SettledEvent(msgspec.Struct, tag=2, array_like=True, gc=False):
    """Messages for a client. `offset` converts the clock of the service to the epoch, in seconds."""

    now: int
    client_id: str
    user: str
    offset: float
    messages: list[OutgoingMessage]


# Messages of mappings -------------------------------------------------------------------------------------------------


class _Moved(msgspec.Struct, array_like=True, gc=False):
    outcome: str
    reason: str | None
    destination: str | None


class TakenMessage(_Moved, tag=1, array_like=True, gc=False):
    """A message that a mapping took from MQ: the MQMD fields needed for rows, and the data."""

    #: name of the queue. Empty for a publication, whose headers contain its topic
    queue: str
    Format: bytes
    Encoding: int
    CodedCharSetId: int
    Persistence: int
    MsgId: bytes
    PutDate: bytes
    PutTime: bytes
    CorrelId: bytes
    data: bytes


class ArrivedMessage(_Moved, tag=2, array_like=True, gc=False):
    """A publication that a mapping took from a link."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    message_id: int
    #: DUP: the broker may have sent it before
    dup: bool
    properties: PublishProperties | None


class MappedEvent(msgspec.Struct, tag=3, array_like=True, gc=False):
    """Messages that a mapping took in a committed unit of work, which started at `received`."""

    now: int
    mapping: str
    received: int
    messages: list[TakenMessage | ArrivedMessage]


# Sessions, and the archive itself -------------------------------------------------------------------------------------


class SessionEvent(msgspec.Struct, tag=10, array_like=True):
    """A change of a session: connected, disconnected, subscribed, unsubscribed or ended."""

    now: int
    outcome: Outcome
    client_id: str
    user: str = ""
    durable: bool = False
    #: topic filters with the QoS granted, of a SUBSCRIBE or UNSUBSCRIBE that arrived at `received`
    topics: list[tuple[str, int]] = []
    received: int = 0

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return len(self.topics) if self.outcome in (Outcome.SUBSCRIBED, Outcome.UNSUBSCRIBED) else 1


class ArchiveEvent(msgspec.Struct, tag=11, array_like=True):
    """The service has started, or stops normally (the last event), or rows are missing (`size`, between the times)."""

    now: int
    outcome: Outcome
    #: None: `now`
    received: int | None = None
    size: int = 0

    #: the number of its rows
    rows = 1


class OpenSession(msgspec.Struct):
    """An open session, according to the events."""

    durable: bool
    user: str
    #: start of the connection: (received, settled). None: not connected
    connected: tuple[int, int] | None = None
    #: topic filter -> (granted QoS, received, settled)
    subscriptions: dict[str, tuple[int, int, int]] = msgspec.field(default_factory=dict)


class SessionSnapshot(msgspec.Struct, tag=12, array_like=True):
    """The open sessions, for a process that replaces a dead one. They produce no rows."""

    now: int
    sessions: dict[str, OpenSession]


Event = PublishedEvent | SettledEvent | MappedEvent | SessionEvent | ArchiveEvent | SessionSnapshot

#: Start of a msgpack array with a 4-byte length.
_ARRAY: Final = b"\xdd"
encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Event]).decode


def together(encoded: list[bytes]) -> bytes:
    """Return the msgpack header that combines encoded events into a batch."""
    return _ARRAY + len(encoded).to_bytes(4, "big")


def events_of(batch: bytes) -> list[Event]:
    """Return the events of a batch. Raises msgspec.DecodeError."""
    return _decode(batch)


class OpenSessions:
    """The open sessions, and the rows of their changes. Times are microseconds since the epoch."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self.sessions: dict[str, OpenSession] = {}

    def _row(self, outcome: Outcome, client_id: str, received: int, settled: int, **values: Any) -> Row:
        return row(
            sequence=next(self._numbers),
            direction=Direction.SUBSCRIPTION,
            outcome=outcome,
            client_id=client_id,
            received=received,
            settled=settled,
            **values,
        )

    def follow(self, event: SessionEvent) -> list[Row]:
        """Apply a change. Returns its rows."""
        client_id, now, outcome = event.client_id, event.now, event.outcome
        session = self.sessions.get(client_id)
        if session is None:
            session = OpenSession(event.durable, event.user)
            if outcome in (Outcome.CONNECTED, Outcome.SUBSCRIBED):
                self.sessions[client_id] = session
        match outcome:
            case Outcome.CONNECTED:
                session.durable, session.user, session.connected = event.durable, event.user, (now, now)
                return [self._row(outcome, client_id, now, now, user=event.user, durable=event.durable)]
            case Outcome.DISCONNECTED:
                session.connected = None
            case Outcome.SUBSCRIBED:
                session.subscriptions |= {topic: (qos, event.received, now) for topic, qos in event.topics}
                return [self._subscription(client_id, session, topic) for topic, _ in event.topics]
            case Outcome.UNSUBSCRIBED:
                for topic, _ in event.topics:
                    session.subscriptions.pop(topic, None)
                return [self._row(outcome, client_id, event.received, now, topic=topic) for topic, _ in event.topics]
            case Outcome.ENDED:
                self.sessions.pop(client_id, None)
        return [self._row(outcome, client_id, now, now)]

    def _subscription(self, client_id: str, session: OpenSession, topic_filter: str) -> Row:
        qos, received, settled = session.subscriptions[topic_filter]
        return self._row(
            Outcome.SUBSCRIBED,
            client_id,
            received,
            settled,
            user=session.user,
            durable=session.durable,
            topic=topic_filter,
            qos=qos,
        )

    def again(self) -> list[Row]:
        """Return the rows of all open sessions again, with their original times."""
        rows = []
        for client_id, session in self.sessions.items():
            rows += [self._subscription(client_id, session, topic_filter) for topic_filter in session.subscriptions]
            if session.connected is not None:
                rows.append(
                    self._row(
                        Outcome.CONNECTED, client_id, *session.connected, user=session.user, durable=session.durable
                    )
                )
        return rows
