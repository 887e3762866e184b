"""Links to a mosquitto, and to a broker that is scripted."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bridge.config.link import LinkConfig
from bridge.link import connection as link_connection
from bridge.link.connection import LinkConnection
from bridge.link.state import LinkPhase, LinkState
from bridge.telemetry.message import Received
from tests.helpers.fake_broker import FakeBroker
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE


class TestedLink(LinkConnection):
    """A link whose changes of state a test can wait for."""

    __test__ = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.states: queue.Queue[LinkState] = queue.Queue()
        self.sessions: list[bool] = []
        super().__init__(
            *arguments, on_state=self.states.put, on_session=self.sessions.append, **options
        )

    def state_where(self, phase: LinkPhase) -> LinkState:
        """The next change to this phase; others before it are passed over."""
        while (state := self.states.get(timeout=PATIENCE)).phase != phase:
            pass
        return state

    def take_all(self, number: int) -> list[Received]:
        """So many publications, however many calls that takes."""
        taken: list[Received] = []
        while len(taken) < number:
            some = self.take(number - len(taken), 1 << 30, PATIENCE)
            # An empty answer is one to a new connection or PUBRELs, then more comes; else the time is over.
            taken += some
        return taken

    def released_all(self, number: int) -> list[int]:
        """So many message ids of PUBREL."""
        mids = self.released()
        while len(mids) < number:
            self.take(0, 0, PATIENCE)
            mids += self.released()
        return mids


LinkFactory = Callable[..., TestedLink]


@pytest.fixture
def link() -> Iterator[LinkFactory]:
    """link(port, version, ...): a started link; what is no option of LinkConnection is of its configuration."""
    links: list[LinkConnection] = []

    def start(port: int, version: str = "5", client_id: str = "c", **options: Any) -> TestedLink:
        of_connection = {
            name: options.pop(name) for name in ("topic_filter", "qos", "password", "clean") if name in options
        }
        former = options.pop("former", ())
        config = LinkConfig(host=options.pop("host", "127.0.0.1"), port=port, version=version, **options)
        made = TestedLink("L", config, client_id, **of_connection)
        made.resume(former, subscribed=False)
        links.append(made)
        made.start()
        return made

    yield start
    for made in links:
        made.stop(PATIENCE)


@pytest.fixture(params=["3.1.1", "5"])
def version(request: pytest.FixtureRequest) -> str:
    """The MQTT version."""
    return str(request.param)


@pytest.fixture
def broker(version: str) -> Iterator[FakeBroker]:
    """A scripted broker."""
    made = FakeBroker(version)
    yield made
    made.close()


@pytest.fixture
def broker_5() -> Iterator[FakeBroker]:
    """A scripted broker of MQTT 5."""
    made = FakeBroker("5")
    yield made
    made.close()


@pytest.fixture
def calls() -> Iterator[ThreadPoolExecutor]:
    """Where calls run that wait for the broker."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Callable[..., Mosquitto]]:
    """mosquitto(settings...): a running mosquitto."""
    made: list[Mosquitto] = []

    def start(*settings: str) -> Mosquitto:
        directory = tmp_path / f"mosquitto{len(made)}"
        directory.mkdir()
        made.append(Mosquitto(directory, *settings))
        return made[-1].start()

    yield start
    for process in made:
        process.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between attempts are short, after refusals too."""
    monkeypatch.setattr(link_connection, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(link_connection, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(link_connection, "REFUSED_PAUSE", 0.02)
