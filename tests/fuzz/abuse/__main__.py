"""`python -m tests.fuzz.abuse [--only NAME]`: run abusive clients against a bridge, and report the effect on others."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from bridge.compilation import PURE
from tests.fuzz.abuse.campaign import MAX_GROWTH, MAX_PING, Result, run
from tests.fuzz.abuse.scenarios import SCENARIOS


def main() -> int:
    """Run the scenarios. The exit status is 1 if one of them is not within the limits."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.abuse", description=__doc__)
    only = "scenarios whose names begin with NAME; may be repeated"
    parser.add_argument("--only", action="append", metavar="NAME", help=only)
    parser.add_argument("--seconds", type=float, default=12.0, help="duration of attacks by sustained traffic (12)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios, and run nothing")
    options = parser.parse_args()
    prefixes = tuple(options.only or [""])
    chosen = [scenario for scenario in SCENARIOS if scenario.name.startswith(prefixes)]
    if not chosen:
        parser.error(f"no scenario begins with {' or '.join(prefixes)}; --list prints their names")
    if options.list:
        print(*(scenario.name for scenario in chosen), sep="\n")
        return 0
    print(
        f"{len(chosen)} scenarios; load {os.getloadavg()[0]:.2f}; bridge {'pure Python' if PURE else 'compiled'}",
        flush=True,
    )
    results = []
    for scenario in chosen:
        print(scenario.name, flush=True)
        results.append(run(scenario, options.seconds, lambda line: print(line, flush=True)))
        if options.json:
            figures = [dataclasses.asdict(result) | {"within_limits": result.within_limits} for result in results]
            options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    print(_table(results))
    return 0 if all(result.within_limits for result in results) else 1


def _table(results: list[Result]) -> str:
    columns = ("PING", "loop", "PUBACK", "median", "RSS MB", "CPU s", "idle s", "baseline", "own")
    lines = [
        f"Delays in ms. Limits: PING {MAX_PING:.0f} ms, RSS growth {MAX_GROWTH:.0f} MB.",
        f"{'scenario':22}" + "".join(f"{column:>9}" for column in columns) + "  within",
    ]
    for result in results:
        whole = (result.ping, result.loop, result.puback, result.puback_median, result.growth)
        baseline = f"{result.baseline_ping:.0f}/{result.baseline_puback:.0f}"
        lines.append(
            f"{result.name:22}"
            + "".join(f"{figure:9.0f}" for figure in whole)
            + f"{result.cpu:9.1f}{result.seconds:9.1f}{baseline:>9}{result.own_lateness:9.0f}"
            + f"  {'yes' if result.within_limits else 'NO'}"
        )
        lines += [f"    {text}" for text in [result.note, *result.problems] if text]
    lines += [
        "loop: CPU time of the event loop during one PING, at most; other load on the machine changes it little.",
        "median: of the PUBACK delays. CPU s: of the bridge. idle s: until the bridge was idle again.",
        "baseline: longest PING/PUBACK without attack. own: how late the measuring client itself woke up, at most.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
