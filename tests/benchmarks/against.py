"""`python -m tests.benchmarks.against COMMIT`: compare the working tree with a commit and mosquitto.

Each row is a shape (publishers, subscribers, window), a QoS, a kind of session and a payload. All three servers run all
the time on the same cores and take turns at each row, so a drift of the machine affects them equally. A ratio is
computed within each round. The table shows the median and the spread of these ratios, and the CPU time that a message
costs each server, which a busy machine changes least.

The word `compiled` instead of COMMIT compares the compiled tree (`sh deploy/compile.sh`) with the same code as pure
Python. With a commit, both are pure Python, or with `--compiled` both are compiled first. The word `mqtt5` compares
clients of MQTT 5 (`--properties`: user properties of each message) with clients of 3.1.1, both on the working tree.
`--rates` measures latencies at these rates instead of rows.

A durable row with a window of one also shows what part of its ceiling it reaches. The ceiling is one message of each
publisher per sync of a page to the disk. The sync is timed next to each such run, because the speed of a disk changes
within minutes. The load is `load.c`: with small windows, a generator in Python would measure itself.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from tests.benchmarks import machine
from tests.benchmarks.latency import Trickle
from tests.benchmarks.servers import STORAGE, Bridge, Mosquitto, Server, ServerUnavailable

ROOT = Path(__file__).parents[2]
#: Target of a change for the geometric mean of all rows, and for each row unless its spread is wider.
MEAN_TARGET, ROW_TARGET = 0.97, 0.90
#: The word that compares the compiled working tree with the same code as pure Python.
COMPILED = "compiled"
#: The word that compares clients of MQTT 5 with clients of 3.1.1.
MQTT_5 = "mqtt5"
NAMES = ("mosquitto", "base", "present")
#: Number of syncs that are timed next to a run, on the disk of the servers.
SYNCS = 50
#: Columns that the tables need.
NARROWEST = 190


@dataclass(frozen=True)
class Shape:
    """The numbers of publishers and subscribers, and their window."""

    name: str
    publishers: int
    subscribers: int
    pairs: bool = False


SHAPES = (
    Shape("4 -> 1", 4, 1),
    Shape("100 -> 1", 100, 1),
    Shape("100 pairs", 100, 100, pairs=True),
    Shape("300 pairs", 300, 300, pairs=True),
    Shape("1 -> 50", 1, 50),
)


@dataclass(frozen=True)
class Row:
    """One row of the table: the parameters of a run."""

    shape: Shape
    window: int
    qos: int
    durable: bool
    payload: int

    def __str__(self) -> str:
        session = "durable" if self.durable else "clean"
        return f"{self.shape.name}, window {self.window}, QoS {self.qos}, {session}, {self.payload} B"

    def ceiling(self) -> float | None:
        """Messages/s that the disk currently allows if each message waits for a sync. None if no message does."""
        if not (self.durable and self.qos and self.window == 1):
            return None
        return self.shape.publishers / (machine.sync_us(tempfile.gettempdir(), SYNCS) * 1e-6)


@dataclass(frozen=True)
class Pace:
    """The rate and the session of a latency measurement."""

    rate: int
    qos: int
    durable: bool

    def __str__(self) -> str:
        return f"{self.rate}/s, QoS {self.qos}, {'durable' if self.durable else 'clean'}"


#: The figures of each run at one pace, by server.
Latencies = dict[str, list[dict[str, object]]]


@dataclass
class Figures:
    """Received messages/s of one row by server, one per round. None if a run failed."""

    rates: dict[str, list[float | None]] = field(default_factory=dict)
    #: microseconds of CPU time, of user and system, for each message received
    cpu: dict[str, list[float | None]] = field(default_factory=dict)
    #: rate of the working tree as a multiple of the rate that the disk allowed at that time
    shares: list[float] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def ratios(self, first: str, other: str) -> list[float]:
        """Return the ratios of two servers within each round."""
        pairs = zip(self.rates.get(first, ()), self.rates.get(other, ()), strict=False)
        return [a / b for a, b in pairs if a and b]


class Checkout(Bridge):
    """A checkout of the bridge, run by this interpreter with its packages."""

    def __init__(self, name: str, root: Path, cores: set[int] | None, *, pure: bool = True) -> None:
        super().__init__(cores)
        self.name = name
        self.root = root
        self.pure = pure

    def command(self) -> list[str]:
        # `-P` and PYTHONPATH: import neither the working directory nor the installed package.
        run = ["run", "--data-dir", str(self.folder / "data"), "--port", "0"]
        environment = [f"PYTHONPATH={self.root}", f"MQBRIDGE_PURE={int(self.pure)}"]
        return ["env", *environment, sys.executable, "-P", "-m", "bridge", *run]


def compiled(folder: Path) -> Path:
    """Compile the load generator. Raises subprocess.CalledProcessError without a C compiler."""
    program = folder / "load"
    subprocess.run(["cc", "-O2", "-o", str(program), str(Path(__file__).with_name("load.c"))], check=True)
    return program


def measure(
    program: Path, port: int, row: Row, seconds: float, core: int | None, *, level: int = 4, properties: int = 0
) -> dict[str, float | str]:
    """Put the load of a row on a server. Return the figures that `load.c` prints."""
    shape = row.shape
    words = [
        port,
        shape.publishers,
        shape.subscribers,
        int(shape.pairs),
        row.qos,
        row.window,
        row.payload,
        int(row.durable),
    ]
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    try:
        outcome = subprocess.run(
            [*pinned, str(program), *map(str, words), str(seconds), str(level), str(properties), "tcp"],
            capture_output=True,
            timeout=seconds + 90,
            check=True,
        )
    except subprocess.SubprocessError as error:
        return {"failure": str(error)}
    figures: dict[str, float | str] = json.loads(outcome.stdout)
    return figures


def rows(options: argparse.Namespace) -> list[Row]:
    """Return the selected rows."""
    shapes = [shape for shape in SHAPES if not options.shapes or shape.name in options.shapes]
    return [
        Row(shape, window, qos, durable, payload)
        for payload in options.payloads
        for shape in shapes
        for window in options.windows
        for qos in options.qos
        for durable in options.sessions
    ]


def numbers(value: str) -> list[int]:
    """Parse whole numbers, separated by commas."""
    return [int(number) for number in value.split(",")]


def sessions(value: str) -> list[bool]:
    """Parse kinds of session, separated by commas. Return whether each is durable."""
    return [{"clean": False, "durable": True}[word] for word in value.split(",")]


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    out = argparse.ArgumentParser(prog="python -m tests.benchmarks.against", description=__doc__)
    out.add_argument("commit", help='the commit to compare the working tree with; "compiled", "mqtt5": itself')
    out.add_argument("--compiled", action="store_true", help="compile the commit and the working tree first")
    out.add_argument("--rounds", type=int, default=5)
    out.add_argument("--seconds", type=float, default=1.0, help="publish for so long in each run (1)")
    out.add_argument("--payloads", type=numbers, default=[100], help="bytes of a message, e.g. 100,1000 (100)")
    out.add_argument(
        "--rates", type=numbers, default=[], help="latency at these rates, e.g. 500,2000,8000, and no rows"
    )
    out.add_argument("--qos", type=numbers, default=[0, 1, 2])
    out.add_argument("--windows", type=numbers, default=[1, 10, 100])
    out.add_argument("--sessions", type=sessions, default=[False, True], help="clean,durable")
    out.add_argument("--shapes", type=lambda value: value.split(","), help=", ".join(shape.name for shape in SHAPES))
    out.add_argument("--properties", type=int, default=0, help="user properties of each message, with mqtt5 (0)")
    out.add_argument("--json", type=Path, default=Path("bench-against.json"))
    return out


def rounds(
    options: argparse.Namespace, base: Path, server_cores: set[int] | None
) -> Iterator[tuple[int, list[Server]]]:
    """Yield each round's number and running servers. The order rotates, so no server is always the first."""
    for number in range(1, options.rounds + 1):
        servers: list[Server] = [
            Mosquitto(server_cores),
            Checkout("base", base, server_cores, pure=options.commit != MQTT_5 and not options.compiled),
            Checkout(
                "present", ROOT, server_cores, pure=options.commit not in (COMPILED, MQTT_5) and not options.compiled
            ),
        ]
        servers = servers[number % 3 :] + servers[: number % 3]
        try:
            for server in servers:
                server.start()
            yield number, servers
        finally:
            for server in servers:
                server.stop()


