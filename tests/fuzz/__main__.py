"""`python -m tests.fuzz [--minutes 10]`: fuzz all listeners of a bridge, and print the result."""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.campaign import Campaign, Fault

#: Cases between two inspections of the bridge.
_BATCH = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long")
    parser.add_argument("--seed", type=int, default=None, help="the same cases again; by default others each time")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--show", type=int, default=None, help="a case by its number: print it, and run nothing")
    arguments = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns about connections that the bridge has closed
    seed = time.time_ns() % 1_000_000 if arguments.seed is None else arguments.seed
    with tempfile.TemporaryDirectory(prefix="fuzz") as name:
        campaign = Campaign(Path(name), seed)
        try:
            if arguments.show is not None:
                listener, parts = campaign.case(arguments.show)
                print(listener.name, *(part.hex() for part in parts), sep="\n")
                campaign.end()
                return 0
            return _run(campaign, seed, arguments.first, arguments.minutes)
        finally:
            campaign.pair.end()
            campaign.bridge.discard()


def _run(campaign: Campaign, seed: int, first: int, minutes: float) -> int:
    print(f"seed {seed}, {minutes:g} min, {len(campaign.listeners)} listeners", flush=True)
    start = time.monotonic()
    number = first
    try:
        while time.monotonic() - start < 60 * minutes:
            asyncio.run(campaign.run(range(number, number + _BATCH)))
            number += _BATCH
        grown = campaign.end()
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    seconds = time.monotonic() - start
    for listener, cases in campaign.done.items():
        print(f"{listener:34} {cases:8}")
    latencies = campaign.pair.latencies
    print(f"{number - first} cases in {seconds:.0f} s; the bridge has grown by {grown / 2**20:.1f} MiB")
    p99, longest = 1000 * statistics.quantiles(latencies, n=100)[98], 1000 * max(latencies)
    print(
        f"the pair beside: {len(latencies)} publications, all arrived in order; p99 {p99:.1f} ms, longest {longest:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
