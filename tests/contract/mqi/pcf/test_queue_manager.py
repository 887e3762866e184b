"""PCF commands about the queue manager itself, and MQSC within PCF."""

from __future__ import annotations

from bridge.config.queue_manager import COMMAND_QUEUE
from testing.ibm_standin import cmqc, cmqcfc
from tests.helpers.pcf_administrator import Administrator


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
    assert (admin.shown("QMGR", "DEADQ"), admin.shown("QMGR", "MAXHANDS")) == ("DLQ", 5000)
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
