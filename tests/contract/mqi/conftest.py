"""A queue manager, and programs that use the real pymqi and ibmmq to connect to it through the stand-in.

A program runs in a separate process, as with IBM's library. It finds the library with LD_LIBRARY_PATH, the package with
PYTHONPATH and the queue manager with MQI_STANDIN.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.client_programs import Manager
from tests.helpers.installed import CLIENT_PACKAGES, missing

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    manager = Manager(tmp_path_factory.mktemp("data"))
    yield manager
    manager.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests on ibmmq, and tests marked `smoke` on pymqi, too. `make test-slow` runs all tests on both."""
    declared = any(mark.args[0] == "package" for mark in metafunc.definition.iter_markers("parametrize"))
    if "package" in metafunc.fixturenames and not declared:
        smoke = metafunc.definition.get_closest_marker("smoke")
        pymqi = pytest.param("pymqi", marks=[] if smoke else [pytest.mark.slow])
        metafunc.parametrize("package", [pymqi, "ibmmq"], indirect=True)


@pytest.hookimpl(tryfirst=True)  # before pytest reads -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of the stand-in as slow, except smoke tests.

    test_tls.py tests connections of the bridge, and `verbs` the verbs of the embedded queue manager, in the test's process.
    """
    for item in items:
        fast = item.path.name == "test_tls.py" or item.path.is_relative_to(HERE / "verbs")
        if item.path.is_relative_to(HERE) and not fast and not item.get_closest_marker("smoke"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def package(request: pytest.FixtureRequest) -> str:
    """The name of a package. The test is skipped if the package is not built (environments.sh)."""
    name: str = request.param
    if not (CLIENT_PACKAGES / name / name).is_dir():
        missing(f"{name} on the stand-in", "tests/programs.sh")
    return name


@pytest.fixture
def queue(manager: Manager, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty local queue."""
    name = f"Q.{abs(hash(request.node.name)) % 10**9}"
    manager.command(f"DEFINE QLOCAL({name})")
    yield name
    manager.command(f"DELETE QLOCAL({name}) PURGE")
