"""Publications and messages of clients are counted on request, and no longer than necessary."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mqtt.packets import Puback, Publish, Subscribe
from bridge.service import activity as activity_module
from bridge.service.activity import WINDOW, Activity


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_clients_are_listed_busiest_first(bridge: Any) -> None:
    """Publications count when they are committed, messages when they are acknowledged, or written with QoS 0."""
    clock = Clock()
    async with bridge() as running:
        running.service.clock = clock
        activity = Activity(running.service).keep_counting()
        busy, idle = await running.connect("busy"), await running.connect("idle")
        for number in range(1, 4):
            busy.send(Publish("t", b"", 1, False, False, number))
            assert await busy.receive() == Puback(number)
        idle.send(Subscribe(1, (("t", 1),)))
        await idle.receive()
        running.backend.deliver(running.backend.publication(1, 0, client_id="idle"))
        await idle.receive()
        running.backend.deliver(running.backend.publication(2, 1, client_id="idle"))
        idle.send(Puback((await idle.receive()).packet_id))
        await running.until(lambda: activity.channels[running.config.name].sent == 2)
        counted = activity.of(running.config.name, 2)
        assert (counted.received, counted.sent, counted.clients, counted.units) == (3, 2, 2, 3)
        assert counted.unit_seconds > 0
        assert activity.busiest(10) == []  # the current interval
        clock.now += 2 * WINDOW
        rates = [(client.client_id, client.received, client.sent) for client in activity.busiest(10)]
        assert rates == [("busy", 3 / (2 * WINDOW), 0.0), ("idle", 0.0, 2 / (2 * WINDOW))]
        assert [client.client_id for client in activity.busiest(1)] == ["busy"]
        clock.now += WINDOW
        assert activity.busiest(10) == []  # nothing in the next one


async def test_the_number_of_clients_is_limited(bridge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with ever new identifiers do not fill the memory. Channels still count them."""
    monkeypatch.setattr(activity_module, "MAX_CLIENTS", 2)
    clock = Clock()
    async with bridge() as running:
        running.service.clock = clock
        activity = Activity(running.service).keep_counting()
        for number in range(4):
            client = await running.connect(f"c{number}")
            client.send(Publish("t", b"", 1, False, False, 1))
            await client.receive()
        clock.now += WINDOW
        assert len(activity.busiest(10)) == 2
        assert activity.of(running.config.name, 0).received == 4


async def test_counting_ends_without_requests(bridge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request starts counting. Counting stops after a pause, and the next request starts again from zero."""
    monkeypatch.setattr(activity_module, "IDLE_TIMEOUT", 0.05)
    async with bridge() as running:
        activity = Activity(running.service)
        assert activity.keep_counting() is activity
        client = await running.connect()
        client.send(Publish("t", b"", 1, False, False, 1))
        await client.receive()
        assert activity.channels
        await running.until(lambda: activity._end is None)
        counted = activity.of(running.config.name, 1)
        client.send(Publish("t", b"", 1, False, False, 2))
        await client.receive()
        assert activity.of(running.config.name, 1) == counted
        assert activity.keep_counting().channels == {}
        activity.end()
