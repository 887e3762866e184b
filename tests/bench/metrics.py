"""`python -m tests.bench.metrics`: what metrics cost the service: its rate with and without an admin port, side by side.

With one, a scraper asks for them every second, which is fifteen times as often as Prometheus does by default.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import threading
import urllib.request
from collections import defaultdict
from typing import Any, Final, NamedTuple

import psutil

from tests.bench import machine
from tests.bench.archive import BACKLOG, MARGIN, processor_time
from tests.bench.generator import MeasureFailed, measure
from tests.bench.servers import Bridge, ServerUnavailable

#: Of the processor time of a message without metrics, what they may add.
MOST: Final = 0.03
_ADMIN: Final = re.compile(r"health at (http://\S+)/")


class Scraped(Bridge):
    """The bridge with an admin port that is asked for its metrics all the time."""

    name = "metrics"
    # The admin port is printed first.
    address = re.compile(r"MQTT clients on 127\.0\.0\.1:(\d+)")

    def __init__(self) -> None:
        super().__init__()
        self.scrapes = 0
        #: bytes of the last one
        self.size = 0
        self._ended = threading.Event()
        self._scraper = threading.Thread(target=self._scrape, daemon=True)

    def command(self) -> list[str]:
        config = self.folder / "bridge.yaml"
        config.write_text("admin: {port: 0}\n")
        return [*super().command(), str(config)]

    def start(self) -> None:
        super().start()
        found = _ADMIN.search((self.folder / "log").read_text())
        if found is None:
            raise ServerUnavailable("it does not say where its admin port is")
        self._url = f"{found[1]}/metrics"
        self._scraper.start()

    def stop(self) -> None:
        self._ended.set()
        if self._scraper.is_alive():
            self._scraper.join()
        super().stop()

    def _scrape(self) -> None:
        while not self._ended.wait(1.0):
            with urllib.request.urlopen(self._url, timeout=30) as answer:
                self.size = len(answer.read())
            self.scrapes += 1


class Figures(NamedTuple):
    """What one load brought."""

    #: messages a second, end to end
    rate: float
    #: processor time of the bridge for each message, in microseconds
    service: float


def parser() -> argparse.ArgumentParser:
    """The options."""
    out = argparse.ArgumentParser(prog="python -m tests.bench.metrics", description=__doc__)
    add = out.add_argument
    add("--qos", default="0,1,2", help="QoS levels (0,1,2)")
    add("--rounds", type=int, default=7, help="the median of so many rounds counts (7)")
    add("--seconds", type=float, default=4, help="publish so long per run (4)")
    add("--publishers", type=int, default=4, help="publishing clients (4)")
    add("--payload", type=int, default=100, help="bytes per message (100)")
    add("--window", type=int, default=100, help="QoS 1/2: unacknowledged per publisher (100)")
    return out


def one_round(kind: type[Bridge], qos: int, options: argparse.Namespace) -> Figures:
    """The figures of a fresh server. Raises MeasureFailed."""
    server = kind()
    server.start()
    try:
        process = psutil.Process(server.pid)
        before = processor_time(process)
        figures = measure(
            "load", timeout=options.seconds + MARGIN, core=None, port=server.port, pid=server.pid, qos=qos, durable=False,
            messages=int(options.seconds * 1_000_000), publishers=options.publishers, payload=options.payload,
            window=options.window, backlog=BACKLOG[qos], seconds=options.seconds,
        )  # fmt: skip
        if figures["failure"] or figures["lost"]:
            raise MeasureFailed(figures["failure"] or f"{figures['lost']} messages lost")
        spent = processor_time(process) - before
        if isinstance(server, Scraped) and not server.scrapes:
            raise MeasureFailed("nobody asked for metrics meanwhile")
        return Figures(figures["rate"], 1e6 * spent / figures["received"])
    finally:
        server.stop()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds: with and without in turn, so that a drift of the machine hits both alike."""
    found: dict[str, Any] = {}
    kinds: list[type[Bridge]] = [Bridge, Scraped]
    for qos in map(int, options.qos.split(",")):
        figures: defaultdict[str, list[Figures]] = defaultdict(list)
        for number in range(options.rounds):
            for kind in kinds if number % 2 == 0 else kinds[::-1]:
                figures[kind.name].append(one_round(kind, qos, options))
        # Of each round by itself: the machine may be another one in the next.
        pairs = list(zip(figures[Bridge.name], figures[Scraped.name], strict=True))
        costs = sorted(two.service / one.service - 1 for one, two in pairs)
        rates = sorted(two.rate / one.rate for one, two in pairs)
        cost = statistics.median(costs)
        # Whatever else the machine does makes messages dearer, never cheaper.
        least = [min(one.service for one in figures[kind.name]) for kind in kinds]
        without, scraped = (
            Figures(*map(statistics.median, zip(*figures[kind.name], strict=True))) for kind in (Bridge, Scraped)
        )
        print(
            f"QoS {qos}: {without.service:.2f} us of processor time a message without, {scraped.service:.2f} us with "
            f"metrics: {cost:+.1%} (rounds {costs[0]:+.1%} to {costs[-1]:+.1%}; target at most {MOST:.0%}: "
            f"{'met' if cost <= MOST else 'missed'})"
        )
        print(
            f"       the least disturbed rounds: {least[0]:.2f} us without, {least[1]:.2f} us with: "
            f"{least[1] / least[0] - 1:+.1%}"
        )
        print(
            f"       {without.rate:,.0f}/s without, {scraped.rate:,.0f}/s with: {statistics.median(rates):.3f} x "
            f"(rounds {rates[0]:.3f} to {rates[-1]:.3f})",
            flush=True,
        )
        found[f"QoS {qos}"] = {
            "cost": cost,
            "costs": costs,
            "least": least,
            "rates": rates,
            "without": [one._asdict() for one in figures[Bridge.name]],
            "with": [one._asdict() for one in figures[Scraped.name]],
        }
    return found


def main() -> None:
    """Measure and print; a missed target is a figure and no failure. The last line is JSON."""
    options = parser().parse_args()
    facts = machine.facts()
    print(machine.described(facts), flush=True)
    try:
        found = run(options)
    except (MeasureFailed, ServerUnavailable) as error:
        sys.exit(f"not measured: {error}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
