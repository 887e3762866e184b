"""A bridge with mappings, and the brokers of their links."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
from typer.testing import CliRunner

from bridge.administration.control_socket import ask
from bridge.administration.mapping_status import MappingStatus, RunnerState
from bridge.administration.requests import ListMappings
from bridge.cli.program import program
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Mosquitto, publish
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess

DLQ = "SYSTEM.DEAD.LETTER.QUEUE"


class MappingSite:
    """A bridge on a queue manager, with MQSC that runs before its start, and a Mosquitto."""

    def __init__(
        self, directory: Path, queue_manager: str, config: Callable[[int], dict[str, Any]], mqsc: Sequence[str]
    ) -> None:
        """`config` returns the configuration for the port of the broker."""
        self.directory = directory
        self.broker = Mosquitto(directory).start()
        script = "\n".join(mqsc)
        self._control = directory / "control"
        settings = config(self.broker.port) | {"control_socket": str(self._control)}
        if queue_manager == "embedded":
            (directory / "site.mqsc").write_text(script)
            settings["queue_manager"] = {"scripts": ["site.mqsc"]}
            self.bridge = BridgeProcess(directory / "bridge", config=_yaml(settings))
        else:
            host = QueueManagerProcess(directory / "host", script)
            self.bridge = RemoteBridgeProcess(
                directory / "bridge", library=queue_manager, config=_yaml(settings), queue_manager=host
            )

    def publish(self, topic: str, payload: str, *arguments: str, qos: int = 1) -> None:
        """Publish at the broker, with MQTT 5."""
        publish(self.broker.port, topic, payload, *arguments, qos=qos, version="mqttv5")

    def get(self, queue: str) -> Any:
        """Return the next message of a queue."""
        (message,) = self.bridge.mq_json("get", queue, "--wait", f"{PATIENCE:g}")
        return message

    def put(self, queue: str, body: bytes, *options: str) -> None:
        """Run `mqbridge mq put` in this process, because tables have many rows."""
        arguments = ["mq", "put", queue, *options, "--data-dir", str(self.bridge.data_directory)]
        result = CliRunner().invoke(program, arguments, input=body)
        assert result.exit_code == 0, f"{arguments}: {result.output}"

    def __enter__(self) -> Self:
        self.bridge.start()
        eventually(lambda: self._states() <= {RunnerState.RUNNING, RunnerState.DISABLED}, True)
        return self

    def _states(self) -> set[RunnerState]:
        return {
            status.state
            for status in msgspec.json.decode(ask(self._control, ListMappings()).result, type=list[MappingStatus])
        }

    def __exit__(self, *_: object) -> None:
        status = self.bridge.stop() if self.bridge.running else None
        self.bridge.discard()
        self.broker.stop()
        assert status == 0, self.bridge.log
        assert "Traceback" not in self.bridge.log, self.bridge.log


def folders(message: Any) -> dict[str, Any]:
    """Return the folders of a message's only RFH2, which is in UTF-8."""
    (header,) = message["rfh2"]
    assert header["NameValueCCSID"] == 1208
    return dict(header["folders"])


def hops(marks: str) -> str:
    """Return the marks of a message without the part that distinguishes queue managers with the same name."""
    assert re.fullmatch(r"MQB1\.[0-9a-f]{8}/[^,]+(,MQB1\.[0-9a-f]{8}/[^,]+)*", marks), marks
    return re.sub(r"\.[0-9a-f]{8}/", "/", marks)


def _yaml(settings: dict[str, Any]) -> str:
    """Return each section on a separate line. JSON is YAML."""
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())
