"""Memory cgroups for processes of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.helpers.patience import until

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class MemoryCgroup:
    """A cgroup below the root. See `memory_cgroup`."""

    def __init__(self, directory: Path, version: int) -> None:
        self.directory = directory
        self.version = version

    @property
    def wrapper(self) -> list[str]:
        """Return the words before a command that run it in this cgroup."""
        return ["sh", "-c", f'echo $$ > {self.directory}/cgroup.procs && exec "$@"', "sh"]

    @property
    def kills(self) -> int:
        """Return how often the kernel has killed a process of the cgroup due to lack of memory."""
        file = self.directory / ("memory.events" if self.version == 2 else "memory.oom_control")
        counts = dict(line.split() for line in file.read_text().splitlines())
        return int(counts["oom_kill"])


@contextmanager
def memory_cgroup(limit: int) -> Iterator[MemoryCgroup]:
    """Make a cgroup whose processes have `limit` bytes of memory and no swap. Skips the test if that is not possible."""
    version = 2 if (_V2 / "cgroup.controllers").exists() else 1
    root = _V2 if version == 2 else _V1
    directory = root / f"mqbridge-test-{os.getpid()}"
    limits = {1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), 2: ("memory.max", "memory.swap.max")}[
        version
    ]
    try:
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"this user can make no cgroup: {error}")
    try:
        if not (directory / limits[0]).exists():
            pytest.skip(f"{root} has no memory controller for new cgroups")
        (directory / limits[0]).write_text(str(limit))
        with suppress(OSError):  # kernels without swap accounting
            (directory / limits[1]).write_text(str(0 if version == 2 else limit))
        yield MemoryCgroup(directory, version)
    finally:
        until(lambda: not (directory / "cgroup.procs").read_text())
        directory.rmdir()
