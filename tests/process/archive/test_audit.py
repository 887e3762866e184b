"""The memory of an audit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.archive_rows import generate


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param({}, id="many flows", marks=pytest.mark.slow),
        # 8 CPU seconds.
        pytest.param({"publishers": 1, "topics": 1, "subscribers": 1}, id="one flow", marks=pytest.mark.slow),
    ],
)
def test_an_audit_takes_limited_memory(scale: dict[str, int], tmp_path: Path) -> None:
    rows = 1_000_000
    generate(tmp_path, rows, lost=3, **scale)
    program = """if True:
        import pathlib, resource, sys
        from bridge.archive.audit import audit
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = audit([pathlib.Path(sys.argv[1])], memory="100MB")
        print(found.totals.expected, found.totals.delivered, found.totals.lost)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    process = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    counts, kilobytes = process.stdout.splitlines()
    assert [int(word) for word in counts.split()] == [rows // 2, rows // 2 - 3, 3]
    # Without a limit it takes more than 300 MB.
    assert int(kilobytes) < 180_000
