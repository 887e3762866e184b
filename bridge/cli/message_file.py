"""A message in a file: as `mqbridge mq get --json` prints it, or its data as they are."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from bridge.cli.failures import WRONG_USAGE, Failure
from bridge.mapping.made_message import message_of
from bridge.mapping.rules.scope import BYTE_FIELDS
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD, RFH2, Folder, MalformedHeader, encode_chain

_HEADERS = {"xqh": "MQXQH", "dlh": "MQDLH", "mde": "MQMDE"}


def message_in(file: Path, format_: str | None, ccsid: int | None) -> Message:
    """Read the message in a file; raise Failure where the file holds none, OSError where it cannot be read.

    JSON with `md` in it is what `mqbridge mq get --json` printed, or `mqbridge dlq export` wrote, whose MQDLH is taken off;
    unless a format or CCSID is given. All else is the data of a message, headers included.
    """
    data = file.read_bytes()
    if format_ is None and ccsid is None:
        try:
            view = msgspec.json.decode(data)
        except msgspec.DecodeError:
            view = None
        if isinstance(view, dict) and isinstance(view.get("md"), dict):
            return _message_of(view, file)
    return message_of(data, format_, ccsid)


def _message_of(view: dict[str, Any], file: Path) -> Message:
    if "data" in view:
        return _exported(view, file)
    for key, header in _HEADERS.items():
        if key in view:
            _refuse(file, f"a message without an {header}, which JSON does not show in full (give its bytes, and --format)")
    md = _descriptor(view, file)
    try:
        headers = [_rfh2(one, file) for one in view.get("rfh2", [])]
        format_, encoding, ccsid, data = encode_chain(headers, _body(view, file))
    except (MalformedHeader, TypeError) as error:
        _refuse(file, f"an RFH2 that can be written ({error})")
    if headers:
        md = msgspec.structs.replace(md, Format=format_, Encoding=encoding, CodedCharSetId=ccsid)
    return Message(md, data)


def _exported(view: dict[str, Any], file: Path) -> Message:
    """Return the message of a letter that `mqbridge dlq export` wrote, as it was before it was dead-lettered."""
    from bridge.mq.dead_letter import original_of

    return original_of(_descriptor(view, file), _base64(view["data"], "data", file))


def _descriptor(view: dict[str, Any], file: Path) -> MQMD:
    return MQMD(**{name: _field(name, value, file) for name, value in view["md"].items()})


def _body(view: dict[str, Any], file: Path) -> bytes:
    body = view.get("body", "")
    if not isinstance(body, str):
        _refuse(file, "text as body")
    if view.get("bodyEncoding", "utf-8") != "base64":
        return body.encode()
    return _base64(body, "body, as bodyEncoding says", file)


def _base64(text: Any, name: str, file: Path) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        _refuse(file, f"base64 as {name} ({error})")


def _rfh2(view: Any, file: Path) -> RFH2:
    folders = view.get("folders") if isinstance(view, dict) else None
    if not isinstance(folders, dict) or not all(isinstance(content, dict | list) for content in folders.values()):
        _refuse(file, "folders in each of rfh2, each with its properties")
    built = []
    for name, contents in folders.items():
        built += [Folder.build(name, one) for one in (contents if isinstance(contents, list) else [contents])]
    said = {key: view[key] for key in ("Encoding", "CodedCharSetId", "Flags", "NameValueCCSID") if key in view}
    return RFH2(Format=str(view.get("Format", "")).encode(), folders=tuple(built), **said)


def _field(name: str, value: Any, file: Path) -> Any:
    """Convert a field of the MQMD from its JSON value to the value that an MQMD holds."""
    if name not in MQMD.__struct_fields__:
        _refuse(file, f"fields of the MQMD only in md, not {name}")
    if not isinstance(getattr(MQMD(), name), bytes):
        return value if type(value) is int else _refuse(file, f"a number as md.{name}")
    if not isinstance(value, str):
        _refuse(file, f"text as md.{name}")
    try:
        return bytes.fromhex(value) if name in BYTE_FIELDS else value.encode()
    except ValueError as error:
        _refuse(file, f"hexadecimal digits as md.{name} ({error})")


def _refuse(file: Path, expected: str) -> NoReturn:
    raise Failure(f"{file}: expected {expected}", WRONG_USAGE)
