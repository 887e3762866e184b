"""`python -m tests.benchmarks.pipeline`: the throughput of the pipeline on Spark, each figure from its own process."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import machine

#: What issue 5 asks for, as ratios.
LEAST: Final = {"mapping": 0.5, "mq -> Parquet": 0.7, "Parquet -> mq": 0.7}
MEASURES: Final = ("mapping", "queue", "sources", "stages", "rates", "latency")


def parser() -> argparse.ArgumentParser:
    """The options."""
    out = argparse.ArgumentParser(prog="python -m tests.benchmarks.pipeline", description=__doc__)
    add = out.add_argument
    add("--only", default=",".join(MEASURES), help=f"some of {','.join(MEASURES)} (all)")
    add("--rows", type=int, default=1_000_000, help="archived rows that are mapped (1000000)")
    add("--messages", type=int, default=100_000, help="messages between queue and Parquet (100000)")
    add("--rate", type=int, default=1_000, help="messages/s of the latency (1000)")
    add("--seconds", type=float, default=20, help="of the latency (20)")
    add("--json", type=Path, default=Path("bench-pipeline-results.json"), help="where the figures go")
    return out


def run(module: str, *arguments: object) -> Any:
    """What a measure prints in JSON, at the end; what it prints before is printed as it comes. Raises CalledProcessError."""
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
    """Reader, mapping, writer."""
    results = run("pipeline_mapping", "--rows", options.rows)
    for plan, figures in results.items():
        print(f"archive {plan}: {_rate(figures['rows_per_second'])}, {figures['ratio']:.2f} x identity")
    for direction in ("to messages", "to publications"):
        _judge("mapping", results[f"{direction}, standard profile, parquet"]["ratio"])
    return results


def queue(options: argparse.Namespace) -> Any:
    """Between queue and Parquet, on one core and on all."""
    from tests.benchmarks.pipeline_mq import mq_to_parquet, parquet_to_mq

    ways = {"mq -> Parquet": mq_to_parquet, "Parquet -> mq": parquet_to_mq}
    results: dict[str, Any] = {way: measure(print, options.messages) for way, measure in ways.items()}
    for way, figures in results.items():
        _judge(way, figures[f"{way}, one core"]["ratio"])
    return results


def sources(_: argparse.Namespace) -> Any:
    """The sources and the sink in plain streaming queries, and the lake, beside Spark's own source."""
    return run("spark_sources")


def stages(_: argparse.Namespace) -> Any:
    """Each stage of a read through the spool alone."""
    return run("spool_stages")


def rates(options: argparse.Namespace) -> Any:
    """Whole pipelines beside Spark alone and a plain program."""
    return run("pipeline_rates")


def latency(options: argparse.Namespace) -> Any:
    """Streaming."""
    results = run("pipeline_latency", "--rate", options.rate, "--seconds", options.seconds)
    print(
        f"put to row at {options.rate} messages/s, trigger 1 s: median {results['p50_s']:.2f} s, p99 {results['p99_s']:.2f} s"
    )
    print(f"cold start, put to first row: {results['cold_start_s']:.1f} s")
    return results


def _rate(value: float) -> str:
    return f"{value:,.0f} rows/s"


def _judge(what: str, ratio: float) -> None:
    met = "met" if ratio >= LEAST[what] else "missed"
    print(f"  target {what}: at least {LEAST[what]} x: {met} ({ratio:.2f})")


_RUN: Final[dict[str, Callable[[argparse.Namespace], Any]]] = {
    "mapping": mapping,
    "queue": queue,
    "sources": sources,
    "stages": stages,
    "rates": rates,
    "latency": latency,
}


def main() -> None:
    """Measure, print, write; a missed target is a figure and no failure."""
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
