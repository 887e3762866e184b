"""The structures of the MQI as they lie in a C program's memory, in all their versions.

Layout: IBM MQ, "MQI application reference", data types used in the MQI, for 64-bit Linux: little-endian, an MQLONG on a
multiple of 4 bytes, pointers and MQHMSG on a multiple of 8. A caller's version says how much of a structure there is; the
answer is as long as the question, so nothing behind the end of it is written in the caller's memory.

A structure is read into a dict of its fields, and written by replacing fields in the bytes that came: pointers, reserved
fields and whatever else the queue manager does not know go back as they were.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from bridge.mq.mqi import MQError
from bridge.wire.mq import MQMD
from bridge.wire.mq.mqmd import GROUP_FIELDS, MQMD_FIELDS
from testing.ibm_standin import cmqc

LONG: Final = "i"
#: MQHMSG and pointers
WIDE: Final = "q"
#: MQCHARV: its characters travel beside the structure
STRING: Final = "V"
_SIZES: Final = {LONG: 4, WIDE: 8, STRING: 24}
_ALIGNMENTS: Final = {LONG: 4, WIDE: 8, STRING: 8}


def char(length: int) -> str:
    """Return the code of an MQCHARn: read as text up to its first NUL, without trailing blanks; written with blanks."""
    return f"{length}s"


def byte(length: int) -> str:
    """Return the code of an MQBYTEn."""
    return f"{length}b"


Fields = Sequence[tuple[str, str]]


class Structure:
    """One structure: what each version adds to the one before.

    :ivar lengths: length in bytes by version.
    :ivar places: field name -> (offset, code).
    """

    def __init__(self, name: str, struc_id: bytes, reason: int, *versions: Fields) -> None:
        self.name = name
        self.reason = reason
        self._struc_id = struc_id
        self._readers: dict[int, tuple[struct.Struct, tuple[tuple[str, str], ...]]] = {}
        self.places: dict[str, tuple[int, str]] = {}
        self.lengths: dict[int, int] = {}
        form = "<4s"
        known: list[tuple[str, str]] = []
        offset = 4
        aligned = 4
        for version, fields in enumerate(((("Version", LONG), *versions[0]), *versions[1:]), 1):
            for field, code in fields:
                size = _SIZES.get(code) or int(code[:-1])
                alignment = _ALIGNMENTS.get(code, 1)
                pad = -offset % alignment
                if field == fields[0][0] and version > 1:
                    self._finish(version - 1, form, known, offset + pad)
                form += "x" * pad + self._code(code, size)
                offset += pad
                aligned = max(aligned, alignment)
                if code != STRING:
                    known.append((field, code))
                self.places[field] = offset, code
                offset += size
        self._finish(len(versions), form, known, offset + -offset % aligned)

    @staticmethod
    def _code(code: str, size: int) -> str:
        if code in (LONG, WIDE):
            return code
        return f"{size}x" if code == STRING else f"{size}s"

    def _finish(self, version: int, form: str, known: list[tuple[str, str]], length: int) -> None:
        self._readers[version] = struct.Struct(form), tuple(known)
        self.lengths[version] = length

    def read(self, raw: bytes) -> dict[str, Any]:
        """Return the values of a structure by field name. Raises MQError for another StrucId, version or length."""
        version = int.from_bytes(raw[4:8], "little")
        if raw[:4] != self._struc_id or self.lengths.get(version) != len(raw):
            raise MQError(self.reason, f"{len(raw)} bytes with StrucId {raw[:4]!r}, version {version}")
        reader, known = self._readers[version]
        _, *values = reader.unpack_from(raw)
        return {
            field: _READERS[code[-1]](value) if code[-1] in _READERS else value
            for (field, code), value in zip(known, values, strict=True)
        }

    def written(self, raw: bytes, **values: Any) -> bytes:
        """Return the structure with other values in fields; those that the caller's version does not have are left out."""
        target = bytearray(raw)
        for field, value in values.items():
            offset, code = self.places[field]
            size = _SIZES.get(code) or int(code[:-1])
            if offset + size > len(target):
                continue
            if code in (LONG, WIDE):
                struct.pack_into("<" + code, target, offset, value)
            else:
                content = value.encode() if isinstance(value, str) else value
                filler = b"\0" if code.endswith("b") else b" "
                target[offset : offset + size] = content[:size].ljust(size, filler)
        return bytes(target)


def text(field: bytes) -> str:
    """Return a character field as text: a NUL ends it, as it does in C, and blanks fill it."""
    return _trimmed(field).decode(errors="replace")


def _trimmed(field: bytes) -> bytes:
    return field.partition(b"\0")[0].rstrip(b" ")


_READERS: Final[dict[str, Callable[[bytes], object]]] = {"s": text, "c": _trimmed}


_NAME: Final = char(48)

