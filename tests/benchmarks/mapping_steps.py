"""CPU time of the steps of a mapping, without a queue manager: fields, expressions, new documents, validation, records.

All mappings convert the same payloads, in turn. The best of several rounds counts. The ratio is that to the mapping without
payload steps: from a topic to a queue, from a link, whose publications have neither client identifier nor user, and from a
queue to a topic or link. A second table has COBOL records of 50 bytes with ten fields, compared with the JSON document.

    python -m tests.benchmarks.mapping_steps [--publications 10000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bridge.config.mapping import TextPayload, ToMqMapping, ToMqttMapping
from bridge.config.table import TableConfig
from bridge.mapping.json_document import document_of
from bridge.mapping.record_payload import RecordPayload
from bridge.mapping.rule import ToMqRule, rule_of
from bridge.telemetry.message import Message, Publication
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

SCHEMA = {
    "type": "object",
    "properties": {"device": {"type": "object"}, "temp": {"type": "number"}, "unit": {"enum": ["C", "F"]}},
    "required": ["device", "temp"],
}


def steps(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the mappings by their description."""
    schema = directory / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    queue = {"to": {"queue": "PLANT.{line}"}}
    return {
        "copied byte for byte": queue,
        "the same, result not cached (filter by size)": queue | {"filter": {"min_size": 1}},
        "filter: json": queue | {"filter": {"json": "$.temp > 30"}},
        "filter: expr": queue | {"filter": {"expr": "payload.temp > 30"}},
        "payload: json": queue | {"payload": "json"},
        "payload: schema": queue | {"payload": {"schema": str(schema)}},
        "a field in the destination": {"to": {"queue": "PLANT.{$.unit}"}},
        "a field in a property": queue | {"attributes": {"properties": {"t": "{$.temp}"}}},
        "the same as double": queue | {"attributes": {"properties": {"t": {"value": "{$.temp}", "type": "double"}}}},
        "transform with three fields": queue
        | {"payload": {"transform": {"id": "{$.device.id}", "t": "{$.temp}", "line": "{line}"}}},
        "transform with an expression": queue | {"payload": {"transform": {"f": {"expr": "payload.temp * 1.8 + 32"}}}},
        "drop": queue | {"payload": {"drop": ["$.device.fw"]}},
        "split of an array of ten, for each message": queue | {"split": "$.list"},
        "limit, nearly all left out": queue | {"limit": {"per": "{line}", "every": "1 h"}},
        "changes, nearly all left out": queue | {"changes": {"per": "{$.device.id}", "of": "{$.unit}"}},
        "a table by a capture in the destination": {"to": {"queue": "PLANT.{devices[line].site}"}},
        "a table by a field in the destination": {"to": {"queue": "PLANT.{devices[$.device.id].site}"}},
        "transform with a table": queue | {"payload": {"transform": {"site": "{devices[$.device.id].site}"}}},
        "transform with a table in an expression": queue
        | {"payload": {"transform": {"site": {"expr": "devices[payload.device.id].site"}}}},
        "filter: expr with a table": queue | {"filter": {"expr": "payload.device.id in devices"}},
    }


def sources(config: dict[str, Any]) -> dict[str, ToMqMapping | ToMqttMapping]:
    """Return the mapping by its kind of source. Messages of a queue have the line in a field of the MQMD."""
    text = re.sub(r"\bline(?=[}\]])", "md.ApplIdentityData", json.dumps(config))
    from_queue = json.loads(text.replace('"to": {"queue"', '"to": {"mqtt"'))
    mappings: dict[str, ToMqMapping | ToMqttMapping] = {
        "topic": ToMqMapping.model_validate({"from": {"mqtt": "plant/{line}/temp"}} | config),
        "link": ToMqMapping.model_validate({"from": {"mqtt": "plant/{line}/temp", "link": "L"}} | config),
    }
    if not has_typed_property(config):
        mappings["queue"] = ToMqttMapping.model_validate({"from": {"queue": "Q"}} | from_queue)
    return mappings


def has_typed_property(config: dict[str, Any]) -> bool:
    """Return whether a mapping sets a property with a type, which MQTT does not have."""
    properties = config.get("attributes", {}).get("properties", {})
    return any(isinstance(value, dict) for value in properties.values())


def devices_in(directory: Path) -> TableConfig:
    """Return a table of 1,000,000 rows."""
    file = directory / "devices.csv"
    lines = (f"{kind}{number},SITE.{number % 50},model-a" for kind in "ld" for number in range(500_000))
    file.write_text("\n".join(["id,site,model", *lines]))
    return TableConfig(file=file, key="id")


COPYBOOK = """\
       01  STOCK.
           05  ARTICLE    PIC X(8).
           05  TITLE      PIC X(12).
           05  ON-STOCK   PIC S9(5) COMP-3.
           05  PRICE      PIC S9(5)V99 COMP-3.
           05  PLACE      PIC 9(4).
           05  KIND       PIC X.
           05  COUNTED    PIC S9(9) COMP.
           05  DAY        PIC X(10).
           05  MINIMUM    PIC S9(3).
           05  STATE      PIC X.
"""
STOCK = (
    b'{"article":"A-4711","title":"Bolt M4","on_stock":-42,"price":12.50,"place":17,"kind":"Y","counted":-123456,'
    b'"day":"2026-11-30","minimum":-5,"state":"N"}'
)


