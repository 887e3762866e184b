"""Command messages in Programmable Command Formats: an MQCFH, followed by parameter structures.

A parameter is an integer, a string, a list of either, a filter or a group of parameters. Each structure begins with its
type and length. Strings are padded with NULs to a multiple of four bytes, which StringLength does not count.

Source: IBM MQ, "Structures for commands and responses" (MQCFH, MQCFIN, MQCFST ...) and "MQCFGR - PCF group parameter".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.structure import Buffer, ByteOrder, MalformedHeader

#: The maximum nesting of groups, to protect the stack.
MAX_DEPTH: Final = 8
_HEADER_LENGTH: Final = cmqcfc.MQCFH_STRUC_LENGTH
_SIGN: Final = {"little": "<", "big": ">"}


class MQCFH(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The header of a command message. In ParameterCount, a group counts as one parameter."""

    Type: int = cmqcfc.MQCFT_COMMAND
    Version: int = cmqcfc.MQCFH_VERSION_1
    Command: int = cmqcfc.MQCMD_NONE
    MsgSeqNumber: int = 1
    Control: int = cmqcfc.MQCFC_LAST
    CompCode: int = cmqc.MQCC_OK
    Reason: int = cmqc.MQRC_NONE
    ParameterCount: int = 0


class MQCFIN(msgspec.Struct, frozen=True, gc=False):
    """A 32-bit integer."""

    Parameter: int
    Value: int


class MQCFIN64(msgspec.Struct, frozen=True, gc=False):
    """A 64-bit integer."""

    Parameter: int
    Value: int


class MQCFIL(msgspec.Struct, frozen=True, gc=False):
    """A list of 32-bit integers."""

    Parameter: int
    Values: tuple[int, ...]


class MQCFIL64(msgspec.Struct, frozen=True, gc=False):
    """A list of 64-bit integers."""

    Parameter: int
    Values: tuple[int, ...]


class MQCFST(msgspec.Struct, frozen=True, gc=False):
    """A string, including trailing blanks."""

    Parameter: int
    String: bytes
    CodedCharSetId: int = cmqc.MQCCSI_DEFAULT


class MQCFSL(msgspec.Struct, frozen=True, gc=False):
    """A list of strings of equal length."""

    Parameter: int
    Strings: tuple[bytes, ...]
    CodedCharSetId: int = cmqc.MQCCSI_DEFAULT
    #: length of each string, without meaning for an empty list
    StringLength: int = 0


class MQCFBS(msgspec.Struct, frozen=True, gc=False):
    """A byte string."""

    Parameter: int
    String: bytes


class MQCFIF(msgspec.Struct, frozen=True, gc=False):
    """A filter on an integer attribute."""

    Parameter: int
    Operator: int
    FilterValue: int


class MQCFSF(msgspec.Struct, frozen=True, gc=False):
    """A filter on a string attribute."""

    Parameter: int
    Operator: int
    FilterValue: bytes
    CodedCharSetId: int = cmqc.MQCCSI_DEFAULT


class MQCFBF(msgspec.Struct, frozen=True, gc=False):
    """A filter on a byte string attribute."""

    Parameter: int
    Operator: int
    FilterValue: bytes


class MQCFGR(msgspec.Struct, frozen=True):
    """A group of parameters."""

    Parameter: int
    Parameters: tuple[PCFParameter, ...]


PCFParameter: TypeAlias = (
    MQCFIN | MQCFIN64 | MQCFIL | MQCFIL64 | MQCFST | MQCFSL | MQCFBS | MQCFIF | MQCFSF | MQCFBF | MQCFGR
)


def string_list(parameter: int, strings: Iterable[bytes], length: int = 0) -> MQCFSL:
    """Create an MQCFSL of strings padded with blanks to the longest string, or to `length` bytes if that is longer."""
    listed = tuple(strings)
    width = max((len(element) for element in listed), default=0)
    width = max(width, length, 1 if listed else 0)
    return MQCFSL(parameter, tuple(element.ljust(width) for element in listed), StringLength=width)


