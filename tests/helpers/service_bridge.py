"""The telemetry service on real sockets, with raw clients and a fake queue manager."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from bridge.config.channel import ChannelConfig
from bridge.config.models import LimitsConfig
from bridge.mqtt.packets import Connack, Connect, Packet, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from bridge.mqtt.reader import Decoder
from bridge.mqtt.writer import encode
from bridge.service.client_handler import handlers_of
from bridge.service.events import EventBus
from bridge.service.telemetry import TelemetryService
from bridge.transport.channel import Channel
from bridge.transport.stream import StreamConnection
from tests.helpers.fake_backend import FakeBackend


class Client:
    """A raw socket, and the data received over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.level = 4
        self.decoder = Decoder(server=False, protocol_level=4)
        self.packets: deque[Packet] = deque()

    def send(self, *packets: Packet | bytes) -> None:
        """Send one segment, as far as possible, in the protocol level of the last CONNECT."""
        for packet in packets:
            if isinstance(packet, Connect) and packet.protocol_level in (3, 4, 5):
                self.level = packet.protocol_level
                self.decoder = Decoder(server=False, protocol_level=self.level)
        self.writer.write(
            b"".join(packet if isinstance(packet, bytes) else encode(packet, "big", self.level) for packet in packets)
        )

    async def receive(self) -> Packet:
        """Return the next packet. ConnectionError if the connection ends."""
        while not self.packets:
            data = await self.reader.read(65_536)
            if not data:
                raise ConnectionError("closed by the bridge")
            self.packets += self.decoder.feed(data)
            assert self.decoder.error is None
        return self.packets.popleft()

    async def rest(self) -> list[Packet]:
        """Return everything up to the end of the connection."""
        packets: list[Packet] = []
        try:
            while True:
                packets.append(await self.receive())
        except ConnectionError:
            return packets

    async def publish(self, topic: str) -> None:
        """Publish with QoS 1: the answer proves that the connection works, and that nothing arrived before it."""
        self.send(Publish(topic, b"", 1, False, False, 1))
        answer = await self.receive()
        assert isinstance(answer, Puback) and answer.packet_id == 1

    async def subscribe(self, *filters: str) -> tuple[int, ...]:
        """Subscribe with QoS 1. Return the codes of SUBACK."""
        self.send(Subscribe(1, tuple((topic_filter, 1) for topic_filter in filters)))
        answer = await self.receive()
        assert isinstance(answer, Suback)
        return answer.return_codes

    async def silent(self) -> None:
        """Check that nothing has been sent so far."""
        self.send(Pingreq())
        assert await self.receive() == Pingresp()

    def vanish(self) -> None:
        """Close the connection without DISCONNECT."""
        self.writer.transport.abort()


class Bridge:
    """`async with Bridge(...) as bridge`: a telemetry channel on a free port, its service and the fake queue manager."""

    def __init__(
        self,
        limits: dict[str, Any] | None = None,
        backend: FakeBackend | None = None,
        listeners: Sequence[Callable[[EventBus], None]] = (),
        **config: Any,
    ) -> None:
        self.listeners = listeners
        self.limits = LimitsConfig(**limits or {})
        self.config = ChannelConfig(port=0, **config)
        self.backend = backend or FakeBackend()
        self.clients: list[Client] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        self.failed: list[Any] = []
        self.service = TelemetryService(
            self.backend,
            self.limits,
            loop.time,
            queue_manager_name="MQB1",
        )
        for listen in self.listeners:
            listen(self.service.events)
        await self.service.start()
        self.make_owner = handlers_of(self.service)
        self.channel = Channel(
            self.config,
            self.make_owner,
            pending_bytes=self.limits.pending_bytes,
        )
        await self.channel.listen()
        assert self.channel.endpoint is not None
        self.address = self.channel.endpoint
        return self

    def _fail(self, loop: object, context: dict[str, Any]) -> None:
        self.failed.append(context)

    async def __aexit__(self, *error: object) -> None:
        for client in self.clients:
            client.vanish()
        self.channel.stop_listening()
        self.backend.automatic = True
        self.backend.complete_all()
        await self.channel.close()
        if error[0] is None:
            assert not self.failed, self.failed

    async def open(self) -> Client:
        """A connection without CONNECT."""
        client = Client(*await asyncio.open_connection(*self.address))
        self.clients.append(client)
        return client

    async def connect(self, client_id: str = "c", *, clean_session: bool = True, **fields: Any) -> Client:
        """Return an accepted client."""
        client = await self.open()
        client.send(Connect(client_id, clean_session=clean_session, **fields))
        answer = await client.receive()
        assert isinstance(answer, Connack) and answer.return_code == 0
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that neither a client nor the queue manager can observe."""
        loop = asyncio.get_running_loop()
        while not condition():
            turn = loop.create_future()
            loop.call_later(0.001, turn.set_result, None)
            await turn

    @property
    def connection(self) -> StreamConnection:
        """The only connection."""
        (connection,) = self.channel.connections
        return connection


ACCEPTED, PRESENT = Connack(0), Connack(0, True)


async def answers(bridge: Any, *packets: Any) -> list[Any]:
    """Return the data of a new connection until it is closed."""
    client = await bridge.open()
    client.send(*packets)
    return await client.rest()
