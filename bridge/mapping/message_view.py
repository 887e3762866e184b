"""Messages as text and JSON, messages from a body and properties, and payloads between UTF-8 and CCSIDs."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from bridge.mapping.json_document import shown
from bridge.telemetry.headers import property_name
from bridge.telemetry.message import CCSID_UTF8, Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, MQMDE, MQXQH, RFH2, Folder, MalformedHeader, decode_chain, encode_chain
from bridge.wire.mq.ccsid import CharacterSet, character_set
from bridge.wire.mq.headers import MQDLH_LAYOUT
from bridge.wire.mq.mqmd import MQMD_LAYOUTS, MQMDE_LAYOUT

Json = dict[str, Any]

BYTE_FIELDS = frozenset({"MsgId", "CorrelId", "AccountingToken", "GroupId"})
_HEX_LINE = 16


def text_of(encoded: bytes, ccsid: int, encoding: int = cmqc.MQENC_NATIVE) -> str:
    """Decode text in a CCSID. Raises Unmappable: MQRC_SOURCE_CCSID_ERROR, MQRC_NOT_CONVERTED."""
    characters = character_set(ccsid, encoding)
    if characters is None:
        raise Unmappable(cmqc.MQRC_SOURCE_CCSID_ERROR, f"CCSID {ccsid} of the message is unknown")
    try:
        return characters.decode(encoded)
    except UnicodeDecodeError as error:
        why = f"the payload is not text in CCSID {ccsid}: {shown(encoded[error.start :])} at byte {error.start}"
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, why) from error


def utf_8(encoded: bytes, ccsid: int, encoding: int = cmqc.MQENC_NATIVE) -> bytes:
    """Convert text in a CCSID to UTF-8. Raises Unmappable like `text_of`.

    UTF-8 is returned unchanged.
    """
    text = text_of(encoded, ccsid, encoding)
    return encoded if ccsid == CCSID_UTF8 else text.encode()


def in_ccsid(encoded: bytes, ccsid: int) -> bytes:
    """Convert UTF-8 text to another CCSID. Raises Unmappable: MQRC_NOT_CONVERTED, MQRC_TARGET_CCSID_ERROR."""
    text = text_of(encoded, CCSID_UTF8)
    if ccsid == CCSID_UTF8:
        return encoded
    characters = target(ccsid)
    try:
        return characters.encode(text)
    except UnicodeEncodeError as error:
        why = f"CCSID {ccsid} has no {text[error.start]!r}, which is character {error.start + 1} of the payload"
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, why) from error


@lru_cache(maxsize=64)
def target(ccsid: int) -> CharacterSet:
    """Return the target character set. Raises Unmappable."""
    characters = character_set(ccsid)
    if characters is None:
        raise Unmappable(cmqc.MQRC_TARGET_CCSID_ERROR, f"CCSID {ccsid}, which the mapping specifies, is not known here")
    return characters


def json_object(members: dict[str, str]) -> bytes:
    """Encode a JSON object of strings without white space, in the given order."""
    return msgspec.json.encode(members)


class MessageView:
    """The parts of a message as returned by MQGET. A malformed header, with everything after it, counts as body."""

    def __init__(self, md: MQMD, data: bytes) -> None:
        self.md = md
        chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, data, strict=False)
        self.headers = chain.headers
        self.body = chain.body

    def json(self) -> Json:
        """Return the message as a JSON object.

        `md` is the MQMD of MQGET. `rfh2` contains one object for each MQRFH2. `xqh`, `dlh` and `mde` are present only if the
        message has such a header. `body` is encoded according to `bodyEncoding`: utf-8 if the bytes are valid UTF-8,
        otherwise base64.
        """
        view: Json = {"md": md_json(self.md), "rfh2": []}
        for header in self.headers:
            match header:
                case RFH2():
                    view["rfh2"].append(_rfh2(header))
                case MQXQH():
                    view.setdefault("xqh", _xqh(header))
                case MQDLH():
                    view.setdefault("dlh", _dlh(header))
                case MQMDE():
                    view.setdefault("mde", _structure(header, MQMDE_LAYOUT.fields))
        try:
            view["body"], view["bodyEncoding"] = self.body.decode(), "utf-8"
        except UnicodeDecodeError:
            view["body"], view["bodyEncoding"] = base64.b64encode(self.body).decode(), "base64"
        return view

    def text(self, *, verbose: bool = False, defaults: bool = True) -> str:
        """Return the body as text, or as a hex dump if it is binary. With `verbose`, the MQMD and the headers precede it.

        If `defaults` is false, MQMD fields with their default value are omitted.
        """
        body = body_text(self.body)
        if not verbose:
            return body
        lines = []
        for title, view in self.parts(defaults=defaults):
            lines += [title, *(f"  {name:<20} {value}".rstrip() for name, value in fields(view))]
        return "\n".join([*lines, f"body ({len(self.body)} bytes)", body])

    def parts(self, *, defaults: bool = True) -> Iterator[tuple[str, Json]]:
        """Yield the name and fields of the MQMD and of each header. `defaults` as in `text`."""
        md, usual = md_json(self.md), {} if defaults else md_json(MQMD())
        yield "MQMD", {name: value for name, value in md.items() if usual.get(name) != value}
        for header in self.headers:
            match header:
                case RFH2():
                    yield "MQRFH2", _rfh2(header)
                case MQXQH():
                    yield "MQXQH", _xqh(header)
                case MQDLH():
                    yield "MQDLH", _dlh(header)
                case MQMDE():
                    yield "MQMDE", _structure(header, MQMDE_LAYOUT.fields)


def md_json(md: MQMD) -> Json:
    """Return the fields of an MQMD, up to its version, by IBM's names: byte fields in hexadecimal, characters trimmed."""
    return _structure(md, MQMD_LAYOUTS[md.Version if md.Version in MQMD_LAYOUTS else cmqc.MQMD_VERSION_1].fields)


