"""The PCF commands that the bridge sends."""

from __future__ import annotations

from typing import Any

from bridge.wire.mq.pcf import MQCFH, encode_pcf
from tests.helpers.pcf_administrator import Administrator, parameters, value
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.cmqc import MQCA_TOPIC_STRING


def test_escape_runs_mqsc(admin: Administrator) -> None:
    def escape(text: str) -> dict[int, Any]:
        return {cmqcfc.MQIACF_ESCAPE_TYPE: cmqcfc.MQET_MQSC, cmqcfc.MQCACF_ESCAPE_TEXT: text}

    (response,) = admin.ask(cmqcfc.MQCMD_ESCAPE, escape("DEFINE QLOCAL(NEW) MAXDEPTH(3)"))
    assert response[cmqcfc.MQCACF_ESCAPE_TEXT] == "AMQ8006I: Queue NEW created."
    assert admin.displayed("QLOCAL(NEW)", "MAXDEPTH") == 3
    responses = admin.ask(cmqcfc.MQCMD_ESCAPE, escape("DISPLAY QLOCAL(APP.*) MAXDEPTH"))
    texts = [response[cmqcfc.MQCACF_ESCAPE_TEXT] for response in responses]
    assert len(texts) == 2
    assert "QUEUE(APP.IN)" in texts[0] and "MAXDEPTH(10)" in texts[0] and "QUEUE(APP.OUT)" in texts[1]

    admin.send(encode_pcf(MQCFH(Command=cmqcfc.MQCMD_ESCAPE), parameters(escape("DELETE QLOCAL(NONE)"))))
    ((header, error_parameters),) = admin.replied()
    assert (header.CompCode, header.Reason) == (cmqc.MQCC_FAILED, cmqcfc.MQRCCF_COMMAND_FAILED)
    assert value(error_parameters[1]) == "AMQ8147E: Queue NONE not found."
    wrong = escape("DISPLAY QMGR") | {cmqcfc.MQIACF_ESCAPE_TYPE: 9}
    assert admin.refused(cmqcfc.MQCMD_ESCAPE, wrong)[0] == cmqcfc.MQRCCF_ESCAPE_TYPE_ERROR
    assert admin.refused(cmqcfc.MQCMD_ESCAPE, escape(""))[0] == cmqcfc.MQRCCF_PARM_SYNTAX_ERROR


def test_clear_topic_string(admin: Administrator) -> None:
    command = cmqcfc.MQCMD_CLEAR_TOPIC_STRING
    request = {MQCA_TOPIC_STRING: "a/b", cmqcfc.MQIACF_CLEAR_TYPE: cmqcfc.MQCLRT_RETAINED}
    for topic in ("a/b", "a/c"):
        admin.retain(topic)
    admin.ask(command, request)
    assert list(admin.queue_manager.retained) == ["a/c"]
    admin.ask(command, request | {cmqcfc.MQIACF_CLEAR_SCOPE: cmqcfc.MQCLRS_LOCAL})
    missing = (cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQIACF_CLEAR_TYPE)
    assert admin.refused(command, {MQCA_TOPIC_STRING: "a/c"}) == missing
    everywhere = request | {cmqcfc.MQIACF_CLEAR_SCOPE: cmqcfc.MQCLRS_GLOBAL}
    assert admin.refused(command, everywhere)[0] == cmqcfc.MQRCCF_PARM_VALUE_ERROR
    empty = request | {MQCA_TOPIC_STRING: ""}
    assert admin.refused(command, empty) == (cmqcfc.MQRCCF_PARM_MISSING, None)


def test_ping_and_queue_status(admin: Administrator) -> None:
    assert admin.ask(cmqcfc.MQCMD_PING_Q_MGR, {}) == [{}]
    admin.put("APP.IN")
    (status,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_STATUS, {cmqc.MQCA_Q_NAME: "APP.IN"})
    assert (status[cmqc.MQCA_Q_NAME], status[cmqc.MQIA_CURRENT_Q_DEPTH]) == ("APP.IN", 1)
    unknown = (cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQCA_Q_NAME)
    assert admin.refused(cmqcfc.MQCMD_INQUIRE_Q_STATUS, {cmqc.MQCA_Q_NAME: "NONE"}) == unknown


def test_inquire_subscription(admin: Administrator) -> None:
    command, name = cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, cmqcfc.MQCACF_SUB_NAME
    first, second = admin.ask(command, {name: "s*"})
    assert (first[name], first[MQCA_TOPIC_STRING], first[cmqcfc.MQCACF_SUB_USER_DATA]) == ("s1", "prices/#", "u")
    assert (second[name], second[cmqcfc.MQIACF_DURABLE_SUBSCRIPTION]) == ("s2", cmqc.MQSUB_DURABLE_YES)
    assert admin.refused(command, {name: "none"}) == (cmqc.MQRC_NO_SUBSCRIPTION, None)
    assert admin.refused(command, {}) == (cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, name)
