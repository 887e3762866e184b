"""Tests of the commands on README, tutorial and how-to pages: they run, and print the output of the page.

tests/helpers/documented_commands.py describes the marks of commands that are not run. The page on TLS has its own tests
(test_tls_and_client_code.py), which also try the commands that must fail. So has the page of mapping examples
(test_mapping_examples.py). On pages about IBM MQ, the queue manager is the stand-in, `runmqsc` is `mqbridge mqsc run`, and
`have` signs a certificate request. `systemctl` starts and stops the bridge.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from bridge.archive.schema import archive_files
from bridge.cli.program import program as cli
from bridge.mqtt.packets import Publish
from tests.helpers import forked_process
from tests.helpers.certificate_authority import Authority
from tests.helpers.documented_commands import PAGES, ROOT, Command, blocks
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.installed import CLIENT_PACKAGES, built, program
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import QueueManagerProcess, library_environment

HOW_TO = ROOT / "docs" / "how-to"
#: Input for `mqbridge passwd`, which asks on a terminal.
PASSWORD = "secret"
PORTS = ("1883", "1884", "8883", "9158")
#: Host names of the bridge.
HOSTS = ("bridge.example.com", "mqtt.example.com")
#: Directories of a service, of backups and of data, which the reader has below the temporary directory.
DIRECTORIES = ("/etc/mqbridge", "/var/lib/mqbridge", "/backup", "/srv")
#: Commands that run until Ctrl-C.
ENDLESS = ("make run", "mqbridge run", "stdbuf", "mosquitto_sub", "mqbridge lake", "mqbridge pipeline run", "while ")
SERVICE = """
queue_manager: {{scripts: [orders.mqsc], data_directory: {data}}}
control_socket: {data}/control
channels:
- {{name: PLAIN.MQTT, port: 1883}}
{channels}
admin: {{port: 9158, authentication: []}}
mappings:
  orders: {{from: {{mqtt: "orders/#"}}, to: {{queue: ORDERS}}}}
"""
IBM_QM1 = "queue_manager: {type: ibm, name: QM1, channel: MQTT.BRIDGE, connections: mq1(1414), library: ibmmq}\n"
#: IBM's runmqsc ends with 0, too, if a command fails. The embedded queue manager has the bridge's objects already.
RUNMQSC = """
output=$(MQI_STANDIN={place} mqbridge mqsc run - -c administrator.yaml 2>&1)
echo "$output"
! echo "$output" | grep '^-:' | grep -v AMQ8150E
"""
TLS_CHANNEL = """
- name: DEVICES
  port: 8883
  tls: {{certificate_file: {directory}/server.pem, key_file: {directory}/server.key}}
  authentication: [{{method: password, file: {directory}/etc/mqbridge/clients.passwd}}]
