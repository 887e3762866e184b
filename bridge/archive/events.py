"""Events that the service sends to the archive process, encoded as msgpack.

The service encodes events as tuples in the order of the fields. The archive process decodes them as these structs, and
derives as much of the rows as possible, to relieve the service. Times are microseconds since the epoch, unless stated
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from bridge.archive.schema import Direction, Row, row
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.outcome import Outcome


class Source(msgspec.Struct, array_like=True, gc=False):
    """A message in encoded form: its data, and the MQMD fields that describe them."""

    Format: bytes
    Encoding: int
    CodedCharSetId: int
    data: bytes
    CorrelId: bytes = b""


class _Outgoing(msgspec.Struct, array_like=True, gc=False):
    topic: str
    #: empty if `source` is given, whose end it is
    payload: bytes
    retained: bool
    #: time of the put in seconds since the epoch. 0: use the MQMD
    put: float
    publisher: str
    publisher_message_id: int


class Delivery(_Outgoing, array_like=True, gc=False):
    """A message for a client that needs no acknowledgement."""

    #: QoS of the publication as sent by its publisher
    qos: int | None
    #: why the message was not written to the client. None: it was written
    reason: str | None = None
    persistent: bool = False
    #: user data of the matching subscription
    user_data: str | None = None
    #: the whole message, if its parts are not known. Bytes are data of a transmission queue, starting with the MQXQH
    source: Source | bytes | None = None
    #: MQTT 5 properties of the publisher, if `source` does not contain them
    properties: PublishProperties | None = None


class Acknowledgement(_Outgoing, array_like=True, gc=False):
    """A message with QoS 1 or 2 that a client has acknowledged."""

    #: QoS of the PUBLISH to the client
    qos: int
    message_id: int
    #: in seconds, on the clock of the service
    sent: float
    times_sent: int
    source: Source | bytes | None = None
    properties: PublishProperties | None = None


class Taken(msgspec.Struct, tag=1, array_like=True, gc=False):
    """A message that a mapping took from MQ: the MQMD fields needed for rows, and the data."""

    Format: bytes
    Encoding: int
    CodedCharSetId: int
    Persistence: int
    MsgId: bytes
    PutDate: bytes
    PutTime: bytes
    data: bytes
    #: name of the queue. Empty for a publication, whose headers contain its topic
    queue: str
    CorrelId: bytes = b""


class Arrived(msgspec.Struct, tag=2, array_like=True, gc=False):
    """A publication that a mapping took from a link."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    message_id: int
    #: DUP: the broker may have sent it before
    dup: bool
    properties: PublishProperties | None = None


class Moved(msgspec.Struct, array_like=True, gc=False):
    """A message that a mapping took, with its outcome."""

    outcome: str
    reason: str | None
    destination: str | None
    message: Taken | Arrived


class Incoming(NamedTuple):
    """A publication of a client."""

    topic: str
    payload: bytes
    qos: int
    message_id: int
    retain: bool
    properties: PublishProperties | None = None


class _OfClient(msgspec.Struct, array_like=True):
    now: int
    client_id: str


class Published(_OfClient, tag=1, array_like=True):
    """Publications of a client in a unit of work that has ended. `refusals` contains reasons by index."""

    user: str
    received: int
    refusals: dict[int, str]
    publications: list[Incoming]


class Acknowledged(_OfClient, tag=2, array_like=True):
    """Messages that a client has acknowledged. `offset` converts the clock of the service to the epoch, in seconds."""

    user: str
    offset: float
    messages: list[Acknowledgement]


class Finished(_OfClient, tag=3, array_like=True):
    """Messages that need no acknowledgement: written with QoS 0, or discarded."""

    user: str
    messages: list[Delivery]


class DeadLettered(_OfClient, tag=4, array_like=True):
    """A message for a client that was dead-lettered."""

    message: Delivery


class Mapped(msgspec.Struct, tag=5, array_like=True):
    """Messages that a mapping took in a committed unit of work, which started at `received`."""

    now: int
    mapping: str
    received: int
    messages: list[Moved]


class Connected(_OfClient, tag=10, array_like=True):
    """CONNACK 0 was sent."""

    user: str
    durable: bool


class Disconnected(_OfClient, tag=11, array_like=True):
    """The connection of a client has ended."""


class Subscribed(_OfClient, tag=12, array_like=True):
    """SUBACK granted these filters, each with a QoS. The SUBSCRIBE arrived at `received`."""

    user: str
    durable: bool
    granted: list[tuple[str, int]]
    received: int


class Unsubscribed(_OfClient, tag=13, array_like=True):
    """UNSUBACK was sent. The UNSUBSCRIBE arrived at `received`."""

    filters: list[str]
    received: int


class Ended(_OfClient, tag=14, array_like=True):
    """A session has ended, with its subscriptions and backlog."""


class OpenSession(msgspec.Struct):
    """An open session, according to the events."""

    durable: bool
    user: str
    #: start of the connection: (received, settled). None: not connected
    connected: tuple[int, int] | None = None
    #: topic filter -> (granted QoS, received, settled)
    subscriptions: dict[str, tuple[int, int, int]] = msgspec.field(default_factory=dict)


class SessionSnapshot(msgspec.Struct, tag=20, array_like=True):
    """The open sessions, for a process that replaces a dead one. They produce no rows."""

    now: int
    sessions: dict[str, OpenSession]


class Started(msgspec.Struct, tag=21, array_like=True):
    """The service has started."""

    now: int


class Stopped(msgspec.Struct, tag=22, array_like=True):
    """The service stops normally. This is the last event."""

    now: int


class Gap(msgspec.Struct, tag=23, array_like=True):
    """The number of missing rows between `since` and `now`."""

    now: int
    since: int
    rows: int


SessionEvent = Connected | Disconnected | Subscribed | Unsubscribed | Ended
Event = (
    Published
    | Acknowledged
    | Finished
    | DeadLettered
    | Mapped
    | SessionEvent
    | SessionSnapshot
    | Started
    | Stopped
    | Gap
)

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

    def _session(self, client_id: str, user: str, durable: bool) -> OpenSession:
        session = self.sessions.get(client_id)
        if session is None:
            session = self.sessions[client_id] = OpenSession(durable, user)
        return session

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
        client_id, now = event.client_id, event.now
        match event:
            case Connected():
                session = self._session(client_id, event.user, event.durable)
                session.durable, session.user, session.connected = event.durable, event.user, (now, now)
                return [self._row(Outcome.CONNECTED, client_id, now, now, user=event.user, durable=event.durable)]
            case Disconnected():
                if (known := self.sessions.get(client_id)) is not None:
                    known.connected = None
                return [self._row(Outcome.DISCONNECTED, client_id, now, now)]
            case Subscribed():
                session = self._session(client_id, event.user, event.durable)
                session.subscriptions |= {
                    topic_filter: (qos, event.received, now) for topic_filter, qos in event.granted
                }
                return [self._subscription(client_id, session, topic_filter) for topic_filter, _ in event.granted]
            case Unsubscribed():
                if (known := self.sessions.get(client_id)) is not None:
                    for topic_filter in event.filters:
                        known.subscriptions.pop(topic_filter, None)
                return [
                    self._row(Outcome.UNSUBSCRIBED, client_id, event.received, now, topic=one) for one in event.filters
                ]
            case Ended():
                self.sessions.pop(client_id, None)
                return [self._row(Outcome.ENDED, client_id, now, now)]

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
