"""The commands and configuration of docs/tutorial.md work, on free ports."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.installed import program
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import PATIENCE, until

PAGE = (Path(__file__).parents[3] / "docs" / "tutorial.md").read_text(encoding="utf-8")
#: Input for `mqbridge passwd`.
PASSWORD = "secret"


class Reader:
    """Who follows the page, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {port: str(free_port()) for port in ("8883", "9158")}
        self.env = {**os.environ, "PATH": f"{MQBRIDGE.parent}:{os.environ['PATH']}"}

    def blocks(self, section: str, kind: str) -> list[str]:
        """Return the blocks of a section, with free ports in the place of those that it names."""
        text = PAGE.split(f"\n## {section}\n")[1].partition("\n## ")[0]
        found = re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)
        assert found, section
        return [re.sub(r"\b(8883|9158)\b", lambda port: self.ports[port[1]], block) for block in found]

    def typed(self, section: str) -> Iterator[tuple[str, list[str]]]:
        """Yield the commands of a section, each with the lines that the page shows below it."""
        for block in self.blocks(section, "console"):
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, *shown = part.splitlines()
                yield command, [line for line in shown if line != "…"]

    def type(self, command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.directory,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def write(self, section: str) -> None:
        (block,) = self.blocks(section, "yaml")
        (self.directory / "bridge.yaml").write_text(block, encoding="utf-8")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    program("mosquitto_pub", "mosquitto_sub", "openssl")
    return Reader(tmp_path)


def test_a_device_gets_messages_of_an_application(reader: Reader) -> None:
    """The first section, on a free port, which the device gets as an option."""
    bridge = BridgeProcess(reader.directory / "data").start()
    commands = [command for command, _ in reader.typed("A bridge")]
    (subscribe,) = [command for command in commands if command.startswith("mosquitto_sub")]
    sent = [command for command in commands if command.startswith("mqbridge mq")]
    (expected,) = reader.blocks("A bridge", "text")
    try:
        with LineProcess(shlex.split(f"{subscribe} -p {bridge.port}")) as device:
            until(lambda: bridge.run_mq("display", "SUB('dev-1:*')").returncode == 0)
            for command in sent:
                done = reader.type(command)
                assert done.returncode == 0, done.stderr
            assert [device.line() for _ in sent] == expected.splitlines()
    finally:
        bridge.discard()


def test_a_mapping_tried_before_there_is_a_bridge(reader: Reader) -> None:
    reader.write("A mapping")
    for command, shown in reader.typed("A mapping"):
        done = reader.type(command)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[: len(shown)] == shown


def ends_with(end: str) -> Callable[[str], bool]:
    return lambda line: line.endswith(end)


def test_tls_passwords_the_mapping_and_the_console(reader: Reader) -> None:
    """The rest of it, in its order, with what each command shows."""
    section = "TLS and a password file"
    reader.write(section)
    with ExitStack() as ends:
        for command, shown in [*reader.typed(section), *reader.typed("The console")]:
            if command == "mqbridge run bridge.yaml":
                bridge = ends.enter_context(LineProcess([MQBRIDGE, "run", "bridge.yaml"], cwd=reader.directory))
                for expected in shown:
                    # A line of the log, without its time.
                    bridge.line_where(ends_with(expected.removeprefix("…")))
                continue
            asks = command.startswith("mqbridge passwd")
            done = reader.type(f"{command} --stdin" if asks else command, f"{PASSWORD}\n" if asks else "")
            assert done.returncode == 0, (command, done.stderr)
            assert all(line in done.stdout.splitlines() for line in shown), (command, done.stdout)
        (publish,) = [command for command, _ in reader.typed(section) if command.startswith("mosquitto_pub")]
        refused = reader.type(publish.replace(f"-P {PASSWORD}", "-P wrong"))
        (said,) = re.findall(r"device reports `([^`]+)`", PAGE)
        assert refused.returncode != 0 and said in refused.stderr
        (identifier,) = re.findall(r"mqbridge explain (\w+)", PAGE)
        bridge.line_where(lambda line: identifier in line)
        tokens = (reader.directory / "data" / "admin.tokens").read_text(encoding="utf-8")
        assert re.search(r"^admin:change:\S+$", tokens, re.M)
