"""DEFINE, ALTER and DELETE SUB."""

from __future__ import annotations

import pytest

from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.subscription import matches_characters
from bridge.mq.mqi import MQOD, MQSD
from bridge.wire import cmqc
from tests.helpers.embedded_manager import Manager
from tests.ibm_standin.mqi.connection import StandInConnection


def test_an_administrative_subscription_delivers_and_survives_a_restart(manager: Manager) -> None:
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


def test_a_topic_object_provides_the_beginning_of_the_topic_string(manager: Manager) -> None:
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
        ("TOPICSTR('closed') DEST(A)", "AMQ8101E"),
        ("TOPICSTR('fleeting') DEST(A)", "AMQ8101E"),
    ],
)
def test_invalid_subscriptions_are_rejected(manager: Manager, parameters: str, number: str) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE TOPIC(CLOSED) TOPICSTR('closed') SUB(DISABLED)")
    manager.ok("DEFINE TOPIC(FLEETING) TOPICSTR('fleeting') DURSUB(NO)")
    queues = set(manager.itself.objects.queues)
    manager.refused(f"DEFINE SUB(S) {parameters}", number)
    manager.refused("DISPLAY SUB(S)", "AMQ8147E")
    assert set(manager.itself.objects.queues) == queues, "nothing is left behind"


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


def test_expiry_starts_at_the_definition_and_is_kept_by_alter(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(A) EXPIRY(36000)")
    manager.restart()
    assert 35_000 < int(manager.attribute("SUB(S)", "EXPIRY")) <= 36_000
    manager.ok("ALTER SUB(S) USERDATA('u')")
    assert 35_000 < int(manager.attribute("SUB(S)", "EXPIRY")) <= 36_000
    manager.ok("ALTER SUB(S) EXPIRY(UNLIMITED)")
    assert manager.attribute("SUB(S)", "EXPIRY") == "UNLIMITED"


def test_a_managed_subscription_has_its_own_queue(manager: Manager) -> None:
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


def test_the_destination_queue_of_a_subscription_is_in_use(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE QALIAS(ALIAS) TARGET(A)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(ALIAS)")
    assert "subscription S" in manager.refused("DELETE QLOCAL(A) PURGE", "AMQ8148E")
    manager.refused("DELETE QALIAS(ALIAS)", "AMQ8148E")
    manager.ok("DELETE SUB(S)")
    manager.ok("DELETE QALIAS(ALIAS)")
    manager.ok("DELETE QLOCAL(A)")


def test_subscriptions_follow_a_changed_alias(manager: Manager) -> None:
    for name in ("A", "B"):
        manager.ok(f"DEFINE QLOCAL({name})")
    manager.ok("DEFINE QALIAS(ALIAS) TARGET(A)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(ALIAS)")
    manager.publish("a", b"1")
    manager.ok("ALTER QALIAS(ALIAS) TARGET(B)")
    manager.publish("a", b"2")
    assert [data[-1:] for data in manager.get_all("A")] == [b"1"]
    assert [data[-1:] for data in manager.get_all("B")] == [b"2"]


def test_the_subscription_of_a_client_uses_defxmitq(manager: Manager) -> None:
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
    connection = StandInConnection(manager.itself)
    handle = connection.open(MQOD(ObjectName="A"), cmqc.MQOO_INPUT_SHARED)
    sd = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE, ObjectString="a", SubName="app", SubUserData="1")
    connection.subscribe(sd, handle)
    assert manager.attribute("SUB('app')", "DURABLE") == "NO"
    assert manager.attribute("SUB('app')", "SUBTYPE") == "API"
    manager.ok("ALTER SUB('app') USERDATA('2')")
    assert manager.attribute("SUB('app')", "USERDATA") == "2"
    assert manager.attribute("SUB('app')", "DURABLE") == "NO"
    assert manager.attribute("SUB('app')", "SUBTYPE") == "API"
    manager.ok("DELETE SUB('app')")
    manager.refused("DISPLAY SUB('app')", "AMQ8147E")


def test_a_subscription_survives_the_deletion_of_its_queue(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a') DEST(A)")
    manager.ok("DELETE QLOCAL(A)")
    manager.ok("DEFINE QLOCAL(DEAD)")
    manager.ok("ALTER QMGR DEADQ(DEAD)")
    manager.publish("a", b"nowhere")
    assert [data[-7:] for data in manager.get_all("DEAD")] == [b"nowhere"]
    manager.restart()
    assert manager.attribute("SUB(S)", "DEST") == "A"
    manager.publish("a", b"nowhere")
    manager.ok("DEFINE QLOCAL(A)")
    manager.publish("a", b"there")
    assert [data[-5:] for data in manager.get_all("A")] == [b"there"]


@pytest.mark.parametrize(
    ("topic_filter", "names", "not_those"),
    [
        ("price/*/fru?t", ("price/a/fruit", "price/a/b/frust", "price//fruit"), ("price/fruit", "price/a/frut")),
        ("*", ("a", "a/b", ""), ("$SYS/x",)),
        ("a/+/#", ("a/+/#",), ("a/b/c", "a/b")),
        ("50%%/%*/*", ("50%/*/x", "50%/*/"), ("50%%/*/x", "50%/y/x")),
        ("a%b*", ("a%b", "a%bc"), ("ab",)),
    ],
)
def test_subscriptions_may_have_character_based_wildcards(
    topic_filter: str, names: tuple[str, ...], not_those: tuple[str, ...]
) -> None:
    assert all(matches_characters(topic_filter, topic) for topic in names)
    assert not any(matches_characters(topic_filter, topic) for topic in not_those)


def test_wildcard_schemes(manager: Manager) -> None:
    for name in ("BY.TOPIC", "BY.CHAR"):
        manager.ok(f"DEFINE QLOCAL({name})")
    manager.ok("DEFINE TOPIC(SECRET) TOPICSTR('a/secret') WILDCARD(BLOCK)")
    manager.publish("a/kept", b"retained", retain=True)
    manager.ok("DEFINE SUB(T) TOPICSTR('a/*') DEST(BY.TOPIC) WSCHEMA(TOPIC)")
    manager.ok("DEFINE SUB(C) TOPICSTR('a/*') DEST(BY.CHAR) WSCHEMA(CHAR)")
    manager.restart()
    assert [manager.attribute(f"SUB({name})", "WSCHEMA") for name in "TC"] == ["TOPIC", "CHAR"]
    for topic in ("a/b", "a/*", "a/b/c", "a/secret/x"):
        manager.publish(topic, topic.encode())
    assert [data.rpartition(b">")[2].strip() for data in manager.get_all("BY.TOPIC")] == [b"a/*"]
    bodies = [data.rpartition(b">")[2].strip() for data in manager.get_all("BY.CHAR")]
    assert bodies == [b"retained", b"a/b", b"a/*", b"a/b/c"]
