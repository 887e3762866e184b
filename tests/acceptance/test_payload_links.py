"""Mappings with payload steps from and to a mosquitto, with MQTT 3.1.1 and 5, on each queue manager."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Mosquitto, Subscriber, publish
from tests.helpers.patience import eventually, until

pytestmark = pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")

COPYBOOK = """\
       01  READING.
           05  DEVICE  PIC X(4).
           05  CELSIUS PIC S9(3)V9 COMP-3.
"""
DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"


def config_of(directory: Path, broker: Mosquitto, version: str) -> str:
    """Return mappings from the link: all steps for parts of arrays, and records. And one to the link, from records."""
    (directory / "reading.cpy").write_text(COPYBOOK)
    (directory / "batch.json").write_text(
        '{"required": ["id"], "properties": {"parts": {"items": {"type": "object"}}}}'
    )
    (directory / "devices.csv").write_text("id,queue,site\nd7,ONE,Berlin\n")
    return yaml.safe_dump(
        {
            "control_socket": str(directory / "control"),
            "links": {"L": {"host": "127.0.0.1", "port": broker.port, "version": version}},
            "tables": {"devices": {"file": str(directory / "devices.csv"), "key": "id"}},
            "mappings": {
                "parts": {
                    "from": {"mqtt": "batches/{device}", "link": "L"},
                    "to": {"queue": "{devices[$.id].queue}"},
                    "guarantee": "exactly-once",
                    "filter": {"expr": "payload.id == device", "qos": [2]},
                    "split": "$.parts",
                    "changes": {"per": "{device}", "of": "{$.parts|json}"},
                    "payload": {
                        "schema": str(directory / "batch.json"),
                        "transform": {"v": "{@.v}", "site": "{devices[$.id].site}", "double": {"expr": "part.v * 2"}},
                    },
                },
                "records": {
                    "from": {"mqtt": "readings", "link": "L"},
                    "to": {"queue": "RECORDS"},
                    "payload": {"copybook": str(directory / "reading.cpy"), "ccsid": 273},
                    "attributes": {"rfh2": False},
                },
                "reports": {
                    "from": {"topic": "reports/{device}"},
                    "to": {"mqtt": "parts/{devices[device].site}/{partIndex}"},
                    "filter": {"expr": "device in devices && size(payload.parts) < 3"},
                    "split": {"path": "$.parts", "max_parts": 2},
                    "changes": {"per": "{device}", "of": "{$.state}", "deadband": 0.5},
                    "payload": {
                        "schema": str(directory / "batch.json"),
                        "transform": {"double": {"expr": "part.v * 2"}, "state": "{$.state}"},
                    },
                },
                "back": {
                    "from": {"queue": "RECORDS"},
                    "to": {"mqtt": "answers/{$.device|lower}", "link": "L"},
                    "guarantee": "exactly-once",
                    "filter": {"expr": "payload.celsius > 20"},
                    "payload": {
                        "copybook": str(directory / "reading.cpy"),
                        "transform": {"fahrenheit": {"expr": "payload.celsius * 1.8 + 32"}},
                    },
                },
            },
        }
    )


def bodies(bridge: BridgeProcess, queue: str) -> list[Any]:
    return [json.loads(message["body"]) for message in bridge.messages(queue)]


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_steps_of_mappings_from_and_to_a_broker(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path, broker: Mosquitto, version: str
) -> None:
    bridge = new_bridge(config=config_of(tmp_path, broker, version)).start()
    bridge.mqsc("DEFINE QLOCAL(ONE)\nDEFINE QLOCAL(RECORDS)")

    def states() -> set[str]:
        return {mapping["state"] for mapping in Administrator(bridge).json("mapping", "list")}

    until(lambda: states() == {"running"}, states)
    send = {"3.1.1": "mqttv311", "5": "mqttv5"}[version]

    def batch(device: str, *values: object) -> None:
        document = {"id": device, "parts": [{"v": value} for value in values]}
        publish(broker.port, f"batches/{device}", json.dumps(document), qos=2, version=send)

    batch("d7", 1, 2.5)
    batch("d7", 1, 2.5)  # left out
    batch("d9", 1)  # not in the table
    batch("d7", 3, "x")  # the expression fails for the second part
    # The depth would include dead letters that are not committed. A kill forgets which messages `changes` left out.
    eventually(lambda: len(bridge.messages(DEAD_LETTERS)), 2)
    bridge.kill()
    bridge.start()
    batch("d7", 4)
    bridge.wait_for_depth("ONE", 3)
    assert bodies(bridge, "ONE") == [
        {"v": 1, "site": "Berlin", "double": 2},
        {"v": 2.5, "site": "Berlin", "double": 5.0},
        {"v": 4, "site": "Berlin", "double": 8},
    ]
    reasons = [letter["dlh"]["ReasonName"] for letter in bridge.messages(DEAD_LETTERS)]
    assert reasons == ["MQRC_PROPERTY_NOT_AVAILABLE", "MQRC_FORMAT_ERROR"]
    with Subscriber(broker.port, "answers/#", qos=2) as subscriber:
        for celsius in ("21.5", "3", "-40.1", "999.9"):
            publish(broker.port, "readings", f'{{"device": "D7", "celsius": {celsius}}}', qos=1, version=send)
        answers = [subscriber.message() for _ in range(2)]
    assert [(message["topic"], json.loads(message["payload"])) for message in answers] == [
        ("answers/d7", {"fahrenheit": pytest.approx(70.7)}),
        ("answers/d7", {"fahrenheit": pytest.approx(1831.82)}),
    ]
    with Subscriber(bridge.port, "parts/#", qos=2) as subscriber:
        for report in (
            '{"id": "d7", "state": 1.50, "parts": [{"v": 1}, {"v": 2.5}]}',
            '{"id": "d7", "state": 1.9, "parts": [{"v": 7}]}',  # within the deadband
            '{"id": "d7", "state": 2.10, "parts": [{"v": 3}]}',
        ):
            bridge.mq("pub", "reports/d7", report, "--persistent")
        messages = [subscriber.message() for _ in range(3)]
    assert [(message["topic"], message["payload"]) for message in messages] == [
        ("parts/Berlin/0", '{"double":2,"state":1.50}'),
        ("parts/Berlin/1", '{"double":5.0,"state":1.50}'),
        ("parts/Berlin/0", '{"double":6,"state":2.10}'),
    ]
    # Messages of a queue that its mapping does not accept go to the dead-letter queue.
    bridge.wait_for_depth(DEAD_LETTERS, 4)
