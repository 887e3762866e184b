"""Unit tests start no process: `tests/conftest.py` rejects each start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.helpers.forked_process import MQBRIDGE, launch


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(lambda: subprocess.run([sys.executable, "-c", ""]), id="subprocess"),
        pytest.param(lambda: launch([MQBRIDGE, "version"], env=dict(os.environ)), id="forked bridge"),
    ],
)
def test_a_start_of_a_process_fails(start: Callable[[], object]) -> None:
    with pytest.raises(AssertionError, match=r"it belongs to tests/process"):
        start()