"""


class Reader:
    """Type the commands of a page into shells, in a separate directory."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.stack = stack
        self._replaced = {port: str(free_port()) for port in PORTS}
        self._replaced |= {path: f"{directory}{path}" for path in DIRECTORIES} | dict.fromkeys(HOSTS, "localhost")
        #: the running bridge
        self.bridge: LineProcess | None = None
        #: the command of the bridge that ran last, initially that of the service
        self._started = [str(MQBRIDGE), "run", self._replaced["/etc/mqbridge"] + "/bridge.yaml"]
        #: the configuration file of the second host
        self.standby: Path | None = None
        #: processes that run until Ctrl-C, except bridges
        self.devices: list[LineProcess] = []
        #: whether packages for IBM MQ and Spark sessions need separate processes
        self.has_processes = False
        #: a command that prints a line for each subscription
        self.subscriptions = "mqbridge mqsc display SUB(*) -o name"
        for path in (*DIRECTORIES, "/bin"):
            (directory / path[1:]).mkdir(parents=True)
        for name in ("mosquitto_pub", "mosquitto_sub"):  # with the port of the bridge in place of 1883
            real = shlex.join(["stdbuf", "-oL", program(name)])
            port = self._replaced["1883"]
            self.install(name, f'case " $* " in *" -p "*) exec {real} "$@" ;; esac\nexec {real} -p {port} "$@"\n')
        self.env = {**os.environ, "PATH": f"{directory}/bin:{MQBRIDGE.parent}:{os.environ['PATH']}"}

    def install(self, name: str, script: str) -> None:
        """Install a command of this reader."""
        file = self.directory / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}")
        file.chmod(0o755)

    def replace(self, written: str, own: str) -> None:
        """Type something different from the page, from now on."""
        self._replaced = {written: own, **self._replaced}

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
            if block.first:
                self.do(block.first)
            if block.file:
                self.write(block.file, block.text)
            elif block.language == "console" and not block.reason:
                for command in block.commands():
                    self.type(command, f"{page.name}:{block.line}")
            elif block.language == "text" and page.stem.startswith("tutorial"):  # printed by mosquitto_sub
                for line in block.text.splitlines():
                    self.devices[-1].line_where(line.__eq__)

    def do(self, *commands: str) -> None:
        """Type commands that are not on the page."""
        for command in commands:
            self.type(Command(command), "before the page")

    def type(self, command: Command, place: str) -> None:
        """Type a command and compare the output that the page shows. A bridge replaces the previous one."""
        place = f"{place}: {command.text}"
        text = self.here(command.text)
        expected_lines = [self.here(line) for line in command.output if line.strip() not in ("…", "")]
        if text.startswith(ENDLESS):
            self._start(text, expected_lines)
            return
        if text.startswith("systemctl "):
            self._systemctl(text.split()[1])
            return
        if text.startswith("mqbridge passwd"):
            text = f"echo {PASSWORD} | {text} --stdin"
        status, stdout, stderr = self.run(text)
        fails = any(line.startswith("mqbridge: error:") for line in expected_lines)
        assert (status != 0) == fails, f"{place}\n{stdout}{stderr}"
        lines = iter(f"{stdout}\n{stderr}".splitlines())
        for expected in expected_lines:
            assert any(matches(expected, line) for line in lines), f"{place}\nexpected {expected!r}\n{stdout}{stderr}"

    def run(self, text: str) -> tuple[int, str, str]:
        """Run a command to its end. Return its exit status and output."""
        if text.startswith("mqbridge ") and not re.search(r"[|<>;&$]", text):  # without a shell, which is faster
            words = shlex.split(text, comments=True)[1:]
            if self.has_processes:
                process = forked_process.run(*words, env=self.env, cwd=self.directory)
                return process.returncode, process.stdout, process.stderr
            with contextlib.chdir(self.directory):
                result = CliRunner().invoke(cli, words, env=self.env)
            return result.exit_code, result.stdout, result.stderr
        file = self.directory / "environment"
        process = subprocess.run(
            ["bash", "-c", f"{text}\nstatus=$?\nenv -0 >{file}\nexit $status"],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        self.env = dict(variable.split("=", 1) for variable in file.read_text().rstrip("\0").split("\0"))
        return process.returncode, process.stdout, process.stderr

    def _start(self, text: str, expected_lines: list[str]) -> None:
        if text == "make run":
            text = f"mqbridge run --port {self._replaced['1883']}"
            # The other lines need make and a terminal (tests/acceptance/test_life_cycle.py).
            expected_lines = [line for line in expected_lines if " INFO " in line]
        if text.startswith("mqbridge run"):
            self.stop()
            self._started = [str(MQBRIDGE), *shlex.split(text)[1:]]
            self.bridge = self.stack.enter_context(LineProcess(self._started, cwd=self.directory, env=self.env))
            for expected in expected_lines or ["… MQB0012I ready after …"]:
                self.bridge.line_where(lambda line, expected=expected: matches(expected, line))  # type: ignore[misc]
            return
        if text.startswith("mqbridge lake"):
            self._write_lake(text)
            return
        if text.startswith("mqbridge pipeline run"):
            with LineProcess([MQBRIDGE, *shlex.split(text)[1:]], cwd=self.directory, env=self.env) as process:
                for expected in expected_lines:
                    process.line_where(lambda line, expected=expected: matches(expected, line))  # type: ignore[misc]
                assert process.terminate() == 0, process.rest()
            return
        count = self._subscriptions()
        command = ["bash", "-c", text if text.startswith("while ") else f"exec {text}"]
        self.devices.append(self.stack.enter_context(LineProcess(command, cwd=self.directory, env=self.env)))
        if "mosquitto_sub" in text:
            until(lambda: self._subscriptions() > count, lambda: self.devices[-1].lines_so_far())

    def _write_lake(self, text: str) -> None:
        """Stop the command after it has received a message, which its next run writes to a file."""
        words = shlex.split(text)[1:]
        lake = Path(words[1])
        count = self._subscriptions()
        with LineProcess([MQBRIDGE, *words], cwd=self.directory, env=self.env) as process:
            if "--topic" in words:
                until(lambda: self._subscriptions() > count)
                self.do("mosquitto_pub -t sensors/1 -q 1 -m 21.5")
            until(lambda: any(lake.rglob("*.arrow")))
            assert process.terminate() == 0
        status, stdout, stderr = self.run(f"{text} --once")
        assert status == 0, stdout + stderr
        assert any(lake.rglob("*.parquet")) and not any(lake.rglob("*.arrow"))

    def _systemctl(self, verb: str) -> None:
        """Start or stop the last bridge, as its service."""
        if verb in ("stop", "restart"):
            self.stop()
        if verb in ("start", "restart", "enable"):
            self._start(shlex.join(["mqbridge", *self._started[1:]]), [])
            if self.standby:
                command = [MQBRIDGE, "run", self.standby]
                second = self.stack.enter_context(LineProcess(command, cwd=self.directory, env=self.env))
                second.line_where(lambda line: "MQB0017I" in line)

    def _subscriptions(self) -> int:
        _, names, _ = self.run(self.subscriptions)
        return len(names.splitlines())

    def stop(self) -> None:
        """Stop the bridge, as Ctrl-C does."""
        if self.bridge is not None:
            assert self.bridge.terminate() == 0, self.bridge.rest()
            self.bridge = None

    def client(self, client_id: str, *filters: tuple[str, int]) -> RawClient:
        """A connected client with a durable session."""
        client = RawClient.connected(int(self._replaced["1883"]), client_id, clean=False)
        client.subscribe(*filters)
        return client


def matches(expected: str, line: str) -> bool:
    """Return whether a line matches the expected one, in which … stands for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.rstrip().split("…"))
    return re.fullmatch(pattern, line.rstrip()) is not None


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    program("openssl")
    with ExitStack() as stack:
        yield Reader(tmp_path, stack)


def start_service(reader: Reader, data_directory: str = "/var/lib/mqbridge", channels: str = "") -> None:
    """A bridge with the configuration of a service, and a mapping."""
    reader.write("etc/mqbridge/orders.mqsc", "DEFINE QLOCAL(ORDERS) REPLACE\n")
    reader.write("etc/mqbridge/bridge.yaml", SERVICE.format(data=data_directory, channels=channels))
    config = "/etc/mqbridge/bridge.yaml"
    reader.do("cp etc/mqbridge/* .", f"export MQBRIDGE_CONFIG={config}", f"mqbridge run {config}")


def service(reader: Reader, data_directory: str = "/var/lib/mqbridge") -> None:
    """The service with a connected client, and two disconnected ones."""
    start_service(reader, data_directory)
    for name in ("pump-1", "pump-2"):
        with reader.client(name, (f"devices/{name}/#", 1)):
            pass
    pump = reader.stack.enter_context(reader.client("pump-7", ("devices/pump-7/#", 1), ("plant/#", 1)))
    pump.publish("plant/7", b"21.5", 1, retain=True)


def mapping_with_a_message(reader: Reader) -> None:
    """The files of the first mapping, and a message on its queue."""
    reader.do(
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=ca -keyout ca.key -out ca.pem",
        "export HIVE_PASSWORD=secret",
        "mqbridge run --port 1883",
        "echo 'DEFINE QLOCAL(PLANT.COMMANDS)' | mqbridge mqsc run -",
        "mqbridge mq put PLANT.COMMANDS start --property device=dev-1",
    )


def payloads(reader: Reader) -> None:
    """The page has all files that its commands need."""
    program("mosquitto_pub")


def service_with_a_dead_letter(reader: Reader, data_directory: str = "/var/lib/mqbridge") -> None:
    """The service, and a dead letter whose cause is repaired: the queue of a subscription was full."""
    service(reader, data_directory)
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
        for number in range(1, 4):
            until(lambda number=number: len(archive_files(reader.directory / "archive")) >= number)  # type: ignore[misc]
            pump.publish("plant/7", b"21.5", 1)
    reader.do("echo 'DEFINE QLOCAL(PLANT.AGAIN)' | mqbridge mqsc run -")
    now = datetime.datetime.now(datetime.UTC)
    for written, hours in (("2026-11-21T09:00", -1), ("2026-11-21T10:00", 1)):
        reader.replace(written, f"{now + datetime.timedelta(hours=hours):%Y-%m-%dT%H:%M}")


def console(reader: Reader) -> None:
    """The service, and a token of its console."""
    program("curl")
    service(reader)
    (token,) = re.findall(
        r"^admin:change:(\S+)$", (reader.directory / "var/lib/mqbridge/admin.tokens").read_text(), re.M
    )
    reader.do(f"export TOKEN={token}")


def applications(reader: Reader) -> None:
    """The configuration of the page."""
    program("curl")
    reader.do("export MQBRIDGE_CONFIG=bridge.yaml")


def lake(reader: Reader) -> None:
    """A bridge with a message on a queue."""
    reader.write("bridge.yaml", "control_socket: control\nchannels: [{name: PLAIN.MQTT, port: 1883}]\n")
    reader.do("export MQBRIDGE_CONFIG=bridge.yaml", "mqbridge run bridge.yaml")
    reader.do("echo 'DEFINE QLOCAL(ORDERS)' | mqbridge mqsc run -", "mqbridge mq put ORDERS hello")


def pipeline(reader: Reader) -> None:
    """The configuration file of the first pipeline."""
    page = blocks(HOW_TO / "pipelines.md")
    text = next(block.text for block in page if block.language == "yaml")
    reader.write("bridge.yaml", f"control_socket: control\nchannels: [{{name: PLAIN.MQTT, port: 1883}}]\n{text}")
    reader.has_processes = True
    reader.do("export MQBRIDGE_CONFIG=bridge.yaml")


def service_with_tls(reader: Reader) -> None:
    """The service, with a channel that other machines can reach."""
    authority = Authority(reader.directory)
    authority.issue("server")
    reader.write("etc/mqbridge/clients.passwd", "")
    reader.do("mqbridge passwd etc/mqbridge/clients.passwd pump-7")
    start_service(reader, channels=TLS_CHANNEL.format(directory=reader.directory))


def queue_manager(reader: Reader, host: QueueManagerProcess | None = None) -> QueueManagerProcess:
    """The stand-in for IBM MQ with queue manager QM1, a package on it, and IBM's command for MQSC."""
    built("the stand-in for IBM MQ", CLIENT_PACKAGES / "versions")
    host = host or QueueManagerProcess(reader.directory / "qm1", name="QM1")
    reader.stack.callback(host.discard)
    reader.has_processes = True
    reader.env |= library_environment("ibmmq") | {"MQI_STANDIN": host.start().place}
    reader.write(
        "administrator.yaml", "queue_manager: {type: ibm, name: QM1, channel: A, connections: a(1), library: ibmmq}\n"
    )
    reader.install("runmqsc", RUNMQSC.format(place=host.place))
    return host


def empty_queue_manager(reader: Reader) -> None:
    """A queue manager with TLS and users, the configuration of the page with a channel for the first message, and a CA."""
    authority = Authority(reader.directory)
    authority.issue("qm1", common_name="QM1")
    key = authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (reader.directory / "ca.key").write_bytes(key)
    reader.write("mq.password", f"{PASSWORD}\n").chmod(0o600)
    reader.write("key.password", f"{PASSWORD}\n")
    reader.write("users", f"mqbridge:{PASSWORD}\n")
    place = reader.directory
    tls = f"{{certificate_file: {place}/qm1.pem, key_file: {place}/qm1.key,"
    tls += f" client_certificates: required, ca_file: {place}/ca.pem}}"
    host = QueueManagerProcess(place / "qm1", name="QM1").listen(f"password_file: {place}/users", f"tls: {tls}")
    queue_manager(reader, host)
    reader.env["MQI_STANDIN"] = ""
    reader.replace("mq1(1414)", f"localhost({host.port})")
    (file,) = [block.text for block in blocks(HOW_TO / "ibm-mq.md") if "password_file: mq.password  " in block.text]
    reader.write(
        "bridge.yaml", f"{file}- name: LOCAL\n  port: 1883\n".replace("type: ibm", "type: ibm\n  library: ibmmq")
    )
    reader.do("export MQBRIDGE_CONFIG=bridge.yaml")
    # have REQUEST signed by the CA: CERTIFICATE
    reader.install("have", 'exec openssl x509 -req -in "$1" -CA ca.pem -CAkey ca.key -CAcreateserial -out "$6"\n')


def container_with_a_queue_manager(reader: Reader) -> None:
    """The stand-in for the container of the page: user `app` needs the password of the page, and authorities are enforced."""
    reader.write("users", "app:passw0rd\n")
    host = QueueManagerProcess(reader.directory / "qm1", name="QM1", authorities="enforced")
    queue_manager(reader, host.listen(f"password_file: {reader.directory}/users"))
    reader.env["MQI_STANDIN"] = ""
    reader.subscriptions = "echo 'DISPLAY SUB(*)' | runmqsc QM1"
    reader.replace("localhost(1414)", f"localhost({host.port})")
    reader.install("podman", 'test "$1 $2 $3" = "exec -i qm1" && shift 3 && exec "$@"\n')


def standby(reader: Reader) -> None:
    """The configuration files of two hosts. The second bridge starts after the first one, and stands by."""
    program("curl")
    authority = Authority(reader.directory)
    authority.issue("server")
    reader.do("mqbridge passwd etc/mqbridge/clients.passwd USER")
    queue_manager(reader)
    ports = {"10.0.0.11:9158": free_port(), "10.0.0.12:9158": free_port()}
    for (written, port), name, mqtt in zip(ports.items(), ("bridge", "second"), ("8883", "8884"), strict=True):
        reader.replace(written, f"127.0.0.1:{port}")
        channels = TLS_CHANNEL.format(directory=reader.directory).replace("8883", mqtt)
        control = f"{reader.directory}/{name}.control"
        text = f"{IBM_QM1}control_socket: {control}\nchannels:{channels}admin: {{port: {port}, authentication: []}}\n"
        reader.standby = reader.write(f"etc/mqbridge/{name}.yaml", text)
    reader.replace("PASSWORD", PASSWORD)
    reader.do("printf 'DEFINE CHANNEL(MQTT.BRIDGE) CHLTYPE(SVRCONN) HBINT(10)\\n' | runmqsc QM1")


def prepared_queue_manager(reader: Reader) -> None:
    """A queue manager, and a bridge that is not prepared yet."""
    queue_manager(reader)
    for name in ("bridge.yaml", "etc/mqbridge/bridge.yaml"):
        channels = "channels: [{name: PLAIN.MQTT, port: 1883}]\n"
        reader.write(name, f"{IBM_QM1}control_socket: {reader.directory}/control\n{channels}")
    reader.do("export MQBRIDGE_CONFIG=bridge.yaml")


#: The initial state for the reader of a page.
SCENES: dict[str, Callable[[Reader], None]] = {
    "applications": applications,
    "archive": archive,
    "tutorial": lambda reader: None,
    "tutorial-ibm-mq": container_with_a_queue_manager,
    "console": console,
    "data-lake": lake,
    "device-developer": service_with_tls,
    "devices": service,
    "high-availability": standby,
    "ibm-mq": empty_queue_manager,
    "mappings": mapping_with_a_message,
    "mq-administrator": lambda reader: service_with_a_dead_letter(reader, f"{reader.directory}/data"),
    "moving-from-mqxr": prepared_queue_manager,
    "operations": service,
    "payloads": payloads,
    "pipelines": pipeline,
    "records": service,
    "troubleshooting": service,
    "upgrading": service,
    "without-mqxr": prepared_queue_manager,
}


#: Each command starts a Spark session, which takes 10 seconds.
SLOW = ("pipelines",)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SCENES])
def test_the_commands_of_a_page(name: str, reader: Reader) -> None:
    (page,) = [page for page in PAGES if page.stem == name]
    SCENES[name](reader)
    reader.follow(page)
    if name == "ibm-mq":
        reader.devices[-1].line_where("now".__eq__)
    if name == "high-availability":
        a_publication_arrives_each_second(reader)
    if name == "tutorial":
        a_wrong_password_is_rejected_with_the_documented_message(reader, page)
    reader.stop()


