"""A queue manager whose DEFXMITQ routes elsewhere: queue manager aliases lead to the clients."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.remote_bridge import RemoteBridgeProcess

DEV1 = ("-i", "dev1", "-c")
XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"


def mqbridge(bridge: RemoteBridgeProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [MQBRIDGE, *words, "--config", str(bridge.config)]
    return subprocess.run(command, env=bridge.env, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("environments")
def test_clients_with_an_alias_get_messages_and_the_default_route_stays(tmp_path: Path) -> None:
    bridge = RemoteBridgeProcess(tmp_path / "data")
    host = bridge.queue_manager.start()
    bridge.env["MQI_STANDIN"] = host.place

    def run(script: str) -> None:
        process = bridge.run_mq("run", "-", stdin=script.encode())
        assert process.returncode == 0, process.stdout + process.stderr

    run("DEFINE QLOCAL(HUB) USAGE(XMITQ)\nALTER QMGR DEFXMITQ(HUB)\n")
    lacking = mqbridge(bridge, "check", "--connect")
    assert lacking.returncode == 1 and "(DEFXMITQ) is HUB, so messages for MQTT clients do not reach" in lacking.stderr
    script = mqbridge(bridge, "mqsc-script", "--connect")
    assert "DEFXMITQ of queue manager MQB1 is HUB, which routes messages" in script.stderr
    bridge.run_mq("run", "-", stdin=script.stdout.encode())  # existing objects are reported, and stay
    checked = mqbridge(bridge, "check", "--connect")
    assert checked.returncode == 0, checked.stderr
    run(f"DEFINE QREMOTE('dev1') RQMNAME('dev1') XMITQ('{XMITQ}')\n")
    bridge.start()
    with Subscriber(bridge.port, "plant/#", qos=1, options=DEV1):
        pass
    publish(bridge.port, "plant/1", "while away", qos=1)
    with Subscriber(bridge.port, "plant/#", qos=1, options=DEV1) as subscriber:
        assert subscriber.message()["payload"] == "while away"
        bridge.mq("put", "commands/1", "direct", "--to", "dev1")
        assert subscriber.message()["payload"] == "direct"
    # Other queue managers are reached as before, and so are clients without an alias.
    bridge.mq("put", "Q", "for QM9", "--to", "QM9")
    bridge.mq("put", "commands/1", "lost", "--to", "dev3")
    assert [message["md"]["Format"].strip() for message in bridge.messages("HUB")] == ["MQXMIT", "MQXMIT"]
    assert bridge.stop() == 0
    bridge.discard()
