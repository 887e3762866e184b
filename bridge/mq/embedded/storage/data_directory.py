"""The data directory of a queue manager, which one process at a time holds."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO

from bridge.mq.embedded.storage.lock import Locked, lock

_LOCK = "lock"


class DataDirectoryInUse(Exception):
    """Another process runs a queue manager on the same data directory."""


def is_data_directory(directory: Path) -> bool:
    """Return whether a queue manager has its data there, or had."""
    return (directory / _LOCK).exists()


def hold(data_directory: Path) -> IO[str]:
    """Take the lock of a data directory; it is free again when the file is closed or the process ends."""
    path = data_directory / _LOCK
    try:
        held = lock(path)
    except Locked as error:
        raise DataDirectoryInUse(
            f"{data_directory} is in use by another bridge (process {error.process}); stop it, or take another data directory"
        ) from error
    with contextlib.suppress(OSError):
        os.chmod(path, 0o640)
    return held
