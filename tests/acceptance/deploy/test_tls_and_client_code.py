"""docs/how-to/tls.md and client-code.md: their commands and programs, against a real bridge."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from tests.helpers import installed
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import free_port
from tests.helpers.mqtt_js import NODE, mqtt_js
from tests.helpers.patience import PATIENCE, until

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PORT = str(free_port())


class Reader:
    """Follow the page on TLS in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._text = self.page("tls")

    def page(self, name: str) -> str:
        """Return a page's text, with a free port instead of 8883."""
        return (HOW_TO / f"{name}.md").read_text(encoding="utf-8").replace("8883", PORT)

    def section(self, title: str) -> str:
        return self._text.split(f"\n## {title}\n")[1].partition("\n## ")[0]

    def commands(self, title: str) -> list[str]:
        blocks = re.findall(r"^```console\n(.*?)^```", self.section(title), re.M | re.S)
        return [line for block in blocks for line in re.findall(r"^\$ (.*)$", block, re.M)]

    def block(self, title: str, language: str) -> str:
        (block,) = re.findall(rf"^```{language}\n(.*?)^```", self.section(title), re.M | re.S)
        return str(block)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Type a command."""
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.directory,
            env={**os.environ, "PATH": f"{MQBRIDGE.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def subscriptions(self) -> str:
        """The output of `mqbridge mqsc display 'SUB(*)'`."""
        command = ["mqsc", "display", "SUB(*)", "--data-dir", str(self.directory / "data")]
        return CliRunner().invoke(program, command).output

    def type(self, *lines: str) -> None:
        """Type commands that succeed."""
        for line in lines:
            process = self.run(line)
            assert process.returncode == 0, (line, process.stderr)

    def configured(self) -> Path:
        """Do steps 1 to 4, except that the bridge is not started; return the configuration file."""
        for title in ("1. Create the CA", "2. Create the server certificate", "3. Create a client certificate"):
            self.type(*self.commands(title))
        configuration = self.directory / "bridge.yaml"
        configuration.write_text(self.block("4. Configure the channel", "yaml"), encoding="utf-8")
        self.type(self.commands("4. Configure the channel")[0])
        return configuration

    def bridge(self) -> LineProcess:
        """Start the bridge, and return it when it listens."""
        start = self.commands("4. Configure the channel")[1]
        bridge = LineProcess(shlex.split(start.replace("mqbridge", str(MQBRIDGE), 1)), cwd=self.directory)
        (event,) = re.findall(r"^… INFO +MQB0013I (channel DEVICES listens.*)$", self._text, re.M)
        bridge.line_where(lambda line: line.endswith(event))
        return bridge


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    installed.program("mosquitto_pub", "mosquitto_sub", "openssl")
    return Reader(tmp_path)


def test_the_commands_of_the_page_on_tls(reader: Reader) -> None:
    configuration = reader.configured()
    subscribe, publish, look = reader.commands("5. Connect")
    with reader.bridge() as bridge:
        with LineProcess(["stdbuf", "-oL", *shlex.split(subscribe)], cwd=reader.directory) as device:
            until(lambda: "pump-7" in reader.subscriptions())
            reader.type(publish)
            device.line_where("devices/pump-7/temp 21.5".__eq__)
        assert "Verification: OK" in reader.run(look).stderr
        the_rows_of_the_table_are_rejected(reader, bridge, publish)
        serial = reader.run("openssl x509 -in server.pem -noout -serial").stdout
        reader.type(*reader.commands("Renew certificates"))
        assert reader.run("openssl x509 -in server.pem -noout -serial").stdout != serial
        bridge.line_where(lambda line: "MQB1102I" in line)
        (reader.directory / "ca.cnf").write_text(reader.block("Revoke a client certificate", "ini"), encoding="utf-8")
        *revoke, reload, _ = reader.commands("Revoke a client certificate")
        reader.type(*revoke)
        text = configuration.read_text(encoding="utf-8")
        text = text.replace("ca_file: ca.pem\n", "ca_file: ca.pem\n      crl_file: crl.pem\n")
        configuration.write_text(text, encoding="utf-8")
        reader.type(reload)
        assert reader.run(publish).returncode != 0
        bridge.line_where(lambda line: "certificate revoked" in line)


def the_rows_of_the_table_are_rejected(reader: Reader, bridge: LineProcess, publish: str) -> None:
    changed = (
        publish.replace(" --cert pump-7.pem --key pump-7.key", ""),
        publish.replace("-h localhost", "-h 127.0.0.1"),
        f"{publish.replace('devices/pump-7', 'devices/pump-8')} -V 5",
    )
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| (MQB\w+)", reader.section("5. Connect"), re.M)
    for command, (reported, identifier) in zip(changed, rows, strict=True):
        # The text depends on the version of mosquitto_pub.
        texts = re.findall(r"`([^`]+)`", reported)
        stderr = reader.run(command).stderr
        assert any(text in stderr for text in texts), (command, texts, stderr)
        bridge.line_where(lambda line, identifier=identifier: identifier in line)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("language", "file", "program"),
    [
        ("python", "device.py", [sys.executable, "-u"]),
        pytest.param("js", "device.mjs", [str(NODE)], marks=pytest.mark.slow),
    ],
)
def test_the_programs_of_the_page_on_client_code(reader: Reader, language: str, file: str, program: list[str]) -> None:
    """They publish, receive a command, and continue after the bridge was killed."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", reader.page("client-code"), re.M | re.S)
    (reader.directory / file).write_text(text, encoding="utf-8")
    if language == "js":
        (reader.directory / "node_modules").symlink_to(mqtt_js() / "node_modules")
    reader.configured()
    bridge = reader.bridge()
    with LineProcess([*program, file], cwd=reader.directory) as device:
        with bridge:
            device.line_where(lambda line: line.lower() == "connected, session present: false")
            reader.type("mqbridge mq sub 'devices/#' --durable temps --wait 0 --config bridge.yaml")
            device.line_where(lambda line: "is committed" in line)
            until(lambda: "pump-7" in reader.subscriptions())
            reader.type("mqbridge mq pub devices/pump-7/commands/reset now --persistent --config bridge.yaml")
            device.line_where("command devices/pump-7/commands/reset: now".__eq__)
            bridge.process.kill()
        device.line_where(lambda line: line.startswith("disconnected"))
        with reader.bridge():
            device.line_where(lambda line: line.lower() == "connected, session present: true")
            device.line_where(lambda line: "is committed" in line)
