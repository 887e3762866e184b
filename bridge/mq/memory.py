"""The memory watermark: while the process uses more memory, the bridge rejects new messages.

Without the watermark, a large backlog would fill the memory until the kernel kills the process. A restart would load the same
backlog again.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio  # commands that need no event loop import this module

log = logging.getLogger(__name__)

#: Seconds between samples. Recovery does not depend on traffic.
SAMPLE_INTERVAL: Final = 1.0
#: Bytes of accepted messages after which memory use is sampled between two intervals.
SAMPLE_BYTES: Final = 4 * 1024 * 1024
#: Approximate memory use of a message in bytes, in addition to its payload. Copies for several subscriptions share it.
MESSAGE_OVERHEAD: Final = 600
#: Messages are accepted again below this share of the watermark.
RECOVERY_SHARE: Final = 0.95
#: Child processes are listed only at every tenth sample, because the kernel lists them by thread.
CHILDREN_EVERY: Final = 10
#: Seconds between attempts to return freed memory to the operating system, and their maximum share of the time. The event
#: loop waits meanwhile: 30 ms for 300 MiB of messages of 20 kB, 100 ms for 1.5 GiB.
TRIM_INTERVAL: Final = 2.0
TRIM_SHARE: Final = 0.02

MIB: Final = 1024 * 1024
_PROC: Final = Path("/proc")
_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")
#: Files of a cgroup with a limit, by type of file system. Above memory.high, the kernel slows processes down.
_LIMIT_FILES: Final = {"cgroup": ("memory.limit_in_bytes",), "cgroup2": ("memory.max", "memory.high")}


def resident_memory(process: str = "self", proc: Path = _PROC) -> int:
    """Return the resident set size of a process, in bytes.

    It excludes the page cache of SQLite's files: the kernel reclaims the page cache before it kills a process.
    """
    return int((proc / process / "statm").read_bytes().split()[1]) * _PAGE_SIZE


def children(proc: Path = _PROC) -> list[str]:
    """Return the identifiers of the child processes of this process. The archive runs in one."""
    process_ids = []
    for file in proc.glob("self/task/*/children"):  # none on kernels without CONFIG_PROC_CHILDREN
        with suppress(OSError):  # the thread has ended
            process_ids += file.read_text().split()
    return process_ids


def memory_of(processes: Iterable[str], proc: Path = _PROC) -> int:
    """Return the resident set size of processes, in bytes."""
    size = 0
    for process in processes:
        with suppress(OSError):  # it has ended
            size += resident_memory(process, proc)
    return size


def available_memory(proc: Path = _PROC) -> int:
    """Return the memory that this process may use, in bytes: the machine's, or the lowest limit of its cgroups."""
    limits = [os.sysconf("SC_PHYS_PAGES") * _PAGE_SIZE]
    for file in _limit_files(proc):
        try:
            text = file.read_text().strip()
        except OSError:  # the root and cgroups of other controllers have no limit
            continue
        if text != "max":
            limits.append(int(text))
    return min(limits)


def in_bytes(setting: str | int) -> int:
    """Return a size in bytes: a percentage of the available memory (`25%`), or a number of bytes."""
    if isinstance(setting, str):
        return int(available_memory() * float(setting.removesuffix("%")) / 100)
    return setting


def _limit_files(proc: Path) -> list[Path]:
    """Return the files that may limit the memory of this process, including those of the ancestors of its cgroups.

    Source: proc_pid_mountinfo(5), cgroups(7).
    """
    groups = {}
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            groups["cgroup2"] = group
        elif "memory" in controllers.split(","):
            groups["cgroup"] = group
    files = []
    for line in (proc / "self/mountinfo").read_text().splitlines():
        mounted, _, kind = line.partition(" - ")
        file_system, _, options = kind.split(" ")[:3]
        if file_system not in groups or (file_system == "cgroup" and "memory" not in options.split(",")):
            continue
        root, mount_point = (Path(word) for word in mounted.split(" ")[3:5])
        own = Path(groups[file_system])
        # In a container, the path may be the cgroup's path on the host. In that case the container's cgroup is mounted.
        relative = own.relative_to(root) if own.is_relative_to(root) else Path()
        directory = mount_point / relative
        while directory.is_relative_to(mount_point):
            files += [directory / name for name in _LIMIT_FILES[file_system]]
            directory = directory.parent
    return files


