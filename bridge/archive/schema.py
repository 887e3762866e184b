"""The rows of the archive: metadata and outcome of each message, in both directions, and changes of subscriptions.

A row is written when the outcome of a message is known. Publications of clients have direction `in`, messages for clients
have direction `out`. A message for three clients has one row `in` and three rows `out`. Messages taken by a mapping have an
additional row with direction `mapped`. Rows are in files `date=YYYY-MM-DD/hour=HH/NAME.parquet`, by their time in UTC.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from bridge.mqtt.packets import PublishProperties

if TYPE_CHECKING:
    import pyarrow as pa


class Direction(StrEnum):
    """The subject of a row."""

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


#: Value of `reason` for discarded messages, besides those in `bridge.telemetry.undelivered`.
SESSION_ENDED: Final = "the session has ended"


class Column(NamedTuple):
    """A column: name, name of its Arrow type, whether it may be null, and its meaning."""

    name: str
    type: str
    optional: bool
    meaning: str


COLUMNS: Final = (
    Column("sequence", "int64", False, "number of the row, which grows with each row and across restarts"),
    Column("direction", "string", False, "in, out, mapped, subscription or archive"),
    Column("outcome", "string", False, "outcome of the event (bridge.telemetry.outcome.Outcome)"),
    Column("reason", "string", True, "reason for a rejection, dead letter or discard: MQRC_ name and number, or text"),
    Column(
        "client_id", "string", False, "client identifier of the publisher, receiver or subscriber. mapped: the mapping"
    ),
    Column("user", "string", True, "identity of the client (MQMD.UserIdentifier)"),
    Column("topic", "string", False, "topic name, or topic filter of a subscription. mapped: source of the message"),
    Column("qos", "int8", False, "QoS of the PUBLISH, or granted QoS of a subscription"),
    Column("retain", "bool", False, "RETAIN of the PUBLISH"),
    Column("times_sent", "int32", False, "out: how often PUBLISH was sent. Repetitions had DUP"),
    Column("message_id", "int32", False, "MQTT packet identifier, or 0 with QoS 0"),
    Column("payload", "binary", True, "payload, or null with archive.payloads: false"),
    Column("size", "int64", False, "size of the payload in bytes. archive: number of rows"),
    Column("payload_hash", "int64", False, "first 8 bytes of BLAKE2b of the payload, as a signed big-endian number"),
    Column("publisher", "string", False, "client identifier of the publisher, or blank for MQ applications"),
    Column("publisher_message_id", "int32", False, "packet identifier of the publisher, or 0 if there was none"),
    Column("received", "time", False, "in, subscription: arrival of the packet. out: put time. mapped: either"),
    Column("sent", "time", True, "out: time of the last PUBLISH"),
    Column("settled", "time", False, "time of the outcome: commit, acknowledgement or write"),
    Column("durable", "bool", True, "subscription: whether the session is durable"),
    Column("replayed", "string", True, "out, mapped: run of `mqbridge replay` that put the message"),
    # The following columns are missing in archives of earlier versions, and null for readers.
    Column("destination", "string", True, "mapped: destination queue or topic, or null without destination"),
    Column("msg_id", "binary", True, "mapped: MQMD.MsgId of a message from MQ"),
    Column("properties", "string", True, "in, out, mapped: MQTT 5 properties by name, as JSON, or null"),
)

NAMES: Final = tuple(column.name for column in COLUMNS)
_POSITIONS: Final = {name: position for position, name in enumerate(NAMES)}
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

#: Values in the order of COLUMNS. Times are microseconds since the epoch.
Row = tuple[Any, ...]


def row(**values: Any) -> Row:
    """Return a row with these values. Other columns have their defaults. Raises KeyError for an unknown column."""
    columns = [_DEFAULTS.get(name) for name in NAMES]
    for name, value in values.items():
        columns[_POSITIONS[name]] = value
    return tuple(columns)


def payload_hash(payload: bytes) -> int:
    """Return the value of the column `payload_hash`."""
    return int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest(), "big", signed=True)


def arrow_schema() -> pa.Schema:
    """Return the columns as an Arrow schema, with their meaning as metadata. Raises ImportError without pyarrow."""
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
    """Return the column `properties`: a JSON object of the set properties, with bytes in base64, or None."""
    if properties is None:
        return None
    set_properties: dict[str, Any] = {
        name: value for name, value in msgspec.structs.asdict(properties).items() if value is not None and value != ()
    }
    return msgspec.json.encode(set_properties).decode() if set_properties else None


def properties_of(text: str | None) -> PublishProperties | None:
    """Return the properties of a row. Raises msgspec.DecodeError for text that `json_of` has not written."""
    return None if text is None else msgspec.json.decode(text, type=PublishProperties)


#: Prefix of files that are being written, or that a killed bridge left behind. Readers ignore them.
UNFINISHED: Final = "."
SUFFIX: Final = ".parquet"


def partition(directory: Path, moment: datetime) -> Path:
    """Return the directory for rows of the hour that contains `moment`."""
    moment = moment.astimezone(UTC)
    return directory / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"


def archive_files(directory: Path, start: datetime | None = None, end: datetime | None = None) -> list[Path]:
    """Return the files with rows settled from the hour of `start` to the hour of `end`, both included, in order."""
    first = partition(Path(), start) if start is not None else None
    last = partition(Path(), end) if end is not None else None
    files = []
    for hour in sorted(directory.glob("date=*/hour=*")):
        relative = hour.relative_to(directory)
        if (first is None or relative >= first) and (last is None or relative <= last):
            files += sorted(file for file in hour.glob(f"*{SUFFIX}") if not file.name.startswith(UNFINISHED))
    return files


def unfinished_files(directory: Path) -> Iterator[Path]:
    """Return the unfinished files, left behind by killed processes."""
    return directory.glob(f"date=*/hour=*/{UNFINISHED}*")


def expired_days(directory: Path, retention: timedelta, now: datetime) -> list[Path]:
    """Return the directories of days that are entirely older than `retention`."""
    oldest = (now.astimezone(UTC) - retention).date()
    days = []
    for day in sorted(directory.glob("date=????-??-??")):
        try:
            if date.fromisoformat(day.name.removeprefix("date=")) < oldest:
                days.append(day)
        except ValueError:
            continue  # not created by the archive
    return days
