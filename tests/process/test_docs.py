"""The pages of the documentation are built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_pages_are_built() -> None:
    make = ["make", "docs", f"VENV={Path(sys.executable).parents[1]}"]
    process = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert process.returncode == 0, process.stdout + process.stderr
    for page in ("how-to/moving-from-mqxr", "reference/configuration", "explanation/security"):
        assert (ROOT / "build" / "docs" / f"{page}.html").is_file()
