"""MQSC scripts at the start of a queue manager."""

from __future__ import annotations

import pytest

from bridge.mq.embedded.mqsc.commands import ScriptFailed, bridge_script, prepare, run_script
from tests.helpers.embedded_manager import Manager


def test_the_bridges_script_defines_what_it_needs(manager: Manager) -> None:
    prepare(manager.itself)
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE)", "USAGE") == "XMITQ"
    assert manager.attribute("QLOCAL(SYSTEM.MQTT.PERSISTENT.STATE)", "DEFPSIST") == "YES"
    assert manager.attribute("QMGR", "DEFXMITQ") == "SYSTEM.MQTT.TRANSMIT.QUEUE"
    assert manager.attribute("QMGR", "DEADQ") == "SYSTEM.DEAD.LETTER.QUEUE"
    assert manager.attribute("QMGR", "MAXMSGL") == 4_194_304, "the configuration's"
    assert "SYSTEM.DEAD.LETTER.QUEUE" in manager.itself.objects.queues


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
    assert "A" in manager.itself.objects.queues and "C" not in manager.itself.objects.queues
