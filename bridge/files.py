"""Files on disk: durable writes, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from zlib import crc32

_CHUNK = 1024 * 1024


@contextmanager
def durable_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Write a file in the block. It appears at its path when it is complete and on disk. Raises OSError.

    An error leaves the previous file, if any, and nothing else. Until the end of the block, the file has a hidden name with
    the process identifier, in the same directory, which is created if it does not exist.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    # O_EXCL does not follow a symbolic link that another user has created.
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Write a file or directory to disk. It must not be a database that this process has open. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file. Raises OSError."""
    checksum = 0
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            checksum = crc32(data, checksum)
    return checksum


def regular_content(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    """Return the first bytes of a regular file, at most `most`, and its status. Raises OSError.

    Other files are not read, because a named pipe or a device may never end.
    """
    # Without O_NONBLOCK, a named pipe without a writer would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        return file.read(most), status


class Locked(Exception):
    """Another process holds the lock."""

    def __init__(self, process: str) -> None:
        super().__init__(f"locked by process {process}")
        #: process identifier of the holder, or "unknown"
        self.process = process


def lock(path: Path, mode: int = 0o666) -> IO[str]:
    """Lock a file until the returned file is closed or the process ends. Raises Locked or OSError.

    A symbolic link is not followed: the file is truncated, and root may lock a file in a directory of another user. A lock
    file that root creates there belongs to that user, who has to open it later.
    """
    lock_file = os.fdopen(_opened(path, mode), "r+", encoding="utf-8")
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = lock_file.read().strip() or "unknown"
        lock_file.close()
        raise Locked(owner) from error
    lock_file.truncate(0)
    lock_file.write(f"{os.getpid()}\n")
    lock_file.flush()
    return lock_file


def holder(path: Path) -> str | None:
    """Return the identifier of the process that holds a lock; None if there is none. Raises OSError.

    The check holds a shared lock for a moment, so that another process may fail to lock the file meanwhile.
    """
    try:
        file = path.open(encoding="utf-8")
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip() or "unknown"
    return None


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
