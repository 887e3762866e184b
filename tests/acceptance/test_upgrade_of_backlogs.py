"""A data directory of release 0.2.0 with large backlogs: the limits do not apply to existing messages."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from bridge.mqtt.packets import Puback, Publish
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.line_process import LineProcess
from tests.helpers.raw_client import RawClient

#: It writes 200 MB with 0.2.0, and reads them twice.
pytestmark = pytest.mark.slow
OWNERS, MESSAGES, SIZE, WINDOW = 4, 2_500, 20_000, 50
#: Much less than each backlog.
LIMITS = "limits: {waiting_bytes: 1 MiB, waiting_total: 2 MiB, dead_letter_bytes: 1 MiB, dead_letter_total: 1 MiB}\n"


def owner(port: int, number: int) -> RawClient:
    return RawClient.connected(port, f"away-{number}", clean=False)


def fill(port: int) -> None:
    for number in range(OWNERS):
        with owner(port, number) as client:
            client.subscribe(("w/#", 1))
            client.disconnect()
    with RawClient.connected(port, "publisher") as publisher:
        answered = 0
        for number in range(MESSAGES):
            publisher.send(Publish("w/t", (b"%08d" % number).ljust(SIZE), 1, False, False, number + 1))
            while number - answered >= WINDOW:
                publisher.expect(Puback)
                answered += 1
        while answered < MESSAGES:
            publisher.expect(Puback)
            answered += 1
        publisher.disconnect()


def depth(bridge: BridgeProcess, queue: str) -> int:
    return int(bridge.mq_json("display", f"QLOCAL('{queue}')", "CURDEPTH")[0]["CURDEPTH"])


def test_a_start_removes_no_message(release: Path, tmp_path: Path) -> None:
    """Neither the first start, nor one after a restore. Clients receive everything, and then new messages."""
    data_directory = tmp_path / "data"
    config = tmp_path / "old.yaml"
    config.write_text("channels: [{name: A, address: 127.0.0.1, port: 0}]\n")
    old = LineProcess(
        [sys.executable, "-m", "bridge", "run", "--config", config, "--data-dir", data_directory], cwd=release
    )
    port = int(old.line_where(lambda line: "listens for MQTT clients" in line).rpartition(":")[2])
    fill(port)
    assert old.terminate() == 0
    bridge = BridgeProcess(data_directory, config=LIMITS)
    try:
        bridge.start()
        assert depth(bridge, "SYSTEM.MQTT.TRANSMIT.QUEUE") == OWNERS * MESSAGES
        backup = tmp_path / "backup.db"
        Administrator(bridge).does("data", "backup", str(backup))
        assert bridge.stop() == 0
        shutil.rmtree(data_directory)
        Administrator(bridge).does("data", "restore", str(backup))
        bridge.start()
        assert depth(bridge, "SYSTEM.MQTT.TRANSMIT.QUEUE") == OWNERS * MESSAGES
        assert depth(bridge, "SYSTEM.DEAD.LETTER.QUEUE") == 0
        assert "MQB241" not in bridge.log and "MQB2401W" not in bridge.log
        for number in range(OWNERS):
            client = RawClient(bridge.port, f"away-{number}", clean=False)
            assert client.connect().session_present
            received = []
            for _ in range(MESSAGES):
                message = client.expect(Publish)
                received.append(int(bytes(message.payload[:8])))
                client.send(Puback(message.packet_id))
            assert received == [*range(MESSAGES)]
            client.publish(f"other/{number}", b"", 1)
            client.disconnect()
        assert bridge.stop() == 0
    finally:
        bridge.discard()
    assert "Traceback" not in bridge.log
