"""The records of durable sessions on SYSTEM.MQTT.PERSISTENT.STATE: their one layout, versioned.

A record is the body of one message, as JSON: `side` says which half of a session it is of, `clientIdentifier` whose,
`version` is that of this layout, and of two for one session and side the one with the higher `sequence` counts. The receiving
half belongs to publications of the client, the sending half to messages for it: each is put in the unit of work of what it
belongs to.

A request of a client of MQTT 5 has a record of its own, put in the unit of work of the publication that asks it.

Version 1 had no `side`, no `version` and no `sequence`: the embedded queue manager kept the bare JSON; on IBM MQ it stood in
a MessagePack array of side, client identifier, sequence and JSON. Both are read still. A record that is neither, or newer,
ends the start in words. So does, on IBM MQ, a message of somebody else: MQXR keeps other things on a queue of that name. What
an application puts on that of the embedded queue manager goes to the dead-letter queue.
"""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum
from typing import NamedTuple

import msgspec

from bridge.mqtt.packets import Will
from bridge.telemetry.identity import Principal

#: Version of the layout.
VERSION = 4
#: Version of the records of requests and of the key of reply addresses, which have not changed since.
REQUEST_VERSION = 3
#: Version of a session's own two records, which have not changed since.
SESSION_VERSION = 2

#: MQMD.CorrelId of the bridge's messages on the queue, where bridges reach it by MQI verbs: records, what says that a unit of
#: work was committed, and which bridge is the owner.
RECORD_MARK = b"MQTT session record".ljust(24, b"\0")
RECEIPT_MARK = b"MQTT unit of work".ljust(24, b"\0")
OWNER_MARK = b"MQTT owner".ljust(24, b"\0")
MARKS = frozenset((RECORD_MARK, RECEIPT_MARK, OWNER_MARK))


class Side(StrEnum):
    """Whose record of a session it is: what was sent belongs to removals, what was received, or requested, to publications.

    The key of reply addresses is of no session.
    """

    RECEIVED = "received"
    SENT = "sent"
    REQUESTED = "requested"
    REPLY_KEY = "reply key"
    WILL = "will"


class StateKey(NamedTuple):
    """Which record on SYSTEM.MQTT.PERSISTENT.STATE."""

    side: Side
    client_id: str
    #: that stands for a request; "" for the others, of which a session has one each
    queue: str = ""


class ReceivedRecord(msgspec.Struct, tag_field="side", tag="received"):
    """The receiving half of a durable session. It has a record only if there are packet identifiers to keep."""

    clientIdentifier: str
    #: message ids received with QoS 2 and not released
    received: list[int] = []
    sequence: int = 0
    version: int = SESSION_VERSION

    @property
    def key(self) -> StateKey:
        """Return which record it is."""
        return StateKey(Side.RECEIVED, self.clientIdentifier)

    def without(self, message_ids: Container[int]) -> ReceivedRecord:
        """Return the record without some message ids: their publications were refused."""
        received = [one for one in self.received if one not in message_ids]
        return msgspec.structs.replace(self, received=received)


class SentRecord(msgspec.Struct, tag_field="side", tag="sent", omit_defaults=True):
    """What is kept of the sending half of a durable session. Every durable session has this record."""

    clientIdentifier: str
    #: message ids for which PUBREL was sent and PUBCOMP has not come
    released: list[int] = []
    #: unusual message ids: [number of the message, message id]
    assigned: list[tuple[int, int]] = []
    #: numbers of the messages sent and not acknowledged: they go out again with DUP
    sent: list[int] = []
    #: the client was connected: should the bridge die now, any message on the queue may have been sent
    connected: bool = False
    #: Session Expiry Interval in seconds; 0xFFFFFFFF: never
    expiryInterval: int = 0xFFFFFFFF
    #: when it expires while its client is away, in seconds since the epoch; 0: it does not
    expiresAt: float = 0.0
    #: shared subscriptions that it is a member of: [`$share/NAME/FILTER`, user data]
    shares: list[tuple[str, str]] = []
    #: when its client connected, or left, in seconds since the epoch; 0: that is not known
    since: float = 0.0
    #: the channel by which its client is, or was last, connected; blank: that is not known
    channel: str = ""
    #: the owner of the session; None if an older bridge wrote the record
    principal: Principal | None = None
    #: the MQ user that its subscriptions were last authorized for; blank if an older bridge wrote the record
    mqUser: str = ""
    #: the network that the session began from; blank for a Unix socket, or if an older bridge wrote the record
    network: str = ""
    sequence: int = 0
    #: a factory, so that the version is written although it is the default
    version: int = msgspec.field(default_factory=lambda: SESSION_VERSION)

    @property
    def key(self) -> StateKey:
        """Return which record it is."""
        return StateKey(Side.SENT, self.clientIdentifier)


