"""MQPUT: options, the fields of the MQMD, context, reports, groups, asynchronous puts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, MQSD, MQError
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.stand_in_manager import StandInManager
from tests.ibm_standin import cmqc
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MQPMO, MqiGetOptions, MqiGot

OUTPUT, SHARED = cmqc.MQOO_OUTPUT, cmqc.MQOO_INPUT_SHARED


@pytest.fixture
def connection(manager: StandInManager) -> StandInConnection:
    for name in ("Q", "REPLIES"):
        manager.ok(f"DEFINE QLOCAL({name})")
    return StandInConnection(manager.itself, "tester", "alice")


def put1(
    connection: StandInConnection, *, pmo: int | MQPMO = 0, name: str = "Q", data: bytes = b"x", **md: Any
) -> MQMD:
    return connection.put1(MQOD(ObjectName=name), Message(MQMD(**md), data), pmo)


def get(connection: StandInConnection, name: str = "Q", options: int = 0) -> MqiGot:
    handle = connection.open(MQOD(ObjectName=name), SHARED)
    try:
        return connection.get(handle, MqiGetOptions(Options=options))
    finally:
        connection.close(handle)


def reason_of(call: Callable[..., object], *arguments: Any, **keywords: Any) -> int:
    with pytest.raises(MQError) as error:
        call(*arguments, **keywords)
    return error.value.reason


@pytest.mark.parametrize(
    ("reply_to", "expected"),
    [
        ({"ReplyToQ": b"ANSWERS"}, (b"ANSWERS", b"MQB1")),
        ({"ReplyToQ": b"ALIAS"}, (b"there", b"dev")),
        ({"ReplyToQ": b"ALIAS", "ReplyToQMgr": b"M"}, (b"ALIAS", b"M")),
        ({"ReplyToQ": b"MANAGER"}, (b"MANAGER", b"MQB1")),
    ],
)
def test_a_reply_to_queue_may_be_an_alias(
    manager: StandInManager, connection: StandInConnection, reply_to: Any, expected: Any
) -> None:
    """ "Reply-to queue alias": a remote queue definition with that name specifies the destination of replies."""
    manager.ok("DEFINE QREMOTE(ALIAS) RNAME('there') RQMNAME('dev')")
    manager.ok("DEFINE QREMOTE(MANAGER) RNAME('') RQMNAME('dev')")
    put = put1(connection, **reply_to)
    assert (put.ReplyToQ, put.ReplyToQMgr) == expected


@pytest.mark.parametrize(
    "options",
    [
        cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NO_SYNCPOINT,
        cmqc.MQPMO_SET_ALL_CONTEXT | cmqc.MQPMO_SET_IDENTITY_CONTEXT,
        cmqc.MQPMO_PASS_ALL_CONTEXT | cmqc.MQPMO_NO_CONTEXT,
        cmqc.MQPMO_DEFAULT_CONTEXT | cmqc.MQPMO_NO_CONTEXT,
        cmqc.MQPMO_ASYNC_RESPONSE | cmqc.MQPMO_SYNC_RESPONSE,
        cmqc.MQPMO_LOGICAL_ORDER,
        0x40000000,
    ],
)
def test_incompatible_options(connection: StandInConnection, options: int) -> None:
    assert reason_of(put1, connection, pmo=options) == cmqc.MQRC_OPTIONS_ERROR


@pytest.mark.parametrize(
    ("md", "reason"),
    [
        ({"Version": 3}, cmqc.MQRC_MD_ERROR),
        ({"MsgType": 3}, cmqc.MQRC_MSG_TYPE_ERROR),
        ({"MsgType": 0}, cmqc.MQRC_MSG_TYPE_ERROR),
        ({"MsgType": cmqc.MQMT_REQUEST}, cmqc.MQRC_MISSING_REPLY_TO_Q),
        ({"Report": cmqc.MQRO_COA}, cmqc.MQRC_MISSING_REPLY_TO_Q),
        ({"Report": 0x200, "ReplyToQ": b"R"}, cmqc.MQRC_REPORT_OPTIONS_ERROR),
        ({"Report": cmqc.MQRO_COA | 0x00008000, "ReplyToQ": b"R"}, cmqc.MQRC_REPORT_OPTIONS_ERROR),
        ({"Feedback": -1}, cmqc.MQRC_FEEDBACK_ERROR),
        ({"Persistence": 3}, cmqc.MQRC_PERSISTENCE_ERROR),
        ({"Expiry": 0}, cmqc.MQRC_EXPIRY_ERROR),
        ({"Expiry": -2}, cmqc.MQRC_EXPIRY_ERROR),
        ({"Priority": -2}, cmqc.MQRC_PRIORITY_ERROR),
        ({"Version": 2, "MsgSeqNumber": 0}, cmqc.MQRC_MSG_SEQ_NUMBER_ERROR),
        ({"Version": 2, "Offset": -1}, cmqc.MQRC_OFFSET_ERROR),
        ({"Version": 2, "MsgFlags": 0x20}, cmqc.MQRC_MSG_FLAGS_ERROR),
    ],
)
def test_invalid_fields(connection: StandInConnection, md: Any, reason: int) -> None:
    assert reason_of(put1, connection, **md) == reason


def test_application_message_types_and_feedback(connection: StandInConnection) -> None:
    md = put1(connection, MsgType=cmqc.MQMT_APPL_FIRST, Feedback=cmqc.MQFB_APPL_FIRST)
    assert (md.MsgType, md.Feedback) == (cmqc.MQMT_APPL_FIRST, cmqc.MQFB_APPL_FIRST)


def test_a_priority_above_the_maximum_is_a_warning(connection: StandInConnection) -> None:
    pmo = MQPMO()
    put1(connection, pmo=pmo, Priority=11, data=b"first")
    assert pmo.Reason == cmqc.MQRC_PRIORITY_EXCEEDS_MAXIMUM
    put1(connection, pmo=pmo, Priority=9, data=b"second")
    assert pmo.Reason == cmqc.MQRC_NONE
    message = get(connection)
    assert (message.data, message.md.Priority) == (b"first", 11)


def test_a_publication_has_the_maximum_priority_at_most(connection: StandInConnection) -> None:
    sd = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED, ObjectString="news")
    _, queue = connection.subscribe(sd)
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="news")
    connection.put1(od, Message(MQMD(Priority=11), b"x"))
    assert connection.get(queue, MqiGetOptions()).md.Priority == 9


def test_short_identifiers_are_padded_with_nuls(connection: StandInConnection) -> None:
    put = put1(connection, MsgId=b"message", CorrelId=b"request")
    assert (put.MsgId, put.CorrelId) == (b"message".ljust(24, b"\0"), b"request".ljust(24, b"\0"))
    assert get(connection).md == put


def test_new_identifiers_and_no_reply_to(connection: StandInConnection) -> None:
    identifier = b"i" * 24
    flags = cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_NEW_CORREL_ID | cmqc.MQPMO_SUPPRESS_REPLYTO
    put = put1(connection, pmo=flags, MsgId=identifier, CorrelId=identifier, ReplyToQ=b"R", ReplyToQMgr=b"M")
    md = get(connection).md
    assert md == put
    assert identifier not in (md.MsgId, md.CorrelId)
    assert md.MsgId != md.CorrelId
    assert (md.ReplyToQ, md.ReplyToQMgr) == (b"", b"")


# Context -------------------------------------------------------------------------------------------------------------

GIVEN = {
    "UserIdentifier": b"mallory",
    "AccountingToken": b"t" * 32,
    "ApplIdentityData": b"identity",
    "PutApplType": cmqc.MQAT_CICS,
    "PutApplName": b"elsewhere",
    "PutDate": b"19990101",
    "PutTime": b"00000000",
    "ApplOriginData": b"orig",
}
IDENTITY, ORIGIN = list(GIVEN)[:3], list(GIVEN)[3:]


def fields(md: MQMD, names: list[str]) -> list[object]:
    return [getattr(md, name) for name in names]


@pytest.mark.parametrize(
    ("option", "identity", "origin"),
    [
        (0, "own", "own"),
        (cmqc.MQPMO_DEFAULT_CONTEXT, "own", "own"),
        (cmqc.MQPMO_NO_CONTEXT, "none", "none"),
        (cmqc.MQPMO_SET_IDENTITY_CONTEXT, "given", "own"),
        (cmqc.MQPMO_SET_ALL_CONTEXT, "given", "given"),
    ],
)
def test_context(connection: StandInConnection, option: int, identity: str, origin: str) -> None:
    put1(connection, pmo=option, **GIVEN)
    md = get(connection).md
    expected_identity = {
        "own": [b"alice", bytes(32), b""],
        "none": [b"", bytes(32), b""],
        "given": [GIVEN[name] for name in IDENTITY],
    }
    assert fields(md, IDENTITY) == expected_identity[identity]
    if origin == "own":
        assert (md.PutApplType, md.PutApplName, md.ApplOriginData) == (cmqc.MQAT_UNIX, b"tester", b"")
        assert md.PutDate.startswith(b"2")
    else:
        none = [cmqc.MQAT_NO_CONTEXT, b"", b"", b"", b""]
        assert fields(md, ORIGIN) == (none if origin == "none" else [GIVEN[name] for name in ORIGIN])


@pytest.mark.parametrize(
    ("option", "opened", "reason"),
    [
        (cmqc.MQPMO_SET_ALL_CONTEXT, cmqc.MQOO_SET_IDENTITY_CONTEXT, cmqc.MQRC_NOT_OPEN_FOR_SET_ALL),
        (cmqc.MQPMO_SET_IDENTITY_CONTEXT, cmqc.MQOO_PASS_ALL_CONTEXT, cmqc.MQRC_NOT_OPEN_FOR_SET_IDENT),
        (cmqc.MQPMO_PASS_ALL_CONTEXT, cmqc.MQOO_PASS_IDENTITY_CONTEXT, cmqc.MQRC_NOT_OPEN_FOR_PASS_ALL),
        (cmqc.MQPMO_PASS_IDENTITY_CONTEXT, 0, cmqc.MQRC_NOT_OPEN_FOR_PASS_IDENT),
        (cmqc.MQPMO_SET_ALL_CONTEXT, cmqc.MQOO_SET_ALL_CONTEXT, 0),
        (cmqc.MQPMO_SET_IDENTITY_CONTEXT, cmqc.MQOO_SET_ALL_CONTEXT, 0),
    ],
)
def test_context_needs_the_open_option(connection: StandInConnection, option: int, opened: int, reason: int) -> None:
    handle = connection.open(MQOD(ObjectName="Q"), OUTPUT | opened)
    if reason:
        assert reason_of(connection.put, handle, Message(MQMD(), b""), option) == reason
    else:
        connection.put(handle, Message(MQMD(), b""), option)


@pytest.mark.parametrize("option", [cmqc.MQPMO_PASS_ALL_CONTEXT, cmqc.MQPMO_PASS_IDENTITY_CONTEXT])
def test_context_is_passed_on(connection: StandInConnection, option: int) -> None:
    put1(connection, pmo=cmqc.MQPMO_SET_ALL_CONTEXT, **GIVEN)
    source = connection.open(MQOD(ObjectName="Q"), SHARED | cmqc.MQOO_SAVE_ALL_CONTEXT)
    plain = connection.open(MQOD(ObjectName="Q"), SHARED)
    target = connection.open(MQOD(ObjectName="REPLIES"), OUTPUT | cmqc.MQOO_PASS_ALL_CONTEXT)
    message = Message(MQMD(), b"")
    for wrong in (0, plain):
        pmo = MQPMO(Options=option, Context=wrong)
        assert reason_of(connection.put, target, message, pmo) == cmqc.MQRC_CONTEXT_HANDLE_ERROR
    pmo = MQPMO(Options=option, Context=source)
    assert reason_of(connection.put, target, message, pmo) == cmqc.MQRC_CONTEXT_NOT_AVAILABLE
    connection.get(source, MqiGetOptions())
    connection.put(target, message, pmo)
    md = get(connection, "REPLIES").md
    assert fields(md, IDENTITY) == [GIVEN[name] for name in IDENTITY]
    assert (fields(md, ORIGIN) == [GIVEN[name] for name in ORIGIN]) is (option == cmqc.MQPMO_PASS_ALL_CONTEXT)


# Reports -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "length", "format_"),
    [(cmqc.MQRO_COA, 0, b""), (cmqc.MQRO_COA_WITH_DATA, 100, b"MQSTR"), (cmqc.MQRO_COA_WITH_FULL_DATA, 150, b"MQSTR")],
)
def test_confirm_on_arrival(connection: StandInConnection, option: int, length: int, format_: bytes) -> None:
    put = put1(connection, data=b"d" * 150, Report=option, ReplyToQ=b"REPLIES", Format=b"MQSTR", Persistence=1)
    report = get(connection, "REPLIES")
    assert (report.md.MsgType, report.md.Feedback, report.md.CorrelId) == (cmqc.MQMT_REPORT, cmqc.MQFB_COA, put.MsgId)
    assert report.md.MsgId != put.MsgId
    assert (report.data, report.md.Format) == (b"d" * length, format_)
    assert (report.md.Persistence, report.md.UserIdentifier) == (1, b"alice")
    assert (report.md.PutApplType, report.md.PutApplName) == (cmqc.MQAT_QMGR, b"MQB1")


def test_confirm_on_delivery_passes_identifiers(connection: StandInConnection) -> None:
    flags = cmqc.MQRO_COD | cmqc.MQRO_PASS_MSG_ID | cmqc.MQRO_PASS_CORREL_ID
    put = put1(connection, Report=flags, ReplyToQ=b"REPLIES", CorrelId=b"c" * 24)
    assert reason_of(get, connection, "REPLIES") == cmqc.MQRC_NO_MSG_AVAILABLE
    get(connection, options=cmqc.MQGMO_SYNCPOINT)
    assert reason_of(get, connection, "REPLIES") == cmqc.MQRC_NO_MSG_AVAILABLE
    connection.commit()
    report = get(connection, "REPLIES").md
    assert (report.Feedback, report.MsgId, report.CorrelId) == (cmqc.MQFB_COD, put.MsgId, b"c" * 24)


def test_a_backed_out_get_delivers_nothing(connection: StandInConnection) -> None:
    put1(connection, Report=cmqc.MQRO_COD, ReplyToQ=b"REPLIES")
    get(connection, options=cmqc.MQGMO_SYNCPOINT)
    connection.backout()
    assert reason_of(get, connection, "REPLIES") == cmqc.MQRC_NO_MSG_AVAILABLE


def test_expiration_is_reported(connection: StandInConnection) -> None:
    put = put1(connection, Report=cmqc.MQRO_EXPIRATION_WITH_FULL_DATA, ReplyToQ=b"REPLIES", Expiry=1, data=b"late")
    time.sleep(0.15)
    assert reason_of(get, connection) == cmqc.MQRC_NO_MSG_AVAILABLE
    report = get(connection, "REPLIES")
    assert (report.md.Feedback, report.md.CorrelId, report.data) == (cmqc.MQFB_EXPIRATION, put.MsgId, b"late")


def test_a_report_without_destination_is_dead_lettered(manager: StandInManager, connection: StandInConnection) -> None:
    manager.ok("DEFINE QLOCAL(DLQ)")
    manager.ok("ALTER QMGR DEADQ(DLQ)")
    put1(connection, Report=cmqc.MQRO_COA, ReplyToQ=b"NOWHERE")
    message = get(connection, "DLQ")
    assert message.md.Format == b"MQDEAD"
    assert message.md.MsgType == cmqc.MQMT_REPORT
    assert b"NOWHERE" in message.data


def test_put1_rejects_a_model_queue(connection: StandInConnection) -> None:
    od = MQOD(ObjectName="SYSTEM.DEFAULT.MODEL.QUEUE")
    assert reason_of(connection.put1, od, Message(MQMD(), b"")) == cmqc.MQRC_Q_TYPE_ERROR


# Groups --------------------------------------------------------------------------------------------------------------


def test_logical_order_numbers_a_group(connection: StandInConnection) -> None:
    handle = connection.open(MQOD(ObjectName="Q"), OUTPUT)
    put = []
    for flags in (cmqc.MQMF_MSG_IN_GROUP, cmqc.MQMF_MSG_IN_GROUP, cmqc.MQMF_LAST_MSG_IN_GROUP):
        message = Message(MQMD(Version=2, MsgFlags=flags), b"")
        put.append(connection.put(handle, message, cmqc.MQPMO_LOGICAL_ORDER))
    assert [md.MsgSeqNumber for md in put] == [1, 2, 3]
    assert len({md.GroupId for md in put}) == 1 and put[0].GroupId != cmqc.MQGI_NONE
    following = connection.put(
        handle, Message(MQMD(Version=2, MsgFlags=cmqc.MQMF_MSG_IN_GROUP), b""), cmqc.MQPMO_LOGICAL_ORDER
    )
    assert (following.MsgSeqNumber, following.GroupId == put[0].GroupId) == (1, False)
    alone = Message(MQMD(Version=2), b"")
    assert reason_of(connection.put, handle, alone, cmqc.MQPMO_LOGICAL_ORDER) == cmqc.MQRC_INCOMPLETE_GROUP


def test_a_message_without_flags_belongs_to_no_group(connection: StandInConnection) -> None:
    md = put1(connection, Version=2, GroupId=b"g" * 24, MsgSeqNumber=5, Offset=7)
    assert (md.GroupId, md.MsgSeqNumber, md.Offset) == (cmqc.MQGI_NONE, 1, 0)


# Asynchronous response -----------------------------------------------------------------------------------------------


def test_statistics_of_asynchronous_puts(manager: StandInManager, connection: StandInConnection) -> None:
    manager.ok("DEFINE QLOCAL(SMALL) MAXDEPTH(1)")
    for _ in range(3):
        put1(connection, name="SMALL", pmo=cmqc.MQPMO_ASYNC_RESPONSE)
    put1(connection, pmo=cmqc.MQPMO_ASYNC_RESPONSE, Priority=10)
    status = connection.statistics(cmqc.MQSTAT_TYPE_ASYNC_ERROR)
    assert (status.PutSuccessCount, status.PutWarningCount, status.PutFailureCount) == (1, 1, 2)
    assert (status.CompCode, status.Reason, status.ObjectName) == (cmqc.MQCC_FAILED, cmqc.MQRC_Q_FULL, "SMALL")
    again = connection.statistics(cmqc.MQSTAT_TYPE_ASYNC_ERROR)
    assert (again.CompCode, again.PutFailureCount) == (cmqc.MQCC_OK, 0)
    assert reason_of(connection.statistics, 9) == cmqc.MQRC_STAT_TYPE_ERROR
