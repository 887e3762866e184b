"""A message longer than MAXMSGL of the bridge's channel: it is a problem until a command removes it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.mosquitto import Subscriber
from tests.helpers.patience import until
from tests.helpers.remote_bridge import RemoteBridgeProcess

XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"


@pytest.mark.usefixtures("environments")
def test_a_command_removes_an_unreadable_message(tmp_path: Path) -> None:
    control = f"control_socket: {tmp_path}/control.sock\n"
    bridge = RemoteBridgeProcess(tmp_path / "data", settings="  probe_interval: 100 ms\n", config=control)
    bridge.queue_manager.start()
    bridge.env["MQI_STANDIN"] = bridge.queue_manager.place
    channel = b"DEFINE CHANNEL(DEV.APP.SVRCONN) CHLTYPE(SVRCONN) TRPTYPE(TCP) MAXMSGL(100000)"
    assert bridge.run_mq("run", "-", stdin=channel).returncode == 0
    bridge.start()

    def mqbridge(*words: str) -> subprocess.CompletedProcess[str]:
        command = [MQBRIDGE, *words, "--config", str(bridge.config)]
        return subprocess.run(command, env=bridge.env, capture_output=True, text=True, check=False)

    with Subscriber(bridge.port, "news/#", qos=1, options=("-i", "dev1", "-c")) as subscriber:
        bridge.mq("put", "news/1", "x" * 200_000, "--to", "dev1")
        until(lambda: "MQB4211E" in bridge.log)
        bridge.mq("put", "news/2", "after it", "--to", "dev1")
        assert subscriber.message()["payload"] == "after it"
    assert "1 messages on SYSTEM.MQTT.TRANSMIT.QUEUE cannot be read" in mqbridge("status").stdout
    (msg_id,) = re.findall(r"message ([0-9A-F]{48}) \(\d+ bytes\) for client 'dev1'", bridge.log)
    removed = mqbridge("mq", "remove", XMITQ, msg_id, "--yes")
    assert removed.returncode == 0, removed.stderr
    assert re.fullmatch(rf"removed message {msg_id} \(200\d+ bytes for client dev1\) from {XMITQ}\n", removed.stdout)
    until(lambda: f"MQB4215I message {msg_id}" in bridge.log)
    assert "cannot be read" not in mqbridge("status").stdout
    again = mqbridge("mq", "remove", XMITQ, msg_id, "--yes")
    assert again.returncode == 3 and "MQRC_NO_MSG_AVAILABLE" in again.stderr
    assert bridge.stop() == 0
    bridge.discard()
