"""Sessions are counted in slices, and not at each scrape."""

from __future__ import annotations

import asyncio
from typing import Any

from bridge.service.metric_catalogue import Samples
from bridge.service.metrics import SessionCount
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.session import Session, SessionState


def sessions_of(count: int) -> dict[str, Session]:
    sessions = {}
    for number in range(count):
        session = Session(ClientIdentity(f"c{number}", b""), durable=number % 2 == 0, window=20)
        session.channel = "A"
        session.state = SessionState.ONLINE if number % 4 == 0 else SessionState.AWAY
        session.filters = {"a": "0", "b": "0"}
        sessions[session.client_id] = session
    return sessions


def values(samples: Samples, name: str) -> dict[tuple[str, ...], Any]:
    return {
        labels: value for metric, labelled_values in samples if metric.name == name for labels, value in labelled_values
    }


async def test_sessions_by_state() -> None:
    samples = Samples()
    await SessionCount(lambda: 0.0).gather(samples, sessions_of(2_000))
    assert values(samples, "mqbridge_sessions") == {
        ("A", "true", "true"): 500,
        ("A", "true", "false"): 500,
        ("A", "false", "false"): 1_000,
    }
    assert values(samples, "mqbridge_subscriptions") == {("A",): 4_000}


async def test_other_tasks_run_between_slices() -> None:
    """The event loop turns while many sessions are counted."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await SessionCount(lambda: 0.0).gather(Samples(), sessions_of(5_000))
    task.cancel()
    assert turns >= 10


async def test_a_count_is_cached() -> None:
    """Successive scrapes get the same count, later ones a new count."""
    now = 100.0
    count = SessionCount(lambda: now)

    async def counted(number: int) -> float:
        samples = Samples()
        await count.gather(samples, sessions_of(number))
        return sum(values(samples, "mqbridge_sessions").values())

    assert await counted(4) == 4
    now += 9.9
    assert await counted(8) == 4
    now += 0.2
    assert await counted(8) == 8
