"""Lock files, which give one process at a time exclusive use of a directory."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import IO


class Locked(Exception):
    """Another process holds the lock."""

    def __init__(self, process: str) -> None:
        super().__init__(f"process {process} has it")
        #: process identifier of the holder, or "unknown"
        self.process = process


def lock(path: Path, mode: int = 0o666) -> IO[str]:
    """Lock a file until the returned file is closed or the process ends. Raises Locked or OSError.

    A symbolic link is not followed: the file is truncated, and root may lock a file in a directory of another user. A lock
    file that root creates there belongs to that user, who has to open it later.
    """
    held = os.fdopen(_opened(path, mode), "r+", encoding="ascii")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = held.read().strip() or "unknown"
        held.close()
        raise Locked(owner) from error
    held.truncate(0)
    held.write(f"{os.getpid()}\n")
    held.flush()
    return held


def _opened(path: Path, mode: int) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(error.errno, "the lock file is a symbolic link; remove it", str(path)) from error
            raise
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue  # another process was faster
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return descriptor
