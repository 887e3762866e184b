"""A mosquitto for tests that can be stopped and restarted with the same port, mosquitto_pub and mosquitto_sub."""

from __future__ import annotations

import contextlib
import getpass
import json
import secrets
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from tests.helpers.installed import program
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import PATIENCE


def free_port() -> int:
    """Return a free port. Linux does not use it for outgoing connections either (ip_local_port_range)."""
    while True:
        port = 20_000 + secrets.randbelow(12_768)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def tls_settings(certificates: Path, *more: str) -> tuple[str, ...]:
    """Return the lines of mosquitto.conf for a listener with the certificates of certificate_authority.make()."""
    files = (
        f"cafile {certificates}/ca.pem",
        f"certfile {certificates}/server.pem",
        f"keyfile {certificates}/server.key",
    )
    return (*files, *more)


class Mosquitto:
    """The broker as a process. It saves its sessions when it stops."""

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
            # Otherwise it changes from root to a separate user, who cannot read pytest's files.
            f"user {getpass.getuser()}",
            *(settings or ("allow_anonymous true",)),
        ]
        self._file.write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and return when it accepts connections."""
        log = (self.directory / "mosquitto.log").open("ab")
        self.process = subprocess.Popen([program("mosquitto"), "-c", str(self._file)], stdout=log, stderr=log)
        log.close()
        before = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert self.process.poll() is None and time.monotonic() < before, self.log

    def stop(self) -> None:
        """Stop it. It saves its sessions."""
        if self.process is not None:
            before = time.monotonic() + PATIENCE
            self.process.terminate()
            while True:
                try:
                    self.process.wait(10)
                    break
                except subprocess.TimeoutExpired:
                    assert time.monotonic() < before, self.log
                    self.process.terminate()  # a signal at its start may be lost
            self.process = None

    def kill(self) -> None:
        """Send SIGKILL: unsaved data is lost, even if it was acknowledged."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process = None

    @property
    def log(self) -> str:
        """Return its output so far."""
        return (self.directory / "mosquitto.log").read_text(errors="replace")


def publish(port: int, topic: str, payload: str, *arguments: str, qos: int = 0, version: str = "mqttv311") -> None:
    """Run mosquitto_pub. It returns when the message is acknowledged, as its QoS requires."""
    body = ["-m", payload] if payload else ["-n"]
    command = [
        program("mosquitto_pub"),
        "-p",
        str(port),
        "-V",
        version,
        "-t",
        topic,
        "-q",
        str(qos),
        *body,
        *arguments,
    ]
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert process.returncode == 0, f"{command}: {process.stdout}{process.stderr}"


class Subscriber(LineProcess):
    """mosquitto_sub, running and subscribed."""

    def __init__(
        self, port: int, *filters: str, qos: int = 0, version: str = "mqttv311", options: tuple[str, ...] = ()
    ):
        topics = [word for topic_filter in filters for word in ("-t", topic_filter)]
        # -d prints when it is subscribed, %j prints each message as a JSON object. Output to a pipe would be buffered.
        command = ["stdbuf", "-oL", program("mosquitto_sub"), "-p", str(port), "-V", version, "-q", str(qos)]
        super().__init__([*command, "-d", "-F", "%j", *topics, *options])
        self.line_where(lambda line: line.startswith("Subscribed (mid"))
        # Messages that waited for a durable session arrive before the answer to SUBSCRIBE.
        self._early = [json.loads(line) for line in self.seen if line.startswith("{")]

    def message(self) -> dict[str, Any]:
        """Return the next message: topic, payload, qos and retain. A QoS 2 message is printed at its PUBREL."""
        message = self._early.pop(0) if self._early else self.json()
        return {key: message.get(key) for key in ("topic", "payload", "qos", "retain")}

    def stop(self) -> Self:
        """End it with DISCONNECT, which mosquitto_sub sends after SIGTERM."""
        self.terminate()
        return self
