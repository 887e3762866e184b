"""MQSC scripts at the start of a queue manager."""

from __future__ import annotations

import pytest

from bridge.mq.embedded.mqsc.commands import ScriptFailed, bridge_script, prepare, run_script
from tests.helpers.embedded_manager import Manager


def test_the_script_of_the_bridge_defines_its_objects(manager: Manager) -> None:
    prepare(manager.itself)
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE)", "USAGE") == "XMITQ"
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.PERSISTENT.STATE)", "DEFPSIST") == "YES"
    assert manager.attribute("QMGR", "DEFXMITQ") == "SYSTEM.MQTT.TRANSMIT.QUEUE"
    assert manager.attribute("QMGR", "DEADQ") == "SYSTEM.DEAD.LETTER.QUEUE"
    assert manager.attribute("QMGR", "MAXMSGL") == 4_194_304, "the configuration's"
    assert "SYSTEM.DEAD.LETTER.QUEUE" in manager.itself.objects.queues


def test_running_the_script_again_keeps_changes_of_an_administrator(manager: Manager) -> None:
    prepare(manager.itself)
    manager.ok("DEFINE QLOCAL(MY.DLQ)")
    manager.ok("ALTER QMGR DEADQ(MY.DLQ)")
    manager.ok("ALTER QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE) MAXDEPTH(5)")
    manager.restart()
    prepare(manager.itself)
    assert manager.attribute("QMGR", "DEADQ") == "MY.DLQ"
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE)", "MAXDEPTH") == 5


def test_the_script_of_the_bridge_is_valid_for_runmqsc() -> None:
    """The test checks IBM's rules for portable scripts, and extensions of this parser to runmqsc."""
    for line in bridge_script().split("\n"):
        assert len(line) <= 72 and line.isascii() and line == line.rstrip()
        assert line.startswith("*") or not line.lstrip().startswith("*")
        assert line.startswith("*") or (line.count("(") == line.count(")") and ";" not in line)
        assert not line.endswith("+") or line.endswith(" +")


def test_a_script_stops_at_the_failing_line(manager: Manager) -> None:
    with pytest.raises(ScriptFailed, match=r"own\.mqsc, line 3: AMQ8405I"):
        run_script(
            manager.itself, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(A)\nDEFINE QLOCAL(B) X\nDEFINE QLOCAL(C)", "own.mqsc"
        )
    assert "A" in manager.itself.objects.queues and "C" not in manager.itself.objects.queues
