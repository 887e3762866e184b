"""Facts of the machine that a reader needs to judge absolute figures."""

from __future__ import annotations

import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import psutil


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def filesystem(folder: str) -> str:
    """The type of the file system a folder is on: a durable session is as fast as its disk."""
    best = ("", "unknown")
    for part in psutil.disk_partitions(all=True):
        if Path(folder).is_relative_to(part.mountpoint) and len(part.mountpoint) >= len(best[0]):
            best = (part.mountpoint, part.fstype)
    return best[1]


def facts() -> dict[str, object]:
    """All of them, for the JSON file."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "data_filesystem": filesystem(tempfile.gettempdir()),
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def split_cores(pin: bool) -> tuple[set[int] | None, int | None]:
    """Cores for the servers (all but the last) and the generator's own core (the last)."""
    cores = sorted(os.sched_getaffinity(0))
    if not pin or len(cores) < 2:
        return None, None
    return set(cores[:-1]), cores[-1]