MQOD: Final = Structure(
    "MQOD",
    b"OD  ",
    cmqc.MQRC_OD_ERROR,
    (
        ("ObjectType", LONG),
        ("ObjectName", _NAME),
        ("ObjectQMgrName", _NAME),
        ("DynamicQName", _NAME),
        ("AlternateUserId", char(12)),
    ),
    (
        ("RecsPresent", LONG),
        ("KnownDestCount", LONG),
        ("UnknownDestCount", LONG),
        ("InvalidDestCount", LONG),
        ("ObjectRecOffset", LONG),
        ("ResponseRecOffset", LONG),
        ("ObjectRecPtr", WIDE),
        ("ResponseRecPtr", WIDE),
    ),
    (("AlternateSecurityId", byte(40)), ("ResolvedQName", _NAME), ("ResolvedQMgrName", _NAME)),
    (("ObjectString", STRING), ("SelectionString", STRING), ("ResObjectString", STRING), ("ResolvedType", LONG)),
)

MQPMO: Final = Structure(
    "MQPMO",
    b"PMO ",
    cmqc.MQRC_PMO_ERROR,
    (
        ("Options", LONG),
        ("Timeout", LONG),
        ("Context", LONG),
        ("KnownDestCount", LONG),
        ("UnknownDestCount", LONG),
        ("InvalidDestCount", LONG),
        ("ResolvedQName", _NAME),
        ("ResolvedQMgrName", _NAME),
    ),
    (
        ("RecsPresent", LONG),
        ("PutMsgRecFields", LONG),
        ("PutMsgRecOffset", LONG),
        ("ResponseRecOffset", LONG),
        ("PutMsgRecPtr", WIDE),
        ("ResponseRecPtr", WIDE),
    ),
    (("OriginalMsgHandle", WIDE), ("NewMsgHandle", WIDE), ("Action", LONG), ("PubLevel", LONG)),
)

MQGMO: Final = Structure(
    "MQGMO",
    b"GMO ",
    cmqc.MQRC_GMO_ERROR,
    (("Options", LONG), ("WaitInterval", LONG), ("Signal1", LONG), ("Signal2", LONG), ("ResolvedQName", _NAME)),
    (
        ("MatchOptions", LONG),
        ("GroupStatus", byte(1)),
        ("SegmentStatus", byte(1)),
        ("Segmentation", byte(1)),
        ("Reserved1", byte(1)),
    ),
    (("MsgToken", byte(16)), ("ReturnedLength", LONG)),
    (("Reserved2", LONG), ("MsgHandle", WIDE)),
)

MQSD: Final = Structure(
    "MQSD",
    b"SD  ",
    cmqc.MQRC_SD_ERROR,
    (
        ("Options", LONG),
        ("ObjectName", _NAME),
        ("AlternateUserId", char(12)),
        ("AlternateSecurityId", byte(40)),
        ("SubExpiry", LONG),
        ("ObjectString", STRING),
        ("SubName", STRING),
        ("SubUserData", STRING),
        ("SubCorrelId", byte(24)),
        ("PubPriority", LONG),
        ("PubAccountingToken", byte(32)),
        ("PubApplIdentityData", char(32)),
        ("SelectionString", STRING),
        ("SubLevel", LONG),
        ("ResObjectString", STRING),
    ),
)

MQSRO: Final = Structure("MQSRO", b"SRO ", cmqc.MQRC_SRO_ERROR, (("Options", LONG), ("NumPubs", LONG)))

MQSTS: Final = Structure(
    "MQSTS",
    b"STAT",
    cmqc.MQRC_STS_ERROR,
    (
        ("CompCode", LONG),
        ("Reason", LONG),
        ("PutSuccessCount", LONG),
        ("PutWarningCount", LONG),
        ("PutFailureCount", LONG),
        ("ObjectType", LONG),
        ("ObjectName", _NAME),
        ("ObjectQMgrName", _NAME),
        ("ResolvedObjectName", _NAME),
        ("ResolvedQMgrName", _NAME),
    ),
    (("ObjectString", STRING), ("SubName", STRING), ("OpenOptions", LONG), ("SubOptions", LONG)),
)


def _raw(fields: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the fields of a layout of the wire codecs; characters stay the bytes that they are."""
    return tuple((name, code.replace("s", "c")) for name, code in fields)


_MD: Final = Structure("MQMD", b"MD  ", cmqc.MQRC_MD_ERROR, _raw(MQMD_FIELDS[1:]), _raw(GROUP_FIELDS))


def read_md(raw: bytes) -> MQMD:
    """Read the message descriptor of a caller. Raises MQError (MQRC_MD_ERROR)."""
    return MQMD(**_MD.read(raw))


def written_md(raw: bytes, md: MQMD) -> bytes:
    """Return a message descriptor in the version of the caller's own."""
    return _MD.written(raw, **{name: getattr(md, name) for name in MQMD.__struct_fields__ if name != "Version"})
