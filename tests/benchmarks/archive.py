"""`python -m tests.benchmarks.archive`: compare the rate of the service with and without an archive."""

from __future__ import annotations

import argparse
import fcntl
import json
import statistics
import sys
import time
from collections import defaultdict
from typing import Any, Final, NamedTuple

import psutil
import pyarrow.parquet

from bridge.archive.schema import Direction, archive_files
from bridge.archive.writer import LOCK
from bridge.telemetry.outcome import Outcome
from tests.benchmarks import machine
from tests.benchmarks.generator import MeasureFailed, measure
from tests.benchmarks.servers import START_WAIT, Bridge, ServerUnavailable

#: The smallest acceptable rate with an archive, as a fraction of the rate without one.
LEAST: Final = 0.9
#: Maximum number of messages that are published and not yet delivered, by QoS.
BACKLOG: Final = (4000, 4000, 400)
#: Seconds that a measurement may take beyond its planned time.
MARGIN: Final = 30.0
#: Seconds that a bridge may take to stop: longer than its shutdown_timeout.
STOP_WAIT: Final = 60.0


class Archiving(Bridge):
    """A bridge with an archive in its directory."""

    name = "archive"

    def command(self) -> list[str]:
        config = self.folder / "bridge.yaml"
        config.write_text(f"archive: {{directory: {self.folder / 'archive'}}}\n")
        return [*super().command(), str(config)]

    def start(self) -> None:
        """Start the bridge, and wait until the archive process is running."""
        super().start()
        with (self.folder / "archive" / LOCK).open("ab") as lock:
            until = time.monotonic() + START_WAIT
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
                fcntl.flock(lock, fcntl.LOCK_UN)
                if time.monotonic() > until:
                    raise ServerUnavailable("the archive's process is not there")
                time.sleep(0.05)

    def end(self) -> None:
        """Stop the bridge in order, so that everything is written."""
        process = psutil.Process(self.pid)
        process.terminate()
        process.wait(STOP_WAIT)

    def rows(self) -> dict[str, int]:
        """Return the number of rows of publications, of deliveries, and of rows that the archive reports missing."""
        counts = {"in": 0, "out": 0, "missing": 0}
        for file in archive_files(self.folder / "archive"):
            columns = ["direction", "outcome", "size"]
            for group in (
                pyarrow.parquet.read_table(file, columns=columns, partitioning=None)
                .group_by(["direction", "outcome"])
                .aggregate([("size", "count"), ("size", "sum")])
                .to_pylist()
            ):
                if group["outcome"] == Outcome.GAP:
                    counts["missing"] += group["size_sum"]
                elif group["direction"] in (Direction.IN, Direction.OUT):
                    counts[group["direction"]] += group["size_count"]
        return counts


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    out = argparse.ArgumentParser(prog="python -m tests.benchmarks.archive", description=__doc__)
    add = out.add_argument
    add("--qos", default="0,1,2", help="QoS levels (0,1,2)")
    add("--rounds", type=int, default=5, help="the median of so many rounds counts (5)")
    add("--seconds", type=float, default=3, help="publish so long per run (3)")
    add("--publishers", type=int, default=4, help="publishing clients (4)")
    add("--payload", type=int, default=100, help="bytes per message (100)")
    add("--window", type=int, default=100, help="QoS 1/2: unacknowledged per publisher (100)")
    return out


class Figures(NamedTuple):
    """The figures of one load."""

    #: messages a second, end to end
    rate: float
    #: processor time of the service's own process for each message, in microseconds
    service: float
    #: processor time of the archive process for each message, in microseconds
    archive: float


def processor_time(process: psutil.Process) -> float:
    """Return the processor time of this process alone so far, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def load(server: Bridge, qos: int, options: argparse.Namespace) -> Figures:
    """Return the figures of one load. Raises MeasureFailed."""
    service = psutil.Process(server.pid)
    processes = [service, *service.children()]
    before = [processor_time(process) for process in processes]
    figures = measure(
        "load",
        timeout=options.seconds + MARGIN,
        core=None,
        port=server.port,
        pid=server.pid,
        qos=qos,
        durable=False,
        messages=int(options.seconds * 150_000),
        publishers=options.publishers,
        payload=options.payload,
        window=options.window,
        backlog=BACKLOG[qos],
        seconds=options.seconds,
    )
    if figures["failure"] or figures["lost"]:
        raise MeasureFailed(figures["failure"] or f"{figures['lost']} messages lost")
    try:
        spent = [processor_time(process) - seconds for process, seconds in zip(processes, before, strict=True)]
    except psutil.NoSuchProcess as error:
        raise MeasureFailed(f"the archive's process has ended: {server.last_words()}") from error
    each = [1e6 * time / figures["received"] for time in spent]
    return Figures(figures["rate"], each[0], sum(each[1:]))


def one_round(kind: type[Bridge], qos: int, options: argparse.Namespace) -> tuple[Figures, dict[str, int]]:
    """Return the figures of a fresh server, and the rows of its archive after it stopped in order. Raises
    MeasureFailed.
    """
    server = kind()
    server.start()
    try:
        figures = load(server, qos, options)
        if not isinstance(server, Archiving):
            return figures, {}
        server.end()
        return figures, server.rows()
    finally:
        server.stop()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds, alternating with and without an archive, so that a drift of the machine affects both."""
    results: dict[str, Any] = {}
    for qos in map(int, options.qos.split(",")):
        figures: defaultdict[str, list[Figures]] = defaultdict(list)
        missing = total = 0
        for number in range(options.rounds):
            kinds: list[type[Bridge]] = [Bridge, Archiving]
            for kind in kinds if number % 2 == 0 else kinds[::-1]:
                figure, rows = one_round(kind, qos, options)
                figures[kind.name].append(figure)
                missing += rows.get("missing", 0)
                total += rows.get("in", 0) + rows.get("out", 0)
        without, archived = (
            Figures(*map(statistics.median, zip(*figures[kind.name], strict=True))) for kind in (Bridge, Archiving)
        )
        # Within each round, because the speed of the machine may change between rounds.
        pairs = list(zip(figures[Bridge.name], figures[Archiving.name], strict=True))
        ratio = statistics.median(archiving.rate / bare.rate for bare, archiving in pairs)
        spent = statistics.median(bare.service / archiving.service for bare, archiving in pairs)
        print(
            f"QoS {qos}: {without.rate:,.0f}/s without, {archived.rate:,.0f}/s with an archive: {ratio:.2f} x "
            f"(target at least {LEAST} x: {'met' if ratio >= LEAST else 'missed'}); {total:,} rows, {missing:,} missing"
        )
        print(
            f"       processor time of the service: {without.service:.1f} us a message without, {archived.service:.1f} us "
            f"with: {spent:.2f} x; of the archive's process: {archived.archive:.1f} us",
            flush=True,
        )
        results[f"QoS {qos}"] = {
            "ratio": ratio,
            "processor_time_ratio": spent,
            "rows": total,
            "missing": missing,
            "without": [figure._asdict() for figure in figures[Bridge.name]],
            "with": [figure._asdict() for figure in figures[Archiving.name]],
        }
    return results


def main() -> None:
    """Measure and print. A missed target is a figure, not a failure. The last line is JSON."""
    options = parser().parse_args()
    facts = machine.facts()
    print(machine.described(facts), flush=True)
    try:
        results = run(options)
    except (MeasureFailed, ServerUnavailable) as error:
        sys.exit(f"not measured: {error}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
