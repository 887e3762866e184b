"""`python -m tests.benchmarks.pipeline`: throughput of pipelines on Spark. Each figure comes from its own process."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import machine

#: Minimum ratios.
LEAST: Final = {"mapping": 0.5, "mq -> Parquet": 0.7, "Parquet -> mq": 0.7}
MEASURES: Final = ("mapping", "queue", "sources", "stages", "rates", "latency")


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    out = argparse.ArgumentParser(prog="python -m tests.benchmarks.pipeline", description=__doc__)
    add = out.add_argument
    add("--only", default=",".join(MEASURES), help=f"some of {','.join(MEASURES)} (all)")
    add("--rows", type=int, default=1_000_000, help="archived rows that are mapped (1000000)")
    add("--messages", type=int, default=100_000, help="messages between queue and Parquet (100000)")
    add("--rate", type=int, default=1_000, help="messages/s of the latency (1000)")
    add("--seconds", type=float, default=20, help="of the latency (20)")
    add("--json", type=Path, default=Path("bench-pipeline-results.json"), help="file for the figures")
    return out


def run(module: str, *arguments: object) -> Any:
    """Run a benchmark, print its output as it arrives, and return its JSON. Raises CalledProcessError."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(last, end="", flush=True)
            last = line
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return json.loads(last)


def mapping(options: argparse.Namespace) -> Any:
    """Measure reader, mapping and writer."""
    results = run("pipeline_mapping", "--rows", options.rows)
    for plan, figures in results.items():
        print(f"archive {plan}: {_rate(figures['rows_per_second'])}, {figures['ratio']:.2f} x identity")
    for direction in ("to messages", "to publications"):
        _judge("mapping", results[f"{direction}, standard profile, parquet"]["ratio"])
    return results


def queue(options: argparse.Namespace) -> Any:
    """Measure between queue and Parquet, on one core and on all."""
    from tests.benchmarks.pipeline_mq import mq_to_parquet, parquet_to_mq

    ways = {"mq -> Parquet": mq_to_parquet, "Parquet -> mq": parquet_to_mq}
    results: dict[str, Any] = {way: measure(print, options.messages) for way, measure in ways.items()}
    for way, figures in results.items():
        _judge(way, figures[f"{way}, one core"]["ratio"])
    return results


def sources(_: argparse.Namespace) -> Any:
    """Measure the sources, the sink and the lake in plain streaming queries, compared with Spark's own source."""
    return run("spark_sources")


def stages(_: argparse.Namespace) -> Any:
    """Measure each stage of a read through the spool separately."""
    return run("spool_stages")


def rates(options: argparse.Namespace) -> Any:
    """Measure whole pipelines, compared with Spark alone and a plain program."""
    return run("pipeline_rates")


def latency(options: argparse.Namespace) -> Any:
    """Measure the latency of a stream."""
    results = run("pipeline_latency", "--rate", options.rate, "--seconds", options.seconds)
    print(
        f"put to row at {options.rate} messages/s, trigger 1 s: median {results['p50_s']:.2f} s, p99 {results['p99_s']:.2f} s"
    )
    print(f"cold start, put to first row: {results['cold_start_s']:.1f} s")
    return results


def _rate(value: float) -> str:
    return f"{value:,.0f} rows/s"


def _judge(target: str, ratio: float) -> None:
    met = "met" if ratio >= LEAST[target] else "missed"
    print(f"  target {target}: at least {LEAST[target]} x: {met} ({ratio:.2f})")


_RUN: Final[dict[str, Callable[[argparse.Namespace], Any]]] = {
    "mapping": mapping,
    "queue": queue,
    "sources": sources,
    "stages": stages,
    "rates": rates,
    "latency": latency,
}


def main() -> None:
    """Measure, print and write the figures. A missed target is a figure, not a failure."""
    options = parser().parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(MEASURES):
        sys.exit(f"--only: choose from {','.join(MEASURES)}, not {','.join(sorted(unknown))}")
    facts = machine.facts()
    print(machine.described(facts))
    results = {name: _RUN[name](options) for name in chosen}
    options.json.write_text(json.dumps({"machine": facts, **results}, indent=1))
    print(f"All figures: {options.json}")


if __name__ == "__main__":
    main()
