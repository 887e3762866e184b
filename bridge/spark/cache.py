"""What is made once and used by later runs: in the user's cache directory, for nobody else's eyes."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory, which may not be there yet."""
    if service := os.environ.get("CACHE_DIRECTORY"):  # of systemd
        return Path(service)
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "mqbridge"
