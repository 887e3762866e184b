"""The pace of anonymous requests: most of the time is left to MQTT clients, and no request is lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import cast

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from bridge.config.models import Configuration
from bridge.console.access import Access
from bridge.console.app import application
from bridge.console.bridge_access import BridgeAccess
from bridge.console.console import Console as ServiceConsole
from bridge.console.pace import INTERVAL, SHARE, TURN, Pace, PacedRequests
from tests.helpers.patience import PATIENCE
from tests.helpers.running_bridge import running


def in_order(pace: Pace, *networks: str) -> list[str]:
    """Request turns in this order. Return the networks in the order in which they get their turns."""
    order: list[str] = []

    async def ask() -> None:
        turns = [pace.turn(network) for network in networks]
        for turn, network in zip(turns, networks, strict=True):
            turn.add_done_callback(lambda _, network=network: order.append(network))  # type: ignore[misc]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*turns, return_exceptions=True)

    asyncio.run(ask())
    return order


def test_networks_take_turns() -> None:
    """Other networks do not wait for all requests of a network that sends many."""
    assert "".join(in_order(Pace(), *"aaaabc")) == "aabcaa"


@pytest.mark.parametrize("cpu", [0.0, 0.001])
def test_the_pause_before_the_next_turn_is_a_multiple_of_the_cpu_time_used(cpu: float) -> None:
    async def second() -> tuple[bool, float]:
        pace = Pace()
        await pace.turn("a")
        start = asyncio.get_running_loop().time()
        pace.charge(cpu)
        late = pace.late
        await pace.turn("b")
        return late, asyncio.get_running_loop().time() - start

    late, waited = asyncio.run(second())
    assert late is (cpu > 0)
    assert waited >= (INTERVAL + cpu / SHARE) * 0.99


def test_a_long_request_delays_others_for_a_limited_time() -> None:
    pace = Pace()

    async def charge() -> None:
        pace.charge(60)

    asyncio.run(charge())
    assert in_order(pace, "a") == ["a"]


def test_a_request_is_not_charged_for_the_work_of_others_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, many requests with unfinished bodies would delay those of others for a minute."""
    charges: list[float] = []

    class Unknown:
        def knows(self, request: Request) -> bool:
            return False

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.001)
        with pytest.raises(OSError, match="lost"):
            await receive()

    async def use_the_thread() -> Message:
        while time.thread_time() - start < 0.1:
            pass
        await asyncio.sleep(0)
        raise OSError("lost")

    async def ask() -> None:
        pace = Pace()
        monkeypatch.setattr(pace, "charge", charges.append)
        receiving = asyncio.get_running_loop().create_task(use_the_thread())
        scope = {"type": "http", "headers": [], "client": ("127.0.0.1", 1), "state": {}}
        await PacedRequests(wait, cast(Access, Unknown()), pace, wait)(scope, lambda: receiving, cast(Send, None))

    start = time.thread_time()
    asyncio.run(ask())
    assert 0 < sum(charges) < 0.05


def test_a_cancelled_turn_is_skipped() -> None:
    async def ask() -> list[bool]:
        pace = Pace()
        turns = [pace.turn(network) for network in ("a", "a", "b")]
        turns[1].cancel()
        await turns[2]
        return [turn.cancelled() for turn in turns]

    assert asyncio.run(ask()) == [False, True, False]


@pytest.mark.parametrize("has_turn", [False, True])
async def test_a_stop_answers_a_request_that_waits_for_its_turn(tmp_path: Path, has_turn: bool) -> None:
    """This includes a request whose turn comes at the same moment. The answer has the usual headers."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    configuration = Configuration(
        queue_manager={"data_directory": tmp_path / "data"}, channels=[{"name": "A", "port": 0}]
    )
    async with running(configuration) as bridge:
        app = cast(PacedRequests, application(ServiceConsole(BridgeAccess(bridge))))
        app._pace.charge(60)
        scope: Scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        scope.update(client=("127.0.0.1", 1), state={})
        request = asyncio.ensure_future(app(scope, cast(Receive, None), send))
        await asyncio.sleep(0)
        if has_turn:
            scope["state"][TURN].set_result(None)
        request.cancel()  # as the server does
        await request
    assert (sent[0]["status"], sent[1]["body"]) == (503, b"The bridge is stopping\n")
    assert (b"x-content-type-options", b"nosniff") in sent[0]["headers"]
