"""Listening Unix sockets: addresses and permissions."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Maximum path length in bytes (sun_path has 108). Longer paths use the directory's file descriptor.
SUN_PATH = 100
#: The bridge's user and group may connect.
MODE = 0o660


def bound_socket(path: Path) -> socket.socket:
    """Return a socket bound to `path`, accessible to the bridge's user and group (0660). Raises OSError."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file gets the socket's mode, minus the umask. The umask is not changed: it applies to the whole process, and
        # other threads create files and start programs.
        os.fchmod(bound.fileno(), MODE)
        with socket_address(path) as address:
            bound.bind(address)
        path.chmod(MODE)
    except OSError:
        bound.close()
        raise
    return bound


def remove_left_behind(path: Path) -> None:
    """Remove a socket left by a killed process. Raises OSError if the file is not a socket, or if the socket is in use."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(errno.EEXIST, "a file with this name exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, socket_address(path) as address:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Yield an address for a Unix socket at `path`, of any length."""
    if len(os.fsencode(path)) <= SUN_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
