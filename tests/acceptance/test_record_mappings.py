"""Mappings of COBOL records in a bridge process: both directions, dead letters, and a copybook that changes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mqtt.packets import Puback, Publish, PublishProperties
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Subscriber
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient

COPYBOOK = """\
       01  READING.
           05  DEVICE                   PIC X(4).
           05  TEMPERATURE              PIC S9(3)V9 COMP-3.
           05  SAMPLES                  PIC S9(4) COMP.
"""
MAPPINGS = """
mappings:
  readings:
    from: {{mqtt: "readings/+"}}
    to: {{queue: READINGS}}
    payload: {{copybook: {directory}/reading.cpy, ccsid: 273}}
    attributes: {{rfh2: false}}
  commands:
    from: {{queue: COMMANDS}}
    to: {{mqtt: "commands/{{$.device|lower}}"}}
    payload: {{copybook: {directory}/reading.cpy}}
    attributes: {{qos: 1, retained: always}}
"""
#: {"device": "Ä1", "temperature": 21.5, "samples": -2} in CCSID 273 and Encoding 785.
RECORD = bytes.fromhex("4AF14040 00215C FFFE".replace(" ", ""))
DOCUMENT = '{"device":"Ä1","temperature":21.5,"samples":-2}'


def status(bridge: BridgeProcess, name: str) -> Any:
    return next(mapping for mapping in Administrator(bridge).json("mapping", "list") if mapping["name"] == name)


def running(bridge: BridgeProcess) -> None:
    for name in ("readings", "commands"):
        until(lambda name=name: status(bridge, name)["state"] == "running", lambda: bridge.log)  # type: ignore[misc]


def records(bridge: BridgeProcess, queue: str) -> list[bytes]:
    return [base64.b64decode(message["body"]) for message in bridge.messages(queue)]


@pytest.fixture
def bridge(new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Path) -> Iterator[BridgeProcess]:
    (tmp_path / "reading.cpy").write_text(COPYBOOK)
    text = f"control_socket: {tmp_path / 'control'}\n" + MAPPINGS.format(directory=tmp_path)
    process = new_bridge(config=text).start()
    process.mqsc("DEFINE QLOCAL(READINGS) MAXDEPTH(2)\nDEFINE QLOCAL(COMMANDS)")
    running(process)
    yield process


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
def test_records_in_both_directions(bridge: BridgeProcess, queue_manager: str, tmp_path: Path) -> None:
    for level in (4, 5):
        RawClient.connected(bridge.port, f"d{level}", level=level).publish("readings/1", DOCUMENT.encode(), 1)
    bridge.wait_for_depth("READINGS", 2)
    for message in bridge.messages("READINGS"):
        described = message["rfh2"][0] if message["rfh2"] else message["md"]
        assert (described["CodedCharSetId"], described["Encoding"]) == (273, 785)
        assert base64.b64decode(message["body"]) == RECORD
    subscriber = Subscriber(bridge.port, "commands/#", qos=1)
    for body in (RECORD[:4] + b"\x40" + RECORD[5:], RECORD):
        bridge.mq("put", "COMMANDS", "--ccsid", "273", "--encoding", "785", "--persistent", "-", stdin=body)
    assert subscriber.message() == {"topic": "commands/ä1", "payload": DOCUMENT, "qos": 1, "retain": 0}
    subscriber.stop()
    (letter,) = bridge.messages("SYSTEM.DEAD.LETTER.QUEUE")
    assert (letter["dlh"]["Reason"], letter["dlh"]["PutApplName"]) == (2110, "commands")
    assert base64.b64decode(letter["body"]) == RECORD[:4] + b"\x40" + RECORD[5:]
    why = "field temperature at offset 4 (X'40215C'): more than 4 digits"
    assert why in status(bridge, "commands")["last_error"]
    RawClient.connected(bridge.port, "d").publish("readings/1", b'{"device": "toolong"}', 1)
    until(lambda: status(bridge, "readings")["dead_lettered"] == 1, lambda: bridge.log)
    why = "field device at offset 0: 'toolong' has 7 bytes, of 4 at most"
    assert why in status(bridge, "readings")["last_error"]


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
def test_a_copybook_that_changes_while_the_queue_is_full(bridge: BridgeProcess, tmp_path: Path) -> None:
    client = RawClient.connected(bridge.port, "d")
    for number in range(3):
        client.publish("readings/1", json.dumps({"device": str(number), "temperature": 1, "samples": 2}).encode(), 1)
    until(lambda: status(bridge, "readings")["state"] == "retrying", lambda: bridge.log)
    # An invalid copybook changes nothing.
    (tmp_path / "reading.cpy").write_text(COPYBOOK.replace("COMP-3", "COMP-9"))
    result = Administrator(bridge).run("reload")
    assert result.exit_code != 0
    assert "reading.cpy:3:53: the clause COMP-9 is not supported" in result.stderr
    # A longer field: the waiting record gets the new layout, and those on the queue keep theirs.
    (tmp_path / "reading.cpy").write_text(COPYBOOK.replace("X(4)", "X(6)"))
    assert "mapping readings changed" in Administrator(bridge).does("reload")
    until(lambda: status(bridge, "readings")["state"] == "retrying", lambda: bridge.log)
    bridge.kill()
    bridge.start()
    assert [len(record) for record in records(bridge, "READINGS")] == [9, 9]
    until(lambda: status(bridge, "readings")["state"] == "retrying", lambda: bridge.log)
    bridge.mqsc("ALTER QLOCAL(READINGS) MAXDEPTH(100)")
    bridge.wait_for_depth("READINGS", 3)
    assert records(bridge, "READINGS")[2] == bytes.fromhex("F24040404040 00010C 0002".replace(" ", ""))


@pytest.mark.queue_managers("embedded")
def test_dead_letters_are_mapped_again_after_a_repair_of_the_copybook(bridge: BridgeProcess, tmp_path: Path) -> None:
    """A retried record has the CCSID and the Encoding with which it was put."""
    (tmp_path / "reading.cpy").write_text(COPYBOOK.replace("X(4)", "X(6)"))
    assert "mapping commands changed" in Administrator(bridge).does("reload")
    until(lambda: status(bridge, "commands")["state"] == "running", lambda: bridge.log)
    bridge.mq("put", "COMMANDS", "--ccsid", "273", "--encoding", "785", "--persistent", "-", stdin=RECORD)
    until(lambda: status(bridge, "commands")["dead_lettered"] == 1, lambda: bridge.log)
    assert "the record is too short: 9 bytes, of 11" in status(bridge, "commands")["last_error"]
    (tmp_path / "reading.cpy").write_text(COPYBOOK)
    Administrator(bridge).does("reload")
    until(lambda: status(bridge, "commands")["state"] == "running", lambda: bridge.log)
    subscriber = Subscriber(bridge.port, "commands/#", qos=1)
    Administrator(bridge).does("dlq", "retry", "--all")
    assert subscriber.message() == {"topic": "commands/ä1", "payload": DOCUMENT, "qos": 1, "retain": 0}
    subscriber.stop()


def answered_by_cics(request: bytes) -> bytes:
    """Answer a STOCK-REQUEST like a CICS program, with the offsets of mappings/stock.cpy."""
    assert len(request) == 120 and request[:4].decode("cp1140") == "STKI"
    number, article, quantity = request[16:20], request[25:35], request[35:38]
    if quantity == b"\x00\x00\x5c":
        stock = article + "Bolt M4".ljust(30).encode("cp1140") + b"\x00\x01\x20\x0c" + b"\x00\x00\x03\x5c"
        return b"\0\0" + number + "S".encode("cp1140") + stock + b"\x40" * 65
    return b"\0\x08" + number + "E".encode("cp1140") + "no stock".ljust(113).encode("cp1140")


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
def test_a_device_asks_a_program_that_uses_records_only(
    new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Path
) -> None:
    """The shipped example with MQTT 5: the answer arrives on the Response Topic, with the Correlation Data."""
    example = Path(__file__).resolve().parents[2] / "mappings" / "records.yaml"
    bridge = new_bridge(config=f"control_socket: {tmp_path / 'control'}\nmappings: [{example}]\n").start()
    bridge.mqsc("DEFINE QLOCAL(STOCK.REQUESTS)\nDEFINE QLOCAL(STOCK.ANSWERS)\nDEFINE QLOCAL(STOCK.PENDING)")
    for name in ("stock-requests", "stock-answers"):
        until(lambda name=name: status(bridge, name)["state"] == "running", lambda: bridge.log)  # type: ignore[misc]
    device = RawClient.connected(bridge.port, "till-3", level=5)
    for quantity, members in (
        (5, {"return_code": 0, "answer_kind": "S"}),
        (-1, {"return_code": 8, "answer_kind": "E", "answer_error_text": "no stock"}),
    ):
        line = {"article": "A-1", "quantity": quantity}
        ask = {"device_id": "till-3", "request_number": 4711, "request_line": [line], "battery": 71}
        properties = PublishProperties(response_topic="tills/3", correlation_data=b"c%d" % quantity)
        packet_id = device.next_packet_id()
        device.send(Publish("shop/7/stock", json.dumps(ask).encode(), 1, False, False, packet_id, properties))
        assert device.expect(Puback) == Puback(packet_id)
        if quantity == 5:
            device.subscribe(("tills/3", 1))
        (request,) = bridge.mq_json("get", "STOCK.REQUESTS", "--wait", f"{PATIENCE:g}")
        answer = answered_by_cics(base64.b64decode(request["body"]))
        correl_id = ("--correl-id", request["md"]["MsgId"])
        bridge.mq("put", "STOCK.ANSWERS", "--ccsid", "1140", "--encoding", "785", *correl_id, "-", stdin=answer)
        publish = device.take()
        assert publish.topic == "tills/3"
        assert publish.properties is not None and publish.properties.correlation_data == b"c%d" % quantity
        document = json.loads(publish.payload)
        assert document.items() >= (members | {"request_number": 4711}).items()
        if quantity == 5:
            assert b'"unit_price":0.35' in publish.payload
            assert (
                document["answer_stock"]["article_name"] == "Bolt M4" and document["answer_stock"]["on_stock"] == 1200
            )
