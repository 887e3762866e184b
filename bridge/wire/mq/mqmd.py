"""MQMD, the message descriptor, and MQMDE, the extension with the version-2 fields for a version-1 MQMD.

Layout and defaults: IBM MQ documentation, "MQMD - Message descriptor" and "MQMDE - Message descriptor extension".

Character fields are ``bytes`` without their trailing blanks. A NUL and the bytes after it stay, so that decoding and
encoding again gives the same bytes. Byte fields (MsgId, CorrelId, AccountingToken, GroupId) have their full length.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Final

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq.structure import Buffer, ByteOrder, Layout, MalformedHeader, detect_byte_order, fields_of

#: A 32-bit integer. The range is checked when values are decoded from MessagePack or JSON.
MQLONG = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class MQMD(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A message descriptor. The defaults are those of IBM's MQMD_DEFAULT.

    Expiry is in tenths of a second (-1: unlimited). PutDate is `YYYYMMDD` and PutTime `HHMMSSTH` in GMT. Encoding,
    CodedCharSetId and Format describe the message data, not this structure. The fields from GroupId on exist only in
    version 2. With `Version=1` they are not written, because the queue manager ignores them.
    """

    Version: MQLONG = cmqc.MQMD_VERSION_1
    Report: MQLONG = cmqc.MQRO_NONE
    MsgType: MQLONG = cmqc.MQMT_DATAGRAM
    Expiry: MQLONG = cmqc.MQEI_UNLIMITED
    Feedback: MQLONG = cmqc.MQFB_NONE
    Encoding: MQLONG = cmqc.MQENC_NATIVE
    CodedCharSetId: MQLONG = cmqc.MQCCSI_Q_MGR
    Format: Annotated[bytes, "8s"] = cmqc.MQFMT_NONE
    Priority: MQLONG = cmqc.MQPRI_PRIORITY_AS_Q_DEF
    Persistence: MQLONG = cmqc.MQPER_PERSISTENCE_AS_Q_DEF
    MsgId: Annotated[bytes, "24b"] = cmqc.MQMI_NONE
    CorrelId: Annotated[bytes, "24b"] = cmqc.MQCI_NONE
    BackoutCount: MQLONG = 0
    ReplyToQ: Annotated[bytes, "48s"] = b""
    ReplyToQMgr: Annotated[bytes, "48s"] = b""
    UserIdentifier: Annotated[bytes, "12s"] = b""
    AccountingToken: Annotated[bytes, "32b"] = cmqc.MQACT_NONE
    ApplIdentityData: Annotated[bytes, "32s"] = b""
    PutApplType: MQLONG = cmqc.MQAT_NO_CONTEXT
    PutApplName: Annotated[bytes, "28s"] = b""
    PutDate: Annotated[bytes, "8s"] = b""
    PutTime: Annotated[bytes, "8s"] = b""
    ApplOriginData: Annotated[bytes, "4s"] = b""
    GroupId: Annotated[bytes, "24b"] = cmqc.MQGI_NONE
    MsgSeqNumber: MQLONG = 1
    Offset: MQLONG = 0
    MsgFlags: MQLONG = cmqc.MQMF_NONE
    OriginalLength: MQLONG = cmqc.MQOL_UNDEFINED


