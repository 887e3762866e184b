"""The limit of open files: raised as far as possible, and rejected connections are reported."""

from __future__ import annotations

import logging
import resource
from typing import Any

import pytest

from bridge.mqtt.packets import Connack
from bridge.service.channels import RESERVE, room_for
from bridge.transport.channel import Room


@pytest.mark.parametrize(
    ("soft", "hard", "clients", "raised", "room"),
    [
        (1_024, 20_000, 10_000, 10_000 + RESERVE, 10_000),
        (1_024, resource.RLIM_INFINITY, 10_000, 10_000 + RESERVE, 10_000),
        (1_024, 2_000, 10_000, 2_000, 2_000 - RESERVE),
        (65_536, 65_536, 10_000, None, 10_000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10_000, None, 10_000),
    ],
)
def test_the_limit_is_raised_for_the_configured_clients(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    clients: int,
    raised: int | None,
    room: int,
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: set_to.append(limits))
    caplog.set_level(logging.WARNING)
    assert room_for(clients) == room
    assert set_to == ([(raised, hard)] if raised is not None else [])
    assert ("enough for" in caplog.text) is (room < clients)


async def test_connections_without_a_descriptor_are_reported(bridge: Any, caplog: Any) -> None:
    async with bridge() as running:
        running.channel.room = Room(2)
        clients = [await running.connect("a"), await running.connect("b")]
        third = await running.open()
        assert await third.rest() == [Connack(3)]
        assert "limit of open files" in caplog.text
        clients[0].vanish()
        await running.until(lambda: running.channel.room.taken == 1)
        await running.connect("c")