def _trimmer() -> Callable[[], object]:
    """Return the function that gives freed memory back to the operating system: malloc_trim(3) of the GNU C library."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return lambda: None
    trim.argtypes = [ctypes.c_size_t]
    return lambda: trim(0)


class MemoryWatermark:
    """Accepts or rejects new messages according to the memory use of the process.

    `setting` is `limits.memory_watermark`: a percentage of the available memory (`70%`), bytes, or None for no watermark.
    `accepts` may be called on any thread, all other methods on the event loop.
    """

    def __init__(self, setting: str | int | None) -> None:
        self._setting = setting
        self._available = 0
        self._processes: list[str] = []
        self._children = 0
        self._samples = 0
        self._accepted = 0
        self._trim = _trimmer()
        self._trim_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: memory use at the last sample, in bytes
        self.used = 0
        #: in bytes, or None if there is no watermark
        self.watermark: int | None = None
        #: new messages are rejected
        self.above = False
        #: messages rejected since the start
        self.rejected = 0
        self._rejected_before = 0

    def start(self) -> None:
        """Sample now, and then at intervals."""
        import asyncio

        self._timer = asyncio.get_running_loop().call_later(SAMPLE_INTERVAL, self.start)
        self.use(self._setting)

    def stop(self) -> None:
        """Stop sampling."""
        if self._timer is not None:
            self._timer.cancel()

    def use(self, setting: str | int | None) -> None:
        """Apply a setting and the limits of the operating system. Accept messages again if memory use allows it."""
        self._setting = setting
        self._available = available_memory()
        if not self._samples % CHILDREN_EVERY:
            self._processes = children()
        self._samples += 1
        self._children = memory_of(self._processes)
        if isinstance(setting, str):
            self.watermark = int(self._available * float(setting.removesuffix("%")) / 100)
        else:
            self.watermark = setting
        self._sample()
        if self.above and (self.watermark is None or self.used < self.watermark * RECOVERY_SHARE):
            self.above = False
            log.info(
                "MQB0009I memory use is %s, below limits.memory_watermark (%s): new messages are accepted again; %d were "
                "rejected",
                _mib(self.used),
                _mib(self.watermark),
                self.rejected - self._rejected_before,
            )

    def accepts(self, size: int, messages: int = 1) -> bool:
        """Return whether to accept messages that take about `size` bytes in memory. Count rejected messages."""
        self._accepted += size
        if self._accepted >= SAMPLE_BYTES:
            self._sample()
        if self.above:
            self.rejected += messages
            return False
        return True

    @property
    def problem(self) -> str:
        """Why new messages are rejected, in words. Blank if they are accepted."""
        if not self.above:
            return ""
        return (
            f"new messages are rejected: memory use is {_mib(self.used)}, limits.memory_watermark is {_mib(self.watermark)} "
            f"of {_mib(self._available)}"
        )

    def _sample(self) -> None:
        self._accepted = 0
        self.used = resident_memory() + self._children
        if self.watermark is None:
            return
        limit = self.watermark * RECOVERY_SHARE if self.above else self.watermark
        if self.used > limit and time.monotonic() >= self._trim_at:
            start = time.monotonic()
            self._trim()
            end = time.monotonic()
            self._trim_at = end + max(TRIM_INTERVAL, (end - start) / TRIM_SHARE)
            self.used = resident_memory() + self._children
        if self.above or self.used <= limit:
            return
        self.above = True
        self._rejected_before = self.rejected
        log.error(
            "MQB0008E memory use is %s, above limits.memory_watermark (%s of %s): new messages are rejected, delivery "
            "continues; let clients and applications fetch their messages, or give the bridge more memory",
            _mib(self.used),
            _mib(self.watermark),
            _mib(self._available),
        )


def _mib(size: int | None) -> str:
    return "none" if size is None else f"{size / MIB:.0f} MiB"
