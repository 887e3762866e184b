"""Inquire Queue Status and Inquire Connection."""

from __future__ import annotations

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.mqi import MQOD, GetOptions
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import (
    MQCFIF,
    MQCFSF,
)
from testing.ibm_standin import cmqc, cmqcfc
from testing.ibm_standin.cmqc import MQCA_Q_NAME, MQIA_CURRENT_Q_DEPTH
from tests.helpers.pcf_administrator import Administrator


def test_queue_status(admin: Administrator) -> None:
    admin.put("APP.IN")
    admin.put("APP.IN", options=cmqc.MQPMO_SYNCPOINT)
    writing = admin.connection.open(MQOD(ObjectName="APP.IN"), cmqc.MQOO_OUTPUT | cmqc.MQOO_INQUIRE)
    command = cmqcfc.MQCMD_INQUIRE_Q_STATUS
    (status,) = admin.ask(command, {MQCA_Q_NAME: "APP.IN"})
    expected = {
        cmqcfc.MQIACF_Q_STATUS_TYPE: cmqcfc.MQIACF_Q_STATUS,
        MQIA_CURRENT_Q_DEPTH: 2,
        cmqcfc.MQIACF_UNCOMMITTED_MSGS: 1,
        cmqc.MQIA_OPEN_INPUT_COUNT: 0,
        cmqc.MQIA_OPEN_OUTPUT_COUNT: 1,
        cmqcfc.MQIACF_OLDEST_MSG_AGE: 0,
    }
    assert expected.items() <= status.items()
    handles = {MQCA_Q_NAME: "APP.*", cmqcfc.MQIACF_Q_STATUS_TYPE: cmqcfc.MQIACF_Q_HANDLE}
    (handle,) = admin.ask(command, handles)
    expected = {
        MQCA_Q_NAME: "APP.IN",
        cmqcfc.MQIACF_OPEN_OUTPUT: cmqcfc.MQQSO_YES,
        cmqcfc.MQIACF_OPEN_INQUIRE: cmqcfc.MQQSO_YES,
        cmqcfc.MQIACF_OPEN_INPUT_TYPE: cmqcfc.MQQSO_NO,
        cmqcfc.MQCACF_APPL_TAG: "administrator",
        cmqcfc.MQCACF_USER_IDENTIFIER: "admin",
    }
    assert expected.items() <= handle.items()
    inputs = handles | {MQCA_Q_NAME: "*", cmqcfc.MQIACF_OPEN_TYPE: cmqcfc.MQQSOT_INPUT}
    (reading,) = admin.ask(command, inputs)
    assert (reading[MQCA_Q_NAME], reading[cmqcfc.MQIACF_OPEN_INPUT_TYPE]) == ("REPLIES", cmqcfc.MQQSO_SHARED)
    some = {MQCA_Q_NAME: "*", cmqcfc.MQIACF_Q_STATUS_ATTRS: [MQIA_CURRENT_Q_DEPTH]}
    (deep,) = admin.ask(command, some, MQCFIF(MQIA_CURRENT_Q_DEPTH, cmqcfc.MQCFOP_GREATER, 0))
    assert deep == {
        MQCA_Q_NAME: "APP.IN",
        cmqcfc.MQIACF_Q_STATUS_TYPE: cmqcfc.MQIACF_Q_STATUS,
        MQIA_CURRENT_Q_DEPTH: 2,
    }
    admin.connection.close(writing)
    assert admin.refused(command, handles)[0] == cmqcfc.MQRCCF_Q_STATUS_NOT_FOUND
    assert admin.refused(command, {MQCA_Q_NAME: "NONE"})[0] == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    assert admin.refused(command, {MQCA_Q_NAME: "APP.ALIAS"})[0] == cmqcfc.MQRCCF_Q_WRONG_TYPE
    assert admin.refused(command, handles | {cmqcfc.MQIACF_OPEN_TYPE: 9})[0] == cmqcfc.MQRCCF_PARM_VALUE_ERROR


