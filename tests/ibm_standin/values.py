"""Message properties between C programs and the queue manager. A value is the bytes of MQSETMP."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from bridge.mq.mqi import MQError, Property
from bridge.wire import cmqc
from tests.ibm_standin.frames import Reader, Writer

_NUMBERS: Final = {
    cmqc.MQTYPE_BOOLEAN: struct.Struct("<i"),
    cmqc.MQTYPE_INT8: struct.Struct("<b"),
    cmqc.MQTYPE_INT16: struct.Struct("<h"),
    cmqc.MQTYPE_INT32: struct.Struct("<i"),
    cmqc.MQTYPE_INT64: struct.Struct("<q"),
    cmqc.MQTYPE_FLOAT32: struct.Struct("<f"),
    cmqc.MQTYPE_FLOAT64: struct.Struct("<d"),
}
#: Replaces the count if the program passed no message handle.
_NO_HANDLE: Final = -1


def read_properties(reader: Reader) -> list[Property]:
    """Read the properties of a message that is put."""
    return [_read(reader) for _ in range(reader.long())]


def _read(reader: Reader) -> Property:
    name = reader.text(cmqc.MQRC_PROPERTY_NAME_ERROR)
    type_ = reader.long()
    support, context, copy_options = reader.long(), reader.long(), reader.long()
    raw = reader.raw()
    number = _NUMBERS.get(type_)
    value: object
    if number is not None:
        if len(raw) != number.size:
            raise MQError(cmqc.MQRC_PROPERTY_TYPE_ERROR, f"{name}: {len(raw)} bytes of type {type_}")
        (value,) = number.unpack(raw)
        if type_ == cmqc.MQTYPE_BOOLEAN:
            value = bool(value)
    elif type_ == cmqc.MQTYPE_STRING:
        value = raw.decode(errors="surrogateescape")
    else:
        value = raw if type_ == cmqc.MQTYPE_BYTE_STRING else None
    return Property(name=name, type=type_, value=value, Support=support, Context=context, CopyOptions=copy_options)


def write_properties(writer: Writer, properties: Sequence[Property] | None) -> None:
    """Write the properties of a got message, or None without a message handle."""
    writer.long(_NO_HANDLE if properties is None else len(properties))
    for message_property in properties or ():
        # In a message handle, a property of the folder usr has no prefix.
        writer.text(message_property.name.removeprefix("usr."))
        writer.long(message_property.type).long(message_property.Support).long(message_property.Context).long(
            message_property.CopyOptions
        )
        number = _NUMBERS.get(message_property.type)
        if number is not None:
            writer.raw(number.pack(message_property.value))
        elif message_property.type == cmqc.MQTYPE_STRING:
            writer.text(message_property.value)
        else:
            writer.raw(message_property.value if message_property.type == cmqc.MQTYPE_BYTE_STRING else b"")
