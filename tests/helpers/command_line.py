"""Fixtures of tests of the command line in this process, and a queue manager that listens like that of a bridge."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bridge.cli.program import program
from bridge.mq.mqi import MQOD
from bridge.mq.remote import RemoteConnection
from tests.helpers.known_secrets import assert_no_secret
from tests.helpers.patience import until
from tests.helpers.served_queue_manager import ServedQueueManager


class RunningQueueManager(ServedQueueManager):
    """A queue manager with an MQ connection of the test."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "QM1")
        self._names = itertools.count(1)
        self.connection = RemoteConnection(directory, application="test")

    def close(self) -> None:
        self.connection.disconnect()
        super().close()

    def command(self, text: str) -> list[dict[str, str | int]]:
        """Return the objects that an MQSC command displays, or none if it fails."""
        (response,) = self.connection.command(text)
        return response.objects

    def queue(self, attributes: str = "") -> str:
        """The name of a new local queue."""
        name = self.name("QUEUE")
        (response,) = self.connection.command(f"DEFINE QLOCAL({name}) {attributes}")
        assert response.ok, response.message
        return name

    def name(self, kind: str) -> str:
        """Return an unused name."""
        return f"{kind}.{next(self._names)}"

    def depth(self, queue: str) -> int:
        return int(self.command(f"DISPLAY QLOCAL({queue}) CURDEPTH")[0]["CURDEPTH"])

    def put(self, queue: str, *messages: object) -> None:
        for message in messages:
            self.connection.put1(MQOD(ObjectName=queue), message)

    until = staticmethod(until)


@pytest.fixture(scope="session")
def queue_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove data directory and configuration from the environment of the tests."""
    monkeypatch.delenv("MQBRIDGE_DATA_DIR", raising=False)
    monkeypatch.delenv("MQBRIDGE_CONFIG", raising=False)


Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    """Run a command in this process: `invoke("check", path, input=b"")`."""

    def call(*arguments: object, input: bytes | None = None) -> Result:
        result = CliRunner().invoke(program, [str(argument) for argument in arguments], input=input)
        assert_no_secret(result.output, f"what mqbridge {arguments[0]} printed")
        return result

    return call


@pytest.fixture
def mq(invoke: Invoke, queue_manager: RunningQueueManager, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a `mqbridge mq` command in this process, at the queue manager."""
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", str(queue_manager.directory))

    def call(*arguments: object, input: bytes | None = None) -> Result:
        group = "mqsc" if arguments[0] in ("command", "run", "display", "dump") else "mq"
        return invoke(group, *arguments, input=input)

    return call
