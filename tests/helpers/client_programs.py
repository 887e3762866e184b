"""Programs that use the real pymqi and ibmmq on the stand-in for IBM's client library, each in a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.mqi import MQOD, CommandResponse
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.client_packages import BUILD
from tests.helpers.installed import CLIENT_PACKAGES
from tests.helpers.patience import PATIENCE, until
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.ibm_standin.mqi.connection import StandInConnection

PACKAGES = ("pymqi", "ibmmq")


#: The beginning of programs for both packages. A program returns `results` to the test.
PRELUDE = """
import importlib, json, sys, threading, time
mq = importlib.import_module(sys.argv[1])
CMQC = mq.CMQC
results = {}

def reason(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except mq.MQMIError as error:
        return error.reason
    return 0
"""


CONNECT = "qmgr = mq.connect('MQB1', 'SYSTEM.DEF.SVRCONN', 'localhost(1414)')\n"


CODA = "\nprint(json.dumps(results, default=lambda value: value.decode('latin-1')))\n"


def environment(package: str, **variables: str) -> dict[str, str]:
    """Return the environment of a process that uses a package on the stand-in."""
    # A bridge that connected in this process has set MQCCSID.
    inherited = {name: value for name, value in os.environ.items() if name != "MQCCSID"}
    return (
        inherited | {"LD_LIBRARY_PATH": str(BUILD / "lib64"), "PYTHONPATH": str(CLIENT_PACKAGES / package)} | variables
    )


class Manager(ServedQueueManager):
    """The embedded queue manager, for other processes."""

    def __init__(
        self,
        directory: Path,
        listener: ListenerConfig | None = None,
        name: str = "MQB1",
        max_channels: int | None = 100,
        channels: Sequence[str] = (),
    ) -> None:
        super().__init__(
            directory, name, listener=listener, tcp=True, max_channels=max_channels, stand_in=True, channels=channels
        )
        self._connection = StandInConnection(self.itself, "tests")

    def command(self, text: str) -> CommandResponse:
        (response,) = self._connection.command(text)
        assert response.ok, response.message
        return response

    def attribute(self, selection: str, keyword: str) -> str | int:
        (attributes,) = self.command(f"DISPLAY {selection} {keyword}").objects
        return attributes[keyword]

    def wait_for_depth(self, queue: str, depth: int) -> None:
        """Wait until the queue manager has noticed and backed out a broken connection."""
        until(lambda: self.attribute(f"QLOCAL({queue})", "CURDEPTH") == depth)

    @contextlib.contextmanager
    def signal(self, queue: str) -> Iterator[None]:
        """In the background: put a message to QUEUE.GO as soon as a get waits for a message of a queue."""
        self.command(f"DEFINE QLOCAL({queue}.GO)")

        def go() -> None:
            connection = StandInConnection(self.itself, "tests")
            connection.put1(MQOD(ObjectName=f"{queue}.GO"), Message(MQMD(), b"go"))
            connection.disconnect()

        try:
            with self.when_a_get_waits(queue, go):
                yield
        finally:
            self.command(f"DELETE QLOCAL({queue}.GO) PURGE")

    @contextlib.contextmanager
    def when_a_get_waits(self, queue: str, act: Callable[[], None]) -> Iterator[None]:
        """In the background: act as soon as a get waits for a message of a queue."""
        ended = threading.Event()

        def watch() -> None:
            while not self.itself.objects.queues[queue].waiters:
                if ended.wait(0.005):
                    return
            act()

        watcher = threading.Thread(target=watch, name="signal")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def run(self, package: str, program: str, *, connect: bool = True, **variables: str) -> dict[str, Any]:
        """Run a program to its end. Return the contents of `results`."""
        text = PRELUDE + (CONNECT if connect else "") + textwrap.dedent(program) + CODA
        process = subprocess.run(
            [sys.executable, "-c", text, package],
            env=environment(package, **{"MQI_STANDIN": self.place} | variables),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        assert not process.stderr, process.stderr
        result: dict[str, Any] = json.loads(process.stdout)
        return result
