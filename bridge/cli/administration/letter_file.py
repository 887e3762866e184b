"""Dead letters in files: a line of JSON for each in one file, or a file for each in a directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from bridge.mq.dead_letter import exported

if TYPE_CHECKING:
    from bridge.mq.dead_letter import Letter
    from bridge.wire.mq import MQMD

#: Messages are nobody's business but their owner's.
_MODE = 0o600


class Export:
    """Where letters are written to. Nothing that is there already is written over."""

    def __init__(self, place: Path) -> None:
        """Make the file `place`, or write files into it where it is a directory. Raises OSError."""
        self._directory = place if place.is_dir() else place.parent
        self._file: IO[bytes] | None = None if place.is_dir() else _made(place)
        #: files of single letters that are not synced yet
        self._unsynced: list[IO[bytes]] = []

    def write(self, letter: Letter, md: MQMD, data: bytes) -> None:
        """Write a letter: JSON as `mqbridge mq get --json` prints it, with its facts and its bytes. Raises OSError."""
        line = exported(letter, md, data)
        if self._file is not None:
            self._file.write(line)
            return
        file = self._next(f"{letter.id}-{letter.stamp}")
        self._unsynced.append(file)
        file.write(line)
        if len(self._unsynced) >= _OPEN:
            self.sync()

    def sync(self) -> None:
        """Have all that was written on disk, the names of files included. Raises OSError."""
        for file in [*self._unsynced] if self._file is None else [self._file]:
            file.flush()
            os.fsync(file.fileno())
        for file in self._unsynced:
            file.close()
        self._unsynced.clear()
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.sync()
        for file in [*self._unsynced, *([] if self._file is None else [self._file])]:
            file.close()

    def _next(self, name: str) -> IO[bytes]:
        """Return a new file of that name, with a number where letters share MsgId and time."""
        number = 1
        while True:
            suffix = "" if number == 1 else f"-{number}"
            try:
                return _made(self._directory / f"{name}{suffix}.json")
            except FileExistsError:
                number += 1


#: Files open at a time.
_OPEN = 100


def _made(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb")
