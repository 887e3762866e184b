"""The commands of README, tutorial and how-to pages, in their order, with the output that the pages show.

tests/helpers/documented_commands.py describes the marks of commands that are not run. The page on TLS has tests of its own
(test_tls_and_client_code.py), which also try what the page says must fail.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.archive.schema import archive_files
from bridge.cli.program import program as cli
from bridge.mqtt.packets import Publish
from tests.helpers.documented_commands import PAGES, ROOT, Command, blocks
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.installed import program
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient

#: Input for `mqbridge passwd`, which asks on a terminal.
PASSWORD = "secret"
PORTS = ("1883", "1884", "8883", "9158")
#: Directories of a service and of backups, which the reader has below the temporary directory.
DIRECTORIES = ("/etc/mqbridge", "/var/lib/mqbridge", "/backup")
#: Commands that run until Ctrl-C.
ENDLESS = ("make run", "mqbridge run", "mosquitto_sub")
SERVICE = """
queue_manager: {{scripts: [orders.mqsc], data_directory: {data}}}
control_socket: {data}/control
channels: [{{name: PLAIN.MQTT, port: 1883}}]
admin: {{port: 9158, authentication: []}}
mappings:
  orders: {{from: {{mqtt: "orders/#"}}, to: {{queue: ORDERS}}}}
