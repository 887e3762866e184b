"""MQSC commands at work: objects come, change, go and survive a restart; what must not happen is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.mapping.message import Message
from bridge.mq.interface import MQOD, MQSD, CommandResponse, GetOptions
from bridge.mq.local.commands import Commands
from bridge.mq.local.connection import LocalConnection
from bridge.mq.local.queuemanager import QueueManager
from bridge.mq.local.script import ScriptFailed, bridge_script, prepare, run_script
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class Manager:
    """A queue manager that can be restarted, with one application connected."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open()

    def _open(self) -> None:
        self.itself = QueueManager("MQB1", self._directory)
        self.connection = LocalConnection(self.itself)

    def restart(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self.itself.close()

    def run(self, text: str) -> CommandResponse:
        """The response to one command."""
        (response,) = self.connection.command(text)
        return response

    def ok(self, text: str) -> CommandResponse:
        response = self.run(text)
        assert response.ok, response.message
        return response

    def refused(self, text: str, number: str) -> str:
        response = self.run(text)
        assert not response.ok
        assert response.message.startswith(f"{number}: "), response.message
        return response.message

    def attribute(self, object_: str, keyword: str) -> str | int:
        (shown,) = self.ok(f"DISPLAY {object_} ALL").objects
        return shown[keyword]

    def put(self, name: str, data: bytes = b"x", *, persistent: bool = True, priority: int = 4) -> None:
        md = MQMD(Persistence=int(persistent), Priority=priority)
        self.connection.put1(MQOD(ObjectName=name), Message(md, data))

    def publish(self, topic: str, data: bytes = b"x", *, retain: bool = False) -> None:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
        options = cmqc.MQPMO_RETAIN if retain else cmqc.MQPMO_NONE
        self.connection.put1(od, Message(MQMD(Persistence=1), data), options)

    def get_all(self, name: str) -> list[bytes]:
        handle = self.connection.open(MQOD(ObjectName=name), cmqc.MQOO_INPUT_SHARED)
        found = []
        while int(self.attribute(f"QLOCAL({name})", "CURDEPTH")):
            found.append(self.connection.get(handle, GetOptions()).data)
        self.connection.close(handle)
        return found


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


# Defining, altering, deleting


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
def test_objects_come_change_and_go_and_outlive_a_restart(
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
def test_what_is_not_there_is_not_found(manager: Manager, verb: str, object_: str) -> None:
    assert "NONE" in manager.refused(f"{verb} {object_}", "AMQ8147E")


def test_an_existing_object_is_replaced_only_with_replace(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A) DESCR('first') MAXDEPTH(7)")
    manager.put("A")
    manager.refused("DEFINE QLOCAL(A) DESCR('second')", "AMQ8150E")
    manager.refused("DEFINE QLOCAL(A) DESCR('second') NOREPLACE", "AMQ8150E")
    assert manager.attribute("QLOCAL(A)", "DESCR") == "first"
    assert manager.ok("DEFINE QLOCAL(A) DESCR('second') REPLACE").message.startswith("AMQ8008I")
    assert manager.attribute("QLOCAL(A)", "DESCR") == "second"
    assert manager.attribute("QLOCAL(A)", "MAXDEPTH") == 5000, "what is not given takes its default"
    assert manager.get_all("A") == [b"x"], "the messages stay"
    manager.refused("DEFINE QLOCAL(B) REPLACE NOREPLACE", "AMQ8405I")


def test_queues_of_all_types_share_their_names(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.refused("DEFINE QALIAS(A) TARGET(B)", "AMQ8150E")
    manager.refused("DEFINE QREMOTE(A) RNAME(B) REPLACE", "AMQ8150E")
    manager.refused("DELETE QALIAS(A)", "AMQ8147E")


def test_like_takes_the_attributes_of_another(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(MODEL) MAXDEPTH(11) DESCR('model') NOSHARE")
    manager.ok("DEFINE QLOCAL(COPY) LIKE(MODEL) DESCR('copy')")
    assert manager.attribute("QLOCAL(COPY)", "MAXDEPTH") == 11
    assert manager.attribute("QLOCAL(COPY)", "SHARE") == "NO"
    assert manager.attribute("QLOCAL(COPY)", "DESCR") == "copy"
    manager.ok("ALTER QLOCAL(COPY) MAXDEPTH(12)")
    assert manager.attribute("QLOCAL(MODEL)", "MAXDEPTH") == 11
    manager.refused("DEFINE QLOCAL(OTHER) LIKE(NONE)", "AMQ8147E")
    manager.refused("DEFINE QLOCAL(OTHER) LIKE", "AMQ8405I")


def test_like_of_a_topic_leaves_its_topic_string_behind(manager: Manager) -> None:
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
        ("QLOCAL(A)", "TRIGGER", "TRIGGER", "YES"),
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
def test_attributes_are_read(manager: Manager, kind: str, setting: str, keyword: str, value: str | int) -> None:
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
        ("QLOCAL(A)", "BOQNAME('a b')", "' '"),
        ("QLOCAL(A)", f"DESCR('{'x' * 65}')", "64"),
        ("QLOCAL(A)", "SHARE(YES)", "takes no value"),
        ("QLOCAL(A)", "SHARE NOSHARE", "twice"),
        ("QLOCAL(A)", "TARGET(B)", "TARGET"),
        ("QLOCAL(A)", "BANANA", "BANANA"),
        ("QALIAS(A)", "MAXDEPTH(1)", "MAXDEPTH"),
        ("TOPIC(A)", "TOPICSTR('a') DEFPRTY(10)", "ASPARENT"),
    ],
)
def test_attributes_that_cannot_be_are_refused_with_their_place(
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


def test_one_bad_command_does_not_stop_the_others(manager: Manager) -> None:
    responses = manager.connection.command("DEFINE QLOCAL(A) MAXDEPTH(x)\nDEFINE QLOCAL(B\n\nDEFINE QLOCAL(C)")
    assert [(one.line, one.ok) for one in responses] == [(1, False), (2, False), (4, True)]
    assert [one.message[:8] for one in responses] == ["AMQ8405I", "AMQ8405I", "AMQ8006I"]


@pytest.mark.parametrize(
    "command",
    [
        "DEFINE QLOCAL(NEW)",
        "ALTER QLOCAL(A) MAXDEPTH(1)",
        "ALTER QALIAS(ALIAS) TARGET(B)",
        "DELETE QALIAS(ALIAS)",
        "DELETE QLOCAL(B)",
        "DEFINE TOPIC(NEW) TOPICSTR('new')",
        "ALTER TOPIC(T) PUB(DISABLED)",
        "DELETE TOPIC(T)",
        "ALTER QMGR DESCR('new')",
        "DEFINE SUB(NEW) TOPICSTR('t') DEST(A)",
        "DEFINE SUB(NEW) TOPICSTR('t') DESTCLAS(MANAGED)",
        "ALTER SUB(S) USERDATA('new')",
    ],
)
def test_definitions_take_effect_when_their_unit_of_work_ends(manager: Manager, command: str) -> None:
    """So a unit that cannot be written changes nothing."""
    manager.connection.command(
        "DEFINE QLOCAL(A)\nDEFINE QLOCAL(B)\nDEFINE QALIAS(ALIAS) TARGET(A)\nDEFINE TOPIC(T) TOPICSTR('t')\n"
        "DEFINE SUB(S) TOPICSTR('s') DEST(A)"
    )
    everything = "DISPLAY QUEUE(*) ALL; DISPLAY TOPIC(*) ALL; DISPLAY SUB(*) ALL; DISPLAY QMGR"
    before = [response.objects for response in manager.connection.command(everything)]
    commands = Commands(manager.itself)
    (read,) = commands.read(command)
    response, unit = commands.run(read)
    assert response.ok and unit is not None
    assert [response.objects for response in manager.connection.command(everything)] == before
    ended = threading.Event()
    unit.done = lambda _reason: ended.set()
    with manager.itself.lock:
        manager.itself.journal.submit(unit)
    assert ended.wait(10)
    assert [response.objects for response in manager.connection.command(everything)] != before


# Queues with messages, open queues


def test_alter_takes_effect_on_the_queue(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("ALTER QLOCAL(A) MAXDEPTH(1)")
    manager.put("A")
    with pytest.raises(Exception, match="MQRC_Q_FULL"):
        manager.put("A")
    manager.ok("ALTER QLOCAL(A) MAXDEPTH(5000) PUT(DISABLED)")
    with pytest.raises(Exception, match="MQRC_PUT_INHIBITED"):
        manager.put("A")


def test_a_queue_with_messages_goes_only_with_purge(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.put("A")
    manager.refused("DELETE QLOCAL(A)", "AMQ8143E")
    manager.refused("DELETE QLOCAL(A) NOPURGE", "AMQ8143E")
    manager.refused("DELETE QLOCAL(A) PURGE NOPURGE", "AMQ8405I")
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 1
    manager.ok("DELETE QLOCAL(A) PURGE")
    manager.ok("DEFINE QLOCAL(A)")
    manager.restart()
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 0


@pytest.mark.parametrize("options", [cmqc.MQOO_INPUT_SHARED, cmqc.MQOO_OUTPUT, cmqc.MQOO_BROWSE])
@pytest.mark.parametrize("command", ["DELETE QLOCAL(A)", "DELETE QLOCAL(A) PURGE", "CLEAR QLOCAL(A)"])
def test_an_open_queue_is_in_use(manager: Manager, command: str, options: int) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    handle = manager.connection.open(MQOD(ObjectName="A"), options)
    manager.refused(command, "AMQ8148E")
    manager.connection.close(handle)
    manager.ok(command)


def test_clear_removes_messages_for_good(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.put("A", persistent=True)
    manager.put("A", persistent=False)
    assert manager.ok("CLEAR QLOCAL(A)").message.startswith("AMQ8022I")
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 0
    manager.restart()
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 0


def test_uncommitted_messages_keep_a_queue_from_being_cleared(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    od = MQOD(ObjectName="A")
    manager.connection.put1(od, Message(MQMD(Persistence=0), b"1"), cmqc.MQPMO_SYNCPOINT)
    manager.refused("CLEAR QLOCAL(A)", "AMQ8148E")
    manager.refused("DELETE QLOCAL(A) PURGE", "AMQ8148E")
    manager.connection.commit()
    assert manager.get_all("A") == [b"1"]


def test_a_refused_purge_leaves_every_message(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.put("A", b"committed")
    manager.connection.put1(MQOD(ObjectName="A"), Message(MQMD(Persistence=0), b"not"), cmqc.MQPMO_SYNCPOINT)
    manager.refused("DELETE QLOCAL(A) PURGE", "AMQ8148E")
    manager.connection.backout()
    assert manager.get_all("A") == [b"committed"]


def test_msgdlvsq_changes_with_messages_on_the_queue(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    for priority in (1, 9, 5):
        manager.put("A", str(priority).encode(), priority=priority)
    manager.ok("ALTER QLOCAL(A) MSGDLVSQ(FIFO)")
    manager.put("A", b"8", priority=8)
    manager.ok("ALTER QLOCAL(A) MSGDLVSQ(PRIORITY)")
    assert manager.get_all("A") == [b"9", b"8", b"5", b"1"]
    for priority in (1, 9, 5):
        manager.put("A", str(priority).encode(), priority=priority)
    manager.ok("ALTER QLOCAL(A) MSGDLVSQ(FIFO)")
    assert manager.get_all("A") == [b"1", b"9", b"5"]


def test_usage_changes_on_an_empty_queue_only(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.put("A")
    manager.refused("ALTER QLOCAL(A) USAGE(XMITQ)", "AMQ8143E")
    manager.refused("DEFINE QLOCAL(A) USAGE(XMITQ) REPLACE", "AMQ8143E")
    manager.ok("CLEAR QLOCAL(A)")
    manager.ok("ALTER QLOCAL(A) USAGE(XMITQ)")


@pytest.mark.parametrize("name", ["SYSTEM.RETAINED.PUB.QUEUE", "SYSTEM.MQTT.PERSISTENT.STATE"])
def test_the_queue_managers_own_queues_are_in_use(manager: Manager, name: str) -> None:
    prepare(manager.itself)
    manager.refused(f"CLEAR QLOCAL({name})", "AMQ8148E")
    manager.refused(f"DELETE QLOCAL({name}) PURGE", "AMQ8148E")


# Topics


def test_topic_objects_govern_publications_at_once(manager: Manager) -> None:
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


def test_a_topic_string_belongs_to_one_topic_object_and_stays(manager: Manager) -> None:
    manager.ok("DEFINE TOPIC(T) TOPICSTR('a')")
    manager.refused("DEFINE TOPIC(U) TOPICSTR('a')", "AMQ8101E")
    manager.refused("DEFINE TOPIC(U)", "AMQ8101E")
    manager.refused("ALTER TOPIC(T) TOPICSTR('b')", "AMQ8101E")
    manager.refused("DEFINE TOPIC(T) TOPICSTR('b') REPLACE", "AMQ8101E")
    manager.ok("DEFINE TOPIC(T) TOPICSTR('a') PUB(DISABLED) REPLACE")


def test_the_base_topic_has_no_parent_and_stays(manager: Manager) -> None:
    manager.refused("DELETE TOPIC(SYSTEM.BASE.TOPIC)", "AMQ8148E")
    manager.refused("ALTER TOPIC(SYSTEM.BASE.TOPIC) PUB(ASPARENT)", "AMQ8101E")
    manager.ok("ALTER TOPIC(SYSTEM.BASE.TOPIC) DEFPSIST(YES)")
    manager.restart()
    assert manager.attribute("TOPIC(SYSTEM.BASE.TOPIC)", "DEFPSIST") == "YES"
    assert manager.attribute("TPSTATUS('')", "DEFPSIST") == "YES"


def test_clear_topicstr_removes_retained_publications(manager: Manager) -> None:
    for topic in ("a/b", "a/c", "d"):
        manager.publish(topic, retain=True)
    assert manager.ok("CLEAR TOPICSTR('a/b') CLRTYPE(RETAINED)").message.startswith("AMQ8022I")
    assert sorted(manager.itself.retained) == ["a/c", "d"]
    manager.ok("CLEAR TOPICSTR('a/b') CLRTYPE(RETAINED) SCOPE(LOCAL)")
    manager.restart()
    assert sorted(manager.itself.retained) == ["a/c", "d"]
    manager.ok("CLEAR TOPICSTR('#') CLRTYPE(RETAINED)")
    assert not manager.itself.retained
    manager.restart()
    assert not manager.itself.retained
    manager.refused("CLEAR TOPICSTR('a')", "AMQ8405I")
    manager.refused("CLEAR TOPICSTR('a') CLRTYPE(ALL)", "AMQ8405I")


# Subscriptions


def test_an_administrative_subscription_delivers_and_outlives_a_restart(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    created = manager.ok("DEFINE SUB('dev 1:a/#') TOPICSTR('a/#') DEST(A) USERDATA('1') SUBUSER(fred)")
    assert created.message.startswith("AMQ8094I")
    manager.publish("a/b", b"1")
    manager.restart()
    manager.publish("a", b"2")
    manager.publish("b", b"3")
    assert [data[-1:] for data in manager.get_all("A")] == [b"1", b"2"]
    assert manager.attribute("SUB('dev 1:a/#')", "USERDATA") == "1"
    assert manager.attribute("SUB('dev 1:a/#')", "SUBUSER") == "FRED"
    assert manager.ok("DELETE SUB('dev 1:a/#')").message.startswith("AMQ8097I")
    manager.publish("a/b")
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 0
    manager.restart()
    manager.refused("DISPLAY SUB('dev 1:a/#')", "AMQ8147E")


def test_a_new_subscription_gets_the_retained_publication(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.publish("a", retain=True)
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(A)")
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 1
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(A) REPLACE")
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 1, "once is enough"


def test_a_topic_object_gives_the_beginning_of_the_topic_string(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE TOPIC(T) TOPICSTR('a/b')")
    manager.ok("DEFINE SUB(S) TOPICOBJ(T) TOPICSTR('c') DEST(A)")
    manager.ok("DEFINE SUB(U) TOPICOBJ(T) DEST(A)")
    for _ in range(2):
        assert manager.attribute("SUB(S)", "TOPICSTR") == "a/b/c"
        assert manager.attribute("SUB(S)", "TOPICOBJ") == "T"
        assert manager.attribute("SUB(U)", "TOPICSTR") == "a/b"
        manager.restart()
    manager.ok("ALTER SUB(S) USERDATA('u')")
    assert manager.attribute("SUB(S)", "TOPICSTR") == "a/b/c"
    assert manager.attribute("SUB(S)", "TOPICOBJ") == "T"
    manager.refused("DEFINE SUB(V) TOPICOBJ(NONE) DEST(A)", "AMQ8101E")


@pytest.mark.parametrize(
    ("parameters", "number"),
    [
        ("TOPICSTR('a')", "AMQ8405I"),
        ("DEST(A)", "AMQ8405I"),
        ("TOPICSTR('a') DEST(NONE)", "AMQ8101E"),
        ("TOPICSTR('a') DEST(A) SUBLEVEL(10)", "AMQ8405I"),
        ("TOPICSTR('a') DEST(A) DESTCORL(XYZ)", "AMQ8405I"),
        ("TOPICSTR('a') DEST(A) DESTCLAS(MINE)", "AMQ8405I"),
        ("TOPICSTR('a') DEST(A) DESTCLAS(MANAGED)", "AMQ8405I"),
        ("TOPICSTR('a') DEST(A) WSCHEMA(CHAR)", "AMQ8101E"),
        ("TOPICSTR('closed') DEST(A)", "AMQ8101E"),
        ("TOPICSTR('fleeting') DEST(A)", "AMQ8101E"),
    ],
)
def test_subscriptions_that_cannot_be(manager: Manager, parameters: str, number: str) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE TOPIC(CLOSED) TOPICSTR('closed') SUB(DISABLED)")
    manager.ok("DEFINE TOPIC(FLEETING) TOPICSTR('fleeting') DURSUB(NO)")
    queues = set(manager.itself.queues)
    manager.refused(f"DEFINE SUB(S) {parameters}", number)
    manager.refused("DISPLAY SUB(S)", "AMQ8147E")
    assert set(manager.itself.queues) == queues, "nothing is left behind"


def test_a_subscription_is_replaced_altered_and_copied(manager: Manager) -> None:
    for name in ("A", "B"):
        manager.ok(f"DEFINE QLOCAL({name})")
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(A) USERDATA('u') DESTCORL('0102')")
    manager.refused("DEFINE SUB(S) TOPICSTR('a') DEST(A)", "AMQ8150E")
    assert manager.ok("ALTER SUB(S) DEST(B)").message.startswith("AMQ8095I")
    manager.publish("a", b"1")
    assert len(manager.get_all("B")) == 1 and manager.attribute("QLOCAL(A)", "CURDEPTH") == 0
    assert manager.attribute("SUB(S)", "USERDATA") == "u"
    assert str(manager.attribute("SUB(S)", "DESTCORL")) == "0102".ljust(48, "0")
    manager.refused("ALTER SUB(S) TOPICSTR('b')", "AMQ8405I")
    manager.refused("ALTER SUB(S) SUBLEVEL(2)", "AMQ8405I")
    manager.ok("DEFINE SUB(C) LIKE(S) TOPICSTR('c')")
    assert manager.attribute("SUB(C)", "USERDATA") == "u"
    assert manager.attribute("SUB(C)", "DEST") == "B"
    manager.ok("DEFINE SUB(S) TOPICSTR('z') DEST(A) REPLACE")
    manager.publish("a", b"2")
    manager.publish("z", b"3")
    assert manager.attribute("SUB(S)", "USERDATA") == ""
    assert [data[-1:] for data in manager.get_all("A")] == [b"3"]


def test_expiry_counts_from_the_definition_and_is_kept_by_alter(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(A) EXPIRY(36000)")
    manager.restart()
    assert 35_000 < int(manager.attribute("SUB(S)", "EXPIRY")) <= 36_000
    manager.ok("ALTER SUB(S) USERDATA('u')")
    assert 35_000 < int(manager.attribute("SUB(S)", "EXPIRY")) <= 36_000
    manager.ok("ALTER SUB(S) EXPIRY(UNLIMITED)")
    assert manager.attribute("SUB(S)", "EXPIRY") == "UNLIMITED"


def test_a_managed_subscription_has_a_queue_of_its_own(manager: Manager) -> None:
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DESTCLAS(MANAGED)")
    manager.publish("a", b"1")
    manager.restart()
    name = str(manager.attribute("SUB(S)", "DEST"))
    assert name.startswith("SYSTEM.MANAGED.DURABLE.")
    assert manager.attribute("SUB(S)", "DESTCLAS") == "MANAGED"
    assert manager.attribute(f"QLOCAL({name})", "CURDEPTH") == 1
    manager.refused("ALTER SUB(S) DEST(X)", "AMQ8469E")
    manager.ok("DEFINE QLOCAL(A)")
    manager.refused("DEFINE SUB(S) TOPICSTR('a') DEST(A) REPLACE", "AMQ8469E")
    manager.refused("DEFINE SUB(COPY) LIKE(S)", "AMQ8405I")
    manager.ok("DEFINE SUB(COPY) LIKE(S) DESTCLAS(MANAGED)")
    assert manager.attribute("SUB(COPY)", "DEST") != name
    handle = manager.connection.open(MQOD(ObjectName=name), cmqc.MQOO_INPUT_SHARED)
    manager.refused("DELETE SUB(S)", "AMQ8469E")
    manager.connection.close(handle)
    manager.ok("ALTER SUB(S) USERDATA('u')")
    assert manager.attribute("SUB(S)", "DEST") == name
    manager.ok("DELETE SUB(S)")
    manager.refused(f"DISPLAY QLOCAL({name})", "AMQ8147E")
    manager.restart()
    manager.refused(f"DISPLAY QLOCAL({name})", "AMQ8147E")


def test_a_queue_that_a_subscription_puts_to_is_in_use(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE QALIAS(ALIAS) TARGET(A)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(ALIAS)")
    assert "subscription S" in manager.refused("DELETE QLOCAL(A) PURGE", "AMQ8148E")
    manager.refused("DELETE QALIAS(ALIAS)", "AMQ8148E")
    manager.ok("DELETE SUB(S)")
    manager.ok("DELETE QALIAS(ALIAS)")
    manager.ok("DELETE QLOCAL(A)")


def test_subscriptions_follow_an_alias_that_changes(manager: Manager) -> None:
    for name in ("A", "B"):
        manager.ok(f"DEFINE QLOCAL({name})")
    manager.ok("DEFINE QALIAS(ALIAS) TARGET(A)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(ALIAS)")
    manager.publish("a", b"1")
    manager.ok("ALTER QALIAS(ALIAS) TARGET(B)")
    manager.publish("a", b"2")
    assert [data[-1:] for data in manager.get_all("A")] == [b"1"]
    assert [data[-1:] for data in manager.get_all("B")] == [b"2"]


def test_the_subscription_of_a_client_goes_through_defxmitq(manager: Manager) -> None:
    prepare(manager.itself)
    manager.ok("DEFINE SUB('c1:a') TOPICSTR('a') DEST(SYSTEM.MQTT.PUBLICATION.QUEUE) DESTQMGR('c1')")
    manager.publish("a")
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE)", "CURDEPTH") == 1
    manager.ok("DEFINE QLOCAL(OTHER) USAGE(XMITQ)")
    manager.ok("ALTER QMGR DEFXMITQ(OTHER)")
    manager.publish("a")
    assert manager.attribute("QLOCAL(OTHER)", "CURDEPTH") == 1
    manager.refused("DELETE QLOCAL(OTHER) PURGE", "AMQ8148E")
    manager.ok("DEFINE QLOCAL('c1') USAGE(XMITQ)")
    manager.publish("a")
    assert manager.attribute("QLOCAL('c1')", "CURDEPTH") == 1, "a transmission queue of the client's name comes first"


def test_the_subscription_of_an_application_can_be_altered_and_deleted(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    handle = manager.connection.open(MQOD(ObjectName="A"), cmqc.MQOO_INPUT_SHARED)
    sd = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE, ObjectString="a", SubName="app", SubUserData="1")
    manager.connection.subscribe(sd, handle)
    assert manager.attribute("SUB('app')", "DURABLE") == "NO"
    assert manager.attribute("SUB('app')", "SUBTYPE") == "API"
    manager.ok("ALTER SUB('app') USERDATA('2')")
    assert manager.attribute("SUB('app')", "USERDATA") == "2"
    assert manager.attribute("SUB('app')", "DURABLE") == "NO"
    assert manager.attribute("SUB('app')", "SUBTYPE") == "API"
    manager.ok("DELETE SUB('app')")
    manager.refused("DISPLAY SUB('app')", "AMQ8147E")


# The queue manager


def test_alter_qmgr_outlives_a_restart_and_keeps_the_configured_rest(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    assert manager.ok("ALTER QMGR DEADQ('dlq') MAXHANDS(7)").message.startswith("AMQ8005I")
    manager.restart()
    manager.ok("ALTER QMGR DESCR('later')")
    manager.close()
    queue_manager = QueueManager("MQB1", tmp_path, max_message_length=1_000_000)
    try:
        assert queue_manager.attributes["DEADQ"] == "dlq"
        assert queue_manager.attributes["MAXHANDS"] == 7
        assert queue_manager.attributes["DESCR"] == "later"
        assert queue_manager.attributes["MAXMSGL"] == 1_000_000, "the configuration's, as MAXMSGL was not altered"
    finally:
        queue_manager.close()


@pytest.mark.parametrize("setting", ["MAXMSGL(1)", "MAXHANDS(x)", "BANANA(1)", "DEADQ"])
def test_alter_qmgr_refuses_what_cannot_be(manager: Manager, setting: str) -> None:
    before = dict(manager.itself.attributes)
    manager.refused(f"ALTER QMGR DESCR('x') {setting}", "AMQ8405I")
    assert manager.itself.attributes == before


def test_ping(manager: Manager) -> None:
    assert "MQB1" in manager.ok("PING QMGR").message


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("SET AUTHREC PROFILE('A') OBJTYPE(QUEUE) PRINCIPAL('app') AUTHADD(PUT,GET)", "AMQ8862I"),
        ("SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('nobody')", "AMQ8877I"),
        ("REFRESH SECURITY(*)", "AMQ8560I"),
    ],
)
def test_security_of_ibm_mq_is_accepted_and_the_answer_says_that_it_does_nothing(
    manager: Manager, command: str, number: str
) -> None:
    message = manager.ok(command).message
    assert message.startswith(number) and "without effect" in message


@pytest.mark.parametrize(
    "command",
    [
        "DEFINE CHANNEL(C) CHLTYPE(SVRCONN)",
        "DEFINE LISTENER(L) TRPTYPE(TCP)",
        "DEFINE SERVICE(S)",
        "START LISTENER(L)",
        "CLEAR TOPIC(T)",
        "PING CHANNEL(C)",
        "ALTER QUEUE(Q)",
    ],
)
def test_commands_that_the_embedded_queue_manager_does_not_have(manager: Manager, command: str) -> None:
    verb, noun = command.split("(")[0].split()
    assert f"{verb} {noun}" in manager.refused(command, "AMQ8405I")


# Scripts


def test_the_bridges_script_defines_what_it_needs(manager: Manager) -> None:
    prepare(manager.itself)
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE)", "USAGE") == "XMITQ"
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.PERSISTENT.STATE)", "DEFPSIST") == "YES"
    assert manager.attribute("QMGR", "DEFXMITQ") == "SYSTEM.MQTT.TRANSMIT.QUEUE"
    assert manager.attribute("QMGR", "DEADQ") == "SYSTEM.DEAD.LETTER.QUEUE"
    assert manager.attribute("QMGR", "MAXMSGL") == 4_194_304, "the configuration's"
    assert "SYSTEM.DEAD.LETTER.QUEUE" in manager.itself.queues


def test_preparing_again_leaves_what_an_administrator_altered(manager: Manager) -> None:
    prepare(manager.itself)
    manager.ok("DEFINE QLOCAL(MY.DLQ)")
    manager.ok("ALTER QMGR DEADQ(MY.DLQ)")
    manager.ok("ALTER QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE) MAXDEPTH(5)")
    manager.restart()
    prepare(manager.itself)
    assert manager.attribute("QMGR", "DEADQ") == "MY.DLQ"
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE)", "MAXDEPTH") == 5


def test_the_bridges_script_is_fit_for_runmqsc() -> None:
    """What IBM asks of portable scripts, and what this reader allows beyond runmqsc."""
    for line in bridge_script().split("\n"):
        assert len(line) <= 72 and line.isascii() and line == line.rstrip()
        assert line.startswith("*") or not line.lstrip().startswith("*")
        assert line.startswith("*") or (line.count("(") == line.count(")") and ";" not in line)
        assert not line.endswith("+") or line.endswith(" +")


def test_a_script_stops_at_the_line_that_fails(manager: Manager) -> None:
    with pytest.raises(ScriptFailed, match=r"own\.mqsc, line 3: AMQ8405I"):
        run_script(
            manager.itself, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(A)\nDEFINE QLOCAL(B) X\nDEFINE QLOCAL(C)", "own.mqsc"
        )
    assert "A" in manager.itself.queues and "C" not in manager.itself.queues