def a_publication_arrives_each_second(reader: Reader) -> None:
    command = f"mosquitto_sub -p 8883 --cafile ca.pem -u USER -P {PASSWORD} -t test/failover -C 2"
    status, stdout, stderr = reader.run(reader.here(command))
    assert status == 0 and len(stdout.split()) == 2, stdout + stderr


def a_wrong_password_is_rejected_with_the_documented_message(reader: Reader, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (publish,) = re.findall(r"^\$ (mosquitto_pub .*)$", text, re.M)
    (message,) = re.findall(r"device reports `([^`]+)`", text)
    status, _, stderr = reader.run(reader.here(publish.replace(f"-P {PASSWORD}", "-P wrong")))
    assert status != 0 and message in stderr
    (identifier,) = re.findall(r"mqbridge explain (\w+)", text)
    assert reader.bridge is not None
    reader.bridge.line_where(lambda line: identifier in line)
    assert re.search(r"^admin:change:\S+$", (reader.directory / "data" / "admin.tokens").read_text(), re.M)


@pytest.mark.parametrize("shell", ["bash -m -c", "zsh -f -i -c"])
def test_the_quick_start(shell: str, reader: Reader) -> None:
    """Its blocks are typed into one shell, after the command that starts the bridge."""
    command = shell.split()
    program(command[0])
    page = blocks(ROOT / "README.md")
    (start,) = [block for block in page if block.text.startswith("$ make run\n")]
    for start_command in start.commands():
        reader.type(start_command, "README")
    script = "\n".join(block.text for block in page if block.language == "sh")
    assert "#" not in script.replace("'plant/#'", ""), "an interactive zsh does not know comments"
    (expected,) = [block.text for block in page if block.language == "text"]
    process = subprocess.run(
        [*command, reader.here(script)],
        cwd=reader.directory,
        env=reader.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    lines = process.stdout.splitlines()
    assert [line for line in lines if "(QoS" in line] == expected.splitlines(), process.stdout + process.stderr


def test_the_first_mapping_of_the_readme_puts_to_the_queue_that_the_mqsc_defines(reader: Reader) -> None:
    page = blocks(ROOT / "README.md")
    (config,) = [block.text for block in page if block.language == "yaml"]
    (mqsc,) = [block.text for block in page if block.language == "mqsc"]
    (payload,) = re.findall(r"publishes `([^`]+)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    reader.write("bridge.yaml", config)
    queue = mqsc.strip().removeprefix("DEFINE QLOCAL(").removesuffix(")")
    command = f"mqbridge try readings -c bridge.yaml --topic plant/readings --payload '{payload}'"
    reader.type(Command(command, [f"put to queue {queue}"]), "README")


def test_all_blocks_are_run_or_marked_with_a_reason() -> None:
    tested = {*SCENES, "README", "mapping-examples", "tls"}
    for page in PAGES:
        for block in blocks(page):
            assert not block.is_command or block.reason or page.stem in tested, f"{page}:{block.line}"
            assert not block.mark.startswith("not run") or block.is_command, f"{page}:{block.line}"
