"""An orderly stop acknowledges everything that was committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.config.models import Configuration
from bridge.mqtt.packets import Disconnect, Puback, Publish, Pubrec, Suback, Subscribe
from bridge.service.lifecycle import Bridge
from tests.helpers.raw_client import LEVELS, ConnectionClosed, RawClient


class Replaced:
    """A backend with another `subscribe`."""

    def __init__(self, backend: Any, subscribe: Callable[..., Any]) -> None:
        self._backend = backend
        self.subscribe = subscribe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@LEVELS
@pytest.mark.parametrize(("qos", "acknowledgement"), [(1, Puback), (2, Pubrec)])
async def test_a_publication_after_a_subscribe_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, qos: int, acknowledgement: type[Puback] | type[Pubrec]
) -> None:
    """The stop begins after the commit and before the completion is reported, which waits until SUBACK is sent."""
    configuration = Configuration(
        queue_manager={"data_directory": tmp_path / "data"}, channels=[{"name": "A", "port": 0}]
    )
    bridge = Bridge(configuration, lambda _: None)
    await bridge.start()
    try:
        loop, backend = asyncio.get_running_loop(), bridge.parts.service.backend
        (channel,) = bridge.parts.channels
        assert channel.endpoint is not None
        port = channel.endpoint[1]
        stopping: list[asyncio.Task[None]] = []

        async def stop() -> None:
            await bridge.parts.service.flush()
            await bridge.parts.channels.end()

        def subscribe(*arguments: Any, **options: Any) -> Any:
            # Runs between this iteration, in which the publication is committed, and the report of its completion.
            stopping.append(loop.create_task(stop()))
            return backend.subscribe(*arguments, **options)

        # A method of a compiled class cannot be replaced.
        monkeypatch.setattr(bridge.parts.service, "backend", Replaced(backend, subscribe))

        def publish() -> list[object]:
            client = RawClient.connected(port, "dev", level=level)
            client.send(Subscribe(1, (("t", 0),)), Publish("t", b"x", qos, False, False, 2))
            packets: list[object] = []
            try:
                while True:
                    packets.append(client.receive())
            except ConnectionClosed:
                return packets

        packets = await asyncio.to_thread(publish)
        await asyncio.gather(*stopping)
        assert [type(packet) for packet in packets if not isinstance(packet, Publish)] == [
            Suback,
            acknowledgement,
            *([Disconnect] if level == 5 else []),
        ]
    finally:
        await bridge.stop()
