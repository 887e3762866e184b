"""What the service tells systemd: readiness, watchdog, stopping (sd_notify(3), Type=notify)."""

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
    """The notification socket that systemd names in NOTIFY_SOCKET; without one, nothing is told to anybody."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        watchdog = os.environ.get("WATCHDOG_USEC", "")
        pid = os.environ.get("WATCHDOG_PID", "")
        meant = not pid or pid == str(os.getpid())
        self._is_ready = False
        #: seconds between signs of life: half of what systemd allows
        self.interval = int(watchdog) / 2_000_000 if watchdog.isdigit() and meant else 0.0

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
                notifier.connect(self._address)
                notifier.send(state.encode())
        except OSError as error:
            log.warning("MQB0006W systemd cannot be told %r: %s", state.split("\n")[0], error)

    def ready(self, status: str) -> None:
        """Tell that the channels listen and the queue manager answers."""
        self._is_ready = True
        self._tell(f"READY=1\nSTATUS={status}")

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Tell that the configuration is read again, and when that has ended."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        try:
            yield
        finally:
            self._tell("READY=1\nSTATUS=running")

    def stopping(self) -> None:
        """Tell that the service ends in order."""
        self._tell("STOPPING=1\nSTATUS=finishing what is in flight")

    @contextlib.contextmanager
    def watched(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Give signs of life from the event loop: when it hangs, systemd restarts the service."""
        if not self.interval:
            yield
            return

        async def beat() -> None:
            while True:
                await asyncio.sleep(self.interval)
                if self._is_ready:  # before, systemd waits for READY
                    self._tell("WATCHDOG=1")

        beating = loop.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
