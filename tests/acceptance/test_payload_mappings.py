"""Mappings with payload steps in a bridge process: elements of arrays select queues, one of them full, over kills and a
reload.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

MAPPINGS = """
mappings:
  split:
    from: {mqtt: batches}
    to: {queue: "{@.to}"}
    split: $.parts
    payload: {transform: {n: "{@.n}", from: "{$.device}"}}
  changes:
    from: {mqtt: "states/{device}"}
    to: {queue: STATES}
    changes: {per: "{device}", of: "{$.on}"}
"""


def status(bridge: BridgeProcess, name: str) -> Any:
    return next(mapping for mapping in Administrator(bridge).json("mapping", "list") if mapping["name"] == name)


def bodies(bridge: BridgeProcess, queue: str) -> list[str]:
    return [message["body"] for message in bridge.messages(queue)]


def batch(*parts: tuple[int, str]) -> bytes:
    listed = ",".join(f'{{"n":{number},"to":"{queue}"}}' for number, queue in parts)
    return f'{{"device":"d","parts":[{listed}]}}'.encode()


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
def test_a_full_queue_kills_and_a_reload_lose_and_duplicate_no_part(
    new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Path
) -> None:
    bridge = new_bridge(config=f"control_socket: {tmp_path / 'control'}\n" + MAPPINGS).start()
    bridge.mqsc("DEFINE QLOCAL(FULL) MAXDEPTH(1)\nDEFINE QLOCAL(OUT)\nDEFINE QLOCAL(STATES)")
    until(lambda: status(bridge, "split")["state"] == "running", lambda: status(bridge, "split"))
    client = RawClient.connected(bridge.port, "d")
    client.publish("batches", batch((1, "OUT"), (2, "FULL")), 1)
    bridge.wait_for_depth("OUT", 1)
    client.publish("batches", batch((3, "OUT"), (4, "FULL"), (5, "OUT")), 1)
    client.publish("batches", batch((6, "OUT"), (7, "NO.SUCH.QUEUE")), 1)
    client.publish("batches", batch((8, "OUT")), 1)
    for on in (b'{"on":1}', b'{"on":1}', b'{"on":0}'):
        client.publish("states/d", on, 1)
    # Other mappings continue while the queue is full.
    bridge.wait_for_depth("STATES", 2)
    until(lambda: status(bridge, "split")["state"] == "retrying", lambda: status(bridge, "split"))
    bridge.kill()
    bridge.start()
    until(lambda: status(bridge, "split")["state"] == "retrying", lambda: status(bridge, "split"))
    assert bodies(bridge, "OUT") == ['{"n":1,"from":"d"}']
    # Between a failure and its repetition, the configuration changes: the new document has another member.
    assert bridge.config is not None
    bridge.config.write_text(bridge.config.read_text().replace('from: "{$.device}"', 'id: "{$.device}"'))
    Administrator(bridge).does("reload")
    until(lambda: status(bridge, "split")["state"] == "retrying", lambda: status(bridge, "split"))
    bridge.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)")
    bridge.wait_for_depth("FULL", 2)
    until(lambda: status(bridge, "split")["dead_lettered"] == 1, lambda: status(bridge, "split"))
    bridge.wait_for_depth("OUT", 4)
    assert bodies(bridge, "OUT")[1:] == ['{"n":3,"id":"d"}', '{"n":5,"id":"d"}', '{"n":8,"id":"d"}']
    assert bodies(bridge, "FULL") == ['{"n":2,"from":"d"}', '{"n":4,"id":"d"}']
    assert "MQRC_UNKNOWN_OBJECT_NAME" in status(bridge, "split")["last_error"]
    assert bodies(bridge, "STATES") == ['{"on":1}', '{"on":0}']
    # The restart has forgotten the states, so the next one is reported in any case.
    client = RawClient.connected(bridge.port, "d")
    client.publish("states/d", b'{"on":0}', 1)
    client.publish("states/d", b'{"on":0}', 1)
    bridge.wait_for_depth("STATES", 3)
    until(lambda: status(bridge, "changes")["left_out"] == {"unchanged": 1}, lambda: status(bridge, "changes"))
