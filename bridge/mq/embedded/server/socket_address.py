"""Addresses of Unix sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: sun_path of a Unix socket address has room for 108 bytes; a longer path goes by way of the directory's descriptor.
SUN_PATH = 100


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Yield an address for a Unix socket at `path`, however long the path is."""
    if len(os.fsencode(path)) <= SUN_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
