"""Ends what a run of the tests has left running: `python -m tests.leftovers MARK`.

Each process of a run has the mark in its environment (MQBRIDGE_TEST_RUN), also those that left its session and group.
"""

from __future__ import annotations

import sys

import psutil

VARIABLE = "MQBRIDGE_TEST_RUN"
#: Seconds that a process has to end by itself.
GRACE = 5


def left(mark: str) -> list[psutil.Process]:
    """The processes of a run, but for this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != psutil.Process().pid and process.environ().get(VARIABLE) == mark:
                found.append(process)
        except psutil.Error:
            continue  # it has ended, or is another user's
    return found


if __name__ == "__main__":
    _, alive = psutil.wait_procs(left(sys.argv[1]), GRACE)
    for process in alive:
        try:
            command = " ".join(process.cmdline())[:200]
            print(f"left running by a test, and ended now: {process.pid} {command}", file=sys.stderr)
            process.kill()
        except psutil.NoSuchProcess:
            continue