def _structure(structure: object, fields: tuple[str, ...]) -> Json:
    view: Json = {}
    for field in fields:
        value = getattr(structure, field)
        if not isinstance(value, bytes):
            view[field] = value
        elif field in BYTE_FIELDS:
            view[field] = value.hex().upper()
        else:
            view[field] = _characters(value)
    return view


def _characters(value: bytes) -> str:
    """Return an MQCHAR field without padding. A NUL ends it, as in IBM MQ."""
    return value.partition(b"\0")[0].decode(errors="replace").rstrip()


def _rfh2(header: RFH2) -> Json:
    folders: Json = {}
    for folder in header.folders:
        content = _content(folder)
        name = folder.name
        if name not in folders:
            folders[name] = content
        elif isinstance(folders[name], list):
            folders[name].append(content)
        else:
            folders[name] = [folders[name], content]
    return {
        "Encoding": header.Encoding,
        "CodedCharSetId": header.CodedCharSetId,
        "Format": _characters(header.Format),
        "Flags": header.Flags,
        "NameValueCCSID": header.NameValueCCSID,
        "folders": folders,
    }


def _content(folder: Folder) -> Any:
    """Return the content of a folder, or its raw NameValueData if it is malformed."""
    try:
        return _plain(folder.content)
    except MalformedHeader:
        return folder.NameValueData.decode(errors="replace").rstrip(" \0")


def _plain(value: Any) -> Any:
    """Convert a value of a folder to JSON.

    Bytes become hexadecimal. NaN and infinity become the words of the RFH2.
    """
    match value:
        case dict():
            return {name: _plain(element) for name, element in value.items()}
        case list():
            return [_plain(element) for element in value]
        case bytes():
            return value.hex().upper()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    return value


def _xqh(header: MQXQH) -> Json:
    return {
        "RemoteQName": _characters(header.RemoteQName),
        "RemoteQMgrName": _characters(header.RemoteQMgrName),
        "md": md_json(header.MsgDesc),
    }


def _dlh(header: MQDLH) -> Json:
    view = _structure(header, MQDLH_LAYOUT.fields[1:])
    return {"Reason": view.pop("Reason"), "ReasonName": cmqc.reason_name(header.Reason), **view}


def fields(view: Json, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the names and values of a view as text. Nested values have dotted names."""
    for name, value in view.items():
        if isinstance(value, dict):
            yield from fields(value, f"{prefix}{name}.")
        elif isinstance(value, list) and all(isinstance(element, dict) for element in value):
            for index, element in enumerate(value):
                yield from fields(element, f"{prefix}{name}[{index}].")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) and value.isprintable() else repr(value)


def body_text(body: bytes) -> str:
    """Return the body as text if it is printable UTF-8, otherwise as a hex dump."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _hex_dump(body)
    if all(character.isprintable() or character in "\t\r\n" for character in text):
        return text
    return _hex_dump(body)


def _hex_dump(body: bytes) -> str:
    lines = []
    for offset in range(0, len(body), _HEX_LINE):
        row = body[offset : offset + _HEX_LINE]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{offset:08x}  {row.hex(' '):<{_HEX_LINE * 3 - 1}}  |{characters}|")
    return "\n".join(lines)


def descriptor(
    body: bytes, *, persistent: bool, priority: int | None, expiry: int | None, ccsid: int | None = None
) -> MQMD:
    """Return the MQMD for a body: text (MQFMT_STRING) in the given CCSID or in UTF-8, otherwise MQFMT_NONE.

    Unless specified, persistence and priority are those of the queue or topic. `expiry` is in tenths of a second.
    """
    format_ = cmqc.MQFMT_STRING
    if ccsid is None:
        try:
            body.decode()
            ccsid = CCSID_UTF8
        except UnicodeDecodeError:
            format_, ccsid = cmqc.MQFMT_NONE, cmqc.MQCCSI_Q_MGR
    return MQMD(
        Format=format_,
        CodedCharSetId=ccsid,
        Persistence=cmqc.MQPER_PERSISTENT if persistent else cmqc.MQPER_PERSISTENCE_AS_Q_DEF,
        Priority=cmqc.MQPRI_PRIORITY_AS_Q_DEF if priority is None else priority,
        Expiry=cmqc.MQEI_UNLIMITED if expiry is None else expiry,
    )


def message_of(data: bytes, format_: str | None, ccsid: int | None, encoding: int | None = None) -> Message:
    """Return a message with the given data, Format, CCSID and Encoding. None selects the values of `mqbridge mq put`."""
    md = descriptor(data, persistent=False, priority=None, expiry=None)
    if format_ is not None:
        md = msgspec.structs.replace(md, Format=format_.encode(), CodedCharSetId=CCSID_UTF8)
    if ccsid is not None:
        md = msgspec.structs.replace(md, CodedCharSetId=ccsid)
    if encoding is not None:
        md = msgspec.structs.replace(md, Encoding=encoding)
    return Message(md, data)


def with_properties(message: Message, properties: Mapping[str, str]) -> Message:
    """Return the message with these message properties, in an RFH2 before its data."""
    md = message.md
    header = RFH2(
        Format=md.Format,
        Encoding=md.Encoding,
        CodedCharSetId=md.CodedCharSetId,
        folders=(Folder.build("usr", {property_name(name): value for name, value in properties.items()}),),
    )
    format_, encoding, ccsid, data = encode_chain([header], message.data)
    return Message(msgspec.structs.replace(md, Format=format_, Encoding=encoding, CodedCharSetId=ccsid), data)