class _Kind(NamedTuple):
    """The layout of a parameter structure: Type, StrucLength, Parameter, other numbers, and a value of variable length."""

    structure: Any
    #: struct format of the fixed part
    format: str
    #: the other numbers, in order
    fields: tuple[str, ...]
    #: field with the value of variable length. The last number of the fixed part is its length or count
    tail: str = ""
    #: "s" for a string, "i" or "q" for integers, "S" for strings of equal length, "" for parameters
    code: str = ""

    @property
    def name(self) -> str:
        return str(self.structure.__name__)

    @property
    def size(self) -> int:
        """The length of the fixed part."""
        return struct.calcsize("<" + self.format)


_KINDS: Final = {
    cmqcfc.MQCFT_INTEGER: _Kind(MQCFIN, "3ii", ("Value",)),
    cmqcfc.MQCFT_INTEGER64: _Kind(MQCFIN64, "3i4xq", ("Value",)),
    cmqcfc.MQCFT_INTEGER_LIST: _Kind(MQCFIL, "3ii", (), "Values", "i"),
    cmqcfc.MQCFT_INTEGER64_LIST: _Kind(MQCFIL64, "3ii", (), "Values", "q"),
    cmqcfc.MQCFT_STRING: _Kind(MQCFST, "3i2i", ("CodedCharSetId",), "String", "s"),
    cmqcfc.MQCFT_STRING_LIST: _Kind(MQCFSL, "3i3i", ("CodedCharSetId",), "Strings", "S"),
    cmqcfc.MQCFT_BYTE_STRING: _Kind(MQCFBS, "3ii", (), "String", "s"),
    cmqcfc.MQCFT_INTEGER_FILTER: _Kind(MQCFIF, "3i2i", ("Operator", "FilterValue")),
    cmqcfc.MQCFT_STRING_FILTER: _Kind(MQCFSF, "3i3i", ("Operator", "CodedCharSetId"), "FilterValue", "s"),
    cmqcfc.MQCFT_BYTE_STRING_FILTER: _Kind(MQCFBF, "3i2i", ("Operator",), "FilterValue", "s"),
    cmqcfc.MQCFT_GROUP: _Kind(MQCFGR, "3ii", (), "Parameters"),
}
_TYPES: Final = {kind.structure: type_ for type_, kind in _KINDS.items()}


def encode_pcf(header: MQCFH, parameters: Iterable[PCFParameter], *, byte_order: ByteOrder = "little") -> bytes:
    """Encode a command message. ParameterCount of the header is ignored, and set to the number of parameters.

    Raises MalformedHeader if a value does not fit its field.
    """
    sign = _SIGN[byte_order]
    listed = tuple(parameters)
    type_, *others = msgspec.structs.astuple(msgspec.structs.replace(header, ParameterCount=len(listed)))
    parts = [_pack("MQCFH", sign, "9i", type_, _HEADER_LENGTH, *others)]
    _encode(listed, sign, parts, 0)
    return b"".join(parts)


def _pack(structure: str, sign: str, code: str, *numbers: int) -> bytes:
    try:
        return struct.pack(sign + code, *numbers)
    except struct.error as error:
        raise MalformedHeader(structure, 0, f"a number does not fit its field: {error}") from error


