"""Lock files: one process at a time has what a file stands for."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


class Locked(Exception):
    """Another process has it."""

    def __init__(self, process: str) -> None:
        super().__init__(f"process {process} has it")
        #: its number
        self.process = process


def lock(path: Path) -> IO[str]:
    """Take the lock of a file; it is free again when the file is closed or the process ends. Raises Locked, OSError."""
    held = path.open("a+", encoding="ascii")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        held.seek(0)
        owner = held.read().strip() or "unknown"
        held.close()
        raise Locked(owner) from error
    held.truncate(0)
    held.write(f"{os.getpid()}\n")
    held.flush()
    return held
