"""The bridge under test: real processes, ports of the system's choice, loopback only."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# `pytest` itself, unlike `python -m pytest`, does not put the working directory on the path.
ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tests.acceptance.bridge_process import BridgeProcess  # noqa: E402

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """One bridge for all tests that do not stop it; at the end it must stop in order and have logged no traceback."""
    process = BridgeProcess(tmp_path_factory.mktemp("shared") / "data").start()
    yield process
    if process.running:
        assert process.stop() == 0, process.log
    assert "Traceback" not in process.log, process.log


@pytest.fixture
def bridge(shared_bridge: BridgeProcess) -> BridgeProcess:
    """The shared bridge. Tests take topics and client identifiers of their own: see `unique`."""
    assert shared_bridge.running, f"an earlier test ended the shared bridge:\n{shared_bridge.log}"
    return shared_bridge


@pytest.fixture
def new_bridge(tmp_path: Path) -> Iterator[Callable[..., BridgeProcess]]:
    """Makes bridges of the test's own: called with what BridgeProcess takes behind the data directory."""
    made: list[BridgeProcess] = []

    def make(name: str = "data", **options: object) -> BridgeProcess:
        process = BridgeProcess(tmp_path / name, **options)  # type: ignore[arg-type]
        made.append(process)
        return process

    yield make
    for process in made:
        process.discard()
        assert "Traceback" not in process.log, process.log


@pytest.fixture
def own_bridge(new_bridge: Callable[..., BridgeProcess]) -> BridgeProcess:
    """A running bridge that belongs to the test alone, to be stopped and killed."""
    return new_bridge().start()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A word of at most 20 characters that no other test has, for topics and client identifiers."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).removeprefix("test-")
    return f"{words[:15].strip('-')}-{next(_numbers)}"
