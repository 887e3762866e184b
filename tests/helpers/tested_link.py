"""A link whose state changes a test can wait for."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from bridge.config.link import LinkConfig
from bridge.link import attempts
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


def ready(link: TestedLink) -> TestedLink:
    """Wait until a link is connected, and return it."""
    link.state_where(LinkPhase.CONNECTED)
    return link


# Fixtures -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def link() -> Iterator[LinkFactory]:
    """`link(port, version, ...)`: a started link. Options that LinkConnection does not have belong to its configuration."""
    links: list[LinkConnection] = []

    def start(port: int, version: str = "5", client_id: str = "c", **options: Any) -> TestedLink:
        of_connection = {
            name: options.pop(name) for name in ("topic_filter", "qos", "password", "clean") if name in options
        }
        former = options.pop("former", ())
        config = LinkConfig(host=options.pop("host", "127.0.0.1"), port=port, version=version, **options)
        tested = TestedLink("L", config, client_id, **of_connection)
        tested.resume(former, subscribed=False)
        links.append(tested)
        tested.start()
        return tested

    yield start
    for tested in links:
        tested.stop(PATIENCE)


@pytest.fixture(params=["3.1.1", "5"])
def version(request: pytest.FixtureRequest) -> str:
    """The MQTT version."""
    return str(request.param)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses between attempts short, also after rejections."""
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(attempts, "REFUSED_PAUSE", 0.02)
