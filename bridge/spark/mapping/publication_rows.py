"""Rows of publications: which of them are alike, and each as the publication that rules map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.link.outbox import CLIENT_ID, HOPS
from bridge.mapping.rendered import user_identifier
from bridge.mqtt.packets import PublishProperties
from bridge.spark.columns import PROPERTY_COLUMNS
from bridge.spark.mapping.row_groups import RowGroups
from bridge.spark.schema import MQTT_SCHEMA
from bridge.telemetry.message import Publication, Unmappable
from bridge.wire import cmqc

#: Columns of a publication that a mapping looks at, and the types that it takes them in.
TAKEN: Final = {
    "topic": "string",
    "payload": "binary",
    "qos": "int",
    "retain": "boolean",
    "message_id": "int",
    "client_id": "string",
    "user": "string",
    "properties": "map<string,string>",
    **{name: MQTT_SCHEMA[name].dataType.simpleString() for name in PROPERTY_COLUMNS},
    "expiry": "bigint",
}
#: The column that says where a row goes, for the standard profile.
DESTINATION: Final = "queue"
NO_MESSAGE_ID: Final = 65_536
#: The least numbers of 1, 2, 3, 4 and 5 digits, and the least one that is no message id.
_WIDTHS: Final = np.array([1, 10, 100, 1_000, 10_000, NO_MESSAGE_ID])


def widths_of(message_ids: Any) -> Any:
    """Return how many digits each message id has: none for 0, 6 for NO_MESSAGE_ID."""
    return np.searchsorted(_WIDTHS, message_ids, side="right")


class Rows:
    """The rows of a record batch as publications."""

    def __init__(self, batch: Any, by_column: bool) -> None:
        self.count = batch.num_rows
        names = set(batch.schema.names)

        def column(name: str) -> Any:
            return batch.column(name) if name in names else None

        self.payloads = column("payload")
        self.sizes = pc.binary_length(self.payloads).fill_null(-1).to_numpy(zero_copy_only=False)
        numbers = _numbers(column("message_id"), self.count)
        #: what is none is NO_MESSAGE_ID
        self.message_ids = np.where((numbers >= 0) & (numbers < NO_MESSAGE_ID), numbers, NO_MESSAGE_ID)
        #: digits of the message id; 0 of none
        self.widths = widths_of(self.message_ids)
        self._columns = [
            column("topic"),
            column("client_id"),
            _numbers(column("qos"), self.count),
            column("retain"),
            column("user"),
            column("expiry"),
            column("properties"),
            *map(column, PROPERTY_COLUMNS),
        ]
        self._queue = column(DESTINATION) if by_column else None
        self._lists: list[list[Any]] | None = None

    def groups(self, number: Any, size: Any) -> tuple[Any, Any, Sequence[tuple[Any, ...]]]:
        """Return the rows that are alike; `number` and `size` say in what message ids and sizes differ."""
        groups = RowGroups(self.count)
        for column in self._columns:
            groups.add(column)
        groups.add(number)
        # An empty payload clears a retained publication; a missing one is refused.
        groups.add(np.sign(self.sizes))
        groups.add(size)
        groups.add(self._queue)
        return groups.groups()

    def is_text(self) -> bool:
        """Return whether all payloads are UTF-8."""
        try:
            self.payloads.cast(pa.string())
        except pa.ArrowInvalid:
            return False
        return True

    def payload(self, row: int) -> bytes:
        """Return the payload of a row. Raises Unmappable where there is none."""
        found: bytes | None = self.payloads[row].as_py()
        if found is None:
            raise Unmappable(cmqc.MQRC_DATA_LENGTH_ERROR, "the row has no payload: it is null (an empty one has 0 bytes)")
        return found

    def values(self, row: int) -> tuple[Any, ...]:
        """Return the columns of one row, as `groups` gives them."""
        if self._lists is None:
            columns = [*self._columns, self._queue]
            self._lists = [[None] * self.count if column is None else column.tolist() for column in columns]
        *values, queue = (column[row] for column in self._lists)
        return (*values, None, None, None, queue)

    def publication(self, row: int, values: tuple[Any, ...]) -> Publication:
        """Return the publication of a row whose columns have these values. Raises Unmappable for what is none."""
        topic, client_id, qos, retain, user, expiry, properties, *own_properties = values[: len(self._columns)]
        message_id = int(self.message_ids[row])
        if topic is None:
            raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, "the row has no topic: it is null")
        if qos not in (0, 1, 2):
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, f"qos is 0, 1 or 2, not {qos}")
        if message_id == NO_MESSAGE_ID:
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, "message_id is no number from 0 to 65535")
        own = {name: value for name, value in properties or () if value is not None}
        hops = own.pop(HOPS, "")
        fields: dict[str, Any] = {
            name: value or None for name, value in zip(PROPERTY_COLUMNS, own_properties, strict=True)
        }
        return Publication(
            topic=topic,
            payload=self.payload(row),
            qos=qos,
            retain=bool(retain),
            message_id=message_id,
            client_id=own.pop(CLIENT_ID, client_id or ""),
            user=user_identifier(user or ""),
            expiry=None if expiry is None else float(expiry),
            properties=PublishProperties(
                **fields,
                user_property=(*own.items(),),
            ),
            hops=tuple(hops.split(",")) if hops else (),
        )


def _numbers(column: Any, count: int) -> Any:
    """Return the numbers of a column, 0 where there are none."""
    if column is None or column.null_count == count:
        return np.zeros(count, np.int64)
    return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
