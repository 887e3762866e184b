"""MQRFH2, the rules and formatting header 2: message properties and publish/subscribe data in front of a message.

36 fixed bytes, then any number of (NameValueLength, NameValueData) pairs up to StrucLength; each pair is a
:class:`~bridge.wire.mq.folder.Folder`. Source: IBM MQ, "MQRFH2 - Rules and formatting header 2"; which folders the
bridge writes is in the integration tables (mqtt/clientId, mqtt/qos, mqtt/msgid, mqps/Top, mqps/Ret).
"""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq.errors import MalformedHeader
from bridge.wire.mq.folder import UTF_8, UTF_16, Folder
from bridge.wire.mq.namevalue import Typed
from bridge.wire.mq.structure import LONG, Buffer, ByteOrder, Layout, char, detect_byte_order

__all__ = ["RFH2", "RFH2_LAYOUT", "Folder", "Typed", "decode_rfh2", "encode_rfh2"]

RFH2_LAYOUT: Final = Layout(
    "MQRFH2",
    cmqc.MQRFH_STRUC_ID,
    ("Version", LONG),
    ("StrucLength", LONG),
    ("Encoding", LONG),
    ("CodedCharSetId", LONG),
    ("Format", char(8)),
    ("Flags", LONG),
    ("NameValueCCSID", LONG),
)
_FIXED: Final = cmqc.MQRFH_STRUC_LENGTH_FIXED_2


class RFH2(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A rules and formatting header; Encoding, CodedCharSetId and Format describe what follows it."""

    Encoding: int = cmqc.MQENC_NATIVE
    CodedCharSetId: int = cmqc.MQCCSI_INHERIT
    Format: bytes = cmqc.MQFMT_NONE
    Flags: int = cmqc.MQRFH_NONE
    NameValueCCSID: int = UTF_8
    folders: tuple[Folder, ...] = ()

    @property
    def StrucLength(self) -> int:
        """Return the length of the whole header in bytes, folders and their lengths included."""
        return _FIXED + sum([4 + len(folder.NameValueData) for folder in self.folders])

    def folder(self, name: str) -> Folder | None:
        """Return the first folder of that name, or None."""
        for folder in self.folders:
            if folder.name == name:
                return folder
        return None


def encode_rfh2(header: RFH2, *, byte_order: ByteOrder = "little") -> bytes:
    """Encode the header's bytes, :attr:`RFH2.StrucLength` of them.

    :param byte_order: of the header itself: what the Encoding of the structure before it says.
    :raises MalformedHeader: a value does not fit its field, or a folder is in another CCSID than NameValueCCSID says
        (or, in UTF-16, in another byte order).
    """
    offset = _FIXED
    parts = [b""]
    for folder in header.folders:
        if folder.NameValueCCSID != header.NameValueCCSID:
            rule = f"folder {folder.name} has CCSID {folder.NameValueCCSID}, NameValueCCSID is {header.NameValueCCSID}"
            raise MalformedHeader("MQRFH2", offset, rule)
        if folder.NameValueCCSID in UTF_16 and folder.byte_order != byte_order:
            raise MalformedHeader("MQRFH2", offset, f"folder {folder.name} is not in {byte_order}-endian UTF-16")
        data = folder.NameValueData
        parts += (len(data).to_bytes(4, byte_order), data)
        offset += 4 + len(data)
    parts[0] = RFH2_LAYOUT.pack(
        (
            cmqc.MQRFH_VERSION_2,
            offset,
            header.Encoding,
            header.CodedCharSetId,
            header.Format,
            header.Flags,
            header.NameValueCCSID,
        ),
        byte_order,
    )
    return b"".join(parts)


def decode_rfh2(buffer: Buffer, offset: int = 0, *, byte_order: ByteOrder | None = None) -> RFH2:
    """Decode the header at ``offset``; its folders are cut out, not parsed.

    What comes behind the header begins StrucLength later. A NameValueLength that is not a multiple of four is taken as it
    is: IBM demands the multiple of the writer, to keep later data conversion aligned, and a reader loses nothing by it.

    :param byte_order: of the header itself; None: the one in which Version is 2.
    :raises MalformedHeader: no MQRFH2 of version 2 stands there, or its lengths contradict each other.
    """
    order = byte_order or detect_byte_order("MQRFH2", buffer, offset, (cmqc.MQRFH_VERSION_2,))
    fields = RFH2_LAYOUT.unpack(buffer, offset, order)
    version = fields.pop("Version")
    if version != cmqc.MQRFH_VERSION_2:
        raise MalformedHeader("MQRFH2", offset + 4, f"Version is {version}, not 2")
    length = fields.pop("StrucLength")
    if not _FIXED <= length <= len(buffer) - offset:
        rule = f"StrucLength is {length}; the fixed part has {_FIXED} bytes, the buffer {len(buffer) - offset}"
        raise MalformedHeader("MQRFH2", offset + 8, rule)
    ccsid = fields["NameValueCCSID"]
    folder_order: ByteOrder = order if ccsid in UTF_16 else "little"
    folders: list[Folder] = []
    position, end = offset + _FIXED, offset + length
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
