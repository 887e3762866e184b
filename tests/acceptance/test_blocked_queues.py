"""A mapping with a full destination queue, in a bridge process that is killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

MAPPINGS = """
mappings:
  plant: {from: {mqtt: "t/{queue}"}, to: {queue: "{queue}"}, guarantee: exactly-once}
"""


def status(bridge: BridgeProcess) -> Any:
    (mapping,) = Administrator(bridge).json("mapping", "list")
    return mapping


def publish(bridge: BridgeProcess, *numbers: int) -> None:
    client = RawClient.connected(bridge.port, "sender")
    for number in numbers:
        for queue in ("FULL", "OUT"):
            client.publish(f"t/{queue}", b"%d" % number, 1)  # returns after its PUBACK


def waiting(bridge: BridgeProcess) -> list[tuple[str, int]]:
    return [(queue["queue"], queue["waiting"]) for queue in status(bridge).get("blocked", [])]


def test_a_kill_while_a_queue_is_full_loses_and_duplicates_nothing(
    new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Path
) -> None:
    bridge = new_bridge(config=f"control_socket: {tmp_path / 'control'}\n" + MAPPINGS).start()
    bridge.mqsc("DEFINE QLOCAL(FULL) MAXDEPTH(1)\nDEFINE QLOCAL(OUT)")
    until(lambda: status(bridge).get("state") == "running", lambda: status(bridge))
    publish(bridge, *range(5))
    until(lambda: waiting(bridge) == [("FULL", 4)], lambda: status(bridge))
    bridge.kill()
    bridge.start()
    until(lambda: waiting(bridge) == [("FULL", 4)], lambda: status(bridge))
    publish(bridge, *range(5, 10))
    until(lambda: waiting(bridge) == [("FULL", 9)], lambda: status(bridge))
    bridge.wait_for_depth("OUT", 10)
    table = Administrator(bridge).does("mapping", "list")
    assert "queue FULL accepts no messages: MQRC_Q_FULL (2053); 9 messages wait" in table
    bridge.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)")
    bridge.wait_for_depth("FULL", 10)
    until(lambda: status(bridge).get("state") == "running", lambda: status(bridge))
    for queue in ("FULL", "OUT"):
        assert [message["body"] for message in bridge.messages(queue)] == [str(number) for number in range(10)]
