"""Commands in general: when they take effect, commands for the queue manager, and unsupported commands."""

from __future__ import annotations

import threading

import pytest

from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queuemanager import QueueManager
from tests.helpers.embedded_manager import Manager
from tests.helpers.patience import PATIENCE


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
def test_definitions_take_effect_with_their_unit_of_work(manager: Manager, command: str) -> None:
    """A unit of work that cannot be written changes nothing."""
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
        manager.itself.recovery_log.submit(unit)
    assert ended.wait(PATIENCE)
    assert [response.objects for response in manager.connection.command(everything)] != before


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


def test_alter_qmgr_survives_a_restart_and_keeps_configured_attributes(manager: Manager) -> None:
    assert manager.ok("ALTER QMGR DEADQ('dlq') MAXHANDS(7)").message.startswith("AMQ8005I")
    manager.restart()
    manager.ok("ALTER QMGR DESCR('later')")
    manager.close()
    queue_manager = QueueManager("MQB1", manager.itself.data_directory, max_message_length=1_000_000)
    try:
        assert queue_manager.objects.attributes["DEADQ"] == "dlq"
        assert queue_manager.objects.attributes["MAXHANDS"] == 7
        assert queue_manager.objects.attributes["DESCR"] == "later"
        assert queue_manager.objects.attributes["MAXMSGL"] == 1_000_000, (
            "the configuration's, as MAXMSGL was not altered"
        )
    finally:
        queue_manager.close()


@pytest.mark.parametrize("setting", ["MAXMSGL(1)", "MAXHANDS(x)", "BANANA(1)", "DEADQ"])
def test_alter_qmgr_rejects_invalid_values(manager: Manager, setting: str) -> None:
    before = dict(manager.itself.objects.attributes)
    manager.refused(f"ALTER QMGR DESCR('x') {setting}", "AMQ8405I")
    assert manager.itself.objects.attributes == before


def test_ping_is_answered(manager: Manager) -> None:
    assert "MQB1" in manager.ok("PING QMGR").message


def test_refresh_security_is_accepted(manager: Manager) -> None:
    assert manager.ok("REFRESH SECURITY(*)").message.startswith("AMQ8560I")


@pytest.mark.parametrize(
    "command",
    [
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
