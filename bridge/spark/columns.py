"""The envelopes: the columns of an MQ message and of an MQTT publication, as Arrow schemas. This module needs no Spark.

All columns are nullable. The comments are shown by Spark's `DESCRIBE`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from bridge.spark.options import OptionError
from bridge.telemetry.headers import TEXT_PROPERTIES
from bridge.wire.mq import MQDLH
from bridge.wire.mq.mqmd import GROUP_FIELDS, MQMD_FIELDS, MQMD_LAYOUTS
from bridge.wire.mq.structure import LONG, Layout

#: A time, in microseconds, in UTC.
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TEXT_MAP: Final = pa.map_(pa.string(), pa.string())


class EnvelopeColumn(NamedTuple):
    """A column of an envelope."""

    name: str
    type: Any
    comment: str


def _field_type(code: str) -> Any:
    """Return Arrow's type of a field of an MQ structure: MQLONG, MQCHARn or MQBYTEn."""
    if code == LONG:
        return pa.int32()
    return pa.string() if code.endswith("s") else pa.binary()


def _structure(layout: Layout, codes: dict[str, str]) -> Any:
    return pa.struct([pa.field(name, _field_type(codes[name])) for name in layout.fields if name in codes])


_CODES: Final = dict((*MQMD_FIELDS, *GROUP_FIELDS))

#: An MQMD of version 2, by IBM's names.
MD_TYPE: Final = _structure(MQMD_LAYOUTS[2], _CODES)
#: The MQMD inside an MQXQH, which has version 1.
MD_VERSION_1_TYPE: Final = _structure(MQMD_LAYOUTS[1], _CODES)
MQXQH_TYPE: Final = pa.struct(
    [
        pa.field("RemoteQName", pa.string()),
        pa.field("RemoteQMgrName", pa.string()),
        pa.field("MsgDesc", MD_VERSION_1_TYPE),
    ]
)
MQDLH_TYPE: Final = pa.struct(
    [pa.field(field.name, pa.int32() if field.type is int else pa.string()) for field in msgspec.structs.fields(MQDLH)]
)

MQ_COLUMNS: Final = (
    EnvelopeColumn("queue", pa.string(), "queue that the message was on"),
    EnvelopeColumn(
        "topic", pa.string(), "topic string of the publication (mqps.Top in its RFH2); null if there is none"
    ),
    EnvelopeColumn(
        "md",
        MD_TYPE,
        "MQMD by IBM's names: MQLONG as int, MQCHAR without padding as string (an invalid UTF-8 byte 0xNN as U+F7NN),"
        " MQBYTE as binary; Expiry in tenths of a second",
    ),
    EnvelopeColumn("put_time", TIMESTAMP, "MQMD.PutDate and PutTime as a time; null if they are not a valid time"),
    EnvelopeColumn(
        "rfh2",
        pa.map_(pa.string(), TEXT_MAP),
        "folders of the RFH2 headers: folder name -> element path (group.element) -> text. Repeated names get the suffix"
        " [2], [3] and so on. Folders that cannot be parsed, and nil elements, are null",
    ),
    EnvelopeColumn("mqxqh", MQXQH_TYPE, "transmission-queue header, or null"),
    EnvelopeColumn("mqdlh", MQDLH_TYPE, "dead-letter header, or null"),
    EnvelopeColumn("headers", pa.binary(), "bytes of all headers; headers and body together are the message data"),
    EnvelopeColumn("body", pa.binary(), "bytes after the headers"),
    EnvelopeColumn(
        "text",
        pa.string(),
        "body with Format MQSTR, decoded with its CCSID; null for other Formats, and if text_error is not null",
    ),
    EnvelopeColumn(
        "text_error",
        pa.string(),
        "why body with Format MQSTR is not text: its CCSID is unknown, or its bytes are invalid",
    ),
    EnvelopeColumn("format", pa.string(), "Format of the body, from the last header or the MQMD"),
    EnvelopeColumn("ccsid", pa.int32(), "CodedCharSetId of the body"),
    EnvelopeColumn("encoding", pa.int32(), "Encoding of the body"),
)
MQTT_COLUMNS: Final = (
    EnvelopeColumn("topic", pa.string(), "topic name"),
    EnvelopeColumn("payload", pa.binary(), "application message"),
    EnvelopeColumn("qos", pa.int32(), "QoS, 0 to 2"),
    EnvelopeColumn("retain", pa.bool_(), "RETAIN of the PUBLISH"),
    EnvelopeColumn("dup", pa.bool_(), "DUP of the PUBLISH"),
    EnvelopeColumn("message_id", pa.int32(), "packet identifier; null at QoS 0"),
    EnvelopeColumn("client_id", pa.string(), "client identifier of the session that received it"),
    EnvelopeColumn("properties", TEXT_MAP, "user properties (MQTT 5); the last value if a name is repeated"),
    EnvelopeColumn("response_topic", pa.string(), "Response Topic (MQTT 5)"),
    EnvelopeColumn("correlation_data", pa.binary(), "Correlation Data (MQTT 5)"),
    EnvelopeColumn("content_type", pa.string(), "Content Type (MQTT 5)"),
    EnvelopeColumn(
        "payload_format", pa.int32(), "Payload Format Indicator (MQTT 5): 1 means that the payload is UTF-8"
    ),
    EnvelopeColumn("expiry", pa.int64(), "remaining Message Expiry Interval (MQTT 5), in seconds"),
    EnvelopeColumn("received", TIMESTAMP, "when it was received"),
)


