"""A data directory of release 0.2.0 whose mappings get payload steps: waiting messages pass the new steps once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import eventually, until
from tests.helpers.raw_client import RawClient

#: It takes the sources of 0.2.0 from the history.
pytestmark = pytest.mark.slow
#: Publications wait for the full queue FULL, and messages on COMMANDS for a subscriber with a session.
OLD = """\
channels: [{name: A, address: 127.0.0.1, port: 0}]
mappings:
  readings:
    from: {mqtt: "plant/{line}/temp"}
    to: {queue: FULL}
    guarantee: exactly-once
  commands:
    from: {queue: COMMANDS}
    to: {mqtt: "commands/any"}
"""
NEW = """\
channels: [{name: A, address: 127.0.0.1, port: 0}]
tables: {lines: {file: lines.csv, key: line}}
mappings:
  readings:
    from: {mqtt: "plant/{line}/temp"}
    to: {queue: FULL}
    attributes: {properties: {temp: {value: "{$.temp}", type: double}}}
    guarantee: exactly-once
    filter: {expr: "payload.temp > 30"}
    changes: {per: "{line}", of: "{$.temp}"}
    payload: {transform: {site: "{lines[line].site}", fahrenheit: {expr: payload.temp * 1.8 + 32}}}
  commands:
    from: {queue: COMMANDS}
    to: {mqtt: "commands/{$.line}"}
    payload: {drop: [$.line]}
"""
READINGS = [b'{"temp": 20}', b'{"temp": 35}', b'{"temp": 35}', b"no JSON", b'{"temp": 40}']


def test_waiting_publications_and_messages_pass_the_new_steps_once(release: Path, tmp_path: Path) -> None:
    data_directory, config = tmp_path / "data", tmp_path / "old.yaml"
    config.write_text(OLD)
    options: list[str | Path] = ["--config", config, "--data-dir", data_directory]
    with LineProcess([sys.executable, "-m", "bridge", "run", *options], cwd=release) as old:
        port = int(old.line_where(lambda line: "listens for MQTT clients" in line).rpartition(":")[2])

        def mq(*words: str, stdin: str = "") -> str:
            """Run a command of 0.2.0."""
            command = [sys.executable, "-m", "bridge", *words, *options]
            return subprocess.run(
                command, cwd=release, input=stdin, text=True, stdout=subprocess.PIPE, check=True
            ).stdout

        mq("mqsc", "run", "-", stdin="DEFINE QLOCAL(FULL) MAXDEPTH(1)\nDEFINE QLOCAL(COMMANDS) GET(DISABLED)")
        with RawClient.connected(port, "device", clean=False) as device:
            device.subscribe(("commands/+", 1))
            for reading in READINGS:
                device.publish("plant/1/temp", reading, 1)
            device.disconnect()
        for number in (1, 2):
            mq("mq", "put", "COMMANDS", "--persistent", f'{{"line": "l{number}", "speed": {number}.50}}')
        until(lambda: "CURDEPTH(1)" in mq("mqsc", "run", "-", stdin="DISPLAY QLOCAL(FULL) CURDEPTH"))
        assert old.terminate() == 0

    (tmp_path / "lines.csv").write_text("line,site\n1,north\n")
    bridge = BridgeProcess(data_directory, config=NEW)
    try:
        bridge.start()
        bridge.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)\nALTER QLOCAL(COMMANDS) GET(ENABLED)")
        bridge.wait_for_depth("FULL", 3)
        bridge.restart()
        with RawClient(bridge.port, "device", clean=False) as device:
            assert device.connect().session_present
            commands = [device.take() for _ in range(2)]
            assert [(command.topic, command.payload) for command in commands] == [
                ("commands/l1", b'{"speed":1.50}'),
                ("commands/l2", b'{"speed":2.50}'),
            ]
            device.publish("plant/1/temp", b'{"temp": 50}', 1)
            expected = [f'{{"site":"north","fahrenheit":{fahrenheit}}}' for fahrenheit in ("95.0", "104.0", "122.0")]
            eventually(lambda: [message["body"] for message in bridge.messages("FULL")], ['{"temp": 20}', *expected])
        assert bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []
        assert bridge.stop() == 0
    finally:
        bridge.discard()
    assert "Traceback" not in bridge.log
