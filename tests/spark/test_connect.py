"""Sources and sinks with a Spark Connect server, used by a client in another process."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from bridge.wire import cmqc
from tests.helpers.mosquitto import Mosquitto, free_port
from tests.helpers.patience import until_at_last
from tests.spark.cluster import start_connect_server
from tests.spark.conftest import ROOT, Queues
from tests.spark.connect_client import Job

ROWS = 12_000

pytestmark = pytest.mark.slow  # starts another Spark


class Connect:
    """A Spark Connect server, and the job of its clients."""

    def __init__(self, server: psutil.Process, job: Job) -> None:
        self._server = server
        self.job = job

    def run(self, step: str) -> str:
        """Run a step in a client. Return its output."""
        while True:
            status, output, error = self._attempt(step)
            # Spark gives a process ten seconds to start, which are not enough on a busy machine.
            if "failed to connect back" not in error:
                assert status == 0, error
                return output

    def _attempt(self, step: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "tests.spark.connect_client", step, msgspec.json.encode(self.job).decode()]
        client = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            until_at_last(lambda: client.poll() is not None, self._cpu_time)
        finally:
            client.kill()
            output, error = client.communicate()
        return client.returncode, output, error

    def _cpu_time(self) -> float:
        return sum(self._server.cpu_times()[:2])


@pytest.fixture(scope="module")
def connect(queues: Queues, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    directory, port = tmp_path_factory.mktemp("connect") / "server", free_port()
    directory.mkdir()
    server = start_connect_server(port, directory)
    process = psutil.Process(server.pid)
    broker = Mosquitto(directory).start()
    try:
        until_at_last(lambda: listens(port), lambda: process.cpu_times())
        targets = {name: queues.queue() for name in ("write", "mapped", "stream", "mqtt", "function")}
        options = queues.options
        yield Connect(
            process, Job(f"sc://127.0.0.1:{port}", options, broker.port, str(directory), queues.queue(), targets)
        )
    finally:
        for child in process.children(recursive=True):
            child.kill()
        server.kill()
        server.wait()
        broker.stop()


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return not connection.connect_ex(("127.0.0.1", port))


def fill(queues: Queues, queue: str) -> None:
    for first in range(0, ROWS, ROWS // 2):
        bodies = [b"%d" % number for number in range(first, first + ROWS // 2)]
        queues.put(queue, *bodies, Format=cmqc.MQFMT_STRING)


def check(queues: Queues, queue: str, rows: int = ROWS) -> None:
    assert Counter(map(int, queues.bodies(queue))) == Counter(range(rows))


def test_batch_reads_and_writes(connect: Connect, queues: Queues) -> None:
    fill(queues, connect.job.queue)
    assert connect.run("browse").split() == [str(ROWS)]
    check(queues, connect.job.queue)
    connect.run("write")
    check(queues, connect.job.queues["write"])
    connect.run("mapped")
    (message,) = queues.bodies(connect.job.queues["mapped"])
    assert message.endswith(b"mapped")


@pytest.mark.parametrize("step", ["stream", "function"])
def test_a_stream_from_queue_to_queue(step: str, connect: Connect, queues: Queues) -> None:
    """Each batch is larger than a unit of work. `function`: with a batch write in foreachBatch."""
    fill(queues, connect.job.queue)
    connect.run(step)
    check(queues, connect.job.queues[step])
    assert queues.depth(connect.job.queue) == 0
    assert not list(Path(connect.job.directory).rglob("stage/**/*.arrow"))


def test_publications(connect: Connect, queues: Queues) -> None:
    connect.run("publications")
    check(queues, connect.job.queues["mqtt"], 1_000)
