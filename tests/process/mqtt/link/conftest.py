"""Links to a mosquitto."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.mosquitto import Mosquitto
from tests.helpers.tested_link import impatient, link, version  # noqa: F401


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
