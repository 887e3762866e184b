"""RabbitMQ, whose MQTT plug-in acknowledges QoS 2 with PUBACK, and grants subscriptions QoS 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from tests.acceptance.test_mapping_guarantees import DEAD_LETTERS, on_queue, put
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until_at_last
from tests.helpers.rabbitmq import RabbitMQ

# Its start takes some seconds.
pytestmark = [pytest.mark.slow, pytest.mark.queue_managers("embedded", "ibmmq")]


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    broker = RabbitMQ(tmp_path_factory.mktemp("rabbitmq")).start()
    yield broker
    broker.stop()


@pytest.fixture(params=["3.1.1", "5"])
def version(request: pytest.FixtureRequest) -> str:
    if request.param == "5" and RabbitMQ.version() < (3, 13):
        pytest.skip("RabbitMQ supports MQTT 5 since 3.13")
    return str(request.param)


def config_of(broker: RabbitMQ, version: str, guarantee: str, directory: Path) -> str:
    # RabbitMQ makes a dot of a topic level separator, and the other way round.
    name = f"{directory.name}-{version.replace('.', '')}"
    qos = "attributes: {qos: 2}, " if guarantee == "at-least-once" else ""
    return f"""\
control_socket: {directory / "control"}
links:
  rabbit: {{host: 127.0.0.1, port: {broker.port}, version: "{version}", client_id: "{name}-{{mapping}}"}}
mappings:
  in: {{from: {{mqtt: "{name}/#", link: rabbit}}, to: {{queue: in}}}}
  out: {{from: {{queue: out}}, to: {{mqtt: "{name}/a", link: rabbit}}, {qos}guarantee: {guarantee}}}
"""


def test_at_least_once(
    new_bridge: Callable[..., BridgeProcess], rabbitmq: RabbitMQ, version: str, tmp_path: Path
) -> None:
    """200 messages to the broker and back: none is lost, doubled or dead-lettered."""
    bridge = new_bridge(config=config_of(rabbitmq, version, "at-least-once", tmp_path)).start()
    bridge.mqsc("DEFINE QLOCAL('in')\nDEFINE QLOCAL('out')")
    until_at_last(lambda: bridge.log.count("MQB6001I") >= 2, lambda: bridge.log)
    put(bridge, ["out"], range(200))
    until_at_last(lambda: len(on_queue(bridge, "in")) >= 200, lambda: bridge.log)
    assert [number for _, number in on_queue(bridge, "in")] == list(range(200))
    assert bridge.messages(DEAD_LETTERS) == bridge.messages("out") == []
    assert bridge.log.count("MQB6008W") == 1
    assert "MQB6003W" not in bridge.log


def test_exactly_once_stops(
    new_bridge: Callable[..., BridgeProcess], rabbitmq: RabbitMQ, version: str, tmp_path: Path
) -> None:
    bridge = new_bridge(config=config_of(rabbitmq, version, "exactly-once", tmp_path)).start()
    bridge.mqsc("DEFINE QLOCAL('in')\nDEFINE QLOCAL('out')")
    until_at_last(lambda: bridge.log.count("MQB6001I") >= 2, lambda: bridge.log)
    put(bridge, ["out"], range(10))
    until_at_last(lambda: "MQB6008W" in bridge.log, lambda: bridge.log)
    socket = ["--config", str(bridge.config)]

    def status() -> str:
        return CliRunner().invoke(program, ["mapping", "show", "out", *socket]).output

    until_at_last(lambda: "does not support exactly-once: PUBACK for message id" in status(), status)
    assert "mapping out: stuck" in status()
    test = CliRunner().invoke(program, ["link", "test", "rabbit", *socket])
    assert "QoS 2: the broker answered a publication with PUBACK. It supports QoS 1 at most" in test.output
    # They stay on the queue, and are sent at least once when the guarantee says so.
    assert bridge.config is not None
    bridge.config.write_text(config_of(rabbitmq, version, "at-least-once", tmp_path))
    assert CliRunner().invoke(program, ["reload", *socket]).exit_code == 0
    until_at_last(lambda: {number for _, number in on_queue(bridge, "in")} == {*range(10)}, lambda: bridge.log)
    assert bridge.messages(DEAD_LETTERS) == []
