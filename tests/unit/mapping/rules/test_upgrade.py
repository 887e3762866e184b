"""Mappings of release 0.2.0, which had no payload steps: they load unchanged, and convert messages byte for byte as before.

`mappings-0.2.0.yaml` has the examples of that release. `converted-0.2.0.json` has the results of its code (commit 4c257b66).
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.config.document import load
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.models import Configuration
from bridge.mapping.check import problems
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

DIRECTORY = Path(__file__).parent
CONVERTED: dict[str, list[Any]] = json.loads((DIRECTORY / "converted-0.2.0.json").read_text())
PAYLOADS = [b'{"value": 91.50, "big": 12345678901234567890123}', b"plain text \xc3\xa4  ", b'{"value": 3}', b"\xff"]
#: Topics of mappings that read topics or links.
TOPICS = {
    "telemetry": "plant/l1/temp/1",
    "alarms": "plant/l1/temp/1",
    "status-to-mq": "status/a/b",
    "status-to-mqtt": "status/a/b",
    "requests": "service/s1/request",
    "own-requests": "ask/s1/bob/7",
    "prices": "prices/X/IBM",
}
#: Mappings of messages in EBCDIC.
EBCDIC = frozenset(("stock", "notices"))


def with_properties(body: bytes, format: bytes, ccsid: int) -> bytes:
    """Return a body after an RFH2 with the properties that the mappings use."""
    folder = b"<usr><device>d7</device><site>NORTH</site></usr>  "
    folder += b" " * (-len(folder) % 4)
    header = struct.pack("<4sii", b"RFH ", 2, 40 + len(folder)) + struct.pack("<ii8sii", 546, ccsid, format, 0, 1208)
    return header + struct.pack("<i", len(folder)) + folder + body


def message_of(name: str, payload: bytes) -> Message:
    ccsid, body = 1208, payload
    if name in EBCDIC:
        ccsid, body = 500, payload.decode("latin-1").encode("cp500")
    md = MQMD(
        CodedCharSetId=1208,
        Encoding=546,
        Format=cmqc.MQFMT_RF_HEADER_2,
        PutApplName=b"CICS",
        PutDate=b"20260101",
        PutTime=b"12000000",
        CorrelId=b"bob/7".ljust(24, b"\0"),
    )
    return Message(md, with_properties(body, cmqc.MQFMT_STRING, ccsid))


def converted(name: str, mapping: ToMqMapping | ToMqttMapping, payload: bytes) -> Any:
    """Return the result of a mapping for a payload, as JSON."""
    rule = rule_of(name, mapping, "QM1")
    try:
        if isinstance(rule, ToMqRule):
            publication = Publication(TOPICS[name], payload, qos=1, packet_id=5, client_id="dev", user=b"dev")
            mapped = rule.map(publication)
            return mapped and [mapped.destination.name, _json(mapped.message.md), mapped.message.data.hex()]
        assert isinstance(rule, ToMqttRule)
        output = rule.map(message_of(name, payload), topic=TOPICS.get(name))
        return output and [output.topic, output.payload.hex(), output.qos, output.retain, _json(output.properties)]
    except Unmappable as error:
        return error.reason


def _json(structure: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a structure that differ from their defaults."""
    default = type(structure)()
    fields = {name: getattr(structure, name) for name in structure.__struct_fields__}
    changed = {name: value for name, value in fields.items() if value != getattr(default, name)}
    return {
        name: value.decode("latin-1") if isinstance(value, bytes) else msgspec.to_builtins(value)
        for name, value in changed.items()
    }


@pytest.fixture(scope="module")
def configuration() -> Configuration:
    return load(DIRECTORY / "mappings-0.2.0.yaml")


def test_the_configuration_is_valid(configuration: Configuration) -> None:
    assert list(problems(configuration)) == []
    assert configuration.mappings.keys() == CONVERTED.keys()


@pytest.mark.parametrize("name", CONVERTED)
def test_messages_are_converted_as_before(configuration: Configuration, name: str) -> None:
    results = [converted(name, configuration.mappings[name], payload) for payload in PAYLOADS]
    assert json.loads(json.dumps(results)) == CONVERTED[name]
