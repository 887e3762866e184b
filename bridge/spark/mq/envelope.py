"""MQ messages to record batches of envelopes (`bridge.spark.schema.MQ_COLUMNS`), column by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bridge.mapping.payload import text_of
from bridge.spark.columns import MD_TYPE, MD_VERSION_1_TYPE, MQ_ARROW_SCHEMA, MQDLH_TYPE, MQXQH_TYPE, TIMESTAMP
from bridge.spark.mq.characters import characters
from bridge.telemetry.headers import HEADER_FORMATS
from bridge.telemetry.message import CCSID_UTF8, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, MQXQH, RFH2, Folder, Header, MalformedHeader, decode_chain
from bridge.wire.mq.folder import Value, write_value

#: A message as a get returns it: its MQMD and the message data.
MqMessage = tuple[MQMD, bytes]
Text = dict[str, "str | None"]


class Body(msgspec.Struct, frozen=True, gc=False):
    """What stands behind the MQMD: headers, and the body with its three fields of description."""

    topic: str | None
    rfh2: dict[str, Text | None]
    mqxqh: dict[str, Any] | None
    mqdlh: dict[str, Any] | None
    headers: bytes
    body: bytes
    format: str
    ccsid: int
    encoding: int


_BODY_COLUMNS: Final = Body.__struct_fields__


@lru_cache(maxsize=65_536)
def put_time(date: bytes, time: bytes) -> datetime | None:
    """Return MQMD.PutDate (YYYYMMDD) and PutTime (HHMMSSTH, in GMT) as a time; None where they are no time."""
    digits = date + time
    if len(digits) != 16 or not digits.isdigit():
        return None
    year, month, day, hour, minute, second, hundredths = (
        int(digits[start:end]) for start, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14), (14, 16))
    )
    try:
        return datetime(year, month, day, hour, minute, second, hundredths * 10_000, UTC)
    except ValueError:
        return None


def record_batch(queue: str, messages: Sequence[MqMessage]) -> Any:
    """Return the envelopes of messages of one queue, as a pyarrow.RecordBatch of MQ_ARROW_SCHEMA, in their order."""
    count = len(messages)
    mds = [md for md, _ in messages]
    columns: dict[str, Any] = {
        "queue": pa.repeat(queue, count),
        "md": md_array(mds),
        "put_time": pa.array([put_time(md.PutDate, md.PutTime) for md in mds], TIMESTAMP),
    }
    if any(md.Format in HEADER_FORMATS for md in mds):
        bodies = [body_of(md, data) for md, data in messages]
        for name in _BODY_COLUMNS:
            columns[name] = pa.array(list(map(attrgetter(name), bodies)), MQ_ARROW_SCHEMA.field(name).type)
    else:
        columns |= _without_headers(columns["md"], [data for _, data in messages])
    columns["text"] = text_array(*(columns[name] for name in ("body", "format", "ccsid", "encoding")))
    return pa.RecordBatch.from_arrays([columns[name] for name in MQ_ARROW_SCHEMA.names], schema=MQ_ARROW_SCHEMA)


def _without_headers(md: Any, data: list[bytes]) -> dict[str, Any]:
    """Return the columns of messages none of which has a header: the body is as the MQMD describes it."""
    count = len(data)
    no_folders = pa.MapArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), count + 1), pa.array([], pa.string()), pa.array([], _FOLDER_TYPE)
    )
    return {
        "topic": pa.nulls(count, pa.string()),
        "rfh2": no_folders,
        "mqxqh": pa.nulls(count, MQXQH_TYPE),
        "mqdlh": pa.nulls(count, MQDLH_TYPE),
        "headers": pa.repeat(pa.scalar(b"", pa.binary()), count),
        "body": pa.array(data, pa.binary()),
        "format": md.field("Format"),
        "ccsid": md.field("CodedCharSetId"),
        "encoding": md.field("Encoding"),
    }


_FOLDER_TYPE: Final = MQ_ARROW_SCHEMA.field("rfh2").type.item_type


def text_array(body: Any, format_: Any, ccsid: Any, encoding: Any) -> Any:
    """Return the column `text` of the columns that describe it."""
    if not pc.any(is_text := pc.equal(format_, _TEXT)).as_py():
        return pa.nulls(len(body), pa.string())
    if pc.all(pc.or_(pc.invert(is_text), pc.equal(ccsid, CCSID_UTF8))).as_py():
        try:
            return pc.if_else(is_text, body, pa.scalar(None, pa.binary())).cast(pa.string())
        except pa.ArrowInvalid:  # some of it is no UTF-8
            pass
    columns = (one.to_pylist() for one in (body, format_, ccsid, encoding))
    texts = [_text(data, *how) if format_ == _TEXT else None for data, format_, *how in zip(*columns, strict=True)]
    return pa.array(texts, pa.string())


def _text(data: bytes, ccsid: int, encoding: int) -> str | None:
    try:
        return text_of(data, ccsid, encoding)
    except Unmappable:
        return None


_TEXT: Final = characters(cmqc.MQFMT_STRING)

# The MQMD ------------------------------------------------------------------------------------------------------------

_MD_NAMES: Final = tuple(field.name for field in MD_TYPE)
_MD_ROW: Final = attrgetter(*_MD_NAMES)


def md_array(mds: Sequence[MQMD]) -> Any:
    """Return MQMDs as an Arrow array of MD_TYPE."""
    if not mds:
        return pa.array([], MD_TYPE)
    columns = zip(*map(_MD_ROW, mds), strict=True)
    arrays = [
        pa.array(list(map(characters, values)) if field.type == pa.string() else values, field.type)
        for field, values in zip(MD_TYPE, columns, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(MD_TYPE))


def _plain(type_: Any) -> Callable[[Any], dict[str, Any]]:
    """Return a function that makes of a structure what Arrow takes for one of `type_`."""
    texts = {field.name: field.type == pa.string() for field in type_}

    def plain(structure: Any) -> dict[str, Any]:
        return {
            name: characters(getattr(structure, name)) if text else getattr(structure, name)
            for name, text in texts.items()
        }

    return plain


_plain_md = _plain(MD_VERSION_1_TYPE)
_plain_dlh = _plain(MQDLH_TYPE)

# Headers -------------------------------------------------------------------------------------------------------------


def body_of(md: MQMD, data: bytes) -> Body:
    """Take the message data apart. A header that cannot be read counts as body, with all that is behind it."""
    chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, data, strict=False)
    folders = folders_of(chain.headers)
    return Body(
        topic=(folders.get("mqps") or {}).get("Top"),
        rfh2=folders,
        mqxqh=next((_plain_xqh(header) for header in chain.headers if isinstance(header, MQXQH)), None),
        mqdlh=next((_plain_dlh(header) for header in chain.headers if isinstance(header, MQDLH)), None),
        headers=data[: len(data) - len(chain.body)],
        body=chain.body,
        format=characters(chain.Format),
        ccsid=chain.CodedCharSetId,
        encoding=chain.Encoding,
    )


def _plain_xqh(header: MQXQH) -> dict[str, Any]:
    return {
        "RemoteQName": characters(header.RemoteQName),
        "RemoteQMgrName": characters(header.RemoteQMgrName),
        "MsgDesc": _plain_md(header.MsgDesc),
    }


def folders_of(headers: Sequence[Header]) -> dict[str, Text | None]:
    """Return all folders of all MQRFH2 headers, by name; of several of one name the second is `name[2]`, and so on."""
    folders: dict[str, Text | None] = {}
    for header in headers:
        if isinstance(header, RFH2):
            for folder in header.folders:
                folders[_numbered(folder.name, folders)] = _texts(folder)
    return folders


def _texts(folder: Folder) -> Text | None:
    try:
        content = folder.content
    except MalformedHeader:
        return None
    texts: Text = {}
    _flatten(content, "", texts)
    return texts


def _flatten(content: dict[str, Value], prefix: str, texts: Text) -> None:
    for name, value in content.items():
        for index, item in enumerate(value if isinstance(value, list) else (value,), 1):
            path = prefix + (f"{name}[{index}]" if index > 1 else name)
            if isinstance(item, dict):
                _flatten(item, f"{path}.", texts)
            elif isinstance(item, str | None):
                texts[path] = item
            elif not isinstance(item, list):
                texts[path] = write_value(item)[0]


def _numbered(name: str, taken: dict[str, Any]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}[{number}]" in taken:
        number += 1
    return f"{name}[{number}]"
