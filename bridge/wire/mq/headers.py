"""The chain of headers before the body of a message: MQRFH2, MQXQH, MQDLH, MQMDE and others.

The Format, Encoding and CodedCharSetId of each structure describe the next structure. Those of the MQMD describe the first
header, and those of an MQXQH are in its embedded MQMD. Headers may be in any order. For example, a dead-lettered transmission
queue message consists of MQDLH, MQXQH, MQRFH2 and data. Of other headers, the bridge only needs the length, to discard them
for MQTT clients. Source: IBM MQ documentation, "MQ headers", the topic of each header, and the field topics Format, Encoding
and CodedCharSetId of MQMD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq.folder import UTF_8, UTF_16, Folder
from bridge.wire.mq.mqmd import (
    MQMD,
    MQMD_LAYOUTS,
    MQMDE,
    MQMDE_LAYOUT,
    decode_mqmd,
    decode_mqmde,
    encode_mqmd,
    encode_mqmde,
)
from bridge.wire.mq.structure import LONG, Buffer, ByteOrder, Layout, MalformedHeader, byte_order_of, fields_of

# MQRFH2: message properties and publish/subscribe data ----------------------------------------------------------------

RFH2_FIXED_LENGTH: Final = cmqc.MQRFH_STRUC_LENGTH_FIXED_2


class RFH2(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A rules and formatting header. Encoding, CodedCharSetId and Format describe the data after it."""

    Encoding: int = cmqc.MQENC_NATIVE
    CodedCharSetId: int = cmqc.MQCCSI_INHERIT
    Format: Annotated[bytes, "8s"] = cmqc.MQFMT_NONE
    Flags: int = cmqc.MQRFH_NONE
    NameValueCCSID: int = UTF_8
    folders: tuple[Folder, ...] = ()

    @property
    def StrucLength(self) -> int:
        """The length of the complete header in bytes, including folders and their lengths."""
        return RFH2_FIXED_LENGTH + sum([4 + len(folder.NameValueData) for folder in self.folders])

    def folder(self, name: str) -> Folder | None:
        """Return the first folder with a name, or None."""
        for folder in self.folders:
            if folder.name == name:
                return folder
        return None


RFH2_LAYOUT: Final = Layout("MQRFH2", cmqc.MQRFH_STRUC_ID, ("Version", LONG), ("StrucLength", LONG), *fields_of(RFH2))
_RFH2_ROW: Final = attrgetter(*RFH2_LAYOUT.fields[2:])


def encode_rfh2(header: RFH2, *, byte_order: ByteOrder = "little") -> bytes:
    """Encode a header of `RFH2.StrucLength` bytes.

    `byte_order` is the header's byte order, from the Encoding of the structure before it. Raises MalformedHeader if a value
    does not fit its field, or if a folder has a CCSID other than NameValueCCSID or, in UTF-16, another byte order.
    """
    offset = RFH2_FIXED_LENGTH
    parts = [b""]
    for folder in header.folders:
        if folder.NameValueCCSID != header.NameValueCCSID:
            rule = f"folder {folder.name} has CCSID {folder.NameValueCCSID}, NameValueCCSID is {header.NameValueCCSID}"
            raise MalformedHeader("MQRFH2", offset, rule)
        if folder.NameValueCCSID in UTF_16 and folder.byte_order != byte_order:
            raise MalformedHeader("MQRFH2", offset, f"folder {folder.name} is not in {byte_order}-endian UTF-16")
        name_value_data = folder.NameValueData
        parts += (len(name_value_data).to_bytes(4, byte_order), name_value_data)
        offset += 4 + len(name_value_data)
    parts[0] = RFH2_LAYOUT.pack((cmqc.MQRFH_VERSION_2, offset, *_RFH2_ROW(header)), byte_order)
    return b"".join(parts)


