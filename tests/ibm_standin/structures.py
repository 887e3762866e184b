"""The structures of the MQI as in a C program's memory, in all their versions.

Layout: IBM MQ, "MQI application reference", data types used in the MQI, for 64-bit Linux: little-endian, an MQLONG on a
multiple of 4 bytes, pointers and MQHMSG on a multiple of 8. The caller's version determines the length of a structure. The
reply has the same length as the request, so nothing is written after the end of the structure in the caller's memory.

A structure is read into a mapping of its fields, and written by replacing fields in the received bytes. Pointers, reserved
fields and unknown fields are returned unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from bridge.mq.mqi import MQError
from bridge.wire.mq import MQMD
from bridge.wire.mq.mqmd import GROUP_FIELDS, MQMD_FIELDS
from tests.ibm_standin import cmqc

LONG: Final = "i"
#: MQHMSG and pointers
WIDE: Final = "q"
#: MQCHARV: its characters are sent separately from the structure
STRING: Final = "V"
_SIZES: Final = {LONG: 4, WIDE: 8, STRING: 24}
_ALIGNMENTS: Final = {LONG: 4, WIDE: 8, STRING: 8}


Fields = Sequence[tuple[str, str]]


def fields(words: str) -> Fields:
    """Return names and codes of fields from `Name:code`. An MQLONG needs no code.

    An MQCHARn is `ns`, read as text up to its first NUL, without trailing blanks, and written with blanks. An MQBYTEn is
    `nb`.
    """
    return [(name, code or LONG) for name, _, code in (word.partition(":") for word in words.split())]


class Structure:
    """One structure, with the fields that each version adds.

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
        #: cached, because programs pass the same descriptors again and again, one for each topic
        self.read = lru_cache(20_000)(self._read)

    @staticmethod
    def _code(code: str, size: int) -> str:
        if code in (LONG, WIDE):
            return code
        return f"{size}x" if code == STRING else f"{size}s"

    def _finish(self, version: int, form: str, known: list[tuple[str, str]], length: int) -> None:
        self._readers[version] = struct.Struct(form), tuple(known)
        self.lengths[version] = length

    def _read(self, raw: bytes) -> Mapping[str, Any]:
        """Return the values of a structure by field name. Raises MQError for another StrucId, version or length."""
        version = int.from_bytes(raw[4:8], "little")
        if raw[:4] != self._struc_id or self.lengths.get(version) != len(raw):
            raise MQError(self.reason, f"{len(raw)} bytes with StrucId {raw[:4]!r}, version {version}")
        reader, known = self._readers[version]
        _, *values = reader.unpack_from(raw)
        return MappingProxyType(
            {
                field: _READERS[code[-1]](value) if code[-1] in _READERS else value
                for (field, code), value in zip(known, values, strict=True)
            }
        )

    def written(self, raw: bytes, **values: Any) -> bytes:
        """Return the structure with other values in fields. Fields that the caller's version lacks are ignored."""
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
    """Return a character field as text, up to a NUL, as in C, and without trailing blanks."""
    return _trimmed(field).decode(errors="replace")


def _trimmed(field: bytes) -> bytes:
    return field.partition(b"\0")[0].rstrip(b" ")


_READERS: Final[dict[str, Callable[[bytes], object]]] = {"s": text, "c": _trimmed}


MQOD: Final = Structure(
    "MQOD",
    b"OD  ",
    cmqc.MQRC_OD_ERROR,
    fields("ObjectType ObjectName:48s ObjectQMgrName:48s DynamicQName:48s AlternateUserId:12s"),
    fields(
        "RecsPresent KnownDestCount UnknownDestCount InvalidDestCount ObjectRecOffset ResponseRecOffset "
        "ObjectRecPtr:q ResponseRecPtr:q"
    ),
    fields("AlternateSecurityId:40b ResolvedQName:48s ResolvedQMgrName:48s"),
    fields("ObjectString:V SelectionString:V ResObjectString:V ResolvedType"),
)

MQPMO: Final = Structure(
    "MQPMO",
    b"PMO ",
    cmqc.MQRC_PMO_ERROR,
    fields(
        "Options Timeout Context KnownDestCount UnknownDestCount InvalidDestCount ResolvedQName:48s ResolvedQMgrName:48s"
    ),
    fields("RecsPresent PutMsgRecFields PutMsgRecOffset ResponseRecOffset PutMsgRecPtr:q ResponseRecPtr:q"),
    fields("OriginalMsgHandle:q NewMsgHandle:q Action PubLevel"),
)

MQGMO: Final = Structure(
    "MQGMO",
    b"GMO ",
    cmqc.MQRC_GMO_ERROR,
    fields("Options WaitInterval Signal1 Signal2 ResolvedQName:48s"),
    fields("MatchOptions GroupStatus:1b SegmentStatus:1b Segmentation:1b Reserved1:1b"),
    fields("MsgToken:16b ReturnedLength"),
    fields("Reserved2 MsgHandle:q"),
)

MQSD: Final = Structure(
    "MQSD",
    b"SD  ",
    cmqc.MQRC_SD_ERROR,
    fields(
        "Options ObjectName:48s AlternateUserId:12s AlternateSecurityId:40b SubExpiry ObjectString:V SubName:V "
        "SubUserData:V SubCorrelId:24b PubPriority PubAccountingToken:32b PubApplIdentityData:32s SelectionString:V "
        "SubLevel ResObjectString:V"
    ),
)

MQSRO: Final = Structure("MQSRO", b"SRO ", cmqc.MQRC_SRO_ERROR, fields("Options NumPubs"))

MQSTS: Final = Structure(
    "MQSTS",
    b"STAT",
    cmqc.MQRC_STS_ERROR,
    fields(
        "CompCode Reason PutSuccessCount PutWarningCount PutFailureCount ObjectType ObjectName:48s ObjectQMgrName:48s "
        "ResolvedObjectName:48s ResolvedQMgrName:48s"
    ),
    fields("ObjectString:V SubName:V OpenOptions SubOptions"),
)


def _raw(fields: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the fields of a layout of the wire codecs, with character fields as unchanged bytes."""
    return tuple((name, code.replace("s", "c")) for name, code in fields)


_MD: Final = Structure("MQMD", b"MD  ", cmqc.MQRC_MD_ERROR, _raw(MQMD_FIELDS[1:]), _raw(GROUP_FIELDS))


def read_md(raw: bytes) -> MQMD:
    """Read the message descriptor of a caller. Raises MQError (MQRC_MD_ERROR)."""
    return MQMD(**_MD.read(raw))


def written_md(raw: bytes, md: MQMD) -> bytes:
    """Return a message descriptor in the version of the caller's descriptor."""
    return _MD.written(raw, **{name: getattr(md, name) for name in MQMD.__struct_fields__ if name != "Version"})
