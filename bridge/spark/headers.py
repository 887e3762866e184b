"""Functions to decode and encode MQMD and MQRFH2 in PySpark columns and in Arrow arrays.

    from bridge.spark.headers import decode_mqmd, decode_rfh2, encode_rfh2, split_headers

    parts = split_headers("data", "md.Format", "md.CodedCharSetId", "md.Encoding")
    frame.select(parts.alias("parts")).select("parts.rfh2", "parts.body")

The column functions are Arrow UDFs. The `*_array` functions process Arrow arrays, for `mapInArrow` or programs without
Spark. Data that cannot be decoded becomes null, as with Spark's `try_…` functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from bridge.spark.columns import MD_TYPE, MQ_ARROW_SCHEMA
from bridge.spark.mq.envelope import characters, field_of, folders_of, md_array, split
from bridge.spark.mq.rows import rows_of
from bridge.wire import mq
from bridge.wire.mq import MQMD, RFH2, MalformedHeader

_FOLDERS: Final = MQ_ARROW_SCHEMA.field("rfh2").type
#: An MQRFH2: its fixed part by IBM's names, and its folders as in the column `rfh2` of an envelope.
RFH2_TYPE: Final = pa.struct(
    [
        pa.field("StrucLength", pa.int32()),
        pa.field("Encoding", pa.int32()),
        pa.field("CodedCharSetId", pa.int32()),
        pa.field("Format", pa.string()),
        pa.field("Flags", pa.int32()),
        pa.field("NameValueCCSID", pa.int32()),
        pa.field("folders", _FOLDERS),
    ]
)
_PART_NAMES: Final = ("topic", "rfh2", "mqxqh", "mqdlh", "headers", "body", "format", "ccsid", "encoding")
#: The parts of message data, as columns of an envelope.
PARTS_TYPE: Final = pa.struct([MQ_ARROW_SCHEMA.field(name) for name in _PART_NAMES])

ColumnOrName = Column | str


def decode_mqmd(data: ColumnOrName) -> Column:
    """Return the MQMD at the start of binary data, in either byte order, as the column `md`. Null if it is invalid."""
    return _function(decode_mqmd_array, MD_TYPE)(data)


def encode_mqmd(md: ColumnOrName) -> Column:
    """Return the bytes of an MQMD: 324 in version 1, 364 in version 2, little-endian.

    `md` is a struct with fields of the MQMD. Null or missing fields have the values of MQMD_DEFAULT. Version is 2 if a
    field of version 2 is given. The query fails with ValueError if a value does not fit its field.
    """
    return _function(encode_mqmd_array, pa.binary())(md)


def decode_rfh2(data: ColumnOrName) -> Column:
    """Return the MQRFH2 at the start of binary data, in either byte order, as RFH2_TYPE. Null if it is invalid.

    The data after the MQRFH2 begins at offset StrucLength.
    """
    return _function(decode_rfh2_array, RFH2_TYPE)(data)


def encode_rfh2(rfh2: ColumnOrName) -> Column:
    """Return the bytes of an MQRFH2, in little-endian byte order.

    `rfh2` is a struct with `folders` and optionally `Format`, `CodedCharSetId` and `Encoding`. Elements are written as
    text, without the attribute dt. The query fails with MalformedHeader for an invalid element name, and with ValueError
    if Format is too long or a folder is null.
    """
    return _function(encode_rfh2_array, pa.binary())(rfh2)


def split_headers(data: ColumnOrName, format: ColumnOrName, ccsid: ColumnOrName, encoding: ColumnOrName) -> Column:
    """Split message data into headers and body (PARTS_TYPE). `format`, `ccsid` and `encoding` are those of the MQMD.

    In the result, `format`, `ccsid` and `encoding` describe the body. An unreadable header, and everything after it,
    belongs to the body.
    """
    return _function(split_headers_array, PARTS_TYPE)(data, format, ccsid, encoding)


def _function(function: Callable[..., Any], type_: Any) -> Callable[..., Column]:
    # PySpark's type hints have no overload for an untyped function of Arrow arrays.
    make: Callable[..., Callable[..., Column]] = arrow_udf
    return make(function, from_arrow_type(type_, False), ArrowUDFType.SCALAR)


# Arrays ----------------------------------------------------------------------------------------------------------------


def decode_mqmd_array(data: pa.Array) -> pa.Array:
    """Apply `decode_mqmd` to an Arrow array."""
    mds = [_decoded(mq.decode_mqmd, value) for value in data.to_pylist()]
    structure = md_array([md or MQMD() for md in mds])
    if None not in mds:
        return structure
    absent = pa.array([md is None for md in mds], pa.bool_())
    return pa.StructArray.from_arrays(structure.flatten(), fields=list(MD_TYPE), mask=absent)


def encode_mqmd_array(md: pa.Array) -> pa.Array:
    """Apply `encode_mqmd` to an Arrow array."""
    empty = pa.array([b""] * len(md), pa.binary())
    rows = rows_of(pa.record_batch([md, empty, empty], names=["md", "headers", "body"]))
    written = [mq.encode_mqmd(row.message.md) for row in rows]
    return _where_given(written, md)


def decode_rfh2_array(data: pa.Array) -> pa.Array:
    """Apply `decode_rfh2` to an Arrow array."""
    headers = [_decoded(mq.decode_rfh2, value) for value in data.to_pylist()]
    return pa.array([None if header is None else _plain(header) for header in headers], RFH2_TYPE)


def encode_rfh2_array(rfh2: pa.Array) -> pa.Array:
    """Apply `encode_rfh2` to an Arrow array."""
    given = dict(zip((field.name for field in rfh2.type), rfh2.flatten(), strict=True))
    columns = {"rfh2": given["folders"].cast(_FOLDERS), "body": pa.array([b""] * len(rfh2), pa.binary())}
    for name, column in (("Format", "format"), ("CodedCharSetId", "ccsid"), ("Encoding", "encoding")):
        if name in given:
            columns[column] = given[name]
    written = []
    for row in rows_of(pa.record_batch(columns)):
        md = row.message.md
        # Without folders the writer makes no header; here there is one, of the fixed part.
        fixed = RFH2(Format=md.Format, CodedCharSetId=md.CodedCharSetId or mq.folder.UTF_8, Encoding=md.Encoding)
        written.append(row.message.data or mq.encode_rfh2(fixed))
    return _where_given(written, rfh2)


def split_headers_array(data: pa.Array, format: pa.Array, ccsid: pa.Array, encoding: pa.Array) -> pa.Array:
    """Apply `split_headers` to Arrow arrays."""
    described = zip(data.to_pylist(), format.to_pylist(), ccsid.to_pylist(), encoding.to_pylist(), strict=True)
    standard = MQMD()
    parts: list[dict[str, Any] | None] = []
    for value, name, characters_, numbers in described:
        md = MQMD(
            Format=field_of(name or ""),
            CodedCharSetId=standard.CodedCharSetId if characters_ is None else characters_,
            Encoding=standard.Encoding if numbers is None else numbers,
        )
        if value is None:
            parts.append(None)
        else:
            headers, body = split(md, value)
            parts.append(msgspec.structs.asdict(headers) | {"body": body})
    return pa.array(parts, PARTS_TYPE)


def _decoded(decode: Callable[[bytes], Any], value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return decode(value)
    except MalformedHeader:
        return None


def _plain(header: RFH2) -> dict[str, Any]:
    return {
        "StrucLength": header.StrucLength,
        "Encoding": header.Encoding,
        "CodedCharSetId": header.CodedCharSetId,
        "Format": characters(header.Format),
        "Flags": header.Flags,
        "NameValueCCSID": header.NameValueCCSID,
        "folders": folders_of([header]),
    }


def _where_given(written: list[bytes], given: pa.Array) -> pa.Array:
    return pa.array(written, pa.binary(), mask=given.is_null().to_numpy(zero_copy_only=False))
