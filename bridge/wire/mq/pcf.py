"""Command messages in Programmable Command Formats: an MQCFH, followed by parameter structures.

A parameter is an integer, a string, a list of either, a filter or a group of parameters. Each structure begins with its
type and length. Strings are padded with NULs to a multiple of four bytes, which StringLength does not count.

Source: IBM MQ, "Structures for commands and responses" (MQCFH, MQCFIN, MQCFST ...) and "MQCFGR - PCF group parameter".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.structure import Buffer, ByteOrder, MalformedHeader

#: The maximum nesting of groups, to protect the stack.
MAX_DEPTH: Final = 8
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
    #: of each string; of an empty list it means nothing
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
    width = max((len(one) for one in listed), default=0)
    width = max(width, length, 1 if listed else 0)
    return MQCFSL(parameter, tuple(one.ljust(width) for one in listed), StringLength=width)


def encode_pcf(header: MQCFH, parameters: Iterable[PCFParameter], *, byte_order: ByteOrder = "little") -> bytes:
    """Encode a command message. ParameterCount of the header is ignored, and set to the number of parameters.

    Raises MalformedHeader if a value does not fit its field.
    """
    sign = _SIGN[byte_order]
    listed = tuple(parameters)
    first = (header.Type, cmqcfc.MQCFH_STRUC_LENGTH, header.Version, header.Command, header.MsgSeqNumber)
    last = (header.Control, header.CompCode, header.Reason, len(listed))
    parts = [_pack("MQCFH", sign, "9i", *first, *last)]
    _encode(listed, sign, parts, 0)
    return b"".join(parts)


def _pack(structure: str, sign: str, code: str, *numbers: int) -> bytes:
    try:
        return struct.pack(sign + code, *numbers)
    except struct.error as error:
        raise MalformedHeader(structure, 0, f"a number does not fit its field: {error}") from error


def _encode(parameters: Iterable[PCFParameter], sign: str, parts: list[bytes], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise MalformedHeader("MQCFGR", 0, f"groups lie more than {MAX_DEPTH} deep in each other")
    for one in parameters:
        head, tail = _structure(one, sign)
        parts.append(head)
        if tail:
            parts.append(tail)
            parts.append(bytes(-len(tail) % 4))
        if isinstance(one, MQCFGR):
            _encode(one.Parameters, sign, parts, depth + 1)


def _structure(one: PCFParameter, sign: str) -> tuple[bytes, bytes]:
    """Return the encoded fixed part of a structure, and the string after it without padding."""
    name = type(one).__name__
    match one:
        case MQCFIN():
            return _pack(name, sign, "4i", cmqcfc.MQCFT_INTEGER, 16, one.Parameter, one.Value), b""
        case MQCFIN64():
            return _pack(name, sign, "4iq", cmqcfc.MQCFT_INTEGER64, 24, one.Parameter, 0, one.Value), b""
        case MQCFIL():
            count = len(one.Values)
            numbers = (cmqcfc.MQCFT_INTEGER_LIST, 16 + 4 * count, one.Parameter, count, *one.Values)
            return _pack(name, sign, f"4i{count}i", *numbers), b""
        case MQCFIL64():
            count = len(one.Values)
            numbers = (cmqcfc.MQCFT_INTEGER64_LIST, 16 + 8 * count, one.Parameter, count, *one.Values)
            return _pack(name, sign, f"4i{count}q", *numbers), b""
        case MQCFST():
            length = len(one.String)
            numbers = (cmqcfc.MQCFT_STRING, 20 + _padded(length), one.Parameter, one.CodedCharSetId, length)
            return _pack(name, sign, "5i", *numbers), one.String
        case MQCFSL():
            if any(len(text) != one.StringLength or not text for text in one.Strings):
                raise MalformedHeader(
                    name, 0, f"each string has StringLength, {one.StringLength}, bytes, and at least 1"
                )
            whole = b"".join(one.Strings)
            numbers = (cmqcfc.MQCFT_STRING_LIST, 24 + _padded(len(whole)), one.Parameter, one.CodedCharSetId)
            return _pack(name, sign, "6i", *numbers, len(one.Strings), one.StringLength), whole
        case MQCFBS():
            length = len(one.String)
            numbers = (cmqcfc.MQCFT_BYTE_STRING, 16 + _padded(length), one.Parameter, length)
            return _pack(name, sign, "4i", *numbers), one.String
        case MQCFIF():
            numbers = (cmqcfc.MQCFT_INTEGER_FILTER, 20, one.Parameter, one.Operator, one.FilterValue)
            return _pack(name, sign, "5i", *numbers), b""
        case MQCFSF():
            length = len(one.FilterValue)
            numbers = (cmqcfc.MQCFT_STRING_FILTER, 24 + _padded(length), one.Parameter, one.Operator)
            return _pack(name, sign, "6i", *numbers, one.CodedCharSetId, length), one.FilterValue
        case MQCFBF():
            length = len(one.FilterValue)
            numbers = (cmqcfc.MQCFT_BYTE_STRING_FILTER, 20 + _padded(length), one.Parameter, one.Operator)
            return _pack(name, sign, "5i", *numbers, length), one.FilterValue
        case MQCFGR():
            return _pack(name, sign, "4i", cmqcfc.MQCFT_GROUP, 16, one.Parameter, len(one.Parameters)), b""


def _padded(length: int) -> int:
    return length + -length % 4


def decode_pcf(buffer: Buffer, *, byte_order: ByteOrder = "little") -> tuple[MQCFH, tuple[PCFParameter, ...]]:
    """Decode header and parameters of a command message, which must fill the buffer.

    Raises MalformedHeader. `structure` is the name of the invalid structure.
    """
    reader = _Reader(buffer, _SIGN[byte_order])
    fields = reader.numbers("MQCFH", "9i", 0)
    if fields[1] != cmqcfc.MQCFH_STRUC_LENGTH:
        raise MalformedHeader("MQCFH", 4, f"StrucLength is {fields[1]}, not {cmqcfc.MQCFH_STRUC_LENGTH}")
    header = MQCFH(
        Type=fields[0],
        Version=fields[2],
        Command=fields[3],
        MsgSeqNumber=fields[4],
        Control=fields[5],
        CompCode=fields[6],
        Reason=fields[7],
        ParameterCount=fields[8],
    )
    reader.offset = cmqcfc.MQCFH_STRUC_LENGTH
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
            raise MalformedHeader("MQCFGR", self.offset, f"groups lie more than {MAX_DEPTH} deep in each other")
        # A structure has at least sixteen bytes: a count that cannot be is refused before anything is made of it.
        if not 0 <= count <= (len(self._buffer) - self.offset) // 16:
            raise MalformedHeader("MQCFH", self.offset, f"ParameterCount is {count}, the parameters end before that")
        return tuple(self._parameter(depth) for _ in range(count))

    def _parameter(self, depth: int) -> PCFParameter:
        offset = self.offset
        type_, length, parameter = self.numbers("MQCFH", "3i", offset)
        known = _KINDS.get(type_)
        if known is None:
            raise MalformedHeader("MQCFH", offset, f"{type_} is not a parameter type")
        name, fixed = known
        if length < fixed or offset + length > len(self._buffer):
            left = len(self._buffer) - offset
            raise MalformedHeader(name, offset + 4, f"StrucLength is {length}: {fixed} at least, and {left} are left")
        self.offset += length
        rest = self.numbers(name, f"{fixed // 4 - 3}i", offset + 12)
        match type_:
            case cmqcfc.MQCFT_INTEGER:
                self._exact(name, offset, length, fixed)
                return MQCFIN(parameter, rest[0])
            case cmqcfc.MQCFT_INTEGER64:
                self._exact(name, offset, length, fixed)
                return MQCFIN64(parameter, self.numbers(name, "q", offset + 16)[0])
            case cmqcfc.MQCFT_INTEGER_LIST | cmqcfc.MQCFT_INTEGER64_LIST:
                return self._integers(type_, parameter, offset, length, rest[0])
            case cmqcfc.MQCFT_STRING:
                return MQCFST(parameter, self._string(name, offset, fixed, length, rest[1]), rest[0])
            case cmqcfc.MQCFT_STRING_LIST:
                return self._strings(parameter, offset, length, *rest)
            case cmqcfc.MQCFT_BYTE_STRING:
                return MQCFBS(parameter, self._string(name, offset, fixed, length, rest[0]))
            case cmqcfc.MQCFT_INTEGER_FILTER:
                self._exact(name, offset, length, fixed)
                return MQCFIF(parameter, rest[0], rest[1])
            case cmqcfc.MQCFT_STRING_FILTER:
                return MQCFSF(parameter, rest[0], self._string(name, offset, fixed, length, rest[2]), rest[1])
            case cmqcfc.MQCFT_BYTE_STRING_FILTER:
                return MQCFBF(parameter, rest[0], self._string(name, offset, fixed, length, rest[1]))
            case _:
                self._exact(name, offset, length, fixed)
                return MQCFGR(parameter, self.parameters(rest[0], depth + 1))

    @staticmethod
    def _exact(name: str, offset: int, length: int, expected: int) -> None:
        if length != expected:
            raise MalformedHeader(name, offset + 4, f"StrucLength is {length}, not {expected}")

    def _integers(self, type_: int, parameter: int, offset: int, length: int, count: int) -> MQCFIL | MQCFIL64:
        wide = type_ == cmqcfc.MQCFT_INTEGER64_LIST
        name = "MQCFIL64" if wide else "MQCFIL"
        if count < 0 or length != 16 + count * (8 if wide else 4):
            raise MalformedHeader(name, offset + 12, f"Count is {count}, StrucLength is {length}")
        values = self.numbers(name, f"{count}{'q' if wide else 'i'}", offset + 16)
        return MQCFIL64(parameter, values) if wide else MQCFIL(parameter, values)

    def _string(self, name: str, offset: int, fixed: int, length: int, string_length: int) -> bytes:
        if not 0 <= string_length <= length - fixed:
            raise MalformedHeader(name, offset + fixed - 4, f"the string has {string_length} of {length} bytes")
        return self._buffer[offset + fixed : offset + fixed + string_length]

    def _strings(self, parameter: int, offset: int, length: int, ccsid: int, count: int, string_length: int) -> MQCFSL:
        fixed = cmqcfc.MQCFSL_STRUC_LENGTH_FIXED
        if count < 0 or string_length < 0 or count * max(string_length, 1) > max(length - fixed, 0):
            raise MalformedHeader("MQCFSL", offset + 16, f"{count} strings of {string_length} bytes in {length} bytes")
        at = offset + fixed
        strings = (self._buffer[at + string_length * n : at + string_length * (n + 1)] for n in range(count))
        return MQCFSL(parameter, tuple(strings), ccsid, string_length)


#: type -> (name, length without a value behind it)
_KINDS: Final = {
    cmqcfc.MQCFT_INTEGER: ("MQCFIN", cmqcfc.MQCFIN_STRUC_LENGTH),
    cmqcfc.MQCFT_INTEGER64: ("MQCFIN64", cmqcfc.MQCFIN64_STRUC_LENGTH),
    cmqcfc.MQCFT_INTEGER_LIST: ("MQCFIL", cmqcfc.MQCFIL_STRUC_LENGTH_FIXED),
    cmqcfc.MQCFT_INTEGER64_LIST: ("MQCFIL64", cmqcfc.MQCFIL64_STRUC_LENGTH_FIXED),
    cmqcfc.MQCFT_STRING: ("MQCFST", cmqcfc.MQCFST_STRUC_LENGTH_FIXED),
    cmqcfc.MQCFT_STRING_LIST: ("MQCFSL", cmqcfc.MQCFSL_STRUC_LENGTH_FIXED),
    cmqcfc.MQCFT_BYTE_STRING: ("MQCFBS", cmqcfc.MQCFBS_STRUC_LENGTH_FIXED),
    cmqcfc.MQCFT_INTEGER_FILTER: ("MQCFIF", cmqcfc.MQCFIF_STRUC_LENGTH),
    cmqcfc.MQCFT_STRING_FILTER: ("MQCFSF", cmqcfc.MQCFSF_STRUC_LENGTH_FIXED),
    cmqcfc.MQCFT_BYTE_STRING_FILTER: ("MQCFBF", cmqcfc.MQCFBF_STRUC_LENGTH_FIXED),
    cmqcfc.MQCFT_GROUP: ("MQCFGR", cmqcfc.MQCFGR_STRUC_LENGTH),
}
