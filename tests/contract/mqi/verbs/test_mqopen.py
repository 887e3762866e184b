"""MQOPEN and MQCLOSE: objects, incompatible options, and dynamic queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.stand_in_manager import StandInManager
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MqiGetOptions

OUTPUT, SHARED, BROWSE = cmqc.MQOO_OUTPUT, cmqc.MQOO_INPUT_SHARED, cmqc.MQOO_BROWSE
MODEL = "SYSTEM.DEFAULT.MODEL.QUEUE"


def reason_of(call: Callable[..., object], *arguments: Any, **keywords: Any) -> int:
    with pytest.raises(MQError) as error:
        call(*arguments, **keywords)
    return error.value.reason


@pytest.mark.parametrize(
    "options",
    [
        0,
        cmqc.MQOO_FAIL_IF_QUIESCING,
        SHARED | cmqc.MQOO_INPUT_EXCLUSIVE,
        SHARED | cmqc.MQOO_INPUT_AS_Q_DEF,
        OUTPUT | cmqc.MQOO_BIND_ON_OPEN | cmqc.MQOO_BIND_NOT_FIXED,
        SHARED | cmqc.MQOO_READ_AHEAD | cmqc.MQOO_NO_READ_AHEAD,
        SHARED | cmqc.MQOO_SET_ALL_CONTEXT,
        OUTPUT | cmqc.MQOO_SAVE_ALL_CONTEXT,
        SHARED | cmqc.MQOO_CO_OP,
        OUTPUT | 0x40000000,
    ],
)
def test_incompatible_options(manager: StandInManager, options: Any) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    assert reason_of(manager.connection.open, MQOD(ObjectName="Q"), options) == cmqc.MQRC_OPTIONS_ERROR


@pytest.mark.parametrize(
    ("od", "options", "reason"),
    [
        (MQOD(ObjectName="NONE"), OUTPUT, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        (MQOD(ObjectType=cmqc.MQOT_NAMELIST, ObjectName="N"), cmqc.MQOO_INQUIRE, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        (MQOD(ObjectType=cmqc.MQOT_PROCESS, ObjectName="P"), cmqc.MQOO_INQUIRE, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        (MQOD(ObjectType=99), cmqc.MQOO_INQUIRE, cmqc.MQRC_OBJECT_TYPE_ERROR),
        (MQOD(ObjectType=cmqc.MQOT_Q_MGR), OUTPUT, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (MQOD(ObjectType=cmqc.MQOT_Q_MGR, ObjectName="X"), cmqc.MQOO_INQUIRE, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        (MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="a"), SHARED, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="a"), cmqc.MQOO_INQUIRE, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (MQOD(ObjectType=cmqc.MQOT_TOPIC), OUTPUT, cmqc.MQRC_TOPIC_STRING_ERROR),
        (MQOD(ObjectName="R"), BROWSE, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (MQOD(ObjectName="Q", ObjectQMgrName="dev"), cmqc.MQOO_INQUIRE, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (MQOD(ObjectName="T"), SHARED, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (MQOD(ObjectName="Q", SelectionString="a ="), SHARED, cmqc.MQRC_SELECTOR_SYNTAX_ERROR),
    ],
)
def test_objects_that_cannot_be_opened_with_an_option(
    manager: StandInManager, od: Any, options: Any, reason: int
) -> None:
    for command in (
        "DEFINE QLOCAL(XMIT) USAGE(XMITQ)",
        "ALTER QMGR DEFXMITQ(XMIT)",
        "DEFINE QLOCAL(Q)",
        "DEFINE QREMOTE(R) RNAME('there') RQMNAME('dev')",
        "DEFINE TOPIC(NEWS) TOPICSTR('news')",
        "DEFINE QALIAS(T) TARGET(NEWS) TARGTYPE(TOPIC)",
    ):
        manager.ok(command)
    assert reason_of(manager.connection.open, od, options) == reason


# Dynamic queues ------------------------------------------------------------------------------------------------------


def put(manager: StandInManager, name: str, **md: Any) -> None:
    manager.connection.put1(MQOD(ObjectName=name), Message(MQMD(**md), b"x"))


def test_opening_a_model_queue_creates_a_dynamic_queue(manager: StandInManager) -> None:
    od = MQOD(ObjectName=MODEL, DynamicQName="REPLY.*")
    handle = manager.connection.open(od, SHARED)
    assert re.fullmatch(r"REPLY\.[0-9A-F]{14}", od.ObjectName)
    assert (od.ObjectQMgrName, od.ResolvedQName, od.ResolvedQMgrName) == ("MQB1", od.ObjectName, "MQB1")
    put(manager, od.ObjectName)
    assert manager.connection.get(handle, MqiGetOptions()).data == b"x"
    other = MQOD(ObjectName=MODEL)
    manager.connection.open(other, SHARED)
    assert other.ObjectName.startswith("AMQ.") and other.ObjectName != od.ObjectName


def test_a_temporary_dynamic_queue_ends_with_its_handle(manager: StandInManager) -> None:
    od = MQOD(ObjectName=MODEL)
    handle = manager.connection.open(od, SHARED)
    put(manager, od.ObjectName)
    second = manager.connection.open(MQOD(ObjectName=od.ObjectName), SHARED | OUTPUT)
    assert reason_of(manager.connection.close, second, cmqc.MQCO_DELETE) == cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE
    manager.connection.close(handle)
    assert reason_of(manager.connection.get, second, MqiGetOptions()) == cmqc.MQRC_Q_DELETED
    assert reason_of(manager.connection.put, second, Message(MQMD(), b"")) == cmqc.MQRC_Q_DELETED
    assert reason_of(put, manager, od.ObjectName) == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    manager.connection.close(second)


def test_a_temporary_dynamic_queue_ends_with_its_connection(manager: StandInManager) -> None:
    connection = StandInConnection(manager.itself)
    od = MQOD(ObjectName=MODEL)
    connection.open(od, SHARED)
    put(manager, od.ObjectName)
    connection.disconnect()
    assert reason_of(put, manager, od.ObjectName) == cmqc.MQRC_UNKNOWN_OBJECT_NAME


def test_a_temporary_dynamic_queue_rejects_persistent_messages(manager: StandInManager) -> None:
    manager.ok("DEFINE QMODEL(M) DEFPSIST(YES)")
    od = MQOD(ObjectName="M")
    manager.connection.open(od, SHARED)
    put(manager, od.ObjectName, Persistence=0)
    for persistence in (1, 2):
        assert reason_of(put, manager, od.ObjectName, Persistence=persistence) == cmqc.MQRC_PERSISTENT_NOT_ALLOWED


def test_a_permanent_dynamic_queue_stays_until_it_is_deleted(manager: StandInManager) -> None:
    manager.ok("DEFINE QMODEL(M) DEFTYPE(PERMDYN) DEFPSIST(YES) MAXDEPTH(3)")
    od = MQOD(ObjectName="M", DynamicQName="KEPT")
    handle = manager.connection.open(od, SHARED)
    assert od.ObjectName == "KEPT"
    put(manager, "KEPT")
    manager.connection.close(handle)
    manager.restart()
    assert manager.attribute("QLOCAL(KEPT)", "MAXDEPTH") == 3
    assert manager.attribute("QLOCAL(KEPT)", "DEFTYPE") == "PERMDYN"
    handle = manager.connection.open(MQOD(ObjectName="KEPT"), SHARED)
    assert reason_of(manager.connection.close, handle, cmqc.MQCO_DELETE) == cmqc.MQRC_Q_NOT_EMPTY
    assert manager.connection.get(handle, MqiGetOptions(Options=cmqc.MQGMO_SYNCPOINT)).data == b"x"
    assert reason_of(manager.connection.close, handle, cmqc.MQCO_DELETE_PURGE) == cmqc.MQRC_Q_NOT_EMPTY
    manager.connection.backout()
    manager.connection.close(handle, cmqc.MQCO_DELETE_PURGE)
    manager.restart()
    assert reason_of(put, manager, "KEPT") == cmqc.MQRC_UNKNOWN_OBJECT_NAME


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", cmqc.MQRC_DYNAMIC_Q_NAME_ERROR),
        ("A*B", cmqc.MQRC_DYNAMIC_Q_NAME_ERROR),
        ("A B*", cmqc.MQRC_DYNAMIC_Q_NAME_ERROR),
        ("A" * 33 + "*", cmqc.MQRC_DYNAMIC_Q_NAME_ERROR),
        ("A" * 49, cmqc.MQRC_DYNAMIC_Q_NAME_ERROR),
        ("TAKEN", cmqc.MQRC_OBJECT_ALREADY_EXISTS),
    ],
)
def test_invalid_names_of_dynamic_queues(manager: StandInManager, name: str, reason: int) -> None:
    manager.ok("DEFINE QLOCAL(TAKEN)")
    assert reason_of(manager.connection.open, MQOD(ObjectName=MODEL, DynamicQName=name), SHARED) == reason


def test_model_queues_by_mqsc(manager: StandInManager) -> None:
    manager.ok("DEFINE QMODEL(M) DEFTYPE(PERMDYN)")
    manager.refused("DEFINE QMODEL(M)", "AMQ8150E")
    manager.refused("DEFINE QLOCAL(M)", "AMQ8150E")
    manager.ok("ALTER QMODEL(M) MAXDEPTH(7)")
    manager.restart()
    assert manager.attribute("QMODEL(M)", "MAXDEPTH") == 7
    assert manager.attribute("QMODEL(M)", "DEFTYPE") == "PERMDYN"
    manager.ok("DELETE QMODEL(M)")
    assert reason_of(manager.connection.open, MQOD(ObjectName="M"), SHARED) == cmqc.MQRC_UNKNOWN_OBJECT_NAME


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (cmqc.MQCO_DELETE, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (cmqc.MQCO_DELETE_PURGE, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (cmqc.MQCO_REMOVE_SUB, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (cmqc.MQCO_DELETE | cmqc.MQCO_DELETE_PURGE, cmqc.MQRC_OPTIONS_ERROR),
        (0x1000, cmqc.MQRC_OPTIONS_ERROR),
    ],
)
def test_close_options_of_a_predefined_queue(manager: StandInManager, options: int, reason: int) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    handle = manager.connection.open(MQOD(ObjectName="Q"), SHARED)
    assert reason_of(manager.connection.close, handle, options) == reason
    manager.connection.close(handle)
