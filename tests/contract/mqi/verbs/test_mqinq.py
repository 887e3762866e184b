"""MQINQ and MQSET."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, MQError
from tests.helpers.stand_in_manager import StandInManager
from tests.ibm_standin import attributes as attributes  # adds the constant attributes
from tests.ibm_standin import cmqc

INQUIRE, SET = cmqc.MQOO_INQUIRE, cmqc.MQOO_SET


def inquire(manager: StandInManager, od: MQOD, *selectors: int, options: int = INQUIRE) -> Any:
    handle = manager.connection.open(od, options)
    try:
        ints, chars = manager.connection.inquire(handle, selectors)
        return [*ints, *(text.rstrip() for text in chars)]
    finally:
        manager.connection.close(handle)


def test_a_local_queue(manager: StandInManager) -> None:
    manager.ok("DEFINE QLOCAL(Q) DESCR('of tests') MAXDEPTH(9) GET(DISABLED) DEFPSIST(YES) DEFPRTY(3) NOSHARE")
    manager.put("Q")
    handle = manager.connection.open(MQOD(ObjectName="Q"), INQUIRE | cmqc.MQOO_OUTPUT)
    ints, chars = manager.connection.inquire(
        handle,
        (
            cmqc.MQCA_Q_NAME,
            cmqc.MQIA_CURRENT_Q_DEPTH,
            cmqc.MQIA_MAX_Q_DEPTH,
            cmqc.MQIA_INHIBIT_GET,
            cmqc.MQIA_INHIBIT_PUT,
            cmqc.MQCA_Q_DESC,
            cmqc.MQIA_DEF_PERSISTENCE,
            cmqc.MQIA_DEF_PRIORITY,
            cmqc.MQIA_SHAREABILITY,
            cmqc.MQIA_Q_TYPE,
            cmqc.MQIA_DEFINITION_TYPE,
            cmqc.MQIA_OPEN_INPUT_COUNT,
            cmqc.MQIA_OPEN_OUTPUT_COUNT,
            cmqc.MQIA_USAGE,
            cmqc.MQIA_TRIGGER_CONTROL,
        ),
    )
    assert ints == [1, 9, cmqc.MQQA_GET_INHIBITED, 0, 1, 3, 0, cmqc.MQQT_LOCAL, cmqc.MQQDT_PREDEFINED, 0, 1, 0, 0]
    assert chars == ["Q".ljust(48), "of tests".ljust(64)]
    date, time = manager.connection.inquire(handle, (cmqc.MQCA_CREATION_DATE, cmqc.MQCA_CREATION_TIME))[1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d {2}", date)
    assert re.fullmatch(r"\d\d\.\d\d\.\d\d", time)


def test_a_temporary_dynamic_queue(manager: StandInManager) -> None:
    handle = manager.connection.open(MQOD(ObjectName="SYSTEM.DEFAULT.MODEL.QUEUE"), INQUIRE | cmqc.MQOO_INPUT_SHARED)
    selectors = (cmqc.MQIA_DEFINITION_TYPE, cmqc.MQIA_OPEN_INPUT_COUNT)
    assert manager.connection.inquire(handle, selectors)[0] == [cmqc.MQQDT_TEMPORARY_DYNAMIC, 1]


def test_attributes_of_an_alias_and_a_remote_queue_themselves(manager: StandInManager) -> None:
    manager.ok("DEFINE QALIAS(A) TARGET(NOWHERE) DESCR('alias')")
    manager.ok("DEFINE QREMOTE(R) RNAME('there') RQMNAME('dev')")
    assert inquire(
        manager, MQOD(ObjectName="A"), cmqc.MQIA_Q_TYPE, cmqc.MQCA_Q_NAME, cmqc.MQCA_BASE_Q_NAME, cmqc.MQCA_Q_DESC
    ) == [cmqc.MQQT_ALIAS, "A", "NOWHERE", "alias"]
    assert inquire(
        manager, MQOD(ObjectName="R"), cmqc.MQIA_Q_TYPE, cmqc.MQCA_REMOTE_Q_NAME, cmqc.MQCA_REMOTE_Q_MGR_NAME
    ) == [
        cmqc.MQQT_REMOTE,
        "there",
        "dev",
    ]


def test_a_namelist(manager: StandInManager) -> None:
    manager.ok("DEFINE NAMELIST(MINE) NAMES(APP.IN, 'lower')")
    manager.ok("ALTER NL(MINE) DESCR('d')")
    namelists = manager.ok("DISPLAY NAMELIST(*) NAMES").objects
    assert {namelist["NAMELIST"]: namelist["NAMES"] for namelist in namelists} == {
        "MINE": "APP.IN,lower",
        "SYSTEM.DEFAULT.NAMELIST": "",
    }
    od = MQOD(ObjectType=cmqc.MQOT_NAMELIST, ObjectName="MINE")
    assert inquire(manager, od, cmqc.MQIA_NAME_COUNT, cmqc.MQCA_NAMES, cmqc.MQCA_NAMELIST_DESC) == [
        2,
        "APP.IN".ljust(48) + "lower",
        "d",
    ]
    for options in (cmqc.MQOO_OUTPUT, SET | INQUIRE):
        with pytest.raises(MQError) as error:
            manager.connection.open(od, options)
        assert error.value.reason == cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE
    manager.restart()
    assert manager.attribute("NAMELIST(MINE)", "NAMES") == "APP.IN,lower"


def test_capabilities_of_the_queue_manager(manager: StandInManager) -> None:
    selectors = (cmqc.MQIA_XR_CAPABILITY, cmqc.MQIA_ACTIVITY_TRACE, cmqc.MQCA_SSL_KEY_REPOSITORY, cmqc.MQCA_CONN_AUTH)
    capabilities = inquire(manager, MQOD(ObjectType=cmqc.MQOT_Q_MGR), *selectors)
    assert capabilities == [cmqc.MQCAP_SUPPORTED, cmqc.MQMON_OFF, "", "SYSTEM.DEFAULT.AUTHINFO.IDPWOS"]


def test_the_queue_manager(manager: StandInManager) -> None:
    manager.ok("ALTER QMGR DEADQ(DLQ) DESCR('a test')")
    attribute_values = inquire(
        manager,
        MQOD(ObjectType=cmqc.MQOT_Q_MGR),
        cmqc.MQIA_COMMAND_LEVEL,
        cmqc.MQIA_PLATFORM,
        cmqc.MQIA_CODED_CHAR_SET_ID,
        cmqc.MQIA_MAX_PRIORITY,
        cmqc.MQIA_SYNCPOINT,
        cmqc.MQCA_Q_MGR_NAME,
        cmqc.MQCA_DEAD_LETTER_Q_NAME,
        cmqc.MQCA_COMMAND_INPUT_Q_NAME,
        cmqc.MQCA_Q_MGR_DESC,
        cmqc.MQCA_DEF_XMIT_Q_NAME,
    )
    assert attribute_values[0] >= 900
    assert attribute_values[1:5] == [cmqc.MQPL_UNIX, 1208, 9, 1]
    assert attribute_values[5:] == ["MQB1", "DLQ", "SYSTEM.ADMIN.COMMAND.QUEUE", "a test", ""]


@pytest.mark.parametrize(
    ("name", "options", "selectors", "reason"),
    [
        ("Q", INQUIRE, (0,), cmqc.MQRC_SELECTOR_ERROR),
        ("Q", INQUIRE, (5000,), cmqc.MQRC_SELECTOR_ERROR),
        ("Q", INQUIRE, (cmqc.MQIA_COMMAND_LEVEL,), cmqc.MQRC_SELECTOR_NOT_FOR_TYPE),
        ("Q", INQUIRE, (cmqc.MQCA_BASE_Q_NAME,), cmqc.MQRC_SELECTOR_NOT_FOR_TYPE),
        ("A", INQUIRE, (cmqc.MQIA_CURRENT_Q_DEPTH,), cmqc.MQRC_SELECTOR_NOT_FOR_TYPE),
        ("Q", INQUIRE, (cmqc.MQIA_Q_TYPE,) * 257, cmqc.MQRC_SELECTOR_LIMIT_EXCEEDED),
        ("Q", cmqc.MQOO_OUTPUT, (cmqc.MQIA_Q_TYPE,), cmqc.MQRC_NOT_OPEN_FOR_INQUIRE),
    ],
)
def test_attributes_that_cannot_be_inquired(
    manager: StandInManager, name: str, options: Any, selectors: Any, reason: int
) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    manager.ok("DEFINE QALIAS(A) TARGET(Q)")
    with pytest.raises(MQError) as error:
        inquire(manager, MQOD(ObjectName=name), *selectors, options=options)
    assert error.value.reason == reason


def test_set(manager: StandInManager) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    handle = manager.connection.open(MQOD(ObjectName="Q"), SET | INQUIRE)
    selectors = (cmqc.MQIA_INHIBIT_PUT, cmqc.MQCA_TRIGGER_DATA, cmqc.MQIA_TRIGGER_DEPTH)
    manager.connection.set(handle, selectors, [cmqc.MQQA_PUT_INHIBITED, 4], ["data".ljust(64)])
    assert manager.connection.inquire(handle, selectors) == ([cmqc.MQQA_PUT_INHIBITED, 4], ["data".ljust(64)])
    with pytest.raises(MQError) as error:
        manager.put("Q")
    assert error.value.reason == cmqc.MQRC_PUT_INHIBITED
    manager.restart()
    assert manager.attribute("QLOCAL(Q)", "PUT") == "DISABLED"


@pytest.mark.parametrize(
    ("options", "selectors", "ints", "reason"),
    [
        (INQUIRE, (cmqc.MQIA_INHIBIT_PUT,), [1], cmqc.MQRC_NOT_OPEN_FOR_SET),
        (SET, (cmqc.MQIA_INHIBIT_PUT,), [2], cmqc.MQRC_INHIBIT_VALUE_ERROR),
        (SET, (cmqc.MQIA_TRIGGER_DEPTH,), [0], cmqc.MQRC_TRIGGER_DEPTH_ERROR),
        (SET, (cmqc.MQIA_MAX_Q_DEPTH,), [5], cmqc.MQRC_SELECTOR_ERROR),
        (SET, (cmqc.MQIA_INHIBIT_PUT,), [], cmqc.MQRC_INT_ATTR_COUNT_ERROR),
    ],
)
def test_attributes_that_cannot_be_set(
    manager: StandInManager, options: Any, selectors: Any, ints: Any, reason: int
) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    handle = manager.connection.open(MQOD(ObjectName="Q"), options)
    with pytest.raises(MQError) as error:
        manager.connection.set(handle, selectors, ints, [])
    assert error.value.reason == reason
    assert manager.attribute("QLOCAL(Q)", "PUT") == "ENABLED"
