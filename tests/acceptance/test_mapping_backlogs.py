"""Mappings that read topics and whose destination rejects messages: publications wait up to a limit, and none is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.mqtt.packets import Puback, Publish
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import ConnectionClosed, RawClient

# On IBM MQ, MAXDEPTH of the managed queue limits the backlog.
pytestmark = [pytest.mark.queue_managers("embedded")]
CONFIG = """
control_socket: {}/control
limits: {{waiting_bytes: 40000}}
mappings:
  orders: {{from: {{mqtt: "orders/#"}}, to: {{queue: FULL}}}}
"""


def publish(client: RawClient, number: int, qos: int = 1) -> list[ReasonCode]:
    """Publish messages of 1,000 bytes. Return the reason codes of their PUBACKs."""
    codes: list[ReasonCode] = []
    for _ in range(number):
        packet_id = client.next_packet_id() if qos else 0
        client.send(Publish("orders/1", bytes(1_000), qos, False, False, packet_id))
        if qos:
            codes.append(client.wait_for(Puback).reason_code)
    return codes


def publish_until_rejected(client: RawClient) -> int:
    """Publish messages until one is rejected. Return how many were accepted."""
    accepted = 0
    while publish(client, 1) == [ReasonCode.SUCCESS]:
        accepted += 1
    return accepted


def depth(bridge: BridgeProcess) -> int:
    return int(bridge.mq_json("display", "QLOCAL(FULL)", "CURDEPTH")[0]["CURDEPTH"])


def problems(bridge: BridgeProcess) -> dict[str, Any]:
    status = json.loads(Administrator(bridge).run("status", "--json").stdout)
    return {f"{problem['kind']} {problem['subject']}": problem for problem in status["problems"]}


@pytest.fixture
def bridge(new_bridge: Callable[..., BridgeProcess], tmp_path: Path) -> BridgeProcess:
    bridge = new_bridge(config=CONFIG.format(tmp_path)).start()
    bridge.mqsc("DEFINE QLOCAL(FULL) MAXDEPTH(2)")
    # Before its first start, the mapping has no subscription.
    until(lambda: Administrator(bridge).json("mapping", "list")[0]["state"] == "running")
    return bridge


def test_a_fast_publisher_is_rejected_and_others_are_not(bridge: BridgeProcess) -> None:
    """All accepted publications arrive when the queue accepts messages again, in spite of a kill meanwhile."""
    with (
        RawClient.connected(bridge.port, "fast", level=5) as fast,
        RawClient.connected(bridge.port, "slow", level=5) as slow,
        RawClient.connected(bridge.port, "screen") as screen,
    ):
        screen.subscribe(("orders/#", 0))
        # Messages that the mapping has got, and will back out, do not count.
        accepted = publish_until_rejected(fast)
        assert accepted > 20
        assert publish(slow, 3) == 3 * [ReasonCode.SUCCESS]
        accepted += 3
        for _ in range(accepted):
            screen.take()
        # A subscriber gets QoS 0 publications that do not reach the mapping.
        publish(fast, 1, qos=0)
        assert screen.take().topic == "orders/1"
        until(lambda: "limit mapping_backlog" in problems(bridge), lambda: str(problems(bridge)))
        description = problems(bridge)["limit mapping_backlog"]["what"]
        assert "too many wait for mapping 'orders'" in description
    bridge.kill()
    bridge.start()
    with RawClient.connected(bridge.port, "fast", level=5) as fast:
        accepted += publish_until_rejected(fast)
        bridge.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(5000)")
        until(lambda: depth(bridge) == accepted, lambda: (depth(bridge), accepted, bridge.log))
        assert publish(fast, 1) == [ReasonCode.SUCCESS]
    until(lambda: depth(bridge) == accepted + 1, lambda: depth(bridge))
    assert bridge.stop() == 0


def test_before_mqtt_5_a_publisher_is_disconnected(bridge: BridgeProcess) -> None:
    """The publisher cannot be told in any other way. It publishes again when the mapping continues."""
    with RawClient.connected(bridge.port, "fast") as fast, pytest.raises(ConnectionClosed):
        publish(fast, 1_000)
    bridge.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(5000)")
    until(lambda: depth(bridge) > 20, lambda: depth(bridge))
    with RawClient.connected(bridge.port, "fast") as fast:
        until(lambda: not publish(fast, 1)[0], lambda: "rejected")


def test_a_higher_limit(bridge: BridgeProcess) -> None:
    with RawClient.connected(bridge.port, "fast", level=5) as fast:
        publish_until_rejected(fast)
        assert bridge.config is not None
        bridge.config.write_text(bridge.config.read_text().replace("waiting_bytes: 40000", "waiting_bytes: 400000"))
        Administrator(bridge).does("reload")
        assert publish(fast, 60) == 60 * [ReasonCode.SUCCESS]