def test_connections(admin: Administrator) -> None:
    other = EmbeddedConnection(admin.queue_manager, "other", "user")
    queue = other.open(MQOD(ObjectName="APP.IN"), cmqc.MQOO_OUTPUT)
    other.put(queue, Message(MQMD(), b"x"), cmqc.MQPMO_SYNCPOINT)
    command = cmqcfc.MQCMD_INQUIRE_CONNECTION
    everyone = {cmqcfc.MQBACF_GENERIC_CONNECTION_ID: bytes(24)}
    found = {one[cmqcfc.MQCACF_APPL_TAG]: one for one in admin.ask(command, everyone)}
    assert set(found) == {"administrator", "other"}
    assert found["other"][cmqcfc.MQCACF_USER_IDENTIFIER] == "user"
    states = {name: one[cmqcfc.MQIACF_UOW_STATE] for name, one in found.items()}
    assert states == {"administrator": cmqcfc.MQUOWST_NONE, "other": cmqcfc.MQUOWST_ACTIVE}
    identifier = found["other"][cmqcfc.MQBACF_CONNECTION_ID]
    assert len(identifier) == 24 and identifier.startswith(b"AMQCMQB1")

    handles = {cmqcfc.MQIACF_CONN_INFO_TYPE: cmqcfc.MQIACF_CONN_INFO_HANDLE}
    (handle,) = admin.ask(command, {cmqcfc.MQBACF_CONNECTION_ID: identifier} | handles)
    expected = {cmqcfc.MQCACF_OBJECT_NAME: "APP.IN", cmqcfc.MQIACF_OPEN_OPTIONS: cmqc.MQOO_OUTPUT}
    assert expected.items() <= handle.items()
    both = {cmqcfc.MQIACF_CONN_INFO_TYPE: cmqcfc.MQIACF_CONN_INFO_ALL}
    assert len(admin.ask(command, {cmqcfc.MQBACF_CONNECTION_ID: identifier} | both)) == 2
    tagged = MQCFSF(cmqcfc.MQCACF_APPL_TAG, cmqcfc.MQCFOP_EQUAL, b"other")
    assert [one[cmqcfc.MQBACF_CONNECTION_ID] for one in admin.ask(command, everyone, tagged)] == [identifier]

    other.disconnect()
    gone = (cmqcfc.MQRCCF_CONNECTION_ID_ERROR, cmqcfc.MQBACF_CONNECTION_ID)
    assert admin.refused(command, {cmqcfc.MQBACF_CONNECTION_ID: identifier}) == gone
    unknown = {cmqcfc.MQBACF_GENERIC_CONNECTION_ID: b"XXXX"}
    assert admin.refused(command, unknown)[0] == cmqcfc.MQRCCF_NONE_FOUND
    assert admin.refused(command, {})[0] == cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL


