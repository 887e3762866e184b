"""Room on the disk for what makes room: a file that is given up when the disk is full.

What then is got, acknowledged and removed can be written, so clients that drain the queues are served; what would be put is
refused until the disk has room for the file again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: Bytes: some thousand commits of removals, and SQLite uses that room again and again.
RESERVE_BYTES = 8 * 1024 * 1024


class Reserve:
    """The file; `held` says whether it is there."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "queuemanager.reserve"
        self.held = False

    def take(self) -> bool:
        """Make the file, if the disk has that much room; whether it is there."""
        try:
            with self._path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError:
            self.release()
        else:
            self.held = True
        return self.held

    def release(self) -> None:
        """Remove the file."""
        self.held = False
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
