"""The commands in the remedies of problems work: they are executed as printed, and the problem ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.remedies import execute

pytestmark = [pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")]
NewBridge = Callable[..., BridgeProcess]

MAPPING = "mappings: {orders: {from: {mqtt: orders}, to: {queue: FULL}}}\n"


class Incident:
    """A bridge with problems, and the commands of their remedies."""

    def __init__(self, bridge: BridgeProcess) -> None:
        self._bridge = bridge
        self._administrator = Administrator(bridge)

    def problems(self) -> dict[str, Any]:
        """Return the problems, by kind and subject."""
        status = json.loads(self._administrator.run("status", "--json").stdout)
        return {f"{problem['kind']} {problem['subject']}".rstrip(): problem for problem in status["problems"]}

    def wait_for(self, *keys: str) -> dict[str, Any]:
        """Wait until exactly these problems exist."""
        until(lambda: self.problems().keys() == set(keys), lambda: str(self.problems()))
        return self.problems()

    def execute(self, problem: Any, which: str = "", **names: str) -> None:
        execute(self._bridge, problem, which, **names)


@pytest.fixture
def incident(new_bridge: NewBridge, tmp_path: Path) -> Callable[[str], tuple[BridgeProcess, Incident]]:
    def make(config: str) -> tuple[BridgeProcess, Incident]:
        bridge = new_bridge(config=f"control_socket: {tmp_path}/control\n{config}").start()
        return bridge, Incident(bridge)

    return make


Make = Callable[[str], tuple[BridgeProcess, Incident]]


@pytest.mark.parametrize(
    ("attribute", "word"),
    [("MAXDEPTH(2)", "MAXDEPTH(4)"), ("PUT(DISABLED)", "PUT(ENABLED)")],
    ids=["full", "inhibited"],
)
def test_a_queue_that_rejects_messages(incident: Make, attribute: str, word: str) -> None:
    bridge, at = incident(MAPPING)
    bridge.mqsc(f"DEFINE QLOCAL(FULL) {attribute}")
    with RawClient.connected(bridge.port, "shop") as shop:
        for _ in range(3):
            shop.publish("orders", b"order", 1)
    until(lambda: "; messages of mapping orders wait for it" in str(at.problems()), lambda: str(at.problems()))
    problems = at.wait_for("queue FULL")
    assert word in problems["queue FULL"]["remedy"]
    at.execute(problems["queue FULL"])
    at.wait_for()
    bridge.wait_for_depth("FULL", 3)
    assert bridge.stop() == 0


@pytest.mark.slow
def test_a_silent_durable_client(incident: Make) -> None:
    """Its session is purged, and its dead letters are deleted."""
    bridge, at = incident("limits: {waiting_bytes: 20000, dead_letter_bytes: 5000}\n")
    with RawClient.connected(bridge.port, "silent", clean=False) as silent:
        silent.subscribe(("plant/#", 1))
        with RawClient.connected(bridge.port, "sensor") as sensor, RawClient.connected(bridge.port, "screen") as screen:
            screen.subscribe(("plant/#", 1))
            for number in range(60):
                sensor.publish("plant/1", b"%04d" % number + bytes(996), 1)
                assert screen.take().payload.startswith(b"%04d" % number)
            dead = "dead_letters SYSTEM.DEAD.LETTER.QUEUE"
            problems = at.wait_for("limit waiting_full", dead)
            description = problems["limit waiting_full"]["what"]
            assert all(
                word in description for word in ("'silent'", "limits.waiting_bytes (", "limits.dead_letter_bytes (")
            )
            at.execute(problems["limit waiting_full"])
            assert "silent" not in Administrator(bridge).clients()
            at.execute(problems[dead], "delete")
            at.wait_for()  # a limit is a problem for a minute after the last message
            sensor.publish("plant/1", b"after", 1)
            assert screen.take().payload == b"after"
        with pytest.raises(ConnectionClosed):
            while True:
                silent.receive()
    assert bridge.stop() == 0


def test_a_paused_mapping_and_a_stopped_channel(incident: Make) -> None:
    bridge, at = incident("channels: [{name: A, port: 0}, {name: B, port: 0}]\n" + MAPPING)
    administrator = Administrator(bridge)
    bridge.mqsc("DEFINE QLOCAL(FULL)")
    at.wait_for()
    administrator.does("mapping", "pause", "orders")
    administrator.does("channel", "stop", "B")
    problems = at.wait_for("mapping orders", "channel B")
    for problem in problems.values():
        at.execute(problem)
    at.wait_for()
    assert bridge.stop() == 0


def two_clients(port: int) -> bool:
    with RawClient.connected(port, "first", clean=False), RawClient(port, "second", clean=False) as second:
        return not second.connect().return_code


def two_subscriptions(port: int) -> bool:
    with RawClient.connected(port, "c") as client:
        return client.subscribe(("a", 1), ("b", 1)) == (1, 1)


def large_packet(port: int) -> bool:
    with RawClient.connected(port, "c") as client:
        try:
            client.publish("t", b"x" * 1_000, 1)
        except ConnectionClosed:
            return False
        return True


#: Limits, with the part of the file that has {} for their value, and the action that they reject.
RAISED: dict[str, tuple[str, Callable[[int], bool]]] = {
    "sessions": ("limits: {{sessions: {}}}\n", two_clients),
    "subscriptions_total": ("limits: {{subscriptions_total: {}}}\n", two_subscriptions),
    "max_clients": ("channels: [{{name: A, port: 0, max_clients: {}}}]\n", two_clients),
    "max_packet_size": ("channels: [{{name: A, port: 0, max_packet_size: {}}}]\n", large_packet),
}


@pytest.mark.parametrize("limit", RAISED)
def test_a_raised_limit(incident: Make, limit: str) -> None:
    config, accepted = RAISED[limit]
    low = 64 if limit == "max_packet_size" else 1
    bridge, at = incident(config.format(low))
    assert not accepted(bridge.port)
    (problem,) = at.wait_for(f"limit {limit}").values()
    assert f"{limit} is {low}" in problem["what"] or f"{limit} of channel A is {low}" in problem["what"]
    assert bridge.config is not None
    text = bridge.config.read_text()
    bridge.config.write_text(text.replace(f"{limit}: {low}", f"{limit}: {1_000 * low}"))
    at.execute(problem, "reload")
    assert accepted(bridge.port)
    assert bridge.stop() == 0


def test_sessions_that_were_disconnected_for_long_are_purged(incident: Make) -> None:
    bridge, at = incident("limits: {sessions: 2}\n")
    assert two_clients(bridge.port)  # they stay disconnected
    with RawClient(bridge.port, "third", clean=False) as third:
        assert third.connect().return_code == 3
    (problem,) = at.wait_for("limit sessions").values()
    at.execute(problem, "purge", **{"90d": "0s"})
    with RawClient(bridge.port, "third", clean=False) as third:
        assert third.connect().return_code == 0
    assert Administrator(bridge).clients().keys() == {"third"}
    assert bridge.stop() == 0
