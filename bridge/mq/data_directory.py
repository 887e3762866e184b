"""The data directory of an embedded queue manager: its lock, its owner, and the errors of its database."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from bridge.files import Locked, lock

#: Name of the database file.
DATABASE: Final = "queuemanager.db"
_LOCK = "lock"
_LOCK_MODE = 0o640


class StoreError(Exception):
    """The database cannot be opened, read or written."""


class DataDirectoryInUse(StoreError):
    """Another process runs a queue manager in the data directory."""


def is_data_directory(directory: Path) -> bool:
    """Return whether a directory is, or was, the data directory of a queue manager."""
    return (directory / _LOCK).exists()


def hold(data_directory: Path) -> IO[str]:
    """Lock a data directory until the returned file is closed or the process ends.

    Raises DataDirectoryInUse, or OSError.
    """
    try:
        lock_file = lock(data_directory / _LOCK, _LOCK_MODE)
    except Locked as error:
        raise DataDirectoryInUse(
            f"{data_directory} is in use by another bridge (process {error.process}); hint: stop that bridge, or use another "
            "data directory"
        ) from error
    with contextlib.suppress(OSError):
        os.fchmod(lock_file.fileno(), _LOCK_MODE)
    return lock_file


@contextlib.contextmanager
def acting_as_owner(directory: Path) -> Iterator[None]:
    """Run the block with the rights of a directory's owner if root runs the process. Otherwise, change nothing.

    The owner may have created links in the directory, and may replace files while root works there. With the owner's
    rights, root cannot change a file that the owner cannot change, and new files belong to the owner. If the directory
    does not exist, the nearest existing parent is used. Raises OSError.
    """
    if os.geteuid() != 0 or not (owner := _owner(directory)).st_uid:
        yield
        return
    try:
        account = pwd.getpwuid(owner.st_uid)
        group, groups = account.pw_gid, os.getgrouplist(account.pw_name, account.pw_gid)
    except KeyError:  # a container has no accounts for the owners of its volumes
        group, groups = owner.st_gid, [owner.st_gid]
    before = os.getegid(), os.getgroups()
    try:
        _become(owner.st_uid, group, groups)
    except OSError as error:
        _become(0, *before)
        reason = f"cannot act as user {owner.st_uid}, who owns it: {error.strerror}; hint: run the command as that user"
        raise OSError(error.errno, reason, str(directory)) from error
    try:
        yield
    finally:
        _become(0, *before)


def _become(user: int, group: int, groups: list[int]) -> None:
    os.seteuid(0)
    os.setgroups(groups)
    os.setegid(group)
    os.seteuid(user)


def _owner(directory: Path) -> os.stat_result:
    """Return the status of a directory or its nearest existing parent, or of a link to it that is not root's."""
    path = directory.absolute()
    while True:
        try:
            link, target = path.lstat(), path.stat()
        except FileNotFoundError:
            path = path.parent
            continue
        return link if link.st_uid else target
