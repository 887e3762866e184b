"""Sessions and an exactly-once mapping of release 0.2.0, with exchanges that are not finished: this version finishes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bridge.mqtt.packets import Pubcomp, Publish, Pubrec, Pubrel
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

#: It takes the sources of 0.2.0 from the history.
pytestmark = [pytest.mark.slow, pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")]
CONFIG = """
channels: [{name: A, address: 127.0.0.1, port: 0}]
mappings:
  once:
    from: {mqtt: "plant/+/temp"}
    to: {queue: FULL}
    guarantee: exactly-once
"""
QUEUE = "DEFINE QLOCAL(FULL) PUT(DISABLED)"


class OldBridge:
    """A bridge of release 0.2.0 on the queue manager of a bridge that is not started."""

    def __init__(self, bridge: BridgeProcess, release: Path) -> None:
        options: list[str | Path] = ["--config", bridge.config or "", *bridge.data_options()]
        env = dict(os.environ)
        if isinstance(bridge, RemoteBridgeProcess):
            bridge.queue_manager.start()
            packages = bridge.env["PYTHONPATH"].rpartition(":")[2]
            env |= {**bridge.env, "MQI_STANDIN": bridge.queue_manager.place, "PYTHONPATH": f"{release}:{packages}"}
        self.process = LineProcess([sys.executable, "-m", "bridge", "run", *options], cwd=release, env=env)
        line = self.process.line_where(lambda line: "listens for MQTT clients" in line)
        self.port = int(line.rpartition(":")[2])
        if isinstance(bridge, RemoteBridgeProcess):
            bridge.mqsc(QUEUE)
        else:
            command = [sys.executable, "-m", "bridge", "mqsc", "run", "-", *options]
            subprocess.run(command, cwd=release, input=QUEUE, text=True, check=True)


@pytest.fixture
def old_bridge(release: Path) -> Iterator[Callable[[BridgeProcess], OldBridge]]:
    with ExitStack() as stack:

        def start(bridge: BridgeProcess) -> OldBridge:
            old = OldBridge(bridge, release)
            stack.enter_context(old.process)
            return old

        yield start


@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_exchanges_of_qos_2_are_finished(
    new_bridge: Callable[..., BridgeProcess],
    old_bridge: Callable[[BridgeProcess], OldBridge],
    ended: str,
) -> None:
    bridge = new_bridge(config=CONFIG)
    old = old_bridge(bridge)
    client = RawClient.connected(old.port, "device", clean=False)
    client.subscribe(("commands/#", 2))
    publisher = RawClient.connected(old.port, "publisher", clean=False)
    for number in (1, 2, 3):
        publisher.publish("commands/a", b"%d" % number, 2)
    first, second, third = (client.expect(Publish) for _ in range(3))
    client.publish("plant/1/temp", b"10", 2)
    # The first command is accepted, the others are not. A publication of the device is not released.
    client.send(Pubrec(first.packet_id))
    assert client.expect(Pubrel).packet_id == first.packet_id
    client.send(Publish("plant/1/temp", b"20", 2, False, False, 100))
    client.expect(Pubrec)
    client.vanish()
    publisher.disconnect()
    if ended == "stopped":
        assert old.process.terminate() == 0
    else:
        old.process.kill()

    bridge.start()
    client = RawClient(bridge.port, "device", clean=False)
    assert client.connect().session_present
    packets = [client.receive() for _ in range(3)]
    sent_again = [packet for packet in packets if isinstance(packet, Publish)]
    assert [(packet.packet_id, packet.dup) for packet in sent_again] == [
        (second.packet_id, True),
        (third.packet_id, True),
    ]
    assert [packet.packet_id for packet in packets if isinstance(packet, Pubrel)] == [first.packet_id]
    client.send(Publish("plant/1/temp", b"20", 2, False, True, 100))
    client.expect(Pubrec)
    client.send(Pubrel(100))
    client.expect(Pubcomp)
    # What the mapping of 0.2.0 could not put was waiting.
    assert bridge.messages("FULL") == []
    bridge.mqsc("ALTER QLOCAL(FULL) PUT(ENABLED)")
    # The depth includes messages that are not committed yet.
    eventually(lambda: [message["body"] for message in bridge.messages("FULL")], ["10", "20"])
    bridge.restart()
    assert [message["body"] for message in bridge.messages("FULL")] == ["10", "20"]