def schema_of(columns: Sequence[EnvelopeColumn]) -> Any:
    """Return the Arrow schema of columns."""
    return pa.schema([pa.field(column.name, column.type) for column in columns])


MQ_ARROW_SCHEMA: Final = schema_of(MQ_COLUMNS)
MQTT_ARROW_SCHEMA: Final = schema_of(MQTT_COLUMNS)
#: The columns that are properties of MQTT 5, each a field of PublishProperties.
PROPERTY_COLUMNS: Final = tuple(field for field, *_ in TEXT_PROPERTIES)


def subset(schema: Any, names: Sequence[str]) -> Any:
    """Return the part of an Arrow schema with the named columns. `md.MsgId` is one field of a structure.

    Raises OptionError for an unknown name.
    """
    fields: dict[str, list[str]] = {}
    for name in names:
        column, _, field = name.partition(".")
        if column not in schema.names:
            raise OptionError(f"unknown column {name}; the columns are {', '.join(schema.names)}")
        type_ = schema.field(column).type
        if field and (not pa.types.is_struct(type_) or type_.get_field_index(field) < 0):
            raise OptionError(f"unknown column {name}: {column} has no field {field}")
        fields.setdefault(column, []).append(field)
    chosen = []
    for column, subfields in fields.items():
        type_ = schema.field(column).type
        if "" not in subfields:
            type_ = pa.struct([type_.field(field) for field in dict.fromkeys(subfields)])
        chosen.append(pa.field(column, type_))
    return pa.schema(chosen)


#: Columns that version 0.2.0 did not have. They are null in its segments.
_NEW: Final = frozenset(("text_error",))


def project(batch: Any, schema: Any) -> Any:
    """Return the columns of `schema` from a record batch with these and possibly other columns.

    Raises KeyError with the name of a column or field that the batch does not have.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        if field.name not in batch.schema.names:
            if field.name not in _NEW:
                raise KeyError(field.name)
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(field.name)
        if not array.type.equals(field.type):
            if not pa.types.is_struct(field.type):
                raise KeyError(field.name)
            parts = []
            for part in field.type:
                if array.type.get_field_index(part.name) < 0:
                    raise KeyError(f"{field.name}.{part.name}")
                parts.append(array.field(part.name))
            array = pa.StructArray.from_arrays(parts, fields=list(field.type))
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_part(source: str, schema: Any, whole: Any) -> Any:
    """Return an Arrow schema that is a part of an envelope's schema. Raises OptionError if it is not."""
    names = []
    for field in schema:
        parts = field.type if pa.types.is_struct(field.type) else ()
        names += [f"{field.name}.{part.name}" for part in parts] or [field.name]
    part = subset(whole, names)
    for field in schema:
        if (expected := part.field(field.name).type) != field.type:
            raise OptionError(
                f"{source}: column {field.name}: expected {expected}, found {field.type}; hint: the option columns"
            )
    return schema


# Arrays in bulk: `pa.array` and `pa.scalar` import pandas, which takes a third of a second -----------------------------

_NUMBERS: Final = {pa.int32(): "i", pa.int64(): "q", TIMESTAMP: "q"}


def array_of(values: Sequence[Any], type_: Any) -> Any:
    """Return values as an Arrow array."""
    count = len(values)
    if values.count(None) == count:
        return pa.nulls(count, type_)
    if (code := _NUMBERS.get(type_)) is not None and None not in values:
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(array(code, values))])
    if type_ in (pa.binary(), pa.string()) and None not in values:
        encoded_values = values if type_ == pa.binary() else [value.encode() for value in values]
        offsets = array("i", accumulate(map(len, encoded_values), initial=0))
        return pa.Array.from_buffers(
            type_, count, [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded_values))]
        )
    if pa.types.is_map(type_) and not any(values) and None not in values:
        return pa.MapArray.from_arrays(
            constant(0, count + 1, pa.int32()), pa.nulls(0, type_.key_type), pa.nulls(0, type_.item_type)
        )
    if type_ == pa.bool_() and None not in values and (count < 2 or values.count(values[0]) == count):
        bits = (b"\xff" if values[0] else b"\0") * (count // 8 + 1)
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(bits)])
    return pa.array(values, type_)


def constant(value: Any, count: int, type_: Any) -> Any:
    """Return an Arrow array that repeats a value: an integer, text, bytes or None."""
    if value is None:
        return pa.nulls(count, type_)
    if (code := _NUMBERS.get(type_)) is not None:
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(array(code, [value]) * count)])
    encoded_value = value.encode() if isinstance(value, str) else value
    offsets = (
        array("i", range(0, len(encoded_value) * count + 1, len(encoded_value)))
        if encoded_value
        else array("i", bytes(4 * count + 4))
    )
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(offsets), pa.py_buffer(encoded_value * count)])
