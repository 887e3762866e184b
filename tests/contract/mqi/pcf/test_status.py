"""The status of queues, connections and the queue manager, and Change Queue Manager."""

from __future__ import annotations

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.mqi import MQOD, GetOptions
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import MQCFIF, MQCFSF
from tests.helpers.pcf_administrator import Administrator
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.cmqc import MQCA_Q_NAME, MQIA_CURRENT_Q_DEPTH
from tests.ibm_standin.mqi.connection import StandInConnection


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
    assert deep == {MQCA_Q_NAME: "APP.IN", cmqcfc.MQIACF_Q_STATUS_TYPE: cmqcfc.MQIACF_Q_STATUS, MQIA_CURRENT_Q_DEPTH: 2}
    admin.connection.close(writing)
    assert admin.refused(command, handles)[0] == cmqcfc.MQRCCF_Q_STATUS_NOT_FOUND
    assert admin.refused(command, {MQCA_Q_NAME: "NONE"})[0] == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    assert admin.refused(command, {MQCA_Q_NAME: "APP.ALIAS"})[0] == cmqcfc.MQRCCF_Q_WRONG_TYPE
    assert admin.refused(command, handles | {cmqcfc.MQIACF_OPEN_TYPE: 9})[0] == cmqcfc.MQRCCF_PARM_VALUE_ERROR


def test_connections(admin: Administrator) -> None:
    other = StandInConnection(admin.queue_manager, "other", "user")
    queue = other.open(MQOD(ObjectName="APP.IN"), cmqc.MQOO_OUTPUT)
    other.put(queue, Message(MQMD(), b"x"), cmqc.MQPMO_SYNCPOINT)
    command = cmqcfc.MQCMD_INQUIRE_CONNECTION
    everyone = {cmqcfc.MQBACF_GENERIC_CONNECTION_ID: bytes(24)}
    connections = {connection[cmqcfc.MQCACF_APPL_TAG]: connection for connection in admin.ask(command, everyone)}
    assert set(connections) == {"administrator", "other"}
    assert connections["other"][cmqcfc.MQCACF_USER_IDENTIFIER] == "user"
    states = {name: connection[cmqcfc.MQIACF_UOW_STATE] for name, connection in connections.items()}
    assert states == {"administrator": cmqcfc.MQUOWST_NONE, "other": cmqcfc.MQUOWST_ACTIVE}
    identifier = connections["other"][cmqcfc.MQBACF_CONNECTION_ID]
    assert len(identifier) == 24 and identifier.startswith(b"AMQCMQB1")

    handles = {cmqcfc.MQIACF_CONN_INFO_TYPE: cmqcfc.MQIACF_CONN_INFO_HANDLE}
    (handle,) = admin.ask(command, {cmqcfc.MQBACF_CONNECTION_ID: identifier} | handles)
    expected = {cmqcfc.MQCACF_OBJECT_NAME: "APP.IN", cmqcfc.MQIACF_OPEN_OPTIONS: cmqc.MQOO_OUTPUT}
    assert expected.items() <= handle.items()
    both = {cmqcfc.MQIACF_CONN_INFO_TYPE: cmqcfc.MQIACF_CONN_INFO_ALL}
    assert len(admin.ask(command, {cmqcfc.MQBACF_CONNECTION_ID: identifier} | both)) == 2
    tagged = MQCFSF(cmqcfc.MQCACF_APPL_TAG, cmqcfc.MQCFOP_EQUAL, b"other")
    assert [connection[cmqcfc.MQBACF_CONNECTION_ID] for connection in admin.ask(command, everyone, tagged)] == [
        identifier
    ]

    other.disconnect()
    unknown_connection = (cmqcfc.MQRCCF_CONNECTION_ID_ERROR, cmqcfc.MQBACF_CONNECTION_ID)
    assert admin.refused(command, {cmqcfc.MQBACF_CONNECTION_ID: identifier}) == unknown_connection
    unknown = {cmqcfc.MQBACF_GENERIC_CONNECTION_ID: b"XXXX"}
    assert admin.refused(command, unknown)[0] == cmqcfc.MQRCCF_NONE_FOUND
    assert admin.refused(command, {})[0] == cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL


