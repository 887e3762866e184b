"""Steps of payloads together: parts, tables and rates while files change, and a device that sends arrays of 10^6 elements."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.mqtt.packets import Puback, Publish
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Mosquitto, publish
from tests.helpers.patience import until
from tests.helpers.raw_client import ConnectionClosed, RawClient

DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"
pytestmark = pytest.mark.queue_managers("embedded")


def status(bridge: BridgeProcess, name: str) -> Any:
    return next(mapping for mapping in Administrator(bridge).json("mapping", "list") if mapping["name"] == name)


def replace(file: Path, content: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(content)
    new.rename(file)


def documents(bridge: BridgeProcess, queue: str) -> list[Any]:
    return [json.loads(message["body"]) for message in bridge.messages(queue)]


def configuration(directory: Path, **settings: Any) -> str:
    return yaml.safe_dump(
        {
            "channels": [{"name": "OPEN", "port": 0}],
            "admin": {"port": 0},
            "control_socket": str(directory / "control"),
            **settings,
        }
    )


def test_parts_use_the_rows_of_one_table_and_no_change_is_lost(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path
) -> None:
    """The table changes all the time, is invalid sometimes, and the queue of its first rows is full."""
    table = tmp_path / "devices.csv"
    table.write_text("id,site\nd1,A\nd2,A\n")
    mappings = {
        "parts": {
            "from": {"mqtt": "batches"},
            "to": {"queue": "SITE.{devices[$.id].site}"},
            "split": "$.parts",
            "changes": {"per": "{$.id}", "of": "{$.state}"},
            "payload": {
                "transform": {
                    "id": "{$.id}",
                    "state": "{$.state}",
                    "part": "{@}",
                    "site": {"expr": "devices[payload.id].site"},
                }
            },
        }
    }
    tables = {"devices": {"file": str(table), "key": "id"}}
    bridge = new_bridge(config=configuration(tmp_path, tables=tables, mappings=mappings)).start()
    bridge.mqsc("DEFINE QLOCAL(SITE.A) MAXDEPTH(6)\nDEFINE QLOCAL(SITE.B)\nDEFINE QLOCAL(SITE.C)\n")
    until(lambda: status(bridge, "parts")["state"] == "running")
    client = RawClient.connected(bridge.port, "d")

    def send(device: str, state: int) -> None:
        client.publish("batches", json.dumps({"id": device, "state": state, "parts": [1, 2, 3]}).encode(), 1)

    for state in range(3):  # the third one waits for room
        send("d1", state)
        send("d1", state)  # left out
    until(lambda: status(bridge, "parts")["state"] == "retrying", lambda: status(bridge, "parts"))
    replace(table, "id,site\nd1,B,x\n")
    assert Administrator(bridge).run("reload").exit_code != 0
    replace(table, "id,site\nd1,B\nd2,B\n")
    Administrator(bridge).does("reload")
    bridge.wait_for_depth("SITE.B", 3)
    for state in range(3, 60):
        if state % 10 == 0:
            site = "BC"[state // 10 % 2]
            replace(table, f"id,site\nd1,{site}\nd2,{site}\n" if state % 20 else "not a table\nd1,B\n")
        send("d1", state)
        send("d2", state // 3)
    until(lambda: status(bridge, "parts")["taken"] == 6 + 2 * 57, lambda: status(bridge, "parts"))
    parts_by_site = {name: documents(bridge, f"SITE.{name}") for name in "ABC"}
    for site, parts in parts_by_site.items():
        assert {part["site"] for part in parts} <= {site}
    counts = Counter((part["id"], part["state"], part["part"]) for parts in parts_by_site.values() for part in parts)
    expected = [("d1", state, part) for state in range(60) for part in (1, 2, 3)]
    expected += [("d2", state, part) for state in range(1, 20) for part in (1, 2, 3)]
    assert counts == Counter(expected)
    assert status(bridge, "parts")["left_out"] == {"unchanged": 3 + 57 - 19}


COPYBOOK = """\
       01  READING.
           05  DEVICE  PIC X(4).
           05  AMOUNT  PIC {picture}.
{more}"""


def test_a_copybook_changes_between_a_failure_and_its_repetition_while_a_schema_rejects(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path
) -> None:
    copybook, schema = tmp_path / "reading.cpy", tmp_path / "reading.json"
    copybook.write_text(COPYBOOK.format(picture="S9(3) COMP-3", more=""))
    schema.write_text('{"required": ["device"], "properties": {"amount": {"maximum": 999}}}')
    mapping = {
        "from": {"mqtt": "readings"},
        "to": {"queue": "RECORDS"},
        "payload": {"type": "record", "copybook": str(copybook), "ccsid": 1141, "default": {"amount": 0}},
        "attributes": {"rfh2": False},
    }
    channel = {"name": "OPEN", "port": 0, "schemas": {"readings": str(schema)}}
    config = configuration(tmp_path, channels=[channel], mappings={"records": mapping})
    bridge = new_bridge(config=config).start()
    bridge.mqsc("DEFINE QLOCAL(RECORDS) PUT(DISABLED)\n")
    client = RawClient.connected(bridge.port, "d", level=5)

    def rejected(document: str) -> int:
        client.send(Publish("readings", document.encode(), 1, packet_id=client.next_packet_id()))
        return client.wait_for(Puback).reason_code

    too_large = '{"device": "D4", "amount": 1234567, "site": "HH"}'
    assert rejected(too_large) == ReasonCode.PAYLOAD_FORMAT_INVALID
    for amount in (1, 2, 3):
        client.publish("readings", json.dumps({"device": f"D{amount}", "amount": amount}).encode(), 1)
    until(lambda: "MQB5007W mapping records: queue RECORDS" in bridge.log, lambda: bridge.log)
    # An invalid copybook changes nothing. Then its AMOUNT is longer, and the schema allows that.
    replace(copybook, COPYBOOK.format(picture="S9(3) COMP-9", more=""))
    refused = Administrator(bridge).run("reload")
    assert refused.exit_code != 0 and "reading.cpy:3:" in refused.stderr + refused.stdout
    replace(copybook, COPYBOOK.format(picture="S9(7) COMP-3", more="           05  SITE PIC X(2).\n"))
    replace(schema, '{"required": ["device", "site"]}')
    refused = Administrator(bridge).run("reload")
    assert refused.exit_code == 0, refused.stderr
    assert rejected('{"device": "D4"}') == ReasonCode.PAYLOAD_FORMAT_INVALID
    assert rejected(too_large) == ReasonCode.SUCCESS
    bridge.mqsc("ALTER QLOCAL(RECORDS) PUT(ENABLED)")
    # The first three have no SITE, which has no default.
    bridge.wait_for_depth(DEAD_LETTERS, 3)
    bridge.wait_for_depth("RECORDS", 1)
    assert {letter["dlh"]["ReasonName"] for letter in bridge.messages(DEAD_LETTERS)} == {"MQRC_FORMAT_ERROR"}
    record = bridge.run_mq("get", "RECORDS", "--raw").stdout
    assert record.hex() == "c4f44040" + "1234567c" + "c8c8"
    # With a default for it, their retry puts them as records of the new copybook.
    assert bridge.config is not None
    mapping["payload"]["default"] = {"site": "?", "amount": 0}  # type: ignore[index]
    bridge.config.write_text(configuration(tmp_path, channels=[channel], mappings={"records": mapping}))
    Administrator(bridge).does("reload")
    Administrator(bridge).does("dlq", "retry", "--all")
    bridge.wait_for_depth("RECORDS", 3)
    records = [bridge.run_mq("get", "RECORDS", "--raw").stdout.hex() for _ in range(3)]
    assert records == [f"c4f{amount}4040" + f"000000{amount}c" + "6f40" for amount in (1, 2, 3)]


def test_exactly_once_and_limit_over_kills(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path, broker: Mosquitto
) -> None:
    """Each message arrives at most once. A kill forgets the keys, so that the next message of each passes."""
    common = {"from": {"mqtt": "up/{id}", "link": "L"}, "guarantee": "exactly-once"}
    mappings = {
        "all": {**common, "to": {"queue": "ALL"}, "split": "$.parts"},
        "limited": {**common, "to": {"queue": "LIMITED"}, "limit": {"per": "{id}", "every": "1 h"}},
        "changed": {**common, "to": {"queue": "CHANGED"}, "changes": {"per": "{id}", "of": "{$.state}"}},
    }
    links = {"L": {"host": "127.0.0.1", "port": broker.port}}
    bridge = new_bridge(config=configuration(tmp_path, links=links, mappings=mappings)).start()
    bridge.mqsc("DEFINE QLOCAL(ALL)\nDEFINE QLOCAL(LIMITED)\nDEFINE QLOCAL(CHANGED)\n")

    def states() -> set[str]:
        return {mapping["state"] for mapping in Administrator(bridge).json("mapping", "list")}

    until(lambda: states() == {"running"}, states)
    total, kills = 600, 4

    def send() -> None:
        for number in range(total):
            body = {"n": number, "state": number // 40, "parts": [number, number]}
            publish(broker.port, f"up/{number % 2}", json.dumps(body), qos=2)

    sender = threading.Thread(target=send)
    sender.start()
    for _ in range(kills):
        time.sleep(0.7)
        bridge.kill()
        bridge.start()
    sender.join()
    bridge.wait_for_depth("ALL", 2 * total)
    assert Counter(documents(bridge, "ALL")) == Counter(dict.fromkeys(range(total), 2))

    def settled() -> bool:
        depths = [len(bridge.messages(queue)) for queue in ("LIMITED", "CHANGED")]
        time.sleep(0.5)
        return depths == [len(bridge.messages(queue)) for queue in ("LIMITED", "CHANGED")]

    publish(broker.port, "up/last", '{"n": -1, "state": -1, "parts": []}', qos=2)
    for queue in ("LIMITED", "CHANGED"):
        until(lambda queue=queue: -1 in [body["n"] for body in documents(bridge, queue)])  # type: ignore[misc]
    until(settled)
    limited = [body["n"] for body in documents(bridge, "LIMITED")]
    assert len(limited) == len(set(limited)), limited
    assert limited[:2] == [0, 1] and 3 <= len(limited) <= 2 * (kills + 1) + 1, limited
    changed = [body["n"] for body in documents(bridge, "CHANGED")]
    assert len(changed) == len(set(changed)), changed
    assert {number // 40 for number in changed if number >= 0} == set(range(total // 40))


def test_a_device_that_sends_huge_arrays_stops_no_other(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path
) -> None:
    (tmp_path / "schema.json").write_text('{"properties": {"a": {"items": {"type": "integer"}}}}')
    mappings = {
        "split": {"from": {"mqtt": "bulk"}, "to": {"queue": "OUT"}, "split": "$.a"},
        "filter": {"from": {"mqtt": "bulk"}, "to": {"queue": "OUT"}, "filter": {"json": "$.a[?@ > 5 && @ < 3]"}},
        "expr": {"from": {"mqtt": "bulk"}, "to": {"queue": "OUT"}, "filter": {"expr": "payload.a[999999] > 5"}},
        "schema": {
            "from": {"mqtt": "bulk"},
            "to": {"queue": "OUT"},
            "payload": {"schema": str(tmp_path / "schema.json"), "drop": ["$.a"]},
        },
        "changes": {
            "from": {"mqtt": "bulk"},
            "to": {"queue": "OUT"},
            "changes": {"per": "x", "of": "{$.a|json}"},
            "payload": {"transform": {"n": {"expr": "size(payload.a)"}}},
        },
        "small": {"from": {"mqtt": "small/{id}"}, "to": {"queue": "SMALL"}, "payload": {"transform": {"v": "{$.v}"}}},
    }
    bridge = new_bridge(config=configuration(tmp_path, mappings=mappings)).start()
    bridge.mqsc("DEFINE QLOCAL(OUT)\nDEFINE QLOCAL(SMALL)\n")
    hostile = RawClient.connected(bridge.port, "hostile")
    bulk = b'{"a":[' + b",".join(b"%d" % (number % 10) for number in range(1_000_000)) + b"]}"
    stopped = threading.Event()

    def send() -> None:
        # When the backlog of the slow filter is full, the bridge disconnects the device instead of acknowledging.
        with contextlib.suppress(ConnectionClosed, OSError):
            while not stopped.is_set():
                hostile.publish("bulk", bulk, 1)

    thread = threading.Thread(target=send)
    thread.start()
    with RawClient.connected(bridge.port, "device") as client:
        for number in range(50):
            client.publish(f"small/{number}", b'{"v": %d}' % number, 1)
    bridge.wait_for_depth("SMALL", 50)
    stopped.set()
    thread.join()
    assert documents(bridge, "SMALL") == [{"v": number} for number in range(50)]
    until(lambda: status(bridge, "filter")["taken"] >= 1, lambda: status(bridge, "filter"))
    assert status(bridge, "filter")["moved"] == 0
    assert "1,000,000 elements, of 1,000 at most (split.max_parts)" in status(bridge, "split")["last_error"]
    until(lambda: status(bridge, "changes")["left_out"]["unchanged"] >= 1, lambda: status(bridge, "changes"))
    assert status(bridge, "changes")["moved"] == 1
    assert status(bridge, "schema")["moved"] >= 1
