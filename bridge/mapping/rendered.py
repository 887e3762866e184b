"""Checks of rendered templates. All raise Unmappable with the rendered text."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.mqtt.topics import MQ_TOPIC_STR_LENGTH
from bridge.telemetry.headers import MQTT_LENGTH, is_mqtt_string
from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH
from bridge.telemetry.message import Unmappable
from bridge.telemetry.request import is_object_name
from bridge.wire import cmqc
from bridge.wire.mq.folder import Typed, read_value

if TYPE_CHECKING:  # pydantic takes long to import, and MQ applications do not need it
    from bridge.config.mapping import PropertyType

#: ObjectQMgrName may be a client identifier, which can contain any character (MQTT-3.1.3-5).
_QUEUE_MANAGER_LENGTH = 48
_WILDCARD = re.compile(r"[+#\0]")
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]{48}")
_IDENTIFIER_LENGTH = 24


def queue_name(text: str, noun: str = "queue", reason: int = cmqc.MQRC_OBJECT_NAME_ERROR) -> str:
    """Validate a queue name: 1 to 48 of MQ's characters. Returns it unchanged."""
    if not is_object_name(text):
        rule = "1 to 48 of the characters A-Z a-z 0-9 . _ / %"
        raise Unmappable(reason, f"{_cut(text)} is not a valid name for a {noun}, which has {rule}")
    return text


def queue_manager_name(text: str) -> str:
    """Validate the name of a queue manager, or a client identifier: 1 to 48 bytes. Returns it unchanged."""
    if not text or "\0" in text or len(text.encode()) > _QUEUE_MANAGER_LENGTH:
        why = f"{_cut(text)} is not a valid name for a queue manager or client, which has 1 to {_QUEUE_MANAGER_LENGTH} bytes"
        raise Unmappable(cmqc.MQRC_OBJECT_Q_MGR_NAME_ERROR, why)
    return text


def topic_string(text: str) -> str:
    """Validate a topic string for an MQ publication. Returns it unchanged."""
    if not text or _WILDCARD.search(text):
        raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, f"{_cut(text)} is not a valid topic name: {_topic_fault(text)}")
    if len(text) > MQ_TOPIC_STR_LENGTH:
        why = (
            f"{_cut(text)} is not a valid topic string: it has {len(text)} characters, of {MQ_TOPIC_STR_LENGTH} at most"
        )
        raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, why)
    return text


def topic_name(text: str) -> str:
    """Validate a topic name for an MQTT publication (MQTT-3.3.2-2, MQTT-4.7.3). Returns it unchanged."""
    if not text or _WILDCARD.search(text):
        raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, f"{_cut(text)} is not a valid topic name: {_topic_fault(text)}")
    return mqtt_string(text, "topic name", cmqc.MQRC_TOPIC_STRING_ERROR)


#: Type of a property in a mapping -> dt of its element in the RFH2.
_DT: dict[PropertyType, str | None] = {
    "string": None,
    "boolean": "boolean",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "float": "r4",
    "double": "r8",
    "bytes": "bin.hex",
}


def typed(type_: PropertyType, text: str) -> Typed:
    """Return the value of a property with its type."""
    dt = _DT[type_]
    try:
        value = read_value(text, dt)
        assert value is not None  # read_value returns None for xsi:nil only
        if isinstance(value, float):
            _check_range(value, dt, text)
        return Typed(value, dt)
    except ValueError as error:
        raise Unmappable(
            cmqc.MQRC_PROPERTY_TYPE_ERROR, f"{_cut(text)} is not a property of type {type_}: {error}"
        ) from error


def _check_range(number: float, dt: str | None, text: str) -> None:
    """Raise ValueError for digits beyond the range of a floating-point type."""
    if math.isinf(number) and text.strip(" +-")[:1].isdecimal():
        raise ValueError("it is beyond the range of 64 bits")
    if dt == "r4":
        try:
            struct.pack("<f", number)
        except OverflowError as error:
            raise ValueError("it is beyond the range of 32 bits") from error


def mqtt_string(text: str, noun: str, reason: int = cmqc.MQRC_NOT_CONVERTED) -> str:
    """Validate an MQTT UTF-8 string. Returns it unchanged."""
    if not is_mqtt_string(text):
        why = f"{_cut(text)} is not a valid {noun}, which has at most {MQTT_LENGTH} bytes and no U+0000"
        raise Unmappable(reason, why)
    return text


