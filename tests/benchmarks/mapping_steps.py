"""CPU time of the steps of a mapping to MQ, without a queue manager: fields, expressions, new documents, validation.

All mappings convert the same publications, in turn; the best of several rounds counts. The ratio is that to the mapping
without payload steps.

    python -m tests.benchmarks.mapping_steps [--publications 10000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bridge.config.mapping import ToMqMapping
from bridge.mapping.rule import rule_of
from bridge.telemetry.message import Publication

SCHEMA = {
    "type": "object",
    "properties": {"device": {"type": "object"}, "temp": {"type": "number"}, "unit": {"enum": ["C", "F"]}},
    "required": ["device", "temp"],
}


def steps(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the mappings, by what they do."""
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
        "limit, nearly all left out": queue | {"limit": {"per": "{clientId}", "every": "1 h"}},
        "changes, nearly all left out": queue | {"changes": {"per": "{$.device.id}", "of": "{$.unit}"}},
    }


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
        rules = {
            name: rule_of("m", ToMqMapping.model_validate({"from": {"mqtt": "plant/{line}/temp"}} | config), "QM1")
            for name, config in steps(Path(directory)).items()
        }
    best = dict.fromkeys(rules, float("inf"))
    for _ in range(options.rounds):
        for name, rule in rules.items():
            begun = time.process_time()
            for publication in publications:
                rule.messages(publication)  # type: ignore[union-attr]
            messages = len(publications) * (10 if rule.config.split is not None else 1)
            best[name] = min(best[name], (time.process_time() - begun) / messages * 1e6)
    table = Table(title=f"{options.publications:,} publications, best of {options.rounds} rounds")
    for heading in ("mapping", "µs", "ratio"):
        table.add_column(heading, justify="left" if heading == "mapping" else "right")
    base = best["copied byte for byte"]
    for name, cost in best.items():
        table.add_row(name, f"{cost:.1f}", f"{cost / base:.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
