"""`python -m tests.bench.archive`: what the archive costs the service: its rate with and without one, side by side."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from typing import Any, Final

import psutil
import pyarrow.parquet

from bridge.archive.directory import files
from bridge.archive.schema import Direction, Outcome
from tests.bench import machine
from tests.bench.generator import MeasureFailed, measure
from tests.bench.servers import Bridge, ServerUnavailable

#: Of the rate without an archive, with one.
LEAST: Final = 0.9
#: Published, and not yet delivered, at most; by QoS.
BACKLOG: Final = (4000, 4000, 400)
#: Seconds that a measurement may take beyond its planned time.
MARGIN: Final = 30.0
#: Seconds that a bridge may take to stop: longer than its shutdown_timeout.
STOP_WAIT: Final = 60.0


class Archiving(Bridge):
    """The bridge with an archive, in its folder."""

    name = "archive"

    def command(self) -> list[str]:
        config = self.folder / "bridge.yaml"
        config.write_text(f"archive: {{directory: {self.folder / 'archive'}}}\n")
        return [*super().command(), str(config)]

    def end(self) -> None:
        """Have it stop in order: everything is written then."""
        process = psutil.Process(self.pid)
        process.terminate()
        process.wait(STOP_WAIT)

    def rows(self) -> dict[str, int]:
        """Rows of publications and deliveries in the archive, and those that it says are missing."""
        found = {"in": 0, "out": 0, "missing": 0}
        for file in files(self.folder / "archive"):
            columns = ["direction", "outcome", "size"]
            for one in pyarrow.parquet.read_table(file, columns=columns, partitioning=None).group_by(
                ["direction", "outcome"]
            ).aggregate([("size", "count"), ("size", "sum")]).to_pylist():
                if one["outcome"] == Outcome.GAP:
                    found["missing"] += one["size_sum"]
                elif one["direction"] in (Direction.IN, Direction.OUT):
                    found[one["direction"]] += one["size_count"]
        return found


def parser() -> argparse.ArgumentParser:
    """The options."""
    out = argparse.ArgumentParser(prog="python -m tests.bench.archive", description=__doc__)
    add = out.add_argument
    add("--qos", default="0,1,2", help="QoS levels (0,1,2)")
    add("--rounds", type=int, default=3, help="the median of so many rounds counts (3)")
    add("--seconds", type=float, default=5, help="publish so long per run (5)")
    add("--publishers", type=int, default=4, help="publishing clients (4)")
    add("--payload", type=int, default=100, help="bytes per message (100)")
    add("--window", type=int, default=100, help="QoS 1/2: unacknowledged per publisher (100)")
    return out


def load(server: Bridge, qos: int, options: argparse.Namespace) -> float:
    """Messages a second through a server, end to end. Raises MeasureFailed."""
    figures = measure(
        "load", timeout=options.seconds + MARGIN, core=None, port=server.port, pid=server.pid, qos=qos, durable=False,
        messages=int(options.seconds * 150_000), publishers=options.publishers, payload=options.payload,
        window=options.window, backlog=BACKLOG[qos], seconds=options.seconds,
    )  # fmt: skip
    if figures["failure"] or figures["lost"]:
        raise MeasureFailed(figures["failure"] or f"{figures['lost']} messages lost")
    return float(figures["rate"])


def one_round(kind: type[Bridge], qos: int, options: argparse.Namespace) -> tuple[float, dict[str, int]]:
    """The rate of a fresh server, and what is in its archive once it is stopped in order. Raises MeasureFailed."""
    server = kind()
    server.start()
    try:
        rate = load(server, qos, options)
        if not isinstance(server, Archiving):
            return rate, {}
        server.end()
        return rate, server.rows()
    finally:
        server.stop()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds: with and without in turn, so that a drift of the machine hits both alike."""
    found: dict[str, Any] = {}
    for qos in map(int, options.qos.split(",")):
        rates: defaultdict[str, list[float]] = defaultdict(list)
        missing = total = 0
        for number in range(options.rounds):
            kinds: list[type[Bridge]] = [Bridge, Archiving]
            for kind in kinds if number % 2 == 0 else kinds[::-1]:
                rate, rows = one_round(kind, qos, options)
                rates[kind.name].append(rate)
                missing += rows.get("missing", 0)
                total += rows.get("in", 0) + rows.get("out", 0)
        without, archived = (statistics.median(rates[kind.name]) for kind in (Bridge, Archiving))
        ratio = archived / without
        print(
            f"QoS {qos}: {without:,.0f}/s without, {archived:,.0f}/s with an archive: {ratio:.2f} x "
            f"(target at least {LEAST} x: {'met' if ratio >= LEAST else 'missed'}); "
            f"{total:,} rows in the archive, {missing:,} missing",
            flush=True,
        )
        found[f"QoS {qos}"] = {
            "without": rates[Bridge.name], "with": rates[Archiving.name], "ratio": ratio, "rows": total,
            "missing": missing,
        }  # fmt: skip
    return found


def main() -> None:
    """Measure and print; a missed target is a figure and no failure. The last line is JSON."""
    options = parser().parse_args()
    facts = machine.facts()
    print(f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}, load {facts['load_average']}", flush=True)
    try:
        found = run(options)
    except (MeasureFailed, ServerUnavailable) as error:
        sys.exit(f"not measured: {error}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
