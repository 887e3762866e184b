"""RabbitMQ, whose MQTT plug-in supports QoS 1: with MQTT 5 it announces this, with MQTT 3.1.1 it answers QoS 2 with
PUBACK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from tests.acceptance.test_mapping_guarantees import DEAD_LETTERS, on_queue, put
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until, until_at_last
from tests.helpers.rabbitmq import RabbitMQ, installed, with_mqtt_5

# Its start takes some seconds.
pytestmark = [pytest.mark.slow, pytest.mark.queue_managers("embedded", "ibmmq")]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((installed, "3.1.1"), id="3.1.1"),
        pytest.param((with_mqtt_5, "3.1.1"), id="3.1.1, a release with MQTT 5"),
        pytest.param((with_mqtt_5, "5"), id="5"),
    ],
)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RabbitMQ, str]]:
    """A broker, and the version of MQTT for it."""
    root, version = request.param
    rabbitmq = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), root())
    try:
        yield rabbitmq.start(), version
    finally:
        rabbitmq.stop()


@pytest.fixture
def rabbitmq(broker: tuple[RabbitMQ, str]) -> RabbitMQ:
    return broker[0]


@pytest.fixture
def version(broker: tuple[RabbitMQ, str]) -> str:
    return broker[1]


def config_of(broker: RabbitMQ, version: str, guarantee: str, directory: Path) -> str:
    # RabbitMQ converts a dot to a topic level separator, and vice versa.
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
    """200 messages to the broker and back: none is lost, duplicated or dead-lettered."""
    bridge = new_bridge(config=config_of(rabbitmq, version, "at-least-once", tmp_path)).start()
    bridge.mqsc("DEFINE QLOCAL('in')\nDEFINE QLOCAL('out')")
    until_at_last(lambda: bridge.log.count("MQB6001I") >= 2, lambda: bridge.log)
    put(bridge, ["out"], range(200))
    until_at_last(lambda: len(on_queue(bridge, "in")) >= 200, lambda: bridge.log)
    assert [number for _, number in on_queue(bridge, "in")] == list(range(200))
    assert bridge.messages(DEAD_LETTERS) == bridge.messages("out") == []
    until(lambda: bridge.log.count("MQB6008W") == (version == "3.1.1"), lambda: bridge.log)
    assert "MQB6003W" not in bridge.log


def test_exactly_once_stops(
    new_bridge: Callable[..., BridgeProcess], rabbitmq: RabbitMQ, version: str, tmp_path: Path
) -> None:
    bridge = new_bridge(config=config_of(rabbitmq, version, "exactly-once", tmp_path)).start()
    bridge.mqsc("DEFINE QLOCAL('in')\nDEFINE QLOCAL('out')")
    until_at_last(lambda: bridge.log.count("MQB6001I") >= 2, lambda: bridge.log)
    put(bridge, ["out"], range(10))
    socket = ["--config", str(bridge.config)]

    def status() -> str:
        return CliRunner().invoke(program, ["mapping", "show", "out", *socket]).output

    why = {
        "3.1.1": "does not support exactly-once: PUBACK for message id",
        "5": "supports QoS 1 at most; guarantee exactly-once needs 2",
    }
    until_at_last(lambda: why[version] in status(), status)
    assert "mapping out: stuck" in status()
    test = CliRunner().invoke(program, ["link", "test", "rabbit", *socket])
    assert "the broker supports QoS 1 at most" in test.output
    tried = "QoS 2: the broker answered a publication with PUBACK. It supports QoS 1 at most"
    assert (tried in test.output) == (version == "3.1.1")
    # They stay on the queue, and are sent at least once after the guarantee is changed.
    assert bridge.config is not None
    bridge.config.write_text(config_of(rabbitmq, version, "at-least-once", tmp_path))
    assert CliRunner().invoke(program, ["reload", *socket]).exit_code == 0
    until_at_last(lambda: {number for _, number in on_queue(bridge, "in")} == {*range(10)}, status)
    until_at_last(lambda: "mapping out: running" in status() and "kept until" not in status(), status)
    put(bridge, ["out"], range(10, 20))
    until_at_last(lambda: {number for _, number in on_queue(bridge, "in")} == {*range(20)}, status)
    assert bridge.messages(DEAD_LETTERS) == []