def decode_rfh2(buffer: Buffer, offset: int = 0, *, byte_order: ByteOrder | None = None) -> RFH2:
    """Decode the header at `offset`. Its folders are extracted, but not parsed.

    The data after the header begins at `offset` + StrucLength. A NameValueLength that is not a multiple of four is accepted,
    because IBM requires the multiple only of writers, to keep later data conversion aligned. Without `byte_order`, the byte
    order in which Version is 2 is used. Raises MalformedHeader without a valid MQRFH2 of version 2.
    """
    order, fields = RFH2_LAYOUT.decode(buffer, offset, byte_order, cmqc.MQRFH_VERSION_2)
    length = fields.pop("StrucLength")
    if not RFH2_FIXED_LENGTH <= length <= len(buffer) - offset:
        rule = (
            f"StrucLength is {length}, the fixed part has {RFH2_FIXED_LENGTH} bytes, the buffer {len(buffer) - offset}"
        )
        raise MalformedHeader("MQRFH2", offset + 8, rule)
    ccsid = fields["NameValueCCSID"]
    folder_order: ByteOrder = order if ccsid in UTF_16 else "little"
    folders: list[Folder] = []
    position, end = offset + RFH2_FIXED_LENGTH, offset + length
    while position < end:
        start = position + 4
        if start > end:
            raise MalformedHeader("MQRFH2", position, f"{end - position} bytes are left, a NameValueLength has 4")
        size = int.from_bytes(buffer[position:start], order, signed=True)
        if not 0 <= size <= end - start:
            raise MalformedHeader("MQRFH2", position, f"NameValueLength is {size}, {end - start} bytes are left")
        position = start + size
        folders.append(Folder(bytes(buffer[start:position]), ccsid, folder_order))
    return RFH2(folders=tuple(folders), **fields)


# MQXQH: the destination and the MQMD of a message on a transmission queue ----------------------------------------------


class MQXQH(msgspec.Struct, frozen=True, gc=False):
    """A transmission-queue header. Format, Encoding and CodedCharSetId of `MsgDesc` describe the data after it.

    `MsgDesc` always has version 1. The fields of version 2 are in an MQMDE after this header.
    """

    RemoteQName: Annotated[bytes, "48s"] = b""
    RemoteQMgrName: Annotated[bytes, "48s"] = b""
    MsgDesc: MQMD = MQMD()


#: The part before the embedded descriptor, which begins at `MQXQH_LAYOUT.length` (104).
MQXQH_LAYOUT: Final = Layout("MQXQH", cmqc.MQXQH_STRUC_ID, ("Version", LONG), *fields_of(MQXQH))


def encode_mqxqh(header: MQXQH, *, byte_order: ByteOrder = "little") -> bytes:
    """Encode a header of 428 bytes. `byte_order` also applies to the embedded descriptor.

    Raises MalformedHeader if a name is too long, or if MsgDesc is not a valid MQMD of version 1.
    """
    start = MQXQH_LAYOUT.pack((cmqc.MQXQH_VERSION_1, header.RemoteQName, header.RemoteQMgrName), byte_order)
    _check_version_1(header.MsgDesc, 0)
    try:
        return start + encode_mqmd(header.MsgDesc, byte_order=byte_order)
    except MalformedHeader as error:
        raise MalformedHeader(error.structure, MQXQH_LAYOUT.length + error.offset, error.rule) from None


def decode_mqxqh(buffer: Buffer, offset: int = 0, *, byte_order: ByteOrder | None = None) -> MQXQH:
    """Decode the header at `offset`. Without `byte_order`, use the byte order in which Version is 1.

    Raises MalformedHeader without an MQXQH of version 1 that contains an MQMD of version 1.
    """
    order, (queue, manager) = MQXQH_LAYOUT.decode_values(buffer, offset, byte_order, cmqc.MQXQH_VERSION_1)
    descriptor = decode_mqmd(buffer, offset + MQXQH_LAYOUT.length, byte_order=order)
    _check_version_1(descriptor, offset)
    return MQXQH(queue, manager, descriptor)


def _check_version_1(descriptor: MQMD, offset: int) -> None:
    if descriptor.Version != cmqc.MQMD_VERSION_1:
        rule = f"the embedded MQMD has version {descriptor.Version}, expected version 1"
        raise MalformedHeader("MQXQH", offset + MQXQH_LAYOUT.length + 4, rule)


# MQDLH: the reason and the original destination of a dead-lettered message ---------------------------------------------


