"""The MQSC commands for authority records: SET, DELETE and DISPLAY AUTHREC."""

from __future__ import annotations

import grp
import os
import pwd

import pytest

from bridge.mq.embedded.authority import ADMIN, ALL, MQI, NUMBERS, WORDS
from bridge.wire import cmqc
from tests.helpers.embedded_manager import Manager

QUEUE = "PROFILE('APP.**') OBJTYPE(QUEUE)"


def held(manager: Manager) -> dict[tuple[str, int, str], str]:
    """Return (profile, entity type, entity) -> authorities of the records."""
    return {
        (record.profile, record.entity_type, record.entity): ",".join(sorted(NUMBERS[number] for number in granted))
        for record, granted in manager.itself.objects.authority_records.granted.items()
    }


def test_records_are_set_changed_and_deleted(manager: Manager) -> None:
    manager.ok(f"SET AUTHREC {QUEUE} PRINCIPAL('alice', 'bob') GROUP('apps') AUTHADD(PUT, GET)")
    manager.ok(f"SET AUTHREC {QUEUE} PRINCIPAL('alice') AUTHADD(BROWSE) AUTHRMV(GET)")
    expected = {
        ("APP.**", cmqc.MQZAET_PRINCIPAL, "alice"): "BROWSE,PUT",
        ("APP.**", cmqc.MQZAET_PRINCIPAL, "bob"): "GET,PUT",
        ("APP.**", cmqc.MQZAET_GROUP, "apps"): "GET,PUT",
    }
    assert held(manager) == expected
    manager.restart()
    assert held(manager) == expected
    manager.ok(f"DELETE AUTHREC {QUEUE} GROUP('apps') PRINCIPAL('bob')")
    manager.restart()
    assert set(held(manager)) == {("APP.**", cmqc.MQZAET_PRINCIPAL, "alice")}


def test_collective_words_mean_several_authorities(manager: Manager) -> None:
    """ALL and similar words mean several authorities. DISPLAY shows the individual ones."""
    for word, authorities in {"ALL": ALL, "ALLMQI": MQI.values(), "ALLADM": ADMIN.values(), "NONE": ()}.items():
        manager.ok(f"SET AUTHREC {QUEUE} GROUP('apps') AUTHRMV(ALL) AUTHADD({word})")
        assert list(held(manager).values()) == [",".join(sorted(NUMBERS[authority] for authority in authorities))]
    for word in WORDS:
        manager.ok(f"SET AUTHREC {QUEUE} GROUP('apps') AUTHRMV(ALL,CRT,SYSTEM) AUTHADD({word})")
        (row,) = manager.ok("DISPLAY AUTHREC").objects
        assert row["AUTHLIST"] == word
    manager.ok(f"SET AUTHREC {QUEUE} GROUP('apps') AUTHRMV({','.join(WORDS)})")
    assert manager.ok("DISPLAY AUTHREC").objects[0]["AUTHLIST"] == "NONE"


def test_the_queue_manager_is_its_own_profile(manager: Manager) -> None:
    manager.ok("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('alice') AUTHADD(CONNECT)")
    manager.ok("SET AUTHREC PROFILE(SELF) OBJTYPE(QMGR) PRINCIPAL('alice') AUTHADD(INQ)")
    assert held(manager) == {("MQB1", cmqc.MQZAET_PRINCIPAL, "alice"): "CONNECT,INQ"}


def test_the_response_reports_whether_authorities_are_enforced(manager: Manager) -> None:
    command = f"SET AUTHREC {QUEUE} PRINCIPAL('alice') AUTHADD(PUT)"
    assert "authorities: ignored" in manager.ok(command).message
    manager.itself.enforce_authorities()
    assert manager.ok(command).message == "AMQ8862I: Authority record set."


RECORDS = """
SET AUTHREC PROFILE('APP.**') OBJTYPE(QUEUE) PRINCIPAL('alice') AUTHADD(PUT)
SET AUTHREC PROFILE('APP.IN') OBJTYPE(QUEUE) GROUP('apps') AUTHADD(GET,BROWSE)
SET AUTHREC PROFILE('PRICES') OBJTYPE(TOPIC) PRINCIPAL('alice') AUTHADD(SUB)
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bob') AUTHADD(CONNECT)
"""


@pytest.mark.parametrize(
    ("selection", "profiles"),
    [
        ("", ["MQB1", "PRICES", "APP.**", "APP.IN"]),
        ("PROFILE('APP.IN')", ["APP.**", "APP.IN"]),
        ("PROFILE('APP.OUT')", ["APP.**"]),
        ("PROFILE('A*')", ["APP.**", "APP.IN"]),
        ("PROFILE('APP.IN') MATCH(EXACT)", ["APP.IN"]),
        ("PROFILE('APP.IN') GROUP('apps')", ["APP.IN"]),
        ("OBJTYPE(TOPIC)", ["PRICES"]),
        ("PROFILE(ANY) OBJTYPE(QMGR)", ["MQB1"]),
        ("PRINCIPAL('alice')", ["PRICES", "APP.**"]),
        ("PRINCIPAL('alice') MATCH(MEMBERSHIP)", ["PRICES", "APP.**"]),
    ],
)
def test_displayed_records_can_be_selected(manager: Manager, selection: str, profiles: list[str]) -> None:
    for command in RECORDS.strip().splitlines():
        manager.ok(command)
    response = manager.ok(f"DISPLAY AUTHREC {selection}")
    assert response.message.startswith("AMQ8864I")
    assert sorted(str(row["PROFILE"]) for row in response.objects) == sorted(profiles)


