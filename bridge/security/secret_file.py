"""The mode of files with secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def readable_by_others(path: Path) -> Iterator[str]:
    """Yield a warning if users who are neither the owner of a file with secrets nor in its group can access the file."""
    if path.stat().st_mode & 0o007:
        yield f"{path} contains secrets and can be read by every user of this machine; run `chmod o= {path}`"
