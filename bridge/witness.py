"""A witness: a small file that contains how far another file has been written.

A log cannot show that its end is missing: a torn end looks the same as the end of a shorter log. The witness is outside the
log. It is written after each fsync of the log, with one write and without an fsync of its own. After `kill -9` it is exact.
After a power failure it may be older than the log, never newer.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from bridge.files import durable_file

_FORMAT = struct.Struct("<8sQQQd")
_CHECKSUM = struct.Struct("<I")
_MAGIC = b"mqbridge"
#: Size of the file in bytes. It fits into one sector, so a power failure leaves the old or the new content.
SIZE = _FORMAT.size + _CHECKSUM.size


class WitnessDamaged(Exception):
    """The content of the file is not the content that was written."""


class WitnessPosition(NamedTuple):
    """The content of a witness."""

    #: the log that it belongs to: a random number
    identity: int
    #: number of starts of the process that writes the log
    starts: int
    #: number of the last commit
    number: int
    #: when that commit was made, in seconds since the epoch
    time: float = 0.0


def read(path: Path) -> WitnessPosition | None:
    """Return the position in a witness; None if there is no file. Raises WitnessDamaged or OSError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) != SIZE or crc32(content[: _FORMAT.size]) != _CHECKSUM.unpack_from(content, _FORMAT.size)[0]:
        raise WitnessDamaged(f"{path} is not as it was written")
    magic, *values = _FORMAT.unpack_from(content)
    if magic != _MAGIC:
        raise WitnessDamaged(f"{path} was written by another program")
    return WitnessPosition(*values)


def create(path: Path, position: WitnessPosition, mode: int = 0o640) -> None:
    """Create or replace a witness durably. Raises OSError."""
    with durable_file(path, mode) as file:
        file.write(_encoded(position))


class Witness:
    """An existing witness, open for writing. Raises OSError."""

    def __init__(self, path: Path, identity: int, starts: int = 0) -> None:
        self._identity, self._starts = identity, starts
        self._descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def record(self, number: int) -> None:
        """Record the number of a commit that is on disk."""
        os.pwrite(self._descriptor, _encoded(WitnessPosition(self._identity, self._starts, number, time.time())), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def _encoded(position: WitnessPosition) -> bytes:
    content = _FORMAT.pack(_MAGIC, *position)
    return content + _CHECKSUM.pack(crc32(content))
