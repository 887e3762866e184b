"""DEFINE, ALTER and DELETE: life cycle of objects, restart, and validation of names and attributes."""

from __future__ import annotations

import pytest

from tests.helpers.embedded_manager import Manager


@pytest.mark.parametrize(
    ("define", "object_", "created", "alter", "changed", "delete", "deleted"),
    [
        ("QLOCAL(A)", "QLOCAL(A)", "AMQ8006I", "QLOCAL(A) DESCR('new')", "AMQ8008I", "QLOCAL(A)", "AMQ8007I"),
        ("QALIAS(A) TARGET(B)", "QALIAS(A)", "AMQ8006I", "QALIAS(A) DESCR('new')", "AMQ8008I", "QALIAS(A)", "AMQ8007I"),
        (
            "QREMOTE(A) RNAME(B) RQMNAME(C)", "QREMOTE(A)", "AMQ8006I", "QREMOTE(A) DESCR('new')", "AMQ8008I",
            "QREMOTE(A)", "AMQ8007I",
        ),
        ("TOPIC(A) TOPICSTR('a')", "TOPIC(A)", "AMQ8690I", "TOPIC(A) DESCR('new')", "AMQ8691I", "TOPIC(A)", "AMQ8692I"),
    ],
)  # fmt: skip
def test_objects_are_created_changed_deleted_and_survive_a_restart(
    manager: Manager, define: str, object_: str, created: str, alter: str, changed: str, delete: str, deleted: str
) -> None:
    assert manager.ok(f"DEFINE {define} DESCR('old')").message.startswith(created)
    manager.restart()
    assert manager.attribute(object_, "DESCR") == "old"
    assert manager.ok(f"ALTER {alter}").message.startswith(changed)
    assert manager.attribute(object_, "DESCR") == "new"
    manager.restart()
    assert manager.attribute(object_, "DESCR") == "new"
    assert manager.ok(f"DELETE {delete}").message.startswith(deleted)
    manager.refused(f"DISPLAY {object_}", "AMQ8147E")
    manager.restart()
    manager.refused(f"DISPLAY {object_}", "AMQ8147E")


@pytest.mark.parametrize("verb", ["ALTER", "DELETE"])
@pytest.mark.parametrize("object_", ["QLOCAL(NONE)", "QALIAS(NONE)", "QREMOTE(NONE)", "TOPIC(NONE)", "SUB(NONE)"])
def test_missing_objects_are_not_found(manager: Manager, verb: str, object_: str) -> None:
    assert "NONE" in manager.refused(f"{verb} {object_}", "AMQ8147E")


def test_an_existing_object_is_replaced_only_with_replace(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A) DESCR('first') MAXDEPTH(7)")
    manager.put("A")
    manager.refused("DEFINE QLOCAL(A) DESCR('second')", "AMQ8150E")
    manager.refused("DEFINE QLOCAL(A) DESCR('second') NOREPLACE", "AMQ8150E")
    assert manager.attribute("QLOCAL(A)", "DESCR") == "first"
    assert manager.ok("DEFINE QLOCAL(A) DESCR('second') REPLACE").message.startswith("AMQ8008I")
    assert manager.attribute("QLOCAL(A)", "DESCR") == "second"
    assert manager.attribute("QLOCAL(A)", "MAXDEPTH") == 5000, "missing attributes get their defaults"
    assert manager.get_all("A") == [b"x"], "the messages stay"
    manager.refused("DEFINE QLOCAL(B) REPLACE NOREPLACE", "AMQ8405I")


