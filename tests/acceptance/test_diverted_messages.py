"""Publications that the queue manager acknowledges and moves to its dead-letter queue: the bridge reports them without
metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"


# tests/unit/service/test_diverted_messages.py has the embedded queue manager.
@pytest.mark.queue_managers("ibmmq", slow="embedded")
def test_an_inhibited_transmission_queue_is_reported(
    new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Path
) -> None:
    config = f"control_socket: {tmp_path}/control\nchannels: [{{name: PLAIN, port: 0}}]\n"
    bridge = new_bridge(config=config).start()
    with RawClient.connected(bridge.port, "away", clean=False) as client:
        client.subscribe(("t", 1))
        client.disconnect()
    bridge.mq("run", "-", stdin=f"ALTER QLOCAL({TRANSMISSION_QUEUE}) PUT(DISABLED)\n".encode())
    with RawClient.connected(bridge.port, "publisher") as client:
        client.publish("t", b"acknowledged", 1)
        client.disconnect()
    until(lambda: "accepts no messages: PUT(DISABLED)" in bridge.log, lambda: bridge.log)
    if queue_manager != "embedded":  # which logs each message that it moves itself
        until(lambda: "were put by the queue manager or by applications" in bridge.log, lambda: bridge.log)
    result = Administrator(bridge).run("status")
    assert result.exit_code == 1
    assert f"transmission queue {TRANSMISSION_QUEUE} accepts no messages: PUT(DISABLED)" in result.output
