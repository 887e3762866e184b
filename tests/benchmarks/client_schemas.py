"""CPU time of the validation of publications against the schemas of a channel, without a queue manager.

python -m tests.benchmarks.client_schemas [--rounds 300]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bridge.config.channel import ChannelConfig
from bridge.mq.backend import UnitOfWork
from bridge.mqtt.packets import Publish
from bridge.service.payload_schemas import PayloadSchemas, schemas_of
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.session import Session
from tests.benchmarks.mapping_steps import SCHEMA

TOPIC = "plant/l1/temp"
LONG = {"device": {}, "temp": 1, "list": [{"a": n, "b": n * 1.5, "c": str(n)} for n in range(100_000)]}
#: Kind of publication -> topic, payload, publications per unit of work.
PUBLICATIONS = {
    "valid": (TOPIC, b'{"device":{"id":"d1","fw":"1.0"},"temp":31.5,"unit":"C"}', 100),
    "invalid": (TOPIC, b'{"device":{"id":"d1","fw":"1.0"},"unit":"C"}', 100),
    "topic without a schema": ("plant/l1/other", b"{}", 100),
    "valid, 4 MiB": (TOPIC, json.dumps(LONG).encode(), 1),
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "schema.json"
        file.write_text(json.dumps(SCHEMA))
        schemas = PayloadSchemas(schemas_of([ChannelConfig.model_validate({"schemas": {"plant/+/temp": str(file)}})]))
    identity = ClientIdentity("c", b"")
    session = Session(identity, durable=False, window=1)
    session.channel, session.level = "PLAIN.MQTT", 5
    table = Table(title=f"best of {options.rounds} rounds")
    for heading in ("publication", "bytes", "µs"):
        table.add_column(heading, justify="left" if heading == "publication" else "right")
    for name, (topic, payload, number) in PUBLICATIONS.items():
        unit = UnitOfWork([(to_mq(Publish(topic, payload, 1, False, False, 1), identity), False)] * number)
        best = float("inf")
        for _ in range(options.rounds if number > 1 else 5):
            unit.forbidden = {}
            start = time.process_time()
            schemas.refuse(unit, session)
            best = min(best, (time.process_time() - start) / number * 1e6)
        table.add_row(name, f"{len(payload):,}", f"{best:,.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
