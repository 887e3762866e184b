"""`python -m tests.benchmarks.metrics`: the cost of metrics, switched on and off under the same load.

The cost is the sum of two parts: counting, per message (`tests.benchmarks.metrics_switch`), and the processor time of
scrapes. Here a scrape happens every second, fifteen times as often as Prometheus does by default.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import urllib.request
from typing import Any, Final

import psutil

from tests.benchmarks import machine
from tests.benchmarks.archive import BACKLOG, MARGIN, processor_time
from tests.benchmarks.generator import MeasureFailed, measure
from tests.benchmarks.metrics_switch import FIGURES
from tests.benchmarks.servers import Bridge, ServerUnavailable

#: Maximum cost of metrics, as a fraction of the processor time of a message without them.
MOST: Final = 0.03
_ADMIN: Final = re.compile(r"health at (http://\S+)/")
#: Number of scrapes that are measured, and seconds that the bridge has to print its figures.
SCRAPES, FIGURES_WAIT = 100, 10.0


class Switched(Bridge):
    """A bridge with an admin port that switches counting on and off."""

    name = "metrics"
    # It prints the admin port first.
    address = re.compile(r"MQTT clients on 127\.0\.0\.1:(\d+)")

    def configuration(self) -> dict[str, Any]:
        """Return the part of the configuration that is switched."""
        return {"admin": {"port": 0}}

    def command(self) -> list[str]:
        config = self.folder / "bridge.yaml"
        config.write_text(json.dumps(self.configuration()))
        _, *arguments = super().command()
        return [sys.executable, "-m", "tests.benchmarks.metrics_switch", *arguments, str(config)]

    def scrape_seconds(self) -> float:
        """Return the processor time of one scrape, in seconds."""
        address = _ADMIN.search((self.folder / "log").read_text())
        if address is None:
            raise MeasureFailed("the bridge did not print its admin port")
        process = psutil.Process(self.pid)
        before = processor_time(process)
        for _ in range(SCRAPES):
            with urllib.request.urlopen(f"{address[1]}/metrics", timeout=30) as answer:
                answer.read()
        return (processor_time(process) - before) / SCRAPES

    def figures(self) -> dict[str, Any]:
        """Return the figures that the bridge prints when its clients have gone. Raises MeasureFailed."""
        until = time.monotonic() + FIGURES_WAIT
        while time.monotonic() < until:
            for line in (self.folder / "log").read_text(errors="replace").splitlines():
                if line.startswith(FIGURES):
                    figures: dict[str, Any] = json.loads(line.removeprefix(FIGURES))
                    return figures
            time.sleep(0.1)
        raise MeasureFailed(f"no figures: {self.last_words()}")


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    out = argparse.ArgumentParser(prog="python -m tests.benchmarks.metrics", description=__doc__)
    add = out.add_argument
    add("--qos", default="0,1,2", help="QoS levels (0,1,2)")
    add("--seconds", type=float, default=10, help="publish so long (10)")
    add("--rate", type=int, default=250_000, help="messages a second that are made ready (250000)")
    add("--publishers", type=int, default=4, help="publishing clients (4)")
    add("--payload", type=int, default=100, help="bytes per message (100)")
    add("--window", type=int, default=100, help="QoS 1/2: unacknowledged per publisher (100)")
    return out


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run one load for each QoS. Raises MeasureFailed."""
    results: dict[str, Any] = {}
    for qos in map(int, options.qos.split(",")):
        server = Switched()
        server.start()
        try:
            load = measure(
                "load",
                timeout=4 * options.seconds + MARGIN,
                core=None,
                port=server.port,
                pid=server.pid,
                qos=qos,
                durable=False,
                messages=int(options.seconds * options.rate),
                publishers=options.publishers,
                payload=options.payload,
                window=options.window,
                backlog=BACKLOG[qos],
                seconds=options.seconds,
            )
            if load["failure"] or load["lost"]:
                raise MeasureFailed(load["failure"] or f"{load['lost']} messages lost")
            figures = server.figures()
            scrape = server.scrape_seconds()
        finally:
            server.stop()
        cost = figures["cost"] + scrape
        low, high = figures["quartiles"]
        print(
            f"QoS {qos}: {figures['off_us']:.2f} us of processor time a message, {figures['on_us']:.2f} us where it is "
            f"counted: {figures['cost']:+.1%} (quartiles of {figures['spells']} spells {low:+.1%} and {high:+.1%})"
        )
        print(
            f"       a scrape takes {1e3 * scrape:.1f} ms; with one a second metrics cost {cost:.1%} "
            f"(target at most {MOST:.0%}: {'met' if cost <= MOST else 'missed'})",
            flush=True,
        )
        results[f"QoS {qos}"] = {**figures, "scrape_seconds": scrape, "total": cost}
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