class MQDLH(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A dead-letter header. Encoding, CodedCharSetId and Format describe the original data after it.

    Reason is an MQRC or MQFB number. PutDate is `YYYYMMDD` and PutTime `HHMMSSTH` in GMT. The defaults are those of IBM's
    MQDLH_DEFAULT, in which Encoding and CodedCharSetId are undefined and must be set.
    """

    Reason: int = cmqc.MQRC_NONE
    DestQName: Annotated[bytes, "48s"] = b""
    DestQMgrName: Annotated[bytes, "48s"] = b""
    Encoding: int = 0
    CodedCharSetId: int = cmqc.MQCCSI_UNDEFINED
    Format: Annotated[bytes, "8s"] = cmqc.MQFMT_NONE
    PutApplType: int = 0
    PutApplName: Annotated[bytes, "28s"] = b""
    PutDate: Annotated[bytes, "8s"] = b""
    PutTime: Annotated[bytes, "8s"] = b""


MQDLH_LAYOUT: Final = Layout("MQDLH", cmqc.MQDLH_STRUC_ID, ("Version", LONG), *fields_of(MQDLH))
_MQDLH_ROW: Final = attrgetter(*MQDLH_LAYOUT.fields[1:])


def encode_mqdlh(header: MQDLH, *, byte_order: ByteOrder = "little") -> bytes:
    """Encode a header of 172 bytes. Raises MalformedHeader if a value does not fit its field."""
    return MQDLH_LAYOUT.pack((cmqc.MQDLH_VERSION_1, *_MQDLH_ROW(header)), byte_order)


def decode_mqdlh(buffer: Buffer, offset: int = 0, *, byte_order: ByteOrder | None = None) -> MQDLH:
    """Decode the header at `offset`. Without `byte_order`, use the byte order in which Version is 1.

    Raises MalformedHeader without an MQDLH of version 1.
    """
    _, fields = MQDLH_LAYOUT.decode(buffer, offset, byte_order, cmqc.MQDLH_VERSION_1)
    return MQDLH(**fields)


# Headers of which only the length matters -----------------------------------------------------------------------------


class OtherKind(NamedTuple):
    """A kind of header."""

    #: its fields up to Format
    start: Layout
    #: bytes of its shortest version
    min_length: int
    #: Encoding and CodedCharSetId are reserved. The data after the header has the header's own values
    inherits: bool = False


class OtherHeader(NamedTuple):
    """The length of a header, and the descriptor of the data after it."""

    StrucLength: int
    Format: bytes
    Encoding: int
    CodedCharSetId: int


def _start(name: str, struc_id: bytes) -> Layout:
    fields = ("Version", LONG), ("StrucLength", LONG), ("Encoding", LONG), ("CodedCharSetId", LONG), ("Format", "8s")
    return Layout(name, struc_id, *fields)


OTHER_KINDS: Final = {
    cmqc.MQFMT_CICS: OtherKind(_start("MQCIH", b"CIH "), 164, inherits=True),
    cmqc.MQFMT_DIST_HEADER: OtherKind(_start("MQDH", b"DH  "), 48),
    cmqc.MQFMT_EMBEDDED_PCF: OtherKind(_start("MQEPH", b"EPH "), 68),
    cmqc.MQFMT_IMS: OtherKind(_start("MQIIH", b"IIH "), 84, inherits=True),
    cmqc.MQFMT_RF_HEADER_1: OtherKind(_start("MQRFH", b"RFH "), 32),
    cmqc.MQFMT_REF_MSG_HEADER: OtherKind(_start("MQRMH", b"RMH "), 108),
    cmqc.MQFMT_WORK_INFO_HEADER: OtherKind(_start("MQWIH", b"WIH "), 120),
}
"""Format -> the kind of header."""


def decode_other_header(
    kind: OtherKind, buffer: Buffer, offset: int, *, byte_order: ByteOrder, encoding: int
) -> OtherHeader:
    """Decode the header at `offset`, which is in the given Encoding.

    Raises MalformedHeader if the header is missing, or if its StrucLength is too short or exceeds the buffer.
    """
    fields = kind.start.unpack(buffer, offset, byte_order)
    length = fields["StrucLength"]
    if not kind.min_length <= length <= len(buffer) - offset:
        rule = (
            f"StrucLength is {length}, the header has at least {kind.min_length} bytes, {len(buffer) - offset} are left"
        )
        raise MalformedHeader(kind.start.name, offset + kind.start.offsets["StrucLength"], rule)
    if kind.inherits:
        return OtherHeader(length, fields["Format"], encoding, cmqc.MQCCSI_INHERIT)
    return OtherHeader(length, fields["Format"], fields["Encoding"], fields["CodedCharSetId"])


# The chain ------------------------------------------------------------------------------------------------------------

Header: TypeAlias = RFH2 | MQXQH | MQDLH | MQMDE


class HeaderKind(NamedTuple):
    """The codec of a kind of header."""

    structure: str
    format: bytes
    decode: Callable[..., Any]
    encode: Callable[..., bytes]
    length: int | None  # None if the header contains its length
    #: layouts of its fixed part, with their offsets
    layouts: tuple[tuple[Layout, int], ...]


_XQH_LAYOUTS: Final = ((MQXQH_LAYOUT, 0), (MQMD_LAYOUTS[cmqc.MQMD_VERSION_1], MQXQH_LAYOUT.length))

_KINDS: Final[dict[type, HeaderKind]] = {
    RFH2: HeaderKind("MQRFH2", cmqc.MQFMT_RF_HEADER_2, decode_rfh2, encode_rfh2, None, ((RFH2_LAYOUT, 0),)),
    MQXQH: HeaderKind("MQXQH", cmqc.MQFMT_XMIT_Q_HEADER, decode_mqxqh, encode_mqxqh, cmqc.MQXQH_LENGTH_1, _XQH_LAYOUTS),
    MQDLH: HeaderKind(
        "MQDLH", cmqc.MQFMT_DEAD_LETTER_HEADER, decode_mqdlh, encode_mqdlh, MQDLH_LAYOUT.length, ((MQDLH_LAYOUT, 0),)
    ),
    MQMDE: HeaderKind(
        "MQMDE", cmqc.MQFMT_MD_EXTENSION, decode_mqmde, encode_mqmde, MQMDE_LAYOUT.length, ((MQMDE_LAYOUT, 0),)
    ),
}
KIND_OF_FORMAT: Final = {kind.format: kind for kind in _KINDS.values()}


class Chain(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The headers of a message and its body. Format, Encoding and CodedCharSetId describe the body.

    If a header has MQCCSI_INHERIT, CodedCharSetId is the CCSID that was valid before that header. `outer_encoding` and
    `outer_ccsid` are those of the MQMD, which describe the first header. Without headers, those of the body are used.
    """

    headers: tuple[Header, ...] = ()
    Format: bytes = cmqc.MQFMT_NONE
    Encoding: int = cmqc.MQENC_NATIVE
    CodedCharSetId: int = cmqc.MQCCSI_Q_MGR
    body: bytes = b""
    outer_encoding: int = cmqc.MQENC_NATIVE
    outer_ccsid: int = cmqc.MQCCSI_Q_MGR


class EncodedChain(NamedTuple):
    """The data of a message, and the three MQMD fields that describe the data."""

    Format: bytes
    Encoding: int
    CodedCharSetId: int
    data: bytes


def decode_chain(
    format: bytes, encoding: int, ccsid: int, data: Buffer, *, strict: bool = True, discard_others: bool = False
) -> Chain:
    """Decode the headers at the start of `data`, which Format, Encoding and CodedCharSetId of the MQMD describe.

    The first Format other than MQHRF2, MQXMIT, MQDEAD and MQHMDE is the body's. If not `strict`, a header that cannot be
    decoded, and everything after it, is the body. With `discard_others`, headers of `OTHER_KINDS` are skipped. They are not
    in the result, so it cannot be encoded to the same data. Raises MalformedHeader if a header does not match the Format
    before it. Offsets count from the start of `data`.
    """
    headers: list[Header] = []
    outer_encoding, outer_ccsid = encoding, ccsid
    offset = 0
    while True:
        kind = KIND_OF_FORMAT.get(format)
        other = OTHER_KINDS.get(format) if discard_others else None
        try:
            if kind is not None:
                byte_order = byte_order_of(encoding, kind.structure, offset)
                header: Header = kind.decode(data, offset, byte_order=byte_order)
                headers.append(header)
                offset += header.StrucLength if isinstance(header, RFH2) else kind.length or 0
                follower = descriptor_of(header)
            elif other is not None:
                byte_order = byte_order_of(encoding, other.start.name, offset)
                follower = decode_other_header(other, data, offset, byte_order=byte_order, encoding=encoding)
                offset += follower.StrucLength
            else:
                break
        except MalformedHeader:
            if strict:
                raise
            break
        format, encoding = follower.Format, follower.Encoding
        if follower.CodedCharSetId != cmqc.MQCCSI_INHERIT:
            ccsid = follower.CodedCharSetId
    return Chain(
        headers=tuple(headers),
        Format=format,
        Encoding=encoding,
        CodedCharSetId=ccsid,
        body=bytes(data[offset:]),
        outer_encoding=outer_encoding,
        outer_ccsid=outer_ccsid,
    )


def encode_chain(
    chain: Chain | Iterable[Header], body: bytes = b"", *, encoding: int | None = None, ccsid: int | None = None
) -> EncodedChain:
    """Encode a chain to message data and the MQMD fields that describe it. The inverse of `decode_chain`.

    The Format of each header is set to the header after it. The last header describes the body: with the fields of the
    `Chain` or, for a list of headers, with its own fields. The Encoding of a header determines the byte order of the next.
    `body` is the data after a list of headers. `encoding` and `ccsid` are those of the first header, for the MQMD. They
    default to `outer_encoding` and `outer_ccsid` of the Chain, or to native and MQCCSI_Q_MGR. Without headers, they
    describe the body and default to its Encoding and CodedCharSetId. Raises MalformedHeader if a header cannot be encoded,
    or follows an Encoding with an undefined integer part. Offsets count from the start of the data.
    """
    if not isinstance(chain, Chain):
        chain = _chain_of(tuple(chain), body, cmqc.MQCCSI_Q_MGR if ccsid is None else ccsid)
    if not chain.headers:
        encoding = chain.Encoding if encoding is None else encoding
        return EncodedChain(chain.Format, encoding, chain.CodedCharSetId if ccsid is None else ccsid, chain.body)
    first_encoding = current = chain.outer_encoding if encoding is None else encoding
    first_ccsid = inherited = chain.outer_ccsid if ccsid is None else ccsid
    parts: list[bytes] = []
    offset = 0
    last = len(chain.headers) - 1
    for index, header in enumerate(chain.headers):
        kind = _KINDS[type(header)]
        follower = descriptor_of(header)
        if follower.CodedCharSetId != cmqc.MQCCSI_INHERIT:
            inherited = follower.CodedCharSetId
        if index < last:
            header = described(header, _KINDS[type(chain.headers[index + 1])].format, follower.Encoding, None)
        else:
            own = None if inherited == chain.CodedCharSetId else chain.CodedCharSetId
            header = described(header, chain.Format, chain.Encoding, own)
        try:
            parts.append(kind.encode(header, byte_order=byte_order_of(current, kind.structure)))
        except MalformedHeader as error:
            raise MalformedHeader(error.structure, offset + error.offset, error.rule) from None
        offset += len(parts[-1])
        current = descriptor_of(header).Encoding
    parts.append(chain.body)
    return EncodedChain(_KINDS[type(chain.headers[0])].format, first_encoding, first_ccsid, b"".join(parts))


def descriptor_of(header: Header) -> Any:
    """Return the structure whose Format, Encoding and CodedCharSetId describe the data after a header."""
    return header.MsgDesc if isinstance(header, MQXQH) else header


def described(header: Header, format: bytes, encoding: int, ccsid: int | None) -> Header:
    """Return the header with these values in its descriptor. If nothing changes, return the same object."""
    descriptor = descriptor_of(header)
    changes: dict[str, Any] = {}
    if descriptor.Format != format:
        changes["Format"] = format
    if descriptor.Encoding != encoding:
        changes["Encoding"] = encoding
    if ccsid is not None:
        changes["CodedCharSetId"] = ccsid
    if not changes:
        return header
    changed = msgspec.structs.replace(descriptor, **changes)
    return msgspec.structs.replace(header, MsgDesc=changed) if isinstance(header, MQXQH) else changed


def _chain_of(headers: tuple[Header, ...], body: bytes, ccsid: int) -> Chain:
    if not headers:
        return Chain(CodedCharSetId=ccsid, body=body)
    last = descriptor_of(headers[-1])
    for header in headers:
        if descriptor_of(header).CodedCharSetId != cmqc.MQCCSI_INHERIT:
            ccsid = descriptor_of(header).CodedCharSetId
    return Chain(headers=headers, Format=last.Format, Encoding=last.Encoding, CodedCharSetId=ccsid, body=body)
