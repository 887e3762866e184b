"""The records of durable sessions on SYSTEM.MQTT.PERSISTENT.STATE, and their versioned layout.

A record is the body of one message, as JSON. `side` is the half of the session that it describes, `clientIdentifier` the
session, and `version` the version of the layout. Of two records for one session and side, the one with the higher `sequence`
is valid. The receiving half changes with publications of the client, the sending half with messages for it. Each record is
put in the unit of work that changes it. A request of an MQTT 5 client has a separate record, which is put in the unit of work
of the request.

Version 1 had no `side`, `version` and `sequence`. The embedded queue manager stored the bare JSON. On IBM MQ, the JSON was in
a MessagePack array of side, client identifier, sequence and JSON. Both can still be read. The bridge does not start with a
newer or unknown record. On IBM MQ, it does not start with any other message either, because MQXR uses a queue with the same
name for other data. On the embedded queue manager, other messages go to the dead-letter queue.
"""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum
from typing import NamedTuple

import msgspec

from bridge.mqtt.packets import Will
from bridge.telemetry.identity import Principal

#: Version of the layout.
VERSION = 5
#: Version of the records of wills, which have not changed since.
WILL_VERSION = 4
#: Version of the records of requests and of the key of reply addresses, which have not changed since.
REQUEST_VERSION = 3
#: Version of a session's own two records. A record of the sending half that contains MsgIds has version 5.
SESSION_VERSION = 2

#: MQMD.CorrelId of the bridge's messages on the state queue of IBM MQ: session records, receipts of committed units of work,
#: and the message that identifies the active bridge.
RECORD_MARK = b"MQTT session record".ljust(24, b"\0")
RECEIPT_MARK = b"MQTT unit of work".ljust(24, b"\0")
OWNER_MARK = b"MQTT owner".ljust(24, b"\0")
MARKS = frozenset((RECORD_MARK, RECEIPT_MARK, OWNER_MARK))


class Side(StrEnum):
    """The side of a session to which a record belongs. Removals update the sending side, publications the other sides.

    The key of reply addresses does not belong to a session.
    """

    RECEIVED = "received"
    SENT = "sent"
    REQUESTED = "requested"
    REPLY_KEY = "reply key"
    WILL = "will"
    IDENTIFIERS = "identifiers"


#: Identifies a message on the transmission queue across restarts: its number on the embedded queue manager, its MsgId on
#: IBM MQ. Bridges up to 0.2.0 used the last eight bytes of the MsgId as a number.
MessageKey = int | bytes


class StateKey(NamedTuple):
    """The identity of a record on SYSTEM.MQTT.PERSISTENT.STATE."""

    side: Side
    client_id: str
    #: the queue name of a request, the number of a record of identifiers, or "" for records that a session has once
    queue: str = ""


class ReceivedRecord(msgspec.Struct, tag_field="side", tag="received"):
    """The receiving half of a durable session. The record exists only if packet identifiers must be kept."""

    clientIdentifier: str
    #: packet identifiers received with QoS 2 and not released
    received: list[int] = []
    sequence: int = 0
    version: int = SESSION_VERSION

    @property
    def key(self) -> StateKey:
        """The identity of the record."""
        return StateKey(Side.RECEIVED, self.clientIdentifier)

    def without(self, packet_ids: Container[int]) -> ReceivedRecord:
        """Return the record without the packet identifiers of rejected publications."""
        received = [packet_id for packet_id in self.received if packet_id not in packet_ids]
        return msgspec.structs.replace(self, received=received)


class SentRecord(msgspec.Struct, tag_field="side", tag="sent", omit_defaults=True):
    """The sending half of a durable session. Every durable session has this record."""

    clientIdentifier: str
    #: packet identifiers for which PUBREL was sent and PUBCOMP was not received
    released: list[int] = []
    #: unusual packet identifiers in records of bridges up to 0.2.0: [number of the message, packet identifier]
    assigned: list[tuple[int, int]] = []
    #: the sent and unacknowledged messages, which are resent with DUP
    sent: list[MessageKey] = []
    #: the acknowledged messages whose removal may not be committed. They are not resent
    removing: list[bytes] = []
    #: whether the client was connected, so that any message on the queue may have been sent if the bridge was killed
    connected: bool = False
    #: Session Expiry Interval in seconds, or 0xFFFFFFFF for never
    expiryInterval: int = 0xFFFFFFFF
    #: expiry time of the session of a disconnected client, in seconds since the epoch, or 0 for none
    expiresAt: float = 0.0
    #: shared subscriptions of the session: [`$share/NAME/FILTER`, user data]
    shares: list[tuple[str, str]] = []
    #: shared subscriptions that the session has left with unacknowledged messages: [remote queue manager, user data]
    left: list[tuple[str, str]] = []
    #: whether the backlog exceeded the limits, so that the session ends when its client has received the waiting messages
    ending: bool = False
    #: time of the last connect or disconnect, in seconds since the epoch, or 0 if unknown
    since: float = 0.0
    #: the channel of the current or last connection, or blank if unknown
    channel: str = ""
    #: the owner of the session, or None if an older bridge wrote the record
    principal: Principal | None = None
    #: the MQ user for which its subscriptions were last authorized, or blank if an older bridge wrote the record
    mqUser: str = ""
    #: the network from which the session began, or blank for a Unix socket, or if an older bridge wrote the record
    network: str = ""
    #: identifies the last restore of the queue manager after which the client's packet identifiers were released, or blank
    epoch: str = ""
    sequence: int = 0
    #: a factory, so that the version is written although it is the default
    version: int = msgspec.field(default_factory=lambda: SESSION_VERSION)

    @property
    def key(self) -> StateKey:
        """The identity of the record."""
        return StateKey(Side.SENT, self.clientIdentifier)


