"""Tests of the shipped examples, mappings/*.yaml: the commands in their headers and in docs/how-to/mapping-examples.md.

All examples run in one bridge (`mappings: [mappings/]`) with a real mosquitto. Only the address of the broker is replaced.
Further tests compare the converted messages byte by byte.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.documented_commands import ROOT, Block, Command, blocks
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.mapping_site import DLQ, MappingSite, folders, hops
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.paho_clients import PahoSubscriber
from tests.helpers.patience import PATIENCE

# Other tests of mappings run on IBM MQ, and the contract suite covers the calls that these need.
pytestmark = pytest.mark.queue_managers("embedded")

SHIPPED = ROOT / "mappings"
EXAMPLES = sorted(file.stem for file in SHIPPED.glob("*.yaml"))
PAGE = ROOT / "docs" / "how-to" / "mapping-examples.md"
HOST = "broker.example.com"
_MARK = "--- exit status "


def header(example: str) -> list[str]:
    """Return the comment lines at the beginning of an example."""
    lines = (SHIPPED / f"{example}.yaml").read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("#") for line in itertools.takewhile(lambda line: line.startswith("#"), lines)]


def section(example: str) -> list[Block]:
    """Return the blocks of an example on the page."""
    headings = re.findall(r"^## .*\n\n.*?\(\.\./\.\./mappings/(\w+)\.yaml\)", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(headings) == EXAMPLES
    starts = [number for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines()) if line[:3] == "## "]
    start, end = [*starts, sys.maxsize][headings.index(example) :][:2]
    return [block for block in blocks(PAGE) if start < block.line < end]


def mqsc_of(example: str) -> list[str]:
    """Return the MQSC commands that an example needs."""
    lines = [line for block in section(example) if block.language == "text" for line in block.text.splitlines()]
    return [line for line in lines if line.startswith("DEFINE ")]


def run(
    commands: Sequence[Command], directory: Path, *, broker: int, bridge: int, env: Mapping[str, str]
) -> list[tuple[Command, str, int]]:
    """Run all commands in one shell. Return each with its output and exit status.

    `broker` is the port of the broker that the page calls broker.example.com, and `bridge` the port of the bridge.
    """
    lines = [f"export PATH={MQBRIDGE.parent}:$PATH", "exec 2>&1"]
    for command in commands:
        lines += [_with_ports(command.text, broker, bridge), f"echo '{_MARK}'$?"]
    completed = subprocess.run(
        ["bash"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=PATIENCE * 4,
        env={**os.environ, **env},
    )
    output = re.split(rf"^{_MARK}(\d+)\n", completed.stdout, flags=re.MULTILINE)
    assert len(output) == 2 * len(commands) + 1, f"the shell ended early: {completed.stdout}{completed.stderr}"
    return [(command, output[2 * index], int(output[2 * index + 1])) for index, command in enumerate(commands)]


def matches(expected: Sequence[str], output: str) -> bool:
    """Return whether output matches the lines of the page. `…` stands for any text, alone in a line for any lines."""
    expression = ""
    for line in expected:
        expression += "(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
    return re.fullmatch(expression, output) is not None


def _with_ports(command: str, broker: int, bridge: int) -> str:
    """Return a command with the addresses of broker and bridge on this machine."""
    at_broker = command.replace(f"-h {HOST}", f"-h 127.0.0.1 -p {broker}")
    return at_broker if at_broker != command else re.sub(r"\b(mosquitto_(?:pub|sub|rr)) ", rf"\1 -p {bridge} ", command)


@pytest.fixture(scope="module")
def site(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MappingSite]:
    directory = tmp_path_factory.mktemp("examples")

    def config(port: int) -> dict[str, Any]:
        (directory / "mappings").mkdir()
        for file in SHIPPED.glob("*.yaml"):
            here = rf"\1host: 127.0.0.1\n\1port: {port}"
            text = re.sub(rf"^( +)host: {HOST}$", here, file.read_text(encoding="utf-8"), flags=re.M)
            (directory / "mappings" / file.name).write_text(text, encoding="utf-8")
        for file in (*SHIPPED.glob("*.json"), *SHIPPED.glob("*.csv"), *SHIPPED.glob("*.cpy")):
            shutil.copy(file, directory / "mappings")
        return {"mappings": ["mappings/"]}

    mqsc = [line for name in EXAMPLES for line in mqsc_of(name)]
    with MappingSite(directory, queue_manager, config, mqsc) as site:
        yield site


def environment(site: MappingSite) -> Mapping[str, str]:
    return {"MQBRIDGE_DATA_DIR": str(site.bridge.data_directory), "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_commands_in_the_header_of_an_example_succeed(site: MappingSite, example: str) -> None:
    lines = header(example)
    commands = [Command(line.strip()) for line in lines if line.startswith("   mqbridge ")]
    assert len(lines) <= 10 and len(commands) == 3
    for command, output, status in run(commands, site.directory, broker=0, bridge=0, env=environment(site)):
        assert status == 0, f"{command.text}\nprinted {output}"


@pytest.mark.parametrize("example", EXAMPLES)
def test_commands_of_the_page_print_the_output_that_it_shows(site: MappingSite, example: str) -> None:
    commands = [command for block in section(example) if block.language == "console" for command in block.commands()]
    assert any("mqbridge check" in command.text for command in commands)
    assert any("mqbridge try" in command.text for command in commands)
    ports = {"broker": site.broker.port, "bridge": site.bridge.port}
    for command, output, _ in run(commands, site.directory, **ports, env=environment(site)):
        assert matches(command.output, output), f"{command.text}\nprinted {output}\nexpected {command.output}"


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_telemetry(site: MappingSite) -> None:
    """Compare all parts of the message that an application gets from a reading at the broker."""
    reading = '{"value":  21.5, "unit": "°C"}'
    site.publish("plant/line2/oven/temp", reading, "-D", "publish", "user-property", "site-id", "north")
    message = site.get("PLANT.LINE2")
    md = {
        name: message["md"][name]
        for name in ("Format", "CodedCharSetId", "Persistence", "Priority", "MsgType", "Expiry")
    }
    assert md == {
        "Format": "MQHRF2",
        "CodedCharSetId": 1208,
        "Persistence": 1,
        "Priority": 0,
        "MsgType": 8,
        "Expiry": -1,
    }
    (header,) = message["rfh2"]
    assert (header["Format"], header["CodedCharSetId"]) == ("MQSTR", 1208)
    content = folders(message)
    # MQTT subscribers do not learn the publisher, so the client identifier is that of the link.
    assert content.pop("mqtt").keys() == {"clientId", "qos", "msgid"}
    assert hops(content.pop("mqbridge")["hops"]) == "MQB1/telemetry"
    assert content == {
        "mqps": {"Top": "plant/line2/oven/temp"},
        "usr": {"line": "line2", "sensor": "oven/temp", "site_x002D_id": "north"},
    }
    assert (message["body"], message["bodyEncoding"]) == (reading, "utf-8")


def test_alarms_come_first_and_expire(site: MappingSite) -> None:
    site.publish("plant/line1/oven/temp", '{"value": 90}')
    site.publish("plant/line1/oven/temp", '{"value": 90.5}', qos=0)
    message = site.get("PLANT.ALARMS")
    assert (message["md"]["Priority"], message["md"]["Persistence"], message["body"]) == (9, 1, '{"value": 90.5}')
    assert 35_000 < message["md"]["Expiry"] <= 36_000
    assert [site.get("PLANT.LINE1")["body"] for _ in range(2)] == ['{"value": 90}', '{"value": 90.5}']


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [("plant/line1/oven", "hot", 2110), ("plant/line 1/oven", '{"value": 1}', 2152)],
)
def test_readings_without_a_destination(site: MappingSite, topic: str, payload: str, reason: int) -> None:
    site.publish(topic, payload)
    message = site.get(DLQ)
    letter = message["dlh"]
    assert (letter["Reason"], letter["PutApplName"], message["body"]) == (reason, "telemetry", payload)
    assert letter["DestQName"] == "sensors: plant/+/#"
    assert folders(message)["mqps"]["Top"] == topic


def test_readings_by_device_and_in_other_units(site: MappingSite) -> None:
    reading = '{"device": {"id": "d7"},  "temp": 21.50}'
    for _ in range(2):
        publish(site.bridge.port, "readings", reading, qos=1)
        message = site.get("DEVICE.D7")
        assert (message["md"]["CorrelId"], message["body"]) == (b"d7".hex().upper().ljust(48, "0"), reading)
        assert folders(message)["usr"] == {"temp": 21.5}
        assert site.get("FAHRENHEIT")["body"] == '{"device":"d7","fahrenheit":70.7,"celsius":21.50}'
    publish(site.bridge.port, "readings", '{"temp": -41}', qos=1)
    letter = site.get(DLQ)
    assert (letter["dlh"]["Reason"], letter["dlh"]["PutApplName"]) == (2471, "by-device")


def test_orders_to_the_device_that_the_message_names(site: MappingSite) -> None:
    with Subscriber(site.bridge.port, "orders/#", qos=1) as devices:
        site.bridge.mq("put", "ORDERS.OUT", '{"device": "d7", "order": {"secret": "x", "id": 9007199254740993}}')
        message = devices.message()
        assert (message["topic"], message["payload"]) == ("orders/d7", '{"order":{"id":9007199254740993}}')


def test_commands_with_each_persistence(site: MappingSite) -> None:
    with Subscriber(site.bridge.port, "commands/#", qos=2) as devices:
        for arguments in ((), ("--persistent",)):
            body = "schließe Ventil 2".encode("cp500")
            site.bridge.mq(
                "put", "PLANT.COMMANDS", "--ccsid", "500", "--property", "device=pump-1", *arguments, stdin=body
            )
        # DEFPSIST(YES) of the queue makes the first one persistent as well.
        expected = {"topic": "commands/pump-1", "payload": "schließe Ventil 2", "qos": 1, "retain": 0}
        assert [devices.message() for _ in range(2)] == [expected] * 2
    site.bridge.mq("put", "PLANT.COMMANDS", "lost")
    letter = site.get(DLQ)
    assert (letter["dlh"]["Reason"], letter["dlh"]["DestQName"], letter["dlh"]["PutApplName"]) == (
        2471,
        "PLANT.COMMANDS",
        "commands",
    )
    assert letter["body"] == "lost"


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_prices(site: MappingSite) -> None:
    with PahoSubscriber(site.broker.port, "market/nyse/#") as live:
        site.bridge.mq("pub", "prices/NYSE/IBM", "251.20", "--property", "currency=USD")
        price = live.message()
    with PahoSubscriber(site.broker.port, "market/nyse/#") as late:
        again = late.message()
    for message, retained in ((price, True), (again, True)):
        assert (message.topic, message.payload, message.qos, message.retain) == (
            "market/nyse/ibm",
            b"251.20",
            0,
            retained,
        )
        assert message.properties.ContentType == "text/plain"
        user_properties = dict(message.properties.UserProperty)
        assert hops(user_properties.pop("mqbridge-hops")) == "MQB1/prices"
        assert user_properties == {"currency": "USD", "market": "NYSE"}
    assert 590 <= again.properties.MessageExpiryInterval <= price.properties.MessageExpiryInterval == 600


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_status_is_retained_on_both_sides_without_a_loop(site: MappingSite) -> None:
    with PahoSubscriber(site.broker.port, "status/#") as broker, Subscriber(site.bridge.port, "status/#", qos=1) as own:
        # existing retained messages come first
        site.publish("status/first", "at the broker", "-r")
        site.bridge.mq("pub", "status/second", "in MQ", "--retain")
        site.bridge.mq("pub", "status/last", "end", "--retain")
        at_broker = broker.until("status/last")
        assert [at_broker.count(topic) for topic in ("status/first", "status/second", "status/last")] == [1, 1, 1]
        ours = []
        while "status/last" not in ours or "status/first" not in ours:
            ours.append(own.message()["topic"])
        assert [ours.count(topic) for topic in ("status/first", "status/second", "status/last")] == [1, 1, 1]
    with PahoSubscriber(site.broker.port, "status/second") as late:
        assert (late.message().payload, late.seen[-1].retain) == (b"in MQ", True)
    with Subscriber(site.bridge.port, "status/first", qos=1) as late_here:
        assert late_here.message() == {"topic": "status/first", "payload": "at the broker", "qos": 1, "retain": 1}
    (message,) = site.bridge.mq_json("sub", "status/first", "--limit", "1", "--wait", "30")
    assert (folders(message)["mqps"]["Ret"], message["body"]) == (True, "at the broker")


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_an_mqtt_5_client_is_answered_by_an_application_that_does_not_know_mqtt(site: MappingSite) -> None:
    """With both conventions: the CorrelId of the answer is the MsgId or the CorrelId of the request. Each client gets its own
    answers.
    """
    with PahoSubscriber(site.broker.port, "clients/+/answers") as clients:
        for client, correlation_data in (("one", "7"), ("two", "7"), ("three", "x" * 30)):
            response = ("-D", "publish", "response-topic", f"clients/{client}/answers")
            site.publish(
                "service/time/request",
                f"from {client}",
                *response,
                "-D",
                "publish",
                "correlation-data",
                correlation_data,
            )
        requests = [site.get("SERVICE.TIME") for _ in range(3)]
        for request in requests:
            md = request["md"]
            assert (md["MsgType"], md["ReplyToQ"], md["ReplyToQMgr"], md["Report"]) == (1, "MQTT.ANSWERS", "MQB1", 0)
            # Applications copy either of them.
            assert md["CorrelId"] == md["MsgId"]
            assert 1100 < md["Expiry"] <= 1200
        for request in reversed(requests):
            site.bridge.mq("put", md["ReplyToQ"], f"answer {request['body']}", "--correl-id", request["md"]["MsgId"])
        answers = [clients.message() for _ in range(3)]
    assert {(answer.topic, answer.payload, answer.properties.CorrelationData) for answer in answers} == {
        ("clients/one/answers", b"answer from one", b"7"),
        ("clients/two/answers", b"answer from two", b"7"),
        ("clients/three/answers", b"answer from three", b"x" * 30),
    }
    assert not any(hasattr(answer.properties, "ResponseTopic") for answer in answers)
    site.bridge.wait_for_depth("MQTT.REQUESTS", 0)
    # An answer without a request
    site.bridge.mq("put", "MQTT.ANSWERS", "late", "--correl-id", requests[0]["md"]["MsgId"])
    letter = site.get(DLQ)
    assert (letter["dlh"]["Reason"], letter["dlh"]["PutApplName"], letter["body"]) == (2471, "answers", "late")


def test_a_publication_without_response_topic_is_not_a_request(site: MappingSite) -> None:
    site.publish("service/time/request", "just so", "-D", "publish", "correlation-data", "7")
    message = site.get("SERVICE.TIME")
    assert (message["md"]["MsgType"], message["md"]["ReplyToQ"], message["body"]) == (8, "", "just so")
    assert site.bridge.messages("MQTT.REQUESTS") == []


@pytest.mark.parametrize("copied", ["MsgId", "CorrelId"])
def test_a_client_of_the_bridge_is_answered(site: MappingSite, copied: str) -> None:
    with Subscriber(site.bridge.port, "answer/dev-3/#", qos=1) as client:
        publish(site.bridge.port, "ask/time/dev-3/41", "what time is it?", qos=1)
        request = site.get("SERVICE.TIME")
        assert (request["md"]["ReplyToQ"], request["md"]["MsgType"]) == ("MQTT.ANSWERS.OWN", 1)
        assert request["md"][copied] == b"dev-3/41".hex().upper().ljust(48, "0")
        site.bridge.mq("put", "MQTT.ANSWERS.OWN", "half past ten", "--correl-id", request["md"][copied])
        assert client.message() == {"topic": "answer/dev-3/41", "payload": "half past ten", "qos": 1, "retain": 0}


@pytest.mark.queue_managers("embedded", "ibmmq")
@pytest.mark.parametrize(("ccsid", "codec"), [(500, "cp500"), (1140, "cp1140"), (37, "cp037"), (1208, "utf-8")])
def test_text_in_several_code_pages(site: MappingSite, ccsid: int, codec: str) -> None:
    document = '{"article": "Schöße ½", "left": 7}'
    with Subscriber(site.bridge.port, "stock/#", "notices", qos=1) as display:
        site.bridge.mq(
            "put", "HOST.STOCK", "--ccsid", str(ccsid), "--property", f"site=X{ccsid}", stdin=document.encode(codec)
        )
        while (publication := display.message())["topic"] != f"stock/x{ccsid}":
            assert publication["retain"]  # of other tests
        assert (publication["payload"], publication["qos"]) == (document, 1)
        site.bridge.mq("put", "HOST.NOTICES", "--ccsid", str(ccsid), stdin="Tür 7  ".encode(codec))
        notice = json.loads(display.message()["payload"])
    assert list(notice) == ["text", "by", "at"]
    assert notice["text"] == "Tür 7"
    assert re.fullmatch(r"\d{16}", notice["at"])


@pytest.mark.parametrize(
    ("body", "ccsid", "reason"),
    [("no JSON".encode("cp500"), 500, 2110), (b"\x41\xff", 1208, 2119), (b"{}", 64999, 2111)],
)
def test_payloads_that_are_not_json_or_text(site: MappingSite, body: bytes, ccsid: int, reason: int) -> None:
    site.bridge.mq("put", "HOST.STOCK", "--ccsid", str(ccsid), "--property", "site=x", stdin=body)
    letter = site.get(DLQ)
    assert (letter["dlh"]["Reason"], letter["dlh"]["PutApplName"]) == (reason, "stock")
    letter_body = letter["body"].encode() if letter["bodyEncoding"] == "utf-8" else base64.b64decode(letter["body"])
    assert letter_body == body
