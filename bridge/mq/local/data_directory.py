"""The data directory of a queue manager, which one process at a time holds."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO


class DataDirectoryInUse(Exception):
    """Another process runs a queue manager on the same data directory."""


def hold(data_directory: Path) -> IO[str]:
    """Take the lock of a data directory; it is free again when the file is closed or the process ends."""
    held = open(data_directory / "lock", "a+", encoding="ascii")  # noqa: SIM115
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held.seek(0)
        owner = held.read().strip() or "unknown"
        held.close()
        raise DataDirectoryInUse(
            f"{data_directory} is in use by another bridge (process {owner}); stop it or give another --data-dir"
        ) from error
    held.seek(0)
    held.truncate()
    held.write(f"{os.getpid()}\n")
    held.flush()
    with contextlib.suppress(OSError):
        os.chmod(data_directory / "lock", 0o640)
    return held