def _encode(parameters: Iterable[PCFParameter], sign: str, parts: list[bytes], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise MalformedHeader("MQCFGR", 0, f"groups are nested more than {MAX_DEPTH} deep")
    for parameter in parameters:
        kind = _KINDS[_TYPES[type(parameter)]]
        numbers = [getattr(parameter, field) for field in kind.fields]
        tail = b""
        if kind.tail:
            value = getattr(parameter, kind.tail)
            numbers.append(len(value))
            if isinstance(parameter, MQCFSL):
                numbers.append(parameter.StringLength)
                if any(len(text) != parameter.StringLength or not text for text in parameter.Strings):
                    rule = f"each string has StringLength, {parameter.StringLength}, bytes, and at least 1"
                    raise MalformedHeader(kind.name, 0, rule)
                tail = b"".join(parameter.Strings)
            elif kind.code == "s":
                tail = value
            elif kind.code:
                tail = _pack(kind.name, sign, f"{len(value)}{kind.code}", *value)
        tail += bytes(-len(tail) % 4)
        fixed = (_TYPES[type(parameter)], kind.size + len(tail), parameter.Parameter, *numbers)
        parts += (_pack(kind.name, sign, kind.format, *fixed), tail)
        if isinstance(parameter, MQCFGR):
            _encode(parameter.Parameters, sign, parts, depth + 1)


def decode_pcf(buffer: Buffer, *, byte_order: ByteOrder = "little") -> tuple[MQCFH, tuple[PCFParameter, ...]]:
    """Decode header and parameters of a command message, which must fill the buffer.

    Raises MalformedHeader. `structure` is the name of the invalid structure.
    """
    reader = _Reader(buffer, _SIGN[byte_order])
    type_, length, *others = reader.numbers("MQCFH", "9i", 0)
    if length != _HEADER_LENGTH:
        raise MalformedHeader("MQCFH", 4, f"StrucLength is {length}, not {_HEADER_LENGTH}")
    header = MQCFH(**dict(zip(MQCFH.__struct_fields__, (type_, *others), strict=True)))
    reader.offset = _HEADER_LENGTH
    parameters = reader.parameters(header.ParameterCount, 0)
    if reader.offset != len(buffer):
        raise MalformedHeader("MQCFH", 32, f"{len(buffer) - reader.offset} bytes follow the last parameter")
    return header, parameters


class _Reader:
    """Reads consecutive parameters."""

    def __init__(self, buffer: Buffer, sign: str) -> None:
        self._buffer = bytes(buffer)
        self._sign = sign
        self.offset = 0

    def numbers(self, structure: str, code: str, offset: int) -> tuple[int, ...]:
        """Return the numbers at `offset`. Raises MalformedHeader if the buffer is too short."""
        try:
            return struct.unpack_from(self._sign + code, self._buffer, offset)
        except struct.error:
            raise MalformedHeader(structure, offset, "the buffer ends within it") from None

    def parameters(self, count: int, depth: int) -> tuple[PCFParameter, ...]:
        if depth > MAX_DEPTH:
            raise MalformedHeader("MQCFGR", self.offset, f"groups are nested more than {MAX_DEPTH} deep")
        # A structure has at least sixteen bytes. Reject an impossible count before allocating anything for it.
        if not 0 <= count <= (len(self._buffer) - self.offset) // 16:
            raise MalformedHeader("MQCFH", self.offset, f"ParameterCount is {count}, the parameters end before that")
        return tuple(self._parameter(depth) for _ in range(count))

    def _parameter(self, depth: int) -> PCFParameter:
        offset = self.offset
        type_, length, parameter = self.numbers("MQCFH", "3i", offset)
        kind = _KINDS.get(type_)
        if kind is None:
            raise MalformedHeader("MQCFH", offset, f"{type_} is not a parameter type")
        if length < kind.size or offset + length > len(self._buffer):
            rule = f"StrucLength is {length}: {kind.size} at least, and {len(self._buffer) - offset} are left"
            raise MalformedHeader(kind.name, offset + 4, rule)
        self.offset += length
        numbers = self.numbers(kind.name, kind.format, offset)[3:]
        fields: dict[str, Any] = dict(zip(kind.fields, numbers, strict=False))
        at, room = offset + kind.size, length - kind.size
        count = numbers[-1]
        if kind.code == "s":
            self._check(kind, offset, 0 <= count <= room, f"the string has {count} of {room} bytes")
            fields[kind.tail] = self._buffer[at : at + count]
        elif kind.code == "S":
            _, count, width = numbers
            fits = count >= 0 and width >= 0 and count * max(width, 1) <= room
            self._check(kind, offset, fits, f"{count} strings of {width} bytes in {room} bytes")
            fields |= {"Strings": tuple(self._buffer[at + width * n : at + width * (n + 1)] for n in range(count))}
            fields["StringLength"] = width
        elif kind.code:
            fits = count >= 0 and room == count * struct.calcsize("<" + kind.code)
            self._check(kind, offset, fits, f"Count is {count}, StrucLength is {length}")
            fields[kind.tail] = self.numbers(kind.name, f"{count}{kind.code}", at)
        else:
            self._check(kind, offset, not room, f"StrucLength is {length}, not {kind.size}")
            if kind.tail:
                fields[kind.tail] = self.parameters(count, depth + 1)
        pcf_parameter: PCFParameter = kind.structure(Parameter=parameter, **fields)
        return pcf_parameter

    @staticmethod
    def _check(kind: _Kind, offset: int, fits: bool, rule: str) -> None:
        if not fits:
            raise MalformedHeader(kind.name, offset + 4, rule)
