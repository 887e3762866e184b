"""Unix sockets that listen: their addresses, and who may open them."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: sun_path of a Unix socket address has room for 108 bytes; a longer path goes by way of the directory's descriptor.
SUN_PATH = 100
#: The bridge's user and group may connect.
MODE = 0o660


def bound_socket(path: Path) -> socket.socket:
    """Return a socket bound to `path`, which the bridge's user and group may open (0660). Raises OSError."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Its file has the mode of the socket, less what the umask takes. That one stays as it is: it is of the whole
        # process, and threads make files and start programs meanwhile.
        os.fchmod(bound.fileno(), MODE)
        with socket_address(path) as address:
            bound.bind(address)
        path.chmod(MODE)
    except OSError:
        bound.close()
        raise
    return bound


def remove_left_behind(path: Path) -> None:
    """Remove a socket that a killed process has left. Raises OSError for another file, or where somebody listens."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(errno.EEXIST, "there is a file of that name that is no socket")
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
    """Yield an address for a Unix socket at `path`, however long the path is."""
    if len(os.fsencode(path)) <= SUN_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
