"""`mqbridge explain`: the meaning of a line of the log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bridge
from bridge.cli.program import program
from bridge.log_messages.catalogue import catalogue, mqtt_reasons
from bridge.mqtt.reason_codes import FAILURE, ReasonCode


def explain(*arguments: str, status: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(program, ["explain", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize("written", ["MQB1201W", "mqb1201w", "MQB1201", "mqb1201", "MQB1201E", " MQB1201W: "])
def test_a_message_has_an_event_a_cause_and_an_action(written: str) -> None:
    output, _ = explain(written)
    head, *parts = output.rstrip("\n").split("\n\n")
    assert head == "MQB1201W  channel NAME: rejected client CLIENT with CONNACK CODE (MEANING): REASON"
    assert [part.splitlines()[0] for part in parts] == ["What happened:", "Why:", "What to do:"]
    assert all(len(line) <= 100 for part in parts for line in part.splitlines())
    message = catalogue()["MQB1201W"]
    assert [" ".join(part.split()[len(part.splitlines()[0].split()) :]) for part in parts] == [
        message.happened,
        message.why,
        message.do,
    ]


def test_several_messages_are_printed_one_after_the_other() -> None:
    output, _ = explain("MQB2302W", "2053", "MQB0001S")
    assert [line.split()[0] for line in output.splitlines() if line and not line.startswith((" ", "W"))] == [
        "MQB2302W",
        "2053",
        "MQB0001S",
    ]


def test_without_an_argument_all_messages_are_listed() -> None:
    output, _ = explain()
    assert [line.split()[0] for line in output.splitlines()] == list(catalogue())


def test_programs_get_one_line_of_json_per_message() -> None:
    lines = [json.loads(line) for line in explain("MQB1201W", "MQRC_Q_FULL", "--json")[0].splitlines()]
    assert [sorted(line) for line in lines] == [["do", "happened", "id", "text", "why"], ["id", "meaning", "text"]]
    assert len(explain("--json")[0].splitlines()) == len(catalogue())


@pytest.mark.parametrize("written", ["2053", "MQRC_Q_FULL", "mqrc_q_full"])
def test_a_reason_code_is_found_by_number_and_name(written: str) -> None:
    output, _ = explain(written)
    assert output.startswith("2053  MQRC_Q_FULL\n\nWhat it means:\n  The queue")


def test_a_rare_reason_code_has_its_name() -> None:
    assert explain("2120")[0] == "2120  MQRC_CONVERTED_MSG_TOO_BIG\n"
    assert explain("MQRCCF_CHANNEL_NOT_FOUND")[0] == "4032  MQRCCF_CHANNEL_NOT_FOUND\n"


@pytest.mark.parametrize(
    ("written", "head"),
    [
        ("0x87", "0x87  Not authorized (MQTT 5: CONNACK, PUBACK, PUBREC, SUBACK, UNSUBACK, DISCONNECT)"),
        ("0X8e", "0x8E  Session taken over (MQTT 5: DISCONNECT)"),
        ("CONNACK 5", "CONNACK 5  Not authorized (MQTT 3.1 and 3.1.1; MQTT 5: 0x87)"),
        ("connack 2", "CONNACK 2  Client Identifier not valid (MQTT 3.1 and 3.1.1; MQTT 5: 0x85)"),
    ],
)
def test_a_reason_code_of_mqtt_is_explained(written: str, head: str) -> None:
    output, _ = explain(written)
    assert output.startswith(f"{head}\n\nWhat it means:\n  ")


def test_each_mqtt_reason_code_of_the_bridge_is_explained() -> None:
    """Whether a client gets it from the bridge, or a log line contains it."""
    sources = Path(bridge.__file__).parent.rglob("*.py")
    used = {name for file in sources for name in re.findall(r"\bReasonCode\.([A-Z_]+)", file.read_text("utf-8"))}
    failures = {name for name in used if ReasonCode[name] >= FAILURE}
    assert failures - mqtt_reasons().keys() == set()
    assert mqtt_reasons().keys() <= ReasonCode.__members__.keys()


@pytest.mark.parametrize(
    "written",
    ["MQB9999E", "MQB12", "nonsense", "99999", "MQRC_NONSENSE", "0x7F", "0x870", "CONNACK 6", "²", ""],
)
def test_an_unknown_message_is_reported(written: str) -> None:
    output, error = explain("MQB1201W", written, status=3)
    assert output == ""
    assert f"no message {written.upper()}" in error


def test_a_similar_message_is_suggested() -> None:
    _, error = explain("MQB1291W", status=3)
    assert error.startswith("mqbridge: error: no message MQB1291W\nhint: did you mean MQB12")
    assert error.endswith("?\n")
