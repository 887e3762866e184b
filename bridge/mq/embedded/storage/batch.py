"""A batch: a row of the log, with the messages that one group of units of work has put, and the numbers of those removed."""

from __future__ import annotations

import msgspec

from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage

DIGEST_MASK = (1 << 64) - 1


class Lane(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Where messages of a batch lie, and what they owe to the subscription they came for. Fields as in StoredMessage."""

    queue: str
    client_id: str = ""
    remote_queue: str = ""
    user_data: str | None = None
    correl_id: bytes | None = None


class Delivery(msgspec.Struct, array_like=True, gc=False):
    """One queue that a logged message lies on."""

    msg_number: int
    #: index among the lanes of the batch
    lane: int
    retained: bool = False


class Put(msgspec.Struct, array_like=True, gc=False):
    """A persistent message in the log, with every queue it was put to."""

    message: Message | PublicationMessage
    deliveries: list[Delivery]
    priority: int
    put_time: float
    #: topic string published with, where the message itself does not tell it
    topic: str | None = None
    expires_at: float = 0.0
    msg_id: bytes | None = None
    put_application: str | None = ""


class Batch(msgspec.Struct, array_like=True, gc=False):
    """A row of the log: messages put, and numbers of messages removed, by one group of units of work."""

    puts: list[Put]
    removed: list[int]
    lanes: list[Lane] = []
    #: rows of the table once this one is committed, and what `digest_of` their ids adds up to: a row that is missing later
    #: is noticed. -1: written by a bridge that did not say so
    rows: int = -1
    digest: int = 0


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Batch)


def encode(batch: Batch) -> bytes:
    """Return a row's body."""
    return _ENCODER.encode(batch)


def decode(body: bytes) -> Batch:
    """Return a row of its body. Raises msgspec.DecodeError."""
    return _DECODER.decode(body)


def digest_of(row_id: int) -> int:
    """Return what a row adds to the digest of all rows."""
    return row_id * 0x9E3779B97F4A7C15
