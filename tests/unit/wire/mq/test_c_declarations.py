"""Structures of MQ lie as the C declarations of IBM's headers have them."""

import ctypes
from typing import Any

import pytest

from bridge.wire.mq.headers import MQDLH_LAYOUT, MQXQH_LAYOUT, RFH2_LAYOUT
from bridge.wire.mq.mqmd import MQMD_LAYOUTS, MQMDE_LAYOUT
from bridge.wire.mq.structure import Layout

LONG = ctypes.c_int32
GROUP = [("GroupId", 24), ("MsgSeqNumber", LONG), ("Offset", LONG), ("MsgFlags", LONG), ("OriginalLength", LONG)]


# The declarations of the C headers, in their order; the C compiler's rules (through ctypes) say where the fields lie.
DECLARATIONS: dict[str, tuple[Layout, int, list[tuple[str, Any]]]] = {
    "MQMD": (
        MQMD_LAYOUTS[2],
        364,
        [
            ("StrucId", 4),
            *((n, LONG) for n in ["Version", "Report", "MsgType", "Expiry", "Feedback", "Encoding", "CodedCharSetId"]),
            ("Format", 8),
            ("Priority", LONG),
            ("Persistence", LONG),
            ("MsgId", 24),
            ("CorrelId", 24),
            ("BackoutCount", LONG),
            ("ReplyToQ", 48),
            ("ReplyToQMgr", 48),
            ("UserIdentifier", 12),
            ("AccountingToken", 32),
            ("ApplIdentityData", 32),
            ("PutApplType", LONG),
            ("PutApplName", 28),
            ("PutDate", 8),
            ("PutTime", 8),
            ("ApplOriginData", 4),
            *GROUP,
        ],
    ),
    "MQMDE": (
        MQMDE_LAYOUT,
        72,
        [
            ("StrucId", 4),
            *((n, LONG) for n in ["Version", "StrucLength", "Encoding", "CodedCharSetId"]),
            ("Format", 8),
            ("Flags", LONG),
            *GROUP,
        ],
    ),
    "MQXQH": (
        MQXQH_LAYOUT,
        104,
        [("StrucId", 4), ("Version", LONG), ("RemoteQName", 48), ("RemoteQMgrName", 48)],
    ),
    "MQDLH": (
        MQDLH_LAYOUT,
        172,
        [
            ("StrucId", 4),
            ("Version", LONG),
            ("Reason", LONG),
            ("DestQName", 48),
            ("DestQMgrName", 48),
            ("Encoding", LONG),
            ("CodedCharSetId", LONG),
            ("Format", 8),
            ("PutApplType", LONG),
            ("PutApplName", 28),
            ("PutDate", 8),
            ("PutTime", 8),
        ],
    ),
    "MQRFH2": (
        RFH2_LAYOUT,
        36,
        [
            ("StrucId", 4),
            *((n, LONG) for n in ["Version", "StrucLength", "Encoding", "CodedCharSetId"]),
            ("Format", 8),
            ("Flags", LONG),
            ("NameValueCCSID", LONG),
        ],
    ),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_fields_lie_where_the_c_declaration_puts_them(name: str) -> None:
    layout, length, fields = DECLARATIONS[name]
    declared = [(field, kind if kind is LONG else ctypes.c_char * kind) for field, kind in fields]
    structure = type(name, (ctypes.Structure,), {"_fields_": declared})
    assert {field: getattr(structure, field).offset for field, _ in fields} == layout.offsets
    assert ctypes.sizeof(structure) == length == layout.length


def test_version_1_of_the_mqmd_is_the_first_324_bytes_of_version_2() -> None:
    assert MQMD_LAYOUTS[1].length == 324
    assert MQMD_LAYOUTS[1].offsets.items() <= MQMD_LAYOUTS[2].offsets.items()
    assert MQMD_LAYOUTS[2].offsets["GroupId"] == 324