"""


class Reader:
    """Types the commands of a page into shells, in a directory of its own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.stack = stack
        self._replaced = {port: str(free_port()) for port in PORTS}
        self._replaced |= {path: f"{directory}{path}" for path in DIRECTORIES}
        #: the running bridge
        self.bridge: LineProcess | None = None
        self._devices: list[LineProcess] = []
        for path in (*DIRECTORIES, "/bin"):
            (directory / path[1:]).mkdir(parents=True)
        for name in ("mosquitto_pub", "mosquitto_sub"):  # with the port of the bridge in place of 1883
            wrapper = directory / "bin" / name
            real = shlex.join(["stdbuf", "-oL", program(name)])
            wrapper.write_text(
                f'#!/bin/sh\ncase " $* " in *" -p "*) exec {real} "$@" ;; esac\n'
                f'exec {real} -p {self._replaced["1883"]} "$@"\n'
            )
            wrapper.chmod(0o755)
        self.env = {**os.environ, "PATH": f"{directory}/bin:{MQBRIDGE.parent}:{os.environ['PATH']}"}

    def here(self, text: str) -> str:
        """Return a text of the page with the ports and directories of this reader."""
        for written, own in self._replaced.items():
            text = re.sub(rf"(?<![\w.]){re.escape(written)}(?![\w.])", own, text)
        return text

    def write(self, name: str, text: str) -> Path:
        file = self.directory / name
        file.write_text(self.here(text), encoding="utf-8")
        return file

    def follow(self, page: Path) -> None:
        """Run the blocks of a page in order."""
        for block in blocks(page):
            if block.file:
                self.write(block.file, block.text)
            elif block.language == "console" and not block.reason:
                for command in block.commands():
                    self.type(command, f"{page.name}:{block.line}")
            elif block.language == "text" and self._devices:
                for line in block.text.splitlines():
                    self._devices[-1].line_where(line.__eq__)

    def do(self, *commands: str) -> None:
        """Type commands that are not on the page."""
        for command in commands:
            self.type(Command(command), "before the page")

    def type(self, command: Command, place: str) -> None:
        """Type a command and compare the output that the page shows. A bridge replaces the one before."""
        place = f"{place}: {command.text}"
        text = self.here(command.text)
        shown = [self.here(line) for line in command.output if line.strip() not in ("…", "")]
        if text.startswith(ENDLESS):
            self._start(text, shown)
            return
        if text.startswith("mqbridge passwd"):
            text = f"echo {PASSWORD} | {text} --stdin"
        status, stdout, stderr = self.run(text)
        assert status == 0, f"{place}\n{stdout}{stderr}"
        lines = iter(stdout.splitlines())
        for expected in shown:
            assert any(matches(expected, line) for line in lines), f"{place}\nexpected {expected!r}\n{stdout}"

    def run(self, text: str) -> tuple[int, str, str]:
        """Run a command to its end, and return its exit status and what it printed."""
        if text.startswith("mqbridge ") and not re.search(r"[|<>;&$]", text):  # in this process, which is faster
            with contextlib.chdir(self.directory):
                result = CliRunner().invoke(cli, shlex.split(text, comments=True)[1:], env=self.env)
            return result.exit_code, result.stdout, result.stderr
        file = self.directory / "environment"
        done = subprocess.run(
            ["bash", "-c", f"{text}\nstatus=$?\nenv -0 >{file}\nexit $status"],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        self.env = dict(one.split("=", 1) for one in file.read_text().rstrip("\0").split("\0"))
        return done.returncode, done.stdout, done.stderr

    def _start(self, text: str, shown: list[str]) -> None:
        text = re.sub(r"^make run$", f"mqbridge run --port {self._replaced['1883']}", text)
        if text.startswith("mqbridge run"):
            self.stop()
            words = [str(MQBRIDGE), *shlex.split(text)[1:]]
            self.bridge = self.stack.enter_context(LineProcess(words, cwd=self.directory, env=self.env))
            for expected in shown or ["… MQB0012I ready after …"]:
                self.bridge.line_where(lambda line, expected=expected: matches(expected, line))  # type: ignore[misc]
            return
        count = self._subscriptions()
        words = shlex.split(text)
        words[0] = shutil.which(words[0], path=self.env["PATH"]) or words[0]
        self._devices.append(self.stack.enter_context(LineProcess(words, cwd=self.directory, env=self.env)))
        until(lambda: self._subscriptions() > count)

    def _subscriptions(self) -> int:
        _, names, _ = self.run("mqbridge mqsc display SUB(*) -o name")
        return len(names.splitlines())

    def stop(self) -> None:
        """Stop the bridge, as Ctrl-C does."""
        if self.bridge is not None:
            assert self.bridge.terminate() == 0
            self.bridge = None

    def client(self, client_id: str, *filters: tuple[str, int]) -> RawClient:
        """A connected client with a durable session."""
        client = RawClient.connected(int(self._replaced["1883"]), client_id, clean=False)
        client.subscribe(*filters)
        return client


def matches(expected: str, line: str) -> bool:
    """Whether a line is the expected one, in which … stands for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.rstrip().split("…"))
    return re.fullmatch(pattern, line.rstrip()) is not None


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    program("openssl")
    with ExitStack() as stack:
        yield Reader(tmp_path, stack)


def service(reader: Reader, data: str = "/var/lib/mqbridge") -> None:
    """A bridge with the configuration of a service, a mapping, a connected client, and two that are away."""
    reader.write("etc/mqbridge/orders.mqsc", "DEFINE QLOCAL(ORDERS) REPLACE\n")
    reader.write("etc/mqbridge/bridge.yaml", SERVICE.format(data=data))
    config = "/etc/mqbridge/bridge.yaml"
    reader.do("cp etc/mqbridge/* .", f"export MQBRIDGE_CONFIG={config}", f"mqbridge run {config}")
    for name in ("pump-1", "pump-2"):
        with reader.client(name, (f"devices/{name}/#", 1)):
            pass
    pump = reader.stack.enter_context(reader.client("pump-7", ("devices/pump-7/#", 1), ("plant/#", 1)))
    pump.publish("plant/7", b"21.5", 1, retain=True)


def mapping_with_a_message(reader: Reader) -> None:
    """What the first mapping refers to, and a message on its queue."""
    reader.do(
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=ca -keyout ca.key -out ca.pem",
        "export HIVE_PASSWORD=secret",
        "mqbridge run --port 1883",
        "echo 'DEFINE QLOCAL(PLANT.COMMANDS)' | mqbridge mqsc run -",
        "mqbridge mq put PLANT.COMMANDS start --property device=dev-1",
    )


def service_with_a_dead_letter(reader: Reader, data: str = "/var/lib/mqbridge") -> None:
    """The service, and a dead letter whose cause is repaired: the queue of a subscription was full."""
    service(reader, data)
    reader.write("small.mqsc", "DEFINE QLOCAL(SMALL) MAXDEPTH(1)\nDEFINE SUB(SMALL) TOPICSTR('full/#') DEST(SMALL)\n")
    publish = "mosquitto_pub -t full/1 -q 1 -m full"
    enlarge = "echo 'ALTER QLOCAL(SMALL) MAXDEPTH(10)' | mqbridge mqsc run -"
    reader.do("mqbridge mqsc run small.mqsc", publish, publish, enlarge)


def archive(reader: Reader) -> None:
    """An archive with messages that a client has received."""
    reader.write(
        "bridge.yaml", "channels: [{name: PLAIN.MQTT, port: 1883}]\narchive: {directory: archive, roll: {time: 1s}}\n"
    )
    reader.do("export MQBRIDGE_CONFIG=bridge.yaml", "mqbridge run bridge.yaml")
    with reader.client("pump-7", ("plant/#", 1)) as pump:
        pump.publish("plant/7", b"21.5", 1)
        pump.wait_for(Publish)
    until(lambda: archive_files(reader.directory / "archive"))


#: What the reader of a page has at the beginning.
SCENES: dict[str, Callable[[Reader], None]] = {
    "archive": archive,
    "tutorial": lambda reader: None,
    "device-developer": service,
    "devices": service,
    "mappings": mapping_with_a_message,
    "mq-administrator": lambda reader: service_with_a_dead_letter(reader, f"{reader.directory}/data"),
    "operations": service,
    "troubleshooting": service,
    "upgrading": service,
}


@pytest.mark.parametrize("name", SCENES)
def test_the_commands_of_a_page(name: str, reader: Reader) -> None:
    (page,) = [page for page in PAGES if page.stem == name]
    SCENES[name](reader)
    reader.follow(page)
    if name == "tutorial":
        a_wrong_password_is_rejected_as_the_page_says(reader, page)
    reader.stop()


def a_wrong_password_is_rejected_as_the_page_says(reader: Reader, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (publish,) = re.findall(r"^\$ (mosquitto_pub .*)$", text, re.M)
    (shown,) = re.findall(r"device reports `([^`]+)`", text)
    status, _, stderr = reader.run(reader.here(publish.replace(f"-P {PASSWORD}", "-P wrong")))
    assert status != 0 and shown in stderr
    (identifier,) = re.findall(r"mqbridge explain (\w+)", text)
    assert reader.bridge is not None
    reader.bridge.line_where(lambda line: identifier in line)
    assert re.search(r"^admin:change:\S+$", (reader.directory / "data" / "admin.tokens").read_text(), re.M)


def test_the_quick_start(reader: Reader) -> None:
    """Its blocks are typed into one shell."""
    page = blocks(ROOT / "README.md")
    reader.do("mqbridge run --port 1883")
    script = "\n".join(block.text for block in page if block.language == "sh")
    (expected,) = [block.text for block in page if block.language == "text"]
    done = subprocess.run(
        ["bash", "-m", "-c", reader.here(script)],
        cwd=reader.directory,
        env=reader.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if "(QoS" in line] == expected.splitlines(), done.stdout + done.stderr


def test_all_blocks_are_run_or_marked_with_a_reason() -> None:
    tested = {*SCENES, "README", "tls"}
    for page in PAGES:
        for block in blocks(page):
            assert not block.is_command or block.reason or page.stem in tested, f"{page}:{block.line}"
            assert not block.mark.startswith("not run") or block.is_command, f"{page}:{block.line}"
