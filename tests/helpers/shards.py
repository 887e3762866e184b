"""Bridges of two shards of one queue manager, and HAProxy in front of them."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bridge.telemetry.shard import Shard
from tests.helpers.administrator import Administrator
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.patience import until
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess
from tests.helpers.scrape import ask

OF = 2
SHARDS = [Shard(number, OF) for number in range(OF)]


def client_of(number: int, name: str = "client") -> str:
    """A client identifier that belongs to a shard."""
    return next(one for one in (f"{name}{count}" for count in range(1_000)) if SHARDS[number].owns(one))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reachable(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Site:
    """A queue manager, and the bridges of its shards."""

    def __init__(self, directory: Path, remote: Callable[..., RemoteBridgeProcess]) -> None:
        self._directory, self._remote = directory, remote
        self.queue_manager: QueueManagerProcess | None = None

    def bridge(self, number: int, name: str = "", *, of: int = OF, config: str = "") -> RemoteBridgeProcess:
        """Make a bridge of a shard, and its queues. The first one makes the queue manager."""
        name = name or f"shard-{number}"
        text = f"  shard: {{number: {number}, of: {of}, server_reference: 'mqtt-{{shard}}.example.com'}}\n"
        bridge = self._remote(
            name,
            settings=text,
            config=f"control_socket: {self._directory / name}.control\n{config}",
            queue_manager=self.queue_manager,
        )
        if self.queue_manager is None:
            self.queue_manager = bridge.queue_manager
            bridge.queue_manager.start()
            bridge.env["MQI_STANDIN"] = bridge.queue_manager.place
        assert bridge.config is not None
        script = subprocess.run(
            [MQBRIDGE, "mqsc-script", "--config", bridge.config],
            capture_output=True,
            text=True,
            check=True,
            env=bridge.env,
        ).stdout
        done = bridge.run_mq("run", "-", stdin=script.encode())
        failed = [
            line for line in done.stdout.decode().splitlines() if ": AMQ" in line and "already exists" not in line
        ]
        assert not failed, failed
        return bridge


class ShardProcess:
    """A bridge process of a shard, active or standby, with fixed ports. Its log is a file, which does not fill up."""

    def __init__(self, site: Site, number: int, name: str, *, behind_proxy: bool = True, config: str = "") -> None:
        self.port, self.admin = free_port(), free_port()
        proxies = "[127.0.0.1]" if behind_proxy else "[]"
        config += (
            f"channels: [{{name: SHARD, port: {self.port}, address: 127.0.0.1, proxies: {proxies}}}]\n"
            f"admin: {{port: {self.admin}}}\n"
        )
        self._bridge = site.bridge(number, f"shard-{number}{name}", config=config)
        self.administrator, self.mq, self.mqsc = Administrator(self._bridge), self._bridge.mq, self._bridge.mqsc
        assert self._bridge.config is not None
        self._log = self._bridge.config.with_suffix(".log")
        self._log.touch()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What the process has logged, in all its runs."""
        return self._log.read_text()

    def start(self) -> None:
        """Start the process, and return when it is active or stands by."""
        with self._logs_state(), self._log.open("ab") as log:
            command = [MQBRIDGE, "run", str(self._bridge.config)]
            self._process = subprocess.Popen(command, env=self._bridge.env, stdout=log, stderr=log)

    @contextmanager
    def _logs_state(self) -> Iterator[None]:
        """Wait at the end of the block until the process has logged that it is active or stands by."""
        before = len(self.log)
        yield
        until(lambda: re.search("MQB0012I|MQB0017I", self.log[before:]) is not None, lambda: self.log[before:])

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def restart(self, number: int) -> None:
        """End the process with a signal, and start it again."""
        assert self._process is not None
        self.signal(number)
        self._process.wait()
        assert number != signal.SIGTERM or self._process.returncode == 0, self.log
        self.start()

    def hand_over(self) -> None:
        """Run `mqbridge yield`, which a standby refuses, and wait until the process stands by, or is active again."""
        if self.ready:
            with self._logs_state():
                self.request_yield()

    def request_yield(self) -> None:
        """Run `mqbridge yield`, and do not wait for its effect."""
        self.administrator.run("yield", "--yes")

    @property
    def ready(self) -> bool:
        """Whether it is the active bridge. Between its work as active bridge and as standby, it does not listen."""
        return reachable(self.admin) and ask(f"http://127.0.0.1:{self.admin}/readyz")[0] == 200

    def discard(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert "Traceback" not in self.log, self.log


def balanced(
    text: str, listen: int, own: int, servers: Sequence[Sequence[tuple[int, int]]], *, tls: Path | None = None
) -> str:
    """Return the shipped configuration of HAProxy for bridges on this machine.

    `listen` and `own` are the ports of its listeners, and `servers` the port and admin port of each bridge of each shard.
    `tls` is a directory with certificates (`tests.helpers.certificates`).
    """
    proxy = "send-proxy-v2"
    if tls is not None:
        proxy = "send-proxy-v2-ssl-cn"
        text = text.replace("bind :8883", f"bind 127.0.0.1:{listen}").replace("bind :8891", f"bind 127.0.0.1:{own}")
        text = text.replace("/etc/haproxy/mqtt.pem", f"{tls}/haproxy.pem").replace(
            "/etc/haproxy/clients-ca.pem", f"{tls}/ca.pem"
        )
    text = re.sub(r"bind :8883 .*", f"bind 127.0.0.1:{listen}", text)
    text = re.sub(r"bind :8891 .*", f"bind 127.0.0.1:{own}", text)
    # However long a busy machine takes to answer.
    text = text.replace("timeout connect 5s", "timeout connect 5s\n  timeout check 20s")
    text = re.sub(r"inter 2s fall 2", "inter 100ms fall 2", text).replace("send-proxy-v2-ssl-cn", proxy)
    for number, pair in enumerate(servers):
        for host, (port, admin) in enumerate(pair, 11):
            text = text.replace(
                f"10.0.0.{host}:888{number} check port 915{number}", f"127.0.0.1:{port} check port {admin}"
            )
        if len(pair) == 1:
            text = re.sub(rf" *server host2 10\.0\.0\.12:888{number} .*\n", "", text)
    return text
