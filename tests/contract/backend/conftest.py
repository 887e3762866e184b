"""The contract suite for all queue managers behind `bridge.mq.mqi.Connection`.

The tests use the interface only. A place (`mq`) makes connections and objects, and removes the objects afterwards. A function
in `QUEUE_MANAGERS` adds a queue manager to the suite.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bridge.mq.ibm import browser
from bridge.mq.mqi import Connection
from tests.helpers import secured_queue_manager
from tests.helpers.backend_places import PLACES, Place
from tests.helpers.backend_user import Bridge
from tests.helpers.mq_applications import QUEUE_MANAGERS, Application, Connect, Workplace, disconnect
from tests.helpers.secured_queue_manager import SecuredConnections

#: The whole suite runs on these. On the others, the tests marked `smoke` run, and in `make test-slow` all tests.
IN_FULL = ("embedded", "local", "standin", "ibmmq", "real")
#: Connections to the embedded queue manager, which supports the verbs and options that the bridge uses.
EMBEDDED = ("local", "remote")
#: Tests of other verbs and options, marked `whole_mqi`, run on the stand-in in the process of the test instead.
STAND_IN = ("standin",)

#: Tests of the queue manager's rules, which do not depend on the connection. All of them run in the process of the queue
#: manager. On other connections, the tests marked `smoke` run. The remaining files test functions that depend on the
#: connection: units of work, order, waiting, loss.
RULES = frozenset(
    f"test_{name}.py"
    for name in (
        "authority",
        "dead_letter_queue",
        "dead_letters",
        "dead_letters_retried",
        "inquiry",
        "mapping_state",
        "names",
        "publish_properties",
        "publish_subscribe",
        "queue_limits",
        "queues",
        "rules_of_commands",
        "rules_of_definitions",
        "subscriptions",
    )
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    smoke = metafunc.definition.get_closest_marker("smoke")
    in_full = {*IN_FULL} - ({"ibmmq"} if metafunc.definition.path.name in RULES else set())
    # A place `local` is the adapter for IBM MQ on the embedded queue manager: it has the same threads as ibmmq.
    fixtures = {"connect": list(QUEUE_MANAGERS), "place": list(PLACES), "secured": ["ibmmq", "pymqi"]}
    for fixture, kinds in fixtures.items():
        if fixture in metafunc.fixturenames:
            if fixture == "connect":
                whole = metafunc.definition.get_closest_marker("whole_mqi")
                kinds = [kind for kind in kinds if kind not in (EMBEDDED if whole else STAND_IN)]
            slow = [
                kind for kind in kinds if not smoke and (kind not in in_full or (fixture, kind) == ("place", "local"))
            ]
            marks = {kind: [pytest.mark.slow] if kind in slow else [] for kind in sorted(kinds)}
            metafunc.parametrize(fixture, [pytest.param(kind, marks=marks[kind]) for kind in marks], indirect=True)


@pytest.fixture
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Make a new MQ connection at each call."""
    with QUEUE_MANAGERS[request.param](tmp_path) as connect_to_queue_manager:
        yield connect_to_queue_manager


@pytest.fixture
def mq(connect: Connect) -> Iterator[Workplace]:
    with ExitStack() as stack:
        yield Workplace(connect, stack)


@pytest.fixture
def connect_by(
    mq: Workplace, connect: Callable[..., Connection], request: pytest.FixtureRequest
) -> Callable[[str], Application]:
    """Connect an application over a server-connection channel, like C clients."""
    if request.node.callspec.params["connect"] in ("local", "remote", "standin"):
        pytest.skip("it has no channel")
    if request.node.callspec.params["connect"] == "real" and not os.environ.get("MQBRIDGE_TEST_CONNECTIONS"):
        pytest.skip("MQBRIDGE_TEST_CONNECTIONS is not set: applications connect in bindings mode")

    def connected(channel: str) -> Application:
        connection = connect(channel)
        request.addfinalizer(lambda: disconnect(connection))
        return Application(connection)

    return connected


@pytest.fixture
def app(mq: Workplace) -> Application:
    return mq.application()


@pytest.fixture
def other(mq: Workplace) -> Application:
    """A second application, with its own connection."""
    return mq.application()


@pytest.fixture
def queue(mq: Workplace) -> str:
    """A queue that no other test uses."""
    return mq.queue()


@pytest.fixture
def root(mq: Workplace) -> str:
    """A topic string that no other test uses."""
    return mq.name("news")


# The contract of `bridge.mq.backend.Backend` -------------------------------------------------------------------------


@pytest.fixture
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    """A queue manager for a backend."""
    monkeypatch.setattr(browser, "BROWSE_WAIT", 20)  # maximum duration of a stop
    with PLACES[request.param](tmp_path) as new_place:
        yield new_place
        await new_place.close()


@pytest.fixture
async def stopped(place: Place) -> AsyncIterator[Bridge]:
    """A bridge that is not open yet."""
    new_bridge = Bridge(place)
    yield new_bridge
    await new_bridge.stop()


@pytest.fixture
async def bridge(stopped: Bridge) -> Bridge:
    """A running bridge."""
    await stopped.begin()
    return stopped


# A secured queue manager ----------------------------------------------------------------------------------------------


@pytest.fixture
def secured(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SecuredConnections]:
    """A queue manager with CONNAUTH, CHLAUTH and enforced authorities, used with each of the packages."""
    monkeypatch.delenv("MQI_STANDIN", raising=False)
    with secured_queue_manager.secured(request.param, tmp_path) as connections:
        yield connections
