"""A disk whose writes and syncs of the database fail, for processes that load the library (faulty_disk.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path


def compiled(directory: Path, name: str = "faulty_disk") -> Path:
    """Build the library, or that of another source file here, in a directory. Return its path."""
    library = directory / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    return library