class MQMDE(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The version-2 fields of a message whose MQMD has version 1, at the start of its data.

    Encoding, CodedCharSetId and Format describe the data after the MQMDE.
    """

    Version: MQLONG = cmqc.MQMDE_VERSION_2
    StrucLength: MQLONG = cmqc.MQMDE_LENGTH_2
    Encoding: MQLONG = cmqc.MQENC_NATIVE
    CodedCharSetId: MQLONG = cmqc.MQCCSI_UNDEFINED
    Format: Annotated[bytes, "8s"] = cmqc.MQFMT_NONE
    Flags: MQLONG = cmqc.MQMDEF_NONE
    GroupId: Annotated[bytes, "24b"] = cmqc.MQGI_NONE
    MsgSeqNumber: MQLONG = 1
    Offset: MQLONG = 0
    MsgFlags: MQLONG = cmqc.MQMF_NONE
    OriginalLength: MQLONG = cmqc.MQOL_UNDEFINED


#: Fields of version 1 after StrucId, and the fields that version 2 and the MQMDE add.
MQMD_FIELDS: Final = fields_of(MQMD)[:-5]
GROUP_FIELDS: Final = fields_of(MQMD)[-5:]
MQMD_LAYOUTS: Final = {
    cmqc.MQMD_VERSION_1: Layout("MQMD", cmqc.MQMD_STRUC_ID, *MQMD_FIELDS),
    cmqc.MQMD_VERSION_2: Layout("MQMD", cmqc.MQMD_STRUC_ID, *MQMD_FIELDS, *GROUP_FIELDS),
}
MQMDE_LAYOUT: Final = Layout("MQMDE", cmqc.MQMDE_STRUC_ID, *fields_of(MQMDE))
_MQMD_ROWS: Final = {version: attrgetter(*layout.fields) for version, layout in MQMD_LAYOUTS.items()}
_MQMDE_ROW: Final = attrgetter(*MQMDE_LAYOUT.fields)


def encode_mqmd(md: MQMD, *, byte_order: ByteOrder = "little") -> bytes:
    """Encode a descriptor: 324 bytes in version 1, 364 in version 2.

    Raises MalformedHeader for another version, or if a value does not fit its field.
    """
    layout = MQMD_LAYOUTS.get(md.Version)
    if layout is None:
        raise MalformedHeader("MQMD", 4, f"Version is {md.Version}, not 1 or 2")
    return layout.pack(_MQMD_ROWS[md.Version](md), byte_order)


def check_mqmd(md: MQMD) -> None:
    """Check types, lengths and ranges of all fields, including those of version 2. Byte fields may be shorter.

    Raises MalformedHeader if a value does not fit its field.
    """
    MQMD_LAYOUTS[cmqc.MQMD_VERSION_2].check(_MQMD_ROWS[cmqc.MQMD_VERSION_2](md))


def fitted_mqmd(md: MQMD) -> MQMD:
    """Return a descriptor with character and byte fields truncated or padded to their lengths. Return `md` if all fit."""
    changes = MQMD_LAYOUTS[cmqc.MQMD_VERSION_2].fitted(_MQMD_ROWS[cmqc.MQMD_VERSION_2](md))
    return msgspec.structs.replace(md, **changes) if changes else md


def decode_mqmd(buffer: Buffer, offset: int = 0, *, byte_order: ByteOrder | None = None) -> MQMD:
    """Decode the descriptor at `offset`. Its Version determines the length (see `MQMD_LAYOUTS`).

    Without `byte_order`, use the byte order in which Version is valid. Raises MalformedHeader without an MQMD of version 1 or
    2.
    """
    order = byte_order or detect_byte_order("MQMD", buffer, offset, (cmqc.MQMD_VERSION_1, cmqc.MQMD_VERSION_2))
    version = int.from_bytes(buffer[offset + 4 : offset + 8], order)
    layout = MQMD_LAYOUTS.get(version)
    if layout is None:
        raise MalformedHeader("MQMD", offset + 4, f"Version is {version}, not 1 or 2")
    return MQMD(*layout.values(buffer, offset, order))


def encode_mqmde(mde: MQMDE, *, byte_order: ByteOrder = "little") -> bytes:
    """Encode an extension of 72 bytes.

    Raises MalformedHeader if version or length are not 2 and 72, or if a value does not fit its field.
    """
    _check_mqmde(mde, 0)
    return MQMDE_LAYOUT.pack(_MQMDE_ROW(mde), byte_order)


def decode_mqmde(buffer: Buffer, offset: int = 0, *, byte_order: ByteOrder | None = None) -> MQMDE:
    """Decode the extension at `offset`. Without `byte_order`, use the byte order in which Version is valid.

    Raises MalformedHeader without an MQMDE of version 2.
    """
    order = byte_order or detect_byte_order("MQMDE", buffer, offset, (cmqc.MQMDE_VERSION_2,))
    mde = MQMDE(**MQMDE_LAYOUT.unpack(buffer, offset, order))
    _check_mqmde(mde, offset)
    return mde


def _check_mqmde(mde: MQMDE, offset: int) -> None:
    if mde.Version != cmqc.MQMDE_VERSION_2:
        raise MalformedHeader("MQMDE", offset + 4, f"Version is {mde.Version}, not 2")
    if mde.StrucLength != cmqc.MQMDE_LENGTH_2:
        raise MalformedHeader("MQMDE", offset + 8, f"StrucLength is {mde.StrucLength}, not {cmqc.MQMDE_LENGTH_2}")
