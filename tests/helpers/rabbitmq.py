"""A RabbitMQ for tests, with its MQTT plug-in."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

from tests.helpers.installed import BUILD, program
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import PATIENCE

#: The first release with MQTT 5.
MQTT_5 = (3, 13)
#: A Debian with such a release, if the package of this machine is older.
_NEWER, _SUITE, _MIRROR = BUILD / "rabbitmq", "trixie", "http://deb.debian.org/debian"
#: Debian's wrapper in the path changes to another user, who cannot read pytest's files.
_PROGRAM = "usr/lib/rabbitmq/bin/rabbitmq-server"
#: The test's directory, seen from inside such a Debian.
_INSIDE = Path("/mnt")


def version_of(root: Path) -> tuple[int, int]:
    """Return the version of the package that is installed in a root directory."""
    (library,) = (root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
    major, minor, *_ = library.name.removeprefix("rabbitmq_server-").split(".")
    return int(major), int(minor)


def installed() -> Path:
    """Return the root directory of this machine, with a RabbitMQ of any release."""
    if not (Path("/") / _PROGRAM).exists():
        pytest.fail("rabbitmq-server is not installed; `sh tests/system-packages.sh slow` installs it")
    return Path("/")


@functools.cache
def with_mqtt_5() -> Path:
    """Return a root directory with a RabbitMQ that supports MQTT 5: that of this machine, or a Debian 13 installed
    by root.
    """
    if version_of(installed()) >= MQTT_5:
        return Path("/")
    if not _NEWER.exists():
        if os.geteuid():
            pytest.skip(
                "this machine's RabbitMQ is older than 3.13, and only root can install another one in build/rabbitmq"
            )
        part = _NEWER.with_suffix(f".{os.getpid()}")
        command = ["--variant=minbase", "--include=rabbitmq-server", _SUITE, str(part), _MIRROR]
        process = subprocess.run([program("debootstrap"), *command], capture_output=True, text=True)
        assert process.returncode == 0, process.stdout[-2_000:] + process.stderr[-2_000:]
        part.rename(_NEWER)
    return _NEWER


class RabbitMQ:
    """The broker as a process, from the package in a root directory."""

    def __init__(self, directory: Path, root: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._root = root
        self._epmd_port = free_port()
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{free_port()}\n"
            f"mqtt.listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            f"distribution.listener.port_range.min = {(distribution := free_port())}\n"
            f"distribution.listener.port_range.max = {distribution}\n"
            "mqtt.allow_anonymous = true\n"
        )
        (directory / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> Self:
        """Start it, and return when it accepts connections."""
        # RabbitMQ would start epmd as a daemon, which survives it.
        self._launch("/usr/bin/epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1")
        self._wait_for(self._epmd_port)
        self._launch(f"/{_PROGRAM}")
        self._wait_for(self.port)
        return self

    def _launch(self, *command: str) -> None:
        inside = self.directory
        prefix: list[str] = []
        if self._root != Path("/"):
            # All mounts end with it.
            inside = _INSIDE
            mounts = (
                'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/mnt" && shift'
            )
            shell = f'{mounts} && exec chroot "$0" "$@"'
            prefix = ["unshare", "--mount", "sh", "-c", shell, str(self._root), str(self.directory)]
        environment = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "HOME": str(inside),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"mqbridge{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(inside / "mnesia"),
            "RABBITMQ_LOG_BASE": str(inside / "log"),
            "RABBITMQ_CONFIG_FILE": str(inside / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(inside / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(inside / "pid"),
        }
        with (self.directory / "output").open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    [*prefix, *command], env=environment, stdout=output, stderr=output, start_new_session=True
                )
            )

    def _wait_for(self, port: int) -> None:
        before = time.monotonic() + 6 * PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                assert self._processes[-1].poll() is None and time.monotonic() < before, self.output
                time.sleep(0.1)

    @property
    def output(self) -> str:
        """Return its output so far."""
        return (self.directory / "output").read_text(errors="replace")

    def stop(self) -> None:
        """End it, with all processes that it started."""
        while self._processes:
            process = self._processes.pop()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self.directory / "mnesia", ignore_errors=True)
