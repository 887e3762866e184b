"""A bridge whose memory use is above the watermark: with a real process, once in a memory cgroup that would kill it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.mqtt.packets import Puback, Publish
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.memory_cgroup import MemoryCgroup, memory_cgroup
from tests.helpers.patience import until
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.scrape import admin_url, ask

MIB = 1024 * 1024
#: Bytes of a payload, and number of PUBLISH packets in flight.
SIZE, WINDOW = 20_000, 10
QUOTA_EXCEEDED = 0x97
#: No other limit is reached before the watermark.
CONFIG = "limits: {{waiting_bytes: 8 GiB, waiting_total: 8 GiB, memory_watermark: {}}}\nadmin: {{port: 0}}\n"


def resident(bridge: BridgeProcess) -> int:
    assert bridge.process is not None
    line = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{bridge.process.pid}/status").read_text())
    assert line is not None
    return int(line[1]) * 1024


class Site:
    """A disconnected client, a publisher of numbered messages, and the results of its publications."""

    def __init__(self, bridge: BridgeProcess) -> None:
        self.bridge = bridge
        self._next = 0
        self.acknowledged: list[int] = []
        with self.away() as client:
            client.subscribe(("w/#", 1))
            client.disconnect()

    def away(self) -> RawClient:
        return RawClient.connected(self.bridge.port, "away", clean=False)

    def publish(self, rejections: int) -> Counter[int]:
        """Publish until this number of messages was rejected. Return reason codes and their numbers."""
        codes: Counter[int] = Counter()
        numbers: dict[int, int] = {}
        with RawClient.connected(self.bridge.port, "sender", level=5) as client:
            while codes[QUOTA_EXCEEDED] < rejections:
                while len(numbers) < WINDOW:
                    packet_id = self._next % 60_000 + 1
                    numbers[packet_id] = self._next
                    client.send(Publish("w/t", b"%08d" % self._next + bytes(SIZE - 8), 1, False, False, packet_id))
                    self._next += 1
                answer = client.expect(Puback)
                codes[answer.reason_code] += 1
                number = numbers.pop(answer.packet_id)
                if not answer.reason_code:
                    self.acknowledged.append(number)
            while numbers:
                answer = client.expect(Puback)
                number = numbers.pop(answer.packet_id)
                if not answer.reason_code:
                    self.acknowledged.append(number)
            client.disconnect()
        return codes

    def publish_one(self) -> int:
        """Publish a message, and record it if it is acknowledged. Return the reason code."""
        with RawClient.connected(self.bridge.port, "sender", level=5) as client:
            client.send(Publish("w/t", b"%08d" % self._next + bytes(SIZE - 8), 1, False, False, 1))
            code = int(client.expect(Puback).reason_code)
            client.disconnect()
        if not code:
            self.acknowledged.append(self._next)
        self._next += 1
        return code

    def fetch(self) -> list[int]:
        """Return the numbers of the messages that wait for the client, in the order of their delivery."""
        received: list[int] = []
        with self.away() as client:
            while len(received) < len(self.acknowledged):
                publication = client.expect(Publish)
                received.append(int(bytes(publication.payload[:8])))
                client.send(Puback(publication.packet_id))
            client.disconnect()
        return received

    def accepts(self) -> bool:
        return self.publish_one() == 0


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str, MemoryCgroup | None], BridgeProcess]]:
    bridges: list[BridgeProcess] = []

    def start(watermark: str, cgroup: MemoryCgroup | None = None) -> BridgeProcess:
        bridge = BridgeProcess(tmp_path / "data", config=CONFIG.format(watermark))
        bridges.append(bridge)
        if cgroup is not None:
            bridge.wrapper = cgroup.wrapper
        return bridge.start()

    yield start
    for bridge in bridges:
        bridge.discard()
        assert "Traceback" not in bridge.log, bridge.log


def test_above_the_watermark_waiting_messages_are_delivered_and_then_new_ones_are_accepted_again(
    started: Callable[..., BridgeProcess],
) -> None:
    bridge = started("null")
    site, administrator, url = Site(bridge), Administrator(bridge), admin_url(bridge.announced)
    assert bridge.config is not None
    bridge.config.write_text(CONFIG.format(resident(bridge) + 20 * MIB))
    administrator.does("reload")
    assert site.publish(1)[0] > 0
    # All publishers get the reason.
    assert bridge.log.count("MQB0008E") == 1 and "locked out" not in bridge.log
    assert "PROBLEM (critical): new messages are rejected: memory use is " in administrator.run("status").stdout
    status, text = ask(f"{url}/readyz")
    assert (status, text[:29]) == (200, "ok\nnew messages are rejected:")  # clients with a backlog must connect
    metrics = ask(f"{url}/metrics")[1]
    assert "mqbridge_memory_above_watermark 1.0" in metrics
    assert re.search(r'mqbridge_publications_refused_total\{.*reason="MQRC_STORAGE_NOT_AVAILABLE"\} [1-9]', metrics)
    # Clients of MQTT 3.1.1 are disconnected, QoS 0 is dropped, and applications get the reason code.
    with RawClient.connected(bridge.port, "old") as old, pytest.raises(ConnectionClosed):
        old.publish("w/t", bytes(SIZE), 1)
    with RawClient.connected(bridge.port, "fleeting") as fleeting:
        fleeting.send(Publish("w/t", bytes(SIZE), 0, False, False))
        fleeting.ping()
    refused = bridge.run_mq("put", "SYSTEM.DEAD.LETTER.QUEUE", "x")
    assert b"MQRC_STORAGE_NOT_AVAILABLE" in refused.stderr
    assert site.fetch() == site.acknowledged
    # Without a publication or a restart. Memory that is not returned to the system may still be near the watermark, which is
    # another problem.
    until(lambda: "new messages are rejected:" not in ask(f"{url}/readyz")[1])
    assert bridge.log.count("MQB0009I") == 1
    site.acknowledged.clear()
    assert site.publish_one() == 0
    assert site.fetch() == site.acknowledged
    assert bridge.stop() == 0


@pytest.mark.slow
def test_a_backlog_that_does_not_fit_into_memory_does_not_get_the_bridge_killed(
    started: Callable[..., BridgeProcess],
) -> None:
    """With the default watermark, in 400 MB, including restarts. Acknowledged messages are delivered."""
    with memory_cgroup(400 * MIB) as cgroup:
        bridge = started("70%", cgroup)
        try:
            site = Site(bridge)
            assert site.publish(500)[0] > 5_000
            for _ in range(3):
                bridge.kill()  # as the kernel would
                bridge.start()
                site.publish(500)
            bridge.restart()
            site.publish(500)
            assert site.fetch() == site.acknowledged
            site.acknowledged.clear()
            until(site.accepts)
            # All of the memory can be used again, more than once.
            assert site.publish(500)[0] > 5_000
            assert site.fetch() == site.acknowledged
            assert bridge.running and cgroup.kills == 0
            assert bridge.stop() == 0
        finally:
            bridge.discard()
