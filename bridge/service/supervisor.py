"""Notifications to systemd about the life cycle of a service (sd_notify(3))."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator

log = logging.getLogger(__name__)


class Supervisor:
    """Notifies systemd via NOTIFY_SOCKET. Does nothing if that variable is not set."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        watchdog = os.environ.get("WATCHDOG_USEC", "")
        pid = os.environ.get("WATCHDOG_PID", "")
        is_for_process = not pid or pid == str(os.getpid())
        self._is_ready = False
        #: seconds between watchdog notifications: half of systemd's timeout, or 0.0 without a watchdog
        self.interval = int(watchdog) / 2_000_000 if watchdog.isdigit() and is_for_process else 0.0

    def _notify(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
                notifier.connect(self._address)
                notifier.send(state.encode())
        except OSError as error:
            log.warning("MQB0006W notifying systemd of %r failed: %s", state.split("\n")[0], error)

    def ready(self, status: str) -> None:
        """Report that the channels listen and the queue manager is available."""
        self._is_ready = True
        self._notify(f"READY=1\nSTATUS={status}")

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Report the beginning and the end of a reload."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        try:
            yield
        finally:
            self._notify("READY=1\nSTATUS=running")

    def stopping(self) -> None:
        """Report that the service stops."""
        self._notify("STOPPING=1\nSTATUS=finishing work in progress")

    @contextlib.contextmanager
    def watched(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Send watchdog notifications from the event loop: if it hangs, systemd restarts the service."""
        if not self.interval:
            yield
            return

        async def beat() -> None:
            while True:
                await asyncio.sleep(self.interval)
                if self._is_ready:  # systemd waits for READY first
                    self._notify("WATCHDOG=1")

        beating = loop.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
