"""Facts about the machine that readers need to judge absolute figures."""

from __future__ import annotations

import os
import platform
import socket
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

#: Number of measurements of a system call and of a sync.
_CALLS: Final = 5_000
_SYNCS: Final = 200


def processor() -> str:
    """Return the processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def filesystem(folder: str) -> str:
    """Return the file system type of a directory. Durable sessions depend on its disk."""
    best = ("", "unknown")
    for part in psutil.disk_partitions(all=True):
        if Path(folder).is_relative_to(part.mountpoint) and len(part.mountpoint) >= len(best[0]):
            best = (part.mountpoint, part.fstype)
    return best[1]


def system_call_us() -> float:
    """Return the microseconds of one write to a loopback TCP connection and its read. Ratios of servers depend on it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            begin = time.perf_counter()
            for _ in range(_CALLS):
                near.send(b"x")
                far.recv(1)
            return (time.perf_counter() - begin) / _CALLS / 2 * 1e6


def sync_us(folder: str, times: int = _SYNCS) -> float:
    """Return the median microseconds of appending a page with fdatasync, which limits a durable session with a window
    of one.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        durations = []
        for _ in range(times):
            begin = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fdatasync(file.fileno())
            durations.append(time.perf_counter() - begin)
        return statistics.median(durations) * 1e6


def facts() -> dict[str, object]:
    """Return all facts, for the JSON file."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "data_filesystem": filesystem(tempfile.gettempdir()),
        "system_call_us": round(system_call_us(), 1),
        "sync_us": round(sync_us(tempfile.gettempdir()), 1),
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def described(facts: dict[str, object]) -> str:
    """Return the line above a table."""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}, load {facts['load_average']}; "
        f"a system call takes {facts['system_call_us']} us, a page to the disk {facts['sync_us']} us"
    )


def split_cores(pin: bool) -> tuple[set[int] | None, int | None]:
    """Return the cores for the servers (all but the last) and that of the generator (the last)."""
    cores = sorted(os.sched_getaffinity(0))
    if not pin or len(cores) < 2:
        return None, None
    return set(cores[:-1]), cores[-1]
