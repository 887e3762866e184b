"""Namelists: as PCF and MQSC define them, and MQINQ."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, MQError
from testing.ibm_standin import cmqc, cmqcfc
from testing.ibm_standin.cmqc import MQCA_NAMELIST_DESC, MQCA_NAMELIST_NAME, MQCA_NAMES, MQIA_NAME_COUNT
from tests.helpers.pcf_administrator import Administrator

CREATE, CHANGE, COPY, DELETE, INQUIRE = (
    getattr(cmqcfc, f"MQCMD_{verb}_NAMELIST") for verb in ("CREATE", "CHANGE", "COPY", "DELETE", "INQUIRE")
)
MINE: dict[int, Any] = {MQCA_NAMELIST_NAME: "MINE", MQCA_NAMES: ["APP.IN", "APP.OUT"], MQCA_NAMELIST_DESC: "two"}


def names(admin: Administrator, name: str) -> tuple[int, list[str]]:
    (found,) = admin.ask(INQUIRE, {MQCA_NAMELIST_NAME: name})
    return found[MQIA_NAME_COUNT], found[MQCA_NAMES]


def test_a_namelist_from_its_creation_to_its_end(admin: Administrator) -> None:
    admin.ask(CREATE, MINE)
    assert names(admin, "MINE") == (2, ["APP.IN", "APP.OUT"])
    assert admin.shown("NAMELIST(MINE)", "NAMES") == "APP.IN,APP.OUT"
    assert admin.refused(CREATE, MINE)[0] == cmqcfc.MQRCCF_OBJECT_ALREADY_EXISTS
    admin.ask(CREATE, MINE | {MQCA_NAMES: [""], cmqcfc.MQIACF_REPLACE: cmqcfc.MQRP_YES})
    assert names(admin, "MINE") == (0, [])
    admin.ask(CHANGE, {MQCA_NAMELIST_NAME: "MINE", MQCA_NAMES: ["ONE"]})
    admin.ask(COPY, {cmqcfc.MQCACF_FROM_NAMELIST_NAME: "MINE", cmqcfc.MQCACF_TO_NAMELIST_NAME: "COPY"})
    assert names(admin, "COPY") == (1, ["ONE"])
    (listed,) = admin.ask(cmqcfc.MQCMD_INQUIRE_NAMELIST_NAMES, {MQCA_NAMELIST_NAME: "*"})
    assert listed == {cmqcfc.MQCACF_NAMELIST_NAMES: ["COPY", "MINE", "SYSTEM.DEFAULT.NAMELIST"]}
    admin.ask(DELETE, {MQCA_NAMELIST_NAME: "COPY"})
    assert admin.refused(INQUIRE, {MQCA_NAMELIST_NAME: "COPY"})[0] == cmqc.MQRC_UNKNOWN_OBJECT_NAME


@pytest.mark.parametrize(
    ("command", "given", "reason", "parameter"),
    [
        (CREATE, {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCA_NAMELIST_NAME),
        (CREATE, MINE | {MQCA_NAMES: ["NOT GOOD"]}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, MQCA_NAMES),
        (CREATE, MINE | {MQCA_NAMES: ["N" * 49]}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, MQCA_NAMES),
        (CREATE, MINE | {MQCA_NAMES: ["N"] * 257}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, MQCA_NAMES),
        (CREATE, MINE | {MQCA_NAMES: "ONE"}, cmqcfc.MQRCCF_CFST_PARM_ID_ERROR, MQCA_NAMES),
        (CHANGE, MINE, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (DELETE, {MQCA_NAMELIST_NAME: "MINE"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
    ],
)
def test_what_is_refused(
    admin: Administrator, command: int, given: dict[int, Any], reason: int, parameter: int | None
) -> None:
    assert admin.refused(command, given) == (reason, parameter)


def test_mqsc_and_mqinq(admin: Administrator, queue_manager: QueueManager) -> None:
    for text in (
        "DEFINE NAMELIST(MINE) NAMES(APP.IN, 'lower')",
        "ALTER NL(MINE) DESCR('d')",
        "DISPLAY NAMELIST(*) NAMES",
    ):
        (response,) = admin.connection.command(text)
        assert response.ok, response.message
    assert {one["NAMELIST"]: one["NAMES"] for one in response.objects} == {
        "MINE": "APP.IN,lower",
        "SYSTEM.DEFAULT.NAMELIST": "",
    }
    od = MQOD(ObjectType=cmqc.MQOT_NAMELIST, ObjectName="MINE")
    handle = admin.connection.open(od, cmqc.MQOO_INQUIRE)
    found = admin.connection.inquire(handle, [MQIA_NAME_COUNT, MQCA_NAMES, MQCA_NAMELIST_DESC])
    assert found == ([2], ["APP.IN".ljust(48) + "lower".ljust(48), "d".ljust(64)])
    for options in (cmqc.MQOO_OUTPUT, cmqc.MQOO_SET | cmqc.MQOO_INQUIRE):
        with pytest.raises(MQError) as error:
            admin.connection.open(od, options)
        assert error.value.reason == cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE
    queue_manager.close()
    again = QueueManager("MQB1", queue_manager.data_directory)
    assert again.objects.namelists["MINE"]["NAMES"] == "APP.IN,lower"
    again.close()