def record_steps(directory: Path) -> dict[str, Callable[[], object]]:
    """Return the conversions of a record or its JSON document by their description."""
    (directory / "stock.cpy").write_text(COPYBOOK)
    payload = {"copybook": str(directory / "stock.cpy"), "ccsid": 1140}
    record = RecordPayload(TextPayload.model_validate(payload))
    codec = record.codec(1140, 785)
    data = record.record_of(STOCK, 1140, 785)
    document = msgspec.json.Decoder(float_hook=Decimal).decode(STOCK)
    publication = Publication("stock", STOCK, qos=1, packet_id=1, client_id="d", user=b"d")
    message = Message(MQMD(CodedCharSetId=1140, Encoding=785), data)
    to_mq = {
        name: {"from": {"mqtt": "stock"}, "to": {"queue": "Q"}, "payload": payload_config}
        for name, payload_config in (("json", "json"), ("record", payload))
    }
    to_mqtt = {
        name: {"from": {"queue": "Q"}, "to": {"mqtt": "stock"}, "payload": payload_config}
        for name, payload_config in (("json", {"type": "json", "ccsid": 1208}), ("record", payload))
    }
    rules: Any = {f"{name} to MQ": rule_of("m", ToMqMapping.model_validate(to_mq[name]), "QM1") for name in to_mq}
    rules |= {f"{name} to MQTT": rule_of("m", ToMqttMapping.model_validate(to_mqtt[name]), "QM1") for name in to_mqtt}
    text = Message(MQMD(), STOCK)
    return {
        "JSON document parsed": lambda: document_of(STOCK),
        "record decoded": lambda: codec.decode(data),
        "record encoded": lambda: codec.encode(document),
        "mapping to MQ, payload: json": lambda: rules["json to MQ"].map(publication),
        "mapping to MQ, payload: record": lambda: rules["record to MQ"].map(publication),
        "mapping to MQTT, payload: json": lambda: rules["json to MQTT"].map(text),
        "mapping to MQTT, payload: record": lambda: rules["record to MQTT"].map(message),
    }


def measured(conversion: Callable[[], object], number: int) -> float:
    """Return the CPU time of a conversion in microseconds."""
    start = time.process_time()
    for _ in range(number):
        conversion()
    return (time.process_time() - start) / number * 1e6


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--publications", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    publications = [
        Publication(
            f"plant/l{number % 20}/temp",
            b'{"device":{"id":"d%d","fw":"1.0"},"temp":%d.5,"unit":"C","list":[0,1,2,3,4,5,6,7,8,9]}'
            % (number % 20, 31 + number % 50),
            qos=1,
            packet_id=number % 65_535 + 1,
            client_id=f"device-{number % 20}",
            user=b"device",
        )
        for number in range(options.publications)
    ]
    with tempfile.TemporaryDirectory() as directory:
        devices = {"devices": devices_in(Path(directory))}
        rules = {}
        for name, config in steps(Path(directory)).items():
            for source, mapping in sources(config).items():
                mapping.use_tables_of(devices)
                rules[name, source] = rule_of("m", mapping, "QM1")
    inputs: dict[str, list[Any]] = {
        "topic": publications,
        "link": [msgspec.structs.replace(publication, client_id="", user=b"") for publication in publications],
        "queue": [
            Message(
                MQMD(
                    Format=cmqc.MQFMT_STRING,
                    CodedCharSetId=1208,
                    ApplIdentityData=publication.topic.split("/")[1].encode(),
                ),
                publication.payload,
            )
            for publication in publications
        ],
    }
    best = dict.fromkeys(rules, float("inf"))
    for _ in range(options.rounds):
        for (name, source), rule in rules.items():
            convert = rule.messages if isinstance(rule, ToMqRule) else rule.publications
            start = time.process_time()
            for message in inputs[source]:
                convert(message)
            messages = len(publications) * (10 if rule.config.split is not None else 1)
            best[name, source] = min(best[name, source], (time.process_time() - start) / messages * 1e6)
    table = Table(title=f"{options.publications:,} messages, best of {options.rounds} rounds: µs, ratio")
    table.add_column("mapping")
    for source in inputs:
        table.add_column(f"from a {source}", justify="right")
    for name in dict.fromkeys(name for name, _ in rules):
        costs = [
            f"{cost:.1f}  {cost / best['copied byte for byte', source]:4.1f}"
            if (cost := best.get((name, source))) is not None
            else ""
            for source in inputs
        ]
        table.add_row(name, *costs)
    Console(width=110).print(table)
    with tempfile.TemporaryDirectory() as directory:
        conversions = record_steps(Path(directory))
    least = dict.fromkeys(conversions, float("inf"))
    for _ in range(options.rounds):
        for kind, conversion in conversions.items():
            least[kind] = min(least[kind], measured(conversion, options.publications))
    table = Table(title=f"records of 50 bytes and ten fields, {options.publications:,} each")
    for heading in ("conversion", "µs", "ratio"):
        table.add_column(heading, justify="left" if heading == "conversion" else "right")
    for kind, cost in least.items():
        base = least["JSON document parsed" if "mapping" not in kind else f"{kind.rpartition(' ')[0]} json"]
        table.add_row(kind, f"{cost:.1f}", f"{cost / base:.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
