"""Waiting for what has to happen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.patience import PATIENCE


def until(condition: Callable[[], bool]) -> None:
    """Return when it holds."""
    before = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < before, "it did not happen"
        threading.Event().wait(0.001)
