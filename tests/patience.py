"""How long a test waits for what has to come: a bound on a hang, and no measure of speed.

Far more than anything takes on a quiet machine, for CI runs five processes of tests beside each other on two slow cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: Seconds.
PATIENCE = float(os.environ.get("MQBRIDGE_TEST_PATIENCE") or 100)


def until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds."""
    before = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < before, "it did not come about"
        time.sleep(0.005)
