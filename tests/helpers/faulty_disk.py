"""A disk whose writes and syncs of the database fail, for processes that are told to load the library (faulty_disk.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path


def compiled(directory: Path) -> Path:
    """The library, made in a directory."""
    library = directory / "faulty_disk.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    return library
