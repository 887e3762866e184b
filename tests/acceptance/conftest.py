"""The bridge under test: real processes, ports of the system's choice, loopback only."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work, bridge_on
from tests.helpers.installed import CLIENT_PACKAGES, built
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.remote_bridge import RemoteBridgeProcess

_numbers = itertools.count(1)
_ROOT = Path(__file__).resolve().parents[2]
#: the commit of release 0.2.0
_RELEASE = "4c257b66"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on the embedded queue manager and on IBM MQ via ibmmq, or on those of its marker `queue_managers`.

    `slow` of the marker names a queue manager on which only `make test-slow` runs the test.
    """
    if "queue_manager" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("queue_managers")
        names: list[Any] = list(marker.args) if marker else ["embedded", "ibmmq"]
        if marker and "slow" in marker.kwargs:
            names.append(pytest.param(marker.kwargs["slow"], marks=pytest.mark.slow))
        metafunc.parametrize("queue_manager", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def environments() -> None:
    """The stand-in for IBM's client library, and the packages on it."""
    built("the stand-in for IBM MQ", CLIENT_PACKAGES / "versions")


@pytest.fixture(scope="session")
def queue_manager(request: pytest.FixtureRequest) -> str:
    """The queue manager of the bridge under test: embedded, or the package for a remote one."""
    kind: str = request.param
    if kind != "embedded":
        request.getfixturevalue("environments")
    return kind


@pytest.fixture(scope="session")
def shared_bridge(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """One bridge for all tests that do not stop it. At the end, it must stop in order and have logged no traceback."""
    with at_work(bridge_on(queue_manager, tmp_path_factory.mktemp("shared") / "data")) as process:
        yield process


@pytest.fixture
def bridge(shared_bridge: BridgeProcess) -> BridgeProcess:
    """The shared bridge. Tests use separate topics and client identifiers: see `unique`."""
    assert shared_bridge.running, f"an earlier test ended the shared bridge:\n{shared_bridge.log}"
    return shared_bridge


@pytest.fixture(scope="module")
def bridge_of_the_file(
    request: pytest.FixtureRequest, queue_manager: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BridgeProcess]:
    """One bridge with the CONFIG of a test module, in which {} is a temporary directory."""
    directory = tmp_path_factory.mktemp("bridge")
    with at_work(
        bridge_on(queue_manager, directory / "data", config=request.module.CONFIG.format(directory))
    ) as process:
        yield process


@pytest.fixture
def administered_bridge(bridge_of_the_file: BridgeProcess) -> Iterator[BridgeProcess]:
    """The bridge of the file. It has no sessions at the start of a test."""
    assert bridge_of_the_file.running, f"an earlier test ended the bridge:\n{bridge_of_the_file.log}"
    yield bridge_of_the_file
    administrator = Administrator(bridge_of_the_file)
    while clients := administrator.clients():
        for client_id in clients:
            administrator.run("client", "purge", client_id)  # fails if the client's connection has just ended


@pytest.fixture
def new_bridge(queue_manager: str, tmp_path: Path) -> Iterator[Callable[..., BridgeProcess]]:
    """Create bridges for a test. The arguments are those of BridgeProcess after the data directory."""
    bridges: list[BridgeProcess] = []

    def make(name: str = "data", **options: Any) -> BridgeProcess:
        process = bridge_on(queue_manager, tmp_path / name, **options)
        bridges.append(process)
        return process

    yield make
    for process in bridges:
        process.discard()
        assert "Traceback" not in process.log, process.log


@pytest.fixture
def own_bridge(new_bridge: Callable[..., BridgeProcess]) -> BridgeProcess:
    """A running bridge for one test, which may stop and kill it."""
    return new_bridge().start()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A unique word of at most 20 characters, for topics and client identifiers."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).removeprefix("test-")
    return f"{words[:15].strip('-')}-{next(_numbers)}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto for one test."""
    (tmp_path / "broker").mkdir()
    mosquitto = Mosquitto(tmp_path / "broker").start()
    yield mosquitto
    mosquitto.stop()


@pytest.fixture
def remote(environments: None, tmp_path: Path) -> Iterator[Callable[..., RemoteBridgeProcess]]:
    """Create bridges with a remote queue manager."""
    bridges: list[RemoteBridgeProcess] = []

    def make(name: str = "data", **options: Any) -> RemoteBridgeProcess:
        bridges.append(RemoteBridgeProcess(tmp_path / name, **options))
        return bridges[-1]

    yield make
    for process in bridges:
        process.discard()
    for process in bridges:
        assert "Traceback" not in process.log, process.log


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The sources of release 0.2.0."""
    archived = subprocess.run(["git", "archive", _RELEASE], cwd=_ROOT, capture_output=True, check=False)
    if archived.returncode:
        pytest.skip(f"the history of this checkout has no commit {_RELEASE}")
    directory = tmp_path / "release"
    directory.mkdir()
    subprocess.run(["tar", "x", "-C", directory], input=archived.stdout, check=True)
    return directory
