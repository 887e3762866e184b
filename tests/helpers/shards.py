"""Bridges of the shards of one queue manager, on one or more hosts, and HAProxy in front of them."""

from __future__ import annotations

import itertools
import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.telemetry.shard import Shard
from tests.helpers.administrator import Administrator
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess
from tests.helpers.scrape import ask

OF = 2
#: Times of the health checks in the shipped configuration of HAProxy.
CHECKS = "inter 2s fastinter 500ms downinter 500ms fall 2"
SHARDS = [Shard(number, OF) for number in range(OF)]


@dataclass(frozen=True)
class Host:
    """Where processes of bridges run: this machine, or a network namespace."""

    address: str = "127.0.0.1"
    namespace: str = ""
    #: the address from which HAProxy connects
    balancer: str = "127.0.0.1"

    @property
    def wrapper(self) -> list[str]:
        """Words before a command that runs on this host."""
        return ["ip", "netns", "exec", self.namespace] if self.namespace else []


LOCAL = Host()


def client_of(number: int, name: str = "client", of: int = OF) -> str:
    """A client identifier that belongs to a shard."""
    shard = Shard(number, of)
    return next(client_id for client_id in (f"{name}{count}" for count in range(1_000)) if shard.owns(client_id))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reachable(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.settimeout(PATIENCE)
        return probe.connect_ex((address, port)) == 0


class Site:
    """A queue manager, and the bridges of its shards."""

    def __init__(
        self,
        directory: Path,
        remote: Callable[..., RemoteBridgeProcess],
        *,
        queue_manager: QueueManagerProcess | None = None,
        settings: str = "",
        library: str = "ibmmq",
    ) -> None:
        """`queue_manager` has a TCP listener, which its bridges use. None: the first bridge makes one.

        `settings` are options of the section `queue_manager` of all bridges.
        """
        self._directory, self._remote, self._settings, self._library = directory, remote, settings, library
        self.queue_manager = queue_manager
        self._place = ""
        if queue_manager is not None:
            queue_manager.start()
            self._place = f"{queue_manager.address}({queue_manager.port})"

    def bridge(
        self, number: int, name: str = "", *, of: int = OF, settings: str = "", config: str = ""
    ) -> RemoteBridgeProcess:
        """Make a bridge of a shard, and its queues. The first one makes the queue manager.

        `settings` are more options of the section `queue_manager`.
        """
        name = name or f"shard-{number}"
        text = f"  shard: {{number: {number}, of: {of}, server_reference: 'mqtt-{{shard}}.example.com'}}\n"
        bridge = self._remote(
            name,
            library=self._library,
            settings=text + self._settings + settings,
            config=f"control_socket: {self._directory / name}.control\n{config}",
            queue_manager=self.queue_manager,
        )
        if self.queue_manager is None:
            self.queue_manager = bridge.queue_manager
            bridge.queue_manager.start()
        bridge.env["MQI_STANDIN"] = self._place or self.queue_manager.place
        self.prepare(bridge)
        return bridge

    def prepare(self, bridge: RemoteBridgeProcess) -> None:
        """Run the output of `mqsc-script` for a bridge."""
        result = bridge.run_mq("run", "-", stdin=Administrator(bridge).does("mqsc-script").encode())
        failed = [
            line for line in result.stdout.decode().splitlines() if ": AMQ" in line and "already exists" not in line
        ]
        assert not failed, failed
        if self._place:
            # The script permits addresses that an administrator fills in.
            bridge.mqsc(
                "SET CHLAUTH(DEV.APP.SVRCONN) TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(MAP) MCAUSER('mqbridge')"
                " ACTION(REPLACE)\n"
            )


def start_all(processes: Sequence[ShardProcess]) -> None:
    """Start processes at the same time, and return when each is active or stands by."""
    with ThreadPoolExecutor() as executor:
        list(executor.map(ShardProcess.start, processes))


class ShardProcess:
    """A bridge process of a shard, active or standby, with fixed ports. Its log is a file, which does not fill up."""

    def __init__(
        self,
        site: Site,
        number: int,
        name: str,
        *,
        of: int = OF,
        host: Host = LOCAL,
        behind_proxy: bool = True,
        settings: str = "",
        config: str = "",
    ) -> None:
        self.host, self.port, self.admin = host, free_port(), free_port()
        if host.namespace:
            # There, connections of other processes could use a free port.
            self.port, self.admin = 8880 + number, 9150 + number
        proxies = f"[{host.balancer}]" if behind_proxy else "[]"
        config += (
            f"channels: [{{name: SHARD, port: {self.port}, address: {host.address}, proxies: {proxies},"
            " allow_anonymous_remote: true}]\n"
            f"admin: {{port: {self.admin}, address: {host.address}, allow_plain_remote: true}}\n"
        )
        self._bridge = site.bridge(number, f"shard-{number}{name}", of=of, settings=settings, config=config)
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
            command = [*self.host.wrapper, MQBRIDGE, "run", str(self._bridge.config)]
            self._process = subprocess.Popen(command, env=self._bridge.env, stdout=log, stderr=log)

    @contextmanager
    def _logs_state(self) -> Iterator[None]:
        """Wait at the end of the block until the process has logged that it is active or stands by."""
        before = len(self.log)
        yield
        until(lambda: re.search("MQB001[267][IS]", self.log[before:]) is not None, lambda: self.log[before:])
        assert "MQB0016S" not in self.log[before:], self.log[before:]

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: int) -> None:
        """End the process with a signal."""
        assert self._process is not None
        self.signal(number)
        self._process.wait()
        assert number != signal.SIGTERM or self._process.returncode == 0, self.log

    def restart(self, number: int) -> None:
        """End the process with a signal, and start it again."""
        self.end(number)
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
        """Whether it is the active bridge."""
        return self.readiness[0] == 200

    @property
    def stands_by(self) -> bool:
        """Whether it is the standby."""
        return self.readiness[1].startswith("standing by")

    @property
    def readiness(self) -> tuple[int, str]:
        """The answer to the health check. (0, "") while the bridge does not listen, between being active and standing by."""
        address = self.host.address
        if not reachable(self.admin, address):
            return 0, ""
        try:
            return ask(f"http://{address}:{self.admin}/readyz")
        except OSError:  # it stopped listening in the meantime
            return 0, ""

    def discard(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert "Traceback" not in self.log, self.log


def balanced(
    text: str,
    listen: int,
    own: int,
    servers: Sequence[Sequence[tuple[str, int, int]]],
    *,
    tls: Path | None = None,
    checks: str = "inter 100ms fall 2",
) -> str:
    """Return the shipped configuration of HAProxy for other bridges and more shards.

    `listen` and `own` are the ports of its listeners, and `servers` the address, port and admin port of each bridge of each
    shard. `tls` is a directory with certificates (`tests.helpers.certificates`). `checks` are the times of health checks.
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
    text = text.replace("send-proxy-v2-ssl-cn", proxy).replace("mod(2)", f"mod({max(len(servers), OF)})")
    if checks != CHECKS:
        # A busy machine may take long to answer.
        text = text.replace("timeout connect 5s", "timeout connect 5s\n  timeout check 20s").replace(CHECKS, checks)
    last = text[text.index("\nbackend shard-1\n") :]
    for number in range(OF, len(servers)):
        text += (
            last.replace("shard-1", f"shard-{number}")
            .replace(":8881", f":888{number}")
            .replace("port 9151", f"port 915{number}")
        )
    for number, pair in enumerate(servers):
        for host, (address, port, admin) in enumerate(pair, 11):
            text = text.replace(
                f"10.0.0.{host}:888{number} check port 915{number}", f"{address}:{port} check port {admin}"
            )
        if len(pair) == 1:
            text = re.sub(rf" *server host2 10\.0\.0\.12:888{number} .*\n", "", text)
    return text


def status(bridge: RemoteBridgeProcess) -> Any:
    # Between being active and standing by, the process does not answer.
    return json.loads(Administrator(bridge).run("status", "--json").stdout or '{"state": ""}')


def members_of(bridges: Sequence[RemoteBridgeProcess], **keywords: Any) -> list[RawClient]:
    """Connect a member of `$share/g/t` to each shard."""
    members = [
        RawClient.connected(bridge.port, client_of(number, "member"), **keywords)
        for number, bridge in enumerate(bridges)
    ]
    for member in members:
        assert member.subscribe(("$share/g/t", 1)) == (1,)
    return members


def reconnected(bridge: RemoteBridgeProcess, member: RawClient) -> RawClient:
    """Connect a member with a durable session again."""
    again = RawClient(bridge.port, member.packet.client_id, clean=False)
    assert again.connect().session_present
    return again


def received(members: Sequence[RawClient], count: int) -> list[list[bytes]]:
    """Receive this number of different publications, however they are distributed. Return the payloads of each member."""
    payloads: list[list[bytes]] = [[] for _ in members]

    def complete() -> bool:
        for member, own in zip(members, payloads, strict=True):
            member.ping()
            while member.inbox:
                own.append(member.take().payload)
        return len({*itertools.chain(*payloads)}) >= count

    until(complete, lambda: payloads)
    return payloads


def assert_nothing_is_left(bridge: RemoteBridgeProcess) -> None:
    """Wait until the last requests are done. Then no subscription exists, and no message waits."""
    until(lambda: "AMQ8147E" in bridge.run_mq("display", "SUB(*)").stderr.decode())
    names = [f"SYSTEM.MQTT.{name}" for name in ("SHARE.MEMBERS", "TRANSMIT.QUEUE.0", "TRANSMIT.QUEUE.1")]

    def waiting() -> dict[str, list[Any]]:
        return {name: messages for name in names if (messages := bridge.messages(name))}

    until(lambda: not waiting(), waiting)
    for name in names:
        bridge.wait_for_depth(name, 0)  # also without uncommitted messages
    queues = bridge.mq_json("display", "QLOCAL(*)", "CURDEPTH")
    assert not [row for row in queues if row["QUEUE"].startswith("SYSTEM.MANAGED.")]
