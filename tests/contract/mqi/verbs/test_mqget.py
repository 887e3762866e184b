"""MQGET: options, match options, browsing with locks and marks, groups, selectors, conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, MQError, Property, TruncatedMessage
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.stand_in_manager import StandInManager
from tests.ibm_standin import cmqc
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MqiGetOptions, MqiGot

SHARED, BROWSE = cmqc.MQOO_INPUT_SHARED, cmqc.MQOO_BROWSE
FIRST, NEXT = cmqc.MQGMO_BROWSE_FIRST, cmqc.MQGMO_BROWSE_NEXT
BOTH = SHARED | BROWSE


@pytest.fixture
def connection(manager: StandInManager) -> StandInConnection:
    manager.ok("DEFINE QLOCAL(Q)")
    return manager.connection


def put(connection: StandInConnection, data: bytes = b"x", *, properties: Any = (), **md: Any) -> MQMD:
    return connection.put1(MQOD(ObjectName="Q"), Message(MQMD(**md), data), properties=properties)


def opened(connection: StandInConnection, options: int = BOTH, **od: Any) -> int:
    return connection.open(MQOD(ObjectName="Q", **od), options)


def get(connection: StandInConnection, handle: int, options: int = 0, **fields: Any) -> bytes:
    return connection.get(handle, MqiGetOptions(Options=options, **fields)).data


def reason_of(call: Callable[..., object], *arguments: Any, **keywords: Any) -> int:
    with pytest.raises(MQError) as error:
        call(*arguments, **keywords)
    return error.value.reason


def everything(connection: StandInConnection, handle: int, options: int = 0, **fields: Any) -> list[bytes]:
    messages = []
    while True:
        try:
            messages.append(get(connection, handle, options, **fields))
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE, error
            return messages


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (FIRST | NEXT, cmqc.MQRC_OPTIONS_ERROR),
        (FIRST | cmqc.MQGMO_MSG_UNDER_CURSOR, cmqc.MQRC_OPTIONS_ERROR),
        (FIRST | cmqc.MQGMO_SYNCPOINT, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_NO_SYNCPOINT, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_LOCK, cmqc.MQRC_OPTIONS_ERROR),
        (FIRST | cmqc.MQGMO_LOCK | cmqc.MQGMO_UNLOCK, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_UNLOCK | cmqc.MQGMO_WAIT, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_UNLOCK, cmqc.MQRC_NO_MSG_LOCKED),
        (cmqc.MQGMO_MARK_BROWSE_HANDLE, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_UNMARKED_BROWSE_MSG, cmqc.MQRC_OPTIONS_ERROR),
        (FIRST | cmqc.MQGMO_MARK_BROWSE_CO_OP, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_NO_PROPERTIES | cmqc.MQGMO_PROPERTIES_IN_HANDLE, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_SET_SIGNAL, cmqc.MQRC_OPTIONS_ERROR),
        (cmqc.MQGMO_MSG_UNDER_CURSOR, cmqc.MQRC_NO_MSG_UNDER_CURSOR),
    ],
)
def test_incompatible_options(connection: StandInConnection, options: Any, reason: int) -> None:
    put(connection)
    handle = opened(connection)
    assert reason_of(get, connection, handle, options) == reason
    assert get(connection, handle) == b"x"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"MatchOptions": 0x4000}, cmqc.MQRC_MATCH_OPTIONS_ERROR),
        ({"MatchOptions": cmqc.MQMO_MATCH_MSG_TOKEN}, cmqc.MQRC_MSG_TOKEN_ERROR),
        (
            {"MatchOptions": cmqc.MQMO_MATCH_MSG_TOKEN, "MsgToken": b"t" * 16, "Options": cmqc.MQGMO_WAIT},
            cmqc.MQRC_MSG_TOKEN_ERROR,
        ),
        ({"Options": cmqc.MQGMO_WAIT, "WaitInterval": -2}, cmqc.MQRC_WAIT_INTERVAL_ERROR),
    ],
)
def test_invalid_fields(connection: StandInConnection, fields: Any, reason: int) -> None:
    assert reason_of(connection.get, opened(connection), MqiGetOptions(**fields)) == reason


# Matching ------------------------------------------------------------------------------------------------------------


def test_match_options(connection: StandInConnection) -> None:
    group = b"g" * 24
    first = put(connection, b"1", CorrelId=b"a" * 24)
    put(connection, b"2", CorrelId=b"b" * 24)
    for number in (1, 2):
        flags = cmqc.MQMF_MSG_IN_GROUP
        put(connection, b"g%d" % number, Version=2, GroupId=group, MsgSeqNumber=number, MsgFlags=flags)
    handle = opened(connection)
    for fields, expected in (
        ({"CorrelId": b"b" * 24}, [b"2"]),
        ({"MsgId": first.MsgId}, [b"1"]),
        ({"MsgId": first.MsgId, "CorrelId": b"b" * 24}, []),
        ({"MsgId": first.MsgId, "MatchOptions": cmqc.MQMO_NONE}, [b"1", b"2", b"g1", b"g2"]),
        ({"GroupId": group}, [b"1", b"2", b"g1", b"g2"]),
        ({"GroupId": group, "MatchOptions": cmqc.MQMO_MATCH_GROUP_ID}, [b"g1", b"g2"]),
        ({"MsgSeqNumber": 2, "MatchOptions": cmqc.MQMO_MATCH_MSG_SEQ_NUMBER}, [b"g2"]),
        ({"Offset": 1, "MatchOptions": cmqc.MQMO_MATCH_OFFSET}, []),
    ):
        connection.close(handle)
        handle = opened(connection)
        assert everything(connection, handle, NEXT, **fields) == expected


def test_match_by_token(connection: StandInConnection) -> None:
    for body in (b"1", b"2"):
        put(connection, body)
    handle = opened(connection)
    connection.get(handle, MqiGetOptions(Options=FIRST))
    token = connection.get(handle, MqiGetOptions(Options=NEXT)).MsgToken
    wanted = {"MatchOptions": cmqc.MQMO_MATCH_MSG_TOKEN, "MsgToken": token}
    assert get(connection, handle, **wanted) == b"2"
    assert reason_of(get, connection, handle, **wanted) == cmqc.MQRC_NO_MSG_AVAILABLE


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("colour = 'red'", [b"red"]),
        ("colour IS NULL", [b"plain"]),
        ("size > 3", [b"red"]),
        ("Root.MQMD.Priority >= 5", [b"blue"]),
        ('Root.MQMD.CorrelId = "0x' + "63" * 24 + '"', [b"blue"]),
        ("Root.MQMD.Format = 'MQSTR'", [b"plain"]),
        ("usr.colour LIKE '%e%'", [b"blue", b"red"]),
    ],
)
def test_selectors(connection: StandInConnection, selector: str, expected: Any) -> None:
    red = [Property(name="colour", value="red"), Property(name="size", type=cmqc.MQTYPE_INT16, value=4)]
    put(connection, b"red", properties=red)
    put(connection, b"blue", properties=[Property(name="colour", value="blue")], Priority=5, CorrelId=b"c" * 24)
    put(connection, b"plain", Format=b"MQSTR")
    handle = opened(connection, SelectionString=selector)
    none = cmqc.MQGMO_NO_PROPERTIES
    assert everything(connection, handle, NEXT | none) == expected
    assert everything(connection, handle, none) == expected
    assert len(everything(connection, opened(connection))) == 3 - len(expected)


# Browsing ------------------------------------------------------------------------------------------------------------


def test_only_its_handle_sees_a_locked_message(manager: StandInManager, connection: StandInConnection) -> None:
    for body in (b"1", b"2"):
        put(connection, body)
    other = StandInConnection(manager.itself)
    handle, others = opened(connection), opened(other)
    assert get(connection, handle, FIRST | cmqc.MQGMO_LOCK) == b"1"
    assert get(other, others, FIRST) == b"2"
    get(connection, handle, cmqc.MQGMO_UNLOCK)
    assert get(other, others, FIRST) == b"1"
    assert get(connection, handle, FIRST | cmqc.MQGMO_LOCK) == b"1"
    assert get(connection, handle, NEXT) == b"2"
    assert get(other, others, FIRST) == b"1"
    assert get(connection, handle, FIRST | cmqc.MQGMO_LOCK) == b"1"
    connection.close(handle)
    assert get(other, others) == b"1"


def test_marked_messages(manager: StandInManager, connection: StandInConnection) -> None:
    for body in (b"1", b"2"):
        put(connection, body)
    marking = NEXT | cmqc.MQGMO_UNMARKED_BROWSE_MSG
    handle = opened(connection)
    mark = marking | cmqc.MQGMO_MARK_BROWSE_HANDLE
    assert everything(connection, handle, mark) == [b"1", b"2"]
    assert reason_of(get, connection, handle, FIRST | cmqc.MQGMO_UNMARKED_BROWSE_MSG) == cmqc.MQRC_NO_MSG_AVAILABLE
    assert get(connection, handle, FIRST) == b"1"
    assert get(connection, opened(connection), FIRST | cmqc.MQGMO_UNMARKED_BROWSE_MSG) == b"1"


def test_cooperating_browsers_share_their_marks(manager: StandInManager, connection: StandInConnection) -> None:
    for body in (b"1", b"2", b"3"):
        put(connection, body)
    other = StandInConnection(manager.itself)
    mark = NEXT | cmqc.MQGMO_UNMARKED_BROWSE_MSG | cmqc.MQGMO_MARK_BROWSE_CO_OP
    handle, others = (opened(side, BOTH | cmqc.MQOO_CO_OP) for side in (connection, other))
    first = connection.get(handle, MqiGetOptions(Options=mark))
    assert first.data == b"1"
    assert get(other, others, mark) == b"2"
    assert get(connection, handle, mark) == b"3"
    unmark = MqiGetOptions(
        Options=cmqc.MQGMO_UNMARK_BROWSE_CO_OP, MatchOptions=cmqc.MQMO_MATCH_MSG_TOKEN, MsgToken=first.MsgToken
    )
    connection.get(handle, unmark)
    assert get(other, others, FIRST | cmqc.MQGMO_UNMARKED_BROWSE_MSG | cmqc.MQGMO_MARK_BROWSE_CO_OP) == b"1"


# Groups --------------------------------------------------------------------------------------------------------------


def put_group(connection: StandInConnection, name: bytes, *numbers: int, last: int) -> None:
    for number in numbers:
        flags = cmqc.MQMF_LAST_MSG_IN_GROUP if number == last else cmqc.MQMF_MSG_IN_GROUP
        group = {"GroupId": name.ljust(24, b"\0"), "MsgSeqNumber": number, "MsgFlags": flags}
        put(connection, name + b"%d" % number, Version=2, **group)


def test_logical_order(connection: StandInConnection) -> None:
    put_group(connection, b"a", 2, 1, last=3)
    put(connection, b"alone")
    put_group(connection, b"b", 2, 1, last=2)
    put_group(connection, b"a", 3, last=3)
    handle = opened(connection)
    order = [b"a1", b"a2", b"a3", b"alone", b"b1", b"b2"]
    assert everything(connection, handle, cmqc.MQGMO_LOGICAL_ORDER) == order


def test_only_complete_groups(connection: StandInConnection) -> None:
    put_group(connection, b"a", 1, 2, last=3)
    put_group(connection, b"b", 1, 2, last=2)
    handle = opened(connection)
    options = cmqc.MQGMO_LOGICAL_ORDER | cmqc.MQGMO_ALL_MSGS_AVAILABLE
    assert everything(connection, handle, options) == [b"b1", b"b2"]
    put_group(connection, b"a", 3, last=3)
    messages = [connection.get(handle, MqiGetOptions(Options=options)) for _ in range(3)]
    assert [message.data for message in messages] == [b"a1", b"a2", b"a3"]
    assert [message.GroupStatus for message in messages] == [
        cmqc.MQGS_MSG_IN_GROUP,
        cmqc.MQGS_MSG_IN_GROUP,
        cmqc.MQGS_LAST_MSG_IN_GROUP,
    ]


# The rest ------------------------------------------------------------------------------------------------------------


def test_data_that_does_not_fit_is_returned_with_a_warning(connection: StandInConnection) -> None:
    put(connection, b"0123456789", CorrelId=b"c" * 24)
    handle = opened(connection)
    with pytest.raises(TruncatedMessage) as error:
        get(connection, handle, MaxLength=4)
    message = error.value.got
    assert isinstance(message, MqiGot)
    assert (message.data, message.DataLength, message.ReturnedLength, message.md.CorrelId) == (
        b"0123",
        10,
        4,
        b"c" * 24,
    )
    assert error.value.comp_code == cmqc.MQCC_WARNING
    assert get(connection, handle) == b"0123456789"


@pytest.mark.parametrize(
    ("format_", "stored", "ccsid", "wanted", "expected", "reason"),
    [
        (b"MQSTR", "grün".encode("latin-1"), 819, 1208, "grün".encode(), 0),
        (b"MQSTR", "grün".encode(), 1208, 819, "grün".encode("latin-1"), 0),
        (b"MQSTR", "grün".encode(), 1208, 0, "grün".encode(), 0),
        (b"MQSTR", "grün".encode(), 1208, 500, "grün".encode("cp500"), 0),
        (b"MQSTR", "grün".encode(), 1208, 1200, "grün".encode("utf-16-le"), 0),
        (b"MQSTR", b"\xff", 1208, 819, b"\xff", cmqc.MQRC_NOT_CONVERTED),
        (b"MQSTR", b"x", 9999, 1208, b"x", cmqc.MQRC_SOURCE_CCSID_ERROR),
        (b"MQSTR", b"x", 1208, 9999, b"x", cmqc.MQRC_TARGET_CCSID_ERROR),
        (b"", b"x", 819, 1208, b"x", cmqc.MQRC_FORMAT_ERROR),
        (b"", b"x", 1208, 1208, b"x", 0),
    ],
)
def test_conversion(
    connection: StandInConnection, format_: bytes, stored: Any, ccsid: int, wanted: int, expected: Any, reason: int
) -> None:
    put(connection, stored, Format=format_, CodedCharSetId=ccsid)
    message = connection.get(opened(connection), MqiGetOptions(Options=cmqc.MQGMO_CONVERT, CodedCharSetId=wanted))
    assert (message.data, message.Reason) == (expected, reason)
    assert message.md.CodedCharSetId == (ccsid if reason else wanted or 1208)


def test_syncpoint_if_persistent(connection: StandInConnection) -> None:
    put(connection, b"kept", Persistence=1)
    put(connection, b"lost", Persistence=0)
    handle = opened(connection)
    assert everything(connection, handle, cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT) == [b"kept", b"lost"]
    connection.backout()
    assert everything(connection, handle) == [b"kept"]