class IdentifiersRecord(msgspec.Struct, tag_field="side", tag="identifiers"):
    """Packet identifiers of messages for a durable session that do not follow from the MsgId.

    A session may have several of these records. A record is put before its messages are sent, and deleted after the last of
    them is removed. Entries for messages that are no longer on the queue are ignored.
    """

    clientIdentifier: str
    #: the number of the record
    queue: str
    #: [message, packet identifier]
    assigned: list[tuple[MessageKey, int]] = []
    sequence: int = 0
    version: int = VERSION

    @property
    def key(self) -> StateKey:
        """The identity of the record."""
        return StateKey(Side.IDENTIFIERS, self.clientIdentifier, self.queue)


class RequestRecord(msgspec.Struct, tag_field="side", tag="requested"):
    """A request of an MQTT 5 client whose reply is sent to a generated queue name."""

    clientIdentifier: str
    queue: str
    responseTopic: str = ""
    correlationData: bytes | None = None
    sequence: int = 0
    version: int = REQUEST_VERSION

    @property
    def key(self) -> StateKey:
        """The identity of the record."""
        return StateKey(Side.REQUESTED, self.clientIdentifier, self.queue)


class ReplyKeyRecord(msgspec.Struct, tag_field="side", tag="reply key"):
    """The key of the topics with which clients reply to requests from MQ (`bridge.telemetry.request`)."""

    replyKey: bytes
    #: always blank
    clientIdentifier: str = ""
    sequence: int = 0
    version: int = REQUEST_VERSION

    @property
    def key(self) -> StateKey:
        """The identity of the record."""
        return StateKey(Side.REPLY_KEY, self.clientIdentifier)


class WillRecord(msgspec.Struct, tag_field="side", tag="will"):
    """The will of a client that a stopping bridge disconnected (`limits.will_grace`)."""

    clientIdentifier: str
    will: Will
    #: the MQ user of the client
    mqUser: bytes
    sequence: int = 0
    version: int = WILL_VERSION

    @property
    def key(self) -> StateKey:
        """The identity of the record."""
        return StateKey(Side.WILL, self.clientIdentifier)


SessionRecord = ReceivedRecord | SentRecord | IdentifiersRecord | RequestRecord
StateRecord = SessionRecord | ReplyKeyRecord | WillRecord


class UnknownRecord(ValueError):
    """A message on SYSTEM.MQTT.PERSISTENT.STATE that this bridge cannot read."""


class _First(msgspec.Struct, array_like=True):
    """Version 1 on IBM MQ."""

    side: Side
    client_id: str
    sequence: int
    record: bytes


class _Fields(msgspec.Struct):
    """The fields that identify a layout."""

    clientIdentifier: str
    version: int = 1
    received: list[int] | None = None


def encode(record: StateRecord, sequence: int = 0) -> bytes:
    """Encode a record with a sequence number for its session and side."""
    record.sequence = sequence
    return msgspec.json.encode(record)


def decode(data: bytes) -> StateRecord:
    """Decode the record in a message. Raises UnknownRecord."""
    try:
        if data[:1] == b"{":
            return _decode(data)
        first = msgspec.msgpack.decode(data, type=_First)
        record = _decode(first.record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownRecord(f"it is not a session record: {error}") from None
    record.sequence = first.sequence
    return record


def _decode(data: bytes) -> StateRecord:
    fields = msgspec.json.decode(data, type=_Fields)
    if fields.version > VERSION:
        raise UnknownRecord(
            f"the record of session {fields.clientIdentifier!r} has version {fields.version}, and this bridge reads "
            f"{VERSION} at most: a newer bridge wrote it"
        )
    if fields.version == 1:
        side = Side.SENT if fields.received is None else Side.RECEIVED
        data = b'{"side":"%s",%s' % (side.encode(), data.lstrip()[1:])
    record: StateRecord = msgspec.json.decode(data, type=StateRecord)
    if fields.version == 1:
        record.version = SESSION_VERSION
    return record
