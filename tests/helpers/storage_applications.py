"""A queue manager on a directory, and actions of applications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

PERSISTENT = MQMD(Persistence=1)


@contextmanager
def opened(directory: Path) -> Iterator[QueueManager]:
    queue_manager = QueueManager("MQB1", directory)
    try:
        yield queue_manager
    finally:
        queue_manager.close()


def drained(connection: EmbeddedConnection, queue: str) -> list[str]:
    """Return the data of the messages on a queue, without removing them."""
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_BROWSE)
    bodies = []
    try:
        while True:
            bodies.append(connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT)).data.decode())
    except MQError as error:
        assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
    connection.close(handle)
    return bodies


def put(connection: EmbeddedConnection, queue: str, data: bytes, options: int = 0, md: MQMD = PERSISTENT) -> None:
    connection.put1(MQOD(ObjectName=queue), Message(md, data), options)


def publish(connection: EmbeddedConnection, topic: str, data: bytes, options: int = 0, md: MQMD = PERSISTENT) -> None:
    connection.put1(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic), Message(md, data), options)


def define(connection: EmbeddedConnection, text: str) -> None:
    for response in connection.command(text):
        assert response.ok, response.message
