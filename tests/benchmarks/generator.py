"""The load generator in its own process, so that it shares neither interpreter nor event loop with the rest.

`python -m tests.benchmarks.generator` reads one request (JSON) from standard input and writes its figures (JSON) to
standard output.
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
    """Run one measurement in a new process and return its figures."""
    request = json.dumps({"kind": kind, "core": core, "parameters": parameters})
    command = [sys.executable, "-m", "tests.benchmarks.generator"]
    try:
        process = subprocess.run(command, input=request, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise MeasureFailed(f"no result within {timeout:.0f} s") from None
    if process.returncode:
        raise MeasureFailed((process.stderr.strip().splitlines() or ["ended without a word"])[-1])
    figures: dict[str, Any] = json.loads(process.stdout)
    return figures


def main() -> None:
    """Handle one request."""
    request = json.load(sys.stdin)
    if request["core"] is not None:
        os.sched_setaffinity(0, {request["core"]})
    gc.disable()  # A garbage collection during a run would show as latency.
    json.dump(MEASURES[request["kind"]](**request["parameters"]).run(), sys.stdout)


if __name__ == "__main__":
    main()