def identifier(text: str, field: str, reason: int) -> bytes:
    """Return the bytes of a MsgId or CorrelId from 48 hexadecimal digits, or from text of at most 24 bytes."""
    if _HEXADECIMAL.fullmatch(text):
        return bytes.fromhex(text)
    encoded = text.encode()
    if len(encoded) > _IDENTIFIER_LENGTH:
        rule = f"48 hexadecimal digits, or text of at most {_IDENTIFIER_LENGTH} bytes"
        raise Unmappable(reason, f"{_cut(text)} is not a valid {field}, which is {rule}")
    return encoded.ljust(_IDENTIFIER_LENGTH, b"\0")


def identifier_of_bytes(data: bytes, field: str, reason: int) -> bytes:
    """Return a MsgId or CorrelId that begins with the bytes, of which there are at most 24."""
    if len(data) > _IDENTIFIER_LENGTH:
        raise Unmappable(reason, f"{len(data)} bytes are too many for a {field}, which has {_IDENTIFIER_LENGTH}")
    return data.ljust(_IDENTIFIER_LENGTH, b"\0")


def correlation_of_bytes(data: bytes) -> bytes:
    """Validate the length of Correlation Data. Returns them unchanged."""
    if len(data) > MQTT_LENGTH:
        why = f"{len(data)} bytes are too many for Correlation Data, which have at most {MQTT_LENGTH}"
        raise Unmappable(cmqc.MQRC_NOT_CONVERTED, why)
    return data


def correlation(text: str) -> bytes:
    """Return the bytes of Correlation Data from the 48 hexadecimal digits of a CorrelId, or from text."""
    if _HEXADECIMAL.fullmatch(text):
        return bytes.fromhex(text)
    return mqtt_string(text, "Correlation Data").encode()


def user_identifier(text: str) -> bytes:
    """Return the bytes of MQMD.UserIdentifier: at most 12."""
    encoded = text.encode()
    if len(encoded) > USER_IDENTIFIER_LENGTH or b"\0" in encoded:
        why = f"{_cut(text)} is not a valid UserIdentifier, which has at most {USER_IDENTIFIER_LENGTH} bytes"
        raise Unmappable(cmqc.MQRC_MD_ERROR, why)
    return encoded.rstrip(b" ")


def _topic_fault(text: str) -> str:
    match = _WILDCARD.search(text)
    return "it is empty" if match is None else f"it has {'U+0000' if match[0] == chr(0) else match[0]} in it"


def _cut(text: str) -> str:
    return repr(text) if len(text) <= 100 else f"{text[:100]!r} and {len(text) - 100} characters more"


#: Name of a check -> the function that validates a rendered template and returns the value of the field.
CHECKS: Mapping[str, Callable[[str], Any]] = {
    "queue": queue_name,
    "queue manager": queue_manager_name,
    "reply queue": lambda text: queue_name(text, "reply queue", cmqc.MQRC_MISSING_REPLY_TO_Q).encode(),
    "reply queue manager": lambda text: queue_name(
        text, "queue manager to reply to", cmqc.MQRC_OBJECT_Q_MGR_NAME_ERROR
    ).encode(),
    "topic string": topic_string,
    "topic name": topic_name,
    "MsgId": partial(identifier, field="MsgId", reason=cmqc.MQRC_MSG_ID_ERROR),
    "CorrelId": partial(identifier, field="CorrelId", reason=cmqc.MQRC_CORREL_ID_ERROR),
    "UserIdentifier": user_identifier,
    "Correlation Data": correlation,
    "Content Type": partial(mqtt_string, noun="Content Type"),
    "User Property": partial(mqtt_string, noun="value of a user property"),
    "text": str,
}
#: The checks of fields that consist of bytes -> the function for the result of a template with the filter `bytes`.
BYTE_CHECKS: Mapping[str, Callable[[bytes], bytes]] = {
    "MsgId": partial(identifier_of_bytes, field="MsgId", reason=cmqc.MQRC_MSG_ID_ERROR),
    "CorrelId": partial(identifier_of_bytes, field="CorrelId", reason=cmqc.MQRC_CORREL_ID_ERROR),
    "Correlation Data": correlation_of_bytes,
}
