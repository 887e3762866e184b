"""`python -m tests.benchmarks.traces`: the cost of traces, switched on and off under the same load.

The figure is the CPU time of the bridge's main thread per message (`tests.benchmarks.metrics_switch`), for each share
of messages that begins a trace. A collector on the same machine receives the spans.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tests.benchmarks import machine
from tests.benchmarks.archive import BACKLOG, MARGIN
from tests.benchmarks.generator import MeasureFailed, measure
from tests.benchmarks.metrics import Switched
from tests.benchmarks.servers import ServerUnavailable
from tests.helpers.collector import Collector


class Traced(Switched):
    """A bridge that switches traces on and off."""

    name = "traces"

    def __init__(self, endpoint: str, sample: float) -> None:
        super().__init__()
        self._traces = {"endpoint": endpoint, "sample": sample}

    def configuration(self) -> dict[str, Any]:
        return {"traces": self._traces}


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    out = argparse.ArgumentParser(prog="python -m tests.benchmarks.traces", description=__doc__)
    add = out.add_argument
    add("--samples", default="0,0.01,1", help="parts of messages that begin a trace (0,0.01,1)")
    add("--qos", default="0,1,2", help="QoS levels (0,1,2)")
    add("--seconds", type=float, default=10, help="publish so long (10)")
    add("--rate", type=int, default=250_000, help="messages a second that are made ready (250000)")
    add("--publishers", type=int, default=4, help="publishing clients (4)")
    add("--payload", type=int, default=100, help="bytes per message (100)")
    add("--window", type=int, default=100, help="QoS 1/2: unacknowledged per publisher (100)")
    return out


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run one load for each QoS and share. Raises MeasureFailed."""
    results: dict[str, Any] = {}
    for qos in map(int, options.qos.split(",")):
        for sample in map(float, options.samples.split(",")):
            with Collector() as collector:
                server = Traced(collector.endpoint, sample)
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
                finally:
                    server.stop()
                spans = len(collector.spans)
            low, high = figures["quartiles"]
            print(
                f"QoS {qos}, sample {sample:g}: {figures['off_us']:.2f} us of processor time a message, "
                f"{figures['on_us']:.2f} us with traces: {figures['cost']:+.1%} (quartiles of {figures['spells']} spells "
                f"{low:+.1%} and {high:+.1%}); {spans} spans received",
                flush=True,
            )
            results[f"QoS {qos}, sample {sample:g}"] = {**figures, "spans": spans}
    return results


def main() -> None:
    """Measure and print. The last line is JSON."""
    options = parser().parse_args()
    print(machine.described(machine.facts()), flush=True)
    try:
        results = run(options)
    except (MeasureFailed, ServerUnavailable) as error:
        sys.exit(f"not measured: {error}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
