"""Memory of a server per idle client: resident size before and after many clients connect."""

from __future__ import annotations

import contextlib
import time

import psutil

from tests.benchmarks import frames
from tests.benchmarks.channel import Channel

BATCH = 50
"""Clients that connect at once: fewer than the accept queue of any of the servers (asyncio: 100)."""
WARM_UP = 20
"""Clients connected before the first reading, so that one-time allocations of a server are not counted."""
SETTLE = 1.0


def resident(pid: int) -> int:
    """Return the resident bytes of a process and its children, and how many of them were swapped out meanwhile."""
    server = psutil.Process(pid)
    total = 0
    for process in (server, *server.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            memory = process.memory_full_info()
            total += memory.rss + memory.swap
    return total


class Crowd:
    """Clients that connect and are idle afterwards."""

    def __init__(self, *, port: int, pid: int, clients: int) -> None:
        self.port, self.pid, self.clients = port, pid, clients
        self.channels: list[Channel] = []

    def run(self) -> dict[str, object]:
        """Connect all, measure the memory, disconnect, and return the figures."""
        try:
            self._connect(WARM_UP)
            time.sleep(SETTLE)
            before = resident(self.pid)
            self._connect(self.clients)
            time.sleep(SETTLE)
            after = resident(self.pid)
        finally:
            for channel in self.channels:
                channel.close()
        return {
            "clients": self.clients,
            "before_kb": before / 1024,
            "after_kb": after / 1024,
            "kb_per_client": (after - before) / 1024 / self.clients,
        }

    def _connect(self, count: int) -> None:
        for first in range(0, count, BATCH):
            start = len(self.channels)
            numbers = range(start, start + min(BATCH, count - first))
            batch = [Channel.begin(self.port, f"bench-idle-{number}") for number in numbers]
            self.channels += batch
            for channel in batch:
                channel.expect(frames.CONNACK)
