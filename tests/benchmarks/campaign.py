"""The order of the measurements: brokers take turns within each round, so that a drift of the machine affects all."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bridge.mq.mqi import MQError
from tests.benchmarks import mapping
from tests.benchmarks.generator import MeasureFailed, measure
from tests.benchmarks.servers import PEERS, SERVERS, Bridge, RelayServer, Server, ServerUnavailable

MARGIN = 30.0
"""Seconds a measurement may take beyond its planned time before it is killed."""


@dataclass(frozen=True)
class Parameters:
    """The options of the command line."""

    brokers: tuple[str, ...] = ("mosquitto", "mosquitto-autosave", *PEERS, "amqtt", "bridge", "relay")
    qos: tuple[int, ...] = (0, 1, 2)
    sessions: tuple[str, ...] = ("clean", "durable")
    messages: tuple[int, int, int] = (400_000, 200_000, 100_000)
    amqtt_share: float = 0.125
    rounds: int = 3
    publishers: int = 4
    payload: int = 100
    window: int = 100
    # At QoS 2 a larger bound would make mosquitto walk its list of open handshakes for most of its time (measured:
    # 30 000/s at 4000, 80 000/s at 400). The comparison is with its best rate.
    backlog: tuple[int, int, int] = (4000, 4000, 400)
    seconds: float = 5.0
    idle_clients: int = 1000
    latency_rate: float = 500.0
    latency_seconds: float = 5.0
    mapping_messages: int = 20_000
    budget: float = 330.0
    bridge_arguments: tuple[str, ...] = ()
    server_cores: tuple[int, ...] = ()
    generator_core: int | None = None

    def count(self, broker: str, qos: int) -> int:
        """Return the number of messages of one run."""
        # The forwarder is much faster than any broker: with fewer messages its run would be too short to time.
        factor = {"amqtt": self.amqtt_share, "relay": 2.5}.get(broker, 1.0)
        return max(self.publishers, int(self.messages[qos] * factor))


@dataclass
class Run:
    """The figures of one throughput run."""

    broker: str
    qos: int
    session: str
    round: int
    figures: dict[str, float | int | str]


@dataclass
class Results:
    """All figures of a campaign."""

    versions: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    idle: dict[str, dict[str, float]] = field(default_factory=dict)
    latency: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    mapping: list[mapping.Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """Return the results for JSON."""
        return asdict(self)


class Campaign:
    """All measurements. A broker that cannot be started or measured is reported and left out."""

    def __init__(self, parameters: Parameters, say: Callable[[str], None]) -> None:
        self.parameters = parameters
        self.say = say
        self.results = Results()
        self._absent: set[str] = set()
        self._deadline = time.monotonic() + parameters.budget

    def run(self) -> None:
        """Measure the relay once, then the rounds, then latency and memory."""
        chosen = self.parameters
        brokers = [b for b in chosen.brokers if b != RelayServer.name]
        for name in chosen.brokers:
            self.results.versions[name] = SERVERS[name]().version()
        self.say("  ".join(f"{name} {version}" for name, version in self.results.versions.items()))
        if RelayServer.name in chosen.brokers and chosen.rounds:
            self._load(RelayServer.name, 1, ("clean",))
        for number in range(1, min(1, chosen.rounds) + 1):
            for name in brokers:
                self._load(name, number, chosen.sessions)
        # The single measurements follow the first round: if time runs out, only later rounds are missing.
        for name in brokers:
            if SERVERS[name].durable_only:
                continue
            if chosen.latency_seconds:
                self._latency(name)
            if chosen.idle_clients:
                self._idle(name)
        if chosen.mapping_messages and chosen.rounds:
            self._mapping()
        for number in range(2, chosen.rounds + 1):
            for name in brokers:
                self._load(name, number, chosen.sessions)

    def profile(self, target: Path, name: str = Bridge.name) -> None:
        """Run the load once more while py-spy samples the server. The figures of this run are not counted."""
        chosen = self.parameters
        with self._server(name) as server:
            if server is None:
                return
            duration = int(len(chosen.qos) * len(chosen.sessions) * (chosen.seconds + 5)) + 5
            spy = [str(Path(sys.executable).parent / "py-spy"), "record", "-d", str(duration)]
            target.unlink(missing_ok=True)
            spy += ["-f", "raw", "-o", str(target), "--pid", str(server.pid)]
            recorder = subprocess.Popen(spy, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                time.sleep(1.0)  # time for py-spy to attach
                for session in chosen.sessions:
                    for qos in chosen.qos:
                        self._measure_load(server, qos, session)
            finally:
                if recorder.poll() is None:
                    recorder.send_signal(signal.SIGINT)  # then it writes its samples
                try:
                    _, errors = recorder.communicate(timeout=20)
                except subprocess.TimeoutExpired:
                    recorder.kill()
                    _, errors = recorder.communicate()
            if target.exists():
                self._note(f"profile of {name}: {target}")
            else:
                self._note(f"no profile: {(errors.strip().splitlines() or ['py-spy said nothing'])[-1]}")

    @contextmanager
    def _server(self, name: str) -> Iterator[Server | None]:
        """Yield a fresh server of this kind, or None if it is not available or time is up."""
        server: Server | None = None
        if name not in self._absent and self._in_time(name):
            cores = set(self.parameters.server_cores) or None
            server = Bridge(cores, self.parameters.bridge_arguments) if name == Bridge.name else SERVERS[name](cores)
            try:
                server.start()
            except ServerUnavailable as error:
                self._absent.add(name)
                self._note(f"{name} could not be started: {error}")
                server = None
        try:
            yield server
        finally:
            if server is not None:
                server.stop()

    def _in_time(self, name: str) -> bool:
        if time.monotonic() < self._deadline:
            return True
        self._note(f"time is up ({self.parameters.budget:.0f} s): measurements of {name} left out")
        return False

    def _load(self, name: str, number: int, sessions: tuple[str, ...]) -> None:
        with self._server(name) as server:
            if server is None:
                return
            for qos in self.parameters.qos:
                for session in sessions:
                    if server.durable_only and (qos == 0 or session != "durable"):
                        continue
                    if not self._in_time(name):
                        return
                    figures = self._measure_load(server, qos, session)
                    if figures is None:
                        continue
                    self.results.runs.append(Run(name, qos, session, number, figures))
                    self.say(
                        f"round {number}  {name:<18}  QoS {qos}  {session:<7}  {figures['rate']:>11,.0f}/s  "
                        f"server {figures['server_cpu']:.0f} %  generator {figures['generator_cpu']:.0f} %"
                    )

    def _measure_load(self, server: Server, qos: int, session: str) -> dict[str, float | int | str] | None:
        chosen = self.parameters
        try:
            return measure(
                "load",
                timeout=chosen.seconds + MARGIN,
                core=chosen.generator_core,
                port=server.port,
                pid=server.pid,
                qos=qos,
                durable=session == "durable",
                messages=chosen.count(server.name, qos),
                publishers=chosen.publishers,
                payload=chosen.payload,
                window=chosen.window,
                backlog=chosen.backlog[qos],
                seconds=chosen.seconds,
            )
        except MeasureFailed as error:
            self._note(f"{server.name}, QoS {qos}, {session}: {error}; the server's last words: {server.last_words()}")
            return None

    def _mapping(self) -> None:
        chosen = self.parameters
        if not self._in_time("mappings"):
            return
        try:
            self.results.mapping = mapping.run(chosen.mapping_messages, chosen.rounds, chosen.payload, self.say)
        except (ServerUnavailable, MQError, OSError, RuntimeError) as error:
            self._note(f"mappings could not be measured: {error}")

    def _latency(self, name: str) -> None:
        chosen = self.parameters
        with self._server(name) as server:
            if server is None:
                return
            for session in chosen.sessions:
                try:
                    figures = measure(
                        "latency",
                        timeout=chosen.latency_seconds + MARGIN,
                        core=chosen.generator_core,
                        port=server.port,
                        qos=1,
                        durable=session == "durable",
                        rate=chosen.latency_rate,
                        seconds=chosen.latency_seconds,
                        payload=chosen.payload,
                    )
                except MeasureFailed as error:
                    self._note(f"{name}, latency, {session}: {error}; the server's last words: {server.last_words()}")
                    continue
                self.results.latency.setdefault(name, {})[session] = figures
                self.say(
                    f"latency  {name:<9}  {session:<7}  p50 {figures['p50_ms']:.2f} ms  p99 {figures['p99_ms']:.2f} ms"
                )

    def _idle(self, name: str) -> None:
        """Measure a fresh server: memory freed after a load would hide the memory of the clients."""
        chosen = self.parameters
        with self._server(name) as server:
            if server is None:
                return
            time.sleep(0.5)  # time for its own start
            try:
                figures = measure(
                    "idle",
                    timeout=chosen.idle_clients / 50 + MARGIN,
                    core=chosen.generator_core,
                    port=server.port,
                    pid=server.pid,
                    clients=chosen.idle_clients,
                )
            except MeasureFailed as error:
                self._note(f"{name}, idle clients: {error}; the server's last words: {server.last_words()}")
                return
            self.results.idle[name] = figures
            self.say(f"memory   {name:<9}  {figures['kb_per_client']:.1f} kB per idle client")

    def _note(self, text: str) -> None:
        if text not in self.results.notes:
            self.results.notes.append(text)
            self.say(text)
