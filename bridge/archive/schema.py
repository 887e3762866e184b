"""The rows of the archive: envelope and outcome of each message, for both directions, and what was subscribed to.

One row is written when the fate of a message is known. Messages that a client publishes have direction `in`, messages for a
client have direction `out`. A message that goes to three clients makes one row `in` and three rows `out`. What a mapping
takes has direction `mapped`, whatever rows of clients there are beside it.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from bridge.mqtt.packets import PublishProperties

if TYPE_CHECKING:
    import pyarrow as pa


class Direction(StrEnum):
    """What a row is about."""

    #: a publication of a client (or its will)
    IN = "in"
    #: a message for a client
    OUT = "out"
    #: a message that a mapping took
    MAPPED = "mapped"
    #: a session or subscription of a client
    SUBSCRIPTION = "subscription"
    #: the archive itself
    ARCHIVE = "archive"


class Outcome(StrEnum):
    """What became of it. Which outcomes a direction has is said beside each."""

    #: in, mapped: the queue manager has committed it
    PUT = "put"
    #: in: the queue manager did not take it, or did not commit it; it was not acknowledged. mapped: the broker did not
    #: take it, at most once
    REFUSED = "refused"
    #: out, mapped: written to the connection with QoS 0
    DELIVERED = "delivered"
    #: out, mapped: PUBACK or PUBREC came, and is committed
    ACKNOWLEDGED = "acknowledged"
    #: out, mapped: moved to the dead-letter queue
    DEAD_LETTERED = "dead-lettered"
    #: out: it expired, its session ended, or (QoS 0) the client was too slow; mapped: the mapping's filter does not take it,
    #: it came round, or (QoS 0) the link was lost; `reason` says which
    DISCARDED = "discarded"
    #: subscription: `topic` is a filter, `qos` what was granted; said again every day, and when the service starts
    SUBSCRIBED = "subscribed"
    #: subscription
    UNSUBSCRIBED = "unsubscribed"
    #: subscription: the session ended, and with it its subscriptions and what waited for it
    ENDED = "ended"
    #: subscription: the client got CONNACK 0
    CONNECTED = "connected"
    #: subscription: the connection is gone
    DISCONNECTED = "disconnected"
    #: archive: the service began to write. Without `stopped` before it, what it had in memory then is missing
    STARTED = "started"
    #: archive: the service ended in order; all rows are written
    STOPPED = "stopped"
    #: archive: `size` rows did not fit into memory, or could not be written, between `received` and `settled`
    GAP = "gap"


#: `reason` of discarded messages, beside those of `bridge.telemetry.outbox`.
SESSION_ENDED: Final = "the session has ended"


class Column(NamedTuple):
    """A column: name, Arrow type by name, whether a row may be without it, and what it means."""

    name: str
    type: str
    optional: bool
    meaning: str


COLUMNS: Final = (
    Column("sequence", "int64", False, "order of the rows: grows with each row, also over restarts"),
    Column("direction", "string", False, "in, out, mapped, subscription or archive"),
    Column("outcome", "string", False, "what became of it (bridge.archive.schema.Outcome)"),
    Column("reason", "string", True, "why it was refused, dead-lettered or discarded: MQRC_ name and number, or words"),
    Column("client_id", "string", False, "client identifier: publisher, receiver, subscriber; mapped: the mapping"),
    Column("user", "string", True, "identity of the client (MQMD.UserIdentifier)"),
    Column("topic", "string", False, "topic name of the PUBLISH; topic filter of a subscription; mapped: where it came from"),
    Column("qos", "int8", False, "QoS of the PUBLISH; QoS granted for a subscription"),
    Column("retain", "bool", False, "RETAIN of the PUBLISH"),
    Column("times_sent", "int32", False, "out: how often PUBLISH was sent; above 1 the last had DUP"),
    Column("message_id", "int32", False, "MQTT message id (packet identifier); 0 with QoS 0"),
    Column("payload", "binary", True, "the payload; null where the configuration says payloads: false"),
    Column("size", "int64", False, "bytes of the payload; archive: number of rows"),
    Column("payload_hash", "int64", False, "first 8 bytes of BLAKE2b of the payload, as a signed big-endian number"),
    Column("publisher", "string", False, "client identifier of the publisher; blank for MQ applications"),
    Column("publisher_message_id", "int32", False, "message id that the publisher sent it with; 0 where there was none"),
    Column("received", "time", False, "in: its bytes came; out: it was put; mapped: either; subscription: its packet came"),
    Column("sent", "time", True, "out: PUBLISH was sent (the last time)"),
    Column("settled", "time", False, "its outcome was known: committed, acknowledged, written"),
    Column("durable", "bool", True, "subscription: of a durable session"),
    Column("replayed", "string", True, "out, mapped: the run of `mqbridge replay` that it comes from"),
    # Archives of earlier versions are without the columns from here on: readers have null there.
    Column("destination", "string", True, "mapped: queue or topic that it went to; null where it went nowhere"),
    Column("msg_id", "binary", True, "mapped: MQMD.MsgId of a message that was taken from MQ"),
    Column("properties", "string", True, "in, out, mapped: its properties of MQTT 5, by their names as JSON; null for none"),
)
#: Columns that a partition adds, out of the path of the file: date=YYYY-MM-DD, hour=HH of `settled`, UTC.
PARTITIONS: Final = ("date", "hour")

NAMES: Final = tuple(column.name for column in COLUMNS)
_PLACES: Final = {name: place for place, name in enumerate(NAMES)}
_DEFAULTS: Final[dict[str, Any]] = {
    "client_id": "",
    "topic": "",
    "qos": 0,
    "retain": False,
    "times_sent": 0,
    "message_id": 0,
    "size": 0,
    "payload_hash": 0,
    "publisher": "",
    "publisher_message_id": 0,
}

#: Values in the order of COLUMNS; times are microseconds since the epoch.
Row = tuple[Any, ...]


def row(**values: Any) -> Row:
    """Return a row of these values; columns not named are empty. Raises KeyError for a column that there is not."""
    made = [_DEFAULTS.get(name) for name in NAMES]
    for name, value in values.items():
        made[_PLACES[name]] = value
    return tuple(made)


def payload_hash(payload: bytes) -> int:
    """Return the value of the column `payload_hash`."""
    return int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest(), "big", signed=True)


def arrow_schema() -> pa.Schema:
    """Return the columns as Arrow has them, their meaning as metadata. Raises ImportError without pyarrow."""
    import pyarrow as pa

    types = {"bool": pa.bool_(), "time": pa.timestamp("us", tz="UTC")}
    return pa.schema(
        [
            pa.field(
                column.name,
                types.get(column.type) or pa.type_for_alias(column.type),
                nullable=column.optional,
                metadata={"comment": column.meaning},
            )
            for column in COLUMNS
        ]
    )


def json_of(properties: PublishProperties | None) -> str | None:
    """Return the column `properties`: a JSON object of those that are there, bytes in base64. None for none."""
    if properties is None:
        return None
    there: dict[str, Any] = {
        name: value for name, value in msgspec.structs.asdict(properties).items() if value is not None and value != ()
    }
    return msgspec.json.encode(there).decode() if there else None


def properties_of(text: str | None) -> PublishProperties | None:
    """Return the properties in a row. Raises msgspec.DecodeError for what `json_of` has not written."""
    return None if text is None else msgspec.json.decode(text, type=PublishProperties)
