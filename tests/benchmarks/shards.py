"""Throughput and CPU of one bridge, and of the bridges of 2 and 4 shards, on one queue manager with a delay per round trip.

The bridges, the queue manager and the clients share this machine. `one` is an undivided bridge. `one, no read ahead` browses
as the bridge of a shard does: each delivery takes a round trip. Publications have QoS 1. Deliveries are publications of an MQ
application to all clients. The ratios are those to `one` and to `one, no read ahead`. The table also has the CPU time of the
bridges and of the queue manager per message, and how busy all CPUs of the machine were.

    python -m tests.benchmarks.shards [--delay-us 1000] [--clients 48] [--seconds 5] [--rounds 1] [--qos 1]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

import psutil
from rich.console import Console
from rich.table import Table

from tests.benchmarks.channel import Channel
from tests.benchmarks.remote import HOST, MQBRIDGE, SCRIPT, load, receive, started
from tests.helpers.client_packages import BUILD
from tests.helpers.installed import CLIENT_PACKAGES
from tests.helpers.remote_bridge import STAND_IN
from tests.helpers.shards import client_of

BRIDGE = """
queue_manager:
  type: ibm
  name: QM1
  library: {library}
  channel: DEV.APP.SVRCONN
  connections: localhost(1414)
  {settings}
