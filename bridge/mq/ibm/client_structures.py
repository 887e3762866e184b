"""Structures of the MQ interface as those of `pymqi` and `ibmmq`, and back.

They go over as bytes of the bridge's own codecs where that is exact, field by field elsewhere. Fields whose initial value
in a package is none of the interface's (pymqi: SubLevel 0; both: PubPriority of the queue) are always set.
"""

from __future__ import annotations

import struct
import sys
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from bridge.mq.mqi import MQOD, MQPMO, MQSD, GetOptions, Got, check_md, check_od, check_sd
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqmd, encode_mqmd, fitted_mqmd

#: MQMD version 1 and 2, in bytes.
_MQMD_1, _MQMD_2 = 324, 364
#: Message descriptors kept packed for one connection.
PACKED_DESCRIPTORS = 4_096
#: Room for a string that the queue manager returns: none is longer (MQ_TOPIC_STR_LENGTH, MQ_SELECTOR_LENGTH).
_ROOM = 10_240
_UTF_8 = 1208


#: Places of fields in the bytes of MQMD version 2 (IBM MQ documentation, "Fields for MQMD").
_ENCODING_AND_CCSID, _MSG_AND_CORREL_ID, _GROUP = struct.Struct("=2i"), struct.Struct("24s24s"), struct.Struct("=24s2i")
_ENCODING_AT, _MSG_ID_AT, _GROUP_ID_AT = 24, 48, 324
#: Places of fields in the bytes of MQGMO version 3 ("Fields for MQGMO").
_OPTIONS, _RESULT = struct.Struct("=2i"), struct.Struct("=48si3cx16si")
_OPTIONS_AT, _RESOLVED_Q_NAME_AT, _MATCH_OPTIONS_AT, _MSG_TOKEN_AT = 8, 24, 72, 80


@lru_cache(maxsize=4)
def _packed(base: type) -> type:
    """Return a subclass of the packages' MD, PMO or GMO whose bytes were made beforehand.

    The packages' own classes take more time to make and read than the rest of an MQGET or MQPUT. The bytes that come back
    are kept as `packed`, if `source` is None.
    """

    def __init__(self: Any, source: MQMD | None, packed: bytes) -> None:
        # ibmmq reads the two fields of an MD.
        self.__dict__.update(source=source, packed=packed, Encoding=0, CodedCharSetId=0)

    def pack(self: Any) -> bytes:
        packed: bytes = self.__dict__["packed"]
        return packed

    def unpack(self: Any, returned: bytes) -> None:
        if self.__dict__["source"] is None:
            self.__dict__["packed"] = returned

    return type(f"Packed{base.__name__}", (base,), {"__init__": __init__, "pack": pack, "unpack": unpack})


