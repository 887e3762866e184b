"""What the service hands over to the archive's process: one event for each batch that passed, as msgpack.

The service writes events as tuples in the order of the fields here; the archive's process reads them as these structs. What
stands in a row and can be worked out there is not worked out by the service. Times are microseconds since the epoch, unless
said otherwise.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import msgspec

from bridge.mqtt.packets import PublishProperties


def now_us() -> int:
    """Return the time as rows have it: microseconds since the epoch."""
    return time.time_ns() // 1000


class Source(msgspec.Struct, array_like=True, gc=False):
    """A message that came as bytes: what its MQMD says of its data, and these."""

    Format: bytes
    Encoding: int
    CodedCharSetId: int
    data: bytes
    CorrelId: bytes = b""


class Delivery(msgspec.Struct, array_like=True, gc=False):
    """A message for a client that waits for no acknowledgement."""

    topic: str
    #: empty where there is a source, of which it is the end
    payload: bytes
    retained: bool
    #: when it was put, in seconds since the epoch; 0 where its MQMD has to say it
    put: float
    publisher: str
    publisher_message_id: int
    #: of the publication, as its publisher sent it
    qos: int | None
    #: why it was not written to the client; None: it was
    reason: str | None = None
    persistent: bool = False
    #: user data of the subscription that it came for
    user_data: str | None = None
    #: the whole message where its parts are not known; bytes are those of a transmission queue, from the MQXQH on
    source: Source | bytes | None = None
    #: what the publisher said in MQTT 5, where the source does not
    properties: PublishProperties | None = None


class Acknowledgement(msgspec.Struct, array_like=True, gc=False):
    """A message with QoS 1 or 2 that a client has acknowledged."""

    topic: str
    payload: bytes
    retained: bool
    put: float
    publisher: str
    publisher_message_id: int
    #: of the PUBLISH to the client
    qos: int
    message_id: int
    #: on the clock of the service, in seconds
    sent: float
    times_sent: int
    source: Source | bytes | None = None
    properties: PublishProperties | None = None


class Taken(msgspec.Struct, tag=1, array_like=True, gc=False):
    """A message that a mapping took from MQ: of its MQMD what rows say, and its data."""

    Format: bytes
    Encoding: int
    CodedCharSetId: int
    Persistence: int
    MsgId: bytes
    PutDate: bytes
    PutTime: bytes
    data: bytes
    #: name of the queue; empty where it came as a publication, and says its topic itself
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
    """What became of a message that a mapping took."""

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


class Published(msgspec.Struct, tag=1, array_like=True):
    """Publications of one client whose unit of work has ended; `refusals` has the reasons by index."""

    now: int
    client_id: str
    user: str
    received: int
    refusals: dict[int, str]
    publications: list[Incoming]


class Acknowledged(msgspec.Struct, tag=2, array_like=True):
    """Messages that a client has acknowledged. `offset` in seconds leads from the clock of the service to the epoch."""

    now: int
    client_id: str
    user: str
    offset: float
    messages: list[Acknowledgement]


class Finished(msgspec.Struct, tag=3, array_like=True):
    """Messages that a client does not acknowledge: written with QoS 0, or discarded."""

    now: int
    client_id: str
    user: str
    messages: list[Delivery]


class DeadLettered(msgspec.Struct, tag=4, array_like=True):
    """A message for a client that went to the dead-letter queue."""

    now: int
    client_id: str
    message: Delivery


class Mapped(msgspec.Struct, tag=5, array_like=True):
    """Messages that a mapping took in one unit of work, which is committed; `received` is when it began."""

    now: int
    mapping: str
    received: int
    messages: list[Moved]


class Connected(msgspec.Struct, tag=10, array_like=True):
    """CONNACK 0 was sent."""

    now: int
    client_id: str
    user: str
    durable: bool


class Disconnected(msgspec.Struct, tag=11, array_like=True):
    """The connection of a client is gone."""

    now: int
    client_id: str


class Subscribed(msgspec.Struct, tag=12, array_like=True):
    """SUBACK says that these filters are granted, with this QoS each; SUBSCRIBE came at `received`."""

    now: int
    client_id: str
    user: str
    durable: bool
    granted: list[tuple[str, int]]
    received: int


class Unsubscribed(msgspec.Struct, tag=13, array_like=True):
    """UNSUBACK was sent; UNSUBSCRIBE came at `received`."""

    now: int
    client_id: str
    filters: list[str]
    received: int


class Ended(msgspec.Struct, tag=14, array_like=True):
    """A session has ended with all that belongs to it."""

    now: int
    client_id: str


class OpenSession(msgspec.Struct):
    """A session that has not ended, as the events said."""

    durable: bool
    user: str
    #: since when its client is connected: (received, settled); None while it is away
    connected: tuple[int, int] | None = None
    #: topic filter -> (QoS granted, received, settled)
    subscriptions: dict[str, tuple[int, int, int]] = msgspec.field(default_factory=dict)


class SessionSnapshot(msgspec.Struct, tag=20, array_like=True):
    """The open sessions, for a process that takes the place of one that died. No rows are made of them."""

    now: int
    sessions: dict[str, OpenSession]


class Started(msgspec.Struct, tag=21, array_like=True):
    """The service has begun."""

    now: int


class Stopped(msgspec.Struct, tag=22, array_like=True):
    """The service ends in order: this is the last event."""

    now: int


class Gap(msgspec.Struct, tag=23, array_like=True):
    """So many rows are missing, of what happened between `since` and `now`."""

    now: int
    since: int
    rows: int


SessionEvent = Connected | Disconnected | Subscribed | Unsubscribed | Ended
Event = Published | Acknowledged | Finished | DeadLettered | Mapped | SessionEvent | SessionSnapshot | Started | Stopped | Gap

#: msgpack's array of so many elements follows: its size, 4 bytes, then the elements.
_ARRAY: Final = b"\xdd"
encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Event]).decode


def together(encoded: list[bytes]) -> bytes:
    """Return the bytes that go in front of encoded events, so that they are one batch."""
    return _ARRAY + len(encoded).to_bytes(4, "big")


def events_of(batch: bytes) -> list[Event]:
    """Return the events of a batch. Raises msgspec.DecodeError."""
    return _decode(batch)