class RequestRecord(msgspec.Struct, tag_field="side", tag="requested"):
    """A request of a client of MQTT 5 whose answer comes to a queue name that stands for it."""

    clientIdentifier: str
    queue: str
    responseTopic: str = ""
    correlationData: bytes | None = None
    sequence: int = 0
    version: int = REQUEST_VERSION

    @property
    def key(self) -> StateKey:
        """Return which record it is."""
        return StateKey(Side.REQUESTED, self.clientIdentifier, self.queue)


class ReplyKeyRecord(msgspec.Struct, tag_field="side", tag="reply key"):
    """The key of the topics by which clients answer requests from MQ (`bridge.telemetry.request`)."""

    replyKey: bytes
    #: none
    clientIdentifier: str = ""
    sequence: int = 0
    version: int = REQUEST_VERSION

    @property
    def key(self) -> StateKey:
        """Return which record it is."""
        return StateKey(Side.REPLY_KEY, self.clientIdentifier)


class WillRecord(msgspec.Struct, tag_field="side", tag="will"):
    """The will of a client that a stopping bridge disconnected (`limits.will_grace`)."""

    clientIdentifier: str
    will: Will
    #: the MQ user of the client
    mqUser: bytes
    sequence: int = 0
    version: int = VERSION

    @property
    def key(self) -> StateKey:
        """Return which record it is."""
        return StateKey(Side.WILL, self.clientIdentifier)


SessionRecord = ReceivedRecord | SentRecord | RequestRecord
StateRecord = SessionRecord | ReplyKeyRecord | WillRecord


class UnknownRecord(ValueError):
    """A message on SYSTEM.MQTT.PERSISTENT.STATE that this bridge cannot read; words for a person."""


class _First(msgspec.Struct, array_like=True):
    """Version 1 on IBM MQ."""

    side: Side
    client_id: str
    sequence: int
    record: bytes


class _Fields(msgspec.Struct):
    """What tells one layout from another."""

    clientIdentifier: str
    version: int = 1
    received: list[int] | None = None


def encode(record: StateRecord, sequence: int = 0) -> bytes:
    """Return a record as it is put on the queue, the `sequence`th of its session and side."""
    record.sequence = sequence
    return msgspec.json.encode(record)


def decode(data: bytes) -> StateRecord:
    """Return the record that a message holds. Raises UnknownRecord."""
    try:
        if data[:1] == b"{":
            return _decode(data)
        first = msgspec.msgpack.decode(data, type=_First)
        record = _decode(first.record)
    except msgspec.DecodeError as error:
        raise UnknownRecord(f"it holds no record of a session: {error}") from None
    record.sequence = first.sequence
    return record


def _decode(data: bytes) -> StateRecord:
    fields = msgspec.json.decode(data, type=_Fields)
    if fields.version > VERSION:
        raise UnknownRecord(
            f"the record of session {fields.clientIdentifier!r} has version {fields.version}, and this bridge reads "
            f"{VERSION} at most: a newer bridge has written it"
        )
    if fields.version == 1:
        side = Side.SENT if fields.received is None else Side.RECEIVED
        data = b'{"side":"%s",%s' % (side.encode(), data.lstrip()[1:])
    record: StateRecord = msgspec.json.decode(data, type=StateRecord)
    if fields.version == 1:
        record.version = SESSION_VERSION
    return record
