"""Authority records: set, delete, inquire, and persistence over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.mq.embedded.authority import Identity, covers
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQOD
from tests.helpers.pcf_administrator import Administrator
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.cmqcfc import (
    MQCACF_AUTH_PROFILE_NAME,
    MQCACF_ENTITY_NAME,
    MQIACF_AUTHORIZATION_LIST,
    MQIACF_ENTITY_TYPE,
    MQIACF_OBJECT_TYPE,
)
from tests.ibm_standin.mqi.connection import StandInConnection

SET, DELETE, INQUIRE = (cmqcfc.MQCMD_SET_AUTH_REC, cmqcfc.MQCMD_DELETE_AUTH_REC, cmqcfc.MQCMD_INQUIRE_AUTH_RECS)
QUEUE = {MQCACF_AUTH_PROFILE_NAME: "APP.**", MQIACF_OBJECT_TYPE: cmqc.MQOT_Q}
GROUPS = {cmqcfc.MQCACF_GROUP_ENTITY_NAMES: ["apps", "others"]}
PUT_AND_GET = {cmqcfc.MQIACF_AUTH_ADD_AUTHS: [cmqcfc.MQAUTH_OUTPUT, cmqcfc.MQAUTH_INPUT]}


def test_records_are_set_changed_and_deleted(admin: Administrator) -> None:
    admin.ask(SET, QUEUE | GROUPS | PUT_AND_GET)
    admin.ask(
        SET,
        QUEUE
        | {cmqcfc.MQCACF_GROUP_ENTITY_NAMES: ["apps"], cmqcfc.MQCACF_PRINCIPAL_ENTITY_NAMES: ["alice"]}
        | {
            cmqcfc.MQIACF_AUTH_ADD_AUTHS: [cmqcfc.MQAUTH_BROWSE],
            cmqcfc.MQIACF_AUTH_REMOVE_AUTHS: [cmqcfc.MQAUTH_INPUT],
        },
    )
    records = {(record[MQIACF_ENTITY_TYPE], record[MQCACF_ENTITY_NAME]): record for record in admin.ask(INQUIRE, {})}
    assert {key: record[MQIACF_AUTHORIZATION_LIST] for key, record in records.items()} == {
        (cmqc.MQZAET_PRINCIPAL, "alice"): [cmqcfc.MQAUTH_BROWSE],
        (cmqc.MQZAET_GROUP, "apps"): [cmqcfc.MQAUTH_BROWSE, cmqcfc.MQAUTH_OUTPUT],
        (cmqc.MQZAET_GROUP, "others"): [cmqcfc.MQAUTH_INPUT, cmqcfc.MQAUTH_OUTPUT],
    }
    assert all(record[MQCACF_AUTH_PROFILE_NAME] == "APP.**" for record in records.values())
    admin.ask(DELETE, QUEUE | GROUPS)
    assert [record[MQCACF_ENTITY_NAME] for record in admin.ask(INQUIRE, {})] == ["alice"]
    admin.ask(cmqcfc.MQCMD_REFRESH_SECURITY, {cmqcfc.MQIACF_SECURITY_TYPE: cmqcfc.MQSECTYPE_AUTHSERV})


def test_records_survive_a_restart(tmp_path: Path) -> None:
    identity = Identity(cmqc.MQOT_TOPIC, "PRICES", cmqc.MQZAET_PRINCIPAL, "bob jones")
    for _ in range(2):
        queue_manager = QueueManager("MQB1", tmp_path)
        records = queue_manager.objects.authority_records
        if not records.granted:
            with queue_manager.lock:
                unit, removed_identity = Unit(), Identity(*identity[:3], "gone")
                records.put(unit, identity, {1, 2})
                records.put(unit, removed_identity, {1})
                queue_manager.recovery_log.submit(unit)
                unit = Unit()
                records.remove(unit, removed_identity)
                queue_manager.recovery_log.submit(unit)
        queue_manager.close()
    assert records.granted == {identity: frozenset({1, 2})}


def test_rejected_authority_commands(admin: Administrator) -> None:
    for command, request, reason in (
        (SET, GROUPS | PUT_AND_GET, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL),
        (SET, {MQIACF_OBJECT_TYPE: cmqc.MQOT_Q} | GROUPS | PUT_AND_GET, cmqcfc.MQRCCF_PROFILE_NAME_MISSING),
        (SET, QUEUE | GROUPS, cmqcfc.MQRCCF_AUTH_VALUE_MISSING),
        (SET, QUEUE | GROUPS | {cmqcfc.MQIACF_AUTH_ADD_AUTHS: [77]}, cmqcfc.MQRCCF_AUTH_VALUE_ERROR),
        (SET, QUEUE | PUT_AND_GET, cmqcfc.MQRCCF_ENTITY_NAME_MISSING),
        (DELETE, QUEUE | GROUPS, cmqc.MQRC_UNKNOWN_ENTITY),
        (INQUIRE, {MQCACF_ENTITY_NAME: "apps"}, cmqcfc.MQRCCF_ENTITY_TYPE_MISSING),
        (INQUIRE, {}, cmqcfc.MQRCCF_NONE_FOUND),
    ):
        assert admin.refused(command, request)[0] == reason
    assert not admin.queue_manager.objects.authority_records.granted


def test_generic_profiles(subtests: pytest.Subtests) -> None:
    for profile, covered, others in [
        ("A.B", ["A.B"], ["A.C", "A.B.C", "A"]),
        ("A.*", ["A.B", "A.XYZ"], ["A", "A.B.C", "B.A"]),
        ("A.B*", ["A.B", "A.BCD"], ["A.CB", "A.B.C"]),
        ("A.?B", ["A.XB"], ["A.B", "A.XXB"]),
        ("A.**", ["A", "A.B", "A.B.C"], ["B", "AB"]),
        ("**", ["A", "A.B"], []),
        ("**.Z", ["Z", "A.Z", "A.B.Z"], ["A", "Z.A"]),
        ("A.**.Z", ["A.Z", "A.B.Z", "A.B.C.Z"], ["A", "A.B"]),
        ("A*C.X", ["AC.X", "ABBC.X"], ["AB.X", "AC.Y"]),
    ]:
        with subtests.test(profile=profile, covered=covered, others=others):
            assert [name for name in covered + others if covers(profile, name)] == covered


# Who may run commands -------------------------------------------------------------------------------------------------

PING, DISPLAY_SUB, CLEAR = (cmqcfc.MQCMD_PING_Q_MGR, cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, cmqcfc.MQCMD_CLEAR_TOPIC_STRING)
BY_AUTHORITY = [
    (PING, {}, "OBJTYPE(QMGR)", "DSP"),
    (DISPLAY_SUB, {cmqcfc.MQCACF_SUB_NAME: "s1"}, "PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC)", "DSP"),
    (
        cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS,
        {cmqc.MQCA_TOPIC_STRING: "prices/#"},
        "PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC)",
        "DSP",
    ),
    (cmqcfc.MQCMD_INQUIRE_Q_STATUS, {cmqc.MQCA_Q_NAME: "REPLIES"}, "PROFILE(REPLIES) OBJTYPE(QUEUE)", "DSP"),
    (cmqcfc.MQCMD_INQUIRE_Q, {cmqc.MQCA_Q_NAME: "REPLIES"}, "PROFILE(REPLIES) OBJTYPE(QUEUE)", "DSP"),
    (cmqcfc.MQCMD_RESET_Q_STATS, {cmqc.MQCA_Q_NAME: "REPLIES"}, "PROFILE(REPLIES) OBJTYPE(QUEUE)", "DSP,CHG"),
    (cmqcfc.MQCMD_CHANGE_Q_MGR, {cmqc.MQIA_MAX_HANDLES: 99}, "OBJTYPE(QMGR)", "CHG"),
    (
        CLEAR,
        {cmqc.MQCA_TOPIC_STRING: "prices/fruit", cmqcfc.MQIACF_CLEAR_TYPE: cmqcfc.MQCLRT_RETAINED},
        "PROFILE(PRICES) OBJTYPE(TOPIC)",
        "CLR",
    ),
]


@pytest.fixture
def clerk(admin: Administrator) -> Administrator:
    """Send commands as `admin`, who is no longer an administrator, to a queue manager that enforces authorities."""
    admin.connection.command("SET AUTHREC PROFILE('SYSTEM.ADMIN.**') OBJTYPE(QUEUE) PRINCIPAL('admin') AUTHADD(PUT)")
    admin.connection.command("SET AUTHREC PROFILE(REPLIES) OBJTYPE(QUEUE) PRINCIPAL('admin') AUTHADD(GET)")
    admin.queue_manager.enforce_authorities()
    return admin


def test_commands_require_an_administrator(clerk: Administrator) -> None:
    for command, request, _, _ in BY_AUTHORITY:
        assert clerk.refused(command, request) == (cmqc.MQRC_NOT_AUTHORIZED, None)
    assert clerk.refused(SET, QUEUE | GROUPS | PUT_AND_GET) == (cmqc.MQRC_NOT_AUTHORIZED, None)
    assert clerk.refused(cmqcfc.MQCMD_INQUIRE_Q_MGR, {}) == (cmqc.MQRC_NOT_AUTHORIZED, None)


@pytest.mark.parametrize(("command", "pcf_parameters", "profile", "authority"), BY_AUTHORITY)
def test_a_command_requires_authority_for_its_object_and_display_for_the_queue_manager(
    clerk: Administrator, command: int, pcf_parameters: dict[int, Any], profile: str, authority: str
) -> None:
    """Inquiries of several objects require an administrator."""
    office = StandInConnection(clerk.queue_manager, "office")

    def grant(subject: str, words: str) -> None:
        (response,) = office.command(f"SET AUTHREC {subject} PRINCIPAL('admin') AUTHADD({words})")
        assert response.ok, response.message

    grant(profile, authority)
    if (profile, authority) != ("OBJTYPE(QMGR)", "DSP"):
        assert clerk.refused(command, pcf_parameters) == (cmqc.MQRC_NOT_AUTHORIZED, None)
        grant("OBJTYPE(QMGR)", "DSP")
    clerk.ask(command, pcf_parameters)
    granted = {("OBJTYPE(QMGR)", "DSP"), *((profile, word) for word in authority.split(","))}
    for other, wanted, its_profile, words in BY_AUTHORITY:
        if not {(its_profile, word) for word in words.split(",")} <= granted:
            assert clerk.refused(other, wanted) == (cmqc.MQRC_NOT_AUTHORIZED, None)
    assert clerk.refused(cmqcfc.MQCMD_INQUIRE_Q_STATUS, {cmqc.MQCA_Q_NAME: "*"}) == (cmqc.MQRC_NOT_AUTHORIZED, None)


def test_administrators_by_user_identifier(clerk: Administrator) -> None:
    """The MQMD.UserIdentifier of the command is checked, that of the connection that put it."""
    clerk.connection = StandInConnection(clerk.queue_manager, "office", "mqm")
    clerk.replies = clerk.connection.open(MQOD(ObjectName="REPLIES"), cmqc.MQOO_INPUT_SHARED)
    clerk.ask(cmqcfc.MQCMD_INQUIRE_Q_MGR, {})
    clerk.ask(SET, QUEUE | GROUPS | PUT_AND_GET)
