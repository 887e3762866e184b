"""The servers under test. Each is a process that is started on a free port and always stopped."""

from __future__ import annotations

import atexit
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bridge.compilation import PURE

ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)")
START_WAIT = 20.0
STOP_WAIT = 5.0


class ServerUnavailable(Exception):
    """The server could not be started."""


def free_port() -> int:
    """Return a loopback port on which no process listens at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Server:
    """A server process. Subclasses define how to start it."""

    name = ""
    #: Whether the server is measured only with durable sessions and QoS 1 and 2, and without latency and idle clients.
    durable_only = False

    def __init__(self, cores: set[int] | None = None) -> None:
        self.cores = cores
        self.port = 0
        self.folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command line. `self.folder` is an empty directory for configuration and data."""
        raise NotImplementedError

    def version(self) -> str:
        """Return the version of the server under test, for the report."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The process whose CPU time and memory are measured."""
        if self._process is None:
            raise ServerUnavailable(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until the server accepts connections."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        atexit.register(self.stop)
        try:
            self.port = free_port()
            self.launch()
        except (OSError, subprocess.SubprocessError) as error:
            self.stop()
            raise ServerUnavailable(str(error)) from error
        except BaseException:
            self.stop()
            raise

    def launch(self) -> None:
        """Start the process on the existing files, and wait until it accepts connections."""
        log = (self.folder / "log").open("wb")  # A file, because a pipe without a reader would block the server.
        with log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "200"},
                start_new_session=True,
            )
        if self.cores:
            os.sched_setaffinity(self._process.pid, self.cores)
        self._await()

    def crash(self) -> None:
        """Kill the process and its children with SIGKILL, and keep the files."""
        os.killpg(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_WAIT)

    def stop(self) -> None:
        """Stop the process and its children, and remove its files. Does nothing if no process runs."""
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is not None:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, sign)  # its own session, hence its own process group
                except ProcessLookupError:
                    break
                try:
                    process.wait(STOP_WAIT)
                except subprocess.TimeoutExpired:
                    continue
            process.wait(STOP_WAIT)
        if self.folder.name.startswith("bench-"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def last_words(self) -> str:
        """Return the last line of the server's output."""
        try:
            lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1].strip() if lines else "no output"

    def _await(self) -> None:
        until = time.monotonic() + START_WAIT
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                raise ServerUnavailable(f"ended at once: {self.last_words()}")
            if self._ready():
                return
            time.sleep(0.05)
        raise ServerUnavailable(f"not ready after {START_WAIT:.0f} s: {self.last_words()}")

    def _ready(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0


class Announced(Server):
    """A server that chooses its own port and prints its address."""

    #: prefix of the line with the address for MQTT clients
    address = ADDRESS

    def _ready(self) -> bool:
        match = self.address.search((self.folder / "log").read_text(errors="replace"))
        if match:
            self.port = int(match[1])
        return match is not None and super()._ready()


#: Caption of tables that compare durable sessions.
STORAGE = (
    "mosquitto (persistence false) and amqtt keep messages in memory only. mosquitto-autosave writes its whole database"
    " after each change (autosave_interval 1, autosave_on_changes true), but may send PUBACK before. The bridge writes QoS 1"
    " and 2 messages for durable sessions to disk (fsync) before PUBACK and PUBREC."
)


class Mosquitto(Server):
    """mosquitto with its default configuration, except that it drops nothing under this load.

    The default is no persistence. With persistence, mosquitto writes its whole database at intervals, or after a number
    of changes (mosquitto.conf: autosave_interval, autosave_on_changes). Its limit of messages in flight also applies to
    QoS 2 publishers. With the default (20) it disconnects a publisher with a larger window. 1000 is above every window
    that the options allow.
    """

    name = "mosquitto"
    in_flight = 1000
    #: Lines of the configuration file about persistence.
    persistence: tuple[str, ...] = ("persistence false",)
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"

    def command(self) -> list[str]:
        config = self.folder / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous true",
            f"user {getpass.getuser()}",
            "max_queued_messages 0",
            f"max_inflight_messages {self.in_flight}",
            f"persistence_location {self.folder}/",
            *self.persistence,
        ]
        config.write_text("\n".join(lines) + "\n")
        return [self.program, "-c", str(config)]

    def version(self) -> str:
        try:
            output = subprocess.run(
                [self.program, "-h"], capture_output=True, text=True, timeout=10, check=False
            ).stdout
        except OSError:
            return "not installed"
        match = re.search(r"version (\S+)", output)
        return match[1] if match else "unknown"


