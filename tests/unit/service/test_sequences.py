"""Sequences: they start immediately, continue as tasks, and an error affects only its client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.mqtt.packets import Connect, Suback, Subscribe
from bridge.service.client import Client
from bridge.service.turns import Sequences
from tests.helpers.service_bridge import ACCEPTED

CLIENT = cast(Client, SimpleNamespace(peer="?", close=lambda *_arguments: None))


async def test_a_sequence_with_immediate_answers_runs_at_once() -> None:
    answer = asyncio.get_running_loop().create_future()
    answer.set_result(1)
    steps: list[int] = []

    async def sequence() -> None:
        steps.append(await answer)

    assert Sequences().start(CLIENT, sequence()) is None
    assert steps == [1]


async def test_a_waiting_sequence_continues_as_a_task() -> None:
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
    steps: list[object] = []

    async def sequence() -> None:
        steps.append("begun")
        for answer in answers:
            steps.append(await answer)
        async with asyncio.timeout(1):
            await asyncio.sleep(0)

    task = Sequences().start(CLIENT, sequence())
    assert steps == ["begun"] and task is not None
    answers[0].set_result(1)
    await asyncio.sleep(0)
    answers[1].set_result(2)
    await task
    assert steps == ["begun", 1, 2]


@pytest.mark.parametrize("is_first_step", [True, False])
async def test_a_sequence_is_cancelled(is_first_step: bool) -> None:
    """Also before the first step of its task: a client disconnects directly after CONNECT."""
    steps: list[str] = []

    async def sequence() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    task = Sequences().start(CLIENT, sequence())
    assert task is not None
    if not is_first_step:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and steps == ["cancelled"]


@pytest.mark.parametrize("automatic", [True, False])
async def test_an_error_disconnects_only_its_client(
    bridge: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, automatic: bool
) -> None:
    """Whether it occurs immediately, or after an answer of the queue manager."""
    async with bridge() as running:
        faulty, other = await running.connect("faulty"), await running.connect("other")
        with monkeypatch.context() as patch:
            patch.setattr(running.backend, "subscribe", lambda *_asked, **_options: None if automatic else _failing())
            faulty.send(Subscribe(1, (("a", 1),)))
            assert await faulty.rest() == []
        (line,) = [record for record in caplog.records if "MQB2105E" in record.getMessage()]
        assert line.exc_info is not None
        other.send(Subscribe(1, (("a", 1),)))
        assert await other.receive() == Suback(1, (1,))


async def _failing() -> list[int]:
    await asyncio.sleep(0)
    raise KeyError("fault")


async def test_an_error_in_connect_leaves_no_client_behind(
    bridge: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(unit: Any) -> None:
        raise RuntimeError("out of order")

    async with bridge() as running:
        with monkeypatch.context() as patch:
            patch.setattr(running.backend, "submit", fail)
            client = await running.open()
            client.send(Connect("c"))
            assert await client.rest() == []
            assert not running.service.clients and not running.service.sessions
        assert "MQB2105E" in caplog.text
        client = await running.open()
        client.send(Connect("c"))
        assert await client.receive() == ACCEPTED
