"""A fixed-length MQ structure as a table of fields, packed and unpacked in either byte order.

The structures differ only in their tables. This module contains the common part: an MQLONG has 4 bytes in the given byte
order, an MQCHARn is padded with blanks, and an MQBYTEn has n unchanged bytes. Nothing is aligned, because the length of
every field is a multiple of 4 bytes. Source: IBM MQ, "Elementary data types" and each structure's topic.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias, get_args, get_type_hints

from bridge.wire import cmqc

Buffer: TypeAlias = bytes | bytearray | memoryview
ByteOrder: TypeAlias = Literal["little", "big"]

LONG: Final = "i"


class MalformedHeader(ValueError):
    """Bytes are not a valid structure, or values do not fit into a structure.

    :ivar structure: IBM's name of the structure, such as `"MQRFH2"`.
    :ivar offset: position of the error in bytes, from the start of the buffer passed to the decoder (not of the structure).
        When encoding, the position in the encoded bytes.
    :ivar rule: the expected and the actual value, for a log line.
    """

    def __init__(self, structure: str, offset: int, rule: str) -> None:
        super().__init__(structure, offset, rule)  # all three in args: the exception survives pickling (Spark workers)
        self.structure = structure
        self.offset = offset
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.structure} at offset {self.offset}: {self.rule}"


def fields_of(structure: type) -> tuple[tuple[str, str], ...]:
    """Return the names and formats of the fields of a class, without those that are neither numbers nor bytes.

    The annotation `Annotated[bytes, "ns"]` is an MQCHARn field, whose value has no trailing blanks. `Annotated[bytes, "nb"]`
    is an MQBYTEn field, whose value has exactly n bytes.
    """
    fields: list[tuple[str, str]] = []
    for name, hint in get_type_hints(structure, include_extras=True).items():
        kind, *metadata = get_args(hint) or (hint,)
        if kind is int:
            fields.append((name, LONG))
        elif kind is bytes:
            fields.append((name, metadata[0]))
    return tuple(fields)


def _none(_values: Sequence[Any]) -> tuple[bytes, ...]:
    return ()


class Layout:
    """The fields of one version of a structure.

    :ivar name: IBM's name of the structure.
    :ivar fields: names of the fields after StrucId, in order.
    :ivar offsets: field name, including StrucId -> bytes from the start of the structure.
    :ivar length: length of the structure in bytes.
    """

    def __init__(self, name: str, struc_id: bytes, *fields: tuple[str, str]) -> None:
        self.name = name
        self.struc_id = struc_id
        self.fields = tuple(field for field, _ in fields)
        self.offsets: dict[str, int] = {"StrucId": 0}
        format_ = "4s"
        chars: list[tuple[int, int]] = []
        bytes_: list[tuple[int, int]] = []
        for index, (field, code) in enumerate(fields):
            self.offsets[field] = struct.calcsize("<" + format_)
            if code == LONG:
                format_ += code
                continue
            width = int(code[:-1])
            (chars if code.endswith("s") else bytes_).append((index, width))
            format_ += f"{width}s"
        self._chars = tuple(chars)
        self._char_indexes = tuple(index for index, _ in chars)
        # At least two indexes, so that it returns a tuple.
        self._char_values = itemgetter(*self._char_indexes, *self._char_indexes[:1]) if chars else _none
        self._longs = tuple(index for index, (_, code) in enumerate(fields) if code == LONG)
        #: (offset, width) of the character fields, including StrucId
        self.characters = ((0, 4), *((self.offsets[self.fields[index]], width) for index, width in chars))
        self._bytes = tuple(bytes_)
        self._structs = {"little": struct.Struct("<" + format_), "big": struct.Struct(">" + format_)}
        self.length = self._structs["little"].size

    def unpack(self, buffer: Buffer, offset: int, byte_order: ByteOrder) -> dict[str, Any]:
        """Return the fields of the structure at `offset`: field name -> value. Raises MalformedHeader."""
        return dict(zip(self.fields, self.values(buffer, offset, byte_order), strict=True))

    def values(self, buffer: Buffer, offset: int, byte_order: ByteOrder) -> list[Any]:
        """Return the values of the structure at `offset`, in the order of `fields`.

        Raises MalformedHeader if the buffer is too short, or if StrucId differs.
        """
        if len(buffer) - offset < self.length:
            length_left = max(len(buffer) - offset, 0)
            raise MalformedHeader(
                self.name, offset, f"the structure is {self.length} bytes long, {length_left} are left"
            )
        struc_id, *values = self._structs[byte_order].unpack_from(buffer, offset)
        if struc_id != self.struc_id:
            raise MalformedHeader(self.name, offset, f"StrucId is {struc_id!r}, not {self.struc_id!r}")
        # Strip only blanks. In MQ, a NUL ends a name, but the bytes after it must be preserved.
        stripped = map(bytes.rstrip, self._char_values(values), repeat(b" "))
        for index, value in zip(self._char_indexes, stripped, strict=False):
            values[index] = value
        return values

    def decode(
        self, buffer: Buffer, offset: int, byte_order: ByteOrder | None, version: int
    ) -> tuple[ByteOrder, dict[str, Any]]:
        """Return the byte order and the fields of a structure of this version, without Version. Raises MalformedHeader.

        Without `byte_order`, use the byte order in which Version has that value.
        """
        order, values = self.decode_values(buffer, offset, byte_order, version)
        return order, dict(zip(self.fields[1:], values, strict=True))

    def decode_values(
        self, buffer: Buffer, offset: int, byte_order: ByteOrder | None, version: int
    ) -> tuple[ByteOrder, list[Any]]:
        """Like `decode`, with the values in the order of `fields`, without Version. It is the first field."""
        order = byte_order or detect_byte_order(self.name, buffer, offset, (version,))
        actual_version, *values = self.values(buffer, offset, order)
        if actual_version != version:
            raise MalformedHeader(self.name, offset + 4, f"Version is {actual_version}, not {version}")
        return order, values

    def check(self, values: Sequence[Any]) -> None:
        """Check types, lengths and ranges of `values`, which are in the order of `fields`.

        A byte field may be shorter than its length, because the caller pads it. Raises MalformedHeader if a value does not
        fit its field.
        """
        for index in self._longs:
            value = values[index]
            if not isinstance(value, int) or not -0x80000000 <= value <= 0x7FFFFFFF:
                self._refuse(index, f"takes a signed 32-bit number, not {str(value)[:40]}")
        for index, width in self._chars + self._bytes:
            value = values[index]
            if not isinstance(value, bytes):
                self._refuse(index, f"takes bytes, not {type(value).__name__}")
            if len(value) > width:
                self._refuse(index, f"takes {width} bytes, not {len(value)}")

    def fitted(self, values: Sequence[Any]) -> dict[str, bytes]:
        """Return the character and byte fields that do not fit, truncated or padded to their lengths.

        `values` are in the order of `fields`.
        """
        fitted = {
            self.fields[index]: values[index][:width] for index, width in self._chars if len(values[index]) > width
        }
        for index, width in self._bytes:
            if len(values[index]) != width:
                fitted[self.fields[index]] = values[index][:width].ljust(width, b"\0")
        return fitted

    def pack(self, values: Sequence[Any], byte_order: ByteOrder) -> bytes:
        """Encode a structure. `values` are in the order of `fields`.

        Raises MalformedHeader if a value does not fit its field.
        """
        row = list(values)
        for index, width in self._chars:
            value = row[index]
            if len(value) > width:
                self._refuse(index, f"takes {width} bytes, not {len(value)}")
            row[index] = value.ljust(width)
        for index, width in self._bytes:
            if len(row[index]) != width:
                self._refuse(index, f"takes exactly {width} bytes, not {len(row[index])}")
        try:
            return self._structs[byte_order].pack(self.struc_id, *row)
        except struct.error:
            for index, value in enumerate(row):
                if isinstance(value, int) and not -0x80000000 <= value <= 0x7FFFFFFF:
                    self._refuse(index, f"takes a signed 32-bit number, not {value}")
            raise

    def _refuse(self, index: int, rule: str) -> None:
        field = self.fields[index]
        raise MalformedHeader(self.name, self.offsets[field], f"{field} {rule}")


def detect_byte_order(structure: str, buffer: Buffer, offset: int, versions: Sequence[int]) -> ByteOrder:
    """Return the byte order in which the Version field (the 4 bytes after StrucId) is one of `versions`.

    Versions are small numbers, so at most one byte order matches. Raises MalformedHeader if none does, or if the buffer is
    too short.
    """
    field = bytes(buffer[offset + 4 : offset + 8])
    if len(field) < 4:
        raise MalformedHeader(structure, offset, "the buffer ends before the Version field")
    if int.from_bytes(field, "little") in versions:
        return "little"
    if int.from_bytes(field, "big") in versions:
        return "big"
    version_names = " or ".join(map(str, versions))
    raise MalformedHeader(structure, offset + 4, f"Version is {version_names} in neither byte order: {field.hex()}")


def byte_order_of(encoding: int, structure: str, offset: int = 0) -> ByteOrder:
    """Return the byte order of the structure that an Encoding describes.

    `structure` and `offset` are for the error message. Raises MalformedHeader if the integer part of the encoding is neither
    normal nor reversed.
    """
    integers = encoding & cmqc.MQENC_INTEGER_MASK
    if integers == cmqc.MQENC_INTEGER_REVERSED:
        return "little"
    if integers == cmqc.MQENC_INTEGER_NORMAL:
        return "big"
    raise MalformedHeader(structure, offset, f"it is described by Encoding {encoding}, whose integer part is undefined")
