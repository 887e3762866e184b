"""MQMD and MQRFH2 as columns: functions of columns for any PySpark program, and the same of Arrow arrays.

    from bridge.spark.headers import decode_mqmd, decode_rfh2, encode_rfh2, split_headers

    parts = split_headers("data", "md.Format", "md.CodedCharSetId", "md.Encoding")
    frame.select(parts.alias("parts")).select("parts.rfh2", "parts.body")

The functions of columns are Arrow UDFs; `*_array` are what they call for each record batch, and what a `mapInArrow` or a
program without Spark calls. What is not the structure that it should be is null, as with Spark's own `try_…` functions.
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
#: What stands behind an MQMD: the columns of an envelope that say it.
PARTS_TYPE: Final = pa.struct([MQ_ARROW_SCHEMA.field(name) for name in _PART_NAMES])

ColumnOrName = Column | str


def decode_mqmd(data: ColumnOrName) -> Column:
    """Return the MQMD at the start of binary data, in either byte order, as the column `md` of an envelope; else null."""
    return _function(decode_mqmd_array, MD_TYPE)(data)


def encode_mqmd(md: ColumnOrName) -> Column:
    """Return the bytes of an MQMD: 324 in version 1, 364 in version 2, little-endian.

    `md` is a struct of any fields of the MQMD; what is null or not there is as MQMD_DEFAULT has it. Version is 2 where a
    field of version 2 is given. The query fails by ValueError for a value that does not fit its field.
    """
    return _function(encode_mqmd_array, pa.binary())(md)


def decode_rfh2(data: ColumnOrName) -> Column:
    """Return the MQRFH2 at the start of binary data, in either byte order, as RFH2_TYPE; else null.

    What is behind it begins at StrucLength.
    """
    return _function(decode_rfh2_array, RFH2_TYPE)(data)


def encode_rfh2(rfh2: ColumnOrName) -> Column:
    """Return the bytes of an MQRFH2, in little-endian byte order.

    `rfh2` is a struct with `folders`, and of `Format`, `CodedCharSetId` and `Encoding` what is given. Elements are
    written as text, without dt. The query fails by MalformedHeader for a name that no element can have, and by ValueError
    for a Format that is too long, or a folder that is null.
    """
    return _function(encode_rfh2_array, pa.binary())(rfh2)


def split_headers(data: ColumnOrName, format: ColumnOrName, ccsid: ColumnOrName, encoding: ColumnOrName) -> Column:
    """Return message data as headers and body, by what the MQMD says of them: PARTS_TYPE.

    `headers` and `body` are the data; `format`, `ccsid` and `encoding` describe the body. A header that cannot be read
    counts as body, with all that is behind it.
    """
    return _function(split_headers_array, PARTS_TYPE)(data, format, ccsid, encoding)


def _function(function: Callable[..., Any], type_: Any) -> Callable[..., Column]:
    # (PySpark's own types have no overload for a function of arrays that says no more of itself)
    make: Callable[..., Callable[..., Column]] = arrow_udf
    return make(function, from_arrow_type(type_, False), ArrowUDFType.SCALAR)


# Arrays ----------------------------------------------------------------------------------------------------------------


def decode_mqmd_array(data: pa.Array) -> pa.Array:
    """Do for an Arrow array what `decode_mqmd` does for a column."""
    mds = [_decoded(mq.decode_mqmd, value) for value in data.to_pylist()]
    structure = md_array([md or MQMD() for md in mds])
    if None not in mds:
        return structure
    absent = pa.array([md is None for md in mds], pa.bool_())
    return pa.StructArray.from_arrays(structure.flatten(), fields=list(MD_TYPE), mask=absent)


def encode_mqmd_array(md: pa.Array) -> pa.Array:
    """Do for an Arrow array what `encode_mqmd` does for a column."""
    empty = pa.array([b""] * len(md), pa.binary())
    rows = rows_of(pa.record_batch([md, empty, empty], names=["md", "headers", "body"]))
    written = [mq.encode_mqmd(row.message.md) for row in rows]
    return _where_given(written, md)


def decode_rfh2_array(data: pa.Array) -> pa.Array:
    """Do for an Arrow array what `decode_rfh2` does for a column."""
    headers = [_decoded(mq.decode_rfh2, value) for value in data.to_pylist()]
    return pa.array([None if header is None else _plain(header) for header in headers], RFH2_TYPE)


def encode_rfh2_array(rfh2: pa.Array) -> pa.Array:
    """Do for an Arrow array what `encode_rfh2` does for a column."""
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
    """Do for Arrow arrays what `split_headers` does for columns."""
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
