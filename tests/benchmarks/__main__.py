"""`python -m tests.benchmarks`: run mosquitto, amqtt and the bridge under the same load."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path

from rich.console import Console

from tests.benchmarks import machine, report
from tests.benchmarks.campaign import Campaign, Parameters
from tests.benchmarks.servers import SERVERS, Mosquitto

NARROWEST = 150


def names(value: str) -> tuple[str, ...]:
    """Parse a list of brokers, separated by commas."""
    chosen = tuple(name.strip() for name in value.split(",") if name.strip())
    if not chosen or any(name not in SERVERS for name in chosen):
        raise argparse.ArgumentTypeError(f"choose from {', '.join(SERVERS)}")
    return tuple(dict.fromkeys(chosen))


def levels(value: str) -> tuple[int, ...]:
    """Parse a list of QoS levels."""
    if not value or set(value.split(",")) - {"0", "1", "2"}:
        raise argparse.ArgumentTypeError("choose from 0,1,2")
    return tuple(sorted({int(level) for level in value.split(",")}))


def sessions(value: str) -> tuple[str, ...]:
    """Parse a list of session kinds."""
    if not value or set(value.split(",")) - {"clean", "durable"}:
        raise argparse.ArgumentTypeError("choose from clean,durable")
    return tuple(dict.fromkeys(value.split(",")))


def counts(value: str) -> tuple[int, int, int]:
    """Parse one number of messages for all QoS levels, or one for each of QoS 0, 1 and 2."""
    numbers = [int(number) for number in value.split(",")]
    if len(numbers) not in (1, 3) or min(numbers) < 1:
        raise argparse.ArgumentTypeError("give one number, or three")
    return (numbers[0], numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1], numbers[2])


def between(lowest: int, highest: int) -> type[int]:
    """Return a parser of whole numbers within bounds."""

    def number(value: str) -> int:
        if not lowest <= int(value) <= highest:
            raise argparse.ArgumentTypeError(f"from {lowest} to {highest}")
        return int(value)

    return number  # type: ignore[return-value]


def parser() -> argparse.ArgumentParser:
    """Return the options. Their defaults are those of `Parameters`."""
    default = Parameters()
    out = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    add = out.add_argument
    add("--only", type=names, default=default.brokers, help="brokers, separated by commas (all)")
    add("--qos", type=levels, default=default.qos, help="QoS levels, e.g. 1,2 (all)")
    add("--sessions", type=sessions, default=default.sessions, help="clean,durable: of the subscriber (both)")
    add(
        "--messages", type=counts, default=default.messages, help="per run: one number, or three (400000,200000,100000)"
    )
    add("--amqtt-share", type=float, default=default.amqtt_share, help="fraction of these messages for amqtt (0.125)")
    add("--rounds", type=between(0, 20), default=default.rounds, help="number of rounds, whose median counts (3)")
    add("--seconds", type=float, default=default.seconds, help="maximum seconds of publishing per run (5)")
    add("--publishers", type=between(1, 99), default=default.publishers, help="publishing clients (4)")
    add("--payload", type=between(8, 100_000), default=default.payload, help="bytes per message (100)")
    window = between(1, Mosquitto.in_flight)
    add("--window", type=window, default=default.window, help="QoS 1/2: unacknowledged per publisher (100)")
    add("--backlog", type=counts, default=default.backlog, help="in all: published, not delivered (4000,4000,400)")
    add("--idle", type=between(0, 10_000), default=default.idle_clients, help="idle clients, 0 to skip (1000)")
    add("--latency-rate", type=float, default=default.latency_rate, help="messages/s for the latency (500)")
    add("--latency-seconds", type=float, default=default.latency_seconds, help="0 to skip (5)")
    add("--mapping", type=between(0, 200_000), default=default.mapping_messages, help="0 to skip (20000)")
    add("--budget", type=float, default=default.budget, help="start no measurement after this many seconds (330)")
    add("--bridge-args", type=shlex.split, default=[], help="further arguments for `mqbridge run`")
    add("--no-pin", action="store_true", help="do not reserve a core for the generator")
    add(
        "--profile",
        type=Path,
        metavar="FILE",
        help="run the bridge once more under py-spy, and write the stacks to FILE",
    )
    add("--json", type=Path, default=Path("bench-results.json"), help="file for the figures (bench-results.json)")
    return out


def main() -> None:
    """Measure, print, and write the figures. The exit status is always 0: a missed target is a figure, not a failure."""
    options = parser().parse_args()
    server_cores, generator_core = machine.split_cores(not options.no_pin)
    parameters = Parameters(
        brokers=options.only,
        qos=options.qos,
        sessions=options.sessions,
        messages=options.messages,
        amqtt_share=options.amqtt_share,
        rounds=options.rounds,
        publishers=options.publishers,
        payload=options.payload,
        window=options.window,
        backlog=options.backlog,
        seconds=options.seconds,
        idle_clients=options.idle,
        latency_rate=options.latency_rate,
        latency_seconds=options.latency_seconds,
        mapping_messages=options.mapping,
        budget=options.budget,
        bridge_arguments=tuple(options.bridge_args),
        server_cores=tuple(sorted(server_cores or ())),
        generator_core=generator_core,
    )
    console = Console()
    if not console.is_terminal and console.width < NARROWEST:
        console = Console(width=NARROWEST)
    # If a signal ends the process, it must still stop its servers: SystemExit runs the finally blocks.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    facts = machine.facts()
    console.print(machine.described(facts))
    campaign = Campaign(parameters, lambda line: console.print(line, highlight=False, markup=False))
    try:
        campaign.run()
        if options.profile:
            campaign.profile(options.profile)
    except KeyboardInterrupt:
        campaign.results.notes.append("interrupted: the figures are incomplete")
    # First, because the reader of standard output may have closed the pipe.
    report.write(options.json, campaign.results, parameters, facts)
    report.show(console, campaign.results, parameters)
    console.print(f"All figures: {options.json}", highlight=False)


if __name__ == "__main__":
    main()
