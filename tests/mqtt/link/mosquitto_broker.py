"""A mosquitto of the test's own, that can be stopped and started again at the same port."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

from tests.patience import PATIENCE


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Mosquitto:
    """The broker as a process; sessions survive a stop, as it saves them."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self.port = free_port()
        self._file = directory / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"persistence_location {directory}/",
            "persistence true",
            "max_queued_messages 0",
            "max_inflight_messages 1000",
            # Else it leaves root for a user of its own, who cannot read what pytest makes.
            f"user {getpass.getuser()}",
            *(settings or ("allow_anonymous true",)),
        ]
        self._file.write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Returns when it accepts connections."""
        command = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        if not Path(command).exists():
            pytest.fail("mosquitto is not installed; `make test` installs it (tests/system-packages.sh)")
        log = (self.directory / "mosquitto.log").open("ab")
        self.process = subprocess.Popen([command, "-c", str(self._file)], stdout=log, stderr=log)
        log.close()
        before = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert self.process.poll() is None and time.monotonic() < before, self.log

    def stop(self) -> None:
        """End it; it saves its sessions."""
        if self.process is not None:
            before = time.monotonic() + PATIENCE
            self.process.terminate()
            while True:
                try:
                    self.process.wait(10)
                    break
                except subprocess.TimeoutExpired:
                    assert time.monotonic() < before, self.log
                    self.process.terminate()  # one that comes while it begins may be lost
            self.process = None

    @property
    def log(self) -> str:
        """What it wrote so far."""
        return (self.directory / "mosquitto.log").read_text(errors="replace")
