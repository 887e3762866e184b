"""A queue manager, and programs on the real pymqi and ibmmq that connect to it through the stand-in.

A program runs in a process of its own, as it would with IBM's library: it finds the library by LD_LIBRARY_PATH, the package
by PYTHONPATH and the queue manager by MQI_STANDIN.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mapping.message import Message
from bridge.mq.capi import frames
from bridge.mq.capi.conversation import MqiConversation
from bridge.mq.embedded.mqsc.script import prepare
from bridge.mq.embedded.pcf.command_server import CommandServer
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.admission import Admission
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.embedded.server.server import ApplicationServer
from bridge.mq.mqi import MQOD, CommandResponse
from bridge.wire.mq import MQMD
from tests.patience import PATIENCE

BUILD = Path(__file__).resolve().parents[2] / "build" / "mqi"
PACKAGES = ("pymqi", "ibmmq")

#: What programs of both packages begin with. `found` is what they hand back to the test.
PRELUDE = """
import importlib, json, sys, threading, time
mq = importlib.import_module(sys.argv[1])
CMQC = mq.CMQC
found = {}

def reason(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except mq.MQMIError as error:
        return error.reason
    return 0
"""
CONNECT = "qmgr = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')\n"
CODA = "\nprint(json.dumps(found, default=lambda value: value.decode('latin-1')))\n"


def environment(package: str, **variables: str) -> dict[str, str]:
    """The environment of a process that uses a package on the stand-in."""
    return os.environ | {"LD_LIBRARY_PATH": str(BUILD / "lib64"), "PYTHONPATH": str(BUILD / package)} | variables


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


class Manager:
    """The embedded queue manager, served to other processes."""

    def __init__(self, directory: Path, admission: Admission | None = None, name: str = "MQB1") -> None:
        self.directory = directory
        self.itself = QueueManager(name, directory)
        prepare(self.itself)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server")
        self._thread.start()
        self.itself.journal.dispatch = self._loop.call_soon_threadsafe
        CommandServer(self.itself).start()
        self._server = ApplicationServer(self.itself, admission, MqiConversation)
        asyncio.run_coroutine_threadsafe(self._server.listen(("127.0.0.1", 0)), self._loop).result(PATIENCE)
        self.port = self._server.port
        self._connection = EmbeddedConnection(self.itself, "tests")

    @property
    def place(self) -> str:
        """What MQI_STANDIN says."""
        return f"unix:{self.directory / frames.SOCKET_NAME}"

    def command(self, text: str) -> CommandResponse:
        (response,) = self._connection.command(text)
        assert response.ok, response.message
        return response

    def attribute(self, what: str, keyword: str) -> str | int:
        (shown,) = self.command(f"DISPLAY {what} {keyword}").objects
        return shown[keyword]

    def wait_for_depth(self, queue: str, depth: int) -> None:
        """A connection that breaks is backed out when the queue manager has seen it."""
        until(lambda: self.attribute(f"QLOCAL({queue})", "CURDEPTH") == depth)

    @contextlib.contextmanager
    def signal(self, queue: str) -> Iterator[None]:
        """Meanwhile: as soon as a get waits for a message of a queue, there is one on QUEUE.GO."""
        self.command(f"DEFINE QLOCAL({queue}.GO)")
        ended = threading.Event()

        def watch() -> None:
            while not self.itself.queues[queue].waiters:
                if ended.wait(0.005):
                    return
            connection = EmbeddedConnection(self.itself, "tests")
            connection.put1(MQOD(ObjectName=f"{queue}.GO"), Message(MQMD(), b"go"))
            connection.disconnect()

        watcher = threading.Thread(target=watch, name="signal")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            self.command(f"DELETE QLOCAL({queue}.GO) PURGE")

    def run(self, package: str, program: str, *, connect: bool = True, **variables: str) -> dict[str, Any]:
        """Run a program to its end; what it put in `found`."""
        text = PRELUDE + (CONNECT if connect else "") + textwrap.dedent(program) + CODA
        done = subprocess.run(
            [sys.executable, "-c", text, package],
            env=environment(package, **{"MQI_STANDIN": self.place} | variables),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(PATIENCE)
        self.itself.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    manager = Manager(tmp_path_factory.mktemp("data"))
    yield manager
    manager.close()


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> str:
    """The name of a package. Skipped where it was not built: see environments.sh."""
    name: str = request.param
    if not (BUILD / name / name).is_dir():
        pytest.skip(f"{name} is not in {BUILD}: run tests/mqi/environments.sh")
    return name


@pytest.fixture
def queue(manager: Manager, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty local queue."""
    name = f"Q.{abs(hash(request.node.name)) % 10**9}"
    manager.command(f"DEFINE QLOCAL({name})")
    yield name
    manager.command(f"DELETE QLOCAL({name}) PURGE")
