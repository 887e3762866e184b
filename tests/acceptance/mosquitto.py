"""mosquitto_pub and mosquitto_sub as processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any, Self

import pytest

from tests.acceptance.line_process import LineProcess
from tests.patience import PATIENCE


def _command(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not installed; `make test` installs it (tests/system-packages.sh)")
    return found


def publish(port: int, topic: str, payload: str, *arguments: str, qos: int = 0, version: str = "mqttv311") -> None:
    """mosquitto_pub: returns when the message is acknowledged, as its QoS demands."""
    body = ["-m", payload] if payload else ["-n"]
    command = [_command("mosquitto_pub"), "-p", str(port), "-V", version, "-t", topic, "-q", str(qos), *body, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


class Subscriber(LineProcess):
    """mosquitto_sub, running and subscribed."""

    def __init__(self, port: int, *filters: str, qos: int = 0, version: str = "mqttv311", options: tuple[str, ...] = ()):
        topics = [word for topic_filter in filters for word in ("-t", topic_filter)]
        # -d makes it print when it is subscribed, %j each message as a JSON object; into a pipe it would print in blocks.
        command = ["stdbuf", "-oL", _command("mosquitto_sub"), "-p", str(port), "-V", version, "-q", str(qos)]
        super().__init__([*command, "-d", "-F", "%j", *topics, *options])
        self.line_where(lambda line: line.startswith("Subscribed (mid"))
        # What waited for a durable session comes before the answer to SUBSCRIBE.
        self._early = [json.loads(line) for line in self.seen if line.startswith("{")]

    def message(self) -> dict[str, Any]:
        """The next message: topic, payload, qos and retain. One with QoS 2 is printed at its PUBREL only."""
        message = self._early.pop(0) if self._early else self.json()
        return {key: message.get(key) for key in ("topic", "payload", "qos", "retain")}

    def stop(self) -> Self:
        """End it with DISCONNECT: mosquitto_sub does so on SIGTERM."""
        self.terminate()
        return self
