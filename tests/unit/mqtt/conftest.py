"""Control of one Outbox or Session: messages on a transmission queue, and packets of clients, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.packets import Packet, Publish
from bridge.mqtt.reader import Decoder
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.session import NEVER, Session
from bridge.wire.mq import MQMD
from tests.helpers.waiting_message import Waiting


@pytest.fixture
def waiting() -> Callable[..., Waiting]:
    """`waiting(number, qos)`: a waiting publication of an MQTT client. Keywords set further fields."""

    def make(number: int, qos: int = 1, *, payload: bytes | None = None, topic: str = "t", **fields: Any) -> Waiting:
        content = str(number).encode() if payload is None else payload
        published = Publish(topic, content, qos, False, False, 9 if qos else 0)
        return Waiting(number, to_mq(published, ClientIdentity("publisher", b"")), topic, **fields)

    return make


@pytest.fixture
def direct() -> Callable[..., Waiting]:
    """`direct(number)`: a message that an MQ application put directly to the client."""

    def make(
        number: int, body: bytes = b"", format_: bytes = b"", remote_queue: str = "command", **fields: Any
    ) -> Waiting:
        message = Message(MQMD(Format=format_), body)
        return Waiting(number, message, None, None, remote_queue=remote_queue, **fields)

    return make


@pytest.fixture
def packets() -> Callable[[ServerProtocol], list[Packet]]:
    """Return the bytes that a connection has written to a client since the last call."""

    def read(protocol: ServerProtocol) -> list[Packet]:
        decoder = Decoder(server=False, protocol_level=protocol.level)
        packets_read = decoder.feed(protocol.data_to_send())
        assert decoder.error is None
        return packets_read

    return read


@pytest.fixture
def session() -> Callable[..., Session]:
    """`session(durable=..., window=...)`: a connected session of client c."""

    def make(*, durable: bool = True, window: int = 10) -> Session:
        identity = ClientIdentity("c", b"user")
        new_session = Session(identity, durable=durable, window=window)
        new_session.connect("A", 4, NEVER, 0.0)
        new_session.attach(identity)
        return new_session

    return make