class MosquittoPersistent(Mosquitto):
    """mosquitto with `persistence true` and the default interval of 30 minutes."""

    name = "mosquitto-persistent"
    persistence = ("persistence true",)


class MosquittoAutosave(Mosquitto):
    """mosquitto that writes its database after every change."""

    name = "mosquitto-autosave"
    durable_only = True
    persistence = ("persistence true", "autosave_interval 1", "autosave_on_changes true")


class FlashMq(Server):
    """FlashMQ, with limits that do not drop the messages of this load."""

    name = "flashmq"
    program = shutil.which("flashmq") or "/usr/bin/flashmq"

    def command(self) -> list[str]:
        config = self.folder / "flashmq.conf"
        config.write_text(
            f"storage_dir {self.folder}\nallow_anonymous true\nlog_level notice\n"
            "max_qos_msg_pending_per_client 65535\nmax_qos_bytes_pending_per_client 4294967295\n"
            f"listen {{\n  protocol mqtt\n  port {self.port}\n  inet4_bind_address 127.0.0.1\n  inet_protocol ip4\n}}\n"
        )
        return [self.program, "--config-file", str(config)]

    def version(self) -> str:
        try:
            help_text = subprocess.run(
                [self.program, "--version"], capture_output=True, text=True, timeout=10, check=False
            )
        except OSError:
            return "not installed"
        match = re.search(r"(\d+\.\d+\.\d+)", help_text.stdout + help_text.stderr)
        return match[1] if match else "unknown"


class Amqtt(Server):
    """amqtt without its event and packet loggers, which would slow it down considerably."""

    name = "amqtt"

    def command(self) -> list[str]:
        config = self.folder / "amqtt.yaml"
        config.write_text(
            f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{self.port}\n"
            "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
        )
        return [str(Path(sys.executable).parent / "amqtt"), "-c", str(config)]

    def version(self) -> str:
        return installed("amqtt")


class Bridge(Announced):
    """The bridge with a fresh data directory."""

    name = "bridge"

    def __init__(self, cores: set[int] | None = None, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(cores)
        self.arguments = arguments

    def command(self) -> list[str]:
        script = str(Path(sys.executable).parent / "mqbridge")
        return [script, "run", "--data-dir", str(self.folder / "data"), "--port", "0", *self.arguments]

    def version(self) -> str:
        return f"{installed('mqbridge')} ({f'pure Python: {PURE}' if PURE else 'compiled'})"


class RelayServer(Announced):
    """The trivial forwarder that shows the maximum rate of the generator."""

    name = "relay"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.benchmarks.relay"]

    def version(self) -> str:
        return "-"


def installed(distribution: str) -> str:
    """The installed version of a Python distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def peers(directory: Path) -> dict[str, type[Server]]:
    """Return the servers of BENCH_PEERS: each executable `mosquitto*` or `flashmq*` in a directory, by its file name.

    A build of mosquitto is also measured with autosave.
    """
    servers: dict[str, type[Server]] = {}
    for path in sorted(directory.iterdir()):
        if not os.access(path, os.X_OK) or path.is_dir():
            continue
        if path.name.startswith("mosquitto"):
            for base, suffix in ((Mosquitto, ""), (MosquittoAutosave, "-autosave")):
                name = f"{path.name}{suffix}"
                servers[name] = type("Peer", (base,), {"name": name, "program": str(path)})
        elif path.name.startswith("flashmq"):
            servers[path.name] = type("Peer", (FlashMq,), {"name": path.name, "program": str(path)})
    return servers


PEERS = peers(Path(os.environ["BENCH_PEERS"])) if "BENCH_PEERS" in os.environ else {}
SERVERS: dict[str, type[Server]] = {
    s.name: s for s in (Mosquitto, MosquittoAutosave, Amqtt, Bridge, RelayServer)
} | PEERS
