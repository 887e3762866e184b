"""A row of the log: the messages that a group of units of work put, and the numbers of those that it removed."""

from __future__ import annotations

import msgspec

from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage

DIGEST_MASK = (1 << 64) - 1


class Lane(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """The queue of messages in a batch, and attributes from their subscription. Fields as in StoredMessage."""

    queue: str
    client_id: str = ""
    remote_queue: str = ""
    user_data: str | None = None
    correl_id: bytes | None = None


class LoggedDelivery(msgspec.Struct, array_like=True, gc=False):
    """One queue to which a logged message was put."""

    msg_number: int
    #: index among the lanes of the batch
    lane: int
    retained: bool = False


class Put(msgspec.Struct, array_like=True, gc=False):
    """A persistent message in the log, with all queues to which it was put."""

    message: Message | PublicationMessage
    deliveries: list[LoggedDelivery]
    priority: int
    put_time: float
    #: topic string of the publication, if the message does not contain it
    topic: str | None = None
    expires_at: float = 0.0
    msg_id: bytes | None = None
    put_application: str | None = ""


class LoggedBatch(msgspec.Struct, array_like=True, gc=False):
    """A row of the log: messages put, and numbers of messages removed, by one group of units of work."""

    puts: list[Put]
    removed: list[int]
    lanes: list[Lane] = []
    #: number of rows after this commit, and the sum of their digests (`digest_of`), to detect missing rows. -1 in rows of
    #: older bridges
    rows: int = -1
    digest: int = 0
    #: sum of the digests of the checksums of all definitions after this commit, or -1 if unknown
    definitions: int = -1
    #: time of the commit, in seconds since the epoch, or 0 if unknown
    committed: float = 0.0


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(LoggedBatch)


def encode(batch: LoggedBatch) -> bytes:
    """Encode the body of a row."""
    return _ENCODER.encode(batch)


def decode(body: bytes) -> LoggedBatch:
    """Decode the body of a row. Raises msgspec.DecodeError."""
    return _DECODER.decode(body)


def digest_of(number: int) -> int:
    """Return the contribution of a row to the digest of all rows, by its id, or of a definition, by its checksum."""
    return number * 0x9E3779B97F4A7C15