class Structures:
    """Makes and reads the structures of one package, for one connection."""

    def __init__(self, library: Any) -> None:
        self._library = library
        #: MDs by identity of the MQMD, PMOs by options
        self._packed_descriptors: dict[int, Any] = {}
        self._packed_options: dict[int, Any] = {}

    def od(self, od: MQOD, *, results: bool = False) -> Any:
        """Make an OD; with `results` it has room for the fields that `read_od` reads."""
        check_od(od)
        made = self._library.OD()
        made.Version = cmqc.MQOD_VERSION_4
        made.ObjectType = od.ObjectType
        made.ObjectName = od.ObjectName.encode()
        made.ObjectQMgrName = od.ObjectQMgrName.encode()
        made.DynamicQName = od.DynamicQName.encode()
        made.AlternateUserId = od.AlternateUserId.encode()
        if od.ObjectString:
            _set_string(made, "ObjectString", od.ObjectString)
        if od.SelectionString:
            _set_string(made, "SelectionString", od.SelectionString)
        if results:
            _set_string(made, "ResObjectString", "", _ROOM)
        return made

    @staticmethod
    def read_od(od: MQOD, made: Any) -> None:
        """Fill in what MQOPEN returned."""
        if od.ObjectType == cmqc.MQOT_Q:
            od.ObjectName, od.ObjectQMgrName = text(made.ObjectName), text(made.ObjectQMgrName)
        od.ResolvedQName, od.ResolvedQMgrName = text(made.ResolvedQName), text(made.ResolvedQMgrName)
        od.ResolvedType = made.ResolvedType
        od.ResObjectString = _string(made, "ResObjectString")

    def md(self, md: MQMD) -> Any:
        check_md(md)
        made = self._library.MD()
        made.unpack(encode_mqmd(msgspec.structs.replace(fitted_mqmd(md), Version=cmqc.MQMD_VERSION_2)))
        made.Version = md.Version
        return made

    @staticmethod
    def read_md(made: Any) -> MQMD:
        return decode_mqmd(made.pack()[: _MQMD_2 if made.Version >= cmqc.MQMD_VERSION_2 else _MQMD_1])

    def pmo(self, options: MQPMO, context: int = 0, message_handle: int = 0) -> Any:
        """Make a PMO; `context` and `message_handle` are the queue manager's handles."""
        made = self._library.PMO()
        made.Version = cmqc.MQPMO_VERSION_3
        made.Options = options.Options
        made.PubLevel = options.PubLevel
        made.Context = context
        made.OriginalMsgHandle = message_handle
        return made

    @staticmethod
    def read_pmo(options: MQPMO, made: Any) -> None:
        """Fill in what MQPUT or MQPUT1 returned."""
        options.ResolvedQName, options.ResolvedQMgrName = text(made.ResolvedQName), text(made.ResolvedQMgrName)
        options.KnownDestCount = made.KnownDestCount
        options.UnknownDestCount = made.UnknownDestCount
        options.InvalidDestCount = made.InvalidDestCount

    def unanswered(self, md: MQMD, options: int) -> tuple[Any, Any]:
        """Return the MD and PMO of a put that returns nothing of interest, packed once for all messages that share them."""
        packed = self._packed_descriptors.get(id(md))
        if packed is None or packed.source is not md:
            if len(self._packed_descriptors) >= PACKED_DESCRIPTORS:
                self._packed_descriptors.clear()
            packed = self._packed_descriptors[id(md)] = _packed(self._library.MD)(md, self.md(md).pack())
        pmo = self._packed_options.get(options)
        if pmo is None:
            pmo = _packed(self._library.PMO)(md, self.pmo(MQPMO(Options=options)).pack())
            self._packed_options[options] = pmo
        return packed, pmo

    @cached_property
    def _initial(self) -> tuple[bytes, bytes]:
        """The bytes of an MD and a GMO with initial values."""
        md, gmo = self._library.MD(), self._library.GMO()
        md.Version, gmo.Version = cmqc.MQMD_VERSION_2, cmqc.MQGMO_VERSION_3
        return md.pack(), gmo.pack()

    def get(self, options: GetOptions) -> tuple[Any, Any]:
        """Make the MD and GMO of a get."""
        md, gmo = map(bytearray, self._initial)
        _ENCODING_AND_CCSID.pack_into(md, _ENCODING_AT, options.Encoding, options.CodedCharSetId)
        _MSG_AND_CORREL_ID.pack_into(md, _MSG_ID_AT, options.MsgId, options.CorrelId)
        _GROUP.pack_into(md, _GROUP_ID_AT, options.GroupId, options.MsgSeqNumber, options.Offset)
        _OPTIONS.pack_into(gmo, _OPTIONS_AT, options.Options, options.WaitInterval)
        gmo[_MATCH_OPTIONS_AT : _MATCH_OPTIONS_AT + 4] = options.MatchOptions.to_bytes(4, sys.byteorder, signed=True)
        gmo[_MSG_TOKEN_AT : _MSG_TOKEN_AT + 16] = options.MsgToken.ljust(16, b"\0")
        library = self._library
        return _packed(library.MD)(None, bytes(md)), _packed(library.GMO)(None, bytes(gmo))

    def got(self, md: Any, gmo: Any, data: bytes, length: int, reason: int) -> Got:
        name, _, group, segment, segmentation, token, returned = _RESULT.unpack_from(gmo.pack(), _RESOLVED_Q_NAME_AT)
        return Got(
            md=decode_mqmd(md.pack()[:_MQMD_2]),
            data=data,
            ResolvedQName=text(name),
            DataLength=length,
            Reason=reason,
            MsgToken=token,
            ReturnedLength=returned,
            GroupStatus=group,
            SegmentStatus=segment,
            Segmentation=segmentation,
        )

    def sd(self, sd: MQSD) -> Any:
        check_sd(sd)
        made = self._library.SD()
        made.Options = sd.Options
        made.ObjectName = sd.ObjectName.encode()
        made.AlternateUserId = sd.AlternateUserId.encode()
        _set_string(made, "ObjectString", sd.ObjectString)
        _set_string(made, "SubName", sd.SubName)
        _set_string(made, "SubUserData", sd.SubUserData, _ROOM)
        _set_string(made, "SelectionString", sd.SelectionString, _ROOM)
        _set_string(made, "ResObjectString", "", _ROOM)
        made.SubLevel = sd.SubLevel
        made.SubExpiry = sd.SubExpiry
        made.PubPriority = sd.PubPriority
        made.PubAccountingToken = sd.PubAccountingToken
        made.PubApplIdentityData = sd.PubApplIdentityData.encode()
        made.SubCorrelId = sd.SubCorrelId
        return made

    @staticmethod
    def read_sd(sd: MQSD, made: Any) -> None:
        """Fill in what MQSUB returned."""
        sd.SubUserData = _string(made, "SubUserData")
        sd.SelectionString = _string(made, "SelectionString")
        sd.ResObjectString = _string(made, "ResObjectString")
        sd.SubCorrelId = made.SubCorrelId
        sd.SubLevel, sd.SubExpiry, sd.PubPriority = made.SubLevel, made.SubExpiry, made.PubPriority


def text(field: bytes | str) -> str:
    """Return the text of a character field without the blanks and zero bytes that fill it."""
    found = field if isinstance(field, str) else field.decode("utf-8", "replace")
    return found.rstrip(" \0")


def _set_string(made: Any, field: str, value: str, room: int = 0) -> None:
    """Set an MQCHARV, with a buffer of `room` bytes for the one that comes back."""
    encoded = value.encode()
    room = max(room, len(encoded)) if room else 0
    if encoded or room:
        made.set_vs(field, encoded.ljust(room, b"\0"), vs_buffer_size=room, vs_ccsid=_UTF_8)
        made[field + "VSLength"] = len(encoded)


def _string(made: Any, field: str) -> str:
    """Return the string that came back in an MQCHARV."""
    return text((made.get_vs(field) or b"")[: max(made[field + "VSLength"], 0)])
