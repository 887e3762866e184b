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

from bridge.mapping.message_view import text_of
from bridge.spark.columns import MD_TYPE, MD_VERSION_1_TYPE, MQ_ARROW_SCHEMA, MQDLH_TYPE, TIMESTAMP
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
#: The columns that `text` is computed from.
_TEXT_COLUMNS: Final = ("body", "format", "ccsid", "encoding")


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


def record_batch(queue: str, messages: Sequence[MqMessage], schema: Any = MQ_ARROW_SCHEMA) -> Any:
    """Return the envelopes of messages of one queue, in their order, as a record batch.

    `schema` is MQ_ARROW_SCHEMA or a subset of it. Only its columns are computed.
    """
    count = len(messages)
    mds = [md for md, _ in messages]
    wanted = set(schema.names)
    columns: dict[str, Any] = {}
    if "queue" in wanted:
        columns["queue"] = pa.repeat(queue, count)
    if "md" in wanted:
        columns["md"] = md_array(mds, schema.field("md").type)
    if "put_time" in wanted:
        columns["put_time"] = pa.array([put_time(md.PutDate, md.PutTime) for md in mds], TIMESTAMP)
    if "text" in wanted:
        wanted.update(_TEXT_COLUMNS)
    if of_body := [name for name in _BODY_COLUMNS if name in wanted]:
        if any(md.Format in HEADER_FORMATS for md in mds):
            bodies = [body_of(md, data) for md, data in messages]
            for name in of_body:
                columns[name] = pa.array(list(map(attrgetter(name), bodies)), MQ_ARROW_SCHEMA.field(name).type)
        else:
            columns |= {name: _without_headers(name, messages, mds) for name in of_body}
    if "text" in wanted:
        columns["text"] = text_array(*(columns[name] for name in _TEXT_COLUMNS))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _without_headers(name: str, messages: Sequence[MqMessage], mds: Sequence[MQMD]) -> Any:
    """Return a column of messages none of which has a header: the MQMD describes the body."""
    count = len(mds)
    match name:
        case "body":
            return pa.array([data for _, data in messages], pa.binary())
        case "headers":
            return pa.repeat(pa.scalar(b"", pa.binary()), count)
        case "rfh2":
            offsets = pa.repeat(pa.scalar(0, pa.int32()), count + 1)
            return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], _FOLDER_TYPE))
        case "format" | "ccsid" | "encoding":
            return _field_array(mds, *_DESCRIPTION[name])
    return pa.nulls(count, MQ_ARROW_SCHEMA.field(name).type)


_FOLDER_TYPE: Final = MQ_ARROW_SCHEMA.field("rfh2").type.item_type
#: Columns that describe the body: the MQMD field and type of each.
_DESCRIPTION: Final = {
    "format": ("Format", pa.string()),
    "ccsid": ("CodedCharSetId", pa.int32()),
    "encoding": ("Encoding", pa.int32()),
}


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


def md_array(mds: Sequence[MQMD], type_: Any = MD_TYPE) -> Any:
    """Return MQMDs as an Arrow array of MD_TYPE, or of a structure with some of its fields."""
    arrays = [_field_array(mds, field.name, field.type) for field in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def _field_array(mds: Sequence[MQMD], name: str, type_: Any) -> Any:
    """Return a field of MQMDs as an Arrow array."""
    values = list(map(attrgetter(name), mds))
    is_text = type_ == pa.string()
    if values and values.count(values[0]) == len(values):
        value = characters(values[0]) if is_text else values[0]
        return pa.repeat(pa.scalar(value, type_), len(values))
    return pa.array(list(map(characters, values)) if is_text else values, type_)


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
