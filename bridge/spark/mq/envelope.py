"""MQ messages to record batches of envelopes (`bridge.spark.columns.MQ_COLUMNS`), column by column.

MQCHAR fields become text without the loss of a byte, although Arrow's strings are UTF-8. A byte 0x80 + n that is not UTF-8
becomes U+F780 + n, a character of Unicode's private use. If a field contains such a character, each of its bytes becomes
a character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bridge.mapping.message_view import text_of
from bridge.spark.columns import MD_TYPE, MD_VERSION_1_TYPE, MQ_ARROW_SCHEMA, MQDLH_TYPE, TIMESTAMP, array_of, constant
from bridge.telemetry.headers import HEADER_FORMATS
from bridge.telemetry.message import CCSID_UTF8, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, MQXQH, RFH2, Folder, Header, MalformedHeader, decode_chain
from bridge.wire.mq.folder import Value, write_value

#: A message as a get returns it: its MQMD and the message data.
MqMessage = tuple[MQMD, bytes]
Text = dict[str, "str | None"]


class EnvelopeHeaders(msgspec.Struct, frozen=True, gc=False):
    """The headers between MQMD and body, and the three fields that describe the body."""

    topic: str | None
    rfh2: dict[str, Text | None]
    mqxqh: dict[str, Any] | None
    mqdlh: dict[str, Any] | None
    #: all headers as they are
    headers: bytes
    format: str
    ccsid: int
    encoding: int


_HEADER_COLUMNS: Final = EnvelopeHeaders.__struct_fields__
#: The columns from which `text` and `text_error` are computed.
_TEXT_COLUMNS: Final = ("body", "format", "ccsid", "encoding")
_TEXTS: Final = ("text", "text_error")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=65_536)
def put_time(date: bytes, time: bytes) -> int | None:
    """Return MQMD.PutDate (YYYYMMDD) and PutTime (HHMMSSTH, in GMT) in microseconds since the epoch. None: not a time."""
    digits = date + time
    if len(digits) != 16 or not digits.isdigit():
        return None
    try:
        at = datetime.strptime(digits[:14].decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return (at - _EPOCH) // timedelta(microseconds=1) + int(digits[14:]) * 10_000


def record_batch(queue: str, messages: Sequence[MqMessage], schema: Any = MQ_ARROW_SCHEMA) -> Any:
    """Return the envelopes of messages of one queue, in their order, as a record batch.

    `schema` is MQ_ARROW_SCHEMA or a subset of it. Only its columns are computed.
    """
    count = len(messages)
    mds = [md for md, _ in messages]
    names = set(schema.names)
    columns: dict[str, Any] = {}
    if "queue" in names:
        columns["queue"] = constant(queue, count, pa.string())
    if "md" in names:
        columns["md"] = md_array(mds, schema.field("md").type)
    if "put_time" in names:
        columns["put_time"] = array_of([put_time(md.PutDate, md.PutTime) for md in mds], TIMESTAMP)
    if with_text := not names.isdisjoint(_TEXTS):
        names.update(_TEXT_COLUMNS)
    if names.intersection(("body", *_HEADER_COLUMNS)):
        columns |= _parts(messages, mds, names)
    if with_text:
        columns |= zip(_TEXTS, text_arrays(*(columns[name] for name in _TEXT_COLUMNS)), strict=True)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _parts(messages: Sequence[MqMessage], mds: Sequence[MQMD], names: set[str]) -> dict[str, Any]:
    """Return the columns of headers and body."""
    if not any(md.Format in HEADER_FORMATS for md in mds):
        columns = {name: _without_headers(name, mds) for name in _HEADER_COLUMNS if name in names}
        return columns | ({"body": array_of([data for _, data in messages], pa.binary())} if "body" in names else {})
    folders = not names.isdisjoint(("topic", "rfh2"))
    distinct: dict[int, tuple[int, EnvelopeHeaders]] = {}
    numbers, bodies = [], []
    for md, data in messages:
        headers, body = split(md, data, folders=folders)
        number, _ = distinct.setdefault(id(headers), (len(distinct), headers))
        numbers.append(number)
        bodies.append(body)
    chosen = array_of(numbers, pa.int32())
    columns = {"body": array_of(bodies, pa.binary())}
    for name in _HEADER_COLUMNS:
        if name in names:
            values = [getattr(headers, name) for _, headers in distinct.values()]
            columns[name] = pa.array(values, MQ_ARROW_SCHEMA.field(name).type).take(chosen)
    return columns


def _without_headers(name: str, mds: Sequence[MQMD]) -> Any:
    """Return a column of messages without headers. The MQMD describes the body."""
    count = len(mds)
    match name:
        case "headers":
            return constant(b"", count, pa.binary())
        case "rfh2":
            return array_of([()] * count, MQ_ARROW_SCHEMA.field(name).type)
        case "format" | "ccsid" | "encoding":
            return _field_array(mds, *_DESCRIPTION[name])
    return pa.nulls(count, MQ_ARROW_SCHEMA.field(name).type)


# MQCHAR fields -------------------------------------------------------------------------------------------------------

_STANDINS: Final = re.compile("[\uf780-\uf7ff]")
#: The surrogate to which Python's surrogateescape decodes a byte -> the character that stands for the byte, and the inverse.
_TO_STANDIN: Final = {0xDC00 + byte: 0xF700 + byte for byte in range(0x80, 0x100)}
_FROM_STANDIN: Final = {standin: surrogate for surrogate, standin in _TO_STANDIN.items()}


@lru_cache(maxsize=65_536)
def characters(field: bytes) -> str:
    """Return the text of an MQCHAR field, without the blanks and NULs at its end."""
    field = field.rstrip(b" \0")
    try:
        text = field.decode()
    except UnicodeDecodeError:
        text = field.decode(errors="surrogateescape")
    else:
        if _STANDINS.search(text) is None:
            return text
    text = _STANDINS.sub(lambda match: "".join(chr(0xDC00 + byte) for byte in match[0].encode()), text)
    return text.translate(_TO_STANDIN)


@lru_cache(maxsize=65_536)
def field_of(text: str) -> bytes:
    """Return the bytes of a field from the text that `characters` returned, without padding."""
    if _STANDINS.search(text) is None:
        return text.encode()
    return text.translate(_FROM_STANDIN).encode(errors="surrogateescape")


#: Columns that describe the body: the MQMD field and type of each.
_DESCRIPTION: Final = {
    "format": ("Format", pa.string()),
    "ccsid": ("CodedCharSetId", pa.int32()),
    "encoding": ("Encoding", pa.int32()),
}


def text_arrays(body: Any, format_: Any, ccsid: Any, encoding: Any) -> tuple[Any, Any]:
    """Return the columns `text` and `text_error`, computed from the columns that describe the text."""
    none = pa.nulls(len(body), pa.string())
    if not pc.any(is_text := pc.equal(format_, _TEXT_SCALAR)).as_py():
        return none, none
    if pc.all(pc.or_(pc.invert(is_text), pc.equal(ccsid, _UTF8_SCALAR))).as_py():
        try:
            return pc.if_else(is_text, body, pa.nulls(1, pa.binary())[0]).cast(pa.string()), none
        except pa.ArrowInvalid:  # not all bodies are UTF-8
            pass
    columns = (column.to_pylist() for column in (body, format_, ccsid, encoding))
    texts = [
        _text(body, *how) if format_ == _TEXT else (None, None) for body, format_, *how in zip(*columns, strict=True)
    ]
    return pa.array([text for text, _ in texts], pa.string()), pa.array([error for _, error in texts], pa.string())


def _text(body: bytes, ccsid: int, encoding: int) -> tuple[str | None, str | None]:
    try:
        return text_of(body, ccsid, encoding), None
    except Unmappable as error:
        return None, str(error)


_TEXT: Final = characters(cmqc.MQFMT_STRING)
_TEXT_SCALAR: Final = constant(_TEXT, 1, pa.string())[0]
_UTF8_SCALAR: Final = constant(CCSID_UTF8, 1, pa.int32())[0]

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
        return constant(characters(values[0]) if is_text else values[0], len(values), type_)
    return array_of(list(map(characters, values)) if is_text else values, type_)


def _plain(type_: Any) -> Callable[[Any], dict[str, Any]]:
    """Return a function that converts a structure to a dict that Arrow accepts for `type_`."""
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


def split(md: MQMD, data: bytes, *, folders: bool = True) -> tuple[EnvelopeHeaders, bytes]:
    """Return headers and body of a message. A header that cannot be read, with everything after it, is the body.

    `folders` False: `topic` and `rfh2` are not computed.
    """
    if md.Format == cmqc.MQFMT_RF_HEADER_2 and data[:4] == _RFH:
        # Most messages have one MQRFH2, and many have the same.
        length = int.from_bytes(data[8:12], "little" if md.Encoding & _LITTLE else "big")
        if _RFH_LENGTH <= length <= len(data):
            headers = _alone(md.Encoding, md.CodedCharSetId, data[:length], folders)
            if headers is not None:
                return headers, data[length:]
    return _split(md.Format, md.Encoding, md.CodedCharSetId, data, folders)


_RFH: Final = cmqc.MQRFH_STRUC_ID
_RFH_LENGTH: Final = 36
_LITTLE: Final = cmqc.MQENC_INTEGER_REVERSED


@lru_cache(maxsize=8192)
def _alone(encoding: int, ccsid: int, header: bytes, folders: bool) -> EnvelopeHeaders | None:
    """Return an MQRFH2 as the headers of a message. None: it cannot be read, or another header follows."""
    headers, rest = _split(cmqc.MQFMT_RF_HEADER_2, encoding, ccsid, header, folders)
    return None if rest or field_of(headers.format) in HEADER_FORMATS else headers


def _split(format_: bytes, encoding: int, ccsid: int, data: bytes, with_folders: bool) -> tuple[EnvelopeHeaders, bytes]:
    chain = decode_chain(format_, encoding, ccsid, data, strict=False)
    folders = folders_of(chain.headers) if with_folders else {}
    headers = EnvelopeHeaders(
        topic=(folders.get("mqps") or {}).get("Top"),
        rfh2=folders,
        mqxqh=next((_plain_xqh(header) for header in chain.headers if isinstance(header, MQXQH)), None),
        mqdlh=next((_plain_dlh(header) for header in chain.headers if isinstance(header, MQDLH)), None),
        headers=data[: len(data) - len(chain.body)],
        format=characters(chain.Format),
        ccsid=chain.CodedCharSetId,
        encoding=chain.Encoding,
    )
    return headers, chain.body


def _plain_xqh(header: MQXQH) -> dict[str, Any]:
    return {
        "RemoteQName": characters(header.RemoteQName),
        "RemoteQMgrName": characters(header.RemoteQMgrName),
        "MsgDesc": _plain_md(header.MsgDesc),
    }


def folders_of(headers: Sequence[Header]) -> dict[str, Text | None]:
    """Return all folders of all MQRFH2 headers by name. The second folder of a name is `name[2]`, and so on."""
    folders: dict[str, Text | None] = {}
    for header in headers:
        if isinstance(header, RFH2):
            for folder in header.folders:
                folders[_numbered(folder.name, folders)] = _texts(folder)
    return folders


@lru_cache(maxsize=4096)
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
        for index, element in enumerate(value if isinstance(value, list) else (value,), 1):
            path = prefix + (f"{name}[{index}]" if index > 1 else name)
            if isinstance(element, dict):
                _flatten(element, f"{path}.", texts)
            elif isinstance(element, str | None):
                texts[path] = element
            elif not isinstance(element, list):
                texts[path] = write_value(element)[0]


def _numbered(name: str, columns: dict[str, Any]) -> str:
    if name not in columns:
        return name
    number = 2
    while f"{name}[{number}]" in columns:
        number += 1
    return f"{name}[{number}]"
