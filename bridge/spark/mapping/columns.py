"""Columns that mappings make: messages for the source `mq`, publications for the source `mqtt`, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from bridge.spark.columns import MD_TYPE, MQTT_COLUMNS, TEXT_MAP, Column
from bridge.spark.schema import REFUSAL
from bridge.telemetry.message import Unmappable

#: Fields of the MQMD that a mapping sets.
_SET_FIELDS: Final = (
    "Report", "MsgType", "Expiry", "CodedCharSetId", "Format", "Priority", "Persistence", "MsgId", "CorrelId", "ReplyToQ",
    "ReplyToQMgr", "UserIdentifier",
)  # fmt: skip
MAPPED_MD_TYPE: Final = pa.struct([field for field in MD_TYPE if field.name in _SET_FIELDS])
KEPT_REQUEST_TYPE: Final = pa.struct(
    [pa.field("queue", pa.string()), pa.field("md", MAPPED_MD_TYPE), pa.field("data", pa.binary())]
)
_BODY: Final = (
    Column("md", MAPPED_MD_TYPE, "fields of the MQMD that mappings set; null and all others: as MQMD_DEFAULT has them"),
    Column(
        "headers",
        pa.binary(),
        "MQRFH2, or empty; headers and body are the message data. Of a refused row by the integration tables, or null",
    ),
    Column("body", pa.binary(), "payload; of a refused row as it came"),
    Column(
        "properties",
        TEXT_MAP,
        "message properties to put beside a message without MQRFH2: full names to values; mqtt.qos and mqtt.msgid are"
        " MQTYPE_INT32, all others MQTYPE_STRING",
    ),
    Column("retain", pa.bool_(), "whether it is put with MQPMO_RETAIN"),
    Column("clear", pa.bool_(), "whether it clears the retained publication of its topic"),
    Column(
        "kept_request",
        KEPT_REQUEST_TYPE,
        "what is put before a request on the queue where it waits for the answer (requests_queue); its MsgId is that of the"
        " request, too",
    ),
    REFUSAL,
)
QUEUE_MESSAGE_COLUMNS: Final = (
    Column("queue", pa.string(), "queue to put to"),
    Column("queue_manager", pa.string(), "its queue manager (ObjectQMgrName); null: the one connected to"),
    *_BODY,
)
TOPIC_MESSAGE_COLUMNS: Final = (Column("topic", pa.string(), "topic string to publish to"), *_BODY)

#: Columns of a publication that is still to be published: none of a transmission.
PUBLICATION_COLUMNS: Final = (
    *(column for column in MQTT_COLUMNS if column.name not in ("dup", "message_id", "payload_format", "received")),
    REFUSAL,
)


def schema_of(columns: Sequence[Column], kept: Sequence[Any] = ()) -> Any:
    """Return the Arrow schema of columns, and of fields that are passed through behind them."""
    return pa.schema([*(pa.field(column.name, column.type) for column in columns), *kept])


def refusal(error: Unmappable, source: str | None) -> dict[str, Any]:
    """Return a value of the column `refusal`."""
    return {"reason": error.reason, "sentence": str(error), "source": source}
