"""Commands for local queues that have messages or are open: rejections, and effects on the messages."""

from __future__ import annotations

import pytest

from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.embedded_manager import Manager


def test_alter_takes_effect_on_the_queue(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("ALTER QLOCAL(A) MAXDEPTH(1)")
    manager.put("A")
    with pytest.raises(Exception, match="MQRC_Q_FULL"):
        manager.put("A")
    manager.ok("ALTER QLOCAL(A) MAXDEPTH(5000) PUT(DISABLED)")
    with pytest.raises(Exception, match="MQRC_PUT_INHIBITED"):
        manager.put("A")


def test_deleting_a_queue_with_messages_requires_purge(manager: Manager) -> None:
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


def test_clear_deletes_messages_permanently(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.put("A", persistent=True)
    manager.put("A", persistent=False)
    assert manager.ok("CLEAR QLOCAL(A)").message.startswith("AMQ8022I")
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 0
    manager.restart()
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 0


def test_a_queue_with_uncommitted_messages_cannot_be_cleared(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    od = MQOD(ObjectName="A")
    manager.connection.put1(od, Message(MQMD(Persistence=0), b"1"), cmqc.MQPMO_SYNCPOINT)
    manager.refused("CLEAR QLOCAL(A)", "AMQ8148E")
    manager.refused("DELETE QLOCAL(A) PURGE", "AMQ8148E")
    manager.connection.commit()
    assert manager.get_all("A") == [b"1"]


def test_a_rejected_purge_deletes_no_message(manager: Manager) -> None:
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


def test_force_invalidates_all_open_handles(manager: Manager) -> None:
    """IBM MQ does so only for some attributes."""
    manager.ok("DEFINE QLOCAL(A)")
    handle = manager.connection.open(MQOD(ObjectName="A"), cmqc.MQOO_INPUT_SHARED)
    manager.ok("ALTER QLOCAL(A) FORCE")
    with pytest.raises(MQError, match="2033"):
        manager.connection.get(handle, GetOptions())
    manager.ok("ALTER QLOCAL(A) DESCR('another') FORCE")
    with pytest.raises(MQError, match="2041"):
        manager.connection.get(handle, GetOptions())
    manager.connection.close(handle)


def test_usage_can_be_changed_on_an_empty_queue_only(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.put("A")
    manager.refused("ALTER QLOCAL(A) USAGE(XMITQ)", "AMQ8143E")
    manager.refused("DEFINE QLOCAL(A) USAGE(XMITQ) REPLACE", "AMQ8143E")
    manager.ok("CLEAR QLOCAL(A)")
    manager.ok("ALTER QLOCAL(A) USAGE(XMITQ)")


@pytest.mark.parametrize("name", ["SYSTEM.RETAINED.PUB.QUEUE", "SYSTEM.MQTT.PERSISTENT.STATE"])
def test_the_queues_of_the_queue_manager_are_in_use(manager: Manager, name: str) -> None:
    prepare(manager.itself)
    manager.refused(f"CLEAR QLOCAL({name})", "AMQ8148E")
    manager.refused(f"DELETE QLOCAL({name}) PURGE", "AMQ8148E")


def test_move_keeps_order_identifiers_and_persistence(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE QLOCAL(B)")
    for persistent, body in ((True, b"1"), (False, b"2"), (True, b"3")):
        md = MQMD(Persistence=int(persistent), CorrelId=body.ljust(24, b"\0"))
        manager.connection.put1(MQOD(ObjectName="A"), Message(md, body))
    handle = manager.connection.open(MQOD(ObjectName="A"), cmqc.MQOO_BROWSE)
    first = manager.connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))
    manager.connection.close(handle)
    assert manager.ok("MOVE QLOCAL(A) TOQLOCAL(B)").message.startswith(
        "CSQ9022I: MOVE QLOCAL normal completion: 3 messages"
    )
    assert (manager.attribute("QLOCAL(A)", "CURDEPTH"), manager.attribute("QLOCAL(B)", "CURDEPTH")) == (0, 3)
    handle = manager.connection.open(MQOD(ObjectName="B"), cmqc.MQOO_BROWSE)
    moved = manager.connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))
    manager.connection.close(handle)
    assert (moved.md, moved.data) == (first.md, b"1")
    manager.restart()
    assert manager.get_all("B") == [b"1", b"3"]
    assert manager.attribute("QLOCAL(A)", "CURDEPTH") == 0


def test_move_to_a_queue_with_messages_needs_type_add(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE QLOCAL(B)")
    manager.put("A")
    manager.put("B")
    manager.refused("MOVE QLOCAL(A) TOQLOCAL(B)", "AMQ8143E")
    manager.ok("MOVE QLOCAL(A) TOQLOCAL(B) TYPE(ADD)")
    assert manager.attribute("QLOCAL(B)", "CURDEPTH") == 2


def test_a_failed_move_changes_nothing(manager: Manager) -> None:
    manager.ok("DEFINE QLOCAL(A)")
    manager.ok("DEFINE QLOCAL(B) MAXDEPTH(1)")
    manager.put("A")
    manager.put("A")
    assert "MQRC_Q_FULL" in manager.refused("MOVE QLOCAL(A) TOQLOCAL(B)", "AMQ8101E")
    assert (manager.attribute("QLOCAL(A)", "CURDEPTH"), manager.attribute("QLOCAL(B)", "CURDEPTH")) == (2, 0)
    manager.refused("MOVE QLOCAL(A) TOQLOCAL(A) TYPE(ADD)", "AMQ8148E")
    manager.refused("MOVE QLOCAL(A) TOQLOCAL(C)", "AMQ8147E")
    manager.refused("MOVE QLOCAL(A)", "AMQ8405I")
    manager.refused("MOVE QLOCAL(A) TOQLOCAL(B) TYPE(ALL)", "AMQ8405I")
    handle = manager.connection.open(MQOD(ObjectName="B"), cmqc.MQOO_OUTPUT)
    manager.refused("MOVE QLOCAL(A) TOQLOCAL(B)", "AMQ8148E")
    manager.connection.close(handle)