channels: [{{name: PLAIN, port: 0}}]
"""
COLUMNS = ("load", "bridges", "messages/s", "ratio", "to no read ahead", "bridge µs", "queue manager µs", "busy %")
#: Names and numbers of shards.
SHAPES = {"one": 1, "one, no read ahead": 1, "2 shards": 2, "4 shards": 4}


@dataclass
class Group:
    """Bridges under load, and their queue manager."""

    ports: list[int]
    bridges: list[psutil.Process]
    queue_manager: psutil.Process
    directory: Path

    def channels(self, clients: int) -> list[Channel]:
        """Connect clients, the same number to each bridge."""
        of = len(self.ports)
        names = [client_of(number % of, f"c{number}-", of) for number in range(clients)]
        return [Channel(self.ports[number % of], name) for number, name in enumerate(names)]

    @property
    def queues(self) -> list[str]:
        """The transmission queues."""
        of = len(self.ports)
        return [f"SYSTEM.MQTT.TRANSMIT.QUEUE{f'.{number}' if of > 1 else ''}" for number in range(of)]

    def cpu(self) -> float:
        """Return the CPU time of the bridges in seconds."""
        return sum(map(_cpu, self.bridges))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


Load: TypeAlias = Callable[[Group, argparse.Namespace], tuple[int, float]]


@dataclass
class Result:
    """One measurement."""

    load: str
    shape: str
    rate: float
    #: CPU time per message in microseconds
    bridge_us: float
    queue_manager_us: float
    #: CPU usage of the whole machine, in percent
    busy: float


@contextmanager
def group(options: argparse.Namespace, shape: str) -> Iterator[Group]:
    """Run a queue manager and the bridges of all shards, with empty directories."""
    of = SHAPES[shape]
    with tempfile.TemporaryDirectory(prefix="bench-shards-") as folder, ExitStack() as stack:
        directory = Path(folder)
        (directory / "host.mqsc").write_text(SCRIPT)
        (directory / "host.yaml").write_text(HOST)
        environment = {
            "LD_LIBRARY_PATH": str(BUILD / "lib64"),
            "PYTHONPATH": f"{Path(__file__).resolve().parents[2]}:{CLIENT_PACKAGES / options.library}",
            "MQI_STANDIN_DELAY_US": str(options.delay_us),
        }
        log = directory / "host.log"
        host = started(STAND_IN, directory / "host.yaml", r"connect at (\S+mqi\.sock)", log)
        place, host_pid = stack.enter_context(host)
        environment["MQI_STANDIN"] = f"unix:{place}"
        ports, bridges = [], []
        for number in range(of):
            settings = (
                f"shard: {{number: {number}, of: {of}}}" if of > 1 else f"read_ahead: {str(shape == 'one').lower()}"
            )
            config = directory / f"bridge{number}.yaml"
            config.write_text(BRIDGE.format(library=options.library, settings=settings))
            if of > 1:
                _define_queues(config, directory / "host.yaml", environment)
            command = [sys.executable, "-P", "-m", "bridge"]
            process = started(command, config, r"127\.0\.0\.1:(\d+)", config.with_suffix(".log"), **environment)
            port, pid = stack.enter_context(process)
            ports.append(int(port))
            bridges.append(psutil.Process(pid))
        yield Group(ports, bridges, psutil.Process(host_pid), directory)


def _define_queues(config: Path, host: Path, environment: dict[str, str]) -> None:
    script = subprocess.run(
        [MQBRIDGE, "mqsc-script", "--config", str(config)],
        capture_output=True,
        check=True,
        env=os.environ | environment,
    ).stdout
    run = [MQBRIDGE, "mqsc", "run", "-", "--config", str(host)]
    # Existing objects are reported, with an exit status.
    subprocess.run(run, input=script, capture_output=True, check=False)


def publications(group: Group, options: argparse.Namespace) -> tuple[int, float]:
    """Publish with QoS 1. Return the number of acknowledged publications, and the seconds that this took."""
    count, seconds = load(group.channels(options.clients), options.seconds, options.payload, 100, 1_000)
    command = [MQBRIDGE, "mqsc", "display", "QLOCAL(KEPT)", "CURDEPTH", "--json"]
    command += ["--config", str(group.directory / "host.yaml")]
    display = subprocess.run(command, capture_output=True, text=True, check=True)
    depth = json.loads(display.stdout)["CURDEPTH"]
    if depth != count:
        raise RuntimeError(f"{count} publications are acknowledged, {depth} are stored")
    return count, seconds


def deliveries(group: Group, options: argparse.Namespace) -> tuple[int, float]:
    """Deliver. Return the number of messages, and the seconds until the queue manager had removed them."""
    channels = group.channels(options.clients)
    count, _, removed, _ = receive(channels, group.directory, options, options.qos, group.cpu, group.queues)
    return count, removed


def measured(
    load_: Callable[[Group, argparse.Namespace], tuple[int, float]], shape: str, options: argparse.Namespace
) -> Result:
    """Measure one load."""
    with group(options, shape) as running:
        bridges, queue_manager = running.cpu(), _cpu(running.queue_manager)
        psutil.cpu_percent()
        count, seconds = load_(running, options)
        busy = psutil.cpu_percent()
        bridges, queue_manager = running.cpu() - bridges, _cpu(running.queue_manager) - queue_manager
    return Result(load_.__name__, shape, count / seconds, bridges / count * 1e6, queue_manager / count * 1e6, busy)


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-us", type=int, default=1_000, help="added to every round trip")
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--payload", type=int, default=100)
    parser.add_argument("--qos", type=int, default=1, help="of deliveries")
    parser.add_argument("--library", choices=("ibmmq", "pymqi"), default="ibmmq")
    parser.add_argument("--json", type=Path, default=Path("bench-shards-results.json"))
    options = parser.parse_args()
    loads = (publications, deliveries)
    results = []
    for _ in range(options.rounds):
        for load_ in loads:
            for shape in SHAPES:
                result = measured(load_, shape, options)
                results.append(result)
                print(f"{result.load}, {shape}: {result.rate:,.0f}/s, CPUs {result.busy:.0f} %", flush=True)
    table = Table(title=f"{options.clients} clients, {options.delay_us} µs per round trip, {os.cpu_count()} CPUs")
    for heading in (
        "load",
        "bridges",
        "messages/s",
        "ratio",
        "ratio, no read ahead",
        "bridge µs",
        "queue manager µs",
        "busy %",
    ):
        table.add_column(heading, justify="right")
    for load_ in loads:
        of_load = [result for result in results if result.load == load_.__name__]

        def middle(shape: str, field: str, rows: list[Result] = of_load) -> float:
            return float(median(getattr(row, field) for row in rows if row.shape == shape))

        base, plain = (middle(shape, "rate") for shape in list(SHAPES)[:2])
        for shape in SHAPES:
            rate = middle(shape, "rate")
            figures = [middle(shape, field) for field in ("bridge_us", "queue_manager_us", "busy")]
            ratios = [f"{rate:,.0f}", f"{rate / base:.2f}", f"{rate / plain:.2f}"]
            table.add_row(load_.__name__, shape, *ratios, *(f"{figure:.0f}" for figure in figures))
    Console(width=120).print(table)
    options.json.write_text(json.dumps([asdict(result) for result in results]))


if __name__ == "__main__":
    main()
