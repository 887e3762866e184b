"""Long messages to and from IBM MQ: the channel of the bridge limits them (MAXMSGL)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.mqtt.packets import Publish
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess

CHANNEL = "DEFINE CHANNEL(DEV.APP.SVRCONN) CHLTYPE(SVRCONN) TRPTYPE(TCP) MAXMSGL({})\n"


def test_messages_longer_than_the_channel_allows_are_rejected_or_skipped_alone(
    remote: Callable[..., RemoteBridgeProcess], tmp_path: Path
) -> None:
    manager = QueueManagerProcess(tmp_path / "manager", CHANNEL.format(100_000))
    bridge = remote(queue_manager=manager).start()
    with RawClient.connected(bridge.port, "device", clean=False) as device:
        device.subscribe(("t", 1))
        device.send(Publish("t", bytes(150_000), 1, False, False, 1))
        device.expect_closed()
    assert "MQRC_DATA_LENGTH_ERROR" in bridge.log
    with RawClient.connected(bridge.port, "device", clean=False) as device:
        bridge.mq("put", "--to", "device", "commands", stdin=b"x" * 150_000)
        device.publish("t", b"after", 1)
        assert device.take().payload == b"after"
    until(lambda: "MQB4211E" in bridge.log)
    assert bridge.stop() == 0
    bridge.mqsc("ALTER CHANNEL(DEV.APP.SVRCONN) CHLTYPE(SVRCONN) MAXMSGL(200000)\n")
    bridge.start()
    with RawClient.connected(bridge.port, "device", clean=False) as device:
        assert device.take().payload == b"x" * 150_000


@pytest.mark.slow
def test_a_message_of_nearly_100_mib_reaches_a_client(
    remote: Callable[..., RemoteBridgeProcess], tmp_path: Path
) -> None:
    script = CHANNEL.format(104_857_600) + "ALTER QMGR MAXMSGL(104857600)\n"
    manager = QueueManagerProcess(tmp_path / "manager", script)
    channels = "channels: [{name: PLAIN, port: 0, max_packet_size: 100 MiB}]\n"
    bridge = remote(queue_manager=manager, config=channels).start()
    body = bytes(100 * 1_048_576 - 10_000)
    with RawClient.connected(bridge.port, "device") as device:
        device.subscribe(("t", 1))
        device.publish("t", body, 1)
        assert len(device.take().payload) == len(body)
