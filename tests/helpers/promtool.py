"""promtool of Prometheus, which judges metrics and rules."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_UNPACKED = Path(__file__).parents[2] / "build" / "promtool"


def promtool(*arguments: str | Path, given: str = "", cwd: Path | None = None) -> str:
    """What it finds wrong, or prints; fails the test where it is not there."""
    command = shutil.which("promtool") or (str(_UNPACKED) if _UNPACKED.exists() else None)
    if command is None:
        pytest.fail("promtool is not there; `make test` fetches it (tests/unpacked-packages.sh)")
    done = subprocess.run([command, *arguments], input=given, capture_output=True, text=True, cwd=cwd, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
