"""A queue manager that listens as the bridge's does, and the command line at it: in this process, and in one of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from typer.testing import CliRunner, Result

from bridge.cli.program import program
from bridge.mq.embedded.mqsc.script import prepare
from bridge.mq.embedded.pcf.command_server import CommandServer
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.client import RemoteConnection
from bridge.mq.embedded.server.server import ApplicationServer
from bridge.mq.mqi import MQOD
from tests.patience import PATIENCE, until


class RunningQueueManager:
    """An embedded queue manager on a thread and event loop of its own, as the bridge runs it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._names = itertools.count(1)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="queue manager")
        self._thread.start()
        self._queue_manager = QueueManager("QM1", directory)
        prepare(self._queue_manager)
        self._queue_manager.journal.dispatch = self._loop.call_soon_threadsafe
        CommandServer(self._queue_manager).start()
        self._server = ApplicationServer(self._queue_manager)
        self._wait_for(self._server.listen())
        #: the test's own MQ connection
        self.connection = RemoteConnection(directory, application="test")

    def _wait_for(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)  # type: ignore[arg-type]

    def stop(self) -> None:
        self.connection.disconnect()
        self._wait_for(self._server.close())
        self._queue_manager.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    def command(self, text: str) -> list[dict[str, str | int]]:
        """The objects that an MQSC command shows; none when it is refused."""
        (response,) = self.connection.command(text)
        return response.objects

    def queue(self, attributes: str = "") -> str:
        """The name of a new local queue."""
        name = self.name("QUEUE")
        (response,) = self.connection.command(f"DEFINE QLOCAL({name}) {attributes}")
        assert response.ok, response.message
        return name

    def name(self, kind: str) -> str:
        """A name that nothing has yet."""
        return f"{kind}.{next(self._names)}"

    def depth(self, queue: str) -> int:
        return int(self.command(f"DISPLAY QLOCAL({queue}) CURDEPTH")[0]["CURDEPTH"])

    def put(self, queue: str, *messages: object) -> None:
        for message in messages:
            self.connection.put1(MQOD(ObjectName=queue), message)  # type: ignore[arg-type]

    until = staticmethod(until)


@pytest.fixture(scope="session")
def queue_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    running = RunningQueueManager(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the tests names no data directory and no configuration."""
    monkeypatch.delenv("MQBRIDGE_DATA_DIR", raising=False)
    monkeypatch.delenv("MQBRIDGE_CONFIG", raising=False)


Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    """Run a command in this process: `invoke("check", path, input=b"")`."""

    def call(*arguments: object, input: bytes | None = None) -> Result:
        return CliRunner().invoke(program, [str(one) for one in arguments], input=input)

    return call


@pytest.fixture
def mq(invoke: Invoke, queue_manager: RunningQueueManager, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a `mqbridge mq` command in this process, at the queue manager."""
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", str(queue_manager.directory))

    def call(*arguments: object, input: bytes | None = None) -> Result:
        return invoke("mq", *arguments, input=input)

    return call


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `mqbridge` as a process, in an empty working directory: `start("mq", "get", "Q")`."""
    started: list[subprocess.Popen[bytes]] = []

    def call(*arguments: object, stdout: int = subprocess.PIPE, **variables: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("mqbridge"), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=os.environ | {name: str(value) for name, value in variables.items()},
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()