def test_match_membership_includes_the_groups_of_a_user(manager: Manager) -> None:
    """MATCH(MEMBERSHIP) includes the records of a user's groups."""
    user = pwd.getpwuid(os.geteuid())
    group = grp.getgrgid(user.pw_gid).gr_name
    manager.ok(f"SET AUTHREC {QUEUE} GROUP('{group}') AUTHADD(PUT)")
    manager.ok(f"SET AUTHREC {QUEUE} GROUP('nobody') AUTHADD(GET)")
    manager.refused(f"DISPLAY AUTHREC PRINCIPAL('{user.pw_name}')", "AMQ8147E")
    rows = manager.ok(f"DISPLAY AUTHREC PRINCIPAL('{user.pw_name}') MATCH(MEMBERSHIP)").objects
    assert {row["ENTITY"] for row in rows} == {group, "nobody"}


def test_attributes_of_a_record_can_be_selected(manager: Manager) -> None:
    manager.ok("SET AUTHREC PROFILE(PRICES) OBJTYPE(TOPIC) GROUP('apps') AUTHADD(SUB,PUB)")
    whole = {"PROFILE": "PRICES", "ENTITY": "apps", "ENTTYPE": "GROUP", "OBJTYPE": "TOPIC", "AUTHLIST": "PUB,SUB"}
    assert manager.ok("DISPLAY AUTHREC").objects == [whole]
    assert manager.ok("DIS AUTHREC PROFILE(PRICES) ALL").objects == [whole]
    assert manager.ok("DIS AUTHREC OBJTYPE(TOPIC) AUTHLIST ENTITY").objects == [
        {"ENTITY": "apps", "AUTHLIST": "PUB,SUB"}
    ]


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("SET AUTHREC PROFILE(A) PRINCIPAL('a') AUTHADD(PUT)", "AMQ8405I"),
        ("SET AUTHREC PROFILE(A) OBJTYPE(BANANA) PRINCIPAL('a') AUTHADD(PUT)", "AMQ8405I"),
        ("SET AUTHREC OBJTYPE(QUEUE) PRINCIPAL('a') AUTHADD(PUT)", "AMQ8405I"),
        ("SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) AUTHADD(PUT)", "AMQ8405I"),
        ("SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL(' ') AUTHADD()", "AMQ8405I"),
        ("SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('a')", "AMQ8405I"),
        ("SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('a') AUTHADD(FLY)", "AMQ8405I"),
        ("SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('a') AUTHADD(PUT) BANANA", "AMQ8405I"),
        ("DELETE AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('a') AUTHADD(PUT)", "AMQ8405I"),
        ("DELETE AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('a')", "AMQ8871E"),
        ("DISPLAY AUTHREC", "AMQ8147E"),
        ("DISPLAY AUTHREC MATCH(SOMETIMES)", "AMQ8405I"),
        ("DISPLAY AUTHREC MATCH(MEMBERSHIP)", "AMQ8405I"),
        ("DISPLAY AUTHREC PRINCIPAL('a') GROUP('b')", "AMQ8405I"),
    ],
)
def test_invalid_commands_are_rejected(manager: Manager, command: str, number: str) -> None:
    manager.refused(command, number)
    assert not manager.itself.objects.authority_records.granted


@pytest.mark.parametrize(("manner", "record_count"), [("", 1), ("AUTHREC(YES)", 1), ("AUTHREC(NO)", 2)])
@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        ("QLOCAL(THING)", "QUEUE"),
        ("QALIAS(THING) TARGET(Q)", "QUEUE"),
        ("TOPIC(THING) TOPICSTR('t')", "TOPIC"),
        ("NAMELIST(THING)", "NAMELIST"),
    ],
)
def test_records_are_deleted_with_their_object(
    manager: Manager, definition: str, kind: str, manner: str, record_count: int
) -> None:
    """Records of that name only. A generic profile applies to other objects, too."""
    manager.ok(f"DEFINE {definition}")
    for profile in ("THING", "THIN?"):
        manager.ok(f"SET AUTHREC PROFILE('{profile}') OBJTYPE({kind}) GROUP('apps') AUTHADD(ALL)")
    manager.refused(f"DELETE {definition.split()[0]} AUTHREC(PERHAPS)", "AMQ8405I")
    manager.ok(f"DELETE {definition.split()[0]} {manner}")
    assert len(held(manager)) == record_count
    manager.restart()
    assert len(held(manager)) == record_count
