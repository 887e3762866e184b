"""Links to a mosquitto, and to a scripted broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.config.link import LinkConfig
from bridge.link import attempts
from bridge.link.connection import LinkConnection
from tests.helpers.fake_broker import FakeBroker
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE
from tests.helpers.tested_link import LinkFactory, TestedLink


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
def broker(version: str) -> Iterator[FakeBroker]:
    """A scripted broker."""
    fake = FakeBroker(version)
    yield fake
    fake.close()


@pytest.fixture
def broker_5() -> Iterator[FakeBroker]:
    """A scripted broker of MQTT 5."""
    fake = FakeBroker("5")
    yield fake
    fake.close()


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Callable[..., Mosquitto]]:
    """`mosquitto(settings...)`: a running mosquitto."""
    brokers: list[Mosquitto] = []

    def start(*settings: str) -> Mosquitto:
        directory = tmp_path / f"mosquitto{len(brokers)}"
        directory.mkdir()
        brokers.append(Mosquitto(directory, *settings))
        return brokers[-1].start()

    yield start
    for process in brokers:
        process.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses between attempts short, also after rejections."""
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(attempts, "REFUSED_PAUSE", 0.02)