@pytest.mark.parametrize(
    ("command", "named", "name", "reason"),
    [
        ("INQUIRE_CHANNEL", cmqcfc.MQCACH_CHANNEL_NAME, "*", cmqcfc.MQRCCF_CHANNEL_NOT_FOUND),
        ("INQUIRE_CHANNEL_STATUS", cmqcfc.MQCACH_CHANNEL_NAME, "*", cmqcfc.MQRCCF_CHL_STATUS_NOT_FOUND),
        ("INQUIRE_CHLAUTH_RECS", cmqcfc.MQCACH_CHANNEL_NAME, "*", cmqcfc.MQRCCF_CHLAUTH_NOT_FOUND),
        ("INQUIRE_LISTENER", cmqcfc.MQCACH_LISTENER_NAME, "*", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("INQUIRE_LISTENER_STATUS", cmqcfc.MQCACH_LISTENER_NAME, "*", cmqcfc.MQRCCF_LSTR_STATUS_NOT_FOUND),
        ("INQUIRE_PROCESS", cmqc.MQCA_PROCESS_NAME, "*", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("INQUIRE_SERVICE", cmqc.MQCA_SERVICE_NAME, "*", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("INQUIRE_SERVICE_STATUS", cmqc.MQCA_SERVICE_NAME, "*", cmqcfc.MQRCCF_SERV_STATUS_NOT_FOUND),
        ("INQUIRE_CLUSTER_Q_MGR", cmqc.MQCA_CLUSTER_Q_MGR_NAME, "*", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("INQUIRE_NAMELIST", cmqc.MQCA_NAMELIST_NAME, "MY.*", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("INQUIRE_AUTH_INFO", cmqc.MQCA_AUTH_INFO_NAME, "MY.*", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        *(
            (f"{verb}_CHANNEL", cmqcfc.MQCACH_CHANNEL_NAME, "C", cmqcfc.MQRCCF_CHANNEL_NOT_FOUND)
            for verb in ("CHANGE", "DELETE", "PING", "RESET", "RESOLVE", "START", "STOP")
        ),
        ("STOP_SERVICE", cmqc.MQCA_SERVICE_NAME, "S", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("DELETE_LISTENER", cmqcfc.MQCACH_LISTENER_NAME, "L", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("DELETE_PROCESS", cmqc.MQCA_PROCESS_NAME, "P", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("CREATE_CHANNEL", cmqcfc.MQCACH_CHANNEL_NAME, "C", cmqcfc.MQRCCF_CFH_COMMAND_ERROR),
    ],
)
def test_inquiries_without_results(admin: Administrator, command: str, named: int, name: str, reason: int) -> None:
    number = getattr(cmqcfc, f"MQCMD_{command}")
    assert admin.refused(number, {named: name}) == (reason, None)
    if command != "CREATE_CHANNEL":
        assert admin.refused(number, {}) == (cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, named)


def test_objects_that_every_queue_manager_has(admin: Administrator) -> None:
    (names,) = admin.ask(cmqcfc.MQCMD_INQUIRE_NAMELIST, {cmqc.MQCA_NAMELIST_NAME: "*"})
    assert names[cmqc.MQCA_NAMELIST_NAME] == "SYSTEM.DEFAULT.NAMELIST"
    assert (names[cmqc.MQIA_NAME_COUNT], names[cmqc.MQCA_NAMES]) == (0, [])
    (info,) = admin.ask(cmqcfc.MQCMD_INQUIRE_AUTH_INFO, {cmqc.MQCA_AUTH_INFO_NAME: "SYSTEM*"})
    assert info[cmqc.MQIA_AUTH_INFO_TYPE] == cmqc.MQAIT_IDPW_OS
    assert info[cmqc.MQIA_CHECK_CLIENT_BINDING] == cmqcfc.MQCHK_NONE
    (manager,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_MGR, {cmqcfc.MQIACF_Q_MGR_ATTRS: [cmqc.MQCA_CONN_AUTH]})
    assert manager[cmqc.MQCA_CONN_AUTH] == info[cmqc.MQCA_AUTH_INFO_NAME]
    other = {cmqc.MQCA_AUTH_INFO_NAME: "*", cmqc.MQIA_AUTH_INFO_TYPE: cmqc.MQAIT_OCSP}
    assert admin.refused(cmqcfc.MQCMD_INQUIRE_AUTH_INFO, other)[0] == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    (listed,) = admin.ask(cmqcfc.MQCMD_INQUIRE_NAMELIST_NAMES, {cmqc.MQCA_NAMELIST_NAME: "*"})
    assert listed == {cmqcfc.MQCACF_NAMELIST_NAMES: ["SYSTEM.DEFAULT.NAMELIST"]}
    (listed,) = admin.ask(cmqcfc.MQCMD_INQUIRE_CHANNEL_NAMES, {cmqcfc.MQCACH_CHANNEL_NAME: "*"})
    assert listed == {cmqcfc.MQCACH_CHANNEL_NAMES: []}


def counted(admin: Administrator, name: str = "APP.IN") -> list[tuple[int, int, int]]:
    """High depth, messages put and messages got, since the question before."""
    return [
        (one[cmqc.MQIA_HIGH_Q_DEPTH], one[cmqc.MQIA_MSG_ENQ_COUNT], one[cmqc.MQIA_MSG_DEQ_COUNT])
        for one in admin.ask(cmqcfc.MQCMD_RESET_Q_STATS, {MQCA_Q_NAME: name})
        if one[cmqc.MQIA_TIME_SINCE_RESET] >= 0
    ]


def test_reset_queue_statistics(admin: Administrator) -> None:
    assert counted(admin) == [(0, 0, 0)]
    for _ in range(3):
        admin.put("APP.IN")
    handle = admin.connection.open(MQOD(ObjectName="APP.IN"), cmqc.MQOO_INPUT_SHARED)
    for options in (cmqc.MQGMO_NO_SYNCPOINT, cmqc.MQGMO_SYNCPOINT):
        admin.connection.get(handle, GetOptions(Options=options))
    assert counted(admin) == [(3, 3, 1)]
    admin.connection.backout()
    for response in admin.connection.command("ALTER QLOCAL(APP.IN) MSGDLVSQ(FIFO)"):
        assert response.ok
    assert counted(admin) == [(2, 0, 0)]
    assert len(counted(admin, "APP.*")) == 2
    assert admin.refused(cmqcfc.MQCMD_RESET_Q_STATS, {MQCA_Q_NAME: "NONE"})[0] == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    assert admin.refused(cmqcfc.MQCMD_RESET_Q_STATS, {})[0] == cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL


def test_queue_status_takes_a_queue_type(admin: Administrator) -> None:
    given = {MQCA_Q_NAME: "APP.IN", cmqc.MQIA_Q_TYPE: cmqc.MQQT_ALL}
    (found,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_STATUS, given)
    assert found[MQCA_Q_NAME] == "APP.IN"
