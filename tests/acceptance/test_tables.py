"""Mappings with lookups in tables: with real bridges, while files change, and after reloads and restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import publish
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import Scrape

DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"


def config_of(directory: Path, unique: str) -> dict[str, Any]:
    lookup = {"site": "{devices[$.id].site}", "value": {"expr": "payload.v * double(devices[payload.id].factor)"}}
    return {
        "channels": [{"name": "OPEN", "port": 0}],
        "admin": {"port": 0},
        "control_socket": str(directory / "control"),
        "tables": {"devices": {"file": str(directory / "devices.csv"), "key": "id"}},
        "mappings": {
            "up": {
                "from": {"mqtt": f"{unique}/up"},
                "to": {"queue": "{devices[$.id].queue}"},
                "payload": {"transform": lookup},
            },
            "down": {
                "from": {"queue": "DOWN"},
                "to": {"mqtt": f"{unique}/{{devices[usr.device].site|default:'nowhere'}}"},
            },
        },
    }


def rows(directory: Path, *lines: str) -> None:
    new = directory / "new.csv"
    new.write_text("\n".join(["id,queue,site,factor", *lines]) + "\n")
    new.rename(directory / "devices.csv")


@pytest.fixture
def bridge(new_bridge: Callable[..., BridgeProcess], tmp_path: Path, unique: str) -> BridgeProcess:
    rows(tmp_path, "d7,ONE,Berlin,2", "d8,TWO,Bonn,3")
    process = new_bridge(config=yaml.safe_dump(config_of(tmp_path, unique))).start()
    process.mqsc("DEFINE QLOCAL(ONE)\nDEFINE QLOCAL(TWO)\nDEFINE QLOCAL(DOWN)\n")
    return process


def send(bridge: BridgeProcess, unique: str, device: str, version: str = "mqttv311") -> None:
    publish(bridge.port, f"{unique}/up", json.dumps({"id": device, "v": 1.5}), qos=1, version=version)


def document_on(bridge: BridgeProcess, queue: str) -> Any:
    return json.loads(bridge.mq("get", queue, "--wait", "30"))


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
def test_lookups_in_both_directions(bridge: BridgeProcess, unique: str, version: str) -> None:
    send(bridge, unique, "d7", version)
    send(bridge, unique, "d8", version)
    assert document_on(bridge, "ONE") == {"site": "Berlin", "value": 3.0}
    assert document_on(bridge, "TWO") == {"site": "Bonn", "value": 4.5}
    with RawClient.connected(bridge.port, unique) as client:
        client.subscribe((f"{unique}/#", 1))
        for device, site in (("d7", "Berlin"), ("d8", "Bonn"), ("d9", "nowhere")):
            bridge.mq("put", "DOWN", "start", "--property", f"device={device}")
            assert client.take().topic == f"{unique}/{site}"


def test_unknown_keys_are_dead_lettered(bridge: BridgeProcess, unique: str) -> None:
    send(bridge, unique, "d9")
    send(bridge, unique, "d7")
    assert document_on(bridge, "ONE")["site"] == "Berlin"
    until(lambda: "table devices has no row 'd9'" in bridge.log, lambda: bridge.log)
    (letter,) = bridge.messages(DEAD_LETTERS)
    assert letter["dlh"]["ReasonName"] == "MQRC_PROPERTY_NOT_AVAILABLE"


def test_a_file_is_replaced_while_messages_arrive(bridge: BridgeProcess, unique: str, tmp_path: Path) -> None:
    """An invalid file does not change the rows, and is a problem until it is corrected."""
    send(bridge, unique, "d7")
    assert document_on(bridge, "ONE")["site"] == "Berlin"
    rows(tmp_path, "d7,ONE,Potsdam,2", "d7,TWO,again,3")
    until(lambda: "MQB5013E" in bridge.log, lambda: bridge.log)
    send(bridge, unique, "d7")
    assert document_on(bridge, "ONE")["site"] == "Berlin"
    status = json.loads(Administrator(bridge).run("status", "--json").stdout)
    (problem,) = [problem for problem in status["problems"] if problem["kind"] == "table"]
    assert (problem["subject"], problem["severity"]) == ("devices", "warning")
    assert "devices.csv:3: the key 'd7' again, after line 2" in problem["what"]
    scrape = Scrape(bridge)
    assert scrape.get("mqbridge_table_failures_total", table="devices") == 1
    assert scrape.get("mqbridge_table_rows", table="devices") == 2
    rows(tmp_path, "d7,TWO,Potsdam,4")
    until(lambda: "MQB5012I table devices: 1 row of" in bridge.log, lambda: bridge.log)
    send(bridge, unique, "d7")
    assert document_on(bridge, "TWO") == {"site": "Potsdam", "value": 6.0}
    assert Scrape(bridge).get("mqbridge_table_rows", table="devices") == 1
    until(lambda: "problem ended: the former rows of table devices" in bridge.log, lambda: bridge.log)


def test_reload(bridge: BridgeProcess, unique: str, tmp_path: Path) -> None:
    """It reads changed files at once, including tables of unchanged mappings, and rejects invalid ones."""
    administrator, config = Administrator(bridge), config_of(tmp_path, unique)
    rows(tmp_path, "d7,TWO,Potsdam,4", "d8,TWO,Bonn,3", "d9,TWO,Ulm,3")
    output = administrator.does("reload")
    assert "table devices changed: 3 rows" in output and "no mapping has changed" in output
    send(bridge, unique, "d7")
    assert document_on(bridge, "TWO")["site"] == "Potsdam"
    rows(tmp_path, "d7,TWO")
    refused = administrator.run("reload")
    assert refused.exit_code == 1
    assert "devices.csv:2: expected 4 columns, as in the first line, found 2" in refused.stderr
    (tmp_path / "more.json").write_text('{"d7": {"queue": "ONE", "site": "Hof", "factor": 2}}')
    config["tables"]["devices"]["file"] = str(tmp_path / "more.json")
    assert bridge.config is not None
    text = bridge.config.read_text()
    rest = text[: text.index("admin:")] if not text.startswith("admin:") else ""
    bridge.config.write_text(rest + yaml.safe_dump(config))
    output = administrator.does("reload")
    assert "table devices changed: 1 row" in output and "mapping up" in output
    send(bridge, unique, "d7")
    assert document_on(bridge, "ONE") == {"site": "Hof", "value": 3.0}
    bridge.restart()
    send(bridge, unique, "d7")
    assert document_on(bridge, "ONE")["site"] == "Hof"
