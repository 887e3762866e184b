"""Segments and groups: logical order, complete logical messages, and segmentation by the queue manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.mqi import MQOD, MQError, Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.stand_in_manager import StandInManager
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.logical_messages import segmented
from tests.ibm_standin.mqi.structures import MQPMO, MqiGetOptions

SEGMENT, LAST = cmqc.MQMF_SEGMENT, cmqc.MQMF_LAST_SEGMENT
GROUP, LAST_OF_GROUP = cmqc.MQMF_MSG_IN_GROUP, cmqc.MQMF_LAST_MSG_IN_GROUP
ORDER, WHOLE, BROWSE = cmqc.MQGMO_LOGICAL_ORDER, cmqc.MQGMO_COMPLETE_MSG, cmqc.MQGMO_BROWSE_FIRST


@pytest.fixture
def connection(manager: StandInManager) -> StandInConnection:
    manager.ok("DEFINE QLOCAL(Q)")
    manager.ok("DEFINE QLOCAL(SMALL) MAXMSGL(100) MAXDEPTH(3)")
    return manager.connection


@pytest.fixture
def handle(connection: StandInConnection) -> Any:
    return connection.open(
        MQOD(ObjectName="Q"), cmqc.MQOO_OUTPUT | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE
    )


def put(
    connection: StandInConnection, handle: Any, flags: Any, data: Any, options: int = cmqc.MQPMO_LOGICAL_ORDER
) -> Any:
    return connection.put(handle, Message(MQMD(Version=2, MsgFlags=flags), data), options)


def reason_of(call: Callable[..., object], *arguments: Any) -> int:
    with pytest.raises(MQError) as error:
        call(*arguments)
    return error.value.reason


def get(connection: StandInConnection, handle: Any, options: int = 0, **fields: Any) -> Any:
    return connection.get(handle, MqiGetOptions(Options=options, **fields))


def test_logical_order_determines_the_place_of_segments(connection: StandInConnection, handle: Any) -> None:
    flags = (GROUP | SEGMENT, GROUP | LAST, LAST_OF_GROUP | SEGMENT, LAST_OF_GROUP | LAST)
    md = [put(connection, handle, flag, b"abc") for flag in flags]
    assert [(descriptor.MsgSeqNumber, descriptor.Offset) for descriptor in md] == [(1, 0), (1, 3), (2, 0), (2, 3)]
    assert len({descriptor.GroupId for descriptor in md}) == 1
    messages = [get(connection, handle, ORDER) for _ in flags]
    assert [(message.md.MsgSeqNumber, message.md.Offset) for message in messages] == [(1, 0), (1, 3), (2, 0), (2, 3)]


PERSISTENT, TRANSIENT = cmqc.MQPER_PERSISTENT, cmqc.MQPER_NOT_PERSISTENT


@pytest.mark.parametrize(
    ("persistence", "options", "reason"),
    [
        ((TRANSIENT, PERSISTENT), (0, 0), cmqc.MQRC_INCONSISTENT_PERSISTENCE),
        ((TRANSIENT, TRANSIENT), (0, cmqc.MQPMO_SYNCPOINT), cmqc.MQRC_INCONSISTENT_UOW),
        ((PERSISTENT, PERSISTENT), (cmqc.MQPMO_SYNCPOINT, 0), cmqc.MQRC_INCONSISTENT_UOW),
    ],
)
def test_messages_of_a_group_are_put_with_the_same_options(
    connection: StandInConnection, handle: Any, persistence: Any, options: Any, reason: int
) -> None:
    """2185 and 2245. Rejected puts change nothing."""
    first, second = (
        (Message(MQMD(Version=2, MsgFlags=GROUP, Persistence=value), b""), cmqc.MQPMO_LOGICAL_ORDER | option)
        for value, option in zip(persistence, options, strict=True)
    )
    written = connection.put(handle, *first)
    assert reason_of(connection.put, handle, *second) == reason
    again = connection.put(handle, *first)
    assert (again.GroupId, again.MsgSeqNumber) == (written.GroupId, 2)


def test_messages_of_a_group_are_got_with_the_same_options(connection: StandInConnection, handle: Any) -> None:
    for flags in (GROUP, GROUP, LAST_OF_GROUP):
        put(connection, handle, flags, b"")
    get(connection, handle, ORDER | cmqc.MQGMO_SYNCPOINT)
    assert reason_of(get, connection, handle, ORDER) == cmqc.MQRC_INCONSISTENT_UOW
    assert get(connection, handle, ORDER | cmqc.MQGMO_SYNCPOINT).md.MsgSeqNumber == 2


@pytest.mark.parametrize(
    ("flags", "reason"), [(GROUP, cmqc.MQRC_INCOMPLETE_GROUP), (GROUP | SEGMENT, cmqc.MQRC_INCOMPLETE_MSG)]
)
def test_leaving_the_logical_order_early_causes_one_warning(
    connection: StandInConnection, handle: Any, flags: Any, reason: int
) -> None:
    put(connection, handle, flags, b"abc")
    for expected in (reason, cmqc.MQRC_NONE):
        pmo = MQPMO(Options=0)
        connection.put(handle, Message(MQMD(), b"x"), pmo)
        assert pmo.Reason == expected
    assert get(connection, handle, ORDER).data == b"abc"
    assert [get(connection, handle).Reason for _ in range(2)] == [reason, cmqc.MQRC_NONE]


@pytest.mark.parametrize(
    ("first", "then", "reason"),
    [
        (SEGMENT, 0, cmqc.MQRC_INCOMPLETE_MSG),
        (GROUP, 0, cmqc.MQRC_INCOMPLETE_GROUP),
        (GROUP, SEGMENT, cmqc.MQRC_INCOMPLETE_GROUP),
        (GROUP | SEGMENT, GROUP, cmqc.MQRC_INCOMPLETE_MSG),
    ],
)
def test_an_unfinished_group_must_be_completed(
    connection: StandInConnection, handle: Any, first: Any, then: Any, reason: int
) -> None:
    put(connection, handle, first, b"1")
    assert reason_of(put, connection, handle, then, b"2") == reason
    put(connection, handle, first | LAST if first & SEGMENT else LAST_OF_GROUP, b"3")


def test_a_failed_put_does_not_change_the_place(connection: StandInConnection) -> None:
    handle = connection.open(MQOD(ObjectName="SMALL"), cmqc.MQOO_OUTPUT)
    put(connection, handle, GROUP, b"1")
    assert reason_of(put, connection, handle, GROUP, b"x" * 101) == cmqc.MQRC_MSG_TOO_BIG_FOR_Q
    assert put(connection, handle, GROUP, b"2").MsgSeqNumber == 2


def test_a_logical_message_is_got_completely_or_not_at_all(connection: StandInConnection, handle: Any) -> None:
    put(connection, handle, SEGMENT, b"one, ")
    put(connection, handle, SEGMENT, b"two, ")
    assert reason_of(get, connection, handle, WHOLE) == cmqc.MQRC_NO_MSG_AVAILABLE
    assert reason_of(get, connection, handle, cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE) == cmqc.MQRC_NO_MSG_AVAILABLE
    put(connection, handle, LAST, b"three")
    assert get(connection, handle, BROWSE | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE).data == b"one, "
    message = get(connection, handle, WHOLE | cmqc.MQGMO_SYNCPOINT)
    assert (message.data, message.md.Offset, message.md.MsgFlags, message.md.GroupId) == (
        b"one, two, three",
        0,
        0,
        cmqc.MQGI_NONE,
    )
    assert connection.inquire(handle, [cmqc.MQIA_CURRENT_Q_DEPTH]) == ([3], [])
    connection.backout()
    assert get(connection, handle, WHOLE | BROWSE).data == b"one, two, three"
    assert get(connection, handle, WHOLE).data == b"one, two, three"
    assert connection.inquire(handle, [cmqc.MQIA_CURRENT_Q_DEPTH]) == ([0], [])


def test_a_group_is_complete_when_all_its_segments_have_arrived(connection: StandInConnection, handle: Any) -> None:
    options = ORDER | WHOLE | cmqc.MQGMO_ALL_MSGS_AVAILABLE
    put(connection, handle, GROUP, b"first")
    put(connection, handle, LAST_OF_GROUP | SEGMENT, b"se")
    assert reason_of(get, connection, handle, options) == cmqc.MQRC_NO_MSG_AVAILABLE
    put(connection, handle, LAST_OF_GROUP | LAST, b"cond")
    assert [get(connection, handle, options).data for _ in range(2)] == [b"first", b"second"]
    put(connection, handle, 0, b"alone")
    assert get(connection, handle, options).data == b"alone"


def test_properties_are_before_the_first_segment(connection: StandInConnection, handle: Any) -> None:
    first = Message(MQMD(Version=2, MsgFlags=SEGMENT), b"one")
    connection.put(handle, first, cmqc.MQPMO_LOGICAL_ORDER, [Property(name="p", value="v")])
    put(connection, handle, LAST, b"two")
    message = get(connection, handle, WHOLE | cmqc.MQGMO_NO_PROPERTIES)
    assert message.data == b"onetwo"


def test_the_queue_manager_creates_segments(connection: StandInConnection) -> None:
    handle = connection.open(MQOD(ObjectName="SMALL"), cmqc.MQOO_OUTPUT | cmqc.MQOO_INPUT_SHARED)
    data = bytes(range(250))
    assert reason_of(put, connection, handle, 0, data, 0) == cmqc.MQRC_MSG_TOO_BIG_FOR_Q
    put(connection, handle, cmqc.MQMF_SEGMENTATION_ALLOWED, data, 0)
    message = get(connection, handle, WHOLE | cmqc.MQGMO_SYNCPOINT)
    assert (message.data, message.Segmentation) == (data, b"A")
    connection.backout()
    assert [len(get(connection, handle, ORDER).data) for _ in range(3)] == [96, 96, 58]
    put(connection, handle, 0, b"in the way", 0)
    assert reason_of(put, connection, handle, cmqc.MQMF_SEGMENTATION_ALLOWED, data, 0) == cmqc.MQRC_Q_FULL
    assert get(connection, handle).data == b"in the way"
    assert reason_of(get, connection, handle) == cmqc.MQRC_NO_MSG_AVAILABLE


@given(st.binary(min_size=1, max_size=400), st.integers(1, 120))
def test_segments_together_are_the_message(data: Any, limit: Any) -> None:
    parts = segmented(Message(MQMD(Version=2), data), limit, lambda: b"g" * 24)
    assert b"".join(part.data for part in parts) == data and all(0 < len(part.data) <= limit for part in parts)
    assert [part.md.Offset for part in parts] == [
        sum(len(part.data) for part in parts[:at]) for at in range(len(parts))
    ]
    assert [bool(part.md.MsgFlags & LAST) for part in parts] == [False] * (len(parts) - 1) + [True]
