"""The number of source files that four operations pass through, printed next to the target.

A profile hook records the functions of `bridge` that run between the request and its result, in all its threads. Each
operation is repeated. Only files that it always passes count, so timers and other clients make no difference.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

import pytest

from bridge.config.models import Configuration
from bridge.mq.embedded.host import EmbeddedHost
from bridge.mq.mqi import MQOD
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Puback, Publish
from bridge.service.lifecycle import Bridge
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.running_bridge import running

# Slow, because every call of a function is recorded.
pytestmark = pytest.mark.slow

SOURCES = str(Path(__file__).parents[3] / "bridge")
#: Repetitions of each operation.
ROUNDS = 5
T = TypeVar("T")


class Hook:
    """Record the functions of `bridge` that are called while it is enabled: (file below `bridge`, name)."""

    def __init__(self) -> None:
        self.calls: set[tuple[str, str]] | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        calls = self.calls
        if calls is not None and event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            calls.add((frame.f_code.co_filename[len(SOURCES) + 1 :], frame.f_code.co_qualname))

    @contextmanager
    def recording(self) -> Iterator[set[tuple[str, str]]]:
        calls: set[tuple[str, str]] = set()
        self.calls = calls
        try:
            yield calls
        finally:
            self.calls = None


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    threading.setprofile(hook)
    sys.setprofile(hook)
    yield hook
    sys.setprofile(None)
    threading.setprofile(None)


@pytest.fixture
async def bridge(tmp_path: Path, hook: Hook) -> AsyncIterator[Bridge]:
    configuration = Configuration(
        queue_manager={"data_directory": tmp_path / "data"},
        channels=[{"name": "A", "port": 0}],
        mappings={"m": {"from": {"queue": "IN"}, "to": {"mqtt": "state"}, "attributes": {"retained": "always"}}},
    )
    async with running(configuration) as bridge:
        yield bridge


async def outside(work: Callable[[], T]) -> T:
    """Return the result of a function on a separate thread, whose calls are not recorded."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        sys.setprofile(None)
        try:
            loop.call_soon_threadsafe(ended.set_result, work())
        except BaseException as error:
            loop.call_soon_threadsafe(ended.set_exception, error)

    threading.Thread(target=run).start()
    return await ended


async def files_of(hook: Hook, operation: Callable[[], Awaitable[object]]) -> list[str]:
    """Return the files that an operation always passes."""
    await operation()
    functions: list[set[tuple[str, str]]] = []
    for _ in range(ROUNDS):
        with hook.recording() as calls:
            await operation()
        functions.append(calls)
        await asyncio.sleep(0.05)  # what follows the operation is not part of it
    return sorted({file for file, _ in set.intersection(*functions)})


def report(capsys: pytest.CaptureFixture[str], operation: str, files: list[str], most: int, aim: int) -> None:
    """Print the files, and assert that their number has not increased."""
    with capsys.disabled():
        print(f"\n{operation}: {len(files)} files (aim: {aim})")
        for file in files:
            print(f"  {file}")
    assert len(files) <= most


def port_of(bridge: Bridge) -> int:
    channel = bridge.parts.channels.get("A")
    assert channel is not None and channel.endpoint is not None
    return channel.endpoint[1]


async def mqsc(bridge: Bridge, *commands: str) -> None:
    def run() -> None:
        connection = application(bridge)
        for command in commands:
            assert all(answer.ok for answer in connection.command(command)), command
        connection.disconnect()

    await outside(run)


def application(bridge: Bridge) -> RemoteConnection:
    """An MQ application of another process."""
    assert isinstance(bridge.host, EmbeddedHost)
    return RemoteConnection(bridge.host.queue_manager.data_directory, application="test")


async def test_publish_to_disk(bridge: Bridge, hook: Hook, capsys: pytest.CaptureFixture[str]) -> None:
    """A PUBLISH of QoS 1 whose message is on disk before PUBACK."""
    await mqsc(bridge, "DEFINE QLOCAL(Q)", "DEFINE SUB(S) TOPICSTR('t') DEST(Q)")
    client = await outside(lambda: RawClient.connected(port_of(bridge), "c"))
    publish = Publish("t", b"x", 1, False, False, 1)

    def work() -> None:
        client.send(publish)
        client.expect(Puback)

    files = await files_of(hook, lambda: outside(work))
    report(capsys, "PUBLISH to disk", files, 22, 12)


async def test_connect_to_connack(bridge: Bridge, hook: Hook, capsys: pytest.CaptureFixture[str]) -> None:
    """A CONNECT with a clean session, without credentials."""
    clients: list[RawClient] = []

    def work() -> None:
        clients.append(RawClient.connected(port_of(bridge), f"c{len(clients)}"))

    files = await files_of(hook, lambda: outside(work))
    # Two of them were added with the history of clients, and one with turns in a module of their own.
    report(capsys, "CONNECT to CONNACK", files, 29, 12)


async def test_mqput_to_client(bridge: Bridge, hook: Hook, capsys: pytest.CaptureFixture[str]) -> None:
    """An MQPUT1 of an application of another process to a topic, and its PUBLISH to a client."""
    client = await outside(lambda: RawClient.connected(port_of(bridge), "c", clean=False))
    await outside(lambda: client.subscribe(("t", 0)))
    connection = await outside(lambda: application(bridge))

    def work() -> None:
        connection.put1(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="t"), Message(MQMD(), b"x"))
        client.expect(Publish)

    files = await files_of(hook, lambda: outside(work))
    await outside(connection.disconnect)
    report(capsys, "MQPUT to a client", files, 32, 14)


async def test_retained_publication_cleared_by_a_mapping(
    bridge: Bridge, hook: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty message on a queue, which a mapping publishes as retained and so clears the retained publication."""
    await mqsc(bridge, "DEFINE QLOCAL(IN)")
    assert isinstance(bridge.host, EmbeddedHost)
    manager = bridge.host.queue_manager
    connection = await outside(lambda: application(bridge))
    hold = hook

    def put(payload: bytes) -> None:
        connection.put1(MQOD(ObjectName="IN"), Message(MQMD(), payload))

    def clear() -> None:
        hold.calls, calls = None, hold.calls
        put(b"x")
        until(lambda: "state" in manager.retained)
        hold.calls = calls
        put(b"")
        until(lambda: "state" not in manager.retained)

    files = await files_of(hook, lambda: outside(clear))
    await outside(connection.disconnect)
    report(capsys, "clearing a retained publication through a mapping", files, 35, 20)
