"""Conversion of rows to MQ messages: the columns that the writer accepts, their types, and their effect on the message.

If `headers` is not null, headers and body are the message data byte for byte, and `md` describes the first header, as in
a row that was read. Otherwise the message has an MQRFH2 with the folders in `rfh2`, or no header without folders.
`format`, `ccsid` and `encoding` (by default those of `md`) describe the body. A string body is encoded in that CCSID.

Mappings add columns (`bridge.spark.mapping.messages`): `queue_manager`, `properties`, `retain`, `clear`, `kept_request`,
and `refusal` for a row that must not be put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from bridge.spark.mq.envelope import field_of
from bridge.spark.options import OptionError
from bridge.spark.schema import MQ_SCHEMA, REFUSAL_NAME, RowRefusal, column_values, wrong_columns
from bridge.telemetry.headers import HEADER_FORMATS
from bridge.telemetry.message import CCSID_UTF8, KeptRequest, Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, Typed, encode_rfh2
from bridge.wire.mq.ccsid import character_set
from bridge.wire.mq.mqmd import GROUP_FIELDS, MQMD_FIELDS

_CODES: Final = dict((*MQMD_FIELDS, *GROUP_FIELDS))
_GROUP_NAMES: Final = tuple(name for name, _ in GROUP_FIELDS)

#: Columns that are written, and their types.
_COLUMNS: Final[Mapping[str, str]] = {
    "queue": "string",
    "topic": "string",
    "md": "struct",
    "rfh2": "map<string,map<string,string>>",
    "headers": "binary",
    "body": "binary or string",
    "format": "string",
    "ccsid": "int",
    "encoding": "int",
    "queue_manager": "string",
    "properties": "map<string,string>",
    "retain": "boolean",
    "clear": "boolean",
    "kept_request": "struct",
    "refusal": REFUSAL_NAME,
}
_MD_FIELDS: Final = {
    name: "int" if code == "i" else "string" if code.endswith("s") else "binary" for name, code in _CODES.items()
}
#: Columns that only the rows of a mapping have.
MAPPED_COLUMNS: Final = frozenset(("properties", "clear", "kept_request", "refusal"))
#: Message properties that are numbers, MQTYPE_INT32 (integration table 1).
_NUMBERS: Final = frozenset(("mqtt.qos", "mqtt.msgid"))
#: Columns of a read that a write does not need, because other columns contain the same information.
_IGNORED: Final = frozenset(MQ_SCHEMA.names) - _COLUMNS.keys()
#: The first bytes of a header -> the Format that announces it.
_FORMAT_OF: Final = {
    cmqc.MQRFH_STRUC_ID: cmqc.MQFMT_RF_HEADER_2,
    cmqc.MQXQH_STRUC_ID: cmqc.MQFMT_XMIT_Q_HEADER,
    cmqc.MQDLH_STRUC_ID: cmqc.MQFMT_DEAD_LETTER_HEADER,
    cmqc.MQMDE_STRUC_ID: cmqc.MQFMT_MD_EXTENSION,
}


def check_columns(source: str, schema: StructType) -> None:
    """Check that rows of a schema can be put. Raises OptionError with all mistakes."""
    wrong = wrong_columns(schema, _COLUMNS, _IGNORED)
    if "md" in schema.names and isinstance(md := schema["md"].dataType, StructType):
        wrong += wrong_columns(md, _MD_FIELDS, prefix="md.")
    if "body" not in schema.names:
        wrong.append("column body is missing (binary or string)")
    if wrong:
        raise OptionError(f"{source} cannot put these rows: {'; '.join(wrong)}")


def unencodable(schema: StructType) -> Column | None:
    """Return the column with the reason why the text of a row cannot be encoded. None: every text is put in UTF-8."""
    md = schema["md"].dataType if "md" in schema.names else StructType()
    assert isinstance(md, StructType)
    if not isinstance(schema["body"].dataType, StringType):
        return None

    def described(name: str, field: str) -> Column:
        columns = [f.col(name)] if name in schema.names else []
        if field in md.names:
            # With headers, the MQMD describes the first header.
            outer = f.col(f"md.{field}")
            columns.append(f.when(f.col("headers").isNull(), outer) if "headers" in schema.names else outer)
        return f.coalesce(*columns).cast("int") if columns else f.lit(None).cast("int")

    if "ccsid" not in schema.names and "CodedCharSetId" not in md.names:
        return None
    reason = f.udf(_unencodable_reason, "string", useArrow=False)
    return reason(f.col("body"), described("ccsid", "CodedCharSetId"), described("encoding", "Encoding"))


def _unencodable_reason(text: str | None, ccsid: int | None, encoding: int | None) -> str | None:
    try:
        _encoded(text or "", ccsid, encoding)
    except Unmappable as error:
        return f"{error} ({cmqc.reason_name(error.reason)}, {error.reason})"
    return None


class PutRow(msgspec.Struct, frozen=True, gc=False):
    """A message to put, and its destination: a queue or a topic string, or neither if the options specify it."""

    message: Message
    queue: str | None = None
    topic: str | None = None
    #: of the queue; None: the queue manager connected to
    queue_manager: str | None = None
    #: None: as the options specify
    retain: bool | None = None
    clear: bool = False
    #: full name -> value
    properties: dict[str, str | int | bool | Typed] | None = None
    kept: KeptRequest | None = None
    #: the row must not be put
    refusal: RowRefusal | None = None
    #: why its text cannot be encoded in its CCSID. The message contains the text in UTF-8
    unencodable: Unmappable | None = None


def rows_of(batch: Any, persistence: int = cmqc.MQPER_PERSISTENCE_AS_Q_DEF) -> Iterator[PutRow]:
    """Yield the messages of the rows of a record batch. `persistence` is that of rows without one.

    Raises ValueError for a value that does not fit its field of the message.
    """
    described = ("format", "ccsid", "encoding")
    message = ("headers", "rfh2", "body", "queue", "topic", "queue_manager", "retain", "clear")
    mapped = ("properties", "kept_request", "refusal")
    mds = _descriptors(batch.column("md") if "md" in batch.schema.names else None, batch.num_rows)
    columns = (column_values(batch, name) for name in (*described, *message, *mapped))
    #: MQMDs of messages without headers and fields of the MQMD, by their description
    plain: dict[tuple[Any, ...], MQMD] = {}
    for row in zip(mds, *columns, strict=True):
        md, format_, ccsid, encoding, headers, rfh2, body, queue, topic, queue_manager, retain, clear, *more = row
        unencodable = None
        if isinstance(body, str):
            outer = md if headers is None else {}
            try:
                body = _encoded(body, ccsid or outer.get("CodedCharSetId"), encoding or outer.get("Encoding"))
            except Unmappable as error:
                # A dead letter contains the whole text.
                body, ccsid = body.encode(), CCSID_UTF8
                unencodable = error
        data = body or b""
        if md or headers is not None or rfh2:
            md.setdefault("Persistence", persistence)
            fields = _description(format_, ccsid, encoding)
            mq_message = (
                _exact(md, headers, data, fields) if headers is not None else _built(md, rfh2 or (), data, fields)
            )
        else:
            if (descriptor := plain.get(key := (format_, ccsid, encoding))) is None:
                descriptor = plain[key] = MQMD(Persistence=persistence, **_description(*key))
            mq_message = Message(descriptor, data)
        yield PutRow(
            mq_message,
            queue or None,
            topic or None,
            queue_manager,
            retain,
            bool(clear),
            more[0] and _properties(more[0]),
            more[1] and _kept_request(more[1]),
            RowRefusal.of(more[2]),
            unencodable,
        )


def _description(format_: str | None, ccsid: int | None, encoding: int | None) -> dict[str, Any]:
    """Return the fields of the MQMD that describe a body."""
    format_field = None if format_ is None else _chars("Format", format_)
    fields = {"Format": format_field, "CodedCharSetId": ccsid, "Encoding": encoding}
    return {name: value for name, value in fields.items() if value is not None}


def _encoded(text: str, ccsid: int | None, encoding: int | None) -> bytes:
    """Return text in a CCSID, by default UTF-8. Raises Unmappable: MQRC_TARGET_CCSID_ERROR, MQRC_NOT_CONVERTED."""
    if ccsid is None or ccsid <= 0 or ccsid == CCSID_UTF8:
        return text.encode()
    if (characters := character_set(ccsid, encoding or cmqc.MQENC_NATIVE)) is None:
        raise Unmappable(cmqc.MQRC_TARGET_CCSID_ERROR, f"CCSID {ccsid} of the text is unknown")
    try:
        return characters.encode(text)
    except UnicodeEncodeError as error:
        why = f"CCSID {ccsid} has no {text[error.start]!r}, which is character {error.start + 1} of the text"
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, why) from error


def _properties(pairs: Any) -> dict[str, str | int | bool | Typed]:
    """Return message properties. Raises ValueError for an invalid number."""
    return {name: _number(name, value) if name in _NUMBERS else value for name, value in pairs if value is not None}


def _number(name: str, value: str) -> int:
    try:
        return _long(name, int(value))
    except ValueError as error:
        raise ValueError(f"property {name}: expected a signed 32-bit integer, found {value!r}") from error


def _kept_request(request: dict[str, Any]) -> KeptRequest:
    md = {name: _CONVERT[name](value) for name, value in (request["md"] or {}).items() if value is not None}
    return KeptRequest(request["queue"] or "", Message(_md(md), request["data"] or b""))


def _exact(md: dict[str, Any], headers: bytes, body: bytes, described: dict[str, Any]) -> Message:
    """Return a message with unchanged headers and body.

    Missing fields of `md` are derived from the headers or, without headers, from the description of the body.
    """
    outer = {"Format": _FORMAT_OF.get(headers[:4], cmqc.MQFMT_NONE)} if headers else described
    return Message(_md(outer | md), headers + body if headers else body)


def _built(md: dict[str, Any], rfh2: Any, body: bytes, described: dict[str, Any]) -> Message:
    """Return a message with an MQRFH2 that contains the given folders."""
    inner = {name: md[name] for name in ("Format", "CodedCharSetId", "Encoding") if name in md} | described
    if inner.get("Format") in HEADER_FORMATS and "Format" not in described:
        del inner["Format"]  # it announced a header that the row does not have
    folders = tuple(
        _folder(name, None if content is None else tuple(dict(content).items())) for name, content in dict(rfh2).items()
    )
    if not folders:
        return Message(_md({**{name: value for name, value in md.items() if name != "Format"}, **inner}), body)
    header = RFH2(
        Format=inner.get("Format", cmqc.MQFMT_NONE),
        CodedCharSetId=inner.get("CodedCharSetId", CCSID_UTF8),
        Encoding=inner.get("Encoding", cmqc.MQENC_NATIVE),
        folders=folders,
    )
    outer = {
        "Format": cmqc.MQFMT_RF_HEADER_2,
        "CodedCharSetId": CCSID_UTF8,
        "Encoding": cmqc.MQENC_NATIVE,
    }
    return Message(_md(md | outer), encode_rfh2(header) + body)


@lru_cache(maxsize=4096)
def _folder(name: str, content: tuple[tuple[str, str | None], ...] | None) -> Folder:
    """Return a folder of texts. `group.element` is an element in a group, `name[2]` the second of that name."""
    if content is None:
        raise ValueError(
            f"rfh2.{name} is null because the folder could not be parsed; hint: remove it, or also put the column headers"
        )
    tree: dict[str, Any] = {}
    for path, text in content:
        *groups, last = (step.partition("[")[0] for step in path.split("."))
        inside = tree
        for group in groups:
            inside = inside.setdefault(group, {})
            if not isinstance(inside, dict):
                raise ValueError(f"rfh2.{name}: {group} is an element with a text, and has {path} in it as well")
        if last in inside:
            there = inside[last]
            if isinstance(there, dict):
                raise ValueError(f"rfh2.{name}: {path} is a group, and has a text as well")
            inside[last] = [*there, text] if isinstance(there, list) else [there, text]
        else:
            inside[last] = text
    return Folder.build(name.partition("[")[0], tree)


# The MQMD ------------------------------------------------------------------------------------------------------------


def _md(fields: Mapping[str, Any]) -> MQMD:
    if "Version" not in fields and any(name in fields for name in _GROUP_NAMES):
        return MQMD(Version=cmqc.MQMD_VERSION_2, **fields)
    return MQMD(**fields)


def _descriptors(column: Any, count: int) -> list[dict[str, Any]]:
    """Return the fields of the MQMD that each row specifies: those that are not null."""
    descriptors: list[dict[str, Any]] = [{} for _ in range(count)]
    if column is None:
        return descriptors
    for field, array in zip(column.type, column.flatten(), strict=True):
        if array.null_count < count:
            convert = _CONVERT[field.name]
            for md, value in zip(descriptors, array.to_pylist(), strict=True):
                if value is not None:
                    md[field.name] = convert(value)
    return descriptors


@lru_cache(maxsize=65_536)
def _chars(name: str, text: str) -> bytes:
    """Return the bytes of an MQCHAR field."""
    encoded = field_of(text)
    width = int(_CODES[name][:-1])
    if len(encoded) > width:
        raise ValueError(f"md.{name}: expected at most {width} bytes, found {len(encoded)} in {text!r}")
    return encoded


def _bytes(name: str, value: bytes) -> bytes:
    """Return the bytes of an MQBYTE field. A shorter value is padded with zeros, as MQ does."""
    width = int(_CODES[name][:-1])
    if len(value) > width:
        raise ValueError(f"md.{name}: expected at most {width} bytes, found {len(value)} in {value.hex()}")
    return value.ljust(width, b"\0")


def _long(name: str, value: int) -> int:
    """Return the number of an MQLONG field."""
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"md.{name}: expected a signed 32-bit integer, found {value}")
    return value


_CONVERT: Final[dict[str, Callable[[Any], Any]]] = {
    name: partial(_long if code == "i" else _chars if code.endswith("s") else _bytes, name)
    for name, code in _CODES.items()
}
