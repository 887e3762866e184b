"""A link whose state changes a test can wait for."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from bridge.link.client import LinkHandshake
from bridge.link.connection import LinkConnection
from bridge.link.state import LinkPhase, LinkState
from bridge.telemetry.message import Received
from tests.helpers.patience import PATIENCE


class TestedLink(LinkConnection):
    """A link whose changes of state a test can wait for."""

    __test__ = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.states: queue.Queue[LinkState] = queue.Queue()
        self.sessions: list[bool] = []
        #: seconds of each wait
        self.waits: list[float] = []
        super().__init__(*arguments, on_state=self.states.put, on_session=self.sessions.append, **options)

    def _turn(self, handshake: LinkHandshake, wait: float) -> bool:
        self.waits.append(wait)
        return super()._turn(handshake, wait)

    @property
    def idle(self) -> bool:
        """Return whether it has no thread, because it is idle."""
        return self._thread.parked

    def state_where(self, phase: LinkPhase) -> LinkState:
        """Wait for the next change to this phase. Others are skipped."""
        while (state := self.states.get(timeout=PATIENCE)).phase != phase:
            pass
        return state

    def take_all(self, number: int) -> list[Received]:
        """Return this number of publications, with as many calls as necessary."""
        arrivals: list[Received] = []
        while len(arrivals) < number:
            some = self.take(number - len(arrivals), 1 << 30, PATIENCE)
            # An empty answer means a new connection or PUBRELs, and more follows. Otherwise the time is over.
            arrivals += some
        return arrivals

    def released_all(self, number: int) -> list[int]:
        """Return this number of message ids of PUBREL."""
        packet_ids = self.released()
        while len(packet_ids) < number:
            self.take(0, 0, PATIENCE)
            packet_ids += self.released()
        return packet_ids


LinkFactory = Callable[..., TestedLink]


def calling(call: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
    """A call that waits for the broker, in a separate thread."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call, *arguments, **options)
    pool.shutdown(wait=False)
    return future
