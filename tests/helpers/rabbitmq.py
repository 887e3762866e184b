"""A RabbitMQ of the test's own, with its MQTT plug-in."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

from tests.helpers.mosquitto import free_port
from tests.helpers.patience import PATIENCE

#: Debian's wrapper in the path changes to a user of its own, who cannot read what pytest makes.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitMQ:
    """The broker as a process."""

    def __init__(self, directory: Path) -> None:
        if not _PROGRAM.exists():
            pytest.fail("rabbitmq-server is not installed; `sh tests/system-packages.sh slow` installs it")
        self.directory = directory
        self.port = free_port()
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{free_port()}\n"
            f"mqtt.listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            f"distribution.listener.port_range.min = {(distribution := free_port())}\n"
            f"distribution.listener.port_range.max = {distribution}\n"
            "mqtt.allow_anonymous = true\n"
        )
        (directory / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def version() -> tuple[int, int]:
        """The version of the package."""
        (library,) = (_PROGRAM.parent.parent / "lib").glob("rabbitmq_server-*")
        major, minor, *_ = library.name.removeprefix("rabbitmq_server-").split(".")
        return int(major), int(minor)

    def start(self) -> Self:
        """Return when it accepts connections."""
        directory = self.directory
        environment = {
            **os.environ,
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_NODENAME": f"mqbridge{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
        }
        with (directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [_PROGRAM], env=environment, stdout=output, stderr=output, start_new_session=True
            )
        before = time.monotonic() + 6 * PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert self._process.poll() is None and time.monotonic() < before, self.output
                time.sleep(0.1)

    @property
    def output(self) -> str:
        """What it printed so far."""
        return (self.directory / "output").read_text(errors="replace")

    def stop(self) -> None:
        """End it, with epmd, which it started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            shutil.rmtree(self.directory / "mnesia", ignore_errors=True)