def test_inquiries_without_results(admin: Administrator) -> None:
    for command, named, name, reason in (
        ("INQUIRE_CHANNEL", cmqcfc.MQCACH_CHANNEL_NAME, "*", cmqcfc.MQRCCF_CHANNEL_NOT_FOUND),
        ("INQUIRE_CHLAUTH_RECS", cmqcfc.MQCACH_CHANNEL_NAME, "*", cmqcfc.MQRCCF_CHLAUTH_NOT_FOUND),
        ("INQUIRE_LISTENER_STATUS", cmqcfc.MQCACH_LISTENER_NAME, "*", cmqcfc.MQRCCF_LSTR_STATUS_NOT_FOUND),
        ("INQUIRE_PROCESS", cmqc.MQCA_PROCESS_NAME, "*", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("INQUIRE_SERVICE_STATUS", cmqc.MQCA_SERVICE_NAME, "*", cmqcfc.MQRCCF_SERV_STATUS_NOT_FOUND),
        ("INQUIRE_AUTH_INFO", cmqc.MQCA_AUTH_INFO_NAME, "MY.*", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        ("STOP_CHANNEL", cmqcfc.MQCACH_CHANNEL_NAME, "C", cmqcfc.MQRCCF_CHANNEL_NOT_FOUND),
        ("DELETE_PROCESS", cmqc.MQCA_PROCESS_NAME, "P", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    ):
        number = getattr(cmqcfc, f"MQCMD_{command}")
        assert admin.refused(number, {named: name}) == (reason, None)
        assert admin.refused(number, {}) == (cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, named)
    absent = admin.refused(cmqcfc.MQCMD_CREATE_CHANNEL, {cmqcfc.MQCACH_CHANNEL_NAME: "C"})
    assert absent == (cmqcfc.MQRCCF_CFH_COMMAND_ERROR, None)


def test_objects_of_every_queue_manager(admin: Administrator) -> None:
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
    """Return high depth, messages put and messages got since the previous command."""
    return [
        (statistics[cmqc.MQIA_HIGH_Q_DEPTH], statistics[cmqc.MQIA_MSG_ENQ_COUNT], statistics[cmqc.MQIA_MSG_DEQ_COUNT])
        for statistics in admin.ask(cmqcfc.MQCMD_RESET_Q_STATS, {MQCA_Q_NAME: name})
        if statistics[cmqc.MQIA_TIME_SINCE_RESET] >= 0
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


def test_inquire_queue_manager(admin: Administrator) -> None:
    (whole,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_MGR, {})
    expected = {
        cmqc.MQCA_Q_MGR_NAME: "MQB1",
        cmqc.MQIA_CODED_CHAR_SET_ID: 1208,
        cmqc.MQIA_COMMAND_LEVEL: 940,
        cmqc.MQIA_PLATFORM: cmqc.MQPL_UNIX,
        cmqc.MQIA_MAX_MSG_LENGTH: 4_194_304,
        cmqc.MQIA_MAX_PRIORITY: 9,
        cmqc.MQIA_MAX_PROPERTIES_LENGTH: -1,
        cmqc.MQCA_COMMAND_INPUT_Q_NAME: COMMAND_QUEUE,
    }
    assert expected.items() <= whole.items()
    assert whole[cmqc.MQCA_Q_MGR_IDENTIFIER].startswith("MQB1_20")
    wanted = [cmqc.MQCA_DEAD_LETTER_Q_NAME, cmqc.MQIA_MAX_HANDLES]
    (some,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_MGR, {cmqcfc.MQIACF_Q_MGR_ATTRS: wanted})
    assert some == {cmqc.MQCA_Q_MGR_NAME: "MQB1", cmqc.MQCA_DEAD_LETTER_Q_NAME: "", cmqc.MQIA_MAX_HANDLES: 256}


def test_change_queue_manager(admin: Administrator) -> None:
    change = cmqcfc.MQCMD_CHANGE_Q_MGR
    admin.ask(change, {cmqc.MQCA_DEAD_LETTER_Q_NAME: "DLQ", cmqc.MQIA_MAX_HANDLES: 5000})
    assert (admin.displayed("QMGR", "DEADQ"), admin.displayed("QMGR", "MAXHANDS")) == ("DLQ", 5000)
    error = (cmqcfc.MQRCCF_ATTR_VALUE_ERROR, cmqc.MQIA_MAX_MSG_LENGTH)
    assert admin.refused(change, {cmqc.MQIA_MAX_MSG_LENGTH: 1}) == error
    fixed = (cmqcfc.MQRCCF_ATTR_VALUE_FIXED, cmqc.MQIA_COMMAND_LEVEL)
    assert admin.refused(change, {cmqc.MQIA_COMMAND_LEVEL: 930}) == fixed
    named = (cmqcfc.MQRCCF_CFST_PARM_ID_ERROR, cmqc.MQCA_Q_MGR_NAME)
    assert admin.refused(change, {cmqc.MQCA_Q_MGR_NAME: "X"}) == named


def test_queue_manager_status(admin: Administrator) -> None:
    (status,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_MGR_STATUS, {})
    assert status[cmqcfc.MQIACF_Q_MGR_STATUS] == cmqcfc.MQQMSTA_RUNNING
    assert status[cmqcfc.MQIACF_CONNECTION_COUNT] == 1
    assert status[cmqcfc.MQCACF_Q_MGR_START_DATE].startswith("20")
