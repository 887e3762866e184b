"""PCF commands that create, change, copy, delete and clear queues."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bridge.config.queue_manager import COMMAND_QUEUE
from testing.ibm_standin import cmqc, cmqcfc
from testing.ibm_standin.cmqc import MQCA_Q_DESC, MQCA_Q_NAME, MQIA_CURRENT_Q_DEPTH, MQIA_MAX_Q_DEPTH, MQIA_Q_TYPE
from tests.helpers.pcf_administrator import Administrator


def test_create_queue(admin: Administrator) -> None:
    given = {
        MQCA_Q_NAME: "NEW",
        MQIA_Q_TYPE: cmqc.MQQT_LOCAL,
        MQCA_Q_DESC: "a new one",
        MQIA_MAX_Q_DEPTH: 123,
        cmqc.MQIA_INHIBIT_PUT: cmqc.MQQA_PUT_INHIBITED,
        cmqc.MQIA_DEF_PERSISTENCE: cmqc.MQPER_PERSISTENT,
        cmqc.MQIA_MSG_DELIVERY_SEQUENCE: cmqc.MQMDS_FIFO,
        cmqc.MQIA_TRIGGER_TYPE: cmqc.MQTT_EVERY,
        cmqc.MQIA_Q_DEPTH_HIGH_LIMIT: 90,
        cmqc.MQCA_CLUSTER_NAME: "",
    }
    admin.ask(cmqcfc.MQCMD_CREATE_Q, given)
    (made,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q, {MQCA_Q_NAME: "NEW"})
    assert given.items() <= made.items()
    expected = {"DESCR": "a new one", "MAXDEPTH": 123, "PUT": "DISABLED", "DEFPSIST": "YES", "MSGDLVSQ": "FIFO"}
    assert {keyword: admin.shown("QLOCAL(NEW)", keyword) for keyword in expected} == expected
    assert made[cmqc.MQCA_CREATION_DATE] == time.strftime("%Y-%m-%d")
    assert made[cmqc.MQIA_DEFINITION_TYPE] == cmqc.MQQDT_PREDEFINED


@pytest.mark.parametrize(
    ("kind", "number", "given"),
    [
        ("QALIAS", cmqc.MQQT_ALIAS, {cmqc.MQCA_BASE_OBJECT_NAME: "PRICES", cmqc.MQIA_BASE_TYPE: cmqc.MQOT_TOPIC}),
        ("QREMOTE", cmqc.MQQT_REMOTE, {cmqc.MQCA_REMOTE_Q_NAME: "Q", cmqc.MQCA_XMIT_Q_NAME: "APP.OUT"}),
        ("QMODEL", cmqc.MQQT_MODEL, {cmqc.MQIA_DEFINITION_TYPE: cmqc.MQQDT_PERMANENT_DYNAMIC, MQIA_MAX_Q_DEPTH: 7}),
    ],
)
def test_other_kinds_of_queues(admin: Administrator, kind: str, number: int, given: dict[int, Any]) -> None:
    admin.ask(cmqcfc.MQCMD_CREATE_Q, {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: number, **given})
    (made,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q, {MQCA_Q_NAME: "NEW"})
    assert {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: number, **given}.items() <= made.items()
    assert MQIA_CURRENT_Q_DEPTH not in made or kind == "QLOCAL"
    admin.ask(cmqcfc.MQCMD_CHANGE_Q, {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: number, MQCA_Q_DESC: "changed"})
    (changed,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q, {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: number})
    assert changed[MQCA_Q_DESC] == "changed"
    admin.ask(cmqcfc.MQCMD_DELETE_Q, {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: number})
    assert admin.refused(cmqcfc.MQCMD_INQUIRE_Q, {MQCA_Q_NAME: "NEW"})[0] == cmqc.MQRC_UNKNOWN_OBJECT_NAME


LOCAL = {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: cmqc.MQQT_LOCAL}
CREATE, CHANGE, DELETE, INQUIRE = (
    cmqcfc.MQCMD_CREATE_Q,
    cmqcfc.MQCMD_CHANGE_Q,
    cmqcfc.MQCMD_DELETE_Q,
    cmqcfc.MQCMD_INQUIRE_Q,
)


@pytest.mark.parametrize(
    ("command", "given", "reason", "parameter"),
    [
        (CREATE, {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCA_Q_NAME),
        (CREATE, {MQCA_Q_NAME: "NEW"}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQIA_Q_TYPE),
        (CREATE, LOCAL | {MQIA_Q_TYPE: 99}, cmqcfc.MQRCCF_Q_TYPE_ERROR, MQIA_Q_TYPE),
        (CREATE, LOCAL | {MQCA_Q_NAME: "APP.IN"}, cmqcfc.MQRCCF_OBJECT_ALREADY_EXISTS, None),
        (CREATE, LOCAL | {MQCA_Q_NAME: "APP.ALIAS"}, cmqcfc.MQRCCF_OBJECT_ALREADY_EXISTS, None),
        (CREATE, LOCAL | {MQCA_Q_NAME: "NOT GOOD"}, cmqcfc.MQRCCF_OBJECT_NAME_ERROR, None),
        (CREATE, LOCAL | {MQCA_Q_NAME: "N" * 49}, cmqcfc.MQRCCF_OBJECT_NAME_ERROR, None),
        (CREATE, LOCAL | {MQCA_Q_DESC: "D" * 65}, cmqcfc.MQRCCF_CFST_STRING_LENGTH_ERR, MQCA_Q_DESC),
        (CREATE, LOCAL | {MQIA_MAX_Q_DEPTH: -1}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, MQIA_MAX_Q_DEPTH),
        (CREATE, LOCAL | {cmqc.MQIA_USAGE: 5}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, cmqc.MQIA_USAGE),
        (CREATE, LOCAL | {MQIA_CURRENT_Q_DEPTH: 5}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, MQIA_CURRENT_Q_DEPTH),
        (CREATE, LOCAL | {cmqc.MQCA_CLUSTER_NAME: "C"}, cmqcfc.MQRCCF_ATTR_VALUE_FIXED, cmqc.MQCA_CLUSTER_NAME),
        (CREATE, LOCAL | {cmqc.MQCA_REMOTE_Q_NAME: "Q"}, cmqcfc.MQRCCF_CFST_PARM_ID_ERROR, cmqc.MQCA_REMOTE_Q_NAME),
        (CREATE, LOCAL | {MQIA_MAX_Q_DEPTH: "5"}, cmqcfc.MQRCCF_CFST_PARM_ID_ERROR, MQIA_MAX_Q_DEPTH),
        (CREATE, LOCAL | {MQCA_Q_DESC: 5}, cmqcfc.MQRCCF_CFIN_PARM_ID_ERROR, MQCA_Q_DESC),
        (CREATE, LOCAL | {cmqcfc.MQIACF_REPLACE: 7}, cmqcfc.MQRCCF_PARM_VALUE_ERROR, cmqcfc.MQIACF_REPLACE),
        (CHANGE, LOCAL, cmqc.MQRC_UNKNOWN_OBJECT_NAME, MQCA_Q_NAME),
        (CHANGE, LOCAL | {MQCA_Q_NAME: "APP.ALIAS"}, cmqcfc.MQRCCF_Q_WRONG_TYPE, MQIA_Q_TYPE),
        (
            CHANGE,
            {MQCA_Q_NAME: "APP.IN", cmqc.MQIA_INHIBIT_GET: 9},
            cmqcfc.MQRCCF_ATTR_VALUE_ERROR,
            cmqc.MQIA_INHIBIT_GET,
        ),
        (DELETE, {MQCA_Q_NAME: "NEW"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, MQCA_Q_NAME),
        (DELETE, {MQCA_Q_NAME: "REPLIES"}, cmqcfc.MQRCCF_OBJECT_OPEN, None),
        (DELETE, {MQCA_Q_NAME: COMMAND_QUEUE}, cmqcfc.MQRCCF_OBJECT_OPEN, None),
        (cmqcfc.MQCMD_CLEAR_Q, {MQCA_Q_NAME: "NEW"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (cmqcfc.MQCMD_CLEAR_Q, {MQCA_Q_NAME: "APP.ALIAS"}, cmqcfc.MQRCCF_Q_WRONG_TYPE, MQCA_Q_NAME),
        (cmqcfc.MQCMD_CLEAR_Q, {MQCA_Q_NAME: "REPLIES"}, cmqc.MQRC_OBJECT_IN_USE, None),
        (INQUIRE, {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCA_Q_NAME),
        (INQUIRE, {MQCA_Q_NAME: "NEW"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (INQUIRE, {MQCA_Q_NAME: "N*"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (INQUIRE, {MQCA_Q_NAME: "APP.IN", MQIA_Q_TYPE: cmqc.MQQT_ALIAS}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (INQUIRE, {MQCA_Q_NAME: "*", MQIA_Q_TYPE: cmqc.MQQT_CLUSTER}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (INQUIRE, {MQCA_Q_NAME: "*", MQIA_Q_TYPE: 77}, cmqcfc.MQRCCF_Q_TYPE_ERROR, MQIA_Q_TYPE),
        (INQUIRE, {MQCA_Q_NAME: "*", cmqcfc.MQIACF_Q_ATTRS: [5, 999_999]}, cmqc.MQRC_SELECTOR_ERROR, 999_999),
        (
            INQUIRE,
            {MQCA_Q_NAME: "*", cmqc.MQCA_TOPIC_NAME: "T"},
            cmqcfc.MQRCCF_CFST_PARM_ID_ERROR,
            cmqc.MQCA_TOPIC_NAME,
        ),
    ],
)
def test_queue_commands_that_are_refused(
    admin: Administrator, command: int, given: dict[int, Any], reason: int, parameter: int | None
) -> None:
    before = sorted(admin.queue_manager.objects.queues)
    assert admin.refused(command, given) == (reason, parameter)
    assert sorted(admin.queue_manager.objects.queues) == before


def test_create_replaces_and_copies(admin: Administrator) -> None:
    admin.ask(CREATE, LOCAL | {MQCA_Q_NAME: "APP.IN", cmqcfc.MQIACF_REPLACE: cmqcfc.MQRP_YES, MQIA_MAX_Q_DEPTH: 3})
    assert (admin.shown("QLOCAL(APP.IN)", "MAXDEPTH"), admin.shown("QLOCAL(APP.IN)", "DESCR")) == (3, "")
    copy = {cmqcfc.MQCACF_FROM_Q_NAME: "APP.OUT", cmqcfc.MQCACF_TO_Q_NAME: "COPY"}
    admin.ask(cmqcfc.MQCMD_COPY_Q, copy | {MQIA_Q_TYPE: 1, MQCA_Q_DESC: "a copy"})
    assert (admin.shown("QLOCAL(COPY)", "MAXDEPTH"), admin.shown("QLOCAL(COPY)", "DESCR")) == (20, "a copy")
    assert admin.refused(cmqcfc.MQCMD_COPY_Q, copy)[0] == cmqcfc.MQRCCF_OBJECT_ALREADY_EXISTS
    copy[cmqcfc.MQCACF_FROM_Q_NAME] = "NONE"
    assert admin.refused(cmqcfc.MQCMD_COPY_Q, copy)[0] == cmqc.MQRC_UNKNOWN_OBJECT_NAME


def test_delete_and_clear_queue(admin: Administrator) -> None:
    admin.ask(CREATE, LOCAL)
    admin.put("NEW")
    assert admin.refused(DELETE, {MQCA_Q_NAME: "NEW"}) == (cmqc.MQRC_Q_NOT_EMPTY, None)
    admin.put("NEW", options=cmqc.MQPMO_SYNCPOINT)
    assert admin.refused(cmqcfc.MQCMD_CLEAR_Q, {MQCA_Q_NAME: "NEW"}) == (cmqc.MQRC_Q_NOT_EMPTY, None)
    admin.connection.commit()
    admin.ask(cmqcfc.MQCMD_CLEAR_Q, {MQCA_Q_NAME: "NEW"})
    assert admin.shown("QLOCAL(NEW)", "CURDEPTH") == 0
    admin.put("NEW")
    admin.ask(DELETE, {MQCA_Q_NAME: "NEW", cmqcfc.MQIACF_PURGE: cmqcfc.MQPO_YES})
    assert "NEW" not in admin.queue_manager.objects.queues