def latencies(options: argparse.Namespace, base: Path) -> dict[Pace, Latencies]:
    """Measure all rounds of latencies, between one publisher and one subscriber."""
    server_cores, core = machine.split_cores(True)
    if core is not None:
        os.sched_setaffinity(0, {core})
    chosen = [Pace(rate, qos, durable) for rate in options.rates for qos in options.qos for durable in options.sessions]
    results: dict[Pace, Latencies] = {pace: {} for pace in chosen}
    for _, servers in rounds(options, base, server_cores):
        for pace in chosen:
            for server in servers:
                trickle = Trickle(
                    port=server.port,
                    qos=pace.qos,
                    durable=pace.durable,
                    rate=pace.rate,
                    seconds=options.seconds,
                    payload=options.payloads[0],
                )
                results[pace].setdefault(server.name, []).append(trickle.run())
    return results


def show_latencies(console: Console, results: dict[Pace, Latencies]) -> None:
    """Print the medians of the rounds, also as multiples of mosquitto's."""
    table = Table(
        title="milliseconds from publish to receipt: medians; multiples of mosquitto's: median (lowest-highest)"
    )
    values = [f"{name} {share}" for share in ("p50", "p99") for name in NAMES]
    for heading in ("", *values, "p50 / mosquitto", "p99 / mosquitto"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for pace, figures in results.items():
        cells = [str(pace)]
        multiples = []
        for share in ("p50_ms", "p99_ms"):
            milliseconds = {name: [float(str(figure[share])) for figure in figures[name]] for name in NAMES}
            cells += [f"{statistics.median(milliseconds[name]):.3f}" for name in NAMES]
            ratios = [a / b for a, b in zip(milliseconds["present"], milliseconds["mosquitto"], strict=True)]
            multiples.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
        table.add_row(*cells, *multiples)
    console.print(table)
    for pace, figures in results.items():
        for name in NAMES:
            if lost := sum(int(str(figure["lost"])) for figure in figures[name]):
                console.print(f"late or lost, and in no figure: {pace}: {name}: {lost} messages")


def campaign(options: argparse.Namespace, base: Path, folder: Path, console: Console) -> dict[Row, Figures]:
    """Measure all rounds of all rows."""
    server_cores, core = machine.split_cores(True)
    program = compiled(folder)
    chosen = rows(options)
    results = {row: Figures() for row in chosen}
    for number, servers in rounds(options, base, server_cores):
        for index, row in enumerate(chosen):
            for server in servers:
                ceiling = row.ceiling() if server.name == "present" else None
                before = psutil.Process(server.pid).cpu_times()
                level = 5 if options.commit == MQTT_5 and server.name != "base" else 4
                figures = measure(
                    program,
                    server.port,
                    row,
                    options.seconds,
                    core,
                    level=level,
                    properties=options.properties,
                )
                after = psutil.Process(server.pid).cpu_times()
                rates = results[row].rates.setdefault(server.name, [])
                wrong = row.qos and (figures.get("lost") or (row.qos == 2 and figures.get("duplicates")))
                failure = figures["failure"] or wrong
                rates.append(None if failure else float(figures["rate"]))
                if ceiling and not failure:
                    results[row].shares.append(float(figures["rate"]) / ceiling)
                spent = after.user + after.system - before.user - before.system
                cpu = None if failure else 1e6 * spent / max(1.0, float(figures["received"]))
                results[row].cpu.setdefault(server.name, []).append(cpu)
                if failure:
                    results[row].remarks.append(f"{server.name}, round {number}: {json.dumps(figures)}")
            if index % 10 == 9:
                console.print(f"round {number} of {options.rounds}: {index + 1} of {len(chosen)} rows", highlight=False)
    return results


def show(console: Console, results: dict[Row, Figures]) -> None:
    """Print the table, the geometric mean, and the rows below their target."""
    title = "messages/s received: medians; ratios: median (lowest-highest of the rounds)"
    table = Table(title=title, caption=STORAGE, caption_justify="left")
    for heading in ("", *NAMES, "present / mosquitto", "present / base", "CPU us", "of the ceiling"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    means: list[float] = []
    below: list[str] = []
    for row, figures in results.items():
        cells = [str(row)]
        for name in NAMES:
            rates = [rate for rate in figures.rates.get(name, ()) if rate]
            cells.append(f"{statistics.median(rates):,.0f}" if rates else "-")
        for other in ("mosquitto", "base"):
            ratios = figures.ratios("present", other)
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "-")
            if other == "base" and ratios:
                means.append(math.log(statistics.median(ratios)))
                if statistics.median(ratios) < ROW_TARGET:
                    beyond = "beyond its spread" if max(ratios) < ROW_TARGET else "within its spread"
                    below.append(f"{row}: {statistics.median(ratios):.2f}, {beyond}")
        spent = [[cost for cost in figures.cpu.get(name, ()) if cost] for name in NAMES]
        cells.append(" ".join(f"{statistics.median(costs):.1f}" if costs else "-" for costs in spent))
        shares = figures.shares
        cells.append(f"{statistics.median(shares):.2f} ({min(shares):.2f}-{max(shares):.2f})" if shares else "")
        table.add_row(*cells)
    console.print(table)
    if means:
        mean = math.exp(sum(means) / len(means))
        console.print(f"present / base, geometric mean of {len(means)} rows: {mean:.3f} (target {MEAN_TARGET})")
    for line in below:
        console.print(f"below {ROW_TARGET}: {line}")
    for row, figures in results.items():
        for remark in figures.remarks:
            console.print(f"failed: {row}: {remark}", highlight=False)


def main() -> None:
    """Check the commit out, measure it with the working tree, print and write the figures."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    console = Console(width=max(NARROWEST, Console().width))
    with tempfile.TemporaryDirectory(prefix="bench-against-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        base = ROOT
        if options.commit not in (COMPILED, MQTT_5):
            base = folder / "base"
            base.mkdir()
            archive = subprocess.run(
                ["git", "-C", str(ROOT), "archive", options.commit], stdout=subprocess.PIPE, check=True
            )
            subprocess.run(["tar", "-x", "-C", str(base)], input=archive.stdout, check=True)
        if options.compiled:
            for root in (base, ROOT):
                subprocess.run([sys.executable, str(root / "deploy" / "compile.py")], check=True)
        facts = machine.facts()
        console.print(machine.described(facts))
        try:
            if options.rates:
                paced = latencies(options, base)
                written = [{"pace": str(pace), "latencies": figures} for pace, figures in paced.items()]
                show_latencies(console, paced)
            else:
                results = campaign(options, base, folder, console)
                written = [{"row": str(row), **asdict(figures)} for row, figures in results.items()]
                show(console, results)
        except ServerUnavailable as error:
            sys.exit(f"a server cannot be started: {error}")
    options.json.write_text(json.dumps({"facts": facts, "commit": options.commit, "rows": written}, indent=1))


if __name__ == "__main__":
    main()
