"""The load generator as a process of its own, so that it shares neither interpreter nor event loop with anything else.

`python -m tests.benchmarks.generator` reads one request (JSON) from stdin and writes its figures (JSON) to stdout.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from typing import Any

from tests.benchmarks.idle import Crowd
from tests.benchmarks.latency import Trickle
from tests.benchmarks.load import Load

MEASURES = {"load": Load, "idle": Crowd, "latency": Trickle}


class MeasureFailed(Exception):
    """A measurement gave no figures."""


def measure(kind: str, *, timeout: float, core: int | None, **parameters: object) -> dict[str, Any]:
    """Run one measurement in a fresh process and return its figures."""
    request = json.dumps({"kind": kind, "core": core, "parameters": parameters})
    command = [sys.executable, "-m", "tests.benchmarks.generator"]
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise MeasureFailed(f"no result within {timeout:.0f} s") from None
    if done.returncode:
        raise MeasureFailed((done.stderr.strip().splitlines() or ["ended without a word"])[-1])
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Serve the one request."""
    request = json.load(sys.stdin)
    if request["core"] is not None:
        os.sched_setaffinity(0, {request["core"]})
    gc.disable()  # a collection in the middle of a run would show as latency
    json.dump(MEASURES[request["kind"]](**request["parameters"]).run(), sys.stdout)


if __name__ == "__main__":
    main()
