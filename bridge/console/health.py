"""Health: whether the bridge lives, and whether it serves clients. Open to everybody who reaches the admin port."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bridge.administration.answers import BridgeState
from bridge.console.bridge_access import BridgeAccess
from bridge.service.lifecycle import Bridge

#: Seconds in which the event loop has to turn.
TURN_TIMEOUT = 5.0


async def health(access: BridgeAccess, request: Request) -> Response:
    """Answer 200 where the event loop of the bridge turns, else 503: to start the bridge again is the remedy then."""
    try:
        async with asyncio.timeout(TURN_TIMEOUT):
            await access.run(_turn)
    except TimeoutError:
        return _answer([f"the event loop has not turned for {TURN_TIMEOUT:g} s"])
    return _answer([])


async def readiness(access: BridgeAccess, request: Request) -> Response:
    """Answer 200 where clients are served, else 503 and why not, a line each.

    Channels listen, the queue manager answers, and the transmission queue is this bridge's: one that stands by says so.
    """
    try:
        async with asyncio.timeout(TURN_TIMEOUT):
            why = await access.run(lambda: _why_not(access.bridge))
    except TimeoutError:
        why = [f"the event loop has not turned for {TURN_TIMEOUT:g} s"]
    return _answer(why)


def _answer(why: list[str]) -> Response:
    headers = {"Cache-Control": "no-store"}
    if why:
        return PlainTextResponse("\n".join(why) + "\n", 503, headers)
    return PlainTextResponse("ok\n", headers=headers)


async def _turn() -> None:
    await asyncio.sleep(0)


async def _why_not(bridge: Bridge) -> list[str]:
    return why_not_ready(bridge)


def why_not_ready(bridge: Bridge) -> list[str]:
    """Return why clients are not served, none where they are; on the event loop of the bridge."""
    if bridge.problems is None or bridge.state is not BridgeState.RUNNING:
        return [str(bridge.state)]
    return [problem.what for problem in bridge.problems.not_serving()]
