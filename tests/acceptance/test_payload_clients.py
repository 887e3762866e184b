"""Schemas of channels and lookup tables with other programs: paho-mqtt and mosquitto, on each queue manager."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import paho.mqtt.client as paho
import pytest
import yaml

from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work, bridge_on
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.paho_clients import PahoClient
from tests.helpers.patience import PATIENCE, until
from tests.helpers.remote_bridge import RemoteBridgeProcess

pytestmark = pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")

SCHEMA = {"required": ["id", "v"], "properties": {"v": {"type": "number", "maximum": 100}}}
VIOLATION = "the payload does not match reading.json: $.v: 500 is greater than the maximum of 100"
DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"


def config_of(directory: Path) -> str:
    lookup = {"site": "{devices[$.id].site}", "value": {"expr": "payload.v * double(devices[payload.id].factor)"}}
    return yaml.safe_dump(
        {
            "channels": [{"name": "OPEN", "port": 0, "schemas": {"up/#": str(directory / "reading.json")}}],
            "admin": {"port": 0},
            "control_socket": str(directory / "control"),
            "tables": {"devices": {"file": str(directory / "devices.csv"), "key": "id"}},
            "mappings": {
                "up": {
                    "from": {"mqtt": "up/#"},
                    "to": {"queue": "{devices[$.id].queue}"},
                    "payload": {"transform": lookup},
                },
                "down": {
                    "from": {"queue": "DOWN"},
                    "to": {"mqtt": "down/{devices[usr.device].site|lower}"},
                },
            },
        }
    )


def write_files(directory: Path, *rows: str, maximum: float = 100) -> None:
    for name, content in (
        ("devices.csv", "\n".join(["id,queue,site,factor", *rows]) + "\n"),
        ("reading.json", json.dumps(SCHEMA | {"properties": {"v": {"maximum": maximum}}})),
    ):
        new = directory / f"{name}.new"
        new.write_text(content)
        new.rename(directory / name)


def define_queues(bridge: BridgeProcess, options: str = "") -> None:
    bridge.mqsc(f"DEFINE QLOCAL(ONE) {options}\nDEFINE QLOCAL(TWO)\nDEFINE QLOCAL(DOWN)\n")


@pytest.fixture(scope="module")
def bridge(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("payloads")
    write_files(directory, "d7,ONE,Berlin,2", "d8,TWO,Bonn,3")
    with at_work(bridge_on(queue_manager, directory / "data", config=config_of(directory))) as process:
        define_queues(process)
        yield process


class Device(PahoClient):
    """A paho client that publishes readings, and records the answers."""

    def __init__(self, port: int, client_id: str, protocol: int) -> None:
        self.answers: Queue[tuple[int, str | None]] = Queue()

        def on_publish(_client: Any, _data: Any, _packet: int, code: Any, properties: Any) -> None:
            self.answers.put((code.value, getattr(properties, "ReasonString", None)))

        super().__init__(port, client_id, protocol, settle=lambda client: setattr(client, "on_publish", on_publish))

    def report(self, device: str, value: float, qos: int = 1) -> tuple[int, str | None]:
        """Publish a reading, and return reason code and Reason String of the answer."""
        self.client.publish(f"up/{device}", json.dumps({"id": device, "v": value}), qos)
        return self.answers.get(timeout=PATIENCE)


def letter(bridge: BridgeProcess) -> dict[str, Any]:
    """Get a dead letter."""
    (message,) = bridge.mq_json("get", DEAD_LETTERS, "--wait", "30")
    assert isinstance(message, dict)
    return message


def reading(bridge: BridgeProcess, queue: str) -> Any:
    return json.loads(bridge.mq("get", queue, "--wait", "30"))


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("protocol", [paho.MQTTv31, paho.MQTTv311, paho.MQTTv5], ids=["mqtt31", "mqtt311", "mqtt5"])
def test_paho(bridge: BridgeProcess, unique: str, protocol: int, qos: int) -> None:
    """An invalid reading is rejected (MQTT 5) or dead-lettered, and valid ones arrive with values of the table."""
    with Device(bridge.port, unique, protocol) as device:
        code, reason = device.report("d7", 500, qos)
        if protocol == paho.MQTTv5:
            # paho-mqtt ignores the reason code of PUBREC, and sends PUBREL.
            rejected = (ReasonCode.PAYLOAD_FORMAT_INVALID, VIOLATION)
            assert (code, reason) == (rejected if qos == 1 else (ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, None))
        else:
            assert code == ReasonCode.SUCCESS
            assert letter(bridge)["dlh"]["ReasonName"] == "MQRC_FORMAT_ERROR"
        for id in ("d7", "d8"):
            assert device.report(id, 1.5, qos)[0] == ReasonCode.SUCCESS
        assert reading(bridge, "ONE") == {"site": "Berlin", "value": 3.0}
        assert reading(bridge, "TWO") == {"site": "Bonn", "value": 4.5}
        device.subscribe(("down/#", qos))
        bridge.mq("put", "DOWN", "start", "--property", "device=d8", "--persistent")
        assert device.take()[:2] == ("down/bonn", b"start")


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
def test_mosquitto(bridge: BridgeProcess, version: str) -> None:
    with Subscriber(bridge.port, "down/#", qos=1) as subscriber:
        publish(bridge.port, "up/d7", '{"id": "d7", "v": 500}', qos=1, version=version)
        if version != "mqttv5":
            assert letter(bridge)["dlh"]["ReasonName"] == "MQRC_FORMAT_ERROR"
        publish(bridge.port, "up/d7", '{"id": "d7", "v": 2}', qos=1, version=version)
        assert reading(bridge, "ONE") == {"site": "Berlin", "value": 4.0}
        bridge.mq("put", "DOWN", "stop", "--property", "device=d7")
        assert subscriber.message()["payload"] == "stop"


def test_changed_files_between_a_failure_and_its_repetition(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path
) -> None:
    """A publication that violates the schema is published again, and one for a full queue is mapped again."""
    write_files(tmp_path, "d7,ONE,Berlin,2", "d8,TWO,Bonn,3")
    bridge = new_bridge(config=config_of(tmp_path)).start()
    define_queues(bridge, "MAXDEPTH(1)")
    with Device(bridge.port, "device", paho.MQTTv5) as device:
        for value in (1, 2):
            assert device.report("d7", value)[0] == ReasonCode.SUCCESS
        until(lambda: "MQB5007W mapping up: queue ONE accepts no messages" in bridge.log, lambda: bridge.log)
        assert device.report("d8", 500)[0] == ReasonCode.PAYLOAD_FORMAT_INVALID
        write_files(tmp_path, "d7,TWO,Potsdam,10", "d8,TWO,Bonn,3", maximum=1_000)
        assert "schemas of channel OPEN changed" in Administrator(bridge).does("reload")
        # The second message waited for a full queue, which the table no longer names.
        assert reading(bridge, "TWO") == {"site": "Potsdam", "value": 20.0}
        assert device.report("d8", 500)[0] == ReasonCode.SUCCESS
    assert reading(bridge, "TWO") == {"site": "Bonn", "value": 1500.0}
    assert reading(bridge, "ONE") == {"site": "Berlin", "value": 2.0}


@pytest.mark.queue_managers("ibmmq", "pymqi")
def test_a_start_without_the_queue_manager_uses_the_files_at_the_time_of_its_return(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path
) -> None:
    write_files(tmp_path, "d7,ONE,Berlin,2", "d8,TWO,Bonn,3")
    bridge = new_bridge(config=config_of(tmp_path)).start()
    assert isinstance(bridge, RemoteBridgeProcess)
    define_queues(bridge)
    with Device(bridge.port, "device", paho.MQTTv311) as device:
        device.report("d7", 1)
    assert reading(bridge, "ONE")["site"] == "Berlin"
    bridge.stop()
    bridge.queue_manager.kill()
    start = threading.Thread(target=lambda: BridgeProcess.start(bridge))
    start.start()
    until(lambda: "waiting for the queue manager" in bridge.log, lambda: bridge.log)
    write_files(tmp_path, "d7,TWO,Potsdam,10", maximum=1_000)
    bridge.queue_manager.start()
    start.join(PATIENCE)
    with Device(bridge.port, "device", paho.MQTTv5) as device:
        assert device.report("d7", 50)[0] == ReasonCode.SUCCESS
        assert reading(bridge, "TWO") == {"site": "Potsdam", "value": 500.0}
        # Schemas are those of the start, until a reload.
        assert device.report("d7", 500)[0] == ReasonCode.PAYLOAD_FORMAT_INVALID
        Administrator(bridge).does("reload")
        assert device.report("d7", 500)[0] == ReasonCode.SUCCESS
