"""An embedded queue manager that a test controls with MQSC commands."""

from __future__ import annotations

from pathlib import Path

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, CommandResponse, GetOptions
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class Manager:
    """A queue manager that can be restarted, with one application connected."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open()

    def _open(self) -> None:
        self.itself = QueueManager("MQB1", self._directory)
        self.connection = EmbeddedConnection(self.itself)

    def restart(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self.itself.close()

    def run(self, text: str) -> CommandResponse:
        """The response to one command."""
        (response,) = self.connection.command(text)
        return response

    def ok(self, text: str) -> CommandResponse:
        response = self.run(text)
        assert response.ok, response.message
        return response

    def refused(self, text: str, number: str) -> str:
        response = self.run(text)
        assert not response.ok
        assert response.message.startswith(f"{number}: "), response.message
        return response.message

    def attribute(self, object_: str, keyword: str) -> str | int:
        (attributes,) = self.ok(f"DISPLAY {object_} ALL").objects
        return attributes[keyword]

    def put(self, name: str, data: bytes = b"x", *, persistent: bool = True, priority: int = 4) -> None:
        md = MQMD(Persistence=int(persistent), Priority=priority)
        self.connection.put1(MQOD(ObjectName=name), Message(md, data))

    def publish(self, topic: str, data: bytes = b"x", *, retain: bool = False, persistent: bool = True) -> None:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
        options = cmqc.MQPMO_RETAIN if retain else cmqc.MQPMO_NONE
        self.connection.put1(od, Message(MQMD(Persistence=int(persistent)), data), options)

    def get_all(self, name: str) -> list[bytes]:
        handle = self.connection.open(MQOD(ObjectName=name), cmqc.MQOO_INPUT_SHARED)
        bodies = []
        while int(self.attribute(f"QLOCAL({name})", "CURDEPTH")):
            bodies.append(self.connection.get(handle, GetOptions()).data)
        self.connection.close(handle)
        return bodies
