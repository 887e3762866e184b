"""Payload conversion between UTF-8 (MQTT) and the CCSIDs of MQ, and JSON parsing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from bridge.telemetry.message import CCSID_UTF8, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq.ccsid import CharacterSet, character_set

#: Maximum number of payload bytes in an error message.
_SHOWN = 40


def text_of(data: bytes, ccsid: int, encoding: int = cmqc.MQENC_NATIVE) -> str:
    """Decode text in a CCSID. Raises Unmappable: MQRC_SOURCE_CCSID_ERROR, MQRC_NOT_CONVERTED."""
    characters = character_set(ccsid, encoding)
    if characters is None:
        raise Unmappable(cmqc.MQRC_SOURCE_CCSID_ERROR, f"CCSID {ccsid} of the message is unknown")
    try:
        return characters.decode(data)
    except UnicodeDecodeError as error:
        why = f"the payload is not text in CCSID {ccsid}: {_shown(data[error.start :])} at byte {error.start}"
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, why) from error


def utf_8(data: bytes, ccsid: int, encoding: int = cmqc.MQENC_NATIVE) -> bytes:
    """Convert text in a CCSID to UTF-8. Raises Unmappable like `text_of`.

    UTF-8 is returned unchanged.
    """
    text = text_of(data, ccsid, encoding)
    return data if ccsid == CCSID_UTF8 else text.encode()


def in_ccsid(data: bytes, ccsid: int) -> bytes:
    """Convert UTF-8 text to another CCSID. Raises Unmappable: MQRC_NOT_CONVERTED, MQRC_TARGET_CCSID_ERROR."""
    text = text_of(data, CCSID_UTF8)
    if ccsid == CCSID_UTF8:
        return data
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
        raise Unmappable(cmqc.MQRC_TARGET_CCSID_ERROR, f"CCSID {ccsid}, which the mapping asks for, is not known here")
    return characters


def document_of(data: bytes) -> Any:
    """Parse a JSON document in UTF-8. Raises Unmappable.

    Only JSON according to RFC 8259 is accepted: no NaN, and no numbers beyond the range of a double.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        why = f"the payload is not JSON ({error}): {_shown(data)}"
        raise Unmappable(cmqc.MQRC_FORMAT_ERROR, why) from error


def json_object(members: dict[str, str]) -> bytes:
    """Encode a JSON object of strings without white space, in the given order."""
    return msgspec.json.encode(members)


def _shown(data: bytes) -> str:
    return repr(data[:_SHOWN])[1:] + (f" and {len(data) - _SHOWN} bytes more" if len(data) > _SHOWN else "")
