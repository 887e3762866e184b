"""The pace of anonymous requests.

The admin port and the MQTT clients share one interpreter. So anonymous requests begin one after another, with pauses of a
multiple of the CPU time that they have used. Client networks take turns, so that a flood from one does not delay the health
checks and scrapers of others. Requests with valid credentials do not wait.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.console.access import Access, address_of
from bridge.security.authenticator import network_of

#: Share of a core that anonymous requests may use.
SHARE: Final = 0.025
#: Minimum seconds between the beginnings of two requests.
INTERVAL: Final = 0.01
#: Maximum CPU seconds that are charged for a step of a request, so that one step delays others by at most a second.
_MAX_CHARGE: Final = 0.024
#: In the state of a request that waits for its turn: the future of the turn. The server cancels it if the client leaves.
TURN: Final = "turn"


class Pace:
    """The turns of anonymous requests at one admin port. Used on its event loop."""

    def __init__(self) -> None:
        #: time of the next turn, by the clock of the event loop
        self._next = 0.0
        #: by client network, the requests that wait. The network whose turn is next comes first
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def late(self) -> bool:
        """Whether requests have to wait."""
        return bool(self._waiting) or self._next > _now() + INTERVAL

    def turn(self, network: str) -> asyncio.Future[None]:
        """Return the next turn of a client network: it is done as soon as the request may begin."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(network, deque()).append(turn)
        if self._timer is None:
            self._give_turns()
        return turn

    def charge(self, cpu: float) -> None:
        """Delay later turns after a step of a request has used `cpu` seconds of CPU time."""
        self._next = max(_now(), self._next) + min(cpu, _MAX_CHARGE) / SHARE

    def _give_turns(self) -> None:
        """Give the turns that are due, and wait for the next one."""
        self._timer = None
        while self._waiting:
            if (wait := self._next - _now()) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._give_turns)
                return
            network = next(iter(self._waiting))
            turns = self._waiting.pop(network)
            turn = turns.popleft()
            if turns:
                self._waiting[network] = turns
            if not turn.done():
                self._next = _now() + INTERVAL
                turn.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()


class PacedRequests:
    """Delays anonymous requests until their turns."""

    def __init__(self, app: ASGIApp, access: Access, pace: Pace, stopping: ASGIApp) -> None:
        """Initialize. `stopping` answers the requests that the server cancels while they wait."""
        self._app = app
        self._access = access
        self._pace = pace
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._access.knows(request := Request(scope)):
            await self._app(scope, receive, send)
            return
        turn = self._pace.turn(network_of(address_of(request)))
        setattr(request.state, TURN, turn)
        try:
            await turn
        except asyncio.CancelledError:
            # The bridge stops, or the client has left, and nothing is sent. The turn may have come at the same moment.
            await self._stopping(scope, receive, send)
            return
        await _charged(cast(Coroutine[Any, Any, None], self._app(scope, receive, send)), self._pace)


@types.coroutine
def _charged(request: Coroutine[Any, Any, None], pace: Pace) -> Generator[Any, Any, None]:
    """Run a request, and charge the CPU time of its own steps: it may wait for its body while others use the thread."""
    step, argument = request.send, None
    while True:
        start = time.thread_time()
        try:
            awaitable = step(argument)
        except StopIteration:
            return
        finally:
            pace.charge(time.thread_time() - start)
        try:
            argument = yield awaitable
            step = request.send
        except BaseException as error:
            step, argument = request.throw, error
