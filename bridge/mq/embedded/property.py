"""Message properties in the MQI and in the RFH2 before the message data.

=================== ===================== =============
type                value                 dt in the RFH2
=================== ===================== =============
MQTYPE_BOOLEAN      bool                  boolean
MQTYPE_BYTE_STRING  bytes                 bin.hex
MQTYPE_INT8 … INT64 int                   i1, i2, i4, i8
MQTYPE_FLOAT32, 64  float                 r4, r8
MQTYPE_STRING       str                   none
MQTYPE_NULL         None                  xsi:nil='true'
=================== ===================== =============

A property `folder.group.name` is the element `name` in `group` in the RFH2 folder `folder`. A name without a dot is in folder
`usr`. Folders that MQ does not define contain properties only if they have `content='properties'`. Source: IBM MQ
documentation, "Property names", "Property name restrictions", "NameValueData" of MQRFH2, "MQPD - Property descriptor".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from bridge.mq.mqi import MQError, Property
from bridge.telemetry.message import CCSID_UTF8
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, MalformedHeader, byte_order_of, decode_rfh2, encode_rfh2
from bridge.wire.mq.folder import write_value

__all__ = ["Property", "check_property", "merge", "read_folders", "split"]

#: Words that are not allowed as property names ("Property name restrictions").
RESERVED: Final = frozenset(("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"))
USER_FOLDER: Final = "usr"
#: Folders that contain properties without `content='properties'`.
PROPERTY_FOLDERS: Final = frozenset(
    (
        *("jms", "mcd", "mq", "mq_usr", "mqema", "mqext", "mqps", "mqtls", "mqtt"),
        *("sib", "sib_context", "sib_usr", "usr"),
    )
)
_PART: Final = re.compile(r"[^\W\d][\w$:-]*")
_INTEGER_BITS: Final = {cmqc.MQTYPE_INT8: 8, cmqc.MQTYPE_INT16: 16, cmqc.MQTYPE_INT32: 32, cmqc.MQTYPE_INT64: 64}
_DT: Final = {
    cmqc.MQTYPE_BOOLEAN: "boolean",
    cmqc.MQTYPE_BYTE_STRING: "bin.hex",
    cmqc.MQTYPE_INT8: "i1",
    cmqc.MQTYPE_INT16: "i2",
    cmqc.MQTYPE_INT32: "i4",
    cmqc.MQTYPE_INT64: "i8",
    cmqc.MQTYPE_FLOAT32: "r4",
    cmqc.MQTYPE_FLOAT64: "r8",
}
_TYPE: Final = {dt: type for type, dt in _DT.items()} | {"int": cmqc.MQTYPE_INT64}
_PYTHON: Final[dict[int, tuple[type, ...]]] = {
    cmqc.MQTYPE_BOOLEAN: (bool, int),
    cmqc.MQTYPE_BYTE_STRING: (bytes,),
    cmqc.MQTYPE_FLOAT32: (float, int),
    cmqc.MQTYPE_FLOAT64: (float, int),
    cmqc.MQTYPE_STRING: (str,),
    cmqc.MQTYPE_NULL: (type(None),),
} | dict.fromkeys(_INTEGER_BITS, (int,))
#: Element attributes that encode the MQPD: (field of Property, attribute, its default)
_DESCRIPTOR: Final = (
    ("Support", "support", cmqc.MQPD_SUPPORT_OPTIONAL),
    ("Context", "context", cmqc.MQPD_NO_CONTEXT),
    ("CopyOptions", "copy", cmqc.MQCOPY_DEFAULT),
)
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})


def check_property(message_property: Property) -> Property:
    """Validate and normalize a property. Raises MQError with a reason code of MQSETMP."""
    parts = message_property.name.split(".")
    if len(message_property.name) > cmqc.MQ_MAX_PROPERTY_NAME_LENGTH:
        raise MQError(cmqc.MQRC_PROPERTY_NAME_LENGTH_ERR, f"{len(message_property.name)} characters")
    if message_property.name.upper() in RESERVED or not all(_PART.fullmatch(part) for part in parts):
        raise MQError(cmqc.MQRC_PROPERTY_NAME_ERROR, f"{message_property.name!r} is not a valid property name")
    python = _PYTHON.get(message_property.type)
    value: Any = message_property.value
    if (
        python is None
        or not isinstance(message_property.value, python)
        or (isinstance(value, bool) and message_property.type in _INTEGER_BITS)
    ):
        raise MQError(
            cmqc.MQRC_PROPERTY_TYPE_ERROR, f"{message_property.name}: type {message_property.type}, value {value!r}"
        )
    bits = _INTEGER_BITS.get(message_property.type)
    if bits is not None and not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise MQError(cmqc.MQRC_PROP_NUMBER_FORMAT_ERROR, f"{message_property.name}: {value} does not fit {bits} bits")
    if message_property.type == cmqc.MQTYPE_BOOLEAN:
        value = bool(value)
    elif message_property.type in (cmqc.MQTYPE_FLOAT32, cmqc.MQTYPE_FLOAT64):
        value = _float(message_property, float(value))
    elif isinstance(value, str) and ("\0" in value or not _encodable(value)):
        raise MQError(
            cmqc.MQRC_PROP_VALUE_NOT_CONVERTED, f"{message_property.name}: {value!r} cannot be written in an RFH2"
        )
    return msgspec.structs.replace(message_property, value=value)


def _float(message_property: Property, value: float) -> float:
    if message_property.type == cmqc.MQTYPE_FLOAT64:
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise MQError(
            cmqc.MQRC_PROP_NUMBER_FORMAT_ERROR, f"{message_property.name}: {value} does not fit 32 bits"
        ) from None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def place(name: str) -> tuple[str, str]:
    """Return (folder, path of elements) of a property name."""
    folder, dot, path = name.partition(".")
    return (folder, path) if dot else (USER_FOLDER, folder)


def read_folder(folder: Folder) -> list[Property] | None:
    """Return the properties in a folder, or None if it is not a property folder or is malformed."""
    name = folder.name
    try:
        if name not in PROPERTY_FOLDERS and folder.attributes.get("content") != "properties":
            return None
        leaves = folder.leaves
    except MalformedHeader:
        return None
    properties: dict[str, Property] = {}
    for path, (value, attributes) in leaves:
        full = path if name == USER_FOLDER and "." not in path else f"{name}.{path}"
        properties.setdefault(full, _read(full, value, attributes))
    return list(properties.values())


def _read(name: str, value: Any, attributes: dict[str, str]) -> Property:
    type_ = cmqc.MQTYPE_NULL if value is None else _TYPE.get(attributes.get("dt", ""), cmqc.MQTYPE_STRING)
    message_property = Property(name=name, type=type_, value=value)
    for field, attribute, _ in _DESCRIPTOR:
        if attributes.get(attribute, "").isdecimal():
            setattr(message_property, field, int(attributes[attribute]))
    return message_property


def read_folders(folders: Iterable[Folder]) -> tuple[list[Property], tuple[Folder, ...]]:
    """Return the properties in the folders of an RFH2, and the folders that are not property folders."""
    properties: list[Property] = []
    rest: list[Folder] = []
    for folder in folders:
        folder_properties = read_folder(folder)
        if folder_properties is None:
            rest.append(folder)
        else:
            properties += folder_properties
    return properties, tuple(rest)


def write_folder(name: str, properties: Iterable[Property]) -> Folder:
    """Return a folder with these properties. Raises MQError if names conflict."""
    tree: dict[str, Any] = {}
    for message_property in properties:
        *groups, last = place(message_property.name)[1].split(".")
        level = tree
        for group in groups:
            level = level.setdefault(group, {})
            if not isinstance(level, dict):
                raise MQError(cmqc.MQRC_PROPERTY_NAME_ERROR, f"{message_property.name}: {group} is a property itself")
        if isinstance(level.get(last), dict):
            raise MQError(cmqc.MQRC_PROPERTY_NAME_ERROR, f"{message_property.name}: other properties are below it")
        level[last] = message_property
    parts = [f"<{name}>" if name in PROPERTY_FOLDERS else f"<{name} content='properties'>"]
    _write(parts, tree)
    parts.append(f"</{name}>")
    data = "".join(parts).encode()
    return Folder(data + b" " * (-len(data) % 4))


def _write(parts: list[str], tree: dict[str, Any]) -> None:
    for name, node in tree.items():
        if isinstance(node, dict):
            parts.append(f"<{name}>")
            _write(parts, node)
        else:
            text, attributes = _written(node)
            described = "".join(
                f" {attribute}='{getattr(node, field)}'"
                for field, attribute, default in _DESCRIPTOR
                if getattr(node, field) != default
            )
            parts.append(f"<{name}{attributes}{described}>{text.translate(_ESCAPES)}")
        parts.append(f"</{name}>")


def _written(message_property: Property) -> tuple[str, str]:
    """Return (text, dt attribute) of a value."""
    if message_property.value is None:
        return "", " xsi:nil='true'"
    text, _ = write_value(message_property.value)
    dt = _DT.get(message_property.type)
    return text, f" dt='{dt}'" if dt is not None else ""


def leading(md: MQMD, data: bytes) -> tuple[RFH2, bytes] | None:
    """Return the RFH2 at the start of message data and the data after it, or None if there is no readable RFH2."""
    if md.Format != cmqc.MQFMT_RF_HEADER_2:
        return None
    try:
        header = decode_rfh2(data, 0, byte_order=byte_order_of(md.Encoding, "MQRFH2"))
    except MalformedHeader:
        return None
    return header, data[header.StrucLength :]


def merge(md: MQMD, data: bytes, properties: Sequence[Property]) -> tuple[MQMD, bytes]:
    """Add properties to the leading RFH2 of a message, which is created if necessary. Return MQMD and data.

    Properties with the same names are replaced. All other folders are unchanged. Raises MQError.
    """
    by_name = {
        message_property.name: check_property(message_property) for message_property in map(_canonical, properties)
    }
    own = leading(md, data)
    if own is None or own[0].NameValueCCSID != CCSID_UTF8:
        header = RFH2(Encoding=md.Encoding, CodedCharSetId=md.CodedCharSetId, Format=md.Format)
        rest = data
        md = described(md)
    else:
        header, rest = own
    by_folder: dict[str, dict[str, Property]] = {}
    for message_property in by_name.values():
        by_folder.setdefault(place(message_property.name)[0], {})[message_property.name] = message_property
    folders: list[Folder] = []
    for folder in header.folders:
        new = by_folder.get(folder.name)
        old = read_folder(folder) if new is not None else None
        if new is None or old is None:
            folders.append(folder)
            continue
        del by_folder[folder.name]
        folders.append(
            write_folder(
                folder.name, ({message_property.name: message_property for message_property in old} | new).values()
            )
        )
    folders += [write_folder(name, folder_properties.values()) for name, folder_properties in by_folder.items()]
    byte_order = byte_order_of(md.Encoding, "MQRFH2")
    return md, encode_rfh2(msgspec.structs.replace(header, folders=tuple(folders)), byte_order=byte_order) + rest


def _canonical(message_property: Property) -> Property:
    folder, path = place(message_property.name)
    return (
        msgspec.structs.replace(message_property, name=path)
        if folder == USER_FOLDER and "." not in path
        else message_property
    )


def described(md: MQMD) -> MQMD:
    """Return the MQMD for a message that begins with an RFH2 created by the queue manager."""
    return msgspec.structs.replace(
        md, Format=cmqc.MQFMT_RF_HEADER_2, Encoding=cmqc.MQENC_NATIVE, CodedCharSetId=CCSID_UTF8
    )


def split(md: MQMD, data: bytes) -> tuple[MQMD, bytes, list[Property]]:
    """Return MQMD and data without properties, and the properties: the inverse of `merge`. Other folders stay in the RFH2."""
    own = leading(md, data)
    if own is None:
        return md, data, []
    header, rest = own
    properties, folders = read_folders(header.folders)
    if folders:
        byte_order = byte_order_of(md.Encoding, "MQRFH2")
        return (
            md,
            encode_rfh2(msgspec.structs.replace(header, folders=folders), byte_order=byte_order) + rest,
            properties,
        )
    ccsid = header.CodedCharSetId
    inner = msgspec.structs.replace(
        md,
        Format=header.Format,
        Encoding=header.Encoding,
        CodedCharSetId=md.CodedCharSetId if ccsid == cmqc.MQCCSI_INHERIT else ccsid or CCSID_UTF8,
    )
    further = split(inner, rest)
    return further[0], further[1], properties + further[2]
