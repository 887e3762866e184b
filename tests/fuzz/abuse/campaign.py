"""One scenario: a bridge, a bystander client, the attack in a separate process, and the measurements."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from bridge.mqtt.packets import Pingreq, Pingresp, Puback, Publish
from tests.fuzz.campaign import FAULTS
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import RawClient

#: The limits: milliseconds that the bystander's PING may take, and MB (10^6 bytes) that the bridge may grow by.
MAX_PING: Final = 250.0
MAX_GROWTH: Final = 200.0
#: The bridge is killed when its memory exceeds this many bytes, to protect the machine.
_ABORT_AT: Final = 3_000_000_000
#: Seconds that an attack may take, and that the bridge may take to become idle afterwards.
_ATTACK_TIMEOUT: Final = 180.0
_IDLE_TIMEOUT: Final = 120.0
_TICK: Final = 0.02
_BASELINE: Final = 2.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Target:
    """The bridge from the view of an attack."""

    #: ports by channel name
    ports: dict[str, int]
    #: duration of attacks with a fixed duration
    seconds: float
    #: announces the next phase of the attack, by name
    phase: Callable[[str], None]

    @property
    def port(self) -> int:
        """The port of the first channel."""
        return next(iter(self.ports.values()))


@dataclass(frozen=True)
class Scenario:
    """An attack. It returns a note about its result."""

    name: str
    attack: Callable[[Target], str]
    #: YAML; None for the default configuration
    config: str | None = None


@dataclass
class Phase:
    """The measurements of one phase. A delay belongs to the phase in which its request was sent."""

    name: str
    begun: float
    seconds: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    #: milliseconds by kind of request, "ping" or "puback"; "loop": processor time of the event loop during a PING
    delays: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Result:
    """The measurements of one scenario. Delays are in milliseconds, memory is in MB."""

    name: str
    ping: float
    #: maximum processor time of the bridge's event loop during one PING: other load on the machine changes it little
    loop: float
    puback: float
    puback_median: float
    baseline_ping: float
    baseline_puback: float
    #: maximum delay of this process itself: shorter delays are not significant
    own_lateness: float
    growth: float
    cpu: float
    #: from the start of the attack until the bridge was idle again
    seconds: float
    phases: list[dict[str, Any]]
    note: str
    problems: list[str]

    @property
    def within_limits(self) -> bool:
        return self.ping <= MAX_PING and self.growth <= MAX_GROWTH and not self.problems


class Process:
    """Memory, processor time and open files of the bridge's process."""

    def __init__(self, pid: int) -> None:
        self._directory = Path(f"/proc/{pid}")

    def memory(self) -> int:
        """Return the resident bytes."""
        return int((self._directory / "statm").read_text(encoding="ascii").split()[1]) * _PAGE

    def cpu(self) -> float:
        """Return the seconds of processor time so far."""
        fields = (self._directory / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS

    def loop_cpu(self) -> float:
        """Return the seconds of processor time of the main thread, which runs the event loop."""
        pid = self._directory.name
        try:
            text = (self._directory / "task" / pid / "schedstat").read_text(encoding="ascii")
        except OSError:  # the bridge has ended
            return 0.0
        return int(text.split()[0]) / 1e9

    def files(self) -> int:
        return sum(1 for _ in (self._directory / "fd").iterdir())


class Bystander(threading.Thread):
    """A client on its own connection that sends PINGREQ and a QoS 1 PUBLISH every 20 ms and measures the answers.

    It sends the next request of a kind only after the answer to the last one.
    """

    def __init__(self, port: int, process: Process) -> None:
        super().__init__(name="bystander")
        self._process = process
        self._client = RawClient.connected(port, "bystander")
        self._end = threading.Event()
        #: by kind: when the unanswered request was sent, the processor time of the event loop then, and the phase
        self._sent: dict[str, tuple[float, float, Phase]] = {}
        self.phase = Phase("baseline", time.monotonic())
        self.lateness = 0.0
        self.error: Exception | None = None

    def waiting(self) -> float:
        """Return for how many seconds the oldest unanswered request has waited."""
        sent = list(self._sent.values())
        return time.monotonic() - min((when for when, _, _ in sent), default=time.monotonic())

    def end(self) -> None:
        """Stop. A request without an answer counts with the time that it has waited."""
        self._end.set()
        self.join()
        for kind in list(self._sent):
            self._answered(kind)
        self._client.socket.close()

    def run(self) -> None:
        try:
            due = time.monotonic()
            number = 0
            while not self._end.is_set():
                now = time.monotonic()
                if now >= due:
                    self.lateness = max(self.lateness, now - due)
                    due = now + _TICK
                    if "ping" not in self._sent:
                        self._sent["ping"] = now, self._process.loop_cpu(), self.phase
                        self._client.send(Pingreq())
                    if "puback" not in self._sent:
                        number = number % 65_535 + 1
                        self._sent["puback"] = now, 0.0, self.phase
                        self._client.send(Publish("bystander/topic", b"hello", 1, False, False, number))
                try:
                    self._client.fill(max(due - time.monotonic(), 0.001))
                except TimeoutError:
                    continue
                for packet in self._client.inbox:
                    if isinstance(packet, Pingresp):
                        self._answered("ping")
                    elif isinstance(packet, Puback):
                        self._answered("puback")
                self._client.inbox.clear()
        except Exception as error:
            self.error = error

    def _answered(self, kind: str) -> None:
        when, loop_cpu, phase = self._sent.pop(kind)
        phase.delays[kind].append(1000 * (time.monotonic() - when))
        if kind == "ping":
            phase.delays["loop"].append(max(1000 * (self._process.loop_cpu() - loop_cpu), 0.0))


class _Aborted(Exception):
    """The scenario cannot continue. The message contains the reason."""


class _Run:
    """A running scenario."""

    def __init__(
        self, scenario: Scenario, seconds: float, bridge: BridgeProcess, progress: Callable[[str], None]
    ) -> None:
        assert bridge.process is not None
        self._scenario = scenario
        self._seconds = seconds
        self._bridge = bridge
        self._progress = progress
        self._process = Process(bridge.process.pid)
        self._bystander = Bystander(bridge.port, self._process)
        self.phases = [self._bystander.phase]

    def measure(self) -> Result:
        self._bystander.start()
        problems: list[str] = []
        note = ""
        try:
            time.sleep(0.5)  # the first publications open queues and files
            self._begin("baseline")
            before_memory, cpu, files = self._process.memory(), self._process.cpu(), self._process.files()
            time.sleep(_BASELINE)
            idle_rate = (self._process.cpu() - cpu) / _BASELINE
            start, begun_cpu = time.monotonic(), self._process.cpu()
            quiet_since = start
            try:
                note = self._attack()
                quiet_since = self._wait_until_idle(idle_rate, files)
            except _Aborted as aborted:
                problems.append(str(aborted))
                quiet_since = time.monotonic()
            if self._bridge.running:
                self._finish_phase(quiet_since)
                cpu = self._process.cpu() - begun_cpu
            else:
                cpu = sum(phase.cpu for phase in self.phases[2:])
        finally:
            self._bystander.end()
        if self._bystander.error is not None and self._bridge.running:
            problems.append(f"the bystander lost its connection: {self._bystander.error!r}")
        problems += [f"the log contains {fault!r}" for fault in FAULTS if fault in self._bridge.log]
        baseline, attack = self.phases[1], self.phases[2:]
        for phase in attack:
            ping, loop, puback = (_longest(phase, kind) for kind in ("ping", "loop", "puback"))
            self._progress(
                f"  {phase.name}: {phase.seconds:.1f} s, PING {ping:.0f} ms ({loop:.0f} ms of CPU), "
                f"PUBACK {puback:.0f} ms, RSS {phase.peak / 1e6:.0f} MB"
            )
        return Result(
            name=self._scenario.name,
            ping=max((_longest(phase, "ping") for phase in attack), default=0.0),
            loop=max((_longest(phase, "loop") for phase in attack), default=0.0),
            puback=max((_longest(phase, "puback") for phase in attack), default=0.0),
            puback_median=statistics.median([d for phase in attack for d in phase.delays["puback"]] or [0.0]),
            baseline_ping=_longest(baseline, "ping"),
            baseline_puback=_longest(baseline, "puback"),
            own_lateness=1000 * self._bystander.lateness,
            growth=max((phase.peak - before_memory for phase in attack), default=0) / 1e6,
            cpu=cpu,
            seconds=quiet_since - start,
            phases=[
                {
                    "name": phase.name,
                    "seconds": phase.seconds,
                    "cpu": phase.cpu,
                    "ping": _longest(phase, "ping"),
                    "loop": _longest(phase, "loop"),
                    "puback": _longest(phase, "puback"),
                    "growth": (phase.peak - before_memory) / 1e6,
                }
                for phase in attack
            ],
            note=note,
            problems=problems,
        )

    def _begin(self, name: str) -> None:
        """Start the next phase."""
        if self._bystander.phase.name != "baseline":
            self._finish_phase(time.monotonic())
        phase = Phase(name, time.monotonic(), cpu=self._process.cpu(), peak=self._process.memory())
        if name != "baseline":
            self._progress(f"  {name} ...")
        self._bystander.phase = phase
        self.phases.append(phase)

    def _finish_phase(self, until: float) -> None:
        phase = self.phases[-1]
        phase.seconds = until - phase.begun
        phase.cpu = self._process.cpu() - phase.cpu

    def _attack(self) -> str:
        """Run the attack to its end, and return its note."""
        spawn = multiprocessing.get_context("spawn")
        receiving, sending = spawn.Pipe(duplex=False)
        arguments = self._scenario, self._bridge.ports, self._seconds, sending
        attacker = spawn.Process(target=_run_attack, args=arguments, daemon=True)
        attacker.start()
        sending.close()
        before = time.monotonic() + _ATTACK_TIMEOUT + self._seconds
        try:
            while time.monotonic() < before:
                self._look()
                if not receiving.poll(_TICK):
                    continue
                try:
                    kind, text = receiving.recv()
                except EOFError:
                    raise _Aborted("the attack failed") from None
                if kind == "phase":
                    self._begin(text)
                elif kind == "error":
                    raise _Aborted(f"the attack failed: {text}")
                else:
                    return str(text)
            raise _Aborted(f"the attack did not finish within {_ATTACK_TIMEOUT + self._seconds:.0f} s")
        finally:
            attacker.kill()
            attacker.join()
            receiving.close()

    def _look(self) -> None:
        """Sample the memory, and end a scenario that would take too much of it."""
        if not self._bridge.running:
            raise _Aborted("the bridge ended by itself")
        phase = self.phases[-1]
        phase.peak = max(phase.peak, self._process.memory())
        if phase.peak > _ABORT_AT:
            self._finish_phase(time.monotonic())
            self._bridge.kill()
            raise _Aborted(f"aborted: RSS exceeded {_ABORT_AT / 1e9:.0f} GB")

    def _wait_until_idle(self, idle_rate: float, files: int) -> float:
        """Wait until the bridge is about as idle as before the attack, and return since when it has been."""
        before = time.monotonic() + _IDLE_TIMEOUT
        since, cpu = time.monotonic(), self._process.cpu()
        while time.monotonic() < before:
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                self._look()
                time.sleep(_TICK)
            busy = (self._process.cpu() - cpu) / (time.monotonic() - since) > idle_rate + 0.15
            if not busy and self._bystander.waiting() < 0.1 and self._process.files() <= files + 20:
                return since
            since, cpu = time.monotonic(), self._process.cpu()
        raise _Aborted(f"the bridge was not idle {_IDLE_TIMEOUT:.0f} s after the attack")


def _longest(phase: Phase, kind: str) -> float:
    return max(list(phase.delays[kind]), default=0.0)


def _run_attack(scenario: Scenario, ports: dict[str, int], seconds: float, results: Connection) -> None:
    os.nice(10)
    try:
        try:
            note = scenario.attack(Target(ports, seconds, lambda name: results.send(("phase", name))))
        except ConnectionError as error:  # the bridge is allowed to defend itself like this
            note = f"the attack ended early: {error}"
        results.send(("note", note))
    except Exception as error:
        traceback.print_exc()
        results.send(("error", repr(error)))
    # The attacker is killed, which ends its connections.
    threading.Event().wait()


def run(scenario: Scenario, seconds: float, progress: Callable[[str], None]) -> Result:
    """Run a scenario against a new bridge."""
    with tempfile.TemporaryDirectory(prefix="abuse") as name:
        bridge = BridgeProcess(Path(name) / "data", config=scenario.config).start()
        try:
            return _Run(scenario, seconds, bridge, progress).measure()
        finally:
            bridge.discard()
