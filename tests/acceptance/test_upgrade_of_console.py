"""A data directory of release 0.2.0 and its token: the console goes on, and applications over HTTP are added."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.helpers.applications import Application, tokens_of
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.console import Console
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import ask

#: It takes the sources of 0.2.0 from the history.
pytestmark = pytest.mark.slow
CONFIG = "channels: [{name: A, address: 127.0.0.1, port: 0}]\nadmin:\n  port: 0\n"


def test_the_console_of_an_upgraded_bridge(release: Path, tmp_path: Path) -> None:
    data_directory, config = tmp_path / "data", tmp_path / "old.yaml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "bridge", "run", "--config", config, "--data-dir", data_directory]
    old = LineProcess(command, cwd=release)
    url = old.line_where(lambda line: "console, metrics and health at" in line).split(" at ")[1].strip().rstrip("/")
    port = int(old.line_where(lambda line: "listens for MQTT clients" in line).rpartition(":")[2])
    with RawClient.connected(port, "device", clean=False) as device:
        device.subscribe(("jobs/#", 1))
        device.disconnect()
    token = (data_directory / "admin.tokens").read_text().partition("admin:change:")[2].split()[0]
    assert ask(f"{url}/clients", "application/json", token)[0] == 200
    assert old.terminate() == 0

    with at_work(
        BridgeProcess(data_directory, config=f"{CONFIG}  applications: {{app: {{mq_user: app}}}}\n")
    ) as bridge:
        console = Console(bridge).log_in(token)
        assert console.json("/clients/history", id="device") == {"events": []}
        assert Application(bridge, "app").publish("jobs/1").status == 401
        with (data_directory / "admin.tokens").open("a") as tokens:
            tokens.write(tokens_of("app"))
        assert Application(bridge, "app").publish("jobs/1", b"for the device").status == 200
        with RawClient(bridge.port, "device", clean=False) as device:
            assert device.connect().session_present
            assert device.take().payload == b"for the device"
        until(
            lambda: "connected" in [event["kind"] for event in console.json("/clients/history", id="device")["events"]]
        )