def test_queues_of_all_types_share_their_names(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.refused("DEFINE QALIAS(A) TARGET(B)", "AMQ8150E")
    manager.refused("DEFINE QREMOTE(A) RNAME(B) REPLACE", "AMQ8150E")
    manager.refused("DELETE QALIAS(A)", "AMQ8147E")


def test_like_copies_the_attributes_of_another_object(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(MODEL) MAXDEPTH(11) DESCR('model') NOSHARE")
    manager.ok("DEFINE QLOCAL(COPY) LIKE(MODEL) DESCR('copy')")
    assert manager.attribute("QLOCAL(COPY)", "MAXDEPTH") == 11
    assert manager.attribute("QLOCAL(COPY)", "SHARE") == "NO"
    assert manager.attribute("QLOCAL(COPY)", "DESCR") == "copy"
    manager.ok("ALTER QLOCAL(COPY) MAXDEPTH(12)")
    assert manager.attribute("QLOCAL(MODEL)", "MAXDEPTH") == 11
    manager.refused("DEFINE QLOCAL(OTHER) LIKE(NONE)", "AMQ8147E")
    manager.refused("DEFINE QLOCAL(OTHER) LIKE", "AMQ8405I")


def test_like_does_not_copy_the_topic_string(manager: Manager) -> None:
    manager.ok("DEFINE TOPIC(MODEL) TOPICSTR('a') PUB(DISABLED)")
    assert "needs a TOPICSTR" in manager.refused("DEFINE TOPIC(COPY) LIKE(MODEL)", "AMQ8101E")
    manager.ok("DEFINE TOPIC(COPY) LIKE(MODEL) TOPICSTR('b')")
    assert manager.attribute("TOPIC(COPY)", "PUB") == "DISABLED"


@pytest.mark.parametrize(
    ("kind", "setting", "keyword", "value"),
    [
        ("QLOCAL(A)", "MAXDEPTH(0)", "MAXDEPTH", 0),
        ("QLOCAL(A)", "MAXDEPTH(999999999)", "MAXDEPTH", 999_999_999),
        ("QLOCAL(A)", "DEFPRTY(9)", "DEFPRTY", 9),
        ("QLOCAL(A)", "PUT(disabled)", "PUT", "DISABLED"),
        ("QLOCAL(A)", "USAGE(XMITQ)", "USAGE", "XMITQ"),
        ("QLOCAL(A)", "NOSHARE", "SHARE", "NO"),
        ("QLOCAL(A)", "DESCR('it''s')", "DESCR", "it's"),
        ("QLOCAL(A)", "DESCRIPTION(text)", "DESCR", "TEXT"),
        ("QALIAS(A)", "TARGQ(B)", "TARGET", "B"),
        ("QALIAS(A)", "TARGTYPE(TOPIC)", "TARGTYPE", "TOPIC"),
        ("QREMOTE(A)", "XMITQ('x')", "XMITQ", "x"),
        ("QREMOTE(A)", "RNAME('a/b c')", "RNAME", "a/b c"),
        ("TOPIC(A)", "TOPICSTR('a') DEFPRTY(ASPARENT)", "DEFPRTY", "ASPARENT"),
        ("TOPIC(A)", "TOPICSTR('a') DEFPRTY(3)", "DEFPRTY", 3),
        ("TOPIC(A)", "TOPICSTRING('a/B')", "TOPICSTR", "a/B"),
        ("TOPIC(A)", "TOPICSTR('a') WILDCARD(BLOCK)", "WILDCARD", "BLOCK"),
    ],
)
def test_attributes_are_parsed(manager: Manager, kind: str, setting: str, keyword: str, value: str | int) -> None:
    manager.ok(f"DEFINE {kind} {setting}")
    assert manager.attribute(kind, keyword) == value


@pytest.mark.parametrize(
    ("kind", "setting", "says"),
    [
        ("QLOCAL(A)", "MAXDEPTH(-1)", "from 0 to 999999999"),
        ("QLOCAL(A)", "MAXDEPTH(1000000000)", "from 0 to 999999999"),
        ("QLOCAL(A)", "MAXDEPTH(many)", "number"),
        ("QLOCAL(A)", "MAXDEPTH(1 2)", "one value"),
        ("QLOCAL(A)", "MAXDEPTH()", "one value"),
        ("QLOCAL(A)", "MAXDEPTH", "one value"),
        ("QLOCAL(A)", "DEFPRTY(10)", "from 0 to 9"),
        ("QLOCAL(A)", "PUT(MAYBE)", "ENABLED, DISABLED"),
        ("QALIAS(A)", "TARGET('a b')", "' '"),
        ("QLOCAL(A)", f"DESCR('{'x' * 65}')", "64"),
        ("QLOCAL(A)", "SHARE(YES)", "takes no value"),
        ("QLOCAL(A)", "SHARE NOSHARE", "twice"),
        ("QLOCAL(A)", "TARGET(B)", "TARGET"),
        ("QLOCAL(A)", "BANANA", "BANANA"),
        ("QALIAS(A)", "MAXDEPTH(1)", "MAXDEPTH"),
        ("TOPIC(A)", "TOPICSTR('a') DEFPRTY(10)", "ASPARENT"),
    ],
)
def test_invalid_attributes_are_rejected_with_their_position(
    manager: Manager, kind: str, setting: str, says: str
) -> None:
    text = manager.refused(f"DEFINE {kind} +\n{setting}", "AMQ8405I")
    assert says in text
    assert "line 2, column" in text
    manager.refused(f"DISPLAY {kind}", "AMQ8147E")


@pytest.mark.parametrize("name", ["'a b'", "'a-b'", "'ä'", "'" + "x" * 49 + "'"])
@pytest.mark.parametrize("kind", ["QLOCAL", "QALIAS", "QREMOTE", "TOPIC"])
def test_names_follow_the_rules_for_naming_objects(manager: Manager, kind: str, name: str) -> None:
    manager.refused(f"DEFINE {kind}({name})", "AMQ8424E")


def test_an_invalid_command_does_not_stop_the_others(manager: Manager) -> None:
    responses = manager.connection.command("DEFINE QLOCAL(A) MAXDEPTH(x)\nDEFINE QLOCAL(B\n\nDEFINE QLOCAL(C)")
    assert [(response.line, response.ok) for response in responses] == [(1, False), (2, False), (4, True)]
    assert [response.message[:8] for response in responses] == ["AMQ8405I", "AMQ8405I", "AMQ8006I"]


def test_topic_objects_affect_publications_immediately(manager: Manager) -> None:
    manager.publish("a/b")
    manager.ok("DEFINE TOPIC(T) TOPICSTR('a') PUB(DISABLED)")
    with pytest.raises(Exception, match="MQRC_PUT_INHIBITED"):
        manager.publish("a/b")
    manager.ok("ALTER TOPIC(T) PUB(ENABLED)")
    manager.publish("a/b")
    manager.ok("ALTER TOPIC(T) PUB(DISABLED)")
    with pytest.raises(Exception, match="MQRC_PUT_INHIBITED"):
        manager.publish("a/b")
    manager.ok("DELETE TOPIC(T)")
    manager.publish("a/b")


def test_a_topic_string_belongs_to_one_topic_object_and_cannot_change(manager: Manager) -> None:
    manager.ok("DEFINE TOPIC(T) TOPICSTR('a')")
    manager.refused("DEFINE TOPIC(U) TOPICSTR('a')", "AMQ8101E")
    manager.refused("DEFINE TOPIC(U)", "AMQ8101E")
    manager.refused("ALTER TOPIC(T) TOPICSTR('b')", "AMQ8101E")
    manager.refused("DEFINE TOPIC(T) TOPICSTR('b') REPLACE", "AMQ8101E")
    manager.ok("DEFINE TOPIC(T) TOPICSTR('a') PUB(DISABLED) REPLACE")


def test_the_base_topic_has_no_parent_and_cannot_be_deleted(manager: Manager) -> None:
    manager.refused("DELETE TOPIC(SYSTEM.BASE.TOPIC)", "AMQ8148E")
    manager.refused("ALTER TOPIC(SYSTEM.BASE.TOPIC) PUB(ASPARENT)", "AMQ8101E")
    manager.ok("ALTER TOPIC(SYSTEM.BASE.TOPIC) DEFPSIST(YES)")
    manager.restart()
    assert manager.attribute("TOPIC(SYSTEM.BASE.TOPIC)", "DEFPSIST") == "YES"
    assert manager.attribute("TPSTATUS('')", "DEFPSIST") == "YES"
